//! Accesses per second and placement in both engines, on one core, for a trace in memory.
//!
//! Files: every node reads its own part of one large file repeatedly, and a third of its accesses
//! go to a shared part, so there are local and remote hits, misses and victims. Pages: every thread
//! sweeps over its own part of an array, which its neighbour touched first, and over the edges of
//! the neighbours' parts, for ten iterations. The number of accesses is the same for any number of
//! nodes. `cargo test --benches` runs each case once.
//!
//! The result is the processor time of all threads, since bench machines are shared: a run of files
//! decodes the next accesses on a second thread.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{Bencher, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use hither_core::placement::{EpochKind, Mark};
use hither_core::registry::Needs;
use hither_core::{Access, Block, Node, Object, Process, Random, Thread, Topology};
use hither_sim::placement::{PlacementConfiguration, PlacementOptions, files, memory};
use hither_sim::references::InMemory;
use rustix::time::{ClockId, clock_gettime};

const ACCESSES: u64 = 200_000;
const ITERATIONS: u64 = 10;
const BLOCKS: u64 = 20_480;

const KNOWS: Needs = Needs {
    future: false,
    sites: false,
    ..Needs::ALL
};

/// Accesses to one object, by one thread per node.
fn program(nodes: u64, mut block: impl FnMut(u64, u64) -> u64) -> InMemory {
    let accesses = (0..ACCESSES)
        .map(|tick| {
            // A node makes 16 accesses before the next node does.
            let node = tick / 16 % nodes;
            let block = block(tick, node);
            Access {
                object: Object(0),
                thread: Thread(node as u32),
                process: Process(0),
                node: Node(node as u16),
                ..Access::bare(tick, Block(block as u32))
            }
        })
        .collect();
    InMemory::new(accesses, KNOWS).with_object_bytes(vec![BLOCKS * 4096])
}

fn shared_file(nodes: u64) -> InMemory {
    let mut random = Random::new(1);
    let own = BLOCKS / nodes;
    program(nodes, |_, node| match random.below(3) {
        0 => random.below(BLOCKS).min(random.below(BLOCKS)),
        _ => node * own + random.below(own).min(random.below(own)),
    })
}

fn array(nodes: u64) -> InMemory {
    let own = BLOCKS / nodes;
    let iteration = ACCESSES / ITERATIONS;
    let trace = program(nodes, |tick, node| {
        let place = tick % iteration / 16 / nodes * 16 + tick % 16;
        let node = if tick < iteration { node + 1 } else { node };
        (node * own + place % (own + 2)) % BLOCKS
    });
    let marks = (1..=ITERATIONS).map(|nth| Mark {
        reference: nth * iteration,
        kind: EpochKind::Iteration,
        process: Process(0),
    });
    trace.with_marks(marks.collect())
}

fn topology(text: &str) -> Arc<Topology> {
    Arc::new(text.parse().expect("a topology"))
}

/// Each node holds half of its share of the file.
fn of_files(trace: &InMemory, placement: &str, topology: &Arc<Topology>) -> u64 {
    let spec = placement.parse().expect("a placement");
    let held = (BLOCKS / 2) as u32 / topology.nodes() as u32;
    let configuration = PlacementConfiguration::even(spec, Arc::clone(topology), held);
    let costs = files::FileCosts::of(topology, 4096);
    let outcome = files::run(trace, &configuration, &costs, &PlacementOptions::default());
    outcome.expect("it runs").totals.local
}

fn of_pages(trace: &InMemory, placement: &str, topology: &Arc<Topology>) -> u64 {
    let spec = placement.parse().expect("a placement");
    let configuration = PlacementConfiguration::even(spec, Arc::clone(topology), BLOCKS as u32);
    let outcome = memory::run(
        trace,
        &configuration,
        &memory::MemoryCosts::default(),
        &PlacementOptions::default(),
    );
    outcome.expect("it runs").totals.local
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn timed(bencher: &mut Bencher<'_>, run: impl Fn() -> u64) {
    bencher.iter_custom(|times| {
        let before = processor_time();
        for _ in 0..times {
            black_box(run());
        }
        processor_time() - before
    });
}

fn placements(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("placement");
    group.throughput(Throughput::Elements(ACCESSES));
    group.sample_size(10);
    for (placement, nodes) in [
        ("first-and-forever", "mesh:5x5"),
        ("post-office", "mesh:5x5"),
        ("cost-benefit", "mesh:5x5"),
        ("dual-layer", "2"),
    ] {
        let topology = topology(nodes);
        let trace = shared_file(topology.nodes() as u64);
        group.bench_function(BenchmarkId::new(placement, nodes), |bencher| {
            timed(bencher, || of_files(&trace, placement, &topology));
        });
    }
    for placement in ["first-touch", "upm", "threshold", "cache-aware"] {
        let topology = topology("16");
        let trace = array(16);
        group.bench_function(BenchmarkId::new(placement, "16"), |bencher| {
            timed(bencher, || of_pages(&trace, placement, &topology));
        });
    }
    group.finish();
}

fn nodes(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("placement_nodes");
    group.throughput(Throughput::Elements(ACCESSES));
    group.sample_size(10);
    for (mesh, count) in [("2x2", 4), ("4x4", 16), ("8x8", 64), ("16x16", 256)] {
        let topology = topology(&format!("mesh:{mesh}"));
        let (files, pages) = (shared_file(count), array(count));
        group.bench_function(BenchmarkId::new("post-office", count), |bencher| {
            timed(bencher, || of_files(&files, "post-office", &topology));
        });
        group.bench_function(BenchmarkId::new("upm", count), |bencher| {
            timed(bencher, || of_pages(&pages, "upm", &topology));
        });
    }
    group.finish();
}

criterion_group!(benches, placements, nodes);
criterion_main!(benches);
