//! Each rule by a case worked out by hand, on a small machine that keeps the interface's promises
//! in the fewest words; and a naive twin, which shares nothing with the policy but the rules, over
//! random runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::entry::{PlacementEntry, PlacementSettings};
use super::super::events::{Action, ActionOutcome, Epoch, EpochKind, IncomingBlock};
use super::super::interface::FilePlacement;
use super::super::nodes::Nodes;
use crate::access::{Access, Op};
use crate::ids::{Block, Node, Slot};
use crate::placement::counters::Counters;
use crate::random::Random;
use crate::spec::Spec;
use crate::topology::Topology;

/// Nodes with LRU for their originals, driven by the policy.
struct World {
    nodes: Nodes,
    policy: Box<dyn FilePlacement>,
    /// By node, the least recent first.
    originals: Vec<Vec<Block>>,
    free: Vec<Vec<Slot>>,
}

impl World {
    fn new(spec: &str, capacity: &[u32], blocks: u32) -> World {
        let topology = Arc::new(Topology::uniform(capacity.len()));
        let spec: Spec<PlacementEntry> = spec.parse().unwrap();
        let settings = PlacementSettings {
            topology: Arc::clone(&topology),
            capacity,
            blocks,
            block_bytes: 4096,
            totals: None,
            initial: None,
            sampled: false,
        };
        World {
            policy: spec.build_files(&settings).expect("it places files"),
            nodes: Nodes::new(topology, capacity.to_vec(), blocks),
            originals: vec![Vec::new(); capacity.len()],
            free: capacity
                .iter()
                .map(|&capacity| (0..capacity).map(Slot).collect())
                .collect(),
        }
    }

    fn access(&mut self, node: u16, block: u32, op: Op) {
        let access = Access {
            node: Node(node),
            op,
            ..Access::bare(0, Block(block))
        };
        let block = access.block;
        let mut out = Vec::new();
        if let Some(from) = self.nodes.nearest(block, access.node) {
            if self.nodes.home(block) == Some(from) {
                self.originals[from.index()].retain(|&other| other != block);
                self.originals[from.index()].push(block);
            }
            self.policy.on_access(&access, from, &self.nodes, &mut out);
            self.act(std::mem::take(&mut out));
        } else {
            let to = self.policy.place(&access, &self.nodes);
            self.insert(block, to);
            self.originals[to.index()].push(block);
        }
        if op == Op::Write {
            self.policy.on_write(&access, &self.nodes, &mut out);
            self.act(out);
        }
        self.nodes.check();
        self.policy.check(&self.nodes);
    }

    fn read(&mut self, node: u16, blocks: &[u32]) {
        blocks
            .iter()
            .for_each(|&block| self.access(node, block, Op::Read));
    }

    fn end(&mut self, kind: EpochKind) {
        let mut out = Vec::new();
        let epoch = Epoch {
            kind,
            process: None,
            counts: &Counters::new(self.nodes.len(), 0),
            thread_migrations: &[],
            active_threads: 1,
        };
        self.policy.on_epoch(&epoch, &self.nodes, &mut out);
        self.act(out);
    }

    fn act(&mut self, actions: Vec<Action>) {
        let mut outcomes = Vec::new();
        for action in actions {
            let done = match action {
                Action::Replicate { block, to } => {
                    assert!(!self.nodes.holds(block, to), "asked for what is there");
                    let there = self.nodes.home(block).is_some();
                    if there {
                        self.insert(block, to);
                    }
                    there
                }
                Action::Drop { block, at } => {
                    self.remove(block, at);
                    true
                }
                other => panic!("it never asks for {other:?}"),
            };
            outcomes.push(ActionOutcome { action, done });
        }
        self.policy.on_outcomes(&outcomes, &self.nodes);
    }

    fn insert(&mut self, block: Block, node: Node) {
        if self.nodes.free(node) == 0 {
            if let Some(replica) = self.policy.replica_victim(node, block, &self.nodes) {
                assert_ne!(self.nodes.home(replica), Some(node));
                self.remove(replica, node);
            } else {
                let victim = self.originals[node.index()][0];
                let incoming = IncomingBlock::FROM_STORAGE;
                let switched = self.policy.forward_to(victim, node, incoming, &self.nodes);
                if let Some(to) = switched {
                    self.nodes.promote(victim, to);
                    self.originals[node.index()].remove(0);
                    self.originals[to.index()].push(victim);
                }
                self.remove(victim, node);
            }
        }
        let slot = self.free[node.index()].pop().unwrap();
        self.nodes.insert(block, node, slot);
    }

