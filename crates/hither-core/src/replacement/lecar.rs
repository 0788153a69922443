//! LeCaR: two experts, LRU and LFU, each name a block, and a draw by their weights decides which of
//! the two is evicted. What was evicted on the advice of one expert alone is remembered as its
//! mistake. If such a block returns, the weight of its expert falls, and falls more if it was soon.
//!
//! Source: Vietri, Rodriguez, Martinez, Lyons, Liu, Rangaswami, Zhao and Narasimhan, "Driving cache
//! replacement with ML-based LeCaR", HotStorage 2018, algorithms 1 and 2, with its learning rate of
//! 0.45 and its discount rate of 0.005^(1/N) for a cache of N blocks; and libCacheSim's `LeCaR`,
//! for the rest:
//! - Where both experts name the same block, nobody is to blame, and it is not remembered.
//! - Each expert's mistakes are remembered up to half the cache. A block's count of references is
//!   lost when it is evicted.
//! - Both weights stay above zero.
//! - Of blocks with the same count, LFU names the least recent.
//!
//! Readings: N is the number of blocks in the cache when one returns, which is also defined where
//! objects have sizes; libCacheSim has the bytes there, so that mistakes hardly age. Weights are
//! compared with a real number; libCacheSim draws one of a hundred. Miss counts differ from its by
//! the random numbers.

use super::Replacement;
use super::lfu::Lfu;
use super::lru::Lru;
use crate::access::Access;
use crate::entry::{Compared, Mechanism, Needs, Param, ReplacementEntry};
use crate::ghost_pair::{GhostKind, GhostPair};
use crate::ids::{Slot, Tick};
use crate::random::Random;
use crate::weight::{self, Bytes, Unit, Weight, Weights};

/// The line in the registry.
pub(crate) const ENTRY: ReplacementEntry = ReplacementEntry {
    name: "lecar",
    summary: "evicts what LRU or LFU says, whichever has made fewer mistakes of late",
    source: "Vietri et al., HotStorage 2018",
    params: PARAMS,
    needs: Needs::NOTHING,
    takes_sizes: true,
    live: &[Mechanism::PageCache],
    compared: Compared::ByName,
    build: &|settings, values| {
        let (rate, seed) = (values.real(0), values.count(1));
        match settings.bytes {
            None => Box::new(LeCaR::<Unit>::new(settings.capacity.into(), rate, seed)),
            Some(bytes) => Box::new(LeCaR::<Bytes>::new(bytes, rate, seed)),
        }
    },
};

const PARAMS: &[Param] = &[
    Param::real(
        "rate",
        "the learning rate: how much a mistake that returns at once counts",
        0.45,
        0.0..=100.0,
    ),
    Param::count("seed", "the seed of the random numbers", 1, 0..=u64::MAX),
];

/// How much a mistake still counts that returns after as many references as there are blocks.
const DISCOUNT: f64 = 0.005;
/// What keeps weights above zero.
const WEIGHT_MIN: f64 = 1e-10;

/// See the module.
#[derive(Clone, Debug)]
pub struct LeCaR<W = Unit> {
    rate: f64,
    history_max: u64,
    random: Random,
    lru: Lru,
    lfu: Lfu,
    resident: usize,
    /// The weight of LRU; LFU has the rest of 1.
    lru_weight: f64,
    block: Vec<u32>,
    weight: Weights<W>,
    /// The mistakes of LRU ([`GhostKind::Once`]) and of LFU.
    mistakes: GhostPair<W>,
    /// By block, when it was evicted, if it is a mistake.
    evicted_at: Vec<Tick>,
}

impl<W: Weight> LeCaR<W> {
    /// For a cache of `capacity` blocks or bytes.
    pub fn new(capacity: u64, rate: f64, seed: u64) -> Self {
        LeCaR {
            rate,
            history_max: capacity / 2,
            random: Random::new(seed),
            lru: Lru::new(0),
            lfu: Lfu::new(0),
            resident: 0,
            lru_weight: 0.5,
            block: Vec::new(),
            weight: Weights::default(),
            mistakes: GhostPair::default(),
            evicted_at: Vec::new(),
        }
    }

    /// A block is missed. If it was a mistake, its expert loses weight.
    fn learn(&mut self, access: &Access) {
        let kind = self.mistakes.forget(access.block.0);
        if kind == GhostKind::No {
            return;
        }
        let away = access.tick - self.evicted_at[access.block.index()];
        let discount = DISCOUNT.powf(away as f64 / self.resident.max(1) as f64);
        let factor = (-self.rate * discount).exp();
        let (mut lru, mut lfu) = (self.lru_weight, 1.0 - self.lru_weight);
        if kind == GhostKind::Once {
            lru *= factor;
        } else {
            lfu *= factor;
        }
        self.lru_weight = (lru + WEIGHT_MIN) / (lru + lfu + 2.0 * WEIGHT_MIN);
    }

    fn remember(&mut self, slot: Slot, kind: GhostKind, now: Tick) {
        let block = self.block[slot.index()];
        if block as usize >= self.evicted_at.len() {
            self.evicted_at.resize(block as usize + 1, 0);
        }
        self.evicted_at[block as usize] = now;
        let weight = self.weight.of(slot.0);
        self.mistakes.remember(block, kind, weight);
        self.mistakes.cut_each(self.history_max);
    }
}

impl<W: Weight> Replacement for LeCaR<W> {
    #[inline]
    fn hit(&mut self, slot: Slot, access: &Access) {
        self.lru.hit(slot, access);
        self.lfu.hit(slot, access);
    }

    fn victim(&mut self, incoming: &Access) -> Slot {
        self.learn(incoming);
        let least_recent = self.lru.least().expect("a full cache has blocks");
        let least_frequent = self.lfu.least().expect("a full cache has blocks");
        let slot = if least_recent == least_frequent {
            least_recent
        } else if self.random.unit() < self.lru_weight {
            self.remember(least_recent, GhostKind::Once, incoming.tick);
            least_recent
        } else {
            self.remember(least_frequent, GhostKind::Often, incoming.tick);
            least_frequent
        };
        self.removed(slot);
        slot
    }

    fn inserted(&mut self, slot: Slot, access: &Access) {
        self.learn(access);
        weight::set(&mut self.block, slot, access.block.0);
        self.weight.set(slot, access);
        self.lru.inserted(slot, access);
        self.lfu.inserted(slot, access);
        self.resident += 1;
    }

    fn removed(&mut self, slot: Slot) {
        self.lru.removed(slot);
        self.lfu.removed(slot);
        self.resident -= 1;
    }

    fn resized(&mut self, capacity: u32) {
        self.history_max = u64::from(capacity / 2);
        self.mistakes.cut_each(self.history_max);
    }

    fn check(&self, resident: usize) {
        self.lru.check(resident);
        self.lfu.check(resident);
        assert_eq!(self.resident, resident);
        assert!((0.0..=1.0).contains(&self.lru_weight));
        let blocks = self.lru.slots().map(|slot| self.block[slot.index()]);
        self.mistakes.check_each(self.history_max, blocks);
    }
}
