//! Several nodes of one process over loopback, with a source that counts.

#[path = "cluster/hostile.rs"]
mod hostile;

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use hither_net::membership::fixed;
use hither_net::mesh::{Limits, MeshConfig};
use hither_net::tls::Security;
use hither_net::view::Member;
use hither_node::config::Placing;
use hither_node::distances::Distances;
use hither_node::node::{Node, NodeSettings};
use hither_node::protocol::Counters;
use hither_node::readers::Readers;
use hither_node::source::{
    ByteStream, Entry, FileVersion, Kind, ListCursor, Listing, Source, SourceError, SourcePath,
    Version,
};
use hither_node::store::disk::settings::DiskSettings;
use hither_node::volume::{OpenFile, Volume, VolumeSettings};
use md5::{Digest, Md5};
use tokio::runtime::Runtime;

const BLOCK_BYTES: u64 = 64 << 10;

/// A file of any length, whose bytes follow from their place, and that counts what is read of it.
#[derive(Default)]
struct Counted {
    blocks: Mutex<BTreeMap<u64, u32>>,
    delay_ms: AtomicU64,
}

fn byte(offset: u64) -> u8 {
    (offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

#[async_trait]
impl Source for Counted {
    async fn stat(&self, _: &SourcePath) -> Result<Entry, SourceError> {
        Ok(Entry {
            kind: Kind::Directory,
            bytes: 0,
            modified: SystemTime::UNIX_EPOCH,
            unix: None,
        })
    }

    async fn list(&self, _: &SourcePath, _: Option<ListCursor>) -> Result<Listing, SourceError> {
        Ok(Listing::default())
    }

    async fn read(&self, _: &FileVersion, range: Range<u64>) -> Result<ByteStream, SourceError> {
        tokio::time::sleep(Duration::from_millis(self.delay_ms.load(Ordering::Relaxed))).await;
        {
            let mut blocks = self.blocks.lock().unwrap();
            for block in range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES) {
                *blocks.entry(block).or_default() += 1;
            }
        }
        let end = range.end;
        let pieces: Vec<Result<Bytes, SourceError>> = range
            .step_by(10_000)
            .map(|start| start..(start + 10_000).min(end))
            .map(|piece| Ok(piece.map(byte).collect::<Vec<u8>>().into()))
            .collect();
        Ok(futures_util::stream::iter(pieces).boxed())
    }

    /// Of files that are called so.
    fn md5(&self, file: &FileVersion) -> Option<[u8; 16]> {
        let has_sum = file.path.as_bytes().starts_with(b"summed");
        let bytes: Vec<u8> = (0..file.bytes).map(byte).collect();
        has_sum.then(|| Md5::digest(bytes).into())
    }
}

struct Machine {
    node: Arc<Node>,
    volume: Arc<Volume>,
    /// Dropped to stop the machine at once, as a crash would.
    runtime: Option<Runtime>,
}

fn cluster(count: usize, source: &Arc<Counted>) -> Vec<Machine> {
    cluster_with(count, source, &Shape::default())
}

/// What a cluster is made of.
struct Shape<'a> {
    memory_bytes: u64,
    /// A disk where there is a folder for it.
    disks: &'a [&'a Path],
    /// By the number of the node.
    readers: &'a [Readers],
    placement: &'a str,
}

impl Default for Shape<'_> {
    fn default() -> Self {
        Shape {
            memory_bytes: 64 << 20,
            disks: &[],
            readers: &[],
            placement: "first-and-forever",
        }
    }
}

fn cluster_with(count: usize, source: &Arc<Counted>, shape: &Shape<'_>) -> Vec<Machine> {
    let listeners: Vec<TcpListener> = (0..count)
        .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
        .collect();
    let addresses: Vec<_> = listeners
        .iter()
        .map(|it| it.local_addr().unwrap())
        .collect();
    drop(listeners);
    let members: Vec<Member> = (0..count)
        .map(|number| member(&format!("n{number}"), addresses[number]))
        .collect();
    let start = |number: usize| start_node(number, &members, source, shape);
    let machines: Vec<Machine> = (0..count).map(start).collect();
    for machine in &machines {
        until_connected(machine, count - 1);
    }
    machines
}

