//! Post-office placement (POP): a block moves to the node with the least total distance to its
//! accesses, and victims of nodes under pressure move to nodes without pressure.
//!
//! Source: Son, Kandemir, Zhang and Garg, "Topology-aware I/O caching for shared storage systems",
//! sections 4 and 5. Readings where it is open:
//!
//! - *Counters.* A block counts accesses by node from its fetch to its eviction, the fetch
//!   included. At the `trigger`-th access its weighted median is computed and the counters start
//!   again at zero, whether or not the block moves: the paper resets them "whenever a block is
//!   migrated" and has 6 bits for each, which cannot hold more than one round.
//! - *The median* is [`Topology::median`](crate::Topology::median): axis by axis on a grid (figure
//!   5, the lower one among equals), the 1-median of the distances elsewhere. A node's accesses
//!   count by its weight ("thread priorities", which the paper leaves to later work).
//! - *Pressure.* Table 1 has a T_m of "400 misses per million cycles"; the text has a "local cache
//!   miss ratio, i.e., the fraction of cache misses that occur during a certain period", with a
//!   threshold that depends on capacity and workload. A node of table 1 makes at most one access in
//!   0.1 ms, so 400 misses in a million cycles of any processor cannot be meant literally. Here it
//!   is a ratio over the node's last `window` accesses. A miss is what the paper's footnote 3 calls
//!   one: an access that no cache served; with `remote_misses=1`, one that the node's own cache did
//!   not serve. The default, 0.15, is about the mean over the six applications as `shared-files`
//!   has them, so that there are nodes on either side of it: where all nodes are under pressure, or
//!   none is, nothing is forwarded. Under uneven loads (`experiments/post_office`) 0.03 is better.
//!   With `period_ms` it is the ratio over a period of time, as in the text: a node that has no
//!   accesses in a period is not under pressure in the next. By accesses, a node that becomes idle
//!   keeps the flag of its last window.
//! - *Victims* (figure 4) of a node under pressure go to the neighbour without pressure that has
//!   most room, and among equals the fewest misses; otherwise to the nearest other node without
//!   pressure; otherwise they are evicted. Line 4 of the figure ignores capacities; with unequal
//!   ones, "room" is in blocks.
//! - *Cascades.* A victim that moves can push out another one, which can move in turn (section
//!   4.1). The paper does not say when this ends. Here a victim whose target has already given up a
//!   block in the same cascade is evicted.
//! - *Private blocks*, which one node alone accesses, have counters and are moved like shared ones.
//!   Section 4.2 speaks of shared blocks only, but counts every request. The median of a private
//!   block is the node that uses it, so it moves only after it was forwarded as a victim.
//! - *Replication* (section 5) is off by default, as in the paper's main results. A block is
//!   *shared* once another node than the one that fetched it accesses it, and *read-only* until it
//!   is first written. The copy that was written stays and is the original. Replicas are ranked
//!   with all other copies of their node.

use super::entry::{Build, EpochNeeds, PlacementEntry, PlacementSettings, ReplicaLayer};
use super::events::{Action, IncomingBlock};
use super::interface::{AccessesWanted, FilePlacement, Placement};
use super::nodes::Nodes;
use crate::access::Access;
use crate::entry::{Compared, Needs, Param, Values};
use crate::ids::{Block, Node};
use std::cmp::Reverse;

pub(super) const ENTRY: PlacementEntry = PlacementEntry {
    name: "post-office",
    summary: "moves to the weighted median of its accesses; victims go to nodes with few misses",
    source: "Son, Kandemir, Zhang and Garg, topology-aware I/O caching for shared storage systems",
    params: PARAMS,
    needs: Needs::NOTHING,
    epochs: EpochNeeds::NONE,
    live: &[],
    compared: Compared::Everywhere(4),
    build: Build::Files(ReplicaLayer::Shared, &|settings, values| {
        Box::new(PostOffice::new(settings, values))
    }),
};

