//! Makes touched ranges of page faults.
//!
//! A file is divided into equal parts, at most some 4,096. One page of each is *watched*, chosen by
//! a hash. A fault in a watched page is a touch of the whole part. That is right on average: the
//! other pages of a part are touched as often as its watched page. A fault in another page says
//! that this page was touched, but its neighbours are mapped by it and fault no more. It counts
//! only in a run: it is in the very page that a pass through the file would fault in next. That is
//! the one after the 64 KiB around the last fault, or after a folio that it was the first page of,
//! or the one before these 64 KiB. So few pages are likely to be met by chance.
//!
//! A wider rule counts too much: with a fault at the beginning of any of the next 32 windows taken
//! for one of a run, random touches made runs of up to 31 windows in which little was touched.
//!
//! In a run a fault counts for all that it maps: the 64 KiB after it, or a folio as long as the
//! last one.

use std::ops::Range;

use hither_ids::{Address, Tid};
use hither_kernel::file_id::Inode;
use hither_kernel::file_id::mix;
use hither_kernel::page_bytes;
use rustc_hash::FxHashMap;

/// A folio has at most so many bytes. A fault maps no more than it, so that the watched pages
/// around a fault may have been mapped by it.
pub(super) const FOLIO_BYTES_MAX: u64 = 2 << 20;

/// What the kernel maps around a fault by default (`fault_around_bytes`), aligned.
const WINDOW_BYTES: u64 = 64 << 10;

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
}

/// A fault in a page of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageFault {
    /// The page's offset in the file.
    pub(super) offset: u64,
    /// Where it is mapped.
    pub(super) address: Address,
    /// It had been unmapped by us.
    pub(super) was_armed: bool,
}

impl PageFault {
    /// Whether a window begins so many bytes after the beginning of the page. The kernel aligns
    /// windows by address, and folios by their place in the file.
    fn is_at_window(&self, after: u64) -> bool {
        let begins = |at: u64| (at + after).is_multiple_of(WINDOW_BYTES);
        begins(self.address.0) || begins(self.offset)
    }

    fn is_in_window_of(&self, other: &PageFault) -> bool {
        self.offset / WINDOW_BYTES == other.offset / WINDOW_BYTES
            || self.address.page_start(WINDOW_BYTES) == other.address.page_start(WINDOW_BYTES)
    }

    /// If a pass through the file faults in this page next after the last fault: how many bytes
    /// that one mapped.
    fn follows(&self, last: &PageFault) -> Option<u64> {
        let ahead = self.offset.checked_sub(last.offset)?;
        let is_folio = ahead.is_power_of_two() && last.offset.is_multiple_of(ahead);
        match ahead {
            0 => None,
            1..=WINDOW_BYTES => self.is_at_window(0).then_some(WINDOW_BYTES),
            _ => (is_folio && ahead <= FOLIO_BYTES_MAX).then_some(ahead),
        }
    }

    /// Whether a pass back through the file faults in this page next after the last fault.
    fn precedes(&self, last: &PageFault) -> bool {
        let behind = last.offset.saturating_sub(self.offset);
        (1..=WINDOW_BYTES).contains(&behind) && self.is_at_window(page_bytes())
    }
}

/// The last fault of a thread in a file; the first of those in its window.
#[derive(Clone, Copy, Debug)]
struct Last {
    fault: PageFault,
    /// The end of what has been counted of its run. `None`: it has not counted so far.
    counted_to: Option<u64>,
}

/// The last fault of each thread in each file.
#[derive(Debug, Default)]
pub(super) struct Pattern {
    last: FxHashMap<Tid, FxHashMap<Inode, Last>>,
}

impl Pattern {
    /// A thread faulted in a file. Returns what it touched.
    pub(super) fn on_fault(
        &mut self,
        (thread, key): (Tid, Inode),
        file: &WatchedFile,
        fault: PageFault,
    ) -> Option<Range<u64>> {
        let of_thread = self.last.entry(thread).or_default();
        let last = of_thread.get(&key).copied();
        let number = fault.offset / file.part_bytes;
        let is_watched = file.watched_page(number) == fault.offset;
        let (mut counted, mut counted_to) = (None, None);
        if fault.was_armed && is_watched {
            counted = Some(file.part(number));
        } else if let Some(last) = last
            && let Some(bytes) = fault.follows(&last.fault)
        {
            let end = fault.offset + bytes;
            let start = last.counted_to.unwrap_or(last.fault.offset);
            (counted, counted_to) = (Some(start..end), Some(start.max(end)));
        } else if let Some(last) = last
            && fault.precedes(&last.fault)
        {
            let end = fault.offset + page_bytes();
            let to = match last.counted_to {
                Some(_) => end,
                None => last.fault.offset + page_bytes(),
            };
            counted = Some(end.saturating_sub(WINDOW_BYTES)..to);
            counted_to = Some(end);
        } else if let Some(last) = last
            && fault.is_in_window_of(&last.fault)
            && fault.offset != last.fault.offset
        {
            // A page that was not cached, so that the last fault did not map it.
            if last.counted_to.is_some() || !is_watched {
                return None;
            }
            counted = Some(file.part(number));
        } else if is_watched || file.bytes <= WINDOW_BYTES {
            counted = Some(file.part(number));
        }
        if let Some(range) = &mut counted {
            range.end = range.end.min(file.bytes);
            counted_to = counted_to.or(Some(range.end));
        }
        of_thread.insert(key, Last { fault, counted_to });
        counted.filter(|range| !range.is_empty())
    }

