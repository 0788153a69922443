//! Least recently/frequently used: every past reference to a block counts, with a weight that
//! halves every 1/lambda references. The sum of the weights (CRF, combined recency and frequency)
//! is the block's value. With lambda 0 this is LFU, with 1 it is LRU.
//!
//! Source: Lee, Choi, Kim, Noh, Min, Cho and Kim, "LRFU: a spectrum of policies that subsumes the
//! least recently used and least frequently used policies", IEEE Transactions on Computers 50(12),
//! 2001; F(x) = (1/2)^(lambda x). Among blocks of equal value the least recently referenced one is
//! evicted. Departures: there is no correlated-reference period, and an evicted block starts anew.
//!
//! All sums fade alike, so none has to be updated for that. Instead the weight of a reference
//! *grows* by the factor 2^lambda with each reference, and sums stay comparable. These ever-growing
//! numbers are kept as a weight and an epoch, a power of 2^512, so that a reference costs a
//! multiplication and an addition, and never an exponential. No function of libm is called: their
//! last bits differ between machines.
//!
//! Blocks referenced once are in a list, where the order of arrival is the order of value; the
//! others are in a heap. Sums only grow, so a hit leaves the heap as it is: a rank in the heap is a
//! lower bound, and is updated when it comes to the top.

use super::Replacement;
use crate::access::Access;
use crate::entry::{Compared, Mechanism, Needs, Param, ReplacementEntry};
use crate::heap::IndexedHeap;
use crate::ids::Slot;
use crate::list::{Links, List};
use std::cmp::Reverse;

/// The line in the registry.
pub(crate) const ENTRY: ReplacementEntry = ReplacementEntry {
    name: "lrfu",
    summary: "weighs all references to a block, recent ones more",
    source: "Lee, Choi, Kim, Noh, Min, Cho and Kim, IEEE ToC 50(12), 2001",
    params: &[Param::real(
        "lambda",
        "a reference loses half its weight every 1/lambda references; 0 is LFU, 1 is LRU",
        0.001,
        0.0..=1.0,
    )],
    needs: Needs::NOTHING,
    takes_sizes: false,
    live: &[Mechanism::PageCache],
    compared: Compared::ByName,
    build: &|settings, values| Box::new(Lrfu::new(settings.capacity, values.real(0))),
};

/// The factor from one epoch to the next: 2^512, the square root of the range of `f64`.
const EPOCH: f64 = f64::from_bits((1023 + 512) << 52);

/// A positive number without bound, `weight` * 2^(512 * `epoch`) with a weight from 1 up to 2^512,
/// and the tick that decides between equals. Both are in one integer with the same order: 28 bits
/// of epoch, 61 of weight (the bits of positive floats are ordered, and 1 is taken as 0), 39 of
/// tick. That is enough for 10^11 references at lambda 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct CrfRank(u128);

const TICK_BITS: u32 = 39;
const WEIGHT_BITS: u32 = 61;

impl CrfRank {
    #[inline]
    fn new(epoch: u32, weight: f64, tick: u64) -> Self {
        let weight = weight.to_bits() - 1.0f64.to_bits();
        CrfRank(
            u128::from(epoch) << (WEIGHT_BITS + TICK_BITS)
                | u128::from(weight) << TICK_BITS
                | u128::from(tick),
        )
    }

    #[inline]
    fn epoch(self) -> u32 {
        (self.0 >> (WEIGHT_BITS + TICK_BITS)) as u32
    }

