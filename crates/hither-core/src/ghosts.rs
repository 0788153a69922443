//! The block numbers of blocks lately evicted, in order of eviction, from which any can come back at any time: what 2Q
//! calls A1out and S3-FIFO its ghost queue.
//!
//! An array in order of arrival; who comes back leaves a gap, and gaps are closed when they are the larger part. By block
//! number there is only its place in that array, which is believed if the block is found there, so that nobody clears
//! it on forgetting. That is four bytes for every block number up to the largest ever evicted and four to sixteen for
//! every ghost, where a linked list needs nine of the first kind: block numbers far outnumber ghosts. For the order
//! of resident blocks a list is better: on SIEVE it was a quarter to a third faster than this (zipf, 20 k to 1 M
//! slots, 2026-11), and there each number is in use.

use crate::ids::Block;
use crate::list::NIL;
use std::collections::VecDeque;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ghosts {
    /// Earliest first; [`NIL`] is a gap.
    entries: VecDeque<u32>,
    /// The place of the first entry; places count arrivals and wrap around.
    start: u32,
    len: u32,
    /// By block.
    place: Vec<u32>,
}

impl Ghosts {
    /// Remembers `block`, which is no ghost, as the latest.
    #[inline]
    pub(crate) fn push(&mut self, block: Block) {
        if block.index() >= self.place.len() {
            self.place.resize(block.index() + 1, 0);
        }
        if self.entries.len() > 2 * self.len as usize + 64 {
            self.close_gaps();
        }
        self.place[block.index()] = self.start.wrapping_add(self.entries.len() as u32);
        self.entries.push_back(block.0);
        self.len += 1;
    }

    /// Forgets `block`; true if it was a ghost.
    #[inline]
    pub(crate) fn take(&mut self, block: Block) -> bool {
        let found = self.offset(block);
        if let Some(offset) = found {
            self.entries[offset] = NIL;
            self.len -= 1;
        }
        found.is_some()
    }

    /// Forgets the earliest until at most `limit` are left.
    #[inline]
    pub(crate) fn cut(&mut self, limit: u32) {
        while self.len > limit {
            let earliest = self.entries.pop_front().expect("there are some left");
            self.start = self.start.wrapping_add(1);
            self.len -= u32::from(earliest != NIL);
        }
    }

    #[inline]
    fn offset(&self, block: Block) -> Option<usize> {
        let offset = self.place.get(block.index())?.wrapping_sub(self.start) as usize;
        (self.entries.get(offset) == Some(&block.0)).then_some(offset)
    }

    #[cold]
    fn close_gaps(&mut self) {
        self.entries.retain(|&block| block != NIL);
        for (offset, &block) in self.entries.iter().enumerate() {
            self.place[block as usize] = self.start.wrapping_add(offset as u32);
        }
    }

    fn iter(&self) -> impl Iterator<Item = Block> + '_ {
        let blocks = self.entries.iter().filter(|&&block| block != NIL);
        blocks.map(|&block| Block(block))
    }

    /// Panics unless every ghost is found, there are at most `limit`, and none is among `resident`.
    pub(crate) fn check(&self, limit: u32, mut resident: impl Iterator<Item = Block>) {
        assert!(self.iter().all(|block| self.offset(block).is_some()));
        assert_eq!(self.iter().count(), self.len as usize);
        assert!(self.len <= limit);
        assert!(!resident.any(|block| self.offset(block).is_some()));
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
        let mut ghosts = Ghosts {
            start: u32::MAX - 300,
            ..Ghosts::default()
        };
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
            assert!(ghosts.iter().eq(model.iter().copied()));
            gaps = gaps.max(ghosts.entries.len() - model.len());
        }
        assert!(gaps > 64, "gaps were never closed");
    }
}
