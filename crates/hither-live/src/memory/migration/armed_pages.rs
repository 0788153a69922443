//! Pages that are armed, and were not touched since.

use hither_core::Object;
use rustc_hash::FxHashMap;

/// Pages of an entry.
const ENTRY_PAGES: u32 = u16::BITS;

/// The most entries, in some 32 MiB of memory: armed pages that are never written stay armed.
/// Beyond that number all are forgotten, and their faults, should they come, are no samples.
const ENTRIES_MAX: usize = 1 << 20;

/// Armed pages, a bit each, by region and entry.
#[derive(Debug, Default)]
pub(super) struct ArmedPages(FxHashMap<(Object, u32), u16>);

/// Where a page's bit is.
fn bit_of(page: u32) -> (u32, u16) {
    (page / ENTRY_PAGES, 1 << (page % ENTRY_PAGES))
}

impl ArmedPages {
    /// Whether a page is armed.
    pub(super) fn contains(&self, object: Object, page: u32) -> bool {
        let (entry, bit) = bit_of(page);
        let bits = self.0.get(&(object, entry));
        bits.is_some_and(|bits| bits & bit != 0)
    }

    /// Whether all of these pages are.
    pub(super) fn contains_all(&self, object: Object, mut pages: std::ops::Range<u32>) -> bool {
        pages.all(|page| self.contains(object, page))
    }

    /// A page is armed.
    pub(super) fn insert(&mut self, object: Object, page: u32) {
        if self.0.len() >= ENTRIES_MAX {
            self.0.clear();
        }
        let (entry, bit) = bit_of(page);
        *self.0.entry((object, entry)).or_default() |= bit;
    }

    /// A page is not armed any more. Returns whether it was.
    pub(super) fn remove(&mut self, object: Object, page: u32) -> bool {
        let (entry, bit) = bit_of(page);
        let Some(bits) = self.0.get_mut(&(object, entry)) else {
            return false;
        };
        let was_armed = *bits & bit != 0;
        *bits &= !bit;
        if *bits == 0 {
            self.0.remove(&(object, entry));
        }
        was_armed
    }

    /// No page of a region is armed any more.
    pub(super) fn forget(&mut self, object: Object) {
        self.0.retain(|&(of, _), _| of != object);
    }

    /// The regions that have armed pages, and the last such page at most.
    #[cfg(test)]
    pub(super) fn ends(&self) -> impl Iterator<Item = (Object, u32)> + '_ {
        let entries = self.0.iter();
        entries.map(|(&(object, entry), bits)| (object, entry * ENTRY_PAGES + bits.ilog2()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_armed_one_by_one() {
        let mut armed = ArmedPages::default();
        let (one, other) = (Object(1), Object(2));
        (10..40).for_each(|page| armed.insert(one, page));
        armed.insert(other, 12);
        assert!(armed.contains_all(one, 10..40) && !armed.contains_all(one, 9..40));
        assert!(armed.remove(one, 16) && !armed.remove(one, 16) && !armed.remove(one, 99));
        assert!(!armed.contains(one, 16) && armed.contains(one, 15));
        armed.forget(one);
        assert_eq!(armed.ends().collect::<Vec<_>>(), [(other, 12)]);
    }

    #[test]
    fn there_are_not_too_many() {
        let mut armed = ArmedPages::default();
        for entry in 0..=ENTRIES_MAX as u32 {
            armed.insert(Object(1), entry * ENTRY_PAGES);
        }
        assert_eq!(armed.ends().count(), 1);
    }
}
