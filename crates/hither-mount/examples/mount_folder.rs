//! Shows a source as a directory until Enter is pressed: `mount_folder SOURCE DIRECTORY`. The
//! source is a folder, or what a URL such as `s3://BUCKET/PREFIX` names.

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use hither_mount::{MountSettings, Mounted};
use hither_node::node::{Node, NodeSettings};
use hither_node::source::registry;
use hither_node::source::settings::SourceSettings;
use hither_node::volume::{Volume, VolumeSettings};
use tokio::runtime::Runtime;

fn mount(runtime: &Runtime, source: &str, directory: &Path) -> Result<Mounted, Box<dyn Error>> {
    let opened = runtime.block_on(registry::open(source, &SourceSettings::default()))?;
    let settings = NodeSettings {
        memory_bytes: 64 << 20,
        block_bytes: 64 << 10,
        policy: "s3-fifo".parse()?,
        prefetches_max: 8,
        disk: None,
    };
    let node = Node::new(settings, runtime.handle().clone())?;
    let settings = VolumeSettings {
        name: source.to_owned(),
        prefetch_bytes_max: 1 << 20,
    };
    let volume = Volume::new(node, opened, settings);
    Ok(Mounted::new(
        volume,
        directory,
        &MountSettings::default(),
        "example",
        None,
    )?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [source, directory] = &arguments[..] else {
        return Err("usage: mount_folder SOURCE DIRECTORY".into());
    };
    let runtime = Runtime::new()?;
    let mounted = mount(&runtime, source, Path::new(directory))?;
    println!("{source} is at {directory}; Enter ends it");
    std::io::stdin().read_line(&mut String::new())?;
    mounted.unmount(Duration::from_secs(5))?;
    Ok(())
}

#[test]
fn a_file_is_read_through_the_mount() {
    if hither_testing::needs::cannot_mount() {
        return;
    }
    let (source, directory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(source.path().join("file"), "hello").unwrap();
    let runtime = Runtime::new().unwrap();
    let mounted = mount(&runtime, source.path().to_str().unwrap(), directory.path()).unwrap();
    assert_eq!(
        std::fs::read_to_string(directory.path().join("file")).unwrap(),
        "hello"
    );
    mounted.unmount(Duration::from_secs(5)).unwrap();
}
