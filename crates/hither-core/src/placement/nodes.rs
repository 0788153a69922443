//! Which node holds which block, and how full each node is. The engine (or the live runtime)
//! updates it; policies read it.

use std::sync::Arc;

use super::events::Action;
use crate::access::Access;
use crate::ids::{Block, Node, Slot};
use crate::random::mix;
use crate::topology::Topology;

/// The copies of all blocks. The first copy of a block is the *original*, and its node is the
/// block's *home*; all other copies are *replicas*.
#[derive(Clone, Debug)]
pub struct Nodes {
    topology: Arc<Topology>,
    capacity: Vec<u32>,
    used: Vec<u32>,
    /// Of the used frames, those that hold none of the blocks.
    others: Vec<u32>,
    /// The home of each block.
    homes: Vec<Home>,
    /// Lists of the copies of blocks with replicas, the original first; unused places are in a list
    /// from `free`.
    lists: Vec<HeldCopy>,
    free: u32,
    now_ns: u64,
    /// The node that has the directory entries of all blocks, if it is one.
    directory: Option<Node>,
}

/// Where the original of a block is. Few blocks have replicas, so this is all that most take.
#[derive(Clone, Copy, Debug)]
struct Home {
    /// The slot of the original, or with replicas the place in `lists` where the copies begin.
    slot_or_list: u32,
    node: Node,
    replicated: bool,
}

impl Home {
    fn alone(node: Node, slot: Slot) -> Home {
        Home {
            slot_or_list: slot.0,
            node,
            replicated: false,
        }
    }
}

/// A copy of a block that has replicas.
#[derive(Clone, Copy, Debug)]
struct HeldCopy {
    next: u32,
    slot: Slot,
    node: Node,
}

const NONE: u32 = u32::MAX;
const NOBODY: Home = Home {
    slot_or_list: 0,
    node: Node(u16::MAX),
    replicated: false,
};

impl Nodes {
    /// Empty nodes that hold `capacity` blocks each, for blocks numbered below `blocks`.
    ///
    /// # Panics
    /// If there is not one capacity a node.
    pub fn new(topology: Arc<Topology>, capacity: Vec<u32>, blocks: u32) -> Nodes {
        assert_eq!(topology.nodes(), capacity.len(), "one capacity a node");
        Nodes {
            used: vec![0; capacity.len()],
            others: vec![0; capacity.len()],
            homes: vec![NOBODY; blocks as usize],
            lists: Vec::new(),
            free: NONE,
            now_ns: 0,
            directory: None,
            topology,
            capacity,
        }
    }

    /// The topology.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// How many nodes.
    pub fn len(&self) -> usize {
        self.capacity.len()
    }

    /// Always false: a topology has a node.
    pub fn is_empty(&self) -> bool {
        self.capacity.is_empty()
    }

    /// All nodes, by number.
    pub fn all(&self) -> impl DoubleEndedIterator<Item = Node> + ExactSizeIterator + use<> {
        (0..self.capacity.len() as u16).map(Node)
    }

    /// The number of blocks.
    pub fn blocks(&self) -> u32 {
        self.homes.len() as u32
    }

    /// How many blocks a node can hold.
    pub fn capacity(&self, node: Node) -> u32 {
        self.capacity[node.index()]
    }

    /// How many frames of a node are in use: its copies, and those of [others](Nodes::set_others).
    pub fn used(&self, node: Node) -> u32 {
        self.used[node.index()]
    }

    /// How many frames of a node are free.
    pub fn free(&self, node: Node) -> u32 {
        self.capacity[node.index()] - self.used[node.index()]
    }

    /// The share of all frames that is free, from 0 to 1.
    pub fn free_ratio(&self) -> f64 {
        let sum = |of: &[u32]| of.iter().map(|&each| f64::from(each)).sum::<f64>();
        1.0 - sum(&self.used) / sum(&self.capacity)
    }

    /// The node that has the directory entry of a block, which others ask where the block is: the
    /// one that rendezvous hashing names.
    pub fn directory(&self, block: Block) -> Node {
        let by_hash = || rendezvous_node(block, self.len());
        self.directory.unwrap_or_else(by_hash)
    }

    /// All of these blocks have their directory entries on this node: in a live cluster, where each
    /// node knows its own share of the blocks.
    pub fn set_directory(&mut self, node: Node) {
        self.directory = Some(node);
    }

