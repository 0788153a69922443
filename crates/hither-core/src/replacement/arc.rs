//! Adaptive replacement cache: two recency lists, of blocks seen once (T1) and more than once (T2), each continued by
//! a ghost list of blocks lately evicted from it (B1, B2); a hit in a ghost list moves the target size `p` of T1
//! towards the list whose ghost would have been a hit.
//!
//! Source: Megiddo and Modha, "ARC: a self-tuning, low overhead replacement cache", FAST 2003, figure 4; `p` is a real
//! number as there. Departures, none of which changes a decision unless blocks are removed from outside:
//! - The ghost lists are cut after the insertion rather than before the replacement. The order is indifferent: what is
//!   cut is the oldest ghost, and a T1 that fills the cache alone passes its victim through B1 and out at once.
//! - While slots are free (which outside removals alone can bring about when there are ghosts) a ghost hit promotes
//!   its block but leaves `p`: nothing had to be replaced, so nothing was learnt about what to replace.

use super::Replacement;
use crate::access::Access;
use crate::ids::Slot;
use crate::list::{Links, List};
use crate::registry::{Entry, Needs};

/// The line in the registry.
pub(crate) const ENTRY: Entry = Entry {
    name: "arc",
    summary: "balances recency and frequency, adapting by what its ghosts would have hit",
    source: "Megiddo and Modha, FAST 2003",
    params: &[],
    needs: Needs::NOTHING,
    build: |settings, _| Box::new(Arc::new(settings.capacity)),
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ghost {
    No,
    Once,
    Often,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Arc {
    capacity: u32,
    /// The target size of `once`, from 0 to the capacity.
    target: f64,
    slots: Links,
    /// T1 and T2, over slots.
    once: List,
    often: List,
    is_often: Vec<bool>,
    block: Vec<u32>,
    ghosts: Links,
    /// B1 and B2, over block numbers.
    once_ghosts: List,
    often_ghosts: List,
    ghost: Vec<Ghost>,
}

impl Arc {
    /// For a cache of `capacity` blocks.
    pub fn new(capacity: u32) -> Self {
        Arc {
            capacity,
            target: 0.0,
            slots: Links::new(capacity as usize),
            once: List::default(),
            often: List::default(),
            is_often: vec![false; capacity as usize],
            block: vec![0; capacity as usize],
            ghosts: Links::default(),
            once_ghosts: List::default(),
            often_ghosts: List::default(),
            ghost: Vec::new(),
        }
    }

    fn ghost(&self, block: u32) -> Ghost {
        self.ghost.get(block as usize).copied().unwrap_or(Ghost::No)
    }

    /// Puts an evicted block at the recent end of the ghost list `kind`.
    fn remember(&mut self, block: u32, kind: Ghost) {
        if block as usize >= self.ghost.len() {
            self.ghost.resize(block as usize + 1, Ghost::No);
            self.ghosts.cover(block);
        }
        self.ghost[block as usize] = kind;
        match kind {
            Ghost::Once => self.once_ghosts.push_front(&mut self.ghosts, block),
            Ghost::Often => self.often_ghosts.push_front(&mut self.ghosts, block),
            Ghost::No => unreachable!("an evicted block comes from one of the two lists"),
        }
    }

    /// Restores |T1| + |B1| <= c and |T1| + |T2| + |B1| + |B2| <= 2c by forgetting the oldest ghosts.
    fn cut_ghosts(&mut self) {
        let capacity = self.capacity as usize;
        while self.once.len() + self.once_ghosts.len() > capacity {
            let Some(block) = self.once_ghosts.pop_back(&mut self.ghosts) else {
                break;
            };
            self.ghost[block as usize] = Ghost::No;
        }
        while self.once.len() + self.once_ghosts.len() + self.often.len() + self.often_ghosts.len()
            > 2 * capacity
        {
            let Some(block) = self.often_ghosts.pop_back(&mut self.ghosts) else {
                break;
            };
            self.ghost[block as usize] = Ghost::No;
        }
    }
}

impl Replacement for Arc {
    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        if std::mem::replace(&mut self.is_often[slot.index()], true) {
            self.often.touch(&mut self.slots, slot.0);
        } else {
            self.once.remove(&mut self.slots, slot.0);
            self.often.push_front(&mut self.slots, slot.0);
        }
    }

    fn victim(&mut self, incoming: &Access) -> Slot {
        let ghost = self.ghost(incoming.block.0);
        let once_ghosts = self.once_ghosts.len() as f64;
        let often_ghosts = self.often_ghosts.len() as f64;
        match ghost {
            Ghost::Once => {
                let step = (often_ghosts / once_ghosts).max(1.0);
                self.target = (self.target + step).min(f64::from(self.capacity));
            }
            Ghost::Often => {
                let step = (once_ghosts / often_ghosts).max(1.0);
                self.target = (self.target - step).max(0.0);
            }
            Ghost::No => {}
        }
        let once = self.once.len() as f64;
        let from_once = !self.once.is_empty()
            && (once > self.target
                || (ghost == Ghost::Often && once == self.target)
                || self.often.is_empty());
        let (list, kind) = if from_once {
            (&mut self.once, Ghost::Once)
        } else {
            (&mut self.often, Ghost::Often)
        };
        let slot = list
            .pop_back(&mut self.slots)
            .expect("a full cache has a block in one of the two lists");
        self.remember(self.block[slot as usize], kind);
        Slot(slot)
    }

    fn inserted(&mut self, slot: Slot, access: &Access) {
        let block = access.block.0;
        let ghost = self.ghost(block);
        self.block[slot.index()] = block;
        self.is_often[slot.index()] = ghost != Ghost::No;
        match ghost {
            Ghost::No => self.once.push_front(&mut self.slots, slot.0),
            kind => {
                let list = if kind == Ghost::Once {
                    &mut self.once_ghosts
                } else {
                    &mut self.often_ghosts
                };
                list.remove(&mut self.ghosts, block);
                self.ghost[block as usize] = Ghost::No;
                self.often.push_front(&mut self.slots, slot.0);
            }
        }
        self.cut_ghosts();
    }

    fn removed(&mut self, slot: Slot) {
        let list = if self.is_often[slot.index()] {
            &mut self.often
        } else {
            &mut self.once
        };
        list.remove(&mut self.slots, slot.0);
    }

    fn resized(&mut self, capacity: u32) {
        self.capacity = capacity;
        self.target = self.target.min(f64::from(capacity));
        self.cut_ghosts();
    }

    fn check(&self, resident: usize) {
        self.once.check(&self.slots);
        self.often.check(&self.slots);
        self.once_ghosts.check(&self.ghosts);
        self.often_ghosts.check(&self.ghosts);
        assert_eq!(self.once.len() + self.often.len(), resident);
        assert!(
            self.once
                .iter(&self.slots)
                .all(|slot| !self.is_often[slot as usize])
        );
        assert!(
            self.often
                .iter(&self.slots)
                .all(|slot| self.is_often[slot as usize])
        );
        let count = |kind| self.ghost.iter().filter(|&&ghost| ghost == kind).count();
        assert_eq!(count(Ghost::Once), self.once_ghosts.len());
        assert_eq!(count(Ghost::Often), self.often_ghosts.len());
        for slot in self
            .once
            .iter(&self.slots)
            .chain(self.often.iter(&self.slots))
        {
            let block = self.block[slot as usize];
            assert_eq!(
                self.ghost(block),
                Ghost::No,
                "block {block} is in and a ghost"
            );
        }
        assert!((0.0..=f64::from(self.capacity)).contains(&self.target));
        let capacity = self.capacity as usize;
        assert!(
            self.once_ghosts.is_empty() || self.once.len() + self.once_ghosts.len() <= capacity
        );
        assert!(
            self.often_ghosts.is_empty()
                || resident + self.once_ghosts.len() + self.often_ghosts.len() <= 2 * capacity
        );
    }
}
