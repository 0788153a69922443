//! Each rule with a case that a hand computes, and random runs against a twin: the same rules on
//! maps, without the limit of six readers, which is not reached on five nodes.

use super::super::counters::Counters;
use super::*;
use crate::access::Op;
use crate::ids::Slot;
use crate::random::Random;
use crate::spec::Spec;
use crate::topology::Topology;
use std::collections::BTreeMap;
use std::sync::Arc;

const BLOCKS: u32 = 12;

/// A policy, and nodes that carry out what it asks for.
struct Bench {
    policy: Box<dyn FilePlacement>,
    nodes: Nodes,
    now_ms: u64,
}

impl Bench {
    fn new(spec: &str, topology: Topology, room: u32) -> Bench {
        let topology = Arc::new(topology);
        let capacity = vec![room; topology.nodes()];
        let spec: Spec<PlacementEntry> = spec.parse().unwrap();
        let policy = spec.build_files(&PlacementSettings {
            topology: Arc::clone(&topology),
            capacity: &capacity,
            blocks: BLOCKS,
            block_bytes: 4096,
            totals: None,
            initial: None,
            sampled: false,
        });
        Bench {
            policy: policy.expect("it places files"),
            nodes: Nodes::new(topology, capacity, BLOCKS),
            now_ms: 0,
        }
    }

    fn line(spec: &str) -> Bench {
        Bench::new(spec, Topology::mesh(&[1, 5]), BLOCKS)
    }

    /// An access after `ms`, and what was asked for. What nobody holds is put where the policy
    /// says. The actions are not carried out.
    fn access(&mut self, block: u32, node: u16, op: Op, ms: u64) -> Vec<Action> {
        self.now_ms += ms;
        self.nodes.set_now_ns(self.now_ms * 1_000_000);
        let access = Access {
            node: Node(node),
            op,
            ..Access::bare(0, Block(block))
        };
        let mut out = Vec::new();
        match self.nodes.nearest(access.block, access.node) {
            None => {
                let at = self.policy.place(&access, &self.nodes);
                self.nodes.insert(access.block, at, Slot(0));
            }
            Some(from) => self.policy.on_access(&access, from, &self.nodes, &mut out),
        }
        if op == Op::Write {
            self.policy.on_write(&access, &self.nodes, &mut out);
        }
        self.policy.check(&self.nodes);
        out
    }

    /// Reads by these nodes, a second apart.
    fn reads(&mut self, block: u32, nodes: &[u16]) -> Vec<Action> {
        let reads = nodes
            .iter()
            .map(|&node| self.access(block, node, Op::Read, 1000));
        reads.collect::<Vec<_>>().concat()
    }

    fn evict(&mut self, block: u32, at: u16, incoming: IncomingBlock) -> Option<u16> {
        let to = self
            .policy
            .forward_to(Block(block), Node(at), incoming, &self.nodes);
        self.nodes.remove(Block(block), Node(at));
        to.map(|node| node.0)
    }

    fn exchange(&mut self) {
        self.policy
            .on_epoch(&period(&Counters::new(0, 0)), &self.nodes, &mut Vec::new());
    }
}

fn period(counts: &Counters) -> Epoch<'_> {
    Epoch {
        kind: EpochKind::Period,
        process: None,
        counts,
        thread_migrations: &[],
        active_threads: 1,
    }
}

fn migrate(block: u32, to: u16) -> Action {
    let (block, to) = (Block(block), Node(to));
    Action::Migrate { block, to }
}