    /// Modelled or real time since the start.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// The node with the original.
    #[inline]
    pub fn home(&self, block: Block) -> Option<Node> {
        let home = &self.homes[block.index()];
        (home.node != NOBODY.node).then_some(home.node)
    }

    /// Every copy with its slot, the original first, the latest replica next.
    pub fn copies(&self, block: Block) -> impl Iterator<Item = (Node, Slot)> + '_ {
        let home = self.homes[block.index()];
        let is_alone = home.node != NOBODY.node && !home.replicated;
        let alone = is_alone.then_some((home.node, Slot(home.slot_or_list)));
        alone.into_iter().chain(self.listed(home))
    }

    /// Every copy of a block with replicas, in the same order; none of others.
    fn listed(&self, home: Home) -> impl Iterator<Item = (Node, Slot)> + '_ {
        let mut at = if home.replicated {
            home.slot_or_list
        } else {
            NONE
        };
        std::iter::from_fn(move || {
            let held = self.lists.get(at as usize)?;
            at = held.next;
            Some((held.node, held.slot))
        })
    }

    /// Whether the block has replicas.
    #[inline]
    pub fn replicated(&self, block: Block) -> bool {
        self.homes[block.index()].replicated
    }

    /// Whether a node holds a copy.
    #[inline]
    pub fn holds(&self, block: Block, node: Node) -> bool {
        self.slot(block, node).is_some()
    }

    /// The slot of a node's copy.
    #[inline]
    pub fn slot(&self, block: Block, node: Node) -> Option<Slot> {
        let home = self.homes[block.index()];
        if !home.replicated {
            return (home.node == node).then_some(Slot(home.slot_or_list));
        }
        self.listed(home)
            .find(|(holder, _)| *holder == node)
            .map(|(_, slot)| slot)
    }

    /// The nearest node to `from` that holds the block; among equals the home, then the lowest
    /// number.
    #[inline]
    pub fn nearest(&self, block: Block, from: Node) -> Option<Node> {
        self.nearest_copy(block, from).map(|(node, _)| node)
    }

    /// The same, with the slot of its copy.
    #[inline]
    pub fn nearest_copy(&self, block: Block, from: Node) -> Option<(Node, Slot)> {
        let home = self.homes[block.index()];
        if home.node == NOBODY.node {
            return None;
        }
        if !home.replicated {
            return Some((home.node, Slot(home.slot_or_list)));
        }
        if home.node == from {
            return Some((home.node, self.lists[home.slot_or_list as usize].slot));
        }
        self.listed(home)
            .min_by_key(|&(node, _)| (self.topology.hops(from, node), node != home.node, node))
    }

    /// Drops every copy but the nearest one to `writer`, if there is more than one: what a write
    /// leaves where replicas are not updated.
    pub(super) fn copies_but_nearest(
        &self,
        block: Block,
        writer: Node,
    ) -> impl Iterator<Item = Action> + '_ {
        let kept = self.nearest(block, writer);
        let others = self.copies(block).map(|(at, _)| at);
        others
            .filter(move |&at| Some(at) != kept)
            .map(move |at| Action::Drop { block, at })
    }

    /// Prefetches the homes of the blocks that are accessed next into the processor's cache. No
    /// branch depends on what is read, so the loads run in parallel.
    #[inline]
    pub fn prefetch(&self, accesses: &[Access]) {
        let slots = accesses
            .iter()
            .map(|access| self.homes[access.block.index()].slot_or_list);
        std::hint::black_box(slots.fold(0, |sum, slot| sum ^ slot));
    }

    /// Makes room for blocks numbered below `blocks`.
    pub fn grow(&mut self, blocks: u32) {
        if blocks > self.blocks() {
            self.homes.resize(blocks as usize, NOBODY);
        }
    }

    /// Sets how many frames of a node other memory than these blocks takes, on a live machine: at
    /// most as many as are left.
    pub fn set_others(&mut self, node: Node, frames: u32) {
        let at = node.index();
        let held = self.used[at] - self.others[at];
        self.others[at] = frames.min(self.capacity[at] - held);
        self.used[at] = held + self.others[at];
    }

    /// Sets how many frames a node of a live cluster has, and how many of them are free. The other
    /// ones that hold none of these blocks are taken by others. A node that holds more of these
    /// blocks than would fit has as many frames as it needs.
    pub fn set_frames(&mut self, node: Node, frames: u32, free: u32) {
        let at = node.index();
        let held = self.used[at] - self.others[at];
        self.capacity[at] = frames.max(held.saturating_add(free));
        self.used[at] = self.capacity[at] - free;
        self.others[at] = self.used[at] - held;
    }

    /// Sets the time.
    pub fn set_now_ns(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// Adds a copy: the original if there is none, otherwise a replica.
    ///
    /// # Panics
    /// If the node is full; in debug builds also if it already holds the block.
    #[inline]
    pub fn insert(&mut self, block: Block, node: Node, slot: Slot) {
        debug_assert!(!self.holds(block, node), "{block:?} is at {node:?} already");
        assert!(self.free(node) > 0, "{node:?} is full");
        self.used[node.index()] += 1;
        let home = self.homes[block.index()];
        if home.node == NOBODY.node {
            self.homes[block.index()] = Home::alone(node, slot);
        } else {
            self.insert_replica(block, node, slot);
        }
    }

    fn insert_replica(&mut self, block: Block, node: Node, slot: Slot) {
        let home = self.homes[block.index()];
        let original = if home.replicated {
            home.slot_or_list
        } else {
            self.list(HeldCopy {
                next: NONE,
                slot: Slot(home.slot_or_list),
                node: home.node,
            })
        };
        let next = self.lists[original as usize].next;
        let replica = self.list(HeldCopy { next, slot, node });
        self.lists[original as usize].next = replica;
        let home = &mut self.homes[block.index()];
        (home.slot_or_list, home.replicated) = (original, true);
    }

    /// Puts a copy into an unused place of the lists.
    fn list(&mut self, held: HeldCopy) -> u32 {
        let at = self.free;
        if at == NONE {
            self.lists.push(held);
            return self.lists.len() as u32 - 1;
        }
        let place = &mut self.lists[at as usize];
        self.free = place.next;
        *place = held;
        at
    }

    /// Removes a copy and returns its slot. If it was the original and there are replicas, the
    /// latest of them becomes the original.
    ///
    /// # Panics
    /// If the node does not hold the block.
    pub fn remove(&mut self, block: Block, node: Node) -> Slot {
        self.used[node.index()] -= 1;
        let home = self.homes[block.index()];
        if !home.replicated {
            assert!(home.node == node, "{block:?} is not at {node:?}");
            self.homes[block.index()] = NOBODY;
            return Slot(home.slot_or_list);
        }
        let (mut before, mut at) = (None, home.slot_or_list);
        while self.lists[at as usize].node != node {
            before = Some(at);
            at = self.lists[at as usize].next;
        }
        let HeldCopy { next, slot, .. } = self.lists[at as usize];
        self.release(at);
        let first = match before {
            None => next,
            Some(before) => {
                self.lists[before as usize].next = next;
                home.slot_or_list
            }
        };
        let original = self.lists[first as usize];
        self.homes[block.index()] = Home {
            slot_or_list: first,
            node: original.node,
            replicated: true,
        };
        if original.next == NONE {
            self.release(first);
            self.homes[block.index()] = Home::alone(original.node, original.slot);
        }
        slot
    }

    fn release(&mut self, at: u32) {
        self.lists[at as usize].next = self.free;
        self.free = at;
    }

    /// Moves the original; replicas stay.
    ///
    /// # Panics
    /// If the block has no home or `to` is full; in debug builds also if `to` holds a replica of
    /// it.
    #[inline]
    pub fn migrate(&mut self, block: Block, to: Node, slot: Slot) {
        debug_assert!(!self.holds(block, to), "{block:?} is at {to:?} already");
        assert!(self.free(to) > 0, "{to:?} is full");
        let home = &mut self.homes[block.index()];
        self.used[home.node.index()] -= 1;
        self.used[to.index()] += 1;
        home.node = to;
        if home.replicated {
            let original = &mut self.lists[home.slot_or_list as usize];
            (original.node, original.slot) = (to, slot);
        } else {
            home.slot_or_list = slot.0;
        }
    }

    /// Makes the replica at `node` the original, and the original a replica; nothing moves.
    ///
    /// # Panics
    /// If `node` has no replica of the block.
    pub fn promote(&mut self, block: Block, node: Node) {
        let home = &mut self.homes[block.index()];
        assert!(home.replicated, "{block:?} has no replica");
        let original = home.slot_or_list as usize;
        let mut replica = self.lists[original].next as usize;
        while self.lists[replica].node != node {
            replica = self.lists[replica].next as usize;
        }
        home.node = node;
        // They change places, so that the order of the list stays.
        let next = [original, replica].map(|at| self.lists[at].next);
        self.lists.swap(original, replica);
        (self.lists[original].next, self.lists[replica].next) = next.into();
    }

    /// Walks every invariant and panics on a broken one: a block has one home, its copies are on
    /// different nodes, and no node holds more than fits.
    pub fn check(&self) {
        let mut used = self.others.clone();
        for block in (0..self.blocks()).map(Block) {
            let mut holders: Vec<Node> = self.copies(block).map(|(node, _)| node).collect();
            holders.iter().for_each(|node| used[node.index()] += 1);
            let copies = holders.len();
            holders.sort_unstable();
            holders.dedup();
            assert_eq!(copies, holders.len(), "{block:?} is twice at one node");
            assert_eq!(copies > 1, self.replicated(block), "{block:?}");
            assert_eq!(self.copies(block).next().map(|it| it.0), self.home(block));
        }
        assert_eq!(used, self.used, "frames in use by node");
        let fits = used.iter().zip(&self.capacity);
        assert!(fits.clone().all(|(used, capacity)| used <= capacity));
    }
}

