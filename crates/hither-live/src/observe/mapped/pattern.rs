//! Makes touched ranges of page faults.
//!
//! A file is divided into equal parts, at most some 4,096. One page of each is *watched*, chosen by
//! a hash. A fault in a watched page is a touch of the whole part. That is right on average: the
//! other pages of a part are touched as often as its watched page. A fault in another page says
//! that this page was touched, but its neighbours are mapped by it and fault no more. It counts
//! only in a run: after a fault in the 64 KiB before or behind, or in the next folio, all in
//! between were touched. Otherwise each random touch of a page would count for the 16 that its
//! fault maps.
//!
//! In a run a fault counts for all that it maps: the 64 KiB around it, or 2 MiB where faults come
//! one a folio of that size.

use std::ops::Range;

use hither_sys::record::mix;
use rustc_hash::FxHashMap;

use super::arming::page_bytes;

/// A folio has at most so many bytes. A fault maps no more than it, so that the watched pages
/// around a fault may have been mapped by it.
pub(super) const FOLIO_BYTES_MAX: u64 = 2 << 20;

/// What the kernel maps around a fault by default (`fault_around_bytes`), aligned.
const WINDOW_BYTES: u64 = 64 << 10;

const FOLIO_WINDOWS: u64 = FOLIO_BYTES_MAX / WINDOW_BYTES;

/// About the most parts of a file.
const PARTS_MAX: u64 = 4096;

/// A mapped file and its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WatchedFile {
    bytes: u64,
    part_bytes: u64,
}

impl WatchedFile {
    pub(super) fn new(bytes: u64) -> WatchedFile {
        WatchedFile {
            bytes,
            part_bytes: bytes
                .div_ceil(PARTS_MAX)
                .max(WINDOW_BYTES)
                .next_power_of_two(),
        }
    }

    /// The file goes at least to the page at this offset.
    pub(super) fn reached(&mut self, offset: u64) {
        if offset >= self.bytes {
            self.bytes = offset + page_bytes();
        }
    }

    fn part(&self, number: u64) -> Range<u64> {
        let start = number * self.part_bytes;
        start..(start + self.part_bytes).min(self.bytes)
    }

    /// The offset of the watched page of a part.
    fn watched_page(&self, number: u64) -> u64 {
        let part = self.part(number);
        let pages = (part.end.saturating_sub(part.start)).div_ceil(page_bytes());
        part.start + mix(number) % pages.max(1) * page_bytes()
    }

    /// The offsets of the watched pages of the parts that a range overlaps.
    pub(super) fn watched_pages(&self, range: Range<u64>) -> impl Iterator<Item = u64> + '_ {
        let end = range.end.min(self.bytes);
        let numbers = range.start / self.part_bytes..end.div_ceil(self.part_bytes);
        numbers.map(|number| self.watched_page(number))
    }

    /// What of these windows is in the file.
    fn windows(&self, windows: Range<u64>) -> Range<u64> {
        windows.start * WINDOW_BYTES..(windows.end * WINDOW_BYTES).min(self.bytes)
    }
}

/// The last fault of a thread in a file.
#[derive(Clone, Copy, Debug)]
struct Last {
    window: u64,
    /// The end of what has been counted of its run, in windows. `None`: it has not counted so far.
    counted_to: Option<u64>,
}

/// The last fault of each thread in each file.
#[derive(Debug, Default)]
pub(super) struct Pattern {
    last: FxHashMap<(u32, (u64, u64)), Last>,
}

