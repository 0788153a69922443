//! Hosts a memory placement for a live program: owns what the placement reads ([`Nodes`]) and
//! passes on what happens.
//!
//! In the simulator the engine owns that state. A live run owns it through a [`PlacementHost`],
//! which knows on which node each page is as far as anybody has said so, and how full the nodes
//! are. It does no I/O: its caller reports faults, moves and usage, and carries actions out.

use std::sync::Arc;

use hither_ids::KernelNode;

use super::entry::{PlacementEntry, PlacementSettings};
use super::events::{Action, ActionOutcome, Epoch, Region, RegionTier};
use super::interface::MemoryPlacement;
use super::nodes::Nodes;
use crate::access::{Access, Op};
use crate::ids::{Block, Node, Object, Process, Slot, Thread};
use crate::spec::Spec;
use crate::topology::Topology;

/// A memory node of the machine that a program runs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostNode {
    /// The kernel's number of the node.
    pub kernel_number: KernelNode,
    /// The kernel's numbers of its CPUs.
    pub cpus: Vec<u32>,
    /// How many pages it holds.
    pub frames: u32,
}

/// What a [`PlacementHost`] starts from.
#[derive(Clone, Debug)]
pub struct PlacementHostSettings {
    /// The placement, with its parameters.
    pub policy: Spec<PlacementEntry>,
    /// The placement that `policy` is made of, in place of the one that its parameter names.
    pub initial: Option<Spec<PlacementEntry>>,
    /// Latencies between the nodes.
    pub topology: Arc<Topology>,
    /// The nodes, in the order of the topology's.
    pub nodes: Vec<HostNode>,
    /// Size of a page.
    pub page_bytes: u32,
}

/// A touch of a page by a thread of the program.
#[derive(Clone, Copy, Debug)]
pub struct PageTouch {
    /// The page.
    pub block: Block,
    /// The region that it belongs to.
    pub object: Object,
    /// Its index in the region.
    pub index: u32,
    /// The process.
    pub process: Process,
    /// The thread.
    pub thread: Thread,
    /// The node that the thread ran on.
    pub node: Node,
}

/// A memory placement and the state that it reads: see the module.
pub struct PlacementHost {
    placement: Box<dyn MemoryPlacement>,
    nodes: Nodes,
    /// Of the frames in use on each node, those that hold pages of the program.
    held: Vec<u32>,
    /// The kernel's number of each node.
    kernel_numbers: Vec<KernelNode>,
    node_of_cpu: Vec<Node>,
    /// Accesses shown to the placement so far.
    accesses: u64,
    counts_accesses: bool,
    period_ns: Option<u64>,
}

impl PlacementHost {
    /// A host without any page. `None` where the policy does not place memory.
    pub fn new(settings: &PlacementHostSettings) -> Option<PlacementHost> {
        let capacity: Vec<u32> = settings.nodes.iter().map(|node| node.frames).collect();
        let placement = settings.policy.build_memory(&PlacementSettings {
            topology: Arc::clone(&settings.topology),
            capacity: &capacity,
            blocks: 0,
            block_bytes: settings.page_bytes,
            totals: None,
            initial: settings.initial,
            sampled: true,
        })?;
        let cpus = settings.nodes.iter().flat_map(|node| &node.cpus);
        let mut node_of_cpu = vec![Node(0); cpus.max().map_or(0, |&cpu| cpu as usize + 1)];
        for (number, node) in (0..).map(Node).zip(&settings.nodes) {
            for &cpu in &node.cpus {
                node_of_cpu[cpu as usize] = number;
            }
        }
        let numbers = settings.nodes.iter().map(|node| node.kernel_number);
        Some(PlacementHost {
            placement,
            held: vec![0; capacity.len()],
            nodes: Nodes::new(Arc::clone(&settings.topology), capacity, 0),
            kernel_numbers: numbers.collect(),
            node_of_cpu,
            accesses: 0,
            counts_accesses: settings.policy.entry().epochs.counts,
            period_ns: settings.policy.period_ns(),
        })
    }

    /// Sets the time.
    pub fn set_now_ns(&mut self, now_ns: u64) {
        self.nodes.set_now_ns(now_ns);
    }

    /// Whether the placement decides by access counts, so that somebody must count.
    pub fn counts_accesses(&self) -> bool {
        self.counts_accesses
    }

    /// The period that the placement names to be asked by, if it does.
    pub fn period_ns(&self) -> Option<u64> {
        self.period_ns
    }

    /// How many nodes there are.
    pub fn node_count(&self) -> usize {
        self.kernel_numbers.len()
    }

    /// The node of a CPU; the first one for a CPU that no node listed.
    pub fn node_of_cpu(&self, cpu: u32) -> Node {
        let node = self.node_of_cpu.get(cpu as usize);
        node.copied().unwrap_or_default()
    }

    /// The kernel's number of a node.
    pub fn kernel_number(&self, node: Node) -> KernelNode {
        self.kernel_numbers[node.index()]
    }

