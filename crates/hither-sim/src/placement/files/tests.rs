//! Whole runs: latencies computed by hand, effects of placements on caches, bounds, and random runs
//! that are checked after every step.

use std::sync::Arc;

use hither_core::placement::{EpochKind, Mark};
use hither_core::registry::Needs;
use hither_core::{Access, Block, Node, Op, Process, Random, Topology};

use super::{FileCosts, calendar_bytes, run};
use crate::caches;
use crate::placement::{
    Binding, PlacementConfiguration, PlacementOptions, PlacementOutcome, WarmUp,
};
use crate::references::InMemory;

/// Node, block, and whether it is written.
type Row = (u16, u32, bool);

fn references(rows: &[Row]) -> InMemory {
    let access = |&(node, block, write): &Row| Access {
        node: Node(node),
        op: if write { Op::Write } else { Op::Read },
        ..Access::bare(0, Block(block))
    };
    let future = Needs {
        future: true,
        ..Needs::NOTHING
    };
    InMemory::new(rows.iter().map(access).collect(), future)
}

fn simulate(
    placement: &str,
    topology: &str,
    capacity: &[u32],
    rows: &[Row],
    costs: &FileCosts,
) -> PlacementOutcome {
    simulated(placement, topology, capacity, rows, costs, true)
}

fn simulated(
    placement: &str,
    topology: &str,
    capacity: &[u32],
    rows: &[Row],
    costs: &FileCosts,
    check: bool,
) -> PlacementOutcome {
    let topology: Topology = topology.parse().unwrap();
    let configuration = PlacementConfiguration {
        spec: placement.parse().unwrap(),
        topology: Arc::new(topology),
        capacity: capacity.to_vec(),
        replacement: "lru".parse().unwrap(),
    };
    let options = PlacementOptions {
        check,
        moves: 100,
        binding: Binding::Trace,
        ..PlacementOptions::default()
    };
    run(&references(rows), &configuration, costs, &options).unwrap()
}

/// A line of four nodes: 1000 ns per cache access, 100 ns per failed lookup, and 10 ns per block
/// and 1 ns per message for each hop.
#[test]
fn latencies_of_each_kind_of_access() {
    let costs = FileCosts::plain().with("disks=1").unwrap();
    let latency = |rows: &[Row]| {
        let run = |rows| simulate("first-and-forever", "mesh:1x4", &[4; 4], rows, &costs);
        let (before, all) = (run(&rows[..rows.len() - 1]).totals, run(rows).totals);
        let last = all.since(&before);
        (
            last.hit_ns + last.miss_ns,
            last.local,
            last.hops,
            last.misses,
        )
    };
    // Failed lookups here, at the neighbours, and three hops away: 3 * 100 + 2 * (1 + 3). The
    // request to the disk takes 1, the disk 100000, the way back 10, and the cache 1000.
    assert_eq!(latency(&[(0, 0, false)]), (101_319, 0, 0, 1));
    assert_eq!(latency(&[(0, 0, false), (0, 0, false)]), (1000, 1, 0, 0));
    assert_eq!(
        latency(&[(0, 0, false), (1, 0, false)]),
        (100 + 1 + 1000 + 10, 0, 1, 0)
    );
    let far = 100 + (100 + 2) + 3 + 1000 + 30;
    assert_eq!(latency(&[(0, 0, false), (3, 0, false)]), (far, 0, 3, 0));
    assert_eq!(latency(&[(0, 0, false), (3, 0, true)]), (far, 0, 3, 0));
}