    fn remove(&mut self, block: Block, node: Node) {
        if self.nodes.home(block) == Some(node) {
            self.originals[node.index()].retain(|&other| other != block);
            let replicas: Vec<Node> = self.nodes.copies(block).map(|(at, _)| at).skip(1).collect();
            replicas.into_iter().for_each(|at| self.remove(block, at));
        }
        let slot = self.nodes.remove(block, node);
        self.free[node.index()].push(slot);
        let mut out = Vec::new();
        self.policy.on_removed(block, node, &self.nodes, &mut out);
        self.act(out);
    }

    /// Who holds the block, the original first.
    fn held(&self, block: u32) -> Vec<u16> {
        let copies = self.nodes.copies(Block(block));
        copies.map(|(node, _)| node.0).collect()
    }

    /// Which of the blocks are at a node.
    fn at(&self, node: u16, blocks: std::ops::Range<u32>) -> Vec<u32> {
        blocks
            .filter(|&block| self.nodes.holds(Block(block), Node(node)))
            .collect()
    }
}

#[test]
fn a_replica_at_the_second_remote_access_of_a_node() {
    let mut world = World::new("dual-layer", &[9, 9, 9], 1);
    world.read(0, &[0, 0, 0]);
    world.read(1, &[0]);
    world.read(2, &[0]);
    assert_eq!(world.held(0), [0], "one each, on two nodes");
    world.read(2, &[0]);
    assert_eq!(world.held(0), [0, 2]);
    world.read(1, &[0]);
    assert_eq!(world.held(0), [0, 1, 2], "the latest replica first");

    let mut third = World::new("dual-layer{threshold=3}", &[9, 9], 1);
    third.read(0, &[0]);
    third.read(1, &[0, 0]);
    assert_eq!(third.held(0), [0]);
    third.read(1, &[0]);
    assert_eq!(third.held(0), [0, 1]);
}

#[test]
fn a_write_drops_replicas_and_resets_counters() {
    let mut world = World::new("dual-layer", &[9, 9, 9], 1);
    world.read(0, &[0]);
    world.read(1, &[0, 0]);
    world.read(2, &[0]);
    world.access(0, 0, Op::Write);
    assert_eq!(world.held(0), [0]);
    world.read(2, &[0]);
    assert_eq!(world.held(0), [0], "its first since the write");
    world.read(2, &[0]);
    assert_eq!(world.held(0), [0, 2]);
    world.access(2, 0, Op::Write);
    assert_eq!(world.held(0), [0], "the original is what is written");
    world.access(1, 0, Op::Write);
    world.access(1, 0, Op::Write);
    assert_eq!(world.held(0), [0], "writes are not counted");
}

/// Node 1 holds replicas of 0 to 3, read twice to be made and then as often again as said.
fn ranked(spec: &str, capacity: u32, again: [usize; 4]) -> World {
    let mut world = World::new(spec, &[20, capacity], 20);
    for (block, again) in (0..).zip(again) {
        world.read(0, &[block]);
        world.read(1, &[block, block]);
        world.read(1, &vec![block; again]);
    }
    world
}

#[test]
fn replicas_go_from_the_lowest_queue_and_there_by_recency() {
    // Frequencies 4, 2, 3, 1: queues 2, 1, 1, 0. All frames asked for are replicas'.
    let mut world = ranked("dual-layer{ratio=1000,free=0}", 4, [3, 1, 2, 0]);
    assert_eq!(world.at(1, 0..20), [0, 1, 2, 3]);
    world.read(1, &[10]);
    assert_eq!(world.at(1, 0..20), [0, 1, 2, 10]);
    world.read(1, &[1, 11]);
    assert_eq!(
        world.at(1, 0..20),
        [0, 1, 10, 11],
        "1 is more recent than 2, both read three times"
    );
    world.read(1, &[12]);
    world.read(1, &[13]);
    assert_eq!(world.at(1, 0..20), [10, 11, 12, 13]);
    world.read(1, &[14]);
    assert_eq!(world.at(1, 0..20), [11, 12, 13, 14], "no replica is left");
}

