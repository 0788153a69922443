//! Adaptive replacement cache: two recency lists, of blocks seen once (T1) and more than once (T2),
//! each continued by a ghost list of blocks recently evicted from it (B1, B2). A hit in a ghost
//! list moves the target size `p` of T1 in favour of the list that would have had the hit.
//!
//! Source: Megiddo and Modha, "ARC: a self-tuning, low overhead replacement cache", FAST 2003,
//! figure 4; `p` is a real number, as there. Departures, which change no decision unless blocks are
//! removed from outside:
//! - The ghost lists are cut after the insertion rather than before the replacement. The order
//!   makes no difference: the oldest ghost is cut, and where T1 fills the cache alone its victim
//!   passes through B1 and is cut at once.
//! - While slots are free (with ghosts present, only after removals from outside) a ghost hit
//!   promotes its block but does not change `p`: nothing had to be replaced, so nothing was learnt
//!   about what to replace.

use super::Replacement;
use crate::access::Access;
use crate::entry::{Compared, Mechanism, Needs, ReplacementEntry};
use crate::ghost_pair::{GhostKind, GhostPair};
use crate::ids::Slot;
use crate::list::{Links, List};

/// The line in the registry.
pub(crate) const ENTRY: ReplacementEntry = ReplacementEntry {
    name: "arc",
    summary: "balances recency and frequency, and adapts to hits in its ghost lists",
    source: "Megiddo and Modha, FAST 2003",
    params: &[],
    needs: Needs::NOTHING,
    live: &[Mechanism::PageCache],
    compared: Compared::Everywhere(2),
    build: &|settings, _| Box::new(Arc::new(settings.capacity)),
};

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
    ghosts: GhostPair,
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
            ghosts: GhostPair::default(),
        }
    }

    fn cut_ghosts(&mut self) {
        let capacity = self.capacity as usize;
        self.ghosts.cut(self.once.len(), self.often.len(), capacity);
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
        let ghost = self.ghosts.kind(incoming.block.0);
        self.target = self.ghosts.adapted(ghost, self.target, self.capacity);
        let once = self.once.len() as f64;
        let from_once = !self.once.is_empty()
            && (once > self.target
                || (ghost == GhostKind::Often && once == self.target)
                || self.often.is_empty());
        let (list, kind) = if from_once {
            (&mut self.once, GhostKind::Once)
        } else {
            (&mut self.often, GhostKind::Often)
        };
        let slot = list
            .pop_back(&mut self.slots)
            .expect("a full cache has a block in one of the two lists");
        self.ghosts.remember(self.block[slot as usize], kind);
        Slot(slot)
    }

    fn inserted(&mut self, slot: Slot, access: &Access) {
        let block = access.block.0;
        let often = self.ghosts.forget(block) != GhostKind::No;
        self.block[slot.index()] = block;
        self.is_often[slot.index()] = often;
        if often {
            self.often.push_front(&mut self.slots, slot.0);
        } else {
            self.once.push_front(&mut self.slots, slot.0);
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
        assert!((0.0..=f64::from(self.capacity)).contains(&self.target));
        let slots = self
            .once
            .iter(&self.slots)
            .chain(self.often.iter(&self.slots));
        self.ghosts.check(
            self.once.len(),
            self.often.len(),
            self.capacity as usize,
            slots.map(|slot| self.block[slot as usize]),
        );
    }
}
