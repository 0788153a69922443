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
use std::collections::VecDeque;

/// By block, its position in a queue. Several queues may share these, if no block is in two of
/// them.
pub(crate) type GhostPositions = Vec<u32>;

/// A queue. Its positions are kept outside.
#[derive(Clone, Debug, Default)]
pub(crate) struct GhostQueue {
    /// The earliest first; [`NIL`] is a gap.
    entries: VecDeque<u32>,
    /// The position of the first element; positions count arrivals and wrap around.
    start: u32,
    len: u32,
}

impl GhostQueue {
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Adds `block`, which is in no queue, as the latest.
    #[inline]
    pub(crate) fn push(&mut self, positions: &mut GhostPositions, block: Block) {
        if block.index() >= positions.len() {
            positions.resize(block.index() + 1, 0);
        }
        if self.entries.len() > 2 * self.len as usize + 64 {
            self.close_gaps(positions);
        }
        positions[block.index()] = self.start.wrapping_add(self.entries.len() as u32);
        self.entries.push_back(block.0);
        self.len += 1;
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
            self.entries[offset] = NIL;
            self.len -= 1;
        }
        found.is_some()
    }

    /// Removes the earliest until at most `limit` are left.
    #[inline]
    pub(crate) fn cut(&mut self, limit: u32) {
        while self.len > limit {
            let earliest = self.entries.pop_front().expect("there are some left");
            self.start = self.start.wrapping_add(1);
            self.len -= u32::from(earliest != NIL);
        }
    }

    #[inline]
    fn offset(&self, positions: &GhostPositions, block: Block) -> Option<usize> {
        let offset = positions.get(block.index())?.wrapping_sub(self.start) as usize;
        (self.entries.get(offset) == Some(&block.0)).then_some(offset)
    }

    #[cold]
    fn close_gaps(&mut self, positions: &mut GhostPositions) {
        self.entries.retain(|&block| block != NIL);
        for (offset, &block) in self.entries.iter().enumerate() {
            positions[block as usize] = self.start.wrapping_add(offset as u32);
        }
    }

    fn iter(&self) -> impl Iterator<Item = Block> + '_ {
        let blocks = self.entries.iter().filter(|&&block| block != NIL);
        blocks.map(|&block| Block(block))
    }

    /// Panics unless every block in it is found and there are as many as it says.
    pub(crate) fn check(&self, positions: &GhostPositions) {
        assert!(self.iter().all(|block| self.contains(positions, block)));
        assert_eq!(self.iter().count(), self.len as usize);
    }
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct GhostList {
    queue: GhostQueue,
    positions: GhostPositions,
}

impl GhostList {
    /// Remembers `block`, which is no ghost, as the latest.
    #[inline]
    pub(crate) fn push(&mut self, block: Block) {
        self.queue.push(&mut self.positions, block);
    }

    /// Forgets `block`; true if it was a ghost.
    #[inline]
    pub(crate) fn take(&mut self, block: Block) -> bool {
        self.queue.take(&self.positions, block)
    }

    /// Forgets the earliest until at most `limit` are left.
    #[inline]
    pub(crate) fn cut(&mut self, limit: u32) {
        self.queue.cut(limit);
    }

    /// Panics unless every ghost is found, there are at most `limit`, and none is among `resident`.
    pub(crate) fn check(&self, limit: u32, mut resident: impl Iterator<Item = Block>) {
        self.queue.check(&self.positions);
        assert!(self.queue.len() <= limit);
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
        let mut ghosts = GhostList::default();
        ghosts.queue.start = u32::MAX - 300;
        let mut model: VecDeque<Block> = VecDeque::new();
        let mut gaps = 0;
        for round in 0..20_000 {
            let block = Block(random.below(if round / 2000 % 2 == 0 { 500 } else { 8 }) as u32);
            let at = model.iter().position(|&other| other == block);
            if random.below(20) == 0 {
                let limit = model.len().saturating_sub(3);
                ghosts.cut(limit as u32);
                model.drain(..model.len() - limit);
            } else if random.below(2) == 0 {
                assert_eq!(ghosts.take(block), at.is_some());
                at.map(|at| model.remove(at));
            } else if at.is_none() {
                ghosts.push(block);
                model.push_back(block);
            }
            ghosts.check(500, std::iter::empty());
            assert!(ghosts.queue.iter().eq(model.iter().copied()));
            gaps = gaps.max(ghosts.queue.entries.len() - model.len());
        }
        assert!(gaps > 64, "gaps were never closed");
    }
}
