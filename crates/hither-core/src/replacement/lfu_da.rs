//! Least frequently used with dynamic aging: each block has a key, its references since it came in
//! plus the age of the cache at the last of them. The age is the key of the last victim. So blocks
//! that were popular once are overtaken, which they are not under `lfu`.
//!
//! Source: Arlitt, Cherkasova, Dilley, Friedrich and Jin, "Evaluating content management techniques
//! for Web proxy caches", ACM SIGMETRICS Performance Evaluation Review 27(4), 2000. Among equal
//! keys the block referenced longest ago goes.
//!
//! libCacheSim's `LFUDA` is `hits=age`: a hit adds the lowest key in the cache to the block's key,
//! rather than 1 to its references. Before the first eviction that is 0, so until then hits do not
//! count. Miss counts are equal then.
//!
//! Sizes do not matter: `gdsf` is this, for each byte.

use super::Replacement;
use crate::access::Access;
use crate::entry::{Compared, Mechanism, Needs, Param, ReplacementEntry};
use crate::heap::IndexedHeap;
use crate::ids::{Slot, Tick};
use crate::weight;
use std::cmp::Reverse;

/// The line in the registry.
pub(crate) const ENTRY: ReplacementEntry = ReplacementEntry {
    name: "lfu-da",
    summary: "evicts the least frequently used block, where use long ago counts for less",
    source: "Arlitt et al., PER 27(4), 2000",
    params: PARAMS,
    needs: Needs::NOTHING,
    takes_sizes: true,
    live: &[Mechanism::PageCache],
    compared: Compared::ByName,
    build: &|_, values| Box::new(LfuDa::new(values.name(0) == "age")),
};

const PARAMS: &[Param] = &[Param::name(
    "hits",
    "what a hit adds: one reference, on top of the present age, or the present age to the key (as \
     in libCacheSim)",
    "one",
    &["one", "age"],
)];

/// The key of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    key: u64,
    last: Tick,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct LfuDa {
    add_age: bool,
    /// The key of the last victim. With `add_age` the lowest key in the cache, from the first
    /// eviction on.
    age: u64,
    /// By slot, the references since it came in.
    uses: Vec<u64>,
    /// The lowest on top.
    ranked: IndexedHeap<Reverse<Key>>,
}

impl LfuDa {
    /// If `add_age`, a hit adds the age to the key, as in libCacheSim.
    pub fn new(add_age: bool) -> Self {
        LfuDa {
            add_age,
            age: 0,
            uses: Vec::new(),
            ranked: IndexedHeap::new(),
        }
    }

    fn rank(&mut self, slot: Slot, key: u64, access: &Access) {
        let last = access.tick;
        self.ranked.set(slot.0, Reverse(Key { key, last }));
    }

    /// With `add_age`, from the first eviction on, the age is the lowest key.
    fn follow_the_lowest(&mut self) {
        if let Some((Reverse(lowest), _)) = self.ranked.top()
            && self.add_age
            && self.age > 0
        {
            self.age = self.age.max(lowest.key);
        }
    }
}

impl Replacement for LfuDa {
    #[inline]
    fn hit(&mut self, slot: Slot, access: &Access) {
        self.uses[slot.index()] += 1;
        let key = if self.add_age {
            let Reverse(before) = self.ranked.key(slot.0).expect("it is in the cache");
            before.key.saturating_add(self.age)
        } else {
            self.age + self.uses[slot.index()]
        };
        self.rank(slot, key, access);
        self.follow_the_lowest();
    }

    #[inline]
    fn victim(&mut self, _incoming: &Access) -> Slot {
        let (Reverse(lowest), slot) = self.ranked.top().expect("a full cache has blocks");
        self.age = lowest.key;
        self.removed(Slot(slot));
        Slot(slot)
    }

    #[inline]
    fn inserted(&mut self, slot: Slot, access: &Access) {
        weight::set(&mut self.uses, slot, 1);
        self.rank(slot, self.age.saturating_add(1), access);
    }

    fn removed(&mut self, slot: Slot) {
        self.ranked.remove(slot.0);
        self.follow_the_lowest();
    }

    fn check(&self, resident: usize) {
        self.ranked.check();
        assert_eq!(self.ranked.len(), resident);
        for slot in 0..self.uses.len() as u32 {
            if let Some(Reverse(key)) = self.ranked.key(slot) {
                assert!(key.key >= self.age);
            }
        }
    }
}
