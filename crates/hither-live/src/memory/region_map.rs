//! Finds the region of an address, and numbers pages densely.
//!
//! A region is one or more pieces of address space, since a part of it may be unmapped. Addresses
//! are looked up by process: two processes may use the same ones, and a forked child's copy is not
//! its parent's region. A region's pages have consecutive numbers, so that a page's number is the
//! region's first one plus the page's index. Numbers are used again once the region is gone.

use std::collections::{BTreeMap, BTreeSet};

use hither_core::Object;
use hither_ids::{Address, PageIndex, Pid};
use rustc_hash::FxHashMap;

/// A part of a region with consecutive addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    end: Address,
    object: Object,
    /// Index of its first page in the region.
    first: u32,
    /// When the region was allocated.
    since_ns: u64,
}

/// Consecutive pages of a region that were unmapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CutPages {
    pub(crate) object: Object,
    /// Index of the first page in the region.
    pub(crate) first: u32,
    pub(crate) pages: u32,
}

/// The regions of all processes by address.
#[derive(Debug, Default)]
pub(crate) struct RegionMap {
    page_bytes: u64,
    processes: FxHashMap<Pid, BTreeMap<Address, Piece>>,
}

impl RegionMap {
    pub(crate) fn new(page_bytes: u64) -> RegionMap {
        RegionMap {
            page_bytes,
            processes: FxHashMap::default(),
        }
    }

    /// The whole pages within a range, if there are any.
    pub(crate) fn pages_within(&self, start: Address, length: u64) -> Option<(Address, Address)> {
        let page = self.page_bytes;
        let end = start.checked_add(length)?.page_start(page);
        let start = start.next_page_start(page)?;
        (start < end).then_some((start, end))
    }

    /// Adds a region of whole pages, where no other region may be.
    pub(crate) fn insert(
        &mut self,
        pid: Pid,
        (start, end): (Address, Address),
        object: Object,
        now_ns: u64,
    ) {
        let piece = Piece {
            end,
            object,
            first: 0,
            since_ns: now_ns,
        };
        let before = self.processes.entry(pid).or_default().insert(start, piece);
        debug_assert_eq!(before, None, "the range was cut out first");
    }

    /// The region of an address, and the index of its page there.
    pub(crate) fn find(&self, pid: Pid, address: Address) -> Option<(Object, PageIndex)> {
        let (&start, piece) = self.processes.get(&pid)?.range(..=address).next_back()?;
        let index = (address - start) / self.page_bytes;
        (address < piece.end).then_some((piece.object, PageIndex(piece.first + index as u32)))
    }

    /// The regions that overlap a range.
    pub(crate) fn overlapping(
        &self,
        pid: Pid,
        (start, end): (Address, Address),
    ) -> BTreeSet<Object> {
        self.pieces(pid, (start, end))
            .map(|(_, piece)| piece.object)
            .collect()
    }

    /// The pieces that overlap a range, by their starts.
    fn pieces(
        &self,
        pid: Pid,
        (start, end): (Address, Address),
    ) -> impl Iterator<Item = (Address, &Piece)> + '_ {
        let pieces = self.processes.get(&pid);
        let first = pieces.and_then(|of| of.range(..=start).next_back());
        let from = first.map_or(start, |(&start, _)| start).min(end);
        let pieces = pieces.into_iter().flat_map(move |of| of.range(from..end));
        let pieces = pieces.map(|(&start, piece)| (start, piece));
        pieces.filter(move |(_, piece)| piece.end > start)
    }

    /// The parts of a range that are in no region.
    pub(crate) fn gaps(
        &self,
        pid: Pid,
        (start, end): (Address, Address),
    ) -> Vec<(Address, Address)> {
        let (mut at, mut gaps) = (start, Vec::new());
        for (start, piece) in self.pieces(pid, (start, end)) {
            if start > at {
                gaps.push((at, start));
            }
            at = at.max(piece.end);
        }
        if at < end {
            gaps.push((at, end));
        }
        gaps
    }

    /// Removes whole pages of regions that were allocated until `until_ns`, and returns which.
    pub(crate) fn cut(
        &mut self,
        pid: Pid,
        (start, end): (Address, Address),
        until_ns: u64,
    ) -> Vec<CutPages> {
        let Some(pieces) = self.processes.get_mut(&pid) else {
            return Vec::new();
        };
        let first = pieces.range(..=start).next_back().map(|(&at, _)| at);
        let touched: Vec<Address> = pieces
            .range(first.unwrap_or(start)..end)
            .filter(|(_, piece)| piece.end > start && piece.since_ns <= until_ns)
            .map(|(&at, _)| at)
            .collect();
        let mut cuts = Vec::with_capacity(touched.len());
        for at in touched {
            let piece = pieces.remove(&at).expect("it was just seen");
            let (from, to) = (start.max(at), end.min(piece.end));
            let index = |address: Address| piece.first + ((address - at) / self.page_bytes) as u32;
            if at < from {
                pieces.insert(at, Piece { end: from, ..piece });
            }
            if to < piece.end {
                let first = index(to);
                pieces.insert(to, Piece { first, ..piece });
            }
            cuts.push(CutPages {
                object: piece.object,
                first: index(from),
                pages: index(to) - index(from),
            });
        }
        if pieces.is_empty() {
            self.processes.remove(&pid);
        }
        cuts
    }

    /// Removes all pages of a process.
    pub(crate) fn cut_all(&mut self, pid: Pid) -> Vec<CutPages> {
        self.cut(pid, (Address(0), Address(u64::MAX)), u64::MAX)
    }

    /// Walks every invariant and panics on a broken one.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        for pieces in self.processes.values() {
            assert!(!pieces.is_empty());
            let ends = pieces.iter().map(|(&start, piece)| (start, piece.end));
            let ends: Vec<(Address, Address)> = ends.collect();
            assert!(ends.iter().all(|(start, end)| start < end));
            assert!(ends.windows(2).all(|pair| pair[0].1 <= pair[1].0));
        }
    }
}

