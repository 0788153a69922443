//! The state of a run, and the effects of an access.

use hither_core::placement::{Action, ActionOutcome, Counters, MemoryPlacement, Nodes};
use hither_core::{Access, Block, Node, Op, Process};

use super::clocks::{Clocks, Waiting};
use super::costs::MemoryCosts;
use super::frames::Frames;
use super::network_cache::NetworkCaches;
use crate::placement::report::{PlacementOutcome, ProcessTotals};
use crate::placement::timeline::Timeline;
use crate::placement::{PlacementConfiguration, PlacementOptions};
use crate::references::References;

/// A run.
pub(super) struct Engine {
    pub(super) policy: Box<dyn MemoryPlacement>,
    pub(super) nodes: Nodes,
    pub(super) frames: Frames,
    /// By process if each has its own iterations; otherwise only the first is used.
    pub(super) counts: Vec<Counters>,
    pub(super) by_process: bool,
    /// The pages that each process touched first. Empty with one process.
    pub(super) touched: Vec<Vec<Block>>,
    pub(super) clocks: Clocks,
    pub(super) timeline: Timeline,
    pub(super) costs: MemoryCosts,
    pub(super) page_bytes: u32,
    /// Pages touched before, and pages written since they were last read from swap.
    pub(super) seen: Vec<bool>,
    pub(super) dirty: Vec<bool>,
    /// By page: the computation before each miss on it, besides `compute_ns`. Empty: none.
    think_ns: Vec<u32>,
    /// By page: the node that used it last. Empty if nobody asks.
    user: Vec<Node>,
    network_caches: Option<NetworkCaches>,
    /// Free frames of all nodes.
    pub(super) free: u64,
    /// References done.
    pub(super) done: u64,
    /// Time between epochs, if epochs come by time.
    pub(super) period_ns: Option<u64>,
    pub(super) next_epoch_ns: u64,
    pub(super) check: bool,
    pub(super) out: Vec<Action>,
    pub(super) running_actions: Vec<Action>,
    pub(super) outcomes: Vec<ActionOutcome>,
}

impl Engine {
    pub(super) fn new(
        policy: Box<dyn MemoryPlacement>,
        references: &impl References,
        configuration: &PlacementConfiguration,
        costs: &MemoryCosts,
        options: &PlacementOptions<'_>,
    ) -> Engine {
        let (nodes, blocks) = (configuration.topology.nodes(), references.blocks());
        let processes = references.processes();
        let unmarked = references.marks().is_empty() && options.period_ns > 0;
        let period_ns = configuration
            .spec
            .period_ns()
            .or(unmarked.then_some(options.period_ns));
        let by_process = processes > 1 && period_ns.is_none();
        let several = if processes > 1 { processes } else { 0 };
        let mut timeline = Timeline::new(references, nodes, options);
        timeline.processes = vec![ProcessTotals::default(); several];
        Engine {
            policy,
            nodes: Nodes::new(
                configuration.topology.clone(),
                configuration.capacity.clone(),
                blocks,
            ),
            frames: Frames::new(nodes, blocks),
            counts: (0..if by_process { processes } else { 1 })
                .map(|_| Counters::new(nodes, blocks))
                .collect(),
            by_process,
            touched: vec![Vec::new(); several],
            clocks: Clocks::new(references.threads(), nodes, costs),
            timeline,
            costs: costs.clone(),
            page_bytes: references.block_bytes(),
            seen: vec![false; blocks as usize],
            dirty: vec![false; blocks as usize],
            think_ns: think_ns(references, costs.reference_ns),
            user: vec![
                Node(0);
                if costs.remote_victims {
                    blocks as usize
                } else {
                    0
                }
            ],
            network_caches: NetworkCaches::new(nodes, blocks, references.block_bytes(), costs),
            free: configuration
                .capacity
                .iter()
                .map(|&frames| u64::from(frames))
                .sum(),
            done: 0,
            period_ns,
            next_epoch_ns: period_ns.unwrap_or(u64::MAX),
            check: options.check,
            out: Vec::new(),
            running_actions: Vec::new(),
            outcomes: Vec::new(),
        }
    }

    pub(super) fn drive(&mut self, accesses: &[Access]) {
        for access in accesses {
            self.access(access);
            self.done += 1;
            if self.clocks.now_ns() >= self.next_epoch_ns {
                self.period();
            }
            if self.check {
                self.walk();
            }
        }
    }