    #[inline]
    fn weight(self) -> f64 {
        let weight = (self.0 >> TICK_BITS) as u64 & ((1 << WEIGHT_BITS) - 1);
        f64::from_bits(weight + 1.0f64.to_bits())
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Lrfu {
    /// 2^lambda.
    growth: f64,
    /// The weight of a reference now.
    weight: f64,
    epoch: u32,
    now: u64,
    /// By slot.
    rank: Vec<CrfRank>,
    links: Links,
    /// Slots whose block was referenced once, the latest in front.
    once: List,
    /// The others, the lowest on top; a rank may be out of date, and then it is too low.
    often: IndexedHeap<Reverse<CrfRank>>,
    is_often: Vec<bool>,
}

impl Lrfu {
    /// For a cache of `capacity` blocks; `lambda` is from 0 to 1.
    pub fn new(capacity: u32, lambda: f64) -> Self {
        Lrfu {
            growth: exp2(lambda),
            weight: 1.0,
            epoch: 0,
            now: 0,
            rank: vec![CrfRank(0); capacity as usize],
            links: Links::new(capacity as usize),
            once: List::default(),
            often: IndexedHeap::new(),
            is_often: vec![false; capacity as usize],
        }
    }

    #[inline]
    fn advance(&mut self) {
        self.now += 1;
        self.weight *= self.growth;
        if self.weight >= EPOCH {
            self.weight /= EPOCH;
            self.epoch += 1;
        }
    }

    /// The rank of a block that is referenced now and whose earlier references have the weight
    /// `before`.
    #[inline]
    fn rank(&self, before: f64) -> CrfRank {
        let (mut weight, mut epoch) = (self.weight + before, self.epoch);
        if weight >= EPOCH {
            weight /= EPOCH;
            epoch += 1;
        }
        CrfRank::new(epoch, weight, self.now)
    }
}

/// 2^x for x from 0 to 1, by square roots, which are rounded exactly on every machine.
fn exp2(x: f64) -> f64 {
    let (mut result, mut root, mut rest) = (1.0f64, 2.0f64, x);
    while rest > 0.0 && root > 1.0 {
        if rest >= 1.0 {
            result *= root;
            rest -= 1.0;
        }
        root = root.sqrt();
        rest *= 2.0;
    }
    result
}

impl Replacement for Lrfu {
    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        self.advance();
        let rank = self.rank[slot.index()];
        let weight = rank.weight();
        let before = match rank.epoch().wrapping_sub(self.epoch) as i32 {
            1 => weight * EPOCH,
            0 => weight,
            -1 => weight / EPOCH,
            // Less than 2^-512 of the weight of a reference now.
            _ => 0.0,
        };
        let rank = self.rank(before);
        self.rank[slot.index()] = rank;
        if !std::mem::replace(&mut self.is_often[slot.index()], true) {
            self.once.remove(&mut self.links, slot.0);
            self.often.set(slot.0, Reverse(rank));
        }
    }

    fn victim(&mut self, _incoming: &Access) -> Slot {
        let once = self.once.back();
        let slot = loop {
            let Some((Reverse(rank), slot)) = self.often.top() else {
                break once.expect("a full cache has a block");
            };
            if let Some(once) = once.filter(|&once| self.rank[once as usize] < rank) {
                break once;
            }
            let now = self.rank[slot as usize];
            if rank == now {
                break slot;
            }
            self.often.set(slot, Reverse(now));
        };
        self.removed(Slot(slot));
        Slot(slot)
    }

    #[inline]
    fn inserted(&mut self, slot: Slot, _access: &Access) {
        self.advance();
        self.rank[slot.index()] = self.rank(0.0);
        self.is_often[slot.index()] = false;
        self.once.push_front(&mut self.links, slot.0);
    }

    fn removed(&mut self, slot: Slot) {
        if self.is_often[slot.index()] {
            self.often.remove(slot.0);
        } else {
            self.once.remove(&mut self.links, slot.0);
        }
    }

    fn check(&self, resident: usize) {
        self.once.check(&self.links);
        self.often.check();
        assert_eq!(self.once.len() + self.often.len(), resident);
        assert!((1.0..EPOCH).contains(&self.weight));
        let mut before = CrfRank(u128::MAX);
        for slot in self.once.iter(&self.links) {
            let rank = self.rank[slot as usize];
            assert!(!self.is_often[slot as usize]);
            assert!(rank < before, "slot {slot} is out of order");
            before = rank;
        }
        for (slot, rank) in self.rank.iter().enumerate() {
            if let Some(Reverse(stored)) = self.often.key(slot as u32) {
                assert!(self.is_often[slot]);
                assert!(stored <= *rank, "slot {slot} is ranked above its sum");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_two() {
        for (x, power) in [(0.0, 1.0), (0.5, 2.0f64.sqrt()), (1.0, 2.0)] {
            assert_eq!(exp2(x), power);
        }
        for step in 1..1000 {
            let x = f64::from(step) / 1000.0;
            assert!((exp2(x) / x.exp2() - 1.0).abs() < 1e-14, "{x}");
        }
    }
}