/// Two nodes send over one link at the same time, and the disk has one arm.
#[test]
fn links_and_disks_make_wait() {
    let costs = FileCosts::plain().with("disks=0,contention=true").unwrap();
    let warm = [(0, 0, false), (0, 1, false)];
    let reads = [warm, [(1, 0, false), (2, 1, false)]].concat();
    let marks = |kind, reference| Mark {
        reference,
        kind,
        process: Process(0),
    };
    let references = references(&reads).with_marks(vec![marks(EpochKind::Construct, 2)]);
    let configuration = PlacementConfiguration::even(
        "first-and-forever".parse().unwrap(),
        Arc::new(Topology::mesh(&[1, 3])),
        4,
    );
    let options = PlacementOptions {
        warm_up: WarmUp::References(2),
        intervals: 2,
        ..PlacementOptions::default()
    };
    let outcome = run(&references, &configuration, &costs, &options).unwrap();
    // Node 0 was alone in the warm-up: each of its misses cost 300 + 2 * (1 + 2), the disk and the
    // cache. The mark lets only node 0 wait: the others have made no access yet and are at 0.
    assert_eq!(outcome.warm_up.miss_ns, 2 * (306 + 100_000 + 1000));
    // Both hits find the block after 1101 and 1204 ns; they do not meet on the link.
    assert_eq!(outcome.totals.hit_ns, 1111 + (100 + 102 + 2 + 1000 + 20));
    assert_eq!(outcome.timeline.len(), 2);
    assert_eq!(outcome.timeline[0].totals, outcome.warm_up);
    assert_eq!(outcome.traffic[3..], [1, 0, 0, 1, 0, 0]);

    // Both use the one disk at the same time: the second waits for the whole first request.
    let misses = [(1, 0, false), (2, 1, false)];
    let outcome = simulate("first-and-forever", "mesh:1x3", &[4; 3], &misses, &costs);
    let alone = |vain: u64, hops: u64| vain + hops + 100_000 + 10 * hops + 1000;
    let (first, second) = (alone(200 + 2, 1), alone(300 + 6, 2));
    // Slots of 1000: the first has slots 0 to 99, and the second, which arrived at 308, has those
    // up to 200000.
    let waited = 100_000 - 308;
    assert_eq!(outcome.totals.miss_ns, first + second + waited);
}

/// One disk for nine nodes that only miss: it is always busy, and all nodes wait for each other.
#[test]
fn a_disk_that_everybody_needs_is_what_a_run_takes() {
    let rows: Vec<Row> = (0..9000)
        .map(|nth| ((nth % 9) as u16, nth, false))
        .collect();
    let costs = FileCosts::plain().with("disks=4,disk_ns=160000").unwrap();
    let outcome = simulated(
        "first-and-forever",
        "mesh:3x3",
        &[20; 9],
        &rows,
        &costs,
        false,
    );
    let busy_ns = 9000 * 160_000;
    assert!(outcome.modelled_time_ns >= busy_ns);
    assert!(outcome.modelled_time_ns < busy_ns + busy_ns / 100);
}

/// FAF evicts the least recent block. AMG and OSM swap it with the incoming block, so no node
/// misses it.
#[test]
fn victims_of_the_baselines_change_places() {
    let rows = [
        (0, 0, true),
        (1, 1, false),
        (0, 1, false),
        (1, 0, false),
        (1, 2, false),
    ];
    let of =
        |placement| simulate(placement, "mesh:1x2", &[1, 1], &rows, &FileCosts::plain()).totals;
    let first = of("first-and-forever");
    assert_eq!((first.misses, first.remote, first.migrations), (3, 2, 0));
    assert_eq!((first.evictions, first.write_backs), (1, 0));
    for placement in ["always-migrate", "one-step"] {
        let swapped = of(placement);
        // 1 moves to node 0 and 0 to node 1. Then both are where they are used, until 2 evicts 0.
        assert_eq!((swapped.misses, swapped.local, swapped.remote), (3, 1, 1));
        assert_eq!((swapped.migrations, swapped.forwarded), (1, 1));
        assert_eq!((swapped.evictions, swapped.write_backs), (1, 1));
        assert_eq!(swapped.bytes_moved, 2 * 4096, "the read and the victim");
    }
}