    #[inline]
    fn access(&mut self, access: &Access) {
        let Access {
            block,
            node,
            thread,
            count,
            ..
        } = *access;
        self.clocks.seen(access);
        self.nodes.set_now_ns(self.clocks.now_ns());
        if let Some(of) = self.timeline.processes.get_mut(access.process.index())
            && of.local + of.remote + of.misses == 0
        {
            of.start_ns = self.clocks.of_ns(access.process);
        }
        let holder = self.nodes.nearest(block, node);
        let (from, missed) = match holder {
            Some(from) => (from, 0),
            None => (self.fault(access), 1),
        };
        let latency_ns = u64::from(self.nodes.topology().latency_ns(node, from));
        let hits = u64::from(count) - missed.min(u64::from(count));
        let mut hit_ns = hits * latency_ns;
        // Of lines that the network cache has. They travel nowhere and load no memory.
        let mut near = 0;
        if let Some(caches) = &mut self.network_caches {
            if access.op == Op::Write {
                caches.written(block, node);
            }
            if from != node {
                near = caches.serve(block, node, hits);
                hit_ns -= near * latency_ns.saturating_sub(u64::from(self.costs.network_cache_ns));
            }
        }
        let totals = &mut self.timeline.totals;
        totals.accesses += hits + missed;
        totals.hit_ns += hit_ns;
        totals.miss_ns += missed * latency_ns;
        if from == node {
            totals.local += hits;
        } else {
            totals.remote += hits;
            totals.hops += (hits - near) * u64::from(self.nodes.topology().hops(node, from));
            totals.bytes_moved += (hits + missed - near) * u64::from(self.costs.line_bytes);
        }
        self.timeline.served(node, from, hits + missed);
        if let Some(of) = self.timeline.processes.get_mut(access.process.index()) {
            of.misses += missed;
            *(if from == node {
                &mut of.local
            } else {
                &mut of.remote
            }) += hits;
        }
        let think_ns = self.think_ns.get(block.index()).map_or(0, |&ns| ns);
        let by_process = &self.costs.process_compute_ns;
        let compute_ns = by_process.get(access.process.index());
        let compute_ns = *compute_ns.unwrap_or(&self.costs.compute_ns);
        let think_ns = u64::from(compute_ns) + u64::from(think_ns);
        let computed_ns = u64::from(count) * think_ns;
        self.clocks
            .pass(thread, hit_ns + missed * latency_ns + computed_ns);
        self.clocks.served(thread, from, count - near as u32);
        let counts = if self.by_process {
            access.process.index()
        } else {
            0
        };
        self.counts[counts].add(block, node, count);
        self.frames.touch(block);
        if let Some(user) = self.user.get_mut(block.index()) {
            *user = node;
        }
        if holder.is_some() {
            self.policy
                .on_access(access, from, &self.nodes, &mut self.out);
        }
        if access.op == Op::Write {
            self.written(access, from);
        }
        let watched_ns = self.policy.take_overhead_ns();
        if watched_ns > 0 {
            self.overhead(watched_ns, watched_ns, Waiting::Thread(thread));
        }
        if !self.out.is_empty() {
            self.act(Waiting::Thread(thread));
        }
    }

    /// A write served by `served` goes to every other copy that the policy keeps.
    fn written(&mut self, access: &Access, served: Node) {
        self.dirty[access.block.index()] = true;
        self.policy.on_write(access, &self.nodes, &mut self.out);
        if !self.nodes.replicated(access.block) {
            return;
        }
        if !self.out.is_empty() {
            let before = self.copies(access.block);
            self.act(Waiting::Thread(access.thread));
            let after = self.copies(access.block);
            self.timeline.totals.invalidations += before.saturating_sub(after);
        }
        let topology = self.nodes.topology();
        let others = self.nodes.copies(access.block).map(|(node, _)| node);
        let (mut ns, mut bytes) = (0, 0);
        for other in others.filter(|&node| node != served) {
            ns += u64::from(access.count) * u64::from(topology.latency_ns(access.node, other));
            bytes += u64::from(access.count) * u64::from(self.costs.line_bytes);
        }
        self.timeline.totals.bytes_moved += bytes;
        self.timeline.totals.hit_ns += ns;
        self.clocks.pass(access.thread, ns);
    }

    fn copies(&self, block: Block) -> u64 {
        self.nodes.copies(block).count() as u64
    }