/// A reader 3 hops away saves 5 hops a read. Fetched by node 0, read by node 3 `n` times, the block
/// gains 5n - 5 - 3 with a deviation of 5 sqrt(n + 1): 1.5 of these are 18.4 for 5 reads and 19.9
/// for 6. Without the fetch among the counts 3 reads would do.
#[test]
fn it_moves_when_the_gain_is_no_chance() {
    let mut bench = Bench::line("cost-benefit{replicas=no,load=no}");
    assert_eq!(bench.reads(0, &[0, 3, 3, 3, 3, 3]), []);
    assert_eq!(bench.reads(0, &[3]), [migrate(0, 3)]);
    let mut bench = Bench::line("cost-benefit{replicas=no,load=no,confidence=0}");
    assert_eq!(bench.reads(0, &[0, 3]), [], "it gains as much as it loses");
    assert_eq!(bench.reads(0, &[3]), [migrate(0, 3)]);
    let mut bench = Bench::line("cost-benefit{replicas=no,load=no,confidence=10}");
    assert_eq!(bench.reads(0, &[0, 3, 3, 3, 3, 3, 3, 3, 3, 3]), []);
}

/// Both ends read as often as each other: neither is better.
#[test]
fn it_stays_between_readers_that_contradict_each_other() {
    let mut bench = Bench::line("cost-benefit{replicas=no,load=no}");
    assert_eq!(bench.reads(0, &[2, 0, 4, 0, 4, 0, 4, 0, 4, 0, 4, 0, 4]), []);
}

#[test]
fn a_trigger_needs_no_confidence() {
    let mut bench = Bench::line("cost-benefit{replicas=no,load=no,trigger=4}");
    assert_eq!(bench.reads(0, &[0, 3, 3]), []);
    assert_eq!(bench.reads(0, &[3]), [migrate(0, 3)]);
}

/// A node that serves all five shares is four hops further away after many periods.
#[test]
fn a_loaded_node_is_avoided() {
    for (load, moves) in [("no", vec![migrate(0, 3)]), ("yes", vec![])] {
        let spec = format!("cost-benefit{{replicas=no,load={load}}}");
        let mut bench = Bench::line(&spec);
        for _ in 0..200 {
            bench.reads(1, &[3]);
            bench.exchange();
        }
        assert_eq!(bench.reads(0, &[0, 3, 3, 3, 3, 3, 3]), moves, "load={load}");
    }
}

/// Node 4 reads every 10 ms, 6 hops each. Three reads of four in 30 ms save 18 hops; a frame earns
/// 82 hops in the time that the node is up: four times 31 * 82 / 5030 hops are less, and four times
/// 31 * 82 / 530 are more.
#[test]
fn a_replica_has_to_earn_its_frame() {
    let (block, to) = (Block(0), Node(4));
    for (ms, made) in [(5000, vec![Action::Replicate { block, to }]), (500, vec![])] {
        let mut bench = Bench::line("cost-benefit{confidence=10}");
        bench.access(0, 0, Op::Read, ms);
        let reads = [10, 10, 10].map(|ms| bench.access(0, 4, Op::Read, ms));
        assert_eq!(reads.concat(), made, "{ms}");
    }
    let mut bench = Bench::line("cost-benefit{confidence=10,replicas=no}");
    bench.access(0, 0, Op::Read, 5000);
    assert!(
        [10, 10, 10]
            .iter()
            .all(|&ms| bench.access(0, 4, Op::Read, ms).is_empty())
    );
    let mut bench = Bench::line("cost-benefit{confidence=10}");
    bench.access(0, 0, Op::Write, 5000);
    let reads = [10, 10].map(|ms| bench.access(0, 4, Op::Write, ms));
    assert_eq!(reads.concat(), [], "each write would drop it");
}