fn member(name: &str, address: SocketAddr) -> Member {
    Member {
        name: name.to_owned(),
        address: address.to_string(),
    }
}

/// An address that was free a moment ago.
fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

/// Starts the node that is member `number` of `members`.
fn start_node(
    number: usize,
    members: &[Member],
    source: &Arc<Counted>,
    shape: &Shape<'_>,
) -> Machine {
    let runtime = Runtime::new().unwrap();
    let settings = NodeSettings {
        memory_bytes: shape.memory_bytes,
        block_bytes: BLOCK_BYTES as u32,
        policy: "s3-fifo".parse().unwrap(),
        prefetches_max: 8,
        disk: shape.disks.get(number).map(|folder| DiskSettings {
            folder: folder.to_path_buf(),
            bytes_max: 256 << 20,
        }),
    };
    let node = Node::new(settings, runtime.handle().clone()).unwrap();
    let config = MeshConfig {
        me: members[number].name.clone(),
        cluster: "test".to_owned(),
        listen: members[number].address.parse().unwrap(),
        security: Security::Off,
        limits: Limits::default(),
    };
    let membership = fixed::members(&config.me, members.to_vec()).unwrap();
    let placement = Placing {
        policy: hither_node::config::placement(shape.placement).unwrap(),
        distances: Distances::default(),
    };
    let readers = shape.readers.get(number).cloned().unwrap_or_default();
    let joined = runtime.block_on(node.join(config, membership, readers, placement));
    joined.unwrap();
    let settings = VolumeSettings {
        name: "volume".to_owned(),
        prefetch_bytes_max: 0,
    };
    let volume = Volume::new(Arc::clone(&node), Arc::clone(source) as _, settings);
    Machine {
        node,
        volume,
        runtime: Some(runtime),
    }
}

