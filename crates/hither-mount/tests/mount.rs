//! A mount over a directory: every byte, name and attribute as at the source, in every state of the
//! cache.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hither_core::Random;
use hither_mount::{Consistency, MountSettings, Mounted};
use hither_node::node::{Node, NodeSettings};
use hither_node::source::registry;
use hither_node::source::settings::SourceSettings;
use hither_node::volume::{Volume, VolumeSettings};
use tokio::runtime::Runtime;

mod support;

use support::mount_or_skip;

/// A mount of a directory, with what it needs.
struct Bench {
    mounted: Option<Mounted>,
    volume: Arc<Volume>,
    source: tempfile::TempDir,
    target: tempfile::TempDir,
    _runtime: Runtime,
}

impl Bench {
    /// `None` where this user cannot mount.
    fn new(memory_bytes: u64, consistency: Consistency, direct_io: bool) -> Option<Bench> {
        let source = tempfile::tempdir().unwrap();
        Bench::over(source, memory_bytes, consistency, direct_io)
    }

    fn over(
        source: tempfile::TempDir,
        memory_bytes: u64,
        consistency: Consistency,
        direct_io: bool,
    ) -> Option<Bench> {
        let target = tempfile::tempdir().unwrap();
        let runtime = Runtime::new().unwrap();
        let url = source.path().to_str().unwrap();
        let opened = runtime
            .block_on(registry::open(url, &SourceSettings::default()))
            .unwrap();
        let settings = NodeSettings {
            memory_bytes,
            block_bytes: 64 << 10,
            policy: "s3-fifo".parse().unwrap(),
            prefetches_max: 8,
            disk: None,
        };
        let node = Node::new(settings, runtime.handle().clone()).unwrap();
        let settings = VolumeSettings {
            name: url.to_owned(),
            prefetch_bytes_max: 1 << 20,
        };
        let volume = Volume::new(node, opened, settings);
        let settings = MountSettings {
            consistency,
            direct_io,
            threads: Some(4),
            ..MountSettings::default()
        };
        let mounted = mount_or_skip(&volume, target.path(), &settings)?;
        Some(Bench {
            mounted: Some(mounted),
            volume,
            source,
            target,
            _runtime: runtime,
        })
    }

    fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        self.target.path().join(path)
    }

    /// Writes a file at the source.
    fn write(&self, path: impl AsRef<Path>, contents: &[u8]) {
        let path = self.source.path().join(path);
        fs::write(&path, contents).unwrap();
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if let Some(mounted) = self.mounted.take() {
            mounted.unmount(Duration::from_secs(5)).unwrap();
        }
    }
}

fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..bytes.div_ceil(8))
        .flat_map(|_| random.bits().to_le_bytes())
        .take(bytes)
        .collect()
}

/// Until a file that was just written is settled, and a name that was just looked up is no longer
/// believed.
fn settle() {
    std::thread::sleep(Duration::from_millis(2200));
}

/// Everything below `root`: kind, mode, length, time and contents.
fn tree(root: &Path) -> BTreeMap<Vec<u8>, (u32, u64, SystemTime, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let status = fs::symlink_metadata(&path).unwrap();
            let contents = if status.is_dir() {
                folders.push(path.clone());
                Vec::new()
            } else if status.is_symlink() {
                fs::read_link(&path)
                    .unwrap()
                    .into_os_string()
                    .as_bytes()
                    .to_vec()
            } else {
                fs::read(&path).unwrap()
            };
            let bytes = if status.is_dir() { 0 } else { status.len() };
            let name = path
                .strip_prefix(root)
                .unwrap()
                .as_os_str()
                .as_bytes()
                .to_vec();
            let entry = (status.mode(), bytes, status.modified().unwrap(), contents);
            found.insert(name, entry);
        }
    }
    found
}

