//! The two ghost lists of ARC and CAR: the block numbers of recently evicted blocks, separate for
//! those that were referenced once (B1) and more than once (B2) while they were cached.
//!
//! Two [queues](crate::ghost_list) share one array of positions. It takes four bytes for each block
//! number up to the largest ever evicted, and a miss that is no ghost reads one position.

use crate::ghost_list::{GhostPositions, GhostQueue};
use crate::ids::Block;
use crate::weight::{Unit, Weight};

/// Which ghost list a block is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GhostKind {
    /// Neither.
    No,
    /// B1.
    Once,
    /// B2.
    Often,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct GhostPair<W = Unit> {
    once: GhostQueue<W>,
    often: GhostQueue<W>,
    positions: GhostPositions,
}

impl<W: Weight> GhostPair<W> {
    #[inline]
    pub(crate) fn kind(&self, block: u32) -> GhostKind {
        if self.once.contains(&self.positions, Block(block)) {
            GhostKind::Once
        } else if self.often.contains(&self.positions, Block(block)) {
            GhostKind::Often
        } else {
            GhostKind::No
        }
    }

    /// |B1|
    pub(crate) fn once(&self) -> u64 {
        self.once.weight()
    }

    /// |B2|
    pub(crate) fn often(&self) -> u64 {
        self.often.weight()
    }

    /// Where the target size of T1 goes when a missing block is a ghost of this kind: towards the
    /// list whose ghost would have been a hit, by the weight of the block times as often as the
    /// other list of ghosts is larger, at least once.
    pub(crate) fn adapted(&self, kind: GhostKind, target: f64, capacity: u64, weight: W) -> f64 {
        let (once, often) = (self.once() as f64, self.often() as f64);
        let weight = weight.get() as f64;
        match kind {
            GhostKind::No => target,
            GhostKind::Once => (target + weight * (often / once).max(1.0)).min(capacity as f64),
            GhostKind::Often => (target - weight * (once / often).max(1.0)).max(0.0),
        }
    }

    /// Puts an evicted block at the recent end of the list `kind`.
    pub(crate) fn remember(&mut self, block: u32, kind: GhostKind, weight: W) {
        let queue = match kind {
            GhostKind::Once => &mut self.once,
            GhostKind::Often => &mut self.often,
            GhostKind::No => unreachable!("an evicted block comes from one of the two lists"),
        };
        queue.push(&mut self.positions, Block(block), weight);
    }

    /// Takes a block out of its list, and says which that was.
    pub(crate) fn forget(&mut self, block: u32) -> GhostKind {
        if self.once.take(&self.positions, Block(block)) {
            GhostKind::Once
        } else if self.often.take(&self.positions, Block(block)) {
            GhostKind::Often
        } else {
            GhostKind::No
        }
    }

    /// Restores |T1| + |B1| <= c and |T1| + |T2| + |B1| + |B2| <= 2c by forgetting the oldest
    /// ghosts, where `once` is
    /// |T1|, `often` |T2| and `capacity` c.
    pub(crate) fn cut(&mut self, once: u64, often: u64, capacity: u64) {
        self.once.cut(capacity.saturating_sub(once));
        let others = once + often + self.once();
        self.often.cut((2 * capacity).saturating_sub(others));
    }

    /// Forgets the oldest ghosts of each list until it weighs at most `limit`.
    pub(crate) fn cut_each(&mut self, limit: u64) {
        self.once.cut(limit);
        self.often.cut(limit);
    }

    /// Panics unless both lists are sound and as [`GhostPair::cut_each`] leaves them, and no
    /// `resident` block is a ghost.
    pub(crate) fn check_each(&self, limit: u64, mut resident: impl Iterator<Item = u32>) {
        self.once.check(&self.positions);
        self.often.check(&self.positions);
        assert!(self.once().max(self.often()) <= limit);
        assert!(resident.all(|block| self.kind(block) == GhostKind::No));
    }

    /// Panics unless both lists are sound and as [`GhostPair::cut`] leaves them, and no `resident`
    /// block is a ghost.
    pub(crate) fn check(
        &self,
        once: u64,
        often: u64,
        capacity: u64,
        resident: impl Iterator<Item = u32>,
    ) {
        self.once.check(&self.positions);
        self.often.check(&self.positions);
        for block in resident {
            assert_eq!(
                self.kind(block),
                GhostKind::No,
                "block {block} is in and a ghost"
            );
        }
        assert!(self.once() == 0 || once + self.once() <= capacity);
        let total = once + often + self.once() + self.often();
        assert!(self.often() == 0 || total <= 2 * capacity);
    }
}