    /// Gives a page a frame. Returns its node.
    fn fault(&mut self, access: &Access) -> Node {
        let wanted = self.policy.place(access, &self.nodes);
        let at = match self.nodes.free(wanted) {
            0 if self.free == 0 => {
                self.reclaim(wanted);
                wanted
            }
            0 => {
                let mut near = self.nodes.topology().nearest(wanted).iter().copied();
                near.find(|&node| self.nodes.free(node) > 0)
                    .expect("a node has a free frame")
            }
            _ => wanted,
        };
        self.insert(access.block, at);
        if let Some(touched) = self.touched.get_mut(access.process.index()) {
            touched.push(access.block);
        }
        let again = std::mem::replace(&mut self.seen[access.block.index()], true);
        let fault_ns = u64::from(if again {
            self.costs.refault_ns
        } else {
            self.costs.fault_ns
        });
        self.timeline.totals.misses += 1;
        self.timeline.totals.miss_ns += fault_ns;
        self.clocks.pass(access.thread, fault_ns);
        at
    }

    pub(super) fn insert(&mut self, block: Block, at: Node) {
        let slot = self.frames.take(at, block);
        self.nodes.insert(block, at, slot);
        self.free -= 1;
    }

    pub(super) fn remove(&mut self, block: Block, at: Node) {
        let slot = self.nodes.remove(block, at);
        self.frames.release(at, slot);
        self.free += 1;
        self.policy
            .on_removed(block, at, &self.nodes, &mut self.out);
    }

    /// Frees a frame of a full node. The clock chooses the page.
    fn reclaim(&mut self, at: Node) {
        let victim = if self.costs.remote_victims {
            let user = &self.user;
            self.frames
                .victim_among_equals(at, |block| user[block.index()] != at)
        } else {
            self.frames.victim(at)
        };
        self.timeline.totals.evictions += 1;
        let last = !self.nodes.replicated(victim);
        if last && std::mem::take(&mut self.dirty[victim.index()]) {
            self.timeline.totals.write_backs += 1;
        }
        self.remove(victim, at);
    }

    /// Panics if an invariant does not hold.
    fn walk(&self) {
        self.nodes.check();
        self.policy.check(&self.nodes);
        let blocks = (0..self.nodes.blocks()).map(Block);
        let copies = |block| {
            self.nodes
                .copies(block)
                .map(move |(node, slot)| (block, node, slot))
        };
        self.frames.check(blocks.flat_map(copies));
        let free = self
            .nodes
            .all()
            .map(|node| u64::from(self.nodes.free(node)));
        assert_eq!(free.sum::<u64>(), self.free, "free frames");
        let totals = &self.timeline.totals;
        let kinds = totals.local + totals.remote + totals.misses;
        assert_eq!(kinds, totals.accesses, "local, remote or a miss");
    }

    pub(super) fn outcome(mut self, configuration: &PlacementConfiguration) -> PlacementOutcome {
        for (number, of) in (0..).zip(&mut self.timeline.processes) {
            if of.end_ns == 0 {
                of.end_ns = self.clocks.of_ns(Process(number));
            }
        }
        let mut statistics = self.policy.statistics();
        if let Some(caches) = &self.network_caches {
            statistics.push(("network_cache_hits", caches.hits()));
        }
        let end_ns = self.clocks.now_ns();
        let costs = serde_json::to_value(&self.costs).expect("numbers alone");
        self.timeline
            .outcome(configuration, costs, end_ns, statistics)
    }
}

/// By block: the time of the references that lie between two misses on it, by its page's miss rate
/// over the whole trace.
fn think_ns(references: &impl References, reference_ns: u32) -> Vec<u32> {
    if reference_ns == 0 {
        return Vec::new();
    }
    let block_bytes = u64::from(references.block_bytes());
    let bytes = references.object_bytes();
    let mut of_object = vec![None; bytes.len()];
    for region in references.region_references() {
        if let Some(of) = of_object.get_mut(region.object as usize) {
            *of = Some(region);
        }
    }
    let think_ns = |block: Block| {
        let (object, index) = references.place_of(block);
        let region = (*of_object.get(object.index())?)?;
        // Blocks need not be of the size of the pages that were counted.
        let blocks = bytes[object.index()].div_ceil(block_bytes).max(1);
        let pages = region.references.len() as u64;
        let first = u64::from(index) * pages / blocks;
        let end = (u64::from(index) + 1) * pages / blocks;
        let pages = first as usize..end.max(first + 1) as usize;
        let referenced = region.references.get(pages.clone())?.iter().sum::<u64>();
        let missed = region.misses.get(pages)?.iter().sum::<u64>().max(1);
        let ns = u128::from(referenced) * u128::from(reference_ns) / u128::from(missed);
        Some(ns.min(u128::from(u32::MAX)) as u32)
    };
    let blocks = (0..references.blocks()).map(Block);
    blocks.map(|block| think_ns(block).unwrap_or(0)).collect()
}