/// Block 0 comes back to node 2 after 10 s, so it is expected after 10 s again.
#[test]
fn a_victim_that_returns_goes_where_it_may_stay() {
    let returns = |spec: &str| {
        let mut bench = Bench::new(spec, Topology::mesh(&[1, 5]), 1);
        bench.reads(0, &[2]);
        assert_eq!(
            bench.evict(0, 2, IncomingBlock::FROM_STORAGE),
            None,
            "not known to return"
        );
        bench.access(0, 2, Op::Read, 10_000);
        bench
    };
    assert_eq!(
        returns("cost-benefit").evict(0, 2, IncomingBlock::FROM_STORAGE),
        Some(3),
        "room on both sides"
    );
    assert_eq!(
        returns("cost-benefit{forward=no}").evict(0, 2, IncomingBlock::FROM_STORAGE),
        None
    );

    // Node 1 is full, and its victims were idle for 20 s; node 3 is full, and its were for 5 s.
    let mut bench = returns("cost-benefit");
    for (block, node, ms) in [(1, 1, 20_000), (2, 3, 5000)] {
        bench.reads(block, &[node]);
        bench.access(5, 0, Op::Read, ms);
        assert_eq!(bench.evict(block, node, IncomingBlock::FROM_STORAGE), None);
        bench.reads(block + 2, &[node]);
        bench.nodes.remove(Block(5), Node(0));
    }
    bench.exchange();
    assert_eq!(
        bench.evict(0, 2, IncomingBlock::FROM_STORAGE),
        None,
        "its time is over"
    );
    bench.access(0, 2, Op::Read, 1000);
    bench.evict(0, 2, IncomingBlock::FROM_STORAGE);
    bench.access(0, 2, Op::Read, 13_000);
    assert_eq!(
        bench.evict(0, 2, IncomingBlock::FROM_STORAGE),
        Some(1),
        "1.5 times 13 s, and 20 s are offered"
    );
    bench.access(0, 2, Op::Read, 14_000);
    assert_eq!(
        bench.evict(0, 2, IncomingBlock::FROM_STORAGE),
        None,
        "1.5 times 14 s"
    );
}

#[test]
fn a_victim_takes_the_frame_of_the_block_that_moves() {
    for (spec, to) in [
        ("cost-benefit", Some(0)),
        ("cost-benefit{exchange=no}", None),
    ] {
        let mut bench = Bench::line(spec);
        bench.reads(1, &[3]);
        assert_eq!(bench.reads(0, &[0, 3, 3, 3, 3, 3, 3]), [migrate(0, 3)]);
        let incoming = IncomingBlock {
            from: Some(Node(0)),
            migrates: true,
        };
        assert_eq!(bench.evict(1, 3, incoming), to, "{spec}");
    }
}

/// Node 3 serves block 1 after 1.5 s, in the older half of the 2 s that its victims get to be:
/// eleven times for each victim. Victims are exchanged and never read again, until fewer of them
/// pay than blocks of that age are hit: after n of them, 16 / (16 + n) against 11 n / (17 + n).
/// Then one of 16 is exchanged.
#[test]
fn another_chance_has_to_pay() {
    let mut bench = Bench::line("cost-benefit{replicas=no,confidence=10}");
    bench.access(1, 3, Op::Read, 1000);
    let incoming = IncomingBlock {
        from: Some(Node(0)),
        migrates: true,
    };
    let mut exchanged = Vec::new();
    for _ in 0..256 {
        if !bench.nodes.holds(Block(0), Node(3)) {
            bench.access(0, 3, Op::Read, 0);
        }
        bench.access(2, 3, Op::Read, 2000);
        exchanged.push(bench.evict(0, 3, incoming).is_some());
        for _ in 0..12 {
            bench.access(1, 3, Op::Read, 1500);
        }
    }
    let first = exchanged.iter().position(|exchanged| !exchanged);
    let first = first.expect("it ends");
    assert_eq!(first, 2);
    let trials = exchanged[first..].iter().filter(|&&exchanged| exchanged);
    assert_eq!(trials.count(), (256 - 2_usize).div_ceil(16));
}

#[test]
fn a_block_takes_32_bytes() {
    assert_eq!(size_of::<Entry>(), 32);
}