/// Node 0 always misses and forwards its victims; node 1 has no misses and takes them. Written
/// blocks are written back on the way.
#[test]
fn post_office_forwards_victims() {
    let spec = "post-office{window=2,miss_ratio=1}";
    let rows: Vec<Row> = (0..4).map(|block| (0, block, block == 1)).collect();
    let outcome = simulate(spec, "mesh:1x2", &[2, 2], &rows, &FileCosts::plain());
    assert_eq!((outcome.totals.forwarded, outcome.totals.evictions), (2, 0));
    assert_eq!((outcome.totals.write_backs, outcome.totals.misses), (1, 4));
    assert_eq!(outcome.timeline.last().unwrap().used, [2, 2]);
    let back = [rows, vec![(0, 0, false), (0, 1, false)]].concat();
    let outcome = simulate(spec, "mesh:1x2", &[2, 2], &back, &FileCosts::plain());
    assert_eq!((outcome.totals.remote, outcome.totals.misses), (2, 4));
}

/// Node 3 accesses a block that node 0 fetched, until the block moves to their median. Copies of
/// other blocks follow the paper's rules.
#[test]
fn post_office_moves_and_replicates() {
    let spec = "post-office{trigger=4,replication=2}";
    let rows = [(0, 0, false), (3, 0, false), (3, 0, false), (3, 0, true)];
    let outcome = simulate(spec, "mesh:1x4", &[4; 4], &rows, &FileCosts::plain());
    assert_eq!((outcome.totals.replications, outcome.totals.local), (1, 2));
    // The fourth access finds the median at 3, which has a replica: the replica becomes the
    // original.
    assert_eq!(
        (outcome.totals.migrations, outcome.totals.invalidations),
        (1, 0)
    );
    assert_eq!(outcome.moves.len(), 2);
    assert!(outcome.moves[0].replica);
    let again = [&rows[..3], &[(0, 0, true), (3, 0, false)]].concat();
    let outcome = simulate(
        "post-office{replication=2}",
        "mesh:1x4",
        &[4; 4],
        &again,
        &FileCosts::plain(),
    );
    assert_eq!(
        (outcome.totals.invalidations, outcome.totals.replications),
        (1, 1)
    );
    assert_eq!(outcome.totals.remote, 2);
}

/// Smaller numbers are more frequent. Nodes have blocks of their own and shared blocks.
fn random_rows(seed: u64, nodes: u16, blocks: u32, count: usize) -> Vec<Row> {
    let mut random = Random::new(seed);
    let mut row = || {
        let node = random.below(nodes.into()) as u16;
        let common = random.below(2) == 0;
        let bound = random.below(u64::from(blocks / 2)) + 1;
        let within = random.below(bound) as u32;
        let block = if common {
            within
        } else {
            blocks / 2 + (within + u32::from(node) * 7) % (blocks / 2)
        };
        (node, block, random.below(5) == 0)
    };
    (0..count).map(|_| row()).collect()
}

const PLACEMENTS: [&str; 7] = [
    "first-and-forever",
    "always-migrate",
    "one-step",
    "post-office{trigger=5,window=20}",
    "post-office{trigger=5,window=20,miss_ratio=0.1,remote_misses=0,replication=1}",
    "post-office{trigger=2,replication=0}",
    "post-office{trigger=3,period_ms=2,miss_ratio=0.1}",
];

/// Every invariant after every access; and no placement has fewer misses than the optimum with the
/// room of all nodes in one cache.
#[test]
fn random_runs_hold_together_and_never_beat_the_optimum() {
    let topologies = [
        ("mesh:2x3", [3u32, 1, 4, 2, 3, 2].as_slice()),
        ("torus:3x3", &[2; 9]),
        ("hypercube:2", &[1; 4]),
        ("tree:2x3", &[2; 6]),
        ("ring:4x2", &[5; 4]),
        ("3", &[9, 1, 2]),
    ];
    for (seed, (topology, capacity)) in topologies.into_iter().enumerate() {
        let rows = random_rows(seed as u64, capacity.len() as u16, 60, 3000);
        let optimum = caches::CacheConfiguration {
            spec: "opt".parse().unwrap(),
            cache_blocks: capacity.iter().sum(),
        };
        let least = caches::run(&references(&rows), &[optimum], &Default::default());
        let least = least.unwrap()[0].misses;
        let costs = FileCosts::plain()
            .with("contention=true,disk_ns=0")
            .unwrap();
        for placement in PLACEMENTS {
            let outcome = simulate(placement, topology, capacity, &rows, &costs);
            let totals = outcome.totals;
            assert!(totals.misses >= least, "{placement} on {topology}");
            assert_eq!(totals.accesses, 3000);
            assert_eq!(totals.accesses, outcome.traffic.iter().sum::<u64>());
            let last = outcome.timeline.last().unwrap();
            // One copy less, also if a block moves to a node that has a replica.
            let came = totals.misses + totals.replications;
            let left = totals.evictions + totals.invalidations + copies(&last.used);
            assert!(left <= came, "{placement} on {topology}");
            assert!(
                left == came || totals.replications > 0,
                "{placement} on {topology}"
            );
        }
    }
}

