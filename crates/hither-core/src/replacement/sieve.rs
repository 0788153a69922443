//! SIEVE: blocks stand in order of arrival and are never moved; a hand goes from the oldest to the newest, clears the
//! mark of each block that was used since it last came by, and takes the first without a mark.
//!
//! Source: Zhang, Yang, Yue, Vigfusson and Rashmi, "SIEVE is simpler than LRU", NSDI 2024, algorithm 1. Unlike CLOCK, whose
//! survivors are as new as what has just come in, the hand stays where it was: old survivors are left alone while the
//! hand sifts the new ones. No departure; miss counts equal libCacheSim's.
//!
//! A hit sets one byte. The order is a queue with gaps rather than the paper's linked list, so that the hand walks through
//! memory in sequence.

use super::Replacement;
use crate::access::Access;
use crate::ids::Slot;
use crate::list::NIL;
use crate::queue::{Places, Queue};
use crate::registry::{Entry, Needs};

/// The line in the registry.
pub(crate) const ENTRY: Entry = Entry {
    name: "sieve",
    summary: "sifts out new blocks that are not used again soon; leaves old ones in peace",
    source: "Zhang et al., NSDI 2024",
    params: &[],
    needs: Needs::NOTHING,
    build: |settings, _| Box::new(Sieve::new(settings.capacity)),
};

/// See the module.
#[derive(Clone, Debug)]
pub struct Sieve {
    age: Queue,
    places: Places,
    /// By slot, whether it was used since the hand last came by.
    used: Vec<bool>,
    /// The slot that the hand looks at next, or [`NIL`]: the oldest at that time.
    hand: u32,
}

impl Sieve {
    /// For a cache of `capacity` blocks.
    pub fn new(capacity: u32) -> Self {
        Sieve {
            age: Queue::default(),
            places: Places::new(capacity as usize),
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
        let mut offset = match self.hand {
            NIL => 0,
            hand => self.age.offset(&self.places, hand),
        };
        self.hand = loop {
            if let Some(slot) = self.age.at(offset)
                && !std::mem::take(&mut self.used[slot as usize])
            {
                break slot;
            }
            offset += 1;
            if offset == self.age.span() {
                offset = 0;
            }
        };
        let slot = Slot(self.hand);
        self.removed(slot);
        slot
    }

    #[inline]
    fn inserted(&mut self, slot: Slot, _access: &Access) {
        self.used[slot.index()] = false;
        self.age.push(&mut self.places, slot.0);
    }

    #[inline]
    fn removed(&mut self, slot: Slot) {
        if self.hand == slot.0 {
            self.hand = self.age.after(&self.places, slot.0).unwrap_or(NIL);
        }
        self.age.remove(&self.places, slot.0);
    }

    fn check(&self, resident: usize) {
        self.age.check(&self.places);
        assert_eq!(self.age.len(), resident);
        assert!(self.hand == NIL || self.age.contains(&self.places, self.hand));
    }
}