const PARAMS: &[Param] = &[
    Param::count(
        "trigger",
        "accesses to a block after which its best node is computed (T_tr)",
        50,
        1..=255,
    ),
    Param::real(
        "miss_ratio",
        "the local miss ratio from which a node is under pressure and forwards its \
              victims (T_m)",
        0.15,
        0.0..=1.0,
    ),
    Param::count(
        "window",
        "accesses of a node over which that ratio is computed",
        1000,
        1..=1_000_000_000,
    ),
    Param::count(
        "remote_misses",
        "1: what other caches serve counts as a miss; 0: only what storage serves",
        0,
        0..=1,
    ),
    Param::count(
        "replication",
        "hops beyond which a shared read-only block is replicated at the accessing node; \
              the default: never",
        NEVER_FAR,
        0..=NEVER_FAR,
    ),
    Param::count(
        "period_ms",
        "the period of time over which the miss ratio is computed, in place of `window`; 0: by \
              `window`",
        0,
        0..=600_000,
    ),
];

/// More hops than any topology has.
const NEVER_FAR: u64 = 65_535;

struct PostOffice {
    trigger: u8,
    replication: u32,
    blocks: BlockCounters,
    pressure: Vec<Pressure>,
    miss_ratio: f64,
    window: u32,
    /// 0: windows are used.
    period_ns: u64,
    period_ends_ns: u64,
    remote_misses: bool,
    /// How many nodes are not under pressure.
    at_ease: usize,
    /// By node: the weight of its accesses; and scratch for a block's weighted accesses.
    weights: Vec<u32>,
    weighed: Vec<u32>,
}

/// The misses of a node's own cache.
#[derive(Clone, Copy, Debug, Default)]
struct Pressure {
    accesses: u32,
    misses: u32,
    /// Misses in the last whole window or period.
    misses_before: u32,
    flag: bool,
}

impl PostOffice {
    fn new(settings: &PlacementSettings<'_>, values: &Values) -> PostOffice {
        let topology = &settings.topology;
        PostOffice {
            trigger: values.count(0) as u8,
            replication: values.count(4) as u32,
            blocks: BlockCounters::new(topology.nodes(), settings.blocks),
            pressure: vec![Pressure::default(); topology.nodes()],
            miss_ratio: values.real(1),
            window: values.count(2) as u32,
            period_ns: values.count(5) * 1_000_000,
            period_ends_ns: 0,
            remote_misses: values.count(3) == 1,
            at_ease: topology.nodes(),
            weights: topology.all().map(|node| topology.weight(node)).collect(),
            weighed: vec![0; topology.nodes()],
        }
    }

    /// Figure 4, lines 2 to 9.
    #[inline]
    fn count(&mut self, node: Node, missed: bool, now_ns: u64) {
        if self.period_ns > 0 && now_ns >= self.period_ends_ns {
            (0..self.pressure.len()).for_each(|node| self.close(node));
            if now_ns >= self.period_ends_ns.saturating_add(self.period_ns) {
                // Nobody accessed anything in the latest period.
                (0..self.pressure.len()).for_each(|node| self.close(node));
            }
            self.period_ends_ns = now_ns + self.period_ns;
        }
        let pressure = &mut self.pressure[node.index()];
        pressure.accesses += 1;
        pressure.misses += u32::from(missed);
        if self.period_ns == 0 && pressure.accesses >= self.window {
            self.close(node.index());
        }
    }

    /// A node's window or period ends.
    fn close(&mut self, node: usize) {
        let pressure = &mut self.pressure[node];
        let misses_min = self.miss_ratio * f64::from(pressure.accesses);
        let flag = pressure.accesses > 0 && f64::from(pressure.misses) >= misses_min;
        self.at_ease += usize::from(pressure.flag);
        self.at_ease -= usize::from(flag);
        *pressure = Pressure {
            misses_before: pressure.misses,
            flag,
            ..Pressure::default()
        };
    }