/// The node that rendezvous hashing names for a block.
///
/// # Panics
/// If there are no nodes.
pub fn rendezvous_node(block: Block, nodes: usize) -> Node {
    let score = |node: &Node| mix(mix(u64::from(block.0) + 1) ^ (u64::from(node.0) + 1));
    let highest = (0..nodes as u16).map(Node).max_by_key(score);
    highest.expect("a topology has a node")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    #[test]
    fn copies_come_and_go() {
        let mut nodes = Nodes::new(Arc::new(Topology::uniform(4)), vec![2; 4], 8);
        let (block, held) = (Block(3), |nodes: &Nodes| {
            nodes
                .copies(Block(3))
                .map(|(node, _)| node.0)
                .collect::<Vec<_>>()
        });
        assert_eq!(
            (nodes.home(block), nodes.nearest(block, Node(0))),
            (None, None)
        );
        for (node, slot) in [(2, 7), (0, 8), (3, 9)] {
            nodes.insert(block, Node(node), Slot(slot));
        }
        assert_eq!(held(&nodes), [2, 3, 0]);
        assert_eq!(nodes.slot(block, Node(0)), Some(Slot(8)));
        assert_eq!(
            nodes.nearest(block, Node(1)),
            Some(Node(2)),
            "the original among equals"
        );
        nodes.promote(block, Node(0));
        assert_eq!(held(&nodes), [0, 3, 2]);
        nodes.migrate(block, Node(1), Slot(4));
        assert_eq!(held(&nodes), [1, 3, 2]);
        assert_eq!(nodes.remove(block, Node(1)), Slot(4));
        assert_eq!(nodes.remove(block, Node(2)), Slot(7));
        assert_eq!((held(&nodes), nodes.used(Node(3))), (vec![3], 1));
        nodes.check();
    }

    #[test]
    fn conserved_on_random_runs() {
        let mut random = Random::new(4);
        let mut nodes = Nodes::new(Arc::new(Topology::mesh(&[2, 3])), vec![5; 6], 12);
        for round in 0..4000 {
            if round % 100 == 0 {
                let node = Node(random.below(6) as u16);
                nodes.set_others(node, random.below(7) as u32);
            }
            let (block, node) = (Block(random.below(12) as u32), Node(random.below(6) as u16));
            match (nodes.home(block), nodes.holds(block, node)) {
                (Some(home), true) if home != node && random.below(2) == 0 => {
                    nodes.promote(block, node);
                }
                (_, true) => {
                    nodes.remove(block, node);
                }
                (Some(_), false) if nodes.free(node) > 0 && random.below(2) == 0 => {
                    nodes.migrate(block, node, Slot(0));
                }
                (_, false) if nodes.free(node) > 0 => nodes.insert(block, node, Slot(0)),
                _ => {}
            }
            nodes.check();
        }
    }
}
