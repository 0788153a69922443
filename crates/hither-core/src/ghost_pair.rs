//! The two ghost lists of ARC and CAR: block numbers of blocks lately evicted, apart for those that were referenced
//! once (B1) and more than once (B2) while they were in.
//!
//! Nine bytes for every block number up to the largest ever evicted.

use crate::list::{Links, List};

/// Which ghost list a block is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ghost {
    /// Neither.
    No,
    /// B1.
    Once,
    /// B2.
    Often,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct GhostPair {
    links: Links,
    once: List,
    often: List,
    kind: Vec<Ghost>,
}

impl GhostPair {
    pub(crate) fn new() -> Self {
        GhostPair {
            links: Links::default(),
            once: List::default(),
            often: List::default(),
            kind: Vec::new(),
        }
    }

    #[inline]
    pub(crate) fn kind(&self, block: u32) -> Ghost {
        self.kind.get(block as usize).copied().unwrap_or(Ghost::No)
    }

    /// |B1|
    pub(crate) fn once(&self) -> usize {
        self.once.len()
    }

    /// |B2|
    pub(crate) fn often(&self) -> usize {
        self.often.len()
    }

    /// Puts an evicted block at the recent end of the list `kind`.
    pub(crate) fn remember(&mut self, block: u32, kind: Ghost) {
        if block as usize >= self.kind.len() {
            self.kind.resize(block as usize + 1, Ghost::No);
            self.links.cover(block);
        }
        self.kind[block as usize] = kind;
        match kind {
            Ghost::Once => self.once.push_front(&mut self.links, block),
            Ghost::Often => self.often.push_front(&mut self.links, block),
            Ghost::No => unreachable!("an evicted block comes from one of the two lists"),
        }
    }

    /// Takes a block out of its list.
    pub(crate) fn forget(&mut self, block: u32) {
        let list = match self.kind(block) {
            Ghost::No => return,
            Ghost::Once => &mut self.once,
            Ghost::Often => &mut self.often,
        };
        list.remove(&mut self.links, block);
        self.kind[block as usize] = Ghost::No;
    }

    /// Restores |T1| + |B1| <= c and |T1| + |T2| + |B1| + |B2| <= 2c by forgetting the oldest ghosts, where `once` is
    /// |T1|, `often` |T2| and `capacity` c.
    pub(crate) fn cut(&mut self, once: usize, often: usize, capacity: usize) {
        while once + self.once.len() > capacity {
            let Some(block) = self.once.pop_back(&mut self.links) else {
                break;
            };
            self.kind[block as usize] = Ghost::No;
        }
        while once + often + self.once.len() + self.often.len() > 2 * capacity {
            let Some(block) = self.often.pop_back(&mut self.links) else {
                break;
            };
            self.kind[block as usize] = Ghost::No;
        }
    }

    /// Panics unless both lists are sound and as [`GhostPair::cut`] leaves them, and no `resident` block is a ghost.
    pub(crate) fn check(
        &self,
        once: usize,
        often: usize,
        capacity: usize,
        resident: impl Iterator<Item = u32>,
    ) {
        self.once.check(&self.links);
        self.often.check(&self.links);
        let count = |kind| self.kind.iter().filter(|&&ghost| ghost == kind).count();
        assert_eq!(count(Ghost::Once), self.once.len());
        assert_eq!(count(Ghost::Often), self.often.len());
        for block in resident {
            assert_eq!(
                self.kind(block),
                Ghost::No,
                "block {block} is in and a ghost"
            );
        }
        assert!(self.once.is_empty() || once + self.once.len() <= capacity);
        let total = once + often + self.once.len() + self.often.len();
        assert!(self.often.is_empty() || total <= 2 * capacity);
    }
}