    /// The node with the least total distance to the block's accesses.
    fn best(&mut self, block: Block, nodes: &Nodes) -> Node {
        let counts = self.blocks.counts(block).iter().zip(&self.weights);
        for (weighed, (&count, weight)) in self.weighed.iter_mut().zip(counts) {
            *weighed = u32::from(count) * weight;
        }
        nodes.topology().median(&self.weighed)
    }
}

impl Placement for PostOffice {
    fn place(&mut self, access: &Access, nodes: &Nodes) -> Node {
        self.count(access.node, true, nodes.now_ns());
        self.blocks.fetched(access.block, access.node);
        self.blocks.count(access.block, access.node);
        access.node
    }

    #[inline]
    fn on_access(&mut self, access: &Access, from: Node, nodes: &Nodes, out: &mut Vec<Action>) {
        let (block, by) = (access.block, access.node);
        self.count(by, from != by && self.remote_misses, nodes.now_ns());
        if self.blocks.count(block, by) >= self.trigger {
            let to = self.best(block, nodes);
            self.blocks.reset(block);
            if nodes.home(block) != Some(to) {
                out.push(Action::Migrate { block, to });
                return;
            }
        }
        // Tested first because it is constant and so predictable; the rest is not.
        if self.replication < NEVER_FAR as u32
            && from != by
            && nodes.topology().hops(by, from) > self.replication
            && self.blocks.replicable(block, by)
        {
            out.push(Action::Replicate { block, to: by });
        }
    }

    fn on_write(&mut self, access: &Access, nodes: &Nodes, out: &mut Vec<Action>) {
        let block = access.block;
        if self.blocks.written(block) && nodes.replicated(block) {
            out.extend(nodes.copies_but_nearest(block, access.node));
        }
    }

    fn on_removed(&mut self, block: Block, _: Node, nodes: &Nodes, _: &mut Vec<Action>) {
        if nodes.home(block).is_none() {
            self.blocks.reset(block);
        }
    }

    fn forget(&mut self, block: Block) {
        self.blocks.forget(block);
    }

    fn grow(&mut self, blocks: u32) {
        self.blocks.grow(blocks);
    }

    fn check(&self, nodes: &Nodes) {
        for block in (0..nodes.blocks()).map(Block) {
            let counts = self.blocks.counts(block).iter();
            let total: u32 = counts.map(|&count| u32::from(count)).sum();
            assert_eq!(total, u32::from(self.blocks.total(block)), "{block:?}");
            assert!(total < u32::from(self.trigger).max(2), "{block:?}: {total}");
            assert!(total == 0 || nodes.home(block).is_some(), "{block:?}");
        }
        let at_ease = self.pressure.iter().filter(|pressure| !pressure.flag);
        assert_eq!(at_ease.count(), self.at_ease);
    }
}

impl FilePlacement for PostOffice {
    /// Figure 4, lines 12 to 22.
    fn forward_to(&mut self, _: Block, at: Node, _: IncomingBlock, nodes: &Nodes) -> Option<Node> {
        if !self.pressure[at.index()].flag || self.at_ease == 0 {
            return None;
        }
        let pressure = |node: Node| &self.pressure[node.index()];
        let at_ease = |node: &Node| !pressure(*node).flag;
        let topology = nodes.topology();
        let neighbours = topology.neighbours(at).iter().copied().filter(at_ease);
        neighbours
            .min_by_key(|&node| (Reverse(nodes.free(node)), pressure(node).misses_before))
            .or_else(|| topology.nearest(at).iter().copied().find(at_ease))
    }

    fn forwards(&self) -> bool {
        true
    }

    fn accesses_wanted(&self) -> AccessesWanted {
        AccessesWanted::All
    }

    #[inline]
    fn prefetch(&self, accesses: &[Access]) {
        let totals = accesses
            .iter()
            .map(|access| self.blocks.total(access.block));
        std::hint::black_box(totals.fold(0, |sum, total| sum ^ total));
    }
}

