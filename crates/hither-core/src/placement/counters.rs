//! Accesses by block and node: the hardware's reference counters, or estimates from samples.

use crate::ids::{Block, Node};

/// A counter for each block and node, and a list of the blocks that were counted.
#[derive(Clone, Debug)]
pub struct Counters {
    nodes: usize,
    counts: Vec<u32>,
    touched: Vec<Block>,
    /// Whether a block is among `touched`.
    known: Vec<bool>,
    /// See [`served`](Counters::served).
    served: Vec<u64>,
}

impl Counters {
    /// All counters zero, for blocks numbered below `blocks`.
    pub fn new(nodes: usize, blocks: u32) -> Counters {
        Counters {
            nodes,
            counts: vec![0; nodes * blocks as usize],
            touched: Vec::new(),
            known: vec![false; blocks as usize],
            served: Vec::new(),
        }
    }

    /// Makes room for blocks numbered below `blocks`.
    pub fn grow(&mut self, blocks: u32) {
        let blocks = (blocks as usize).max(self.known.len());
        self.counts.resize(self.nodes * blocks, 0);
        self.known.resize(blocks, false);
    }

    /// The number of blocks that can be counted.
    pub(crate) fn blocks(&self) -> usize {
        self.known.len()
    }

    /// Adds `count` accesses; counters saturate.
    #[inline]
    pub fn add(&mut self, block: Block, node: Node, count: u32) {
        let counter = &mut self.counts[block.index() * self.nodes + node.index()];
        *counter = counter.saturating_add(count);
        if !self.known[block.index()] {
            self.known[block.index()] = true;
            self.touched.push(block);
        }
    }

    /// Adds accesses to one block, given by node.
    pub fn add_row(&mut self, block: Block, counts: &[u32]) {
        for (counter, &count) in self.row_mut(block).iter_mut().zip(counts) {
            *counter = counter.saturating_add(count);
        }
        if !self.known[block.index()] {
            self.known[block.index()] = true;
            self.touched.push(block);
        }
    }

    /// Adds all counts of another table.
    pub fn add_all(&mut self, other: &Counters) {
        for &block in other.touched() {
            self.add_row(block, other.of(block));
        }
    }

    /// The accesses to a block, by node.
    #[inline]
    pub fn of(&self, block: Block) -> &[u32] {
        &self.counts[block.index() * self.nodes..][..self.nodes]
    }

    /// The counters of a block, for hardware that does not count like [`add`](Counters::add). This
    /// does not put the block among those touched.
    #[inline]
    pub(crate) fn row_mut(&mut self, block: Block) -> &mut [u32] {
        &mut self.counts[block.index() * self.nodes..][..self.nodes]
    }

    /// The counted blocks, in order of their first access since the last
    /// [`clear`](Counters::clear).
    pub fn touched(&self) -> &[Block] {
        &self.touched
    }

    /// The accesses that each node's memory serves, also to blocks that are not in the table. Empty
    /// where the table has all of them.
    pub fn served(&self) -> &[u64] {
        &self.served
    }

    /// Adds to what a node's memory [serves](Counters::served) in all.
    pub fn add_served(&mut self, node: Node, accesses: u64) {
        self.served.resize(self.nodes, 0);
        self.served[node.index()] += accesses;
    }

    /// Sets one block's counters to zero; it stays among those touched.
    pub fn reset(&mut self, block: Block) {
        self.row_mut(block).fill(0);
    }

    /// Sets all counters to zero, in time linear in the touched blocks.
    pub fn clear(&mut self) {
        for block in self.touched.drain(..) {
            self.counts[block.index() * self.nodes..][..self.nodes].fill(0);
            self.known[block.index()] = false;
        }
        self.served.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counted_and_cleared() {
        let mut counters = Counters::new(3, 5);
        counters.add(Block(4), Node(2), 7);
        counters.add(Block(1), Node(0), u32::MAX);
        counters.add(Block(1), Node(0), 2);
        counters.add(Block(4), Node(2), 1);
        assert_eq!(counters.touched(), [Block(4), Block(1)]);
        assert_eq!(counters.of(Block(4)), [0, 0, 8]);
        assert_eq!(counters.of(Block(1)), [u32::MAX, 0, 0]);
        let mut sum = counters.clone();
        sum.add_all(&counters);
        sum.add_row(Block(0), &[1, 2, 3]);
        assert_eq!(sum.touched(), [Block(4), Block(1), Block(0)]);
        assert_eq!(sum.of(Block(4)), [0, 0, 16]);
        assert_eq!(
            (sum.of(Block(1)), sum.of(Block(0))),
            (&[u32::MAX, 0, 0][..], &[1, 2, 3][..])
        );
        assert!(counters.served().is_empty());
        counters.add_served(Node(1), 5);
        assert_eq!(counters.served(), [0, 5, 0]);
        counters.clear();
        assert!(counters.touched().is_empty() && counters.served().is_empty());
        assert_eq!(counters.of(Block(1)), [0, 0, 0]);
    }
}
