//! The paper's example, and each rule with a case that a hand computes.

use super::*;
use crate::access::Op;
use crate::ids::Slot;
use crate::spec::Spec;
use crate::topology::Topology;
use std::sync::Arc;

/// A policy, and nodes that it is asked about.
struct Bench {
    policy: Box<dyn FilePlacement>,
    nodes: Nodes,
}

impl Bench {
    fn new(spec: &str, topology: Topology, capacity: &[u32]) -> Bench {
        let topology = Arc::new(topology);
        let spec: Spec<PlacementEntry> = spec.parse().unwrap();
        let policy = spec.build_files(&PlacementSettings {
            topology: Arc::clone(&topology),
            capacity,
            blocks: 8,
            block_bytes: 4096,
            totals: None,
            initial: None,
            sampled: false,
        });
        let policy = policy.expect("it places files");
        let nodes = Nodes::new(topology, capacity.to_vec(), 8);
        Bench { policy, nodes }
    }

    /// An access, and what was asked for. What nobody holds is put where the policy says.
    fn access(&mut self, block: u32, node: u16, op: Op) -> Vec<Action> {
        let access = Access {
            node: Node(node),
            op,
            ..Access::bare(0, Block(block))
        };
        let mut out = Vec::new();
        match self.nodes.nearest(access.block, access.node) {
            None => {
                let at = self.policy.place(&access, &self.nodes);
                self.nodes.insert(access.block, at, Slot(block));
            }
            Some(from) => self.policy.on_access(&access, from, &self.nodes, &mut out),
        }
        if op == Op::Write {
            self.policy.on_write(&access, &self.nodes, &mut out);
        }
        self.policy.check(&self.nodes);
        out
    }

    fn reads(&mut self, block: u32, nodes: &[u16]) -> Vec<Action> {
        let reads = nodes.iter().map(|&node| self.access(block, node, Op::Read));
        reads.collect::<Vec<_>>().concat()
    }

    fn victim(&mut self, at: u16) -> Option<u16> {
        let incoming = IncomingBlock::FROM_STORAGE;
        let to = self
            .policy
            .forward_to(Block(6), Node(at), incoming, &self.nodes);
        to.map(|node| node.0)
    }
}

fn migrate(block: u32, to: u16) -> Action {
    Action::Migrate {
        block: Block(block),
        to: Node(to),
    }
}

/// Section 4.2: three requesters at (3,4), (4,3) and (8,8), with the same frequency, meet at (4,4).
#[test]
fn the_papers_example() {
    let at = |x: u16, y: u16| y * 9 + x;
    let mut bench = Bench::new("post-office{trigger=3}", Topology::mesh(&[9, 9]), &[8; 81]);
    let moves = bench.reads(0, &[at(3, 4), at(4, 3), at(8, 8)]);
    assert_eq!(moves, [migrate(0, at(4, 4))]);
}

/// On a line of five, 0 and 4 ask for the block twice each and 1 once: the median is node 1. A
/// weight of 3 for node 4 makes it 6 of 9.
#[test]
fn the_weighted_median_by_counts_and_by_weights() {
    let line = Topology::mesh(&[1, 5]);
    let accesses = [0, 4, 1, 4, 0];
    let mut bench = Bench::new("post-office{trigger=5}", line.clone(), &[8; 5]);
    assert_eq!(bench.reads(0, &accesses), [migrate(0, 1)]);
    let weighted = line.with_nodes(|node, about| about.weight = if node.0 == 4 { 3 } else { 1 });
    let mut bench = Bench::new("post-office{trigger=5}", weighted, &[8; 5]);
    assert_eq!(bench.reads(0, &accesses), [migrate(0, 4)]);
}

/// Around a torus of 5, nodes 0, 4 and 3 lie side by side: 4 is between them, where a mesh has 3.
#[test]
fn the_median_goes_around_a_torus() {
    for (shape, to) in [("mesh:1x5", 3), ("torus:1x5", 4)] {
        let topology = shape.parse().unwrap();
        let mut bench = Bench::new("post-office{trigger=3}", topology, &[8; 5]);
        assert_eq!(bench.reads(0, &[0, 4, 3]), [migrate(0, to)], "{shape}");
    }
}

/// Table 1: with the 50th access, counting from the fetch, and then with the 50th from there; at
/// the best place it stays.
#[test]
fn counters_start_again_after_fifty() {
    let mut bench = Bench::new("post-office", Topology::mesh(&[5, 5]), &[8; 25]);
    assert_eq!(bench.reads(0, &[0]), []);
    assert_eq!(bench.reads(0, &[24; 48]), []);
    assert_eq!(bench.reads(0, &[24]), [migrate(0, 24)]);
    bench.nodes.migrate(Block(0), Node(24), Slot(0));
    assert_eq!(bench.reads(0, &[24; 50]), [], "it is there");
    assert_eq!(bench.reads(0, &[6; 49]), []);
    assert_eq!(bench.reads(0, &[6]), [migrate(0, 6)]);
    bench.nodes.migrate(Block(0), Node(6), Slot(0));

    bench.reads(0, &[3; 49]);
    bench.nodes.remove(Block(0), Node(6));
    bench
        .policy
        .on_removed(Block(0), Node(6), &bench.nodes, &mut Vec::new());
    assert_eq!(bench.reads(0, &[8; 49]), [], "evicted, and counted anew");
}

