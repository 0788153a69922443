//! Who reads how much, by file and by call site; and what was evicted, by class.

use hither_core::classify::Class;
use hither_core::replacement::ClassCounts;

use serde::Serialize;

use crate::decision_log::hex;

/// References to blocks, in bytes of these blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReadStats {
    /// All references.
    pub referenced_bytes: u64,
    /// Those that missed in the policy's cache.
    pub missed_bytes: u64,
    /// Those that missed in the LRU cache.
    pub lru_missed_bytes: u64,
}

impl ReadStats {
    pub(super) fn reference(&mut self, bytes: u64, miss: bool, lru_miss: bool) {
        self.referenced_bytes += bytes;
        self.missed_bytes += u64::from(miss) * bytes;
        self.lru_missed_bytes += u64::from(lru_miss) * bytes;
    }
}

/// A call site, and how much it reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SiteStats {
    /// Its signature; 0 where it is unknown.
    #[serde(rename = "site", with = "hex")]
    pub signature: u64,
    /// The class of its last access, by a policy that classifies.
    pub class: Option<Class>,
    /// How much it reads.
    #[serde(flatten)]
    pub tally: ReadStats,
}

/// The last known class of each block, by a policy that classifies. The policy knows a block's
/// class while the block is cached; here it is needed after the eviction.
#[derive(Clone, Debug, Default)]
pub(super) struct BlockClasses {
    /// By block.
    of: Vec<Option<Class>>,
    /// Evicted bytes, by class.
    evicted: ClassCounts,
}

impl BlockClasses {
    pub(super) fn set(&mut self, block: usize, class: Option<Class>) {
        if block >= self.of.len() {
            self.of.resize(block + 1, None);
        }
        self.of[block] = class;
    }

    pub(super) fn evicted(&mut self, block: usize, bytes: u64) {
        match self.of.get(block).copied().flatten() {
            Some(Class::Sequential) => self.evicted.sequential += bytes,
            Some(Class::Looping) => self.evicted.looping += bytes,
            Some(Class::Other) => self.evicted.other += bytes,
            None => {}
        }
    }

    /// Evicted bytes, by class.
    pub(super) fn evicted_bytes(&self) -> ClassCounts {
        self.evicted
    }
}

/// The `count` items with the most referenced bytes, in descending order; equal ones keep their
/// order.
pub(super) fn busiest<T>(
    all: impl Iterator<Item = T>,
    count: usize,
    tally: impl Fn(&T) -> ReadStats,
) -> Vec<T> {
    let referenced = |one: &T| std::cmp::Reverse(tally(one).referenced_bytes);
    let mut all: Vec<T> = all.filter(|one| tally(one).referenced_bytes > 0).collect();
    all.sort_by_key(referenced);
    all.truncate(count);
    all
}

#[cfg(test)]
mod tests {
    use super::super::extents::BLOCK_BYTES;
    use super::*;

    #[test]
    fn the_busiest_come_first_and_the_idle_not_at_all() {
        let of = |blocks: u64| {
            let mut tally = ReadStats::default();
            (0..blocks).for_each(|block| tally.reference(BLOCK_BYTES, block % 2 == 0, true));
            tally
        };
        let all = [(1, of(3)), (2, of(0)), (3, of(5)), (4, of(3))];
        let names = |count| -> Vec<u32> {
            let found = busiest(all.into_iter(), count, |&(_, tally)| tally);
            found.into_iter().map(|(name, _)| name).collect()
        };
        assert_eq!(names(8), [3, 1, 4]);
        assert_eq!(names(2), [3, 1]);
        let ReadStats {
            referenced_bytes,
            missed_bytes,
            lru_missed_bytes,
        } = of(5);
        assert_eq!(
            [referenced_bytes, missed_bytes, lru_missed_bytes].map(|bytes| bytes / BLOCK_BYTES),
            [5, 3, 5]
        );
    }

    #[test]
    fn what_is_given_up_counts_for_the_class_that_it_was_last_taken_for() {
        let mut classes = BlockClasses::default();
        classes.set(2, Some(Class::Other));
        classes.set(2, Some(Class::Looping));
        classes.set(5, Some(Class::Sequential));
        for block in [2, 5, 4, 99, 2] {
            classes.evicted(block, BLOCK_BYTES);
        }
        let ClassCounts {
            sequential,
            looping,
            other,
        } = classes.evicted_bytes();
        assert_eq!(
            [sequential, looping, other],
            [BLOCK_BYTES, 2 * BLOCK_BYTES, 0]
        );
    }
}
