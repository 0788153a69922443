//! The machine of the file engine: a cache on each node, ranked by a replacement policy and filled
//! and emptied by a placement; and clocks, links and disks that give the time of each access.
//!
//! Every node is a processor that waits for each of its accesses (a closed loop). Its clock is the
//! start of its next access. The actions of a placement run in the background from the end of the
//! access on: they delay only those who then find a link or a disk busy.

use std::sync::Arc;

use hither_core::placement::{
    Action, ActionOutcome, Counters, Epoch, EpochKind, FilePlacement, IncomingBlock, Mark, Nodes,
    PlacementSettings, ReplicaLayer,
};
use hither_core::registry;
use hither_core::{Access, Block, Node, Op, Process, ReplacementPolicy, Slot, Topology};

use super::costs::FileCosts;
use super::directory::Directory;
use super::disks::Disks;
use super::network::Network;
use crate::caches::Error;
use crate::placement::timeline::Timeline;
use crate::placement::{PlacementConfiguration, PlacementOptions, PlacementOutcome, Totals};
use crate::references::References;

/// File caches on the nodes of a topology, above storage.
pub(super) struct FileEngine {
    pub(super) topology: Arc<Topology>,
    pub(super) nodes: Nodes,
    pub(super) placement: Box<dyn FilePlacement>,
    pub(super) layer: ReplicaLayer,
    pub(super) node_caches: Vec<NodeCache>,
    pub(super) network: Network,
    pub(super) disks: Disks,
    pub(super) costs: FileCosts,
    pub(super) directory: Directory,
    /// By node: its hits since its last report, and when the next one is due.
    pub(super) reports: Vec<(Vec<Access>, u64)>,
    /// When each node makes its next access.
    pub(super) clocks: Vec<u64>,
    /// Whether a block differs from storage.
    pub(super) dirty: Vec<bool>,
    /// The last access to each block, if the replacement policy needs more of a forwarded block
    /// than its number.
    pub(super) remembered: Vec<Access>,
    pub(super) block_bytes: u64,
    pub(super) actions: Vec<Action>,
    pub(super) outcomes: Vec<ActionOutcome>,
    /// The cascade in which each node last gave up a block.
    pub(super) evicted_in_cascade: Vec<u32>,
    pub(super) cascade: u32,
    /// The process of each node's last access.
    pub(super) processes: Vec<Process>,
    pub(super) threads: usize,
    /// `None`: see [`epoch`](FileEngine::epoch).
    pub(super) counts: Counters,
    /// Whether epochs come by time, instead of the program's iterations.
    pub(super) periodic: bool,
    pub(super) period_ns: u64,
    pub(super) next_period_ns: u64,
    pub(super) timeline: Timeline,
}

/// The cache of one node.
pub(super) struct NodeCache {
    pub(super) replacement: Box<dyn ReplacementPolicy>,
    /// By slot. Its length is the highest slot used plus 1.
    pub(super) block_of: Vec<u32>,
    pub(super) free: Vec<u32>,
    /// How many of its copies the replacement policy ranks.
    pub(super) ranked: u32,
    /// The replacement policy gave up a slot and expects the block that fills it. It is told of
    /// that block even if it does not rank it.
    pub(super) promised: bool,
}

pub(super) const EMPTY_SLOT: u32 = u32::MAX;

/// The most rounds of actions in answer to outcomes. Further actions are refused, so that no policy
/// occupies the engine forever.
const ACTION_ROUNDS_MAX: usize = 8;

/// Accesses looked up before the first of them is served.
const PREFETCH_ACCESSES: usize = 32;