    /// The node that has this number in the kernel.
    pub fn node_of_kernel(&self, kernel_number: KernelNode) -> Option<Node> {
        let mut numbers = self.kernel_numbers.iter();
        let at = numbers.position(|&number| number == kernel_number)?;
        Some(Node(at as u16))
    }

    /// A node's bit in a mask of kernel numbers. 0 for a number from 64 on: masks have 64 bits, so
    /// no memory policy can name such a node.
    pub fn node_mask(&self, node: Node) -> u64 {
        self.kernel_number(node).mask().unwrap_or(0)
    }

    /// Latency of an access from one node to the memory of another.
    pub fn latency_ns(&self, from: Node, to: Node) -> u32 {
        self.nodes.topology().latency_ns(from, to)
    }

    /// Pages are numbered below this.
    pub fn blocks(&self) -> u32 {
        self.nodes.blocks()
    }

    /// Makes room for pages numbered below `blocks`. The number at least doubles each time, since
    /// the placement copies its tables when they grow.
    pub fn grow(&mut self, blocks: u32) {
        if blocks > self.nodes.blocks() {
            let blocks = blocks.max(self.nodes.blocks().saturating_mul(2));
            self.nodes.grow(blocks);
            self.placement.grow(blocks);
        }
    }

    /// Reports that a region exists from now on.
    pub fn region_allocated(&mut self, region: &Region) {
        self.placement.on_region_allocated(region);
    }

    /// Reports that a region is gone, after [`remove`](PlacementHost::remove) for each of its
    /// pages.
    pub fn region_freed(&mut self, object: Object) {
        self.placement.on_region_freed(object);
    }

    /// Reports that a process has ended, after its regions were freed.
    pub fn process_exited(&mut self, process: Process) {
        self.placement.on_process_exit(process);
    }

    /// The tier of a region, once the placement has decided it.
    pub fn region_tier(&self, object: Object) -> Option<RegionTier> {
        self.placement.region_tier(object)
    }

    /// Whether the placement needs first faults of a region to decide its tier.
    pub fn needs_first_faults(&self, object: Object) -> bool {
        self.placement.needs_first_faults(object)
    }

    /// The node of a page, as far as it is known.
    pub fn home(&self, block: Block) -> Option<Node> {
        self.nodes.home(block)
    }

    /// Free frames of a node.
    pub fn free_frames(&self, node: Node) -> u32 {
        self.nodes.free(node)
    }

    /// Frames of a node that are in use.
    pub fn used_frames(&self, node: Node) -> u32 {
        self.nodes.used(node)
    }

    /// Asks the placement where a page without a home goes, and puts it on the nearest node to that
    /// one with a free frame. `None`: all nodes are full, and the page has no home still.
    pub fn place(&mut self, touch: PageTouch) -> Option<Node> {
        let access = self.access(touch);
        let wanted = self.placement.place(&access, &self.nodes);
        let nearest = self.nodes.topology().nearest(wanted);
        let Some(&node) = nearest.iter().find(|&&node| self.nodes.free(node) > 0) else {
            // The placement took it for placed.
            self.placement
                .on_removed(touch.block, wanted, &self.nodes, &mut Vec::new());
            return None;
        };
        self.insert(touch.block, node);
        Some(node)
    }

    /// Takes down on which node the kernel has a page. The placement is told of a page without a
    /// home as of one that it places, but the kernel's answer counts. Returns whether the page was
    /// known to be on another node.
    pub fn set_home(&mut self, touch: PageTouch) -> bool {
        let PageTouch { block, node, .. } = touch;
        match self.nodes.home(block) {
            Some(home) if home == node => false,
            Some(_) => self.relocate(block, node),
            None => {
                if self.make_room(node) {
                    let access = self.access(touch);
                    self.placement.place(&access, &self.nodes);
                    self.insert(block, node);
                }
                false
            }
        }
    }

    /// A page is on another node now. Returns whether that was taken down: not if it has no home,
    /// is there already, or the node is full of the program's own pages.
    pub fn relocate(&mut self, block: Block, to: Node) -> bool {
        let Some(from) = self.nodes.home(block) else {
            return false;
        };
        let moves = from != to && self.make_room(to);
        if moves {
            self.nodes.migrate(block, to, Slot(0));
            self.held[from.index()] -= 1;
            self.held[to.index()] += 1;
        }
        moves
    }

    /// A page that was to leave `at` could not be moved: it is there still, unless the node is full
    /// by now.
    pub fn keep_at(&mut self, block: Block, at: Node) {
        if self.nodes.free(at) > 0 {
            self.relocate(block, at);
        }
    }

    /// A page is gone.
    pub fn remove(&mut self, block: Block) {
        let Some(node) = self.nodes.home(block) else {
            return;
        };
        self.nodes.remove(block, node);
        self.held[node.index()] -= 1;
        // Placements that run live act when pages are placed and at epochs, never here.
        self.placement
            .on_removed(block, node, &self.nodes, &mut Vec::new());
    }

    /// Takes down how many frames are in use on each node, by anybody. Pages that were placed and
    /// not touched yet are not among them. Until they are, too many frames count as used by others.
    pub fn set_used_frames(&mut self, used: &[u32]) {
        for (node, (&used, &held)) in self.nodes.all().zip(used.iter().zip(&self.held)) {
            self.nodes.set_others(node, used.saturating_sub(held));
        }
    }

