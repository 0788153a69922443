//! SIEVE: blocks stay in order of arrival and are never moved. A hand goes from the oldest to the
//! newest, clears the mark of each block that was used since it last passed, and evicts the first
//! block without a mark.
//!
//! Source: Zhang, Yang, Yue, Vigfusson and Rashmi, "SIEVE is simpler than LRU", NSDI 2024,
//! algorithm 1. In CLOCK, blocks that survive count as new; in SIEVE the hand stays where it was,
//! so old survivors are left alone while it sifts the new blocks. No departures; miss counts equal
//! libCacheSim's. A hit sets one byte.

use super::Replacement;
use crate::access::Access;
use crate::entry::{Compared, Mechanism, Needs, ReplacementEntry};
use crate::ids::Slot;
use crate::list::{Links, List, NIL};
use crate::weight;

/// The line in the registry.
pub(crate) const ENTRY: ReplacementEntry = ReplacementEntry {
    name: "sieve",
    summary: "evicts new blocks that are not used again soon, and leaves old ones in place",
    source: "Zhang et al., NSDI 2024",
    params: &[],
    needs: Needs::NOTHING,
    takes_sizes: true,
    live: &[Mechanism::PageCache],
    compared: Compared::ByName,
    build: &|settings, _| Box::new(Sieve::new(settings.capacity)),
};

/// See the module.
#[derive(Clone, Debug)]
pub struct Sieve {
    /// The oldest in front.
    age: List,
    links: Links,
    /// By slot, whether it was used since the hand last passed.
    used: Vec<bool>,
    /// The slot that the hand examines next; [`NIL`]: the oldest at that time.
    hand: u32,
}

impl Sieve {
    /// For a cache of `capacity` blocks.
    pub fn new(capacity: u32) -> Self {
        Sieve {
            age: List::default(),
            links: Links::new(capacity as usize),
            used: vec![false; capacity as usize],
            hand: NIL,
        }
    }
}

impl Replacement for Sieve {
    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        self.used[slot.index()] = true;
    }

    #[inline]
    fn victim(&mut self, _incoming: &Access) -> Slot {
        let oldest = self.age.front().expect("a full cache has blocks");
        if self.hand == NIL {
            self.hand = oldest;
        }
        while std::mem::take(&mut self.used[self.hand as usize]) {
            self.hand = self.age.after(&self.links, self.hand).unwrap_or(oldest);
        }
        let slot = Slot(self.hand);
        self.removed(slot);
        slot
    }

    #[inline]
    fn inserted(&mut self, slot: Slot, _access: &Access) {
        weight::set(&mut self.used, slot, false);
        self.links.cover(slot.0);
        self.age.push_back(&mut self.links, slot.0);
    }

    #[inline]
    fn removed(&mut self, slot: Slot) {
        if self.hand == slot.0 {
            self.hand = self.age.after(&self.links, slot.0).unwrap_or(NIL);
        }
        self.age.remove(&mut self.links, slot.0);
    }

    fn check(&self, resident: usize) {
        self.age.check(&self.links);
        assert_eq!(self.age.len(), resident);
        assert!(self.hand == NIL || self.age.iter(&self.links).any(|slot| slot == self.hand));
    }
}
