//! Slots by a value that ages: what Greedy-Dual-Size and its kin evict by. The lowest value goes,
//! and is from then on added to whatever is referenced, so that what is not used falls behind.

use std::cmp::Reverse;

use crate::access::Access;
use crate::heap::IndexedHeap;
use crate::ids::{Slot, Tick};

/// A value with its age: a number from 0 up. For such numbers the bits are ordered as they are.
/// Among equals the one referenced longest ago is lower.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    value_bits: u64,
    last: Tick,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct AgedRanks {
    /// The value with age of the last victim.
    age: f64,
    /// The lowest on top.
    ranked: IndexedHeap<Reverse<Rank>>,
}

impl AgedRanks {
    pub(crate) fn new() -> Self {
        AgedRanks {
            age: 0.0,
            ranked: IndexedHeap::new(),
        }
    }

    /// What is in `slot` was referenced, and has this value on top of the age.
    #[inline]
    pub(crate) fn set(&mut self, slot: Slot, value: f64, access: &Access) {
        let rank = Rank {
            value_bits: (self.age + value).to_bits(),
            last: access.tick,
        };
        self.ranked.set(slot.0, Reverse(rank));
    }

    /// Takes the slot with the lowest value, which becomes the age.
    #[inline]
    pub(crate) fn pop(&mut self) -> Slot {
        let (Reverse(rank), slot) = self.ranked.top().expect("a full cache has blocks");
        self.age = f64::from_bits(rank.value_bits);
        self.ranked.remove(slot);
        Slot(slot)
    }

    pub(crate) fn remove(&mut self, slot: Slot) {
        self.ranked.remove(slot.0);
    }

    /// Panics unless there are so many slots, and none has fallen behind the age.
    pub(crate) fn check(&self, resident: usize) {
        self.ranked.check();
        assert_eq!(self.ranked.len(), resident);
        let mut values = self.ranked.keys();
        assert!(values.all(|Reverse(rank)| f64::from_bits(rank.value_bits) >= self.age));
    }
}
