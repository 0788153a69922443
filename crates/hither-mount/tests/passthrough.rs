//! Files that the kernel reads straight from the disk tier: when it does, when it must not, and
//! right bytes in all cases.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use hither_core::Random;
use hither_mount::{Consistency, MountSettings, Mounted};
use hither_node::node::{Node, NodeError, NodeSettings};
use hither_node::source::registry::{open, open_writable};
use hither_node::source::settings::SourceSettings;
use hither_node::source::{FileVersion, SourcePath};
use hither_node::store::disk::settings::{DiskError, DiskSettings};
use hither_node::volume::{Place, Volume, VolumeSettings};
use tokio::runtime::Runtime;

const BLOCK: usize = 64 << 10;

/// The folders of a mount, which outlive it.
struct Site {
    source: tempfile::TempDir,
    target: tempfile::TempDir,
    disk: tempfile::TempDir,
}

impl Site {
    /// `None` where the kernel cannot, or this user may not.
    fn new() -> Option<Site> {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let mut numbers = release.split('.').map(|it| it.parse().unwrap_or(0_u32));
        let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        if version < (6, 9) || !rustix::process::geteuid().is_root() {
            hither_testing::skip::skip_on_this_machine("passthrough needs root and Linux 6.9");
            return None;
        }
        Some(Site {
            source: tempfile::tempdir().unwrap(),
            target: tempfile::tempdir().unwrap(),
            disk: tempfile::tempdir().unwrap(),
        })
    }

    fn write(&self, name: &str, contents: &[u8]) {
        fs::write(self.source.path().join(name), contents).unwrap();
    }

    fn mount(&self) -> Bench<'_> {
        self.mount_as(false)
    }

    fn mount_as(&self, write: bool) -> Bench<'_> {
        let runtime = Runtime::new().unwrap();
        let url = self.source.path().to_str().unwrap();
        let source_settings = SourceSettings::default();
        let settings = NodeSettings {
            memory_bytes: 4 << 20,
            block_bytes: BLOCK as u32,
            policy: "s3-fifo".parse().unwrap(),
            prefetches_max: 8,
            disk: Some(DiskSettings {
                folder: self.disk.path().to_owned(),
                bytes_max: 20 << 20,
            }),
        };
        // The mount before has gone only once the kernel has told it that it ends.
        let node = loop {
            match Node::new(settings.clone(), runtime.handle().clone()) {
                Err(NodeError::Disk(DiskError::InUse { .. })) => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                node => break node.unwrap(),
            }
        };
        let settings = VolumeSettings {
            name: url.to_owned(),
            prefetch_bytes_max: 0,
        };
        let volume = runtime.block_on(async {
            if write {
                let opened = open_writable(url, &source_settings).await;
                Volume::writable(node, opened.unwrap(), settings)
            } else {
                let opened = open(url, &source_settings).await;
                Volume::new(node, opened.unwrap(), settings)
            }
        });
        let settings = MountSettings {
            consistency: if write {
                Consistency::Strict
            } else {
                Consistency::Immutable
            },
            passthrough: true,
            write,
            threads: Some(4),
            ..MountSettings::default()
        };
        let target = self.target.path();
        let mounted = Mounted::new(Arc::clone(&volume), target, &settings, "test", None).unwrap();
        Bench {
            site: self,
            mounted: Some(mounted),
            volume,
            runtime,
        }
    }

    /// The files of the disk tier.
    fn backing(&self) -> Vec<PathBuf> {
        let folders = fs::read_dir(self.disk.path().join("files")).unwrap();
        let entries = folders.flat_map(|it| fs::read_dir(it.unwrap().path()).unwrap());
        entries.map(|it| it.unwrap().path()).collect()
    }
}

struct Bench<'a> {
    site: &'a Site,
    mounted: Option<Mounted>,
    volume: Arc<Volume>,
    runtime: Runtime,
}

impl Drop for Bench<'_> {
    fn drop(&mut self) {
        if let Some(mounted) = self.mounted.take() {
            mounted.unmount(Duration::from_secs(5)).unwrap();
        }
        self.volume.node().close();
    }
}

