//! Dual-layered file cache: blocks of files stay on the node that first read them (the *normal
//! cache*, with the originals). Every node also caches copies of other nodes' blocks (the *cache of
//! the normal cache*, with the replicas), which it ranks separately and evicts sooner.
//!
//! Source: Zhou, Meng and Ma, "Dual-layered file cache on cc-NUMA system", section 3.2, and the
//! three extensions of its section 6. Readings where it is open:
//!
//! - *Threshold.* A node gets a replica during its second access to a block that another node
//!   holds, and the replica starts with frequency 1, whatever was counted before. If a counter has
//!   reached the threshold and no replica can be made, it stays there; it starts again at zero once
//!   the replica is gone. Writes are not counted: they would reset the counter that they advance.
//!   With more than two nodes, an access that a replica serves is remote too.
//! - *The last queue* has no upper bound. A replica moves up by each read that it serves.
//! - *Frequency* falls by one a scan, "until the frequency reaches one". A replica that falls to a
//!   lower queue goes to its recent end, as in MQ; replicas that fall together keep their order.
//! - *The refill of the inactive list*, at which replicas are scanned, concerns the kernel's lists
//!   of originals. Linux 2.6 keeps a third of the page cache inactive (mm/vmscan.c,
//!   `refill_inactive_zone`), so that list is used up when the node has needed frames for a third
//!   of its originals: `refill`. Without memory pressure nothing is scanned.
//! - *2:1.* Of any three frames that a node needs, two come from replicas and the third from an
//!   original. If there are none of one kind, the other gives. The node's replacement decides which
//!   original is evicted.
//! - *Memory is tight* when less than the share `free` of all frames is free; the paper gives no
//!   figure. Linux keeps less than 1 % free once files fill the memory, so any figure above that
//!   separates a full memory from one with room.
//!
//! Extensions, all off by default as in the paper. *Delayed generation* (`delay_us`): a replica is
//! made after that time, or when an iteration or a construct of the program ends, since its
//! processors are idle then; each access makes at most one. A replica is never made if its block is
//! written or evicted before, or if memory is tight by then. *Switching roles* (`switch`): when an
//! original is evicted, its latest replica becomes the original. The frame is needed, so the former
//! original does not stay as a replica. Roles are switched at that moment only (section 3.2;
//! section 6 also mentions changes of the access pattern): while both copies exist, which one is
//! the original makes no difference to reads. *Mapped files* (`mapped`): in the paper a block that
//! is mapped has no replicas from then on, until its original is evicted; here it may be allowed to
//! have them. Accesses through a mapping are not seen, so mapping counts as one read.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use super::entry::{Build, EpochNeeds, PlacementEntry, PlacementSettings, ReplicaLayer};
use super::events::{Action, ActionOutcome, Epoch, EpochKind, IncomingBlock};
use super::interface::{FilePlacement, Placement};
use super::nodes::Nodes;
use crate::access::{Access, Op};
use crate::entry::{Compared, Mechanism, Needs, Param, Values};
use crate::ids::{Block, Node};
use crate::replacement::mq::Queues;

pub(super) const ENTRY: PlacementEntry = PlacementEntry {
    name: "dual-layer",
    summary: "on the node that read it first; others get a replica from their second access on",
    source: "Zhou, Meng and Ma, dual-layered file cache on cc-NUMA",
    params: PARAMS,
    needs: Needs::NOTHING,
    epochs: EpochNeeds::NONE,
    live: &[Mechanism::Replicas],
    compared: Compared::Everywhere(5),
    build: Build::Files(ReplicaLayer::Separate, &build),
};

const PARAMS: &[Param] = &[
    Param::count(
        "threshold",
        "the remote accesses of a node to a block after which it gets a replica",
        2,
        1..=1_000_000,
    ),
    Param::count(
        "queues",
        "the number of queues that rank replicas; the i-th is for at least 2^i accesses",
        8,
        1..=32,
    ),
    Param::real(
        "refill",
        "frequencies fall each time frames were needed for this share of a node's originals",
        1.0 / 3.0,
        0.0..=1e6,
    ),
    Param::count(
        "ratio",
        "the replicas that are evicted for each original",
        2,
        0..=1_000_000,
    ),
    Param::real(
        "free",
        "the share of all frames that must be free for replicas to be made",
        0.02,
        0.0..=1.0,
    ),
    Param::count(
        "check_ms",
        "how often that is checked",
        1000,
        0..=1_000_000_000,
    ),
    Param::count(
        "delay_us",
        "the delay of a replica, unless an iteration or a construct ends before; \
              0: at once",
        0,
        0..=1_000_000_000_000,
    ),
    Param::count(
        "switch",
        "1: the latest replica of an evicted original becomes the original; 0: all are \
              dropped",
        0,
        0..=1,
    ),
    Param::count(
        "mapped",
        "1: a block that is mapped may have replicas as well",
        0,
        0..=1,
    ),
];