impl FileEngine {
    /// Empty caches, before the first reference.
    pub(super) fn new(
        references: &impl References,
        configuration: &PlacementConfiguration,
        costs: &FileCosts,
        options: &PlacementOptions<'_>,
    ) -> Result<FileEngine, Error> {
        let topology = Arc::clone(&configuration.topology);
        let (blocks, block_bytes) = (references.blocks(), references.block_bytes());
        let object_bytes = references.object_bytes();
        let capacity = &configuration.capacity;
        let placement = configuration.spec.build_files(&PlacementSettings {
            topology: Arc::clone(&topology),
            capacity,
            blocks,
            block_bytes,
            totals: None,
            initial: None,
            sampled: false,
        });
        let placement = placement.expect("checked to place files");
        let replacement = &configuration.replacement;
        // A cache larger than the trace's footprint never evicts. Its replacement policy gets only
        // the capacity that it needs.
        let node_cache = |&room: &u32| NodeCache {
            replacement: replacement
                .build(&registry::ReplacementSettings::new(room.min(blocks.max(1)))),
            block_of: Vec::new(),
            free: Vec::new(),
            ranked: 0,
            promised: false,
        };
        let disks = costs.disk_nodes(&topology).map_err(|disk| Error::NoNode {
            topology: topology.name().to_owned(),
            node: disk,
        })?;
        let in_blocks = |bytes: &u64| bytes.div_ceil(u64::from(block_bytes)) as u32;
        let object_blocks: Vec<u32> = object_bytes.iter().map(in_blocks).collect();
        let places = (0..blocks).map(|block| references.place_of(Block(block)));
        let remembered = if replacement.entry().needs.nothing() {
            0
        } else {
            blocks
        };
        let by_marks = !references.marks().is_empty();
        let period_ns = match configuration.spec.period_ns() {
            Some(period_ns) => period_ns,
            None if by_marks => u64::MAX,
            None => options.period_ns,
        };
        let nodes = topology.nodes();
        Ok(FileEngine {
            layer: configuration.spec.entry().replica_layer(),
            periodic: configuration.spec.period_ns().is_some(),
            placement,
            node_caches: capacity.iter().map(node_cache).collect(),
            network: Network::new(&topology, costs.hop_ns, costs.contention),
            disks: Disks::new(costs, &disks, places, &object_blocks),
            directory: Directory::new(&topology, costs, blocks),
            reports: vec![(Vec::new(), costs.report_ns); nodes],
            costs: costs.clone(),
            clocks: vec![0; nodes],
            dirty: vec![false; blocks as usize],
            remembered: (0..remembered)
                .map(|block| Access::bare(0, Block(block)))
                .collect(),
            block_bytes: block_bytes.into(),
            actions: Vec::new(),
            outcomes: Vec::new(),
            evicted_in_cascade: vec![0; nodes],
            cascade: 0,
            processes: vec![Process(0); nodes],
            threads: references.threads(),
            counts: Counters::new(0, 0),
            period_ns,
            next_period_ns: period_ns,
            timeline: Timeline::new(references, nodes, options),
            nodes: Nodes::new(Arc::clone(&topology), capacity.clone(), blocks),
            topology,
        })
    }

    /// The reference before which [`reached`](FileEngine::reached) must be called next.
    pub(super) fn stop(&self) -> u64 {
        self.timeline.stop()
    }

    /// Updates the report when the run has reached `reference`.
    pub(super) fn reached(&mut self, reference: u64) {
        let now_ns = self.now_ns();
        let used = |node| self.nodes.used(node);
        self.timeline.reached(reference, now_ns, used);
    }

    /// The report, after the last [`reached`](FileEngine::reached).
    pub(super) fn report(self, configuration: &PlacementConfiguration) -> PlacementOutcome {
        let now_ns = self.now_ns();
        let costs = serde_json::to_value(&self.costs).expect("numbers alone");
        let statistics = self.placement.statistics();
        self.timeline
            .outcome(configuration, costs, now_ns, statistics)
    }

    /// When the last node is done.
    fn now_ns(&self) -> u64 {
        self.clocks.iter().copied().max().unwrap_or(0)
    }

    /// The nodes of a process (those of its last accesses) wait for their slowest one.
    pub(super) fn mark(&mut self, mark: Mark) {
        let of_process = |node: &usize| self.processes[*node] == mark.process;
        let nodes = || (0..self.clocks.len()).filter(of_process);
        let end_ns = nodes().map(|node| self.clocks[node]).max();
        let waiting: Vec<usize> = nodes().collect();
        for node in waiting {
            self.clocks[node] = end_ns.expect("a node waits");
        }
        if mark.kind == EpochKind::Iteration {
            let now_ns = self.now_ns();
            let used = |node| self.nodes.used(node);
            self.timeline.iteration(mark.reference, now_ns, used);
        }
        if !self.periodic || mark.kind == EpochKind::Construct {
            self.epoch(mark.kind, Some(mark.process), mark.reference);
        }
    }

    /// Tells the placement that an iteration, a construct or a period ended. All counts are zero,
    /// since placements of files count for themselves.
    fn epoch(&mut self, kind: EpochKind, process: Option<Process>, reference: u64) {
        let epoch = Epoch {
            kind,
            process,
            counts: &self.counts,
            thread_migrations: &[],
            active_threads: self.threads,
        };
        self.placement
            .on_epoch(&epoch, &self.nodes, &mut self.actions);
        let now_ns = self.nodes.now_ns();
        self.act(&Access::bare(reference, Block(0)), None, now_ns);
    }