/// The rules again. Times in ms.
#[derive(Default)]
struct Twin {
    /// Counts by block and node; all accesses, writes, span, last access, return.
    counts: BTreeMap<u32, BTreeMap<u16, u32>>,
    total: BTreeMap<u32, u32>,
    writes: BTreeMap<u32, u32>,
    span: BTreeMap<u32, u64>,
    last: BTreeMap<u32, u64>,
    returns: BTreeMap<u32, u64>,
    /// Victims with another chance: whether they were exchanged.
    chances: BTreeMap<u32, bool>,
    /// Shares, each with its tries: forwarded and exchanged victims that paid, hits on old blocks.
    paid: [(f64, f64); 2],
    old_hits: (f64, f64),
    victims: u32,
    age: BTreeMap<u16, f64>,
    told: BTreeMap<u16, f64>,
    served: BTreeMap<u16, u32>,
    load: BTreeMap<u16, f64>,
    now: u64,
}

fn tried((share, tries): &mut (f64, f64)) {
    *tries = (*tries + 1.0).min(128.0);
    *share -= *share / *tries;
}

fn pays((share, tries): &mut (f64, f64)) {
    *share += 1.0 / *tries;
}

impl Twin {
    /// Counts an access; returns how long the block was idle.
    fn touch(&mut self, block: u32, by: u16) -> Option<u64> {
        if self.total.get(&block).is_some_and(|&total| total >= 8) {
            let counts = self.counts.get_mut(&block)?;
            counts.values_mut().for_each(|count| *count /= 2);
            counts.retain(|_, count| *count > 0);
            *self.total.get_mut(&block)? /= 2;
            *self.writes.entry(block).or_default() /= 2;
            *self.span.get_mut(&block)? /= 2;
        }
        let idle = self
            .last
            .insert(block, self.now)
            .map(|last| self.now - last);
        let total = self.total.entry(block).or_default();
        let span = self.span.entry(block).or_default();
        *span = if *total == 0 {
            0
        } else {
            *span + idle.unwrap_or(0)
        };
        *total += 1;
        self.chances.remove(&block);
        *self.counts.entry(block).or_default().entry(by).or_default() += 1;
        idle
    }

    fn place(&mut self, block: u32, by: u16) {
        *self.served.entry(by).or_default() += 1;
        if let Some(idle) = self.touch(block, by) {
            self.returns.insert(block, idle / 64 * 64);
        }
    }

    fn access(&mut self, block: u32, by: u16, from: u16, nodes: &Nodes) -> Option<Action> {
        *self.served.entry(from).or_default() += 1;
        if nodes.home(Block(block)) != Some(Node(from)) {
            return None;
        }
        let chance = self.chances.get(&block).copied();
        let idle = self.touch(block, by)?;
        if let Some(exchanged) = chance {
            pays(&mut self.paid[usize::from(exchanged)]);
        }
        if let Some(&age) = self.age.get(&from)
            && 2.0 * idle as f64 > age
        {
            self.returns.insert(block, idle / 64 * 64);
            if idle as f64 <= age && chance.is_none() {
                pays(&mut self.old_hits);
            }
        }
        let far = |one: u16, other: u16| {
            if one == other {
                0.0
            } else {
                2.0 + f64::from(nodes.topology().hops(Node(one), Node(other)))
            }
        };
        let counts = self.counts[&block].clone();
        let (total, writes) = (self.total[&block], self.writes.get(&block).copied());
        if by != from {
            let age = self.told.get(&by).copied().unwrap_or(f64::INFINITY);
            let price = (self.span[&block] + 1) as f64 * 82.0 / age.min(self.now as f64);
            let writes = f64::from(writes.unwrap_or(0));
            let saved = (f64::from(counts[&by]) - 2.0 * writes) * far(by, from);
            if total >= 4 && saved > 4.0 * price {
                self.counts.get_mut(&block)?.remove(&by);
                let (block, to) = (Block(block), Node(by));
                return Some(Action::Replicate { block, to });
            }
            let all: u32 = counts.values().sum();
            let cost = |node: u16| {
                let load = self.load.get(&node).copied().unwrap_or(1.0);
                let ways = counts
                    .iter()
                    .map(|(&at, &count)| f64::from(count) * far(at, node));
                ways.sum::<f64>() + f64::from(all) * (load - 1.0).max(0.0)
            };
            let best = counts.keys().copied();
            let best = best.min_by(|&one, &other| cost(one).total_cmp(&cost(other)))?;
            let way = f64::from(nodes.topology().hops(Node(from), Node(best)));
            let gain = cost(from) - cost(best) - way;
            let variance = counts
                .iter()
                .map(|(&at, &count)| f64::from(count) * (far(at, from) - far(at, best)).powi(2));
            if best != from && gain > 0.0 && gain * gain > 2.25 * variance.sum::<f64>() {
                self.counts.remove(&block);
                self.total.remove(&block);
                self.writes.remove(&block);
                return Some(migrate(block, best));
            }
        }
        None
    }

