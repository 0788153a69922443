//! Accesses by block and node: what the hardware's reference counters hold, or samples stand for.

use crate::ids::{Block, Node};

/// A counter for each block and node, and which blocks have any.
#[derive(Clone, Debug)]
pub struct Counters {
    nodes: usize,
    counts: Vec<u32>,
    touched: Vec<Block>,
    /// Whether a block is among `touched`.
    known: Vec<bool>,
}

impl Counters {
    /// All zero, for blocks numbered below `blocks`.
    pub fn new(nodes: usize, blocks: u32) -> Counters {
        Counters {
            nodes,
            counts: vec![0; nodes * blocks as usize],
            touched: Vec::new(),
            known: vec![false; blocks as usize],
        }
    }

    /// Counts `count` accesses; a counter that is full stays so.
    #[inline]
    pub fn add(&mut self, block: Block, node: Node, count: u32) {
        let counter = &mut self.counts[block.index() * self.nodes + node.index()];
        *counter = counter.saturating_add(count);
        if !self.known[block.index()] {
            self.known[block.index()] = true;
            self.touched.push(block);
        }
    }

    /// The accesses to a block, a number a node.
    #[inline]
    pub fn of(&self, block: Block) -> &[u32] {
        &self.counts[block.index() * self.nodes..][..self.nodes]
    }

    /// The blocks with any, in order of their first access since the last [`clear`](Counters::clear).
    pub fn touched(&self) -> &[Block] {
        &self.touched
    }

    /// Sets one block's counters to zero; it stays among those touched.
    pub fn reset(&mut self, block: Block) {
        self.counts[block.index() * self.nodes..][..self.nodes].fill(0);
    }

    /// Sets all to zero. Costs as much as was touched.
    pub fn clear(&mut self) {
        for block in self.touched.drain(..) {
            self.counts[block.index() * self.nodes..][..self.nodes].fill(0);
            self.known[block.index()] = false;
        }
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
        counters.clear();
        assert!(counters.touched().is_empty());
        assert_eq!(counters.of(Block(1)), [0, 0, 0]);
    }
}