fn build(settings: &PlacementSettings<'_>, values: &Values) -> Box<dyn FilePlacement> {
    let nodes = settings.topology.nodes();
    let config = DualLayerConfig {
        threshold: values.count(0) as u32,
        refill: values.real(2),
        ratio: values.count(3) as u32,
        free: values.real(4),
        check_ns: (values.count(5) * 1_000_000).max(1),
        delay_ns: values.count(6) * 1000,
        switch: values.count(7) == 1,
        mapped: values.count(8) == 1,
    };
    Box::new(DualLayer {
        config,
        nodes,
        cells: vec![Cell::ZERO; nodes * settings.blocks as usize],
        blocks: vec![OriginalState::default(); settings.blocks as usize],
        layers: vec![Replicas::new(values.count(1) as u8); nodes],
        pending: VecDeque::new(),
        first_pending: 0,
        overdue: 0,
        tight: false,
        next_check_ns: 0,
    })
}

struct DualLayerConfig {
    threshold: u32,
    refill: f64,
    ratio: u32,
    free: f64,
    check_ns: u64,
    delay_ns: u64,
    switch: bool,
    mapped: bool,
}

/// The state of a block at a node that is not its home, in one word, since there is one for each
/// node and block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell(u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CellState {
    /// The number of its accesses to the block.
    Counted(u32),
    /// It waits for a replica: the number of the request in the queue of pending ones, modulo
    /// [`Cell::NUMBERS`].
    Pending(u32),
    /// It has a replica: its index in [`Replicas`].
    Replica(u32),
}

impl Cell {
    const ZERO: Cell = Cell(0);
    const NUMBERS: u32 = 1 << 30;

    #[inline]
    fn state(self) -> CellState {
        let number = self.0 % Cell::NUMBERS;
        match self.0 / Cell::NUMBERS {
            0 => CellState::Counted(number),
            1 => CellState::Pending(number),
            _ => CellState::Replica(number),
        }
    }

    fn set(&mut self, state: CellState) {
        let (kind, number) = match state {
            CellState::Counted(count) => (0, count.min(Cell::NUMBERS - 1)),
            CellState::Pending(number) => (1, number),
            CellState::Replica(place) => (2, place),
        };
        debug_assert!(number < Cell::NUMBERS);
        self.0 = kind * Cell::NUMBERS + number;
    }
}

/// What is kept of a block besides its cells.
#[derive(Clone, Copy, Debug, Default)]
struct OriginalState {
    /// Some cell of it may differ from [`Cell::ZERO`].
    counted: bool,
    /// It was mapped and must not have replicas.
    mapped: bool,
}

/// The replicas of a node.
#[derive(Clone, Debug)]
struct Replicas {
    queues: Queues,
    replicas: Vec<Replica>,
    /// Unused indices of `replicas`.
    free: Vec<u32>,
    /// Frames needed since frequencies last fell.
    asked: u32,
    /// Frames needed since an original was last evicted.
    turn: u32,
}

#[derive(Clone, Copy, Debug)]
struct Replica {
    block: Block,
    frequency: u32,
}

impl Replicas {
    fn new(queues: u8) -> Replicas {
        Replicas {
            queues: Queues::new(0, queues),
            replicas: Vec::new(),
            free: Vec::new(),
            asked: 0,
            turn: 0,
        }
    }

    fn len(&self) -> u32 {
        (self.replicas.len() - self.free.len()) as u32
    }

    fn add(&mut self, block: Block) -> u32 {
        let replica = Replica {
            block,
            frequency: 1,
        };
        let place = match self.free.pop() {
            Some(place) => {
                self.replicas[place as usize] = replica;
                place
            }
            None => {
                self.replicas.push(replica);
                self.queues.cover(self.replicas.len() as u32 - 1);
                self.replicas.len() as u32 - 1
            }
        };
        self.queues.insert(place, 1);
        place
    }

    fn remove(&mut self, place: u32) {
        self.queues.remove(place);
        self.free.push(place);
    }

    fn hit(&mut self, place: u32, count: u32) {
        let frequency = &mut self.replicas[place as usize].frequency;
        *frequency = frequency.saturating_add(count);
        self.queues.touch(place, *frequency);
    }