/// Figure 4 on a line of five with windows of two accesses.
#[test]
fn victims_go_to_neighbours_then_to_others_without_pressure() {
    let spec = "post-office{window=2,miss_ratio=1,remote_misses=1}";
    let mut bench = Bench::new(spec, Topology::mesh(&[1, 5]), &[3, 3, 3, 3, 3]);
    assert_eq!(bench.victim(1), None, "no pressure at 1");
    bench.reads(0, &[1]);
    assert_eq!(bench.victim(1), None, "half a window");
    bench.reads(1, &[1]);
    assert_eq!(
        bench.victim(1),
        Some(0),
        "as much room and as few misses as 2"
    );
    bench.nodes.insert(Block(5), Node(0), Slot(0));
    assert_eq!(bench.victim(1), Some(2), "more room than 0");
    // A remote hit counts as a miss here: 0 and 2 are under pressure as well.
    bench.reads(0, &[0, 0, 2, 2]);
    assert_eq!(bench.victim(1), Some(3), "no neighbour, but any");
    bench.reads(0, &[3, 3, 4, 4]);
    assert_eq!(bench.victim(1), None, "all under pressure");
    bench.reads(0, &[1, 1]);
    assert_eq!(bench.victim(1), None, "a window of hits");
    assert_eq!(bench.victim(0), Some(1));
}

/// By default, what other caches serve does not count as missed.
#[test]
fn remote_hits_may_be_no_misses() {
    let spec = "post-office{window=2,miss_ratio=1}";
    let mut bench = Bench::new(spec, Topology::mesh(&[1, 3]), &[8; 3]);
    bench.reads(0, &[0, 1, 1]);
    assert_eq!(bench.victim(1), None);
    bench.reads(1, &[1]);
    bench.reads(2, &[1]);
    assert_eq!(bench.victim(1), Some(2), "0 has a block already");
}

/// By time, a node's pressure ends when it becomes idle.
#[test]
fn pressure_may_be_of_a_period_of_time() {
    let spec = "post-office{period_ms=1,miss_ratio=1,remote_misses=1}";
    let mut bench = Bench::new(spec, Topology::mesh(&[1, 3]), &[8; 3]);
    bench.reads(0, &[1, 0]);
    assert_eq!(bench.victim(1), None, "the period goes on");
    bench.nodes.set_now_ns(1_500_000);
    bench.reads(0, &[2, 2]);
    assert_eq!(bench.victim(1), Some(2), "0 is under pressure, too");
    bench.nodes.set_now_ns(2_500_000);
    bench.reads(0, &[0]);
    assert_eq!(bench.victim(1), None, "1 was idle");
    assert_eq!(bench.victim(2), Some(1));
}

/// Section 5: farther than two hops, shared and never written. A write keeps the copy that it went
/// to.
#[test]
fn replicas_beyond_the_replication_distance_until_a_write() {
    let replicate = |node| Action::Replicate {
        block: Block(0),
        to: Node(node),
    };
    let drop = |node| Action::Drop {
        block: Block(0),
        at: Node(node),
    };
    let mut bench = Bench::new(
        "post-office{replication=2}",
        Topology::mesh(&[1, 8]),
        &[8; 8],
    );
    assert_eq!(bench.reads(0, &[0, 0, 1, 2]), []);
    assert_eq!(bench.reads(0, &[3]), [replicate(3)]);
    bench.nodes.insert(Block(0), Node(3), Slot(1));
    assert_eq!(bench.reads(0, &[5]), [], "two hops from the replica");
    assert_eq!(bench.reads(0, &[6]), [replicate(6)]);
    bench.nodes.insert(Block(0), Node(6), Slot(1));

    assert_eq!(bench.access(0, 4, Op::Write), [drop(0), drop(6)]);
    bench.nodes.remove(Block(0), Node(0));
    bench.nodes.remove(Block(0), Node(6));
    assert_eq!(bench.nodes.home(Block(0)), Some(Node(3)));
    assert_eq!(bench.reads(0, &[7, 7]), [], "read-write for good");

    // Private: 0 alone fetched and reads block 1, wherever it was forwarded.
    bench.reads(1, &[0]);
    bench.nodes.migrate(Block(1), Node(7), Slot(2));
    assert_eq!(bench.reads(1, &[0]), []);
}