#[test]
fn frequencies_fall_when_the_inactive_list_is_refilled() {
    // Frequencies 2, 1, 1, 1; the most recent is 3. Two originals, 8 and 9, so that with refill=1
    // every second frame asked for is a refill. The first takes 1. The second lets 0 fall to the
    // recent end of the lowest queue, behind 2 and 3, and takes 2; the third takes 3, the fourth 0.
    let mut world = ranked("dual-layer{ratio=1000,free=0,refill=1}", 6, [1, 0, 0, 0]);
    world.read(1, &[8, 9]);
    for (incoming, left) in [
        (10, vec![0, 2, 3]),
        (11, vec![0, 3]),
        (12, vec![0]),
        (13, vec![]),
    ] {
        world.read(1, &[incoming]);
        assert_eq!(world.at(1, 0..4), left);
    }
}

#[test]
fn a_frequency_falls_by_one_and_not_below_one() {
    // Frequencies 4, 2: after two refills (refill=0: at each frame) 2 and 1, after three 1 and 1.
    let mut world = ranked("dual-layer{ratio=1000,free=0,refill=0}", 4, [3, 1, 0, 0]);
    world.read(1, &[10, 11]);
    assert_eq!(world.at(1, 0..4), [0, 1]);
    // Now 1 has more than 0 had it not fallen once less: 0 is at 2, 1 at 1; two more reads make 3
    // of 1.
    world.read(1, &[1, 1]);
    // The third frame: 0 falls to 1, 1 to 2.
    world.read(1, &[12]);
    assert_eq!(world.at(1, 0..4), [1]);
}

#[test]
fn two_replicas_go_for_each_original() {
    let mut world = ranked("dual-layer{free=0}", 8, [0; 4]);
    world.read(1, &[10, 11, 12, 13]);
    // Full. Six frames are asked for: replica, replica, original, replica, replica, original.
    for (incoming, left) in [
        (14, vec![1, 2, 3, 10, 11, 12, 13, 14]),
        (15, vec![2, 3, 10, 11, 12, 13, 14, 15]),
        (16, vec![2, 3, 11, 12, 13, 14, 15, 16]),
        (17, vec![3, 11, 12, 13, 14, 15, 16, 17]),
        (18, vec![11, 12, 13, 14, 15, 16, 17, 18]),
        (19, vec![12, 13, 14, 15, 16, 17, 18, 19]),
    ] {
        world.read(1, &[incoming]);
        assert_eq!(world.at(1, 0..20), left);
    }
}

#[test]
fn a_node_of_replicas_alone_gives_them_up_out_of_turn() {
    let mut world = ranked("dual-layer{ratio=0,free=0}", 4, [0; 4]);
    world.read(1, &[10]);
    assert_eq!(world.at(1, 0..20), [1, 2, 3, 10]);
    world.read(1, &[11]);
    assert_eq!(world.at(1, 0..20), [1, 2, 3, 11], "now there is one");
}

/// Node 0 holds 0 and 1, both with replicas at 1 and 2, and is full.
fn shared(spec: &str) -> World {
    let mut world = World::new(spec, &[2, 9, 9, 9], 9);
    world.read(0, &[0, 1]);
    for node in [1, 2] {
        world.read(node, &[0, 0, 1, 1]);
    }
    world.read(3, &[0]);
    world.read(0, &[1]);
    world
}

#[test]
fn all_replicas_go_with_their_original() {
    let mut world = shared("dual-layer{free=0}");
    assert_eq!(world.held(0), [0, 2, 1]);
    world.read(0, &[5]);
    assert_eq!(world.held(0), []);
    assert_eq!(world.held(1), [0, 2, 1]);
    world.read(1, &[0]);
    world.read(3, &[0]);
    assert_eq!(world.held(0), [1], "counters went with the original, too");
    world.read(3, &[0]);
    assert_eq!(world.held(0), [1, 3]);
}

#[test]
fn or_roles_are_switched() {
    let mut world = shared("dual-layer{free=0,switch=1}");
    world.read(0, &[5]);
    assert_eq!(world.held(0), [2, 1], "the latest replica is the original");
    world.read(3, &[0]);
    assert_eq!(world.held(0), [2, 3, 1], "its second; counters stay");
}

