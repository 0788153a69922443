//! Nodes with a disk: what they read is right, and what was read once is not asked for again.

mod support;

use std::fs;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use hither_node::node::{Node, NodeSettings};
use hither_node::source::registry::open;
use hither_node::source::settings::SourceSettings;
use hither_node::source::{FileVersion, Source};
use hither_node::store::disk::settings::DiskSettings;
use hither_node::volume::{OpenFile, Volume, VolumeSettings};
use tokio::runtime::Runtime;

use hither_testing::s3_emulator::S3Emulator;
use support::{Random, contents, path, version};

const BLOCK_BYTES: u64 = 16 << 10;

/// A node with a disk, and the source that it reads.
struct Bench {
    runtime: Runtime,
    node: Arc<Node>,
    volume: Arc<Volume>,
}

impl Bench {
    fn new(folder: &Path, source: Arc<dyn Source>, prefetch_bytes_max: u64) -> Bench {
        let runtime = Runtime::new().unwrap();
        let settings = NodeSettings {
            memory_bytes: 2 << 20,
            block_bytes: BLOCK_BYTES as u32,
            policy: "s3-fifo".parse().unwrap(),
            prefetches_max: 4,
            disk: Some(DiskSettings {
                folder: folder.to_owned(),
                bytes_max: 64 << 20,
            }),
        };
        let node = Node::new(settings, runtime.handle().clone()).unwrap();
        let settings = VolumeSettings {
            name: "volume".to_owned(),
            prefetch_bytes_max,
        };
        let volume = Volume::new(Arc::clone(&node), source, settings);
        Bench {
            runtime,
            node,
            volume,
        }
    }

    fn open(&self, name: &str) -> Arc<OpenFile> {
        let version = self
            .runtime
            .block_on(version(&**self.volume.source(), &path(name)));
        self.volume.open(version.0, true)
    }

    /// Reads all of a file, and waits after each block until the disk has it.
    fn fill(&self, file: &Arc<OpenFile>, bytes: &[u8]) {
        for start in (0..bytes.len() as u64).step_by(BLOCK_BYTES as usize) {
            read(
                file,
                start..(start + BLOCK_BYTES).min(bytes.len() as u64),
                bytes,
            );
            self.node.disk().unwrap().flush();
        }
    }

    fn check(&self) {
        self.node.store().check();
        self.node.disk().unwrap().check();
        assert_eq!(self.node.in_flight(), 0);
    }
}

/// Reads a range, which must be as in `bytes`.
fn read(file: &Arc<OpenFile>, range: Range<u64>, bytes: &[u8]) {
    let (sender, receiver) = mpsc::channel();
    let length = (range.end - range.start) as usize;
    file.read(range.start, length, move |result| drop(sender.send(result)));
    let result = receiver.recv_timeout(Duration::from_secs(60));
    let data = result.expect("a read hangs").unwrap();
    let wanted = &bytes[range.start as usize..range.end as usize];
    assert!(data.pieces().concat() == wanted, "wrong bytes in {range:?}");
}

fn read_at_random(file: &Arc<OpenFile>, bytes: &[u8], count: usize, seed: u64) {
    let mut random = Random(seed);
    for _ in 0..count {
        let start = random.below(bytes.len() as u64);
        let end = (start + 1 + random.below(200_000)).min(bytes.len() as u64);
        read(file, start..end, bytes);
    }
}

fn source(server: &S3Emulator, runtime: &Runtime) -> Arc<dyn Source> {
    let options = [
        ("endpoint", server.endpoint()),
        ("region", "anywhere".into()),
        ("skip_signature", "true".into()),
    ];
    let settings = SourceSettings {
        options: options.map(|(key, value)| (key.into(), value)).into(),
        ..SourceSettings::default()
    };
    runtime.block_on(open("s3://bucket", &settings)).unwrap()
}

fn gets(server: &S3Emulator) -> usize {
    let seen = server.take_seen();
    let is_get = |it: &&hither_testing::s3_emulator::Seen| it.method == "GET" && !it.key.is_empty();
    seen.iter().filter(is_get).count()
}

#[test]
fn what_memory_cannot_hold_comes_from_the_disk_also_after_a_restart() {
    let server = S3Emulator::start();
    let bytes = contents((32 << 20) - 777, 1);
    server.put("object", bytes.clone());
    let outside = Runtime::new().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::new(folder.path(), source(&server, &outside), 0);
    let file = bench.open("object");
    bench.fill(&file, &bytes);
    let (here, all) = bench.volume.blocks_on_disk(file.version());
    assert_eq!((here as u64, all), (2048, 2048));
    assert!(gets(&server) > 0);
    read_at_random(&file, &bytes, 500, 2);
    assert_eq!(gets(&server), 0, "the disk has all of it");
    let counts = bench.volume.counters().counts();
    assert!(counts.disk_read_bytes > 10 << 20, "{counts:?}");
    bench.check();
    bench.node.close();
    drop((bench, file));
    // Another process would find it like this, and another reader with a prefetch.
    let bench = Bench::new(folder.path(), source(&server, &outside), 1 << 20);
    let file = bench.open("object");
    gets(&server);
    read_at_random(&file, &bytes, 200, 3);
    for start in (0..bytes.len() as u64).step_by(100_000) {
        read(
            &file,
            start..(start + 100_000).min(bytes.len() as u64),
            &bytes,
        );
    }
    assert_eq!(gets(&server), 0, "a restart keeps all of it");
    assert_eq!(bench.volume.counters().counts().fetched_bytes, 0);
    assert_eq!(bench.node.disk().unwrap().counts().bad_blocks, 0);
    bench.check();
}