#[test]
fn a_tree_is_as_at_the_source() {
    let Some(bench) = Bench::new(16 << 20, Consistency::default(), false) else {
        return;
    };
    let root = bench.source.path();
    fs::create_dir_all(root.join("deep/er/still")).unwrap();
    fs::write(
        root.join(std::ffi::OsStr::from_bytes(b"any \xff\n byte")),
        b"x",
    )
    .unwrap();
    for (number, bytes) in [0, 1, 4095, 4096, 65_535, 65_536, 65_537, 300_000]
        .iter()
        .enumerate()
    {
        bench.write(format!("deep/er/{number}"), &noise(number as u64, *bytes));
    }
    symlink("er/3", root.join("deep/link")).unwrap();
    symlink("nowhere", root.join("dangling")).unwrap();
    fs::set_permissions(root.join("deep/er/1"), fs::Permissions::from_mode(0o640)).unwrap();
    for name in 0..3000 {
        bench.write(
            format!("deep/er/still/{name:05}"),
            name.to_string().as_bytes(),
        );
    }
    let expected = tree(root);
    assert_eq!(expected.len(), 3014);
    // Just written, once settled, and from memory.
    for _ in 0..2 {
        assert_eq!(tree(bench.target.path()), expected);
        settle();
    }
    assert_eq!(tree(bench.target.path()), expected);
    assert_eq!(fs::read(bench.at("deep/link")).unwrap(), noise(3, 4096));
    assert!(!bench.at("deep/er/none").exists());
    for name in ["new", "deep/er/1"] {
        let error = fs::write(bench.at(name), "x").unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    }
}

#[test]
fn random_reads_return_the_bytes_of_the_file_with_little_memory() {
    for direct_io in [false, true] {
        // Less than 2 MiB of blocks for 6 MiB of file: most are evicted before they are read again.
        let Some(bench) = Bench::new(2 << 20, Consistency::Immutable, direct_io) else {
            return;
        };
        let contents = noise(1, 6 << 20);
        bench.write("file", &contents);
        let path = bench.at("file");
        let readers: Vec<_> = (0..4)
            .map(|seed| {
                let (path, contents) = (path.clone(), contents.clone());
                std::thread::spawn(move || {
                    let file = File::open(path).unwrap();
                    let mut random = Random::new(seed);
                    for _ in 0..2000 {
                        let offset = random.below(contents.len() as u64 + 1000);
                        let mut buffer = vec![0; random.below(200_000) as usize];
                        let bytes = file.read_at(&mut buffer, offset).unwrap();
                        let end = (offset as usize + buffer.len()).min(contents.len());
                        let expected = contents.get(offset as usize..end).unwrap_or(&[]);
                        assert!(buffer[..bytes] == *expected, "at {offset}");
                    }
                })
            })
            .collect();
        for reader in readers {
            reader.join().unwrap();
        }
        bench.volume.node().store().check();
        assert_eq!(bench.volume.node().in_flight(), 0);
    }
}