    /// Handles the need for a frame, on a node with so many originals. Returns the replica to
    /// evict, if it is a replica's turn.
    fn reclaim(&mut self, originals: u32, config: &DualLayerConfig) -> Option<Block> {
        self.asked += 1;
        if f64::from(self.asked) >= config.refill * f64::from(originals) {
            self.asked = 0;
            let replicas = &mut self.replicas;
            self.queues.refile(|place| {
                let frequency = &mut replicas[place as usize].frequency;
                *frequency = (*frequency - 1).max(1);
                *frequency
            });
        }
        let replicas_turn = self.turn < config.ratio;
        self.turn = if replicas_turn { self.turn + 1 } else { 0 };
        if !replicas_turn && originals > 0 {
            return None;
        }
        let lowest = self.queues.lowest()?;
        Some(self.replicas[lowest as usize].block)
    }
}

/// A replica that is to be made later.
#[derive(Clone, Copy, Debug)]
struct Pending {
    due_ns: u64,
    block: Block,
    node: Node,
}

struct DualLayer {
    config: DualLayerConfig,
    nodes: usize,
    /// By block, then by node.
    cells: Vec<Cell>,
    blocks: Vec<OriginalState>,
    layers: Vec<Replicas>,
    /// By the time at which they are due. Some are void: their cells say otherwise.
    pending: VecDeque<Pending>,
    /// The number of the first of them, modulo [`Cell::NUMBERS`].
    first_pending: u32,
    /// How many of them are due whatever the time is.
    overdue: usize,
    tight: bool,
    next_check_ns: u64,
}

impl DualLayer {
    #[inline]
    fn cell(&mut self, block: Block, node: Node) -> &mut Cell {
        &mut self.cells[block.index() * self.nodes + node.index()]
    }

    /// Checks, when that is due, whether memory is tight.
    #[inline]
    fn look(&mut self, nodes: &Nodes) {
        if nodes.now_ns() >= self.next_check_ns {
            self.tight = nodes.free_ratio() < self.config.free;
            let periods = nodes.now_ns() / self.config.check_ns + 1;
            self.next_check_ns = periods.saturating_mul(self.config.check_ns);
        }
    }

    /// Handles a read that another node served.
    fn remote(&mut self, access: &Access, now_ns: u64, out: &mut Vec<Action>) {
        let (block, node) = (access.block, access.node);
        let CellState::Counted(before) = self.cell(block, node).state() else {
            return;
        };
        let count = before.saturating_add(access.count);
        self.blocks[block.index()].counted = true;
        let may = !self.tight && !self.blocks[block.index()].mapped;
        let state = if count < self.config.threshold || !may {
            CellState::Counted(count)
        } else if self.config.delay_ns == 0 {
            out.push(Action::Replicate { block, to: node });
            CellState::Counted(count)
        } else {
            let waiting = (self.pending.len() as u32) % Cell::NUMBERS;
            self.pending.push_back(Pending {
                due_ns: now_ns.saturating_add(self.config.delay_ns),
                block,
                node,
            });
            CellState::Pending((self.first_pending + waiting) % Cell::NUMBERS)
        };
        self.cell(block, node).set(state);
    }

    /// Asks for a replica that is due.
    #[inline]
    fn generate(&mut self, now_ns: u64, out: &mut Vec<Action>) {
        while let Some(&first) = self.pending.front()
            && (first.due_ns <= now_ns || self.overdue > 0)
        {
            self.pending.pop_front();
            self.overdue = self.overdue.saturating_sub(1);
            let number = self.first_pending;
            self.first_pending = (number + 1) % Cell::NUMBERS;
            let Pending { block, node, .. } = first;
            if self.cell(block, node).state() != CellState::Pending(number) {
                continue;
            }
            let count = CellState::Counted(self.config.threshold);
            self.cell(block, node).set(count);
            if !self.tight {
                out.push(Action::Replicate { block, to: node });
                return;
            }
        }
    }

    /// Sets all counters of a block to zero, and cancels the replicas that it waits for.
    fn reset(&mut self, block: Block) {
        if !std::mem::take(&mut self.blocks[block.index()].counted) {
            return;
        }
        for cell in &mut self.cells[block.index() * self.nodes..][..self.nodes] {
            if matches!(cell.state(), CellState::Counted(_) | CellState::Pending(_)) {
                *cell = Cell::ZERO;
            }
        }
    }

    /// Forgets the replica at a node, if there is one.
    fn forget(&mut self, block: Block, node: Node) -> bool {
        let CellState::Replica(place) = self.cell(block, node).state() else {
            return false;
        };
        self.layers[node.index()].remove(place);
        *self.cell(block, node) = Cell::ZERO;
        true
    }
}

fn drop_replicas(block: Block, nodes: &Nodes, out: &mut Vec<Action>) {
    if nodes.replicated(block) {
        let replicas = nodes.copies(block).skip(1);
        out.extend(replicas.map(|(at, _)| Action::Drop { block, at }));
    }
}