    fn victim(&mut self, block: u32, at: u16, freed: Option<u16>, nodes: &Nodes) -> Option<u16> {
        let idle = self.now - self.last[&block];
        if !self.chances.contains_key(&block) {
            let age = self.age.entry(at).or_insert(idle as f64);
            *age += (idle as f64 - *age) / 16.0;
        }
        tried(&mut self.old_hits);
        let to = match freed {
            Some(freed) => freed,
            None => {
                let waits = self.returns.get(&block)?.checked_sub(idle)?;
                let stay = |node: Node| match nodes.free(node) {
                    0 => self.told.get(&node.0).copied().unwrap_or(f64::INFINITY),
                    _ => f64::INFINITY,
                };
                let fits = |node: &Node| waits > 0 && stay(*node) > 1.5 * waits as f64;
                let near = nodes.topology().neighbours(Node(at)).iter().copied();
                near.filter(fits)
                    .max_by(|&one, &other| stay(one).total_cmp(&stay(other)))?
                    .0
            }
        };
        self.victims += 1;
        let paid = &mut self.paid[usize::from(freed.is_some())];
        if paid.0 < self.old_hits.0 && !self.victims.is_multiple_of(16) {
            return None;
        }
        tried(paid);
        self.chances.insert(block, freed.is_some());
        Some(to)
    }

    fn exchange(&mut self, nodes: u16) {
        let all: u32 = self.served.values().sum();
        for node in 0..nodes {
            let served = f64::from(self.served.get(&node).copied().unwrap_or(0));
            let share = f64::from(all) / f64::from(nodes);
            let load = self.load.entry(node).or_insert(1.0);
            *load += (if all == 0 { 1.0 } else { served / share } - *load) / 16.0;
        }
        self.served.clear();
        self.told = self.age.clone();
    }
}

/// Makes room at a node for `incoming` by evicting a random copy. The policy and the twin have to
/// agree on what becomes of a last copy.
fn evict(
    bench: &mut Bench,
    twin: &mut Twin,
    at: Node,
    incoming: IncomingBlock,
    random: &mut Random,
) {
    let held = (0..BLOCKS)
        .map(Block)
        .filter(|&block| bench.nodes.holds(block, at));
    let held: Vec<Block> = held.collect();
    let block = held[random.below(held.len() as u64) as usize];
    if !bench.nodes.replicated(block) {
        let to = bench.policy.forward_to(block, at, incoming, &bench.nodes);
        let freed = incoming.from.filter(|_| incoming.migrates);
        let freed = freed.map(|node| node.0);
        let expected = twin.victim(block.0, at.0, freed, &bench.nodes);
        assert_eq!(to.map(|to| to.0), expected, "{block:?} from {at:?}");
        if let Some(to) = to.filter(|&to| bench.nodes.free(to) > 0) {
            bench.nodes.migrate(block, to, Slot(0));
            return;
        }
    }
    bench.nodes.remove(block, at);
}