/// Hands out ranges of page numbers, low ones first.
#[derive(Debug, Default)]
pub(crate) struct PageNumbers {
    /// Free ranges: length by start. No two of them are adjacent.
    free: BTreeMap<u32, u32>,
    end: u32,
}

impl PageNumbers {
    /// One past the highest number that was ever in use.
    pub(crate) fn end(&self) -> u32 {
        self.end
    }

    /// Takes a range, and returns its first number. `None` if there are no more numbers.
    pub(crate) fn take(&mut self, length: u32) -> Option<u32> {
        let fits = self.free.iter().find(|&(_, &free)| free >= length);
        let Some((&start, &free)) = fits else {
            // The last free range may be at the end.
            let last = self
                .free
                .last_key_value()
                .map(|(&start, &free)| (start, free));
            let start = last
                .filter(|(start, free)| start + free == self.end)
                .map_or(self.end, |(start, _)| start);
            self.end = start.checked_add(length)?;
            self.free.remove(&start);
            return Some(start);
        };
        self.free.remove(&start);
        if free > length {
            self.free.insert(start + length, free - length);
        }
        Some(start)
    }

    /// Gives a range back.
    pub(crate) fn release(&mut self, mut start: u32, mut length: u32) {
        if let Some(after) = self.free.remove(&(start + length)) {
            length += after;
        }
        if let Some((&before, &free)) = self.free.range(..start).next_back()
            && before + free == start
        {
            start = before;
            length += free;
        }
        self.free.insert(start, length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;

    fn pages(from: u64, to: u64) -> (Address, Address) {
        (Address(from * PAGE), Address(to * PAGE))
    }

    #[test]
    fn addresses_are_found_by_process() {
        let mut regions = RegionMap::new(PAGE);
        regions.insert(Pid(1), pages(10, 20), Object(0), 0);
        regions.insert(Pid(2), pages(10, 12), Object(1), 0);
        assert_eq!(
            regions.find(Pid(1), Address(10 * PAGE)),
            Some((Object(0), PageIndex(0)))
        );
        assert_eq!(
            regions.find(Pid(1), Address(20 * PAGE - 1)),
            Some((Object(0), PageIndex(9)))
        );
        assert_eq!(
            regions.find(Pid(2), Address(11 * PAGE + 5)),
            Some((Object(1), PageIndex(1)))
        );
        for (pid, address) in [
            (1, 20 * PAGE),
            (1, 10 * PAGE - 1),
            (2, 15 * PAGE),
            (3, 10 * PAGE),
        ] {
            assert_eq!(regions.find(Pid(pid), Address(address)), None);
        }
        regions.check();
    }

    #[test]
    fn a_part_in_the_middle_is_taken_out() {
        let mut regions = RegionMap::new(PAGE);
        regions.insert(Pid(1), pages(10, 20), Object(0), 5);
        let cut = |first, pages| CutPages {
            object: Object(0),
            first,
            pages,
        };
        assert_eq!(
            regions.cut(Pid(1), pages(12, 15), 4),
            [],
            "of an older region"
        );
        assert_eq!(regions.cut(Pid(1), pages(12, 15), 5), [cut(2, 3)]);
        assert_eq!(regions.find(Pid(1), Address(12 * PAGE)), None);
        assert_eq!(
            regions.find(Pid(1), Address(15 * PAGE)),
            Some((Object(0), PageIndex(5)))
        );
        assert_eq!(
            regions.find(Pid(1), Address(11 * PAGE)),
            Some((Object(0), PageIndex(1)))
        );
        regions.insert(Pid(1), pages(12, 15), Object(1), 6);
        regions.check();
        // What lies across all three.
        let cuts = regions.cut(Pid(1), pages(11, 16), 9);
        let others = CutPages {
            object: Object(1),
            first: 0,
            pages: 3,
        };
        assert_eq!(cuts, [cut(1, 1), others, cut(5, 1)]);
        assert_eq!(regions.cut_all(Pid(1)), [cut(0, 1), cut(6, 4)]);
        assert_eq!(regions.cut_all(Pid(1)), []);
        regions.check();
    }

    #[test]
    fn whole_pages_count() {
        let regions = RegionMap::new(PAGE);
        assert_eq!(
            regions.pages_within(Address(16), 3 * PAGE),
            Some((Address(PAGE), Address(3 * PAGE)))
        );
        assert_eq!(
            regions.pages_within(Address(0), PAGE),
            Some((Address(0), Address(PAGE)))
        );
        assert_eq!(regions.pages_within(Address(16), PAGE), None);
        assert_eq!(regions.pages_within(Address(u64::MAX - 5), 100), None);
    }

    #[test]
    fn numbers_are_used_again() {
        let mut ranges = PageNumbers::default();
        assert_eq!(
            [10, 5, 10].map(|length| ranges.take(length)),
            [Some(0), Some(10), Some(15)]
        );
        ranges.release(10, 5);
        assert_eq!(ranges.take(3), Some(10));
        ranges.release(0, 10);
        ranges.release(10, 3);
        assert_eq!(ranges.free, BTreeMap::from([(0, 15)]));
        assert_eq!(ranges.take(15), Some(0));
        ranges.release(15, 10);
        // The free range at the end is taken first, and only what it lacks is new.
        assert_eq!((ranges.take(20), ranges.end()), (Some(15), 35));
        assert_eq!(ranges.take(u32::MAX), None);
    }
}
