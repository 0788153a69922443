//! Reads a file through the cache of a node, twice: `cached_folder [FOLDER FILE]`. The folder can
//! be any source, such as `s3://BUCKET/PREFIX`. Without arguments, a folder that is made for it.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use hither_node::node::{Node, NodeSettings};
use hither_node::source::SourcePath;
use hither_node::source::registry;
use hither_node::source::settings::SourceSettings;
use hither_node::volume::{Counts, OpenFile, Volume, VolumeSettings};
use tokio::runtime::Handle;

async fn read(file: &Arc<OpenFile>) -> Result<u64, Box<dyn Error>> {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let whole = file.version().bytes as usize;
    file.read(0, whole, |data| {
        // The reader may be gone by now.
        let _ = sender.send(data);
    });
    let pieces = receiver.await??;
    Ok(pieces.pieces().iter().map(|piece| piece.len() as u64).sum())
}

/// What the cache counted of two reads of a file.
async fn read_twice(source: &str, path: &str) -> Result<Counts, Box<dyn Error>> {
    let settings = NodeSettings {
        memory_bytes: 64 << 20,
        block_bytes: 64 << 10,
        policy: "s3-fifo".parse()?,
        prefetches_max: 8,
        disk: None,
    };
    let node = Node::new(settings, Handle::current())?;
    let source_settings = SourceSettings {
        // How long after its last change a file is not cached yet.
        settling: Duration::from_millis(10),
        ..SourceSettings::default()
    };
    let volume = Volume::new(
        node,
        registry::open(source, &source_settings).await?,
        VolumeSettings {
            name: source.to_owned(),
            prefetch_bytes_max: 1 << 20,
        },
    );
    let path = SourcePath::new(path.as_bytes()).ok_or("no path of a file")?;
    let entry = volume.source().stat(&path).await?;
    let (version, settled) = entry.file(&path).ok_or("no file")?;
    let file = volume.open(version, settled);
    for _ in 0..2 {
        println!("read {} bytes", read(&file).await?);
    }
    Ok(volume.counters().counts())
}

async fn run(arguments: &[String]) -> Result<Counts, Box<dyn Error>> {
    let counts = if let [source, path] = arguments {
        read_twice(source, path).await?
    } else {
        let folder = tempfile::tempdir()?;
        std::fs::write(folder.path().join("file"), vec![7; 3 << 20])?;
        tokio::time::sleep(Duration::from_millis(100)).await;
        read_twice(&folder.path().display().to_string(), "file").await?
    };
    println!("{} bytes came from the source", counts.source_bytes);
    println!("{} bytes were in the cache", counts.memory_bytes);
    Ok(counts)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    run(&arguments).await.map(drop)
}

#[tokio::test]
async fn the_second_read_comes_from_the_cache() {
    let counts = run(&[]).await.expect("the folder can be read");
    assert_eq!(
        (counts.source_bytes, counts.memory_bytes),
        (3 << 20, 3 << 20)
    );
}