#[test]
fn no_replicas_while_memory_is_tight_as_checked_every_second() {
    // Of 10 frames 5 are taken, then 4: 0.5 and 0.6 are free.
    let mut world = World::new("dual-layer{free=0.55}", &[5, 5], 9);
    world.read(0, &[0, 1, 2, 3, 4]);
    world.read(1, &[0, 0]);
    assert_eq!(
        world.held(0),
        [0, 1],
        "nothing was taken when it was checked"
    );
    world.nodes.set_now_ns(1_000_000_000);
    world.read(1, &[1, 1, 1]);
    assert_eq!(world.held(1), [0], "0.4 are free");
    world.remove(Block(0), Node(0));
    world.nodes.set_now_ns(1_999_999_999);
    world.read(1, &[1]);
    assert_eq!(world.held(1), [0], "0.6 are free, and nobody has looked");
    world.nodes.set_now_ns(2_000_000_000);
    world.read(1, &[1]);
    assert_eq!(world.held(1), [0, 1], "it was counted all the time");
}

#[test]
fn delayed_generation() {
    let mut world = World::new("dual-layer{delay_us=10}", &[9, 9], 9);
    world.read(0, &[0, 1, 2]);
    world.read(1, &[0, 0, 1, 1]);
    world.nodes.set_now_ns(9_999);
    world.read(1, &[0, 2, 2]);
    assert_eq!(world.held(0), [0]);
    world.access(1, 0, Op::Write);
    world.nodes.set_now_ns(10_000);
    world.read(0, &[5]);
    assert_eq!(world.held(0), [0], "written in between");
    assert_eq!(world.held(1), [0], "a new block makes nothing due");
    world.read(1, &[0]);
    assert_eq!(world.held(1), [0, 1], "due");
    assert_eq!(world.held(2), [0], "not yet");
    world.end(EpochKind::Period);
    assert_eq!(world.held(2), [0]);
    world.end(EpochKind::Construct);
    assert_eq!(world.held(2), [0, 1], "its processors are idle");
}

#[test]
fn a_replica_that_was_cancelled_and_is_wanted_again_waits_anew() {
    let mut world = World::new("dual-layer{delay_us=10}", &[9, 9], 9);
    world.read(0, &[0]);
    world.read(1, &[0, 0]);
    world.access(0, 0, Op::Write);
    world.nodes.set_now_ns(5_000);
    world.read(1, &[0, 0]);
    world.nodes.set_now_ns(10_000);
    world.read(1, &[0]);
    assert_eq!(world.held(0), [0]);
    world.nodes.set_now_ns(15_000);
    world.read(1, &[0]);
    assert_eq!(world.held(0), [0, 1]);
}

#[test]
fn a_mapped_block_has_no_replicas_unless_they_are_allowed() {
    let mut world = World::new("dual-layer{free=0}", &[1, 9], 9);
    world.read(0, &[0]);
    world.read(1, &[0, 0]);
    world.access(1, 0, Op::Map);
    assert_eq!(world.held(0), [0]);
    world.read(1, &[0, 0, 0]);
    assert_eq!(world.held(0), [0]);
    world.read(0, &[1, 0]);
    world.read(1, &[0, 0]);
    assert_eq!(world.held(0), [0, 1], "its original left and came again");

    let mut allowed = World::new("dual-layer{mapped=1}", &[9, 9], 9);
    allowed.access(0, 0, Op::Map);
    allowed.access(1, 0, Op::Map);
    allowed.access(1, 0, Op::Map);
    assert_eq!(allowed.held(0), [0, 1]);
}

/// The rules in the fewest words: vectors and maps that are searched.
struct Twin {
    threshold: u32,
    refill: f64,
    ratio: u32,
    free: f64,
    check_ns: u64,
    delay_ns: u64,
    switch: bool,
    mapping: bool,
    capacity: Vec<u32>,
    now_ns: u64,
    checked: Option<u64>,
    tight: bool,
    clock: u64,
    originals: Vec<Vec<u32>>,
    replicas: Vec<Vec<NaiveReplica>>,
    counts: BTreeMap<(u32, u16), u32>,
    waiting: Vec<(u64, u32, u16)>,
    mapped: Vec<u32>,
    asked: Vec<u32>,
    turns: Vec<u32>,
}

#[derive(Clone, Copy)]
struct NaiveReplica {
    block: u32,
    frequency: u32,
    made: u64,
    queued: u64,
}

