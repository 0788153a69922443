//! CAMP: each object has a value, what it costs to bring in for each byte, rounded to a few
//! significant bits. The object with the lowest value plus age is evicted, and that becomes the age
//! of the cache, which counts for whatever is referenced from then on. References are not counted:
//! it is `gdsf` without frequency. Blocks of one size and one cost are in LRU order.
//!
//! Source: Ghandeharizadeh, Irani, Lam and Yap, "CAMP: a cost adaptive multi-queue eviction policy
//! for key-value stores", Middleware 2014; without rounding it is Greedy-Dual-Size (Cao and Irani,
//! "Cost-aware WWW proxy caching algorithms", USITS 1997). The paper keeps an LRU queue for each
//! rounded value, and a heap of these, so that a hit is cheap. Within a queue recency and age
//! agree, so one heap of all objects makes the same decisions; that is what is here.
//!
//! Readings: the paper makes values whole numbers, by a factor that follows the largest object.
//! Here they are real ones, whose mantissa is cut. Of equal ones the least recent goes. An object
//! without bytes counts as one of one byte; the size is that with which the object came in, and the
//! cost that of its last reference.

use super::Replacement;
use crate::access::Access;
use crate::aged_ranks::AgedRanks;
use crate::entry::{Compared, Mechanism, Needs, Param, ReplacementEntry};
use crate::ids::Slot;
use crate::weight::{Bytes, Unit, Weight, Weights};

/// The line in the registry.
pub(crate) const ENTRY: ReplacementEntry = ReplacementEntry {
    name: "camp",
    summary: "evicts what costs least for each byte, roughly, and was not used for long",
    source: "Ghandeharizadeh et al., Middleware 2014",
    params: PARAMS,
    needs: Needs::NOTHING,
    takes_sizes: true,
    live: &[Mechanism::PageCache],
    compared: Compared::ByName,
    build: &|settings, values| match settings.bytes {
        None => Box::new(Camp::<Unit>::new(values.count(0) as u32)),
        Some(_) => Box::new(Camp::<Bytes>::new(values.count(0) as u32)),
    },
};

const PARAMS: &[Param] = &[Param::count(
    "precision",
    "how many significant bits of cost for each byte are kept; 53: all (Greedy-Dual-Size)",
    5,
    1..=53,
)];

/// See the module.
#[derive(Clone, Debug)]
pub struct Camp<W = Unit> {
    precision: u32,
    weight: Weights<W>,
    ranked: AgedRanks,
}

impl<W: Weight> Camp<W> {
    /// Keeps `precision` bits of values, from 1 to 53.
    pub fn new(precision: u32) -> Self {
        Camp {
            precision,
            weight: Weights::default(),
            ranked: AgedRanks::new(),
        }
    }

    fn rank(&mut self, slot: Slot, access: &Access) {
        let bytes = self.weight.of(slot.0).get().max(1) as f64;
        let value = f64::from(access.cost).max(0.0) / bytes;
        let cut = f64::MANTISSA_DIGITS - self.precision;
        let value = f64::from_bits(value.to_bits() >> cut << cut);
        self.ranked.set(slot, value, access);
    }
}

impl<W: Weight> Replacement for Camp<W> {
    #[inline]
    fn hit(&mut self, slot: Slot, access: &Access) {
        self.rank(slot, access);
    }

    #[inline]
    fn victim(&mut self, _incoming: &Access) -> Slot {
        self.ranked.pop()
    }

    #[inline]
    fn inserted(&mut self, slot: Slot, access: &Access) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Block;

    /// Of two objects of one size the dearer stays, though it is older, until it has aged.
    #[test]
    fn what_costs_more_stays_longer() {
        let access = |tick: u32, cost| Access {
            cost,
            bytes: 1,
            ..Access::bare(tick.into(), Block(tick))
        };
        let mut policy = Camp::<Bytes>::new(5);
        policy.inserted(Slot(0), &access(0, 3.0));
        policy.inserted(Slot(1), &access(1, 1.0));
        let victims = (2..6).map(|tick| {
            let slot = policy.victim(&access(tick, 1.0));
            policy.inserted(slot, &access(tick, 1.0));
            policy.check(2);
            slot.0
        });
        assert_eq!(victims.collect::<Vec<_>>(), [1, 1, 0, 1]);
    }
}
