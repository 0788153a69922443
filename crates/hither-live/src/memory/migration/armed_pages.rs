//! Pages that are armed and were not touched since, and the touches of others that are no samples
//! yet.

use std::ops::Range;

use hither_core::Object;
use hither_ids::{PageIndex, Tid};
use rustc_hash::FxHashMap;

/// Pages of an entry: a cell's, at the least.
const ENTRY_PAGES: u32 = u16::BITS;

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
struct PageBit {
    entry: u32,
    bit: u16,
}

fn bit_of(page: PageIndex) -> PageBit {
    PageBit {
        entry: page.0 / ENTRY_PAGES,
        bit: 1 << (page.0 % ENTRY_PAGES),
    }
}

impl ArmedPages {
    /// Whether a page is armed.
    pub(super) fn contains(&self, object: Object, page: PageIndex) -> bool {
        let PageBit { entry, bit } = bit_of(page);
        let bits = self.regions.get(&object).and_then(|of| of.get(&entry));
        bits.is_some_and(|bits| bits & bit != 0)
    }

    /// Whether all of these pages are.
    pub(super) fn contains_all(&self, object: Object, mut pages: Range<u32>) -> bool {
        pages.all(|page| self.contains(object, PageIndex(page)))
    }

    /// A page is armed.
    pub(super) fn insert(&mut self, object: Object, page: PageIndex) {
        if self.entries >= ENTRIES_MAX {
            *self = ArmedPages::default();
        }
        let PageBit { entry, bit } = bit_of(page);
        let bits = self.regions.entry(object).or_default().entry(entry);
        let bits = bits.or_default();
        self.entries += usize::from(*bits == 0);
        *bits |= bit;
    }

    /// A page is not armed any more. Returns whether it was.
    pub(super) fn remove(&mut self, object: Object, page: PageIndex) -> bool {
        let PageBit { entry, bit } = bit_of(page);
        let Some(region) = self.regions.get_mut(&object) else {
            return false;
        };
        let Some(bits) = region.get_mut(&entry) else {
            return false;
        };
        let was_armed = *bits & bit != 0;
        *bits &= !bit;
        if *bits == 0 {
            region.remove(&entry);
            self.entries -= 1;
        }
        was_armed
    }

    /// No page of a region is armed any more.
    pub(super) fn forget(&mut self, object: Object) {
        let region = self.regions.remove(&object);
        self.entries -= region.map_or(0, |region| region.len());
    }

    /// The regions that have armed pages, and the last such page at most.
    #[cfg(test)]
    pub(super) fn ends(&self) -> impl Iterator<Item = (Object, PageIndex)> + '_ {
        self.regions.iter().flat_map(|(&object, entries)| {
            let last = |(&entry, bits): (&u32, &u16)| PageIndex(entry * ENTRY_PAGES + bits.ilog2());
            entries.iter().map(move |entry| (object, last(entry)))
        })
    }
}

/// An entry that a thread has touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct TouchedEntry {
    tid: Tid,
    object: Object,
    entry: u32,
}

/// What a thread has touched of an entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Touch {
    /// The CPU that it ran on at the first touch.
    pub(super) cpu: u32,
    pub(super) pages: u32,
}

/// Touches of armed pages, until it is known where the page is. All that a thread touches of an
/// entry meanwhile is one touch, since its pages were armed together.
#[derive(Debug, Default)]
pub(super) struct Touches {
    by_entry: FxHashMap<TouchedEntry, Touch>,
}

impl Touches {
    /// A thread has touched a page. Returns whether it is the first one of its entry.
    pub(super) fn add(&mut self, tid: Tid, (object, page): (Object, PageIndex), cpu: u32) -> bool {
        let PageBit { entry, .. } = bit_of(page);
        let touched = TouchedEntry { tid, object, entry };
        let touch = self.by_entry.entry(touched);
        let touch = touch.or_insert(Touch { cpu, pages: 0 });
        touch.pages += 1;
        touch.pages == 1
    }

    /// Takes what a thread has touched of the entry of a page.
    pub(super) fn take(&mut self, tid: Tid, (object, page): (Object, PageIndex)) -> Option<Touch> {
        let PageBit { entry, .. } = bit_of(page);
        self.by_entry.remove(&TouchedEntry { tid, object, entry })
    }

    /// Pages of a region were unmapped, and nobody will say where they were.
    pub(super) fn cut(&mut self, object: Object, pages: &Range<u32>) {
        let entries = pages.start / ENTRY_PAGES..pages.end.div_ceil(ENTRY_PAGES);
        self.by_entry
            .retain(|touched, _| touched.object != object || !entries.contains(&touched.entry));
    }

    /// Nothing of a region was touched.
    pub(super) fn forget(&mut self, object: Object) {
        self.by_entry.retain(|touched, _| touched.object != object);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_armed_one_by_one() {
        let mut armed = ArmedPages::default();
        let (one, other) = (Object(1), Object(2));
        (10..40).for_each(|page| armed.insert(one, PageIndex(page)));
        armed.insert(other, PageIndex(12));
        assert!(armed.contains_all(one, 10..40) && !armed.contains_all(one, 9..40));
        let touched = [15, 14, 15, 16, 99].map(|page| armed.remove(one, PageIndex(page)));
        assert_eq!(touched, [true, true, false, true, false]);
        assert!(!armed.contains(one, PageIndex(14)) && armed.contains(one, PageIndex(13)));
        armed.forget(one);
        assert_eq!(armed.ends().collect::<Vec<_>>(), [(other, PageIndex(12))]);
    }

    /// Of two threads' touches of pages 16 to 31 of a region, and page 40.
    #[test]
    fn touches_of_a_thread_in_an_entry_are_one() {
        let mut touches = Touches::default();
        let one = Object(3);
        let touched = [(7, 17), (8, 18), (7, 31), (7, 40)];
        let is_first =
            touched.map(|(tid, page)| touches.add(Tid(tid), (one, PageIndex(page)), tid));
        assert_eq!(is_first, [true, true, false, true]);
        let taken = touches.take(Tid(7), (one, PageIndex(17))).expect("touched");
        assert_eq!((taken.pages, taken.cpu), (2, 7));
        assert!(touches.take(Tid(7), (one, PageIndex(17))).is_none());
        // Page 40 is of the entry that is cut.
        touches.cut(one, &(47..48));
        assert!(touches.add(Tid(7), (one, PageIndex(40)), 7));
        touches.forget(one);
        assert!(touches.by_entry.is_empty());
    }

    #[test]
    fn there_are_not_too_many() {
        let mut armed = ArmedPages::default();
        for entry in 0..=ENTRIES_MAX as u32 {
            armed.insert(Object(1), PageIndex(entry * ENTRY_PAGES));
        }
        assert_eq!(armed.ends().count(), 1);
    }
}