impl NaiveReplica {
    fn rank(&self) -> (u32, u64) {
        (self.frequency.ilog2().min(7), self.queued)
    }
}

impl Twin {
    fn home(&self, block: u32) -> Option<usize> {
        self.originals.iter().position(|all| all.contains(&block))
    }

    /// The nodes with replicas, the latest first.
    fn holders(&self, block: u32) -> Vec<u16> {
        let replicas = self.replicas.iter().enumerate();
        let mut holders: Vec<(u64, u16)> = replicas
            .flat_map(|(node, all)| all.iter().map(move |each| (node, each)))
            .filter(|(_, each)| each.block == block)
            .map(|(node, each)| (each.made, node as u16))
            .collect();
        holders.sort_by(|a, b| b.cmp(a));
        holders.into_iter().map(|(_, node)| node).collect()
    }

    fn replica(&mut self, block: u32, node: usize) -> Option<&mut NaiveReplica> {
        self.replicas[node]
            .iter_mut()
            .find(|each| each.block == block)
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn look(&mut self) {
        if self
            .checked
            .is_none_or(|last| self.now_ns / self.check_ns > last / self.check_ns)
        {
            let used: usize = (0..self.capacity.len()).map(|node| self.used(node)).sum();
            let all: u32 = self.capacity.iter().sum();
            self.tight = 1.0 - used as f64 / f64::from(all) < self.free;
            self.checked = Some(self.now_ns);
        }
    }

    fn used(&self, node: usize) -> usize {
        self.originals[node].len() + self.replicas[node].len()
    }

    fn make_room(&mut self, node: usize) {
        if self.used(node) < self.capacity[node] as usize {
            return;
        }
        self.asked[node] += 1;
        if f64::from(self.asked[node]) >= self.refill * self.originals[node].len() as f64 {
            self.asked[node] = 0;
            self.replicas[node].sort_by_key(NaiveReplica::rank);
            for at in 0..self.replicas[node].len() {
                let queued = self.tick();
                let replica = &mut self.replicas[node][at];
                let before = replica.rank().0;
                if replica.frequency > 1 {
                    replica.frequency -= 1;
                }
                if replica.rank().0 < before {
                    replica.queued = queued;
                }
            }
        }
        let turn = self.turns[node] % (self.ratio + 1);
        self.turns[node] += 1;
        let wanted = turn < self.ratio || self.originals[node].is_empty();
        if wanted && !self.replicas[node].is_empty() {
            self.replicas[node].sort_by_key(NaiveReplica::rank);
            self.replicas[node].remove(0);
            return;
        }
        let block = self.originals[node].remove(0);
        let holders = self.holders(block);
        if self.switch && !holders.is_empty() {
            let latest = usize::from(holders[0]);
            self.replicas[latest].retain(|each| each.block != block);
            self.originals[latest].push(block);
            return;
        }
        self.drop_replicas(block);
        self.reset(block);
        self.mapped.retain(|&other| other != block);
    }

    fn drop_replicas(&mut self, block: u32) {
        for all in &mut self.replicas {
            all.retain(|each| each.block != block);
        }
    }

    fn reset(&mut self, block: u32) {
        self.counts.retain(|&(counted, _), _| counted != block);
        self.waiting.retain(|&(_, waiting, _)| waiting != block);
    }

    fn replicate(&mut self, block: u32, node: u16) {
        self.make_room(usize::from(node));
        let queued = self.tick();
        self.replicas[usize::from(node)].push(NaiveReplica {
            block,
            frequency: 1,
            made: queued,
            queued,
        });
        self.counts.remove(&(block, node));
    }

    /// Makes the first of those that wait and are due, if memory is not tight.
    fn generate(&mut self) {
        while !self.waiting.is_empty() && self.waiting[0].0 <= self.now_ns {
            let (_, block, node) = self.waiting.remove(0);
            if !self.tight {
                self.replicate(block, node);
                return;
            }
        }
    }

    fn access(&mut self, node: u16, block: u32, op: Op) {
        self.look();
        let at = usize::from(node);
        let forbidden = op == Op::Map && !self.mapping;
        match self.home(block) {
            None => {
                self.make_room(at);
                self.originals[at].push(block);
                if forbidden {
                    self.mapped.push(block);
                }
            }
            Some(home) => {
                let tick = self.tick();
                let remote = home != at && self.replica(block, at).is_none();
                // On uniform nodes no replica is nearer than the original.
                if home == at || remote {
                    self.originals[home].retain(|&other| other != block);
                    self.originals[home].push(block);
                }
                if op != Op::Write {
                    if forbidden {
                        self.mapped.push(block);
                        self.drop_replicas(block);
                        self.reset(block);
                    } else if remote {
                        self.remote(block, node);
                    } else if let Some(replica) = self.replica(block, at) {
                        replica.frequency += 1;
                        replica.queued = tick;
                    }
                    self.generate();
                }
            }
        }
        if op == Op::Write {
            self.drop_replicas(block);
            self.reset(block);
        }
    }

    fn remote(&mut self, block: u32, node: u16) {
        if self
            .waiting
            .iter()
            .any(|&(_, waiting, to)| (waiting, to) == (block, node))
        {
            return;
        }
        let count = self.counts.entry((block, node)).or_insert(0);
        *count += 1;
        if *count < self.threshold || self.tight || self.mapped.contains(&block) {
            return;
        }
        if self.delay_ns == 0 {
            self.replicate(block, node);
        } else {
            self.waiting
                .push((self.now_ns + self.delay_ns, block, node));
        }
    }
}

#[test]
fn the_same_copies_as_a_naive_twin() {
    let mut made = 0;
    for seed in 0..400 {
        let mut random = Random::new(seed);
        let mut pick = |choices: &[u32]| choices[random.below(choices.len() as u64) as usize];
        let (threshold, ratio) = (pick(&[1, 2, 3]), pick(&[0, 1, 2, 5]));
        let (refill, free) = (pick(&[0, 1, 2, 4]), pick(&[0, 0, 1, 4]));
        let (check_ms, delay_us) = (pick(&[0, 1, 20]), pick(&[0, 0, 1, 5000]));
        let (switch, mapped) = (pick(&[0, 1]), pick(&[0, 1]));
        let capacity: Vec<u32> = (0..pick(&[1, 2, 3, 5]))
            .map(|_| pick(&[1, 2, 4, 9]))
            .collect();
        let spec = format!(
            "dual-layer{{threshold={threshold},refill={},ratio={ratio},free={},\
             check_ms={check_ms},delay_us={delay_us},switch={switch},mapped={mapped}}}",
            f64::from(refill) / 4.0,
            f64::from(free) / 8.0,
        );
        println!("seed {seed}: {spec} {capacity:?}");
        let mut world = World::new(&spec, &capacity, 12);
        let mut twin = Twin {
            threshold,
            refill: f64::from(refill) / 4.0,
            ratio,
            free: f64::from(free) / 8.0,
            check_ns: (u64::from(check_ms) * 1_000_000).max(1),
            delay_ns: u64::from(delay_us) * 1000,
            switch: switch == 1,
            mapping: mapped == 1,
            now_ns: 0,
            checked: None,
            tight: false,
            clock: 0,
            originals: vec![Vec::new(); capacity.len()],
            replicas: vec![Vec::new(); capacity.len()],
            counts: BTreeMap::new(),
            waiting: Vec::new(),
            mapped: Vec::new(),
            asked: vec![0; capacity.len()],
            turns: vec![0; capacity.len()],
            capacity,
        };
        for step in 0..400 {
            let node = random.below(twin.capacity.len() as u64) as u16;
            // Some blocks are in favour, so that frequencies differ.
            let block = random.below(12).min(random.below(12)) as u32;
            let op = match random.below(40) {
                0 | 1 => Op::Write,
                2 => Op::Map,
                _ => Op::Read,
            };
            twin.now_ns += random.below(2_000_000);
            world.nodes.set_now_ns(twin.now_ns);
            if random.below(50) == 0 {
                world.end(EpochKind::Iteration);
                twin.look();
                twin.waiting.iter_mut().for_each(|each| each.0 = 0);
                twin.generate();
            }
            world.access(node, block, op);
            twin.access(node, block, op);
            for block in 0..12 {
                let held: Vec<u16> = twin
                    .home(block)
                    .map(|home| home as u16)
                    .into_iter()
                    .chain(twin.holders(block))
                    .collect();
                assert_eq!(world.held(block), held, "block {block} at step {step}");
            }
            made += twin.replicas.iter().map(Vec::len).sum::<usize>();
        }
    }
    assert!(made > 100_000, "replicas are what this is about: {made}");
}
