//! The policy and what it is told of the machine: which page is where, as far as decisions know,
//! and how full nodes are.

use std::sync::Arc;

use hither_core::placement::{
    Action, ActionOutcome, Epoch, MemoryPlacement, Nodes, PlacementSettings, Region, RegionTier,
};
use hither_core::{Access, Block, NEVER, Node, Object, Op, Process, Site, Slot, Thread};

use super::Config;
use crate::error::{Error, Result};

/// The policy, and the truth that it reads.
pub(crate) struct PlacementHost {
    placement: Box<dyn MemoryPlacement>,
    nodes: Nodes,
    /// Of the frames in use on each node, how many hold pages that were placed.
    held: Vec<u32>,
    /// The kernel's number of each node.
    kernel: Vec<u32>,
    node_of_cpu: Vec<Node>,
    accesses: u64,
    /// Whether the policy acts on access counts, and the period that it acts by.
    counts: bool,
    period_ns: Option<u64>,
}

/// A touch of a page, as the controller knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touch {
    pub(crate) block: Block,
    pub(crate) object: Object,
    pub(crate) index: u32,
    pub(crate) process: Process,
    pub(crate) thread: Thread,
    pub(crate) node: Node,
}

impl PlacementHost {
    pub(crate) fn new(config: &Config) -> Result<PlacementHost> {
        let topology = Arc::new(config.topology()?);
        let capacity: Vec<u32> = config.nodes.iter().map(|node| node.frames).collect();
        let (policy, initial) = config.policy()?;
        let placement = policy.build_memory(&PlacementSettings {
            topology: Arc::clone(&topology),
            capacity: &capacity,
            blocks: 0,
            block_bytes: config.page_bytes as u32,
            totals: None,
            initial,
            sampled: true,
        });
        let Some(placement) = placement else {
            return Err(Error::Log(format!("{policy}: not for memory")));
        };
        let cpus = config.nodes.iter().flat_map(|node| &node.cpus);
        let mut node_of_cpu = vec![Node(0); cpus.max().map_or(0, |&cpu| cpu as usize + 1)];
        for (number, node) in (0..).map(Node).zip(&config.nodes) {
            for &cpu in &node.cpus {
                node_of_cpu[cpu as usize] = number;
            }
        }
        Ok(PlacementHost {
            placement,
            held: vec![0; capacity.len()],
            nodes: Nodes::new(topology, capacity, 0),
            kernel: config.nodes.iter().map(|node| node.node).collect(),
            node_of_cpu,
            accesses: 0,
            counts: policy.entry().epochs.counts,
            period_ns: policy.period_ns(),
        })
    }

    pub(crate) fn set_now_ns(&mut self, now_ns: u64) {
        self.nodes.set_now_ns(now_ns);
    }

    /// The node of a CPU; the first for one that no node claimed at the start.
    pub(crate) fn node_of_cpu(&self, cpu: u32) -> Node {
        self.node_of_cpu
            .get(cpu as usize)
            .copied()
            .unwrap_or_default()
    }

    pub(crate) fn kernel_number(&self, node: Node) -> u32 {
        self.kernel[node.index()]
    }

    /// A node's bit in a mask of kernel numbers; none for a number past the mask's end, where no
    /// order can send a page.
    pub(crate) fn bit(&self, node: Node) -> u64 {
        1_u64.checked_shl(self.kernel_number(node)).unwrap_or(0)
    }

    /// Blocks are numbered below `blocks`; grown in steps of doubling, since the policy's tables
    /// move when they grow.
    pub(crate) fn grow(&mut self, blocks: u32) {
        if blocks > self.nodes.blocks() {
            let blocks = blocks.max(self.nodes.blocks().saturating_mul(2));
            self.nodes.grow(blocks);
            self.placement.grow(blocks);
        }
    }

    pub(crate) fn allocated(&mut self, region: &Region) {
        self.placement.on_region_allocated(region);
    }

    pub(crate) fn freed(&mut self, object: Object) {
        self.placement.on_region_freed(object);
    }

    pub(crate) fn ended(&mut self, process: Process) {
        self.placement.on_process_exit(process);
    }

    pub(crate) fn class(&self, object: Object) -> Option<RegionTier> {
        self.placement.region_tier(object)
    }

    /// Where a page was placed.
    pub(crate) fn home(&self, block: Block) -> Option<Node> {
        self.nodes.home(block)
    }

    /// Has the policy place a page that is nowhere, on the nearest node to its choice that has
    /// room; `None`: nowhere.
    pub(crate) fn place(&mut self, touch: Touch) -> Option<Node> {
        let access = self.access(touch);
        let wanted = self.placement.place(&access, &self.nodes);
        let nearest = self.nodes.topology().nearest(wanted);
        let Some(&node) = nearest.iter().find(|&&node| self.nodes.free(node) > 0) else {
            // It is nowhere, and may be placed anew.
            self.placement
                .on_removed(touch.block, wanted, &self.nodes, &mut Vec::new());
            return None;
        };
        self.nodes.insert(touch.block, node, Slot(0));
        self.held[node.index()] += 1;
        Some(node)
    }

