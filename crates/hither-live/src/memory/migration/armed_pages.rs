//! Pages that are armed, and were not touched since.

use hither_core::Object;
use rustc_hash::FxHashMap;

/// Pages of an entry: a cell's, at the least.
pub(crate) const ENTRY_PAGES: u32 = u16::BITS;

/// The most entries, in some 32 MiB of memory: armed pages that are never written stay armed.
/// Beyond that number all are forgotten, and their faults, should they come, are no samples.
const ENTRIES_MAX: usize = 1 << 20;

/// Armed pages, a bit each, by region and entry.
#[derive(Debug, Default)]
pub(super) struct ArmedPages {
    regions: FxHashMap<Object, FxHashMap<u32, u16>>,
    /// Entries of all regions.
    entries: usize,
}

/// Where a page's bit is.
fn bit_of(page: u32) -> (u32, u16) {
    (page / ENTRY_PAGES, 1 << (page % ENTRY_PAGES))
}

impl ArmedPages {
    /// Whether a page is armed.
    pub(super) fn contains(&self, object: Object, page: u32) -> bool {
        let (entry, bit) = bit_of(page);
        let bits = self.regions.get(&object).and_then(|of| of.get(&entry));
        bits.is_some_and(|bits| bits & bit != 0)
    }

    /// Whether all of these pages are.
    pub(super) fn contains_all(&self, object: Object, mut pages: std::ops::Range<u32>) -> bool {
        pages.all(|page| self.contains(object, page))
    }

    /// A page is armed.
    pub(super) fn insert(&mut self, object: Object, page: u32) {
        if self.entries >= ENTRIES_MAX {
            *self = ArmedPages::default();
        }
        let (entry, bit) = bit_of(page);
        let bits = self.regions.entry(object).or_default().entry(entry);
        let bits = bits.or_default();
        self.entries += usize::from(*bits == 0);
        *bits |= bit;
    }

    /// These pages of the entry of `page` are not armed any more. Returns how many of them were.
    pub(super) fn remove(&mut self, object: Object, page: u32, touched: u16) -> u32 {
        let (entry, _) = bit_of(page);
        let Some(region) = self.regions.get_mut(&object) else {
            return 0;
        };
        let Some(bits) = region.get(&entry).copied() else {
            return 0;
        };
        if bits & !touched == 0 {
            region.remove(&entry);
            self.entries -= 1;
        } else {
            region.insert(entry, bits & !touched);
        }
        (bits & touched).count_ones()
    }

    /// No page of a region is armed any more.
    pub(super) fn forget(&mut self, object: Object) {
        let region = self.regions.remove(&object);
        self.entries -= region.map_or(0, |region| region.len());
    }

    /// The regions that have armed pages, and the last such page at most.
    #[cfg(test)]
    pub(super) fn ends(&self) -> impl Iterator<Item = (Object, u32)> + '_ {
        self.regions.iter().flat_map(|(&object, entries)| {
            let last = |(&entry, bits): (&u32, &u16)| entry * ENTRY_PAGES + bits.ilog2();
            entries.iter().map(move |entry| (object, last(entry)))
        })
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
        assert_eq!(armed.remove(one, 15, 0b11 << 14), 2);
        let again = [(15, 1 << 15), (16, 1), (99, 1)];
        let again = again.map(|(page, touched)| armed.remove(one, page, touched));
        assert_eq!(again, [0, 1, 0]);
        assert!(!armed.contains(one, 14) && armed.contains(one, 13));
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