fn copies(used: &[u32]) -> u64 {
    used.iter().map(|&used| u64::from(used)).sum()
}

/// Replacement policies that need more of a block than its number get it also when another node
/// forwards the block.
#[test]
fn any_replacement_ranks_a_node() {
    let rows = random_rows(9, 6, 60, 2000);
    for replacement in ["opt", "arc", "lirs", "w-tinylfu", "mq", "2q", "random"] {
        for placement in ["one-step", "post-office{trigger=3,replication=1}"] {
            let configuration = PlacementConfiguration {
                replacement: replacement.parse().unwrap(),
                ..PlacementConfiguration::even(
                    placement.parse().unwrap(),
                    Arc::new(Topology::mesh(&[2, 3])),
                    4,
                )
            };
            let options = PlacementOptions {
                check: true,
                ..PlacementOptions::default()
            };
            let outcome = run(
                &references(&rows),
                &configuration,
                &FileCosts::plain(),
                &options,
            );
            assert_eq!(outcome.unwrap().totals.accesses, 2000);
        }
    }
}

/// 80 links with 1024 words of 16 bytes each, and 8192 words per disk.
/// Node 2 reads a block of node 0 at 0, 1222 and 2444 ns and reports after 2000: the third read is
/// the one that tells, and the fourth finds the block at home.
#[test]
fn a_placement_acts_on_a_report() {
    let costs = FileCosts::plain().with("report_ns=2000").unwrap();
    let local = |reads: usize| {
        let rows: Vec<Row> = [(0, 0, false)]
            .into_iter()
            .chain(vec![(2, 0, false); reads])
            .collect();
        let totals = simulate("always-migrate", "mesh:1x3", &[4; 3], &rows, &costs).totals;
        (totals.migrations, totals.remote, totals.local)
    };
    assert_eq!(local(1), (0, 1, 0));
    assert_eq!(local(2), (1, 2, 0), "one move for both");
    assert_eq!(local(3), (1, 2, 1));
}

#[test]
fn random_runs_hold_together_with_late_reports() {
    let costs = "split_directory=true,report_ns=30000,compute_ns=3000";
    let costs = FileCosts::plain().with(costs).unwrap();
    for seed in 0..20 {
        let rows = random_rows(seed, 6, 40, 600);
        for placement in [
            "always-migrate",
            "one-step",
            "post-office{trigger=3,replication=1}",
            "dual-layer",
            "local-only",
            "rendezvous",
            "cost-benefit",
        ] {
            let outcome = simulate(placement, "mesh:2x3", &[5; 6], &rows, &costs);
            let again = simulate(placement, "mesh:2x3", &[5; 6], &rows, &costs);
            assert_eq!(outcome, again, "{placement}, seed {seed}");
        }
    }
}

#[test]
fn what_calendars_take() {
    let mesh = Topology::mesh(&[5, 5]);
    let costs = FileCosts::of(&mesh, 4096);
    assert_eq!(calendar_bytes(&mesh, &costs), (80 * 1024 + 25 * 8192) * 16);
    let costs = costs.with("contention=false,disks=0:24").unwrap();
    assert_eq!(calendar_bytes(&mesh, &costs), 2 * 8192 * 16);
}