impl Pattern {
    /// A thread faulted in a page of a file; `was_armed` if it is a watched one that was unmapped.
    /// Adds what was touched.
    pub(super) fn on_fault(
        &mut self,
        thread_and_file: (u32, (u64, u64)),
        file: &WatchedFile,
        offset: u64,
        was_armed: bool,
        touched: &mut Vec<Range<u64>>,
    ) {
        let window = offset / WINDOW_BYTES;
        let number = offset / file.part_bytes;
        let is_watched = file.watched_page(number) == offset;
        let run = self.last.get(&thread_and_file).and_then(|last| {
            let first = last.counted_to.unwrap_or(last.window);
            let ahead = window.saturating_sub(last.window);
            let is_further = ahead > 0 && ahead <= FOLIO_WINDOWS;
            match () {
                () if ahead == FOLIO_WINDOWS && offset.is_multiple_of(FOLIO_BYTES_MAX) => {
                    Some(first..window + FOLIO_WINDOWS)
                }
                () if is_further && (ahead == 1 || offset.is_multiple_of(WINDOW_BYTES)) => {
                    Some(first..window + 1)
                }
                () if window == last.window => Some(first..window + 1),
                () if window + 1 == last.window => {
                    Some(window..window + 1 + u64::from(last.counted_to.is_none()))
                }
                () => None,
            }
        });
        let (counted, counted_to) = match run {
            _ if was_armed && is_watched => (Some(file.part(number)), Some(window + 1)),
            Some(windows) => (Some(file.windows(windows.clone())), Some(windows.end)),
            None if is_watched || file.bytes <= WINDOW_BYTES => {
                (Some(file.part(number)), Some(window + 1))
            }
            None => (None, None),
        };
        touched.extend(counted.filter(|range| !range.is_empty()));
        self.last
            .insert(thread_and_file, Last { window, counted_to });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;
    const FILE: (u64, u64) = (1, 7);

    /// What faults in these pages count for, in pages.
    fn touched(file: &WatchedFile, faults: &[(u64, bool)]) -> Vec<(u64, u64)> {
        let (mut pattern, mut touched) = (Pattern::default(), Vec::new());
        for &(page, was_armed) in faults {
            pattern.on_fault((1, FILE), file, page * PAGE, was_armed, &mut touched);
        }
        touched
            .iter()
            .map(|range| (range.start / PAGE, range.end.div_ceil(PAGE)))
            .collect()
    }

    /// A page of a part that is not watched, and the one that is.
    fn pages(file: &WatchedFile, part: u64) -> (u64, u64) {
        let watched = file.watched_page(part) / PAGE;
        let first = part * file.part_bytes / PAGE;
        (if watched == first { first + 1 } else { first }, watched)
    }

    #[test]
    fn parts_grow_with_the_file_and_each_has_one_watched_page() {
        let file = WatchedFile::new(100 * PAGE);
        assert_eq!(file.part_bytes, WINDOW_BYTES);
        assert_eq!(WatchedFile::new(1 << 30).part_bytes, 256 << 10);
        let all: Vec<u64> = file.watched_pages(0..u64::MAX).collect();
        assert_eq!(all.len(), 7);
        for (part, watched) in (0..).zip(all) {
            assert!(file.part(part).contains(&watched), "{part}");
            assert_eq!(watched % PAGE, 0);
        }
        assert_eq!(file.watched_pages(0..1).count(), 1);
    }

    #[test]
    fn a_watched_page_stands_for_its_part_and_another_for_nothing() {
        let file = WatchedFile::new(1 << 20);
        let ((other, _), (_, watched)) = (pages(&file, 2), pages(&file, 9));
        assert_eq!(
            touched(&file, &[(other, false), (watched, true)]),
            [(144, 160)]
        );
        // Again and again, whatever came before.
        assert_eq!(touched(&file, &[(watched, true), (watched, true)]).len(), 2);
    }

    #[test]
    fn runs_count_from_their_first_fault_on() {
        let file = WatchedFile::new(32 << 20);
        let runs = [(160, false), (176, false), (192, false)];
        let counted = touched(&file, &runs);
        assert_eq!(counted.first().map(|range| range.0), Some(160));
        assert_eq!(counted.last().map(|range| range.1), Some(208));
        let pages: u64 = counted.iter().map(|(start, end)| end - start).sum();
        assert_eq!(pages, 48, "{counted:?}");
        // A folio at a time; and backwards.
        let folios = touched(&file, &[(512, false), (1024, false)]);
        assert_eq!(folios, [(512, 1536)]);
        let folios = touched(&file, &[(512, false), (1024, false), (1536, false)]);
        assert_eq!(folios, [(512, 1536), (1536, 2048)]);
        let back = touched(&file, &[(207, false), (191, false), (175, false)]);
        let pages: u64 = back.iter().map(|(start, end)| end - start).sum();
        assert_eq!(pages, 48, "{back:?}");
    }

    #[test]
    fn a_small_file_is_touched_whole() {
        let file = WatchedFile::new(5000);
        assert_eq!(touched(&file, &[(1, false)]), [(0, 2)]);
        let mut bytes = Vec::new();
        Pattern::default().on_fault((1, FILE), &file, 0, false, &mut bytes);
        assert_eq!(bytes.first(), Some(&(0..5000)));
    }
}