impl Bench<'_> {
    fn at(&self, name: &str) -> PathBuf {
        self.site.target.path().join(name)
    }

    /// Opens by passthrough so far.
    fn opens(&self) -> u64 {
        self.volume.counters().passthrough_opens.get()
    }

    /// Has all of a file on the disk, as `hither cache warm` does.
    fn fill(&self, name: &str) -> FileVersion {
        let path = SourcePath::new(name.as_bytes()).unwrap();
        let done = AtomicU64::new(0);
        self.runtime.block_on(async {
            let entry = self.volume.source().stat(&path).await.unwrap();
            let (file, _) = entry.file(&path).unwrap();
            let lost = self.volume.warm(&file, Place::Disk, &done).await.unwrap();
            assert_eq!((lost, done.into_inner()), (0, file.bytes));
            file
        })
    }

    /// Opens a file that is whole until the kernel reads it by itself.
    fn open_passthrough(&self, name: &str) -> File {
        for _ in 0..3000 {
            let before = self.opens();
            let file = File::open(self.at(name)).unwrap();
            if self.opens() > before {
                return file;
            }
            drop(file);
            // The open after the verification finds it.
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{name} is never read by passthrough");
    }
}

fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..bytes.div_ceil(8))
        .flat_map(|_| random.bits().to_le_bytes())
        .take(bytes)
        .collect()
}

fn read(file: &File, bytes: usize) -> Vec<u8> {
    let mut data = vec![0; bytes + 1];
    let mut length = 0;
    loop {
        match file.read_at(&mut data[length..], length as u64).unwrap() {
            0 => break,
            count => length += count,
        }
    }
    data.truncate(length);
    data
}

fn flip(path: &Path, offset: u64) {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[!byte[0]], offset).unwrap();
}