#[test]
fn a_damaged_disk_is_read_past() {
    let server = S3Emulator::start();
    let bytes = contents(8 << 20, 4);
    server.put("object", bytes.clone());
    let outside = Runtime::new().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::new(folder.path(), source(&server, &outside), 0);
    let file = bench.open("object");
    bench.fill(&file, &bytes);
    // Every third page is overwritten, while the node runs.
    let mut files = fs::read_dir(folder.path().join("files")).unwrap();
    let mut files = fs::read_dir(files.next().unwrap().unwrap().path()).unwrap();
    let backing = files.next().unwrap().unwrap().path();
    let mut damaged = fs::read(&backing).unwrap();
    assert!(damaged == bytes, "the blocks are at their own offsets");
    for page in damaged.chunks_mut(4096).step_by(3) {
        page.fill(7);
    }
    fs::write(&backing, damaged).unwrap();
    gets(&server);
    read_at_random(&file, &bytes, 400, 5);
    assert!(gets(&server) > 0);
    let counts = bench.node.disk().unwrap().counts();
    assert!(counts.bad_blocks > 100, "{counts:?}");
    bench.check();
}

/// Tells the process that is killed where its disk is.
const FOLDER: &str = "HITHER_TEST_DISK_FOLDER";
const BYTES: usize = 4 << 20;

/// A process reads from a directory and writes to its disk until it is killed.
#[test]
fn a_killed_process_leaves_a_disk_that_is_right() {
    let bytes = contents(BYTES, 6);
    if let Some(place) = std::env::var_os(FOLDER) {
        return write_until_killed(Path::new(&place), &bytes);
    }
    let place = tempfile::tempdir().unwrap();
    fs::create_dir(place.path().join("source")).unwrap();
    for number in 0..8 {
        fs::write(place.path().join(format!("source/{number}")), &bytes).unwrap();
    }
    let mut found = 0;
    for round in 1..5 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_killed_process_leaves_a_disk_that_is_right"])
            .arg("--nocapture")
            .env(FOLDER, place.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // It says so once the disk is its own.
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("writing")));
        let opened = std::panic::catch_unwind(|| directory(place.path()));
        assert!(opened.is_err(), "two processes have one disk");
        std::thread::sleep(Duration::from_millis(40 * round));
        child.kill().unwrap();
        child.wait().unwrap();
        let bench = directory(place.path());
        found += bench.node.disk().unwrap().usage().blocks;
        for number in 0..8 {
            let file = bench.open(&number.to_string());
            for start in (0..BYTES as u64).step_by(3 * BLOCK_BYTES as usize) {
                read(&file, start..start + BLOCK_BYTES, &bytes);
            }
        }
        bench.check();
        let usage = bench.node.disk().unwrap().usage();
        assert!(usage.bytes <= 64 << 20, "{usage:?}");
    }
    assert!(found > 0, "nothing outlived its process");
}

fn directory(place: &Path) -> Bench {
    let outside = Runtime::new().unwrap();
    let url = place.join("source").display().to_string();
    let source = outside.block_on(open(&url, &SourceSettings::default()));
    Bench::new(&place.join("disk"), source.unwrap(), 0)
}

fn write_until_killed(place: &Path, bytes: &[u8]) {
    let bench = directory(place);
    println!("writing");
    let files: Vec<Arc<OpenFile>> = (0..8).map(|it| bench.open(&it.to_string())).collect();
    let start = Instant::now();
    // Ends by itself, should nobody kill it.
    while start.elapsed() < Duration::from_secs(20) {
        for file in &files {
            read_at_random(file, bytes, 10, start.elapsed().as_nanos() as u64);
        }
    }
}

#[test]
fn a_prefetch_takes_no_more_memory_than_there_is() {
    let place = tempfile::tempdir().unwrap();
    fs::create_dir(place.path().join("source")).unwrap();
    let bytes = contents(BYTES, 7);
    for number in 0..4 {
        fs::write(place.path().join(format!("source/{number}")), &bytes).unwrap();
    }
    let bench = directory(place.path());
    for number in 0..4 {
        bench.fill(&bench.open(&number.to_string()), &bytes);
    }
    let source = Arc::clone(bench.volume.source());
    drop(bench);
    // Windows that are larger than all memory, on a disk that has all of it.
    let bench = Bench::new(&place.path().join("disk"), source, 4 << 20);
    let files: Vec<Arc<OpenFile>> = (0..4).map(|it| bench.open(&it.to_string())).collect();
    std::thread::scope(|scope| {
        for file in &files {
            let bytes = &bytes;
            scope.spawn(move || {
                for start in (0..BYTES as u64).step_by(10_000) {
                    read(file, start..(start + 10_000).min(BYTES as u64), bytes);
                }
            });
        }
    });
    let start = Instant::now();
    while bench.node.in_flight() > 0 {
        assert!(
            start.elapsed() < Duration::from_secs(30),
            "blocks stay in flight"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    bench.check();
    let version: &FileVersion = files[0].version();
    assert_eq!(
        bench.volume.blocks_on_disk(version).0,
        BYTES / BLOCK_BYTES as usize
    );
    assert_eq!(bench.volume.counters().counts().fetched_bytes, 0);
}