    /// The thread has ended.
    pub(super) fn ended(&mut self, thread: Tid) {
        self.last.remove(&thread);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;
    const FILE: Inode = Inode {
        device: 1,
        number: 7,
    };

    /// A fault in a page of a file that is mapped at an address which is aligned like a folio.
    fn fault(page: u64, was_armed: bool) -> PageFault {
        let offset = page * PAGE;
        PageFault {
            offset,
            address: Address((1 << 40) + offset),
            was_armed,
        }
    }

    /// What faults count for, in pages.
    fn counted(file: &WatchedFile, faults: impl IntoIterator<Item = PageFault>) -> Vec<(u64, u64)> {
        let mut pattern = Pattern::default();
        let faults = faults.into_iter();
        let ranges = faults.filter_map(|fault| pattern.on_fault((Tid(1), FILE), file, fault));
        ranges
            .map(|range| (range.start / PAGE, range.end.div_ceil(PAGE)))
            .collect()
    }

    fn touched(file: &WatchedFile, faults: &[(u64, bool)]) -> Vec<(u64, u64)> {
        counted(file, faults.iter().map(|&(page, armed)| fault(page, armed)))
    }

    /// Whether the ranges are these pages, each once.
    fn is_once(mut ranges: Vec<(u64, u64)>, pages: Range<u64>) -> bool {
        ranges.sort_unstable();
        let touch = ranges.windows(2).all(|pair| pair[0].1 == pair[1].0);
        let first = ranges.first().map(|range| range.0);
        let last = ranges.last().map(|range| range.1);
        touch && (first, last) == (Some(pages.start), Some(pages.end))
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

    /// The faults of passes through 32 MiB on Linux 6.18, ext4.
    #[test]
    fn a_pass_counts_each_page_once() {
        let file = WatchedFile::new(32 << 20);
        let pass = |pages: &[u64]| counted(&file, pages.iter().map(|&page| fault(page, false)));
        // Cached by reads of 4 KiB: in folios of up to 2 MiB.
        let folios = [
            0, 16, 32, 48, 64, 80, 96, 128, 192, 256, 320, 384, 512, 768, 1024, 1536, 2048,
        ];
        let ranges = pass(&folios);
        assert!(is_once(ranges.clone(), 0..2560), "{ranges:?}");
        // Not cached: some pages are left out of what a fault maps.
        let single = [480, 481, 496, 504, 512, 513, 528, 544];
        let ranges = pass(&single);
        assert!(is_once(ranges.clone(), 480..560), "{ranges:?}");
        // Back, and from the midst of a window.
        let ranges = pass(&[203, 202, 191, 175, 170, 159]);
        assert!(is_once(ranges.clone(), 144..204), "{ranges:?}");
        // The kernel's windows are aligned by address.
        let skewed = [0, 11, 27, 43].map(|page| PageFault {
            address: Address((1 << 40) + (5 + page) * PAGE),
            ..fault(page, false)
        });
        let ranges = counted(&file, skewed);
        assert!(is_once(ranges.clone(), 0..59), "{ranges:?}");
    }

    /// Faults in watched pages stand for the others, so that what these count for is too much.
    #[test]
    fn random_touches_make_no_runs() {
        let file = WatchedFile::new(32 << 20);
        let (mut faults, mut pages) = (0, 0);
        for order in 0..100 {
            // Each window once, in an order and in a page by chance.
            let mut windows: Vec<u64> = (0..512).collect();
            windows.sort_unstable_by_key(|window| mix(order * 512 + window));
            let random = windows.iter().map(|window| {
                let within = mix(mix(order * 512 + window)) % 16;
                window * 16 + within
            });
            let others: Vec<(u64, bool)> = random
                .filter(|page| page * PAGE != file.watched_page(page / 16))
                .map(|page| (page, false))
                .collect();
            faults += others.len() as u64;
            let ranges = touched(&file, &others);
            pages += ranges.iter().map(|(start, end)| end - start).sum::<u64>();
        }
        assert!(pages * 50 < faults, "{pages} pages for {faults} touches");
    }

    #[test]
    fn a_small_file_is_touched_whole() {
        let file = WatchedFile::new(5000);
        assert_eq!(touched(&file, &[(1, false)]), [(0, 2)]);
        // A page that was not cached counts no more; one that faults again was mapped anew.
        let faults = [(1, false), (0, false), (1, false)];
        assert_eq!(touched(&file, &faults), [(0, 2), (0, 2)]);
        let whole = Pattern::default().on_fault((Tid(1), FILE), &file, fault(0, false));
        assert_eq!(whole, Some(0..5000));
    }
}
