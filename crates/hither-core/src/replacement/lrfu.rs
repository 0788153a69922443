//! Least recently/frequently used: every past reference to a block counts, by a weight that halves every 1/lambda
//! references; the sum of the weights (CRF, combined recency and frequency) says what the block is worth. With
//! lambda 0 this is LFU, with 1 it is LRU.
//!
//! Source: Lee, Choi, Kim, Noh, Min, Cho and Kim, "LRFU: a spectrum of policies that subsumes the least recently used
//! and least frequently used policies", IEEE Transactions on Computers 50(12), 2001; F(x) = (1/2)^(lambda x). Blocks of
//! equal worth: the least recently referenced goes. Departures: no correlated-reference period, and a block that left
//! starts anew.
//!
//! All sums fade alike, so none is ever touched for fading: the weight of a reference *grows* instead, by the factor
//! 2^lambda each reference, and sums stay comparable. Numbers that grow for ever are kept as a factor and an epoch, a
//! power of 2^512, so that a reference costs a multiplication and an addition, never an exponential. No libm function
//! is called at all: their last bit differs between machines.
//!
//! Sums only grow, so a hit leaves the heap as it is: a rank in the heap is a lower bound, brought up to date when it
//! comes to the top.

use super::Replacement;
use crate::access::Access;
use crate::heap::IndexedHeap;
use crate::ids::Slot;
use crate::registry::{Entry, Kind, Needs, Param};
use std::cmp::Reverse;

/// The line in the registry.
pub(crate) const ENTRY: Entry = Entry {
    name: "lrfu",
    summary: "weighs all references to a block, recent ones more",
    source: "Lee, Choi, Kim, Noh, Min, Cho and Kim, IEEE ToC 50(12), 2001",
    params: &[Param {
        name: "lambda",
        doc: "a reference loses half its weight every 1/lambda references; 0 is LFU, 1 is LRU",
        kind: Kind::Real {
            default: 0.001,
            min: 0.0,
            max: 1.0,
        },
    }],
    needs: Needs::NOTHING,
    build: |settings, values| Box::new(Lrfu::new(settings.capacity, values.real(0))),
};

/// What an epoch is worth: 2^512, the square root of the range of `f64`.
const EPOCH: f64 = f64::from_bits((1023 + 512) << 52);

/// A positive number without bound, `weight` * 2^(512 * `epoch`) with a weight from 1 up to 2^512, and the tick that
/// decides between equals. The bits of positive floats are ordered as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    epoch: u32,
    weight: u64,
    last: u64,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Lrfu {
    /// 2^lambda.
    growth: f64,
    /// What a reference now weighs.
    weight: f64,
    epoch: u32,
    now: u64,
    /// By slot.
    rank: Vec<Rank>,
    /// The lowest on top; ranks are those of some time ago.
    heap: IndexedHeap<Reverse<Rank>>,
}

impl Lrfu {
    /// For a cache of `capacity` blocks; `lambda` is from 0 to 1.
    pub fn new(capacity: u32, lambda: f64) -> Self {
        let none = Rank {
            epoch: 0,
            weight: 0,
            last: 0,
        };
        Lrfu {
            growth: exp2(lambda),
            weight: 1.0,
            epoch: 0,
            now: 0,
            rank: vec![none; capacity as usize],
            heap: IndexedHeap::new(),
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

    /// The rank of a block that is referenced now and whose earlier references weigh `before`.
    #[inline]
    fn rank(&self, before: f64) -> Rank {
        let (mut weight, mut epoch) = (self.weight + before, self.epoch);
        if weight >= EPOCH {
            weight /= EPOCH;
            epoch += 1;
        }
        Rank {
            epoch,
            weight: weight.to_bits(),
            last: self.now,
        }
    }
}

/// 2^x for x from 0 to 1, by square roots: these are exactly rounded everywhere.
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
        let weight = f64::from_bits(rank.weight);
        let before = match rank.epoch.wrapping_sub(self.epoch) as i32 {
            1 => weight * EPOCH,
            0 => weight,
            -1 => weight / EPOCH,
            // Less than 2^-512 of what a reference now weighs.
            _ => 0.0,
        };
        self.rank[slot.index()] = self.rank(before);
    }

    fn victim(&mut self, _incoming: &Access) -> Slot {
        loop {
            let (Reverse(rank), slot) = self.heap.top().expect("a full cache has a block");
            let now = self.rank[slot as usize];
            if rank == now {
                self.heap.remove(slot);
                return Slot(slot);
            }
            self.heap.set(slot, Reverse(now));
        }
    }

    fn inserted(&mut self, slot: Slot, _access: &Access) {
        self.advance();
        let rank = self.rank(0.0);
        self.rank[slot.index()] = rank;
        self.heap.set(slot.0, Reverse(rank));
    }

    fn removed(&mut self, slot: Slot) {
        self.heap.remove(slot.0);
    }

    fn check(&self, resident: usize) {
        self.heap.check();
        assert_eq!(self.heap.len(), resident);
        assert!((1.0..EPOCH).contains(&self.weight));
        for (slot, rank) in self.rank.iter().enumerate() {
            if let Some(Reverse(stored)) = self.heap.key(slot as u32) {
                assert!(stored <= *rank, "slot {slot} is ranked above its sum");
                assert!((1.0..EPOCH).contains(&f64::from_bits(rank.weight)));
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