    /// Makes accesses, one after the other.
    pub(super) fn drive(&mut self, batch: &[Access]) {
        for few in batch.chunks(PREFETCH_ACCESSES) {
            self.nodes.prefetch(few);
            self.placement.prefetch(few);
            few.iter().for_each(|access| self.access(access));
        }
    }

    #[inline]
    fn access(&mut self, access: &Access) {
        let (block, by) = (access.block, access.node);
        let start_ns = self.clocks[by.index()];
        if start_ns > self.nodes.now_ns() {
            self.nodes.set_now_ns(start_ns);
            if start_ns >= self.next_period_ns {
                self.next_period_ns = start_ns.saturating_add(self.period_ns);
                self.epoch(EpochKind::Period, None, access.tick);
            }
        }
        self.processes[by.index()] = access.process;
        if let Some(remembered) = self.remembered.get_mut(block.index()) {
            *remembered = *access;
        }
        self.timeline.totals.accesses += 1;
        let holder = self.nodes.nearest_copy(block, by);
        let missed = holder.is_none();
        let (held_at, mut end_ns) = match holder {
            Some((from, slot)) => {
                let end_ns = if from == by {
                    self.timeline.totals.local += 1;
                    start_ns + self.costs.cache_ns
                } else {
                    self.remote(access, from, start_ns)
                };
                self.timeline.totals.hit_ns += end_ns - start_ns;
                if self.ranks(block, from) {
                    self.node_caches[from.index()].replacement.hit(slot, access);
                }
                self.timeline.served(by, from, 1);
                if self.costs.report_ns == 0 {
                    self.placement
                        .on_access(access, from, &self.nodes, &mut self.actions);
                    self.act(access, Some(from), end_ns);
                } else {
                    self.report_later(access, end_ns);
                }
                (from, end_ns)
            }
            None => {
                let (at, end_ns) = self.miss(access, start_ns);
                self.act(access, None, end_ns);
                self.timeline.totals.misses += 1;
                self.timeline.totals.miss_ns += end_ns - start_ns;
                self.timeline.served(by, at, 1);
                (at, end_ns)
            }
        };
        if access.op == Op::Write {
            let coherent_ns = self.write(access, held_at, end_ns);
            let totals = &mut self.timeline.totals;
            if missed {
                totals.miss_ns += coherent_ns - end_ns
            } else {
                totals.hit_ns += coherent_ns - end_ns
            }
            end_ns = coherent_ns;
        }
        self.clocks[by.index()] = end_ns + self.costs.compute_ns;
    }

    /// Adds a hit to the next report of its node. Sends the report if it is due. The messages are
    /// not modelled: they are few, and nobody waits for them.
    fn report_later(&mut self, access: &Access, now_ns: u64) {
        let (hits, due_ns) = &mut self.reports[access.node.index()];
        hits.push(*access);
        if now_ns < *due_ns {
            return;
        }
        *due_ns = now_ns + self.costs.report_ns;
        let mut hits = std::mem::take(hits);
        for hit in &hits {
            // What has left the caches in the meantime has nothing to place.
            if let Some(from) = self.nodes.nearest(hit.block, hit.node) {
                self.placement
                    .on_access(hit, from, &self.nodes, &mut self.actions);
                self.act(hit, None, now_ns);
            }
        }
        hits.clear();
        self.reports[access.node.index()].0 = hits;
    }

    /// Serves an access from another node's copy: the lookup, then the way of the data.
    fn remote(&mut self, access: &Access, from: Node, start_ns: u64) -> u64 {
        let by = access.node;
        let cache_ns = self.costs.cache_ns;
        let lookup = self
            .directory
            .found(&self.topology, &self.costs, access, from);
        self.timeline.totals.remote += 1;
        self.timeline.totals.hops += u64::from(self.topology.hops(by, from));
        self.timeline.totals.lookup_hops += lookup.hops;
        self.timeline.totals.bytes_moved += self.block_bytes;
        let asked_ns = start_ns + lookup.ns;
        match access.op {
            Op::Read | Op::Map => self
                .network
                .send(&self.topology, from, by, asked_ns + cache_ns),
            Op::Write | Op::Delete => {
                self.network.send(&self.topology, by, from, asked_ns) + cache_ns
            }
        }
    }

