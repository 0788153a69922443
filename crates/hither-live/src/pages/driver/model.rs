//! The policy and what it is told of the machine: which page is where, as far as decisions know, and how full nodes are.

use std::sync::Arc;

use hither_core::placement::{Action, Class, Nodes, Outcome, Placement, Region, Settings};
use hither_core::{Access, Block, NEVER, Node, Object, Op, Process, Site, Slot, Thread};

use super::Config;
use crate::error::Result;

/// The policy, and the truth that it reads.
pub(super) struct Model {
    placement: Box<dyn Placement>,
    nodes: Nodes,
    /// Of the frames in use on each node, how many hold pages that were placed.
    held: Vec<u32>,
    /// The kernel's number of each node.
    kernel: Vec<u32>,
    node_of_cpu: Vec<Node>,
    accesses: u64,
}

/// A touch of a page, as the driver knows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Touch {
    pub(super) block: Block,
    pub(super) object: Object,
    pub(super) index: u32,
    pub(super) process: Process,
    pub(super) thread: Thread,
    pub(super) node: Node,
}

impl Model {
    pub(super) fn new(config: &Config) -> Result<Model> {
        let topology = Arc::new(config.topology()?);
        let capacity: Vec<u32> = config.nodes.iter().map(|node| node.frames).collect();
        let placement = config.policy()?.build(&Settings {
            topology: Arc::clone(&topology),
            capacity: &capacity,
            blocks: 0,
            block_bytes: config.page_bytes as u32,
            totals: None,
        });
        let cpus = config.nodes.iter().flat_map(|node| &node.cpus);
        let mut node_of_cpu = vec![Node(0); cpus.max().map_or(0, |&cpu| cpu as usize + 1)];
        for (number, node) in (0..).map(Node).zip(&config.nodes) {
            for &cpu in &node.cpus {
                node_of_cpu[cpu as usize] = number;
            }
        }
        Ok(Model {
            placement,
            held: vec![0; capacity.len()],
            nodes: Nodes::new(topology, capacity, 0),
            kernel: config.nodes.iter().map(|node| node.node).collect(),
            node_of_cpu,
            accesses: 0,
        })
    }

    pub(super) fn set_now_ns(&mut self, now_ns: u64) {
        self.nodes.set_now_ns(now_ns);
    }

    /// The node of a CPU; the first for one that no node claimed at the start.
    pub(super) fn node_of_cpu(&self, cpu: u32) -> Node {
        self.node_of_cpu
            .get(cpu as usize)
            .copied()
            .unwrap_or_default()
    }

    pub(super) fn kernel_number(&self, node: Node) -> u32 {
        self.kernel[node.index()]
    }

    /// A node's bit in a mask of kernel numbers; none for a number past the mask's end, where no order can send a page.
    pub(super) fn bit(&self, node: Node) -> u64 {
        1_u64.checked_shl(self.kernel_number(node)).unwrap_or(0)
    }

    /// Blocks are numbered below `blocks`; grown in steps of doubling, since the policy's tables move when they grow.
    pub(super) fn grow(&mut self, blocks: u32) {
        if blocks > self.nodes.blocks() {
            let blocks = blocks.max(self.nodes.blocks().saturating_mul(2));
            self.nodes.grow(blocks);
            self.placement.grow(blocks);
        }
    }

    pub(super) fn allocated(&mut self, region: &Region) {
        self.placement.allocated(region);
    }

    pub(super) fn freed(&mut self, object: Object) {
        self.placement.freed(object);
    }

    pub(super) fn class(&self, object: Object) -> Option<Class> {
        self.placement.class(object)
    }

    /// Where a page was placed.
    pub(super) fn home(&self, block: Block) -> Option<Node> {
        self.nodes.home(block)
    }

    /// Has the policy place a page that is nowhere, on the nearest node to its choice that has room; `None`: nowhere.
    pub(super) fn place(&mut self, touch: Touch) -> Option<Node> {
        let access = Access {
            tick: self.accesses,
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
        };
        self.accesses += 1;
        let wanted = self.placement.place(&access, &self.nodes);
        let nearest = self.nodes.topology().nearest(wanted);
        let node = *nearest.iter().find(|&&node| self.nodes.free(node) > 0)?;
        self.nodes.insert(touch.block, node, Slot(0));
        self.held[node.index()] += 1;
        Some(node)
    }

    /// A page is gone.
    pub(super) fn leave(&mut self, block: Block) {
        let Some(node) = self.nodes.home(block) else {
            return;
        };
        self.nodes.remove(block, node);
        self.held[node.index()] -= 1;
        // Policies that can follow a live program act when pages are placed, and not here.
        self.placement
            .gone(block, node, &self.nodes, &mut Vec::new());
    }

    /// A page could not be moved and stayed on `at`.
    pub(super) fn stays(&mut self, block: Block, at: Node) {
        let Some(to) = self.nodes.home(block).filter(|&to| to != at) else {
            return;
        };
        if self.nodes.free(at) > 0 {
            self.nodes.migrate(block, at, Slot(0));
            self.held[to.index()] -= 1;
            self.held[at.index()] += 1;
        }
        let outcome = Outcome {
            action: Action::Migrate { block, to },
            done: false,
        };
        self.placement.settled(&[outcome], &self.nodes);
    }

    /// Frames in use on each node. Those of pages that were placed and not touched yet are not among them, so that what
    /// is used by others is more than the difference for a while, and right once they are.
    pub(super) fn set_usage(&mut self, used: &[u32]) {
        for (node, (&used, &held)) in self.nodes.all().zip(used.iter().zip(&self.held)) {
            self.nodes.set_others(node, used.saturating_sub(held));
        }
    }

    #[cfg(test)]
    pub(super) fn used(&self, node: Node) -> u32 {
        self.nodes.used(node)
    }

    /// Walks every invariant and panics on a broken one.
    #[cfg(test)]
    pub(super) fn check(&self) {
        self.nodes.check();
        self.placement.check(&self.nodes);
        for node in self.nodes.all() {
            let held = (0..self.nodes.blocks()).filter(|&b| self.nodes.holds(Block(b), node));
            assert_eq!(held.count() as u32, self.held[node.index()]);
        }
    }
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Model")
            .field("nodes", &self.nodes)
            .field("held", &self.held)
            .finish_non_exhaustive()
    }
}
