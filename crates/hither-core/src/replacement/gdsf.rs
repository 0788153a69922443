//! Greedy-Dual-Size with Frequency: each object has a value, its references since it came in times
//! what it costs to bring in, for each byte. The object with the lowest value is evicted, and its
//! value becomes the age of the cache, which is added to the value of whatever is referenced from
//! then on. So objects that are not used any more fall behind.
//!
//! Source: Cherkasova, "Improving WWW proxies performance with Greedy-Dual-Size-Frequency caching
//! policy", HP Laboratories HPL-98-69, 1998, and libCacheSim's `GDSF`: among equal values the one
//! referenced longest ago goes. A newcomer is always brought in; the report does not cache one that
//! would itself be among the victims. The package of libCacheSim 0.3.5 ranks the newcomer before it
//! chooses victims, so with the age before them, and may evict it. Miss counts differ by 0.02 %.
//!
//! The size is that with which the object came in, and the cost that of its last reference. An
//! object without bytes counts as one of one byte. In a cache of blocks of one size and one cost
//! this is `lfu-da`.

use super::Replacement;
use crate::access::Access;
use crate::entry::{Compared, Mechanism, Needs, ReplacementEntry};
use crate::heap::IndexedHeap;
use crate::ids::{Slot, Tick};
use crate::weight::{self, Bytes, Unit, Weight, Weights};
use std::cmp::Reverse;

/// The line in the registry.
pub(crate) const ENTRY: ReplacementEntry = ReplacementEntry {
    name: "gdsf",
    summary: "evicts what has the fewest references times cost for each byte, and ages the rest",
    source: "Cherkasova, HPL-98-69, 1998",
    params: &[],
    needs: Needs::NOTHING,
    takes_sizes: true,
    live: &[Mechanism::PageCache],
    compared: Compared::ByName,
    build: &|settings, _| match settings.bytes {
        None => Box::new(Gdsf::<Unit>::default()),
        Some(_) => Box::new(Gdsf::<Bytes>::default()),
    },
};

/// Values are per megabyte, as in libCacheSim, so that they are rounded alike.
const MEGABYTE: f64 = 1e6;

/// The value of a block: a number from 0 up. For such numbers the bits are ordered as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    value_bits: u64,
    last: Tick,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Gdsf<W = Unit> {
    /// The value of the last victim.
    age: f64,
    /// By slot, the references since it came in.
    uses: Vec<u64>,
    weight: Weights<W>,
    /// The lowest on top.
    ranked: IndexedHeap<Reverse<Rank>>,
}

impl<W: Weight> Default for Gdsf<W> {
    fn default() -> Self {
        Gdsf {
            age: 0.0,
            uses: Vec::new(),
            weight: Weights::default(),
            ranked: IndexedHeap::new(),
        }
    }
}

impl<W: Weight> Gdsf<W> {
    fn rank(&mut self, slot: Slot, access: &Access) {
        let bytes = self.weight.of(slot.0).get().max(1) as f64;
        let cost = f64::from(access.cost).max(0.0);
        let uses = self.uses[slot.index()] as f64;
        let value = self.age + uses * cost * MEGABYTE / bytes;
        let rank = Rank {
            value_bits: value.to_bits(),
            last: access.tick,
        };
        self.ranked.set(slot.0, Reverse(rank));
    }
}

impl<W: Weight> Replacement for Gdsf<W> {
    #[inline]
    fn hit(&mut self, slot: Slot, access: &Access) {
        self.uses[slot.index()] += 1;
        self.rank(slot, access);
    }

    #[inline]
    fn victim(&mut self, _incoming: &Access) -> Slot {
        let (Reverse(rank), slot) = self.ranked.top().expect("a full cache has blocks");
        self.age = f64::from_bits(rank.value_bits);
        self.ranked.remove(slot);
        Slot(slot)
    }

    #[inline]
    fn inserted(&mut self, slot: Slot, access: &Access) {
        weight::set(&mut self.uses, slot, 1);
        self.weight.set(slot, access);
        self.rank(slot, access);
    }

    fn removed(&mut self, slot: Slot) {
        self.ranked.remove(slot.0);
    }

    fn check(&self, resident: usize) {
        self.ranked.check();
        assert_eq!(self.ranked.len(), resident);
        for slot in 0..self.uses.len() as u32 {
            if let Some(Reverse(rank)) = self.ranked.key(slot) {
                assert!(f64::from_bits(rank.value_bits) >= self.age);
                assert!(self.uses[slot as usize] > 0);
            }
        }
    }
}