/// The counters of each block: a row of bytes, which for up to 28 nodes is half a cache line. It
/// has one counter a node, their sum, whether the block was ever written, and the node that fetched
/// it.
struct BlockCounters {
    nodes: usize,
    row: usize,
    /// The beginning of the first row, at a cache line.
    start: usize,
    bytes: Vec<u8>,
}

const CACHE_LINE_BYTES: usize = 64;

/// Bytes of a row after the counters, by offset.
const TOTAL: usize = 0;
const WRITTEN: usize = 1;
const FETCHED_BY: usize = 2;
const TAIL_BYTES: usize = 4;

impl BlockCounters {
    fn new(nodes: usize, blocks: u32) -> BlockCounters {
        let row = match nodes + TAIL_BYTES {
            small if small <= CACHE_LINE_BYTES => small.next_power_of_two(),
            large => large.next_multiple_of(CACHE_LINE_BYTES),
        };
        let mut counters = BlockCounters {
            nodes,
            row,
            start: 0,
            bytes: Vec::new(),
        };
        counters.grow(blocks);
        counters
    }

    /// Makes room for blocks numbered below `blocks`.
    fn grow(&mut self, blocks: u32) {
        let mut bytes = vec![0u8; blocks as usize * self.row + CACHE_LINE_BYTES];
        let offset = bytes.as_ptr().align_offset(CACHE_LINE_BYTES);
        let start = offset.min(CACHE_LINE_BYTES);
        let known = self.bytes.len().saturating_sub(CACHE_LINE_BYTES);
        bytes[start..][..known].copy_from_slice(&self.bytes[self.start..][..known]);
        (self.start, self.bytes) = (start, bytes);
    }

    /// All of a block's row is void.
    fn forget(&mut self, block: Block) {
        let at = self.at(block);
        self.bytes[at..][..self.row].fill(0);
    }

    #[inline]
    fn at(&self, block: Block) -> usize {
        self.start + block.index() * self.row
    }

    #[inline]
    fn counts(&self, block: Block) -> &[u8] {
        &self.bytes[self.at(block)..][..self.nodes]
    }

    #[inline]
    fn total(&self, block: Block) -> u8 {
        self.bytes[self.at(block) + self.nodes + TOTAL]
    }

    /// Counts an access; returns the number of accesses so far.
    #[inline]
    fn count(&mut self, block: Block, node: Node) -> u8 {
        let at = self.at(block);
        let row = &mut self.bytes[at..][..self.row];
        row[node.index()] += 1;
        row[self.nodes + TOTAL] += 1;
        row[self.nodes + TOTAL]
    }

    fn reset(&mut self, block: Block) {
        let at = self.at(block);
        self.bytes[at..][..=self.nodes + TOTAL].fill(0);
    }

    fn fetched(&mut self, block: Block, by: Node) {
        // Only if no cache took it in at its last fetch.
        if self.total(block) != 0 {
            self.reset(block);
        }
        let at = self.at(block) + self.nodes + FETCHED_BY;
        self.bytes[at..][..2].copy_from_slice(&by.0.to_le_bytes());
    }

    /// Notes a write; returns whether it was the first.
    fn written(&mut self, block: Block) -> bool {
        let at = self.at(block) + self.nodes + WRITTEN;
        std::mem::replace(&mut self.bytes[at], 1) == 0
    }

    /// Whether a block that `by` accesses is shared and was never written.
    fn replicable(&self, block: Block, by: Node) -> bool {
        let tail = &self.bytes[self.at(block) + self.nodes..][..TAIL_BYTES];
        let fetched_by = u16::from_le_bytes([tail[FETCHED_BY], tail[FETCHED_BY + 1]]);
        tail[WRITTEN] == 0 && fetched_by != by.0
    }
}

#[cfg(test)]
mod tests;
