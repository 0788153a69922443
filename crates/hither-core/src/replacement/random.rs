//! Random: evicts any block, all with the same probability.
//!
//! Source: Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems
//! Journal 5(2), 1966, its algorithm RAND. A policy that does not beat it has learnt nothing. It
//! has no worst access pattern, so it beats LRU on loops.
//!
//! The choice depends on the seed and the accesses alone, so a run can be repeated.

use super::Replacement;
use crate::access::Access;
use crate::entry::{Compared, Mechanism, Needs, Param, ReplacementEntry};
use crate::ids::Slot;
use crate::random::Random as Generator;
use crate::weight;

/// The line in the registry.
pub(crate) const ENTRY: ReplacementEntry = ReplacementEntry {
    name: "random",
    summary: "evicts any block, all equally likely",
    source: "Belady, IBM Systems Journal 5(2), 1966",
    params: PARAMS,
    needs: Needs::NOTHING,
    takes_sizes: true,
    live: &[Mechanism::PageCache],
    compared: Compared::ByName,
    build: &|settings, values| Box::new(Random::new(settings.capacity, values.count(0))),
};

const PARAMS: &[Param] = &[Param::count(
    "seed",
    "the seed of the random numbers",
    1,
    0..=u64::MAX,
)];

/// See the module.
#[derive(Clone, Debug)]
pub struct Random {
    generator: Generator,
    /// The filled slots, in any order; a slot that leaves is replaced by the last.
    members: Vec<u32>,
    /// By slot, its index in `members`.
    place: Vec<u32>,
}

impl Random {
    /// For a cache of `capacity` blocks.
    pub fn new(capacity: u32, seed: u64) -> Self {
        Random {
            generator: Generator::new(seed),
            members: Vec::new(),
            place: vec![0; capacity as usize],
        }
    }
}

impl Replacement for Random {
    #[inline]
    fn hit(&mut self, _slot: Slot, _access: &Access) {}

    #[inline]
    fn victim(&mut self, _incoming: &Access) -> Slot {
        let at = self.generator.below(self.members.len() as u64);
        let slot = Slot(self.members[at as usize]);
        self.removed(slot);
        slot
    }

    #[inline]
    fn inserted(&mut self, slot: Slot, _access: &Access) {
        weight::set(&mut self.place, slot, self.members.len() as u32);
        self.members.push(slot.0);
    }

    #[inline]
    fn removed(&mut self, slot: Slot) {
        let at = self.place[slot.index()];
        self.members.swap_remove(at as usize);
        if let Some(&moved) = self.members.get(at as usize) {
            self.place[moved as usize] = at;
        }
    }

    fn check(&self, resident: usize) {
        assert_eq!(self.members.len(), resident);
        for (at, &slot) in self.members.iter().enumerate() {
            assert_eq!(self.place[slot as usize] as usize, at);
        }
    }
}