    /// Serves an access from storage, since no node holds the block. Writes also read it, as they
    /// may be partial. Returns the node that cached it (the accessing node if none could) and the
    /// end of the access.
    fn miss(&mut self, access: &Access, start_ns: u64) -> (Node, u64) {
        let (block, by) = (access.block, access.node);
        let disk_at = self.disks.node(block);
        let failed_ns = self
            .directory
            .failed_ns(&self.topology, &self.costs, access, disk_at);
        let asked_ns = start_ns + failed_ns;
        let read_ns = self.disks.transfer(block, asked_ns);
        let end_ns = self.network.send(&self.topology, disk_at, by, read_ns) + self.costs.cache_ns;

        let wanted = self.placement.place(access, &self.nodes);
        self.cascade += 1;
        let incoming = IncomingBlock::FROM_STORAGE;
        for nth in 0..self.nodes.len() {
            let at = self.topology.nearest(wanted)[nth];
            if let Some(forwarded) = self.make_room(at, block, incoming, access, end_ns) {
                self.add(block, at, access);
                if at != by {
                    self.background(disk_at, at, read_ns);
                }
                self.forward(forwarded, None, access, end_ns);
                return (at, end_ns);
            }
        }
        (by, end_ns)
    }

    /// Updates the other copies after a write at `at`. Returns when the writer continues.
    fn write(&mut self, access: &Access, at: Node, end_ns: u64) -> u64 {
        let block = access.block;
        if self.nodes.home(block).is_none() {
            // No cache took the block.
            self.write_back(block, access.node, end_ns);
            return end_ns;
        }
        self.dirty[block.index()] = true;
        self.placement
            .on_write(access, &self.nodes, &mut self.actions);
        let dropped = self.actions.iter().filter_map(|action| match action {
            Action::Drop { block: of, at } if *of == block => {
                Some(self.topology.hops(access.node, *at))
            }
            _ => None,
        });
        let (count, farthest) = dropped.fold((0, 0), |(count, farthest), hops| {
            (count + 1, hops.max(farthest))
        });
        self.timeline.totals.invalidations += count;
        let mut done_ns = end_ns + 2 * self.costs.message_hop_ns * u64::from(farthest);
        self.act(access, None, end_ns);
        if self.nodes.replicated(block) {
            for (copy, _) in self.nodes.copies(block).filter(|(copy, _)| *copy != at) {
                let there_ns =
                    self.network.send(&self.topology, at, copy, end_ns) + self.costs.cache_ns;
                self.timeline.totals.bytes_moved += self.block_bytes;
                done_ns = done_ns.max(there_ns);
            }
        }
        done_ns
    }

    /// Carries out the actions of the placement and reports their outcomes. `served` is the node
    /// that just sent the block of a read to the accessing node, so it need not be sent again.
    #[inline]
    fn act(&mut self, access: &Access, served: Option<Node>, at_ns: u64) {
        if !self.actions.is_empty() {
            self.act_on(access, served, at_ns);
        }
    }

    fn act_on(&mut self, access: &Access, served: Option<Node>, at_ns: u64) {
        let mut served = served;
        for _ in 0..ACTION_ROUNDS_MAX {
            let actions = std::mem::take(&mut self.actions);
            let mut outcomes = std::mem::take(&mut self.outcomes);
            outcomes.clear();
            for &action in &actions {
                let done = self.act_once(action, access, served, at_ns);
                outcomes.push(ActionOutcome { action, done });
            }
            self.placement.on_outcomes(&outcomes, &self.nodes);
            self.outcomes = outcomes;
            if self.actions.is_empty() {
                return;
            }
            served = None;
        }
        let refuse = |action| ActionOutcome {
            action,
            done: false,
        };
        let refused: Vec<ActionOutcome> = self.actions.drain(..).map(refuse).collect();
        self.placement.on_outcomes(&refused, &self.nodes);
    }

    fn act_once(
        &mut self,
        action: Action,
        access: &Access,
        served: Option<Node>,
        at_ns: u64,
    ) -> bool {
        let sent = |block: Block, to: Node| {
            let here = block == access.block && to == access.node;
            here && access.op != Op::Write && served.is_some()
        };
        match action {
            Action::Migrate { block, to } => {
                let done = self.migrate(block, to, sent(block, to), access, at_ns);
                self.timeline.totals.refused += u64::from(!done);
                done
            }
            Action::Replicate { block, to } => {
                let done = self.replicate(block, to, sent(block, to), access, at_ns);
                self.timeline.totals.refused += u64::from(!done);
                done
            }
            Action::Drop { block, at } => {
                let holds = self.nodes.holds(block, at);
                if holds {
                    self.leave(block, at, at_ns);
                }
                holds
            }
            Action::Promote { block, at } => {
                let replica = self.nodes.holds(block, at) && self.nodes.home(block) != Some(at);
                if replica {
                    self.promote(block, at, access);
                }
                replica
            }
        }
    }