#[test]
fn a_sequential_reader_finds_its_blocks_in_memory() {
    let Some(bench) = Bench::new(32 << 20, Consistency::Immutable, false) else {
        return;
    };
    let contents = noise(2, 8 << 20);
    bench.write("file", &contents);
    assert!(fs::read(bench.at("file")).unwrap() == contents);
    let counts = bench.volume.counters().counts();
    assert_eq!(counts.fetched_bytes, 8 << 20, "each block is fetched once");

    // A block that lands just after a reader looked was waited for, and yet comes from memory.
    assert!(counts.memory_bytes + counts.awaited_bytes >= counts.read_bytes);
    // Where a reader's bytes came from is counted once it has them.
    let has_all = || {
        let counts = bench.volume.counters().counts();
        counts.memory_bytes + counts.source_bytes == counts.read_bytes
    };
    let mut tries = 0..10_000;
    while !has_all() {
        let counts = bench.volume.counters().counts();
        assert!(tries.next().is_some(), "{counts:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
    // Another descriptor does not need the source.
    assert!(fs::read(bench.at("file")).unwrap() == contents);
    let again = bench.volume.counters().counts();
    assert_eq!(again.fetches, counts.fetches);
}

#[test]
fn an_open_file_keeps_its_version_and_the_next_open_finds_the_new_one() {
    let modes = [
        Consistency::Strict,
        Consistency::Ttl(Duration::from_millis(200)),
    ];
    for mode in modes {
        let Some(bench) = Bench::new(16 << 20, mode, false) else {
            return;
        };
        let versions = [noise(1, 500_000), noise(2, 500_000), noise(3, 700_000)];
        bench.write("file", &versions[0]);
        bench.write("cold", &versions[0]);
        settle();
        let mut old = File::open(bench.at("file")).unwrap();
        let mut contents = Vec::new();
        old.read_to_end(&mut contents).unwrap();
        let cold = File::open(bench.at("cold")).unwrap();
        for version in &versions[1..] {
            bench.write("file", version);
            bench.write("cold", version);
            if mode != Consistency::Strict {
                std::thread::sleep(Duration::from_millis(400));
            }
            for _ in 0..2 {
                assert!(fs::read(bench.at("file")).unwrap() == *version, "{mode:?}");
                let length = fs::metadata(bench.at("file")).unwrap().len();
                assert_eq!(length, version.len() as u64);
            }
            // What was cached of the old version is still there for who has it open.
            old.seek(SeekFrom::Start(0)).unwrap();
            contents.clear();
            old.read_to_end(&mut contents).unwrap();
            assert!(contents == versions[0]);
            // What was not is gone, and is never mixed with the new one.
            let error = cold.read_at(&mut [0; 100], 0).unwrap_err();
            assert_eq!(
                error.raw_os_error(),
                Some(rustix::io::Errno::STALE.raw_os_error())
            );
        }
        fs::remove_file(bench.source.path().join("file")).unwrap();
        std::thread::sleep(Duration::from_millis(400));
        assert!(!bench.at("file").exists());
    }
}

#[test]
fn a_directory_of_many_files_is_listed_whole_and_again() {
    let Some(bench) = Bench::new(16 << 20, Consistency::default(), false) else {
        return;
    };
    for name in 0..20_000 {
        bench.write(format!("{name}"), b"");
    }
    for _ in 0..2 {
        let names = fs::read_dir(bench.target.path()).unwrap();
        let mut names: Vec<u32> = names
            .map(|entry| {
                entry
                    .unwrap()
                    .file_name()
                    .to_str()
                    .unwrap()
                    .parse()
                    .unwrap()
            })
            .collect();
        names.sort_unstable();
        assert!(names.iter().copied().eq(0..20_000), "{} names", names.len());
    }
}

#[test]
fn a_living_mount_is_not_replaced_and_what_is_none_is_not_unmounted() {
    let Some(bench) = Bench::new(16 << 20, Consistency::default(), false) else {
        return;
    };
    let settings = MountSettings::default();
    let volume = Arc::clone(&bench.volume);
    let again = Mounted::new(volume, bench.target.path(), &settings, "test", None);
    let error = again.err().expect("refused").to_string();
    assert!(
        error.contains("already") && error.contains("unmount"),
        "{error}"
    );
    hither_mount::unmount(bench.target.path()).unwrap();
    let error = hither_mount::unmount(bench.target.path()).unwrap_err();
    assert!(error.to_string().contains("no mount of hither"), "{error}");
}

#[test]
fn a_file_says_where_it_is_cached() {
    let Some(bench) = Bench::new(16 << 20, Consistency::Immutable, false) else {
        return;
    };
    bench.write("file", &noise(1, 200_000));
    let attribute = |name: &str| {
        let mut value = [0; 200];
        let bytes = rustix::fs::getxattr(bench.at("file"), name, &mut value[..]).unwrap();
        String::from_utf8(value[..bytes].to_vec()).unwrap()
    };
    assert_eq!(attribute("user.hither.memory"), "0/4");
    fs::read(bench.at("file")).unwrap();
    assert_eq!(attribute("user.hither.memory"), "4/4");
    assert!(!attribute("user.hither.version").is_empty());
    // By this a command finds the node that serves a path: any path.
    assert_eq!(attribute("user.hither.socket"), "/run/x.sock");
    let mut value = [0; 64];
    let bytes = rustix::fs::getxattr(bench.at(""), "user.hither.socket", &mut value[..]).unwrap();
    assert_eq!(&value[..bytes], b"/run/x.sock");
    let listed = rustix::fs::listxattr(bench.at("file"), &mut [0u8; 64][..]).unwrap();
    assert_eq!(listed, 0, "programs would copy it");
}