    fn access(&mut self, touch: Touch) -> Access {
        self.accesses += 1;
        Access {
            tick: self.accesses - 1,
            next: NEVER,
            block: touch.block,
            object: touch.object,
            index: touch.index,
            site: Site(0),
            thread: touch.thread,
            process: touch.process,
            op: Op::Write,
            node: touch.node,
            count: 1,
        }
    }

    /// A page is gone.
    pub(crate) fn leave(&mut self, block: Block) {
        let Some(node) = self.nodes.home(block) else {
            return;
        };
        self.nodes.remove(block, node);
        self.held[node.index()] -= 1;
        // Policies that can follow a live program act when pages are placed, and not here.
        self.placement
            .on_removed(block, node, &self.nodes, &mut Vec::new());
    }

    /// A page was found on a node: the policy is told of it as of one that is placed, and the
    /// kernel's word holds. Whether it is known to be on another than before.
    pub(crate) fn found(&mut self, touch: Touch) -> bool {
        let Touch { block, node, .. } = touch;
        match self.nodes.home(block) {
            Some(home) if home == node => false,
            Some(_) => self.relocate(block, node),
            None => {
                if self.has_room(node) {
                    let access = self.access(touch);
                    self.placement.place(&access, &self.nodes);
                    self.nodes.insert(block, node, Slot(0));
                    self.held[node.index()] += 1;
                }
                false
            }
        }
    }

    /// Whether a page that is known to be on a node finds room there: what others use is known a
    /// moment late only.
    fn has_room(&mut self, node: Node) -> bool {
        if self.nodes.free(node) == 0 {
            let others = self.nodes.used(node) - self.held[node.index()];
            self.nodes.set_others(node, others.saturating_sub(1));
        }
        self.nodes.free(node) > 0
    }

    /// A page is on another node now; whether there was room for it.
    pub(crate) fn relocate(&mut self, block: Block, to: Node) -> bool {
        let Some(from) = self.nodes.home(block) else {
            return false;
        };
        let moves = from != to && self.has_room(to);
        if moves {
            self.nodes.migrate(block, to, Slot(0));
            self.held[from.index()] -= 1;
            self.held[to.index()] += 1;
        }
        moves
    }

    pub(crate) fn free(&self, node: Node) -> u32 {
        self.nodes.free(node)
    }

    pub(crate) fn blocks(&self) -> u32 {
        self.nodes.blocks()
    }

    pub(crate) fn nodes(&self) -> usize {
        self.kernel.len()
    }

    /// The node of the kernel's number.
    pub(crate) fn node_of_kernel(&self, number: u32) -> Option<Node> {
        let at = self.kernel.iter().position(|&kernel| kernel == number)?;
        Some(Node(at as u16))
    }

    pub(crate) fn latency_ns(&self, from: Node, to: Node) -> u32 {
        self.nodes.topology().latency_ns(from, to)
    }

    pub(crate) fn counts(&self) -> bool {
        self.counts
    }

    pub(crate) fn period_ns(&self) -> Option<u64> {
        self.period_ns
    }

    pub(crate) fn watches(&self, object: Object) -> bool {
        self.placement.needs_first_faults(object)
    }

    pub(crate) fn set_migration_ns(&mut self, migration_ns: u64) {
        self.placement.set_migration_ns(migration_ns);
    }

    pub(crate) fn epoch(&mut self, epoch: &Epoch<'_>, out: &mut Vec<Action>) {
        self.placement.on_epoch(epoch, &self.nodes, out);
    }

    pub(crate) fn settled(&mut self, outcomes: &[ActionOutcome]) {
        self.placement.on_outcomes(outcomes, &self.nodes);
    }

    /// A page could not be moved and stayed on `at`.
    pub(crate) fn stays(&mut self, block: Block, at: Node) {
        if self.nodes.free(at) > 0 {
            self.relocate(block, at);
        }
    }

    /// Frames in use on each node. Those of pages that were placed and not touched yet are not
    /// among them, so that what is used by others is more than the difference for a while, and
    /// right once they are.
    pub(crate) fn set_usage(&mut self, used: &[u32]) {
        for (node, (&used, &held)) in self.nodes.all().zip(used.iter().zip(&self.held)) {
            self.nodes.set_others(node, used.saturating_sub(held));
        }
    }

    #[cfg(test)]
    pub(crate) fn used(&self, node: Node) -> u32 {
        self.nodes.used(node)
    }

    /// Walks every invariant and panics on a broken one.
    #[cfg(test)]
    pub(crate) fn check(&self, settled: bool) {
        self.nodes.check();
        if settled {
            self.placement.check(&self.nodes);
        }
        for node in self.nodes.all() {
            let held = (0..self.nodes.blocks()).filter(|&b| self.nodes.holds(Block(b), node));
            assert_eq!(held.count() as u32, self.held[node.index()]);
        }
    }
}

impl std::fmt::Debug for PlacementHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PlacementHost")
            .field("nodes", &self.nodes)
            .field("held", &self.held)
            .finish_non_exhaustive()
    }
}
