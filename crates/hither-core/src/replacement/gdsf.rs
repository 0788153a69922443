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
use crate::aged_ranks::AgedRanks;
use crate::entry::{Compared, Mechanism, Needs, ReplacementEntry};
use crate::ids::Slot;
use crate::weight::{self, Bytes, Unit, Weight, Weights};

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

/// See the module.
#[derive(Clone, Debug)]
pub struct Gdsf<W = Unit> {
    /// By slot, the references since it came in.
    uses: Vec<u64>,
    weight: Weights<W>,
    ranked: AgedRanks,
}

impl<W: Weight> Default for Gdsf<W> {
    fn default() -> Self {
        Gdsf {
            uses: Vec::new(),
            weight: Weights::default(),
            ranked: AgedRanks::new(),
        }
    }
}

impl<W: Weight> Gdsf<W> {
    fn rank(&mut self, slot: Slot, access: &Access) {
        let bytes = self.weight.of(slot.0).get().max(1) as f64;
        let cost = f64::from(access.cost).max(0.0);
        let uses = self.uses[slot.index()] as f64;
        let value = uses * cost * MEGABYTE / bytes;
        self.ranked.set(slot, value, access);
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
        self.ranked.pop()
    }

    #[inline]
    fn inserted(&mut self, slot: Slot, access: &Access) {
        weight::set(&mut self.uses, slot, 1);
        self.weight.set(slot, access);
        self.rank(slot, access);
    }

    fn removed(&mut self, slot: Slot) {
        self.ranked.remove(slot);
    }

    fn check(&self, resident: usize) {
        self.ranked.check(resident);
    }
}