#[test]
fn what_is_whole_is_read_by_the_kernel() {
    let Some(site) = Site::new() else { return };
    let contents = noise(1, 10 * BLOCK + 777);
    site.write("file", &contents);
    let bench = site.mount();
    // Partly cached: never.
    let part = File::open(bench.at("file")).unwrap();
    part.read_exact_at(&mut [0; 100], 0).unwrap();
    bench.volume.node().disk().unwrap().flush();
    drop(part);
    for _ in 0..20 {
        drop(File::open(bench.at("file")).unwrap());
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(bench.opens(), 0);
    bench.fill("file");
    let file = bench.open_passthrough("file");
    let reads = bench.volume.counters().counts().reads;
    assert_eq!(read(&file, contents.len()), contents);
    assert_eq!(bench.volume.counters().counts().reads, reads);
    // All handles of an inode are alike, and no other handle fails.
    let opens = bench.opens();
    let second = File::open(bench.at("file")).unwrap();
    assert_eq!(bench.opens(), opens + 1);
    // It is the backing file that is read.
    let backing = site.backing();
    assert_eq!(backing.len(), 1);
    flip(&backing[0], 5 * BLOCK as u64);
    let mut byte = [0];
    second.read_exact_at(&mut byte, 5 * BLOCK as u64).unwrap();
    assert_eq!(byte[0], !contents[5 * BLOCK]);
}

#[test]
fn what_is_mapped_is_too() {
    let Some(site) = Site::new() else { return };
    fs::copy("/bin/echo", site.source.path().join("echo")).unwrap();
    let bench = site.mount();
    bench.fill("echo");
    drop(bench.open_passthrough("echo"));
    let (opens, reads) = (bench.opens(), bench.volume.counters().counts().reads);
    // The system maps a program.
    let output = Command::new(bench.at("echo")).arg("hello").output();
    assert_eq!(output.unwrap().stdout, b"hello\n");
    assert_eq!(bench.opens(), opens + 1);
    assert_eq!(bench.volume.counters().counts().reads, reads);
}

#[test]
fn a_restart_verifies_anew_and_damage_is_never_passed_through() {
    let Some(site) = Site::new() else { return };
    let contents = noise(2, 20 * BLOCK + 5);
    site.write("file", &contents);
    let bench = site.mount();
    bench.fill("file");
    drop(bench.open_passthrough("file"));
    drop(bench);
    let bench = site.mount();
    drop(File::open(bench.at("file")).unwrap());
    assert_eq!(bench.opens(), 0, "the first open only begins to verify");
    let file = bench.open_passthrough("file");
    assert_eq!(read(&file, contents.len()), contents);
    drop((file, bench));
    flip(&site.backing()[0], 11 * BLOCK as u64 + 3);
    let bench = site.mount();
    for _ in 0..50 {
        let file = File::open(bench.at("file")).unwrap();
        std::thread::sleep(Duration::from_millis(5));
        drop(file);
    }
    assert_eq!(bench.opens(), 0);
    assert_eq!(bench.volume.node().disk().unwrap().counts().bad_blocks, 1);
    // Once it is mended, it is.
    bench.fill("file");
    let file = bench.open_passthrough("file");
    assert_eq!(read(&file, contents.len()), contents);
}

#[test]
fn an_open_file_stays_under_pressure() {
    let Some(site) = Site::new() else { return };
    let contents = noise(3, 70 * BLOCK);
    site.write("file", &contents);
    let others = 6;
    for number in 0..others {
        site.write(&number.to_string(), &noise(10 + number, 80 * BLOCK));
    }
    let bench = site.mount();
    bench.fill("file");
    let file = bench.open_passthrough("file");
    let press = || {
        for number in 0..others {
            bench.fill(&number.to_string());
        }
    };
    press();
    let disk = bench.volume.node().disk().unwrap();
    assert!(disk.counts().evicted_blocks > 0, "{:?}", disk.counts());
    assert_eq!(read(&file, contents.len()), contents);
    // A program that keeps the backing file, as a mapping does, keeps its bytes.
    let backing = site.backing().into_iter();
    let mut kept: Vec<File> = backing.map(|it| File::open(it).unwrap()).collect();
    kept.retain(|it| read(it, contents.len()) == contents);
    assert_eq!(kept.len(), 1);
    drop(file);
    press();
    press();
    assert_eq!(bench.volume.node().disk().unwrap().counts().bad_blocks, 0);
    assert_eq!(read(&kept[0], contents.len()), contents);
    let again = File::open(bench.at("file")).unwrap();
    assert_eq!(read(&again, contents.len()), contents);
}

#[test]
fn many_threads_open_and_close_while_it_comes_and_goes() {
    let Some(site) = Site::new() else { return };
    let contents = noise(4, 9 * BLOCK + 1);
    site.write("file", &contents);
    let bench = site.mount();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for seed in 1..6 {
            let (bench, contents, is_over) = (&bench, &contents, &is_over);
            scope.spawn(move || {
                let mut random = Random::new(seed);
                let mut below = |limit: usize| random.bits() as usize % limit;
                while !is_over.load(Ordering::Relaxed) {
                    let file = File::open(bench.at("file")).unwrap();
                    let offset = below(contents.len());
                    let mut buffer = vec![0; below(100_000).min(contents.len() - offset)];
                    file.read_exact_at(&mut buffer, offset as u64).unwrap();
                    assert!(buffer == contents[offset..offset + buffer.len()]);
                    drop(file);
                    // At times nobody has it open.
                    std::thread::sleep(Duration::from_micros(below(3000) as u64));
                }
            });
        }
        for _ in 0..20 {
            let file = bench.fill("file");
            let before = bench.opens();
            while bench.opens() == before {
                std::thread::sleep(Duration::from_millis(1));
            }
            bench.runtime.block_on(bench.volume.evict(&file));
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_file_that_is_replaced_keeps_its_bytes_for_those_who_have_it() {
    let Some(site) = Site::new() else { return };
    let contents = [noise(5, 9 * BLOCK), noise(6, 8 * BLOCK + 3)];
    site.write("file", &contents[0]);
    let bench = site.mount_as(true);
    bench.fill("file");
    let before = bench.open_passthrough("file");
    fs::write(bench.at("file"), &contents[1]).unwrap();
    let opens = bench.opens();
    let after = File::open(bench.at("file")).unwrap();
    assert_eq!(bench.opens(), opens);
    assert_eq!(read(&before, contents[0].len()), contents[0]);
    assert_eq!(read(&after, contents[1].len()), contents[1]);
    drop(after);
    bench.fill("file");
    let after = bench.open_passthrough("file");
    assert_eq!(read(&after, contents[1].len()), contents[1]);
    assert_eq!(read(&before, contents[0].len()), contents[0]);
}