#[test]
fn equal_to_the_twin_on_random_runs() {
    let (mut moves, mut copies) = (0, 0);
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let shapes = ["mesh:1x5", "torus:1x5", "mesh:2x2", "tree:2x2", "3"];
        let topology: Topology = shapes[random.below(5) as usize].parse().unwrap();
        let room = 1 + random.below(6) as u32;
        let mut bench = Bench::new("cost-benefit", topology, room);
        bench.now_ms = 100_000 * random.below(2);
        let mut twin = Twin {
            paid: [(1.0, 16.0); 2],
            old_hits: (0.0, 16.0),
            ..Twin::default()
        };
        let count = bench.nodes.len() as u64;
        let slow = [2, 50, 3000][random.below(3) as usize];
        for _ in 0..400 {
            let (block, by) = (
                random.below(BLOCKS.into()) as u32,
                random.below(count) as u16,
            );
            let by = if random.below(3) > 0 {
                block as u16 % count as u16
            } else {
                by
            };
            bench.now_ms += random.below(slow);
            bench.nodes.set_now_ns(bench.now_ms * 1_000_000);
            twin.now = bench.now_ms + 1;
            let access = Access {
                node: Node(by),
                ..Access::bare(0, Block(block))
            };
            let mut out = Vec::new();
            match bench.nodes.nearest(Block(block), Node(by)) {
                None => {
                    assert_eq!(bench.policy.place(&access, &bench.nodes), Node(by));
                    twin.place(block, by);
                    if bench.nodes.free(Node(by)) == 0 {
                        let incoming = IncomingBlock::FROM_STORAGE;
                        evict(&mut bench, &mut twin, Node(by), incoming, &mut random);
                    }
                    bench.nodes.insert(Block(block), Node(by), Slot(0));
                }
                Some(from) => {
                    bench
                        .policy
                        .on_access(&access, from, &bench.nodes, &mut out);
                    let expected = twin.access(block, by, from.0, &bench.nodes);
                    assert_eq!(out.first().copied(), expected, "seed {seed}");
                }
            }
            carry_out(&mut bench, &mut twin, &out, &mut random);
            moves += out
                .iter()
                .filter(|action| matches!(action, Action::Migrate { .. }))
                .count();
            copies += out.len();
            if random.below(4) == 0 {
                let mut drops = Vec::new();
                bench.policy.on_write(&access, &bench.nodes, &mut drops);
                *twin.writes.entry(block).or_default() += 1;
                carry_out(&mut bench, &mut twin, &drops, &mut random);
            }
            if random.below(10) == 0 {
                bench.exchange();
                twin.exchange(count as u16);
            }
            bench.policy.check(&bench.nodes);
            bench.nodes.check();
        }
    }
    assert!(moves > 300 && copies - moves > 300, "{moves} of {copies}");
}

fn carry_out(bench: &mut Bench, twin: &mut Twin, actions: &[Action], random: &mut Random) {
    for &action in actions {
        match action {
            Action::Drop { block, at } => {
                bench.nodes.remove(block, at);
            }
            Action::Migrate { block, to } if bench.nodes.holds(block, to) => {
                bench.nodes.promote(block, to);
            }
            Action::Migrate { block, to } | Action::Replicate { block, to } => {
                let from = bench.nodes.nearest(block, to);
                let moves = matches!(action, Action::Migrate { .. });
                if bench.nodes.free(to) == 0 {
                    let migrates = moves;
                    evict(bench, twin, to, IncomingBlock { from, migrates }, random);
                }
                if bench.nodes.free(to) == 0 {
                    continue;
                }
                if moves {
                    bench.nodes.migrate(block, to, Slot(0))
                } else {
                    bench.nodes.insert(block, to, Slot(0))
                }
            }
            Action::Promote { .. } => panic!("{action:?}"),
        }
    }
}