impl Placement for DualLayer {
    fn grow(&mut self, blocks: u32) {
        if blocks as usize > self.blocks.len() {
            self.blocks
                .resize(blocks as usize, OriginalState::default());
            self.cells.resize(self.nodes * blocks as usize, Cell::ZERO);
        }
    }

    fn place(&mut self, access: &Access, nodes: &Nodes) -> Node {
        self.look(nodes);
        if access.op == Op::Map && !self.config.mapped {
            self.blocks[access.block.index()].mapped = true;
        }
        access.node
    }

    fn on_access(&mut self, access: &Access, from: Node, nodes: &Nodes, out: &mut Vec<Action>) {
        self.look(nodes);
        let block = access.block;
        match access.op {
            Op::Write | Op::Delete => return,
            Op::Map if !self.config.mapped => {
                self.blocks[block.index()].mapped = true;
                self.reset(block);
                drop_replicas(block, nodes, out);
            }
            Op::Read | Op::Map => {
                if from != access.node {
                    self.remote(access, nodes.now_ns(), out);
                } else if nodes.home(block) != Some(from)
                    && let CellState::Replica(place) = self.cell(block, from).state()
                {
                    self.layers[from.index()].hit(place, access.count);
                }
            }
        }
        self.generate(nodes.now_ns(), out);
    }

    fn on_write(&mut self, access: &Access, nodes: &Nodes, out: &mut Vec<Action>) {
        self.reset(access.block);
        drop_replicas(access.block, nodes, out);
    }

    fn on_removed(&mut self, block: Block, at: Node, nodes: &Nodes, _: &mut Vec<Action>) {
        if self.forget(block, at) {
            return;
        }
        match nodes.home(block) {
            Some(promoted) => {
                self.forget(block, promoted);
            }
            None => {
                self.reset(block);
                self.blocks[block.index()].mapped = false;
            }
        }
    }

    fn on_epoch(&mut self, epoch: &Epoch<'_>, nodes: &Nodes, out: &mut Vec<Action>) {
        self.look(nodes);
        if epoch.kind != EpochKind::Period {
            self.overdue = self.pending.len();
        }
        self.generate(nodes.now_ns(), out);
    }

    fn on_outcomes(&mut self, outcomes: &[ActionOutcome], _: &Nodes) {
        for outcome in outcomes {
            if let Action::Replicate { block, to } = outcome.action
                && outcome.done
            {
                let place = self.layers[to.index()].add(block);
                self.cell(block, to).set(CellState::Replica(place));
            }
        }
    }

    fn check(&self, nodes: &Nodes) {
        let mut replicas = vec![0; self.nodes];
        for block in (0..nodes.blocks()).map(Block) {
            let cells = &self.cells[block.index() * self.nodes..][..self.nodes];
            let known = self.blocks[block.index()];
            for (node, cell) in nodes.all().zip(cells) {
                let replica = nodes.holds(block, node) && nodes.home(block) != Some(node);
                match cell.state() {
                    CellState::Replica(place) => {
                        let layer = &self.layers[node.index()];
                        assert_eq!(layer.replicas[place as usize].block, block);
                        assert!(replica, "{block:?} has no replica at {node:?}");
                        assert!(!known.mapped, "{block:?} is mapped");
                        replicas[node.index()] += 1;
                    }
                    CellState::Counted(0) => {
                        assert!(!replica, "{block:?} at {node:?} is not ranked")
                    }
                    CellState::Counted(_) | CellState::Pending(_) => {
                        assert!(!nodes.holds(block, node));
                        assert!(nodes.home(block).is_some(), "{block:?} was not reset");
                        assert!(known.counted);
                    }
                }
            }
        }
        for (layer, replicas) in self.layers.iter().zip(replicas) {
            layer.queues.check(replicas);
            assert_eq!(layer.len() as usize, replicas);
        }
        assert!(self.pending.iter().is_sorted_by_key(|each| each.due_ns));
    }
}

impl FilePlacement for DualLayer {
    fn replica_victim(&mut self, at: Node, _: Block, nodes: &Nodes) -> Option<Block> {
        let layer = &mut self.layers[at.index()];
        let originals = nodes.used(at) - layer.len();
        layer.reclaim(originals, &self.config)
    }

    fn forward_to(
        &mut self,
        evicted: Block,
        _: Node,
        _: IncomingBlock,
        nodes: &Nodes,
    ) -> Option<Node> {
        let latest = || nodes.copies(evicted).nth(1).map(|(node, _)| node);
        self.config.switch.then(latest)?
    }
}