fn until_connected(machine: &Machine, count: usize) {
    let connected = || {
        let stats = machine.node.mesh().unwrap().stats();
        stats.iter().filter(|peer| peer.connected).count() == count
    };
    while !connected() {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Only these members may have the volume.
fn only(names: &[&str]) -> Readers {
    let names = names.iter().map(|&name| name.to_owned()).collect();
    Readers::new(&BTreeMap::from([("volume".to_owned(), names)]))
}

fn open(machine: &Machine, name: &str, bytes: u64) -> Arc<OpenFile> {
    let version = FileVersion {
        path: SourcePath::new(name.as_bytes()).unwrap(),
        version: Version::new(b"1"),
        bytes,
    };
    machine.volume.open(version, true)
}

/// Starts to read, and sends whether every byte was right.
fn start_read(file: &Arc<OpenFile>, range: Range<u64>, done: &mpsc::Sender<Result<(), String>>) {
    let done = done.clone();
    let bytes = (range.end - range.start) as usize;
    file.read(range.start, bytes, move |result| {
        let checked = result.map_err(|error| error.to_string()).and_then(|data| {
            let read = data.pieces().iter().flat_map(|piece| piece.iter().copied());
            if read.eq(range.clone().map(byte)) {
                Ok(())
            } else {
                Err(format!("wrong bytes in {range:?}"))
            }
        });
        let _ = done.send(checked);
    });
}

fn wait(done: &mpsc::Receiver<Result<(), String>>, count: usize) {
    for number in 0..count {
        let result = done.recv_timeout(Duration::from_secs(60));
        result
            .unwrap_or_else(|_| panic!("read {number} of {count} hangs"))
            .unwrap();
    }
}

#[test]
fn each_block_leaves_the_source_once_for_all_readers_of_all_nodes() {
    let source = Arc::new(Counted::default());
    source.delay_ms.store(20, Ordering::Relaxed);
    let machines = cluster(3, &source);
    let blocks = 40;
    let (sender, receiver) = mpsc::channel();
    let mut reads = 0;
    for reader in 0..100 {
        let file = open(&machines[reader % 3], "file", blocks * BLOCK_BYTES);
        for block in 0..blocks {
            // Each reader starts somewhere else.
            let block = (block + reader as u64 * 7) % blocks;
            start_read(
                &file,
                block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES,
                &sender,
            );
            reads += 1;
        }
    }
    wait(&receiver, reads);
    let counts = source.blocks.lock().unwrap();
    assert_eq!(counts.len() as u64, blocks);
    let more: Vec<_> = counts.iter().filter(|(_, count)| **count != 1).collect();
    // On a machine that stalls for longer than a deadline, a block may be read twice, and counted.
    let late: u64 = machines
        .iter()
        .map(|machine| machine.node.protocol_counters())
        .map(|counters| {
            counters.answer_timeout_blocks
                + counters.delivery_timeout_blocks
                + counters.patience_blocks
                + counters.refused_blocks
                // Its chunks have another home then, which may know nothing yet.
                + counters.suspicions * blocks
        })
        .sum();
    assert!(
        more.len() as u64 <= late,
        "fetched more than once: {more:?}, {late} late"
    );
    let from_peers: u64 = machines
        .iter()
        .map(|it| it.volume.counters().counts().peer_blocks)
        .sum();
    assert!(
        from_peers + late >= 2 * blocks,
        "{from_peers} blocks came from other nodes"
    );
    for machine in &machines {
        machine.node.store().check();
        assert_eq!(machine.node.in_flight(), 0);
    }
}

/// Whatever moves, is copied, forwarded and evicted meanwhile.
#[test]
fn each_placement_gives_the_right_bytes() {
    const BLOCKS: u64 = 160;
    const ROUNDS: u64 = 6;
    let counters = [
        "always-migrate",
        "one-step",
        "post-office{trigger=2,window=20,miss_ratio=0.01}",
        "cost-benefit{confidence=0}",
        "rendezvous",
        "local-only",
        "first-and-forever",
    ]
    .map(|placement| {
        let source = Arc::new(Counted::default());
        let machines = cluster_with(
            4,
            &source,
            &Shape {
                // A third of the file each.
                memory_bytes: 4 << 20,
                placement,
                ..Shape::default()
            },
        );
        for machine in &machines {
            while machine
                .node
                .members()
                .iter()
                .any(|it| it.round_trip_ns.is_none())
            {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        let (sender, receiver) = mpsc::channel();
        for round in 0..ROUNDS {
            for (number, machine) in machines.iter().enumerate() {
                let file = open(machine, "file", BLOCKS * BLOCK_BYTES - 7);
                for step in 0..BLOCKS / 2 {
                    // Half of the file by each, another half in each round.
                    let block = (step * 7 + round * 13 + number as u64 * 41) % BLOCKS;
                    let end = ((block + 1) * BLOCK_BYTES).min(BLOCKS * BLOCK_BYTES - 7);
                    start_read(&file, block * BLOCK_BYTES..end, &sender);
                }
            }
            wait(&receiver, machines.len() * (BLOCKS / 2) as usize);
        }
        for machine in &machines {
            machine.node.store().check();
            assert_eq!(machine.node.in_flight(), 0);
        }
        let all = machines.iter().map(|it| it.node.protocol_counters());
        let all: Vec<_> = all.collect();
        let sum = |of: fn(&Counters) -> u64| all.iter().map(of).sum::<u64>();
        (
            sum(|it| it.moved_blocks),
            sum(|it| it.copied_blocks),
            sum(|it| it.forwarded_blocks),
        )
    });
    let [always, one_step, post_office, _, rendezvous, local, first] = counters;
    assert!(
        always.0 > 0 && one_step.0 > 0 && post_office.0 > 0,
        "{counters:?}"
    );
    assert!(local.1 > 0 && local.0 == 0, "{counters:?}");
    assert!(always.2 + one_step.2 > 0, "{counters:?}");
    assert_eq!((rendezvous, first), ((0, 0, 0), (0, 0, 0)));
}

#[test]
fn reads_go_on_when_a_node_dies() {
    let source = Arc::new(Counted::default());
    let mut machines = cluster(3, &source);
    let blocks = 60;
    let (sender, receiver) = mpsc::channel();
    for (number, machine) in machines.iter().enumerate() {
        let file = open(machine, "file", blocks * BLOCK_BYTES);
        for block in (0..blocks).filter(|block| block % 3 == number as u64) {
            start_read(
                &file,
                block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES,
                &sender,
            );
        }
    }
    wait(&receiver, blocks as usize);
    let dead = machines.pop().unwrap();
    let files: Vec<_> = machines
        .iter()
        .map(|it| open(it, "file", blocks * BLOCK_BYTES))
        .collect();
    let ask = |part: Range<u64>| {
        for file in &files {
            for block in part.clone() {
                start_read(
                    file,
                    block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES,
                    &sender,
                );
            }
        }
    };
    // Some before it dies, some while it does, some after.
    ask(0..20);
    let Machine { mut runtime, .. } = dead;
    ask(20..40);
    runtime.take().unwrap().shutdown_background();
    ask(40..60);
    wait(&receiver, 2 * blocks as usize);
    for machine in &machines {
        machine.node.store().check();
    }
}

/// Reads all of a file by one machine, block by block.
fn read_all(machine: &Machine, blocks: u64) {
    let (sender, receiver) = mpsc::channel();
    let file = open(machine, "file", blocks * BLOCK_BYTES);
    for block in 0..blocks {
        start_read(
            &file,
            block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES,
            &sender,
        );
        wait(&receiver, 1);
        if let Some(disk) = machine.node.disk() {
            disk.flush();
        }
    }
}

#[test]
fn a_block_that_is_on_a_disk_alone_is_served_to_others_also_after_a_restart() {
    let source = Arc::new(Counted::default());
    let folder = tempfile::tempdir().unwrap();
    let blocks = 200;
    // Memory for 28 blocks.
    let start = || {
        cluster_with(
            3,
            &source,
            &Shape {
                memory_bytes: 2 << 20,
                disks: &[folder.path()],
                ..Shape::default()
            },
        )
    };
    let machines = start();
    read_all(&machines[0], blocks);
    let usage = machines[0].node.store().usage();
    assert!(usage.blocks < 30, "{usage:?}");
    assert_eq!(machines[0].node.disk().unwrap().usage().blocks, blocks);
    source.blocks.lock().unwrap().clear();
    read_all(&machines[1], blocks);
    let late = |machines: &[Machine]| -> u64 {
        let counters = machines.iter().map(|it| it.node.protocol_counters());
        let late = counters.map(|it| {
            it.answer_timeout_blocks
                + it.delivery_timeout_blocks
                + it.patience_blocks
                + it.refused_blocks
        });
        late.sum()
    };
    // On a machine that stalls for longer than a deadline, the source is read.
    let from_source = || source.blocks.lock().unwrap().len() as u64;
    assert!(from_source() <= late(&machines), "{}", from_source());
    let peer_blocks = machines[1].volume.counters().counts().peer_blocks;
    assert!(peer_blocks + late(&machines) >= blocks, "{peer_blocks}");
    machines[0].node.disk().unwrap().check();
    // After a restart the others learn what is on the disk.
    machines[0].node.close();
    for mut machine in machines {
        // Until all that it runs is gone, its disk is in use.
        let runtime = machine.runtime.take().unwrap();
        runtime.shutdown_timeout(Duration::from_secs(60));
    }
    let machines = start();
    assert_eq!(machines[0].node.disk().unwrap().usage().blocks, blocks);
    std::thread::sleep(Duration::from_millis(500));
    source.blocks.lock().unwrap().clear();
    read_all(&machines[2], blocks);
    assert!(from_source() <= late(&machines), "{}", from_source());
}

#[test]
fn a_member_that_may_not_have_a_volume_reads_the_source_itself() {
    let source = Arc::new(Counted::default());
    let blocks = 40;
    let readers = only(&["n0", "n1"]);
    let readers = [readers.clone(), readers.clone(), readers];
    let machines = cluster_with(
        3,
        &source,
        &Shape {
            readers: &readers,
            ..Shape::default()
        },
    );
    read_all(&machines[0], blocks);
    source.blocks.lock().unwrap().clear();
    // What it is home of is forbidden to nobody: it only says where blocks are.
    read_all(&machines[2], blocks);
    assert_eq!(source.blocks.lock().unwrap().len() as u64, blocks);
    assert_eq!(machines[2].volume.counters().counts().peer_blocks, 0);
    let forbidden = machines
        .iter()
        .map(|it| it.node.protocol_counters().forbidden);
    assert!(forbidden.sum::<u64>() > 0, "nobody refused");
    read_all(&machines[1], blocks);
    let peer_blocks = machines[1].volume.counters().counts().peer_blocks;
    assert!(peer_blocks > 0, "nothing came from the member that may");
}
