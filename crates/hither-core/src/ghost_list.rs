//! The block numbers of recently evicted blocks, in order of eviction; any of them may return at
//! any time. 2Q calls this A1out, S3-FIFO its ghost queue, and ARC and CAR B1 and B2.
//!
//! It is an array in order of arrival. A block that returns leaves a gap, and gaps are closed when
//! they are the larger part. Each block number has its position in that array, which counts only if
//! the block is found there, so positions need not be cleared. That takes four bytes for each block
//! number up to the largest ever evicted, and four to sixteen for each ghost; a linked list needs
//! nine for each block number, and block numbers far outnumber ghosts. For the order of resident
//! blocks a list is better: on SIEVE it was a quarter to a third faster than this (zipf, 20 k to 1
//! M slots, 2026-11), and there each number is in use.

use crate::ids::Block;
use crate::list::NIL;
use crate::weight::{Unit, Weight, Weights};
use std::collections::VecDeque;

/// By block, its position in a queue. Several queues may share these, if no block is in two of
/// them.
pub(crate) type GhostPositions = Vec<u32>;

/// A queue. Its positions are kept outside.
#[derive(Clone, Debug, Default)]
pub(crate) struct GhostQueue<W = Unit> {
    /// The earliest first; [`NIL`] is a gap.
    entries: VecDeque<(u32, W)>,
    /// The position of the first element; positions count arrivals and wrap around.
    start: u32,
    len: u32,
    /// Not kept where all weigh the same.
    weight: u64,
}

impl<W: Weight> GhostQueue<W> {
    /// What they weigh together: their number, in a cache of blocks.
    #[inline]
    pub(crate) fn weight(&self) -> u64 {
        if Weights::<W>::ALIKE {
            self.len.into()
        } else {
            self.weight
        }
    }

    /// Adds `block`, which is in no queue, as the latest.
    #[inline]
    pub(crate) fn push(&mut self, positions: &mut GhostPositions, block: Block, weight: W) {
        if block.index() >= positions.len() {
            positions.resize(block.index() + 1, 0);
        }
        if self.entries.len() > 2 * self.len as usize + 64 {
            self.close_gaps(positions);
        }
        positions[block.index()] = self.start.wrapping_add(self.entries.len() as u32);
        self.entries.push_back((block.0, weight));
        self.len += 1;
        if !Weights::<W>::ALIKE {
            self.weight += weight.get();
        }
    }

    #[inline]
    pub(crate) fn contains(&self, positions: &GhostPositions, block: Block) -> bool {
        self.offset(positions, block).is_some()
    }

    /// Removes `block`; true if it was in the queue.
    #[inline]
    pub(crate) fn take(&mut self, positions: &GhostPositions, block: Block) -> bool {
        let found = self.offset(positions, block);
        if let Some(offset) = found {
            let (_, weight) = std::mem::replace(&mut self.entries[offset], (NIL, W::default()));
            self.len -= 1;
            if !Weights::<W>::ALIKE {
                self.weight -= weight.get();
            }
        }
        found.is_some()
    }

    /// Removes the earliest until those that are left weigh at most `limit`.
    #[inline]
    pub(crate) fn cut(&mut self, limit: u64) {
        while self.weight() > limit {
            let (earliest, weight) = self.entries.pop_front().expect("there are some left");
            self.start = self.start.wrapping_add(1);
            // Without a branch: whether it is a gap cannot be foretold.
            let is_ghost = u32::from(earliest != NIL);
            self.len -= is_ghost;
            if !Weights::<W>::ALIKE {
                self.weight -= u64::from(is_ghost) * weight.get();
            }
        }
    }

    #[inline]
    fn offset(&self, positions: &GhostPositions, block: Block) -> Option<usize> {
        let offset = positions.get(block.index())?.wrapping_sub(self.start) as usize;
        let entry = self.entries.get(offset)?;
        (entry.0 == block.0).then_some(offset)
    }

    #[cold]
    fn close_gaps(&mut self, positions: &mut GhostPositions) {
        self.entries.retain(|&(block, _)| block != NIL);
        for (offset, &(block, _)) in self.entries.iter().enumerate() {
            positions[block as usize] = self.start.wrapping_add(offset as u32);
        }
    }

    fn iter(&self) -> impl Iterator<Item = Block> + '_ {
        let blocks = self.entries.iter().filter(|(block, _)| *block != NIL);
        blocks.map(|&(block, _)| Block(block))
    }

    /// Panics unless every block in it is found and there are as many as it says.
    pub(crate) fn check(&self, positions: &GhostPositions) {
        assert!(self.iter().all(|block| self.contains(positions, block)));
        assert_eq!(self.iter().count(), self.len as usize);
        let weights = self.entries.iter().filter(|(block, _)| *block != NIL);
        let sum: u64 = weights.map(|(_, weight)| weight.get()).sum();
        assert_eq!(sum, self.weight());
    }
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct GhostList<W = Unit> {
    queue: GhostQueue<W>,
    positions: GhostPositions,
}

impl<W: Weight> GhostList<W> {
    /// Remembers `block`, which is no ghost, as the latest.
    #[inline]
    pub(crate) fn push(&mut self, block: Block, weight: W) {
        self.queue.push(&mut self.positions, block, weight);
    }

    /// Forgets `block`; true if it was a ghost.
    #[inline]
    pub(crate) fn take(&mut self, block: Block) -> bool {
        self.queue.take(&self.positions, block)
    }

    /// Forgets the earliest until those that are left weigh at most `limit`.
    #[inline]
    pub(crate) fn cut(&mut self, limit: u64) {
        self.queue.cut(limit);
    }

    /// Panics unless every ghost is found, they weigh at most `limit`, and none is among
    /// `resident`.
    pub(crate) fn check(&self, limit: u64, mut resident: impl Iterator<Item = Block>) {
        self.queue.check(&self.positions);
        assert!(self.queue.weight() <= limit);
        assert!(!resident.any(|block| self.queue.contains(&self.positions, block)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// Starts just before places wrap around.
    #[test]
    fn behave_like_a_deque() {
        let mut random = Random::new(5);
        let mut ghosts = GhostList::<Unit>::default();
        ghosts.queue.start = u32::MAX - 300;
        let mut model: VecDeque<Block> = VecDeque::new();
        let mut gaps = 0;
        for round in 0..20_000 {
            let block = Block(random.below(if round / 2000 % 2 == 0 { 500 } else { 8 }) as u32);
            let at = model.iter().position(|&other| other == block);
            if random.below(20) == 0 {
                let limit = model.len().saturating_sub(3);
                ghosts.cut(limit as u64);
                model.drain(..model.len() - limit);
            } else if random.below(2) == 0 {
                assert_eq!(ghosts.take(block), at.is_some());
                at.map(|at| model.remove(at));
            } else if at.is_none() {
                ghosts.push(block, Unit);
                model.push_back(block);
            }
            ghosts.check(500, std::iter::empty());
            assert!(ghosts.queue.iter().eq(model.iter().copied()));
            gaps = gaps.max(ghosts.queue.entries.len() - model.len());
        }
        assert!(gaps > 64, "gaps were never closed");
    }
}