    fn migrate(&mut self, block: Block, to: Node, sent: bool, access: &Access, at_ns: u64) -> bool {
        let Some(home) = self.nodes.home(block).filter(|&home| home != to) else {
            return false;
        };
        if self.nodes.holds(block, to) {
            self.promote(block, to, access);
            self.detach(block, home, false);
        } else {
            self.cascade += 1;
            let incoming = IncomingBlock {
                from: Some(home),
                migrates: true,
            };
            let Some(forwarded) = self.make_room(to, block, incoming, access, at_ns) else {
                return false;
            };
            // Making room may have evicted only other blocks, and no copy of this one.
            let slot = self.node_caches[to.index()].take(block);
            let left = self.nodes.slot(block, home).expect("the original is there");
            self.nodes.migrate(block, to, slot);
            self.node_caches[home.index()].replacement.removed(left);
            self.put_away(home, left, true);
            let access = self.known(block, access);
            self.ranked(to).moved_in(slot, &access);
            if !sent {
                self.background(home, to, at_ns);
            }
            self.forward(forwarded, Some(home), &access, at_ns);
        }
        self.timeline.totals.migrations += 1;
        self.note(access, block, home, to, false);
        true
    }

    fn replicate(
        &mut self,
        block: Block,
        to: Node,
        sent: bool,
        access: &Access,
        at_ns: u64,
    ) -> bool {
        let from = self.nodes.nearest(block, to).filter(|&from| from != to);
        let Some(from) = from else {
            return false;
        };
        self.cascade += 1;
        let incoming = IncomingBlock {
            from: Some(from),
            migrates: false,
        };
        let Some(forwarded) = self.make_room(to, block, incoming, access, at_ns) else {
            return false;
        };
        self.add(block, to, access);
        if !sent {
            self.background(from, to, at_ns);
        }
        self.forward(forwarded, Some(from), access, at_ns);
        self.timeline.totals.replications += 1;
        self.note(access, block, from, to, true);
        true
    }

    /// Makes the replica at `at` the original.
    fn promote(&mut self, block: Block, at: Node, access: &Access) {
        let home = self.nodes.home(block).expect("a replica has an original");
        if self.layer == ReplicaLayer::Separate {
            let slot = |node| self.nodes.slot(block, node).expect("it holds the block");
            let (old, new) = (slot(home), slot(at));
            self.node_caches[home.index()].replacement.removed(old);
            self.node_caches[home.index()].ranked -= 1;
            self.resized(home);
            let access = self.known(block, access);
            self.list(at, new, &access);
        }
        self.nodes.promote(block, at);
    }

    /// Panics if an invariant does not hold.
    pub(super) fn check(&self) {
        self.nodes.check();
        for (node_cache, at) in self.node_caches.iter().zip(self.nodes.all()) {
            let (mut held, mut ranked) = (0, 0);
            for (slot, &block) in node_cache.block_of.iter().enumerate() {
                if block == EMPTY_SLOT {
                    assert!(node_cache.free.contains(&(slot as u32)), "{slot} is lost");
                    continue;
                }
                held += 1;
                ranked += u32::from(self.ranks(Block(block), at));
                let known = self.nodes.slot(Block(block), at);
                assert_eq!(known, Some(Slot(slot as u32)), "block {block} at {at:?}");
            }
            assert_eq!(held, self.nodes.used(at), "copies at {at:?}");
            assert_eq!(ranked, node_cache.ranked, "ranked copies at {at:?}");
            node_cache.replacement.check(ranked as usize);
        }
        for block in (0..self.nodes.blocks()).map(Block) {
            let cached = self.nodes.home(block).is_some();
            assert!(
                cached || !self.dirty[block.index()],
                "{block:?} lost a write"
            );
        }
        let Totals {
            accesses,
            local,
            remote,
            misses,
            ..
        } = self.timeline.totals;
        assert_eq!(accesses, local + remote + misses);
        self.placement.check(&self.nodes);
    }
}

impl NodeCache {
    /// Takes a free slot for the block.
    pub(super) fn take(&mut self, block: Block) -> Slot {
        match self.free.pop() {
            Some(slot) => {
                self.block_of[slot as usize] = block.0;
                Slot(slot)
            }
            None => {
                self.block_of.push(block.0);
                Slot(self.block_of.len() as u32 - 1)
            }
        }
    }
}
