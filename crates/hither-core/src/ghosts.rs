//! The block numbers of blocks lately evicted, in order of eviction: what 2Q calls A1out and S3-FIFO its ghost queue.
//!
//! Four bytes for every block number up to the largest ever evicted, and four to eight for every ghost.

use crate::ids::Block;
use crate::queue::{Places, Queue};

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ghosts {
    places: Places,
    queue: Queue,
}

impl Ghosts {
    /// Remembers `block`, which is no ghost, as the latest.
    #[inline]
    pub(crate) fn push(&mut self, block: Block) {
        self.places.cover(block.0);
        self.queue.push(&mut self.places, block.0);
    }

    /// Forgets `block`; true if it was a ghost.
    #[inline]
    pub(crate) fn take(&mut self, block: Block) -> bool {
        let found = self.contains(block);
        if found {
            self.queue.remove(&self.places, block.0);
        }
        found
    }

    /// Forgets the earliest until at most `limit` are left.
    #[inline]
    pub(crate) fn cut(&mut self, limit: u32) {
        while self.queue.len() > limit as usize {
            self.queue.pop();
        }
    }

    pub(crate) fn contains(&self, block: Block) -> bool {
        self.queue.contains(&self.places, block.0)
    }

    /// Panics unless there are at most `limit`, none of them among `resident`.
    pub(crate) fn check(&self, limit: u32, mut resident: impl Iterator<Item = Block>) {
        self.queue.check(&self.places);
        assert!(self.queue.len() <= limit as usize);
        assert!(!resident.any(|block| self.contains(block)));
    }
}