    /// Sets what moving a page costs, as measured.
    pub fn set_migration_ns(&mut self, migration_ns: u64) {
        self.placement.set_migration_ns(migration_ns);
    }

    /// Ends an epoch: the placement adds what it wants done.
    pub fn end_epoch(&mut self, epoch: &Epoch<'_>, actions: &mut Vec<Action>) {
        self.placement.on_epoch(epoch, &self.nodes, actions);
    }

    /// Reports what became of the actions of an epoch, in their order.
    pub fn report_outcomes(&mut self, outcomes: &[ActionOutcome]) {
        self.placement.on_outcomes(outcomes, &self.nodes);
    }

    fn access(&mut self, touch: PageTouch) -> Access {
        self.accesses += 1;
        Access {
            object: touch.object,
            index: touch.index,
            thread: touch.thread,
            process: touch.process,
            op: Op::Write,
            node: touch.node,
            ..Access::bare(self.accesses - 1, touch.block)
        }
    }

    fn insert(&mut self, block: Block, node: Node) {
        self.nodes.insert(block, node, Slot(0));
        self.held[node.index()] += 1;
    }

    /// Whether a page that the kernel has on a node finds a free frame there. Where none is left, a
    /// frame of others is taken to be free: usage is read from time to time, and so a moment old.
    fn make_room(&mut self, node: Node) -> bool {
        if self.nodes.free(node) == 0 {
            let others = self.nodes.used(node) - self.held[node.index()];
            self.nodes.set_others(node, others.saturating_sub(1));
        }
        self.nodes.free(node) > 0
    }

    /// Walks every invariant and panics on a broken one. `knows_outcomes`: the placement knows
    /// those of all its actions, so that its own invariants hold, too.
    pub fn check(&self, knows_outcomes: bool) {
        self.nodes.check();
        if knows_outcomes {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Two nodes of so many frames, with the kernel's numbers 0 and 70.
    fn host(frames: u32) -> PlacementHost {
        let node = |kernel_number, cpus: &[u32]| HostNode {
            kernel_number,
            cpus: cpus.to_vec(),
            frames,
        };
        let settings = PlacementHostSettings {
            policy: "upm".parse().expect("a placement"),
            initial: None,
            topology: Arc::new(Topology::uniform(2)),
            nodes: vec![node(KernelNode(0), &[0, 2]), node(KernelNode(70), &[1])],
            page_bytes: 4096,
        };
        let mut host = PlacementHost::new(&settings).expect("it places memory");
        host.grow(10);
        host
    }

    fn touch(page: u32, node: u16) -> PageTouch {
        PageTouch {
            block: Block(page),
            object: Object(0),
            index: page,
            process: Process(0),
            thread: Thread(0),
            node: Node(node),
        }
    }

    #[test]
    fn nodes_are_found_by_cpu_and_by_the_kernels_number() {
        let host = host(4);
        assert_eq!(
            [0, 1, 2, 9].map(|cpu| host.node_of_cpu(cpu).0),
            [0, 1, 0, 0]
        );
        assert_eq!(host.node_of_kernel(KernelNode(70)), Some(Node(1)));
        assert_eq!(host.node_of_kernel(KernelNode(1)), None);
        assert_eq!([0, 1].map(|node| host.node_mask(Node(node))), [1, 0]);
        assert_eq!(host.node_count(), 2);
        assert!(host.counts_accesses());
    }

    #[test]
    fn a_full_node_sends_pages_to_the_nearest_with_room() {
        let mut host = host(2);
        let placed = [0, 1, 2, 3, 4].map(|page| host.place(touch(page, 0)));
        let on = |node| Some(Node(node));
        assert_eq!(placed, [on(0), on(0), on(1), on(1), None]);
        assert_eq!(host.home(Block(4)), None);
        host.check(true);
        host.remove(Block(1));
        host.remove(Block(1));
        assert_eq!(
            (host.free_frames(Node(0)), host.used_frames(Node(1))),
            (1, 2)
        );
        assert!(!host.relocate(Block(1), Node(0)), "it is gone");
        assert!(host.relocate(Block(2), Node(0)));
        assert!(!host.relocate(Block(3), Node(0)), "full of our own pages");
        host.check(true);
    }

    #[test]
    fn the_kernels_answer_counts_where_others_fill_a_node() {
        let mut host = host(4);
        host.set_used_frames(&[4, 0]);
        assert_eq!(host.free_frames(Node(0)), 0);
        assert!(!host.set_home(touch(0, 0)), "nobody knew where it was");
        assert_eq!(host.home(Block(0)), Some(Node(0)));
        assert_eq!(host.used_frames(Node(0)), 4);
        assert!(host.set_home(touch(0, 1)), "it has moved");
        assert!(!host.set_home(touch(0, 1)));
        host.keep_at(Block(0), Node(0));
        assert_eq!(host.home(Block(0)), Some(Node(0)));
        host.check(true);
    }
}
