//! How far the kernel reads ahead in an open file.
//!
//! Source: `mm/readahead.c` of Linux 6.18 (`page_cache_sync_ra`, `page_cache_async_ra`). A miss
//! reads a window: a small one at the start of a file or after the last read, the request alone
//! elsewhere, unless what is cached before it looks like the trail of a stream. One folio of the
//! window is marked. A reader that comes to it has the next window read, of twice the size and in
//! larger folios.
//!
//! A read of more than the largest window is read in windows; the kernel's may be longer, as far
//! as the disk takes it.

use std::ops::Range;

use hither_core::readahead_windows::{first_size, next_size};

/// The library in programs disables readahead after so many reads in a row that went on nowhere.
const RANDOM_READS: u32 = 16;

/// A read goes on with another one if it begins so near behind its end.
const NEAR_BYTES: u64 = 64 << 10;

/// The ends of so many reads are remembered.
const ENDS: usize = 6;

/// A longer read is a stream by itself.
const LONG_BYTES: u64 = 1 << 20;

/// What is to be read, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) start: u32,
    pub(super) size: u32,
    /// The mark is so many pages before the end; 0: there is none.
    pub(super) marked_before_end: u32,
    /// The logarithm of the pages of its folios.
    pub(super) order: u32,
}

/// `file_ra_state` of the kernel, in pages.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stream {
    start: u32,
    size: u32,
    marked_before_end: u32,
    order: u32,
    /// The byte behind the last read, if there was one (`prev_pos`).
    end: Option<u64>,
    /// The ends of the last reads, the oldest at `oldest`.
    ends: [Option<u64>; ENDS],
    oldest: usize,
    /// Reads in a row that went on nowhere.
    random: u32,
    page_shift: u32,
}

impl Stream {
    /// Of a file that nobody has read, in pages of 2^`page_shift` bytes.
    pub(super) fn new(page_shift: u32) -> Stream {
        Stream {
            page_shift,
            ..Stream::default()
        }
    }

    /// A read begins.
    pub(super) fn begin(&mut self, offset: u64, length: u64) {
        let goes_on = |end: &u64| (*end..=end.saturating_add(NEAR_BYTES)).contains(&offset);
        let is_near = self.ends.iter().flatten().any(goes_on);
        if is_near || length > LONG_BYTES {
            self.random = 0;
        } else {
            self.random = self.random.saturating_add(1);
        }
    }

    /// A read has ended before this byte.
    pub(super) fn end(&mut self, end: u64) {
        self.end = Some(end);
        self.ends[self.oldest] = Some(end);
        self.oldest = (self.oldest + 1) % ENDS;
    }

    /// Whether the library in programs disables readahead for it.
    pub(super) fn is_random(&self) -> bool {
        self.random >= RANDOM_READS
    }

    /// Whether the last read ended in this range.
    pub(super) fn was_in(&self, bytes: &Range<u64>) -> bool {
        self.end
            .is_some_and(|end| end > bytes.start && end <= bytes.end)
    }

    /// A page is not cached, and so many are asked for from there on. Windows are of `window` pages
    /// at most; 0: readahead is disabled. `cached_before` counts the cached pages before it.
    pub(super) fn missed(
        &mut self,
        page: u32,
        asked: u32,
        window: u32,
        cached_before: impl FnOnce(u32) -> u32,
    ) -> Plan {
        let request = Plan {
            start: page,
            size: asked,
            marked_before_end: 0,
            order: 0,
        };
        if window == 0 {
            return request;
        }
        let follows = self.end.is_some_and(|end| {
            let last = u32::try_from(end >> self.page_shift).unwrap_or(u32::MAX);
            page.wrapping_sub(last) <= 1
        });
        if page == 0 || follows || asked > window {
            self.start = page;
            self.size = first_size(asked, window);
            self.marked_before_end = match self.size.checked_sub(asked) {
                Some(more) if more > 0 => more,
                _ => self.size / 2,
            };
        } else {
            let before = cached_before(window);
            if before <= asked {
                // The state stays as it is.
                return request;
            }
            // Cached from the start: a long stream, probably.
            let trail = if before == page { 2 * before } else { before };
            self.start = page;
            self.size = (trail + asked).min(window);
            self.marked_before_end = 1;
        }
        self.order = 0;
        self.plan()
    }

    /// The reader has come to the mark of a folio that begins at `page` and has `pages`, and asks
    /// for so many from there on. `first_missing` finds how far behind `page` the first page is
    /// that is not cached, within so many.
    pub(super) fn mark_reached(
        &mut self,
        page: u32,
        pages: u32,
        asked: u32,
        window: u32,
        large_folios: bool,
        first_missing: impl FnOnce(u32) -> Option<u32>,
    ) -> Option<Plan> {
        if window == 0 {
            return None;
        }
        let marked = (self.start + self.size).saturating_sub(self.marked_before_end);
        if page == marked / pages * pages {
            self.start = self.start.saturating_add(self.size);
            self.size = self.size.max(next_size(self.size, window));
        } else {
            // Readers take turns, and the state is another one's.
            let within = first_missing(window)?;
            self.start = page.saturating_add(within);
            self.size = next_size(within + asked, window);
        }
        if large_folios {
            // The window ends where a folio does.
            self.order += 2;
            let align = 1 << self.order.min(window.trailing_zeros());
            let end = self.start.saturating_add(self.size);
            let aligned = end / align * align;
            if aligned > self.start {
                self.size = aligned - self.start;
            }
        }
        self.marked_before_end = self.size;
        Some(self.plan())
    }

    fn plan(&mut self) -> Plan {
        self.order = self.order.min(self.size.max(1).ilog2());
        Plan {
            start: self.start,
            size: self.size,
            marked_before_end: self.marked_before_end,
            order: self.order,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: u32 = 32;

    fn plan(start: u32, size: u32, marked_before_end: u32) -> Plan {
        Plan {
            start,
            size,
            marked_before_end,
            order: 0,
        }
    }

    #[test]
    fn windows_grow_from_the_start_of_a_file() {
        let mut stream = Stream::new(12);
        assert_eq!(stream.missed(0, 1, WINDOW, |_| 0), plan(0, 4, 3));
        let next = |stream: &mut Stream, page| {
            let plan = stream.mark_reached(page, 1, 1, WINDOW, false, |_| None);
            plan.map(|plan| (plan.start, plan.size))
        };
        assert_eq!(next(&mut stream, 1), Some((4, 8)));
        assert_eq!(next(&mut stream, 4), Some((12, 16)));
        assert_eq!(next(&mut stream, 12), Some((28, 32)));
        assert_eq!(next(&mut stream, 28), Some((60, 32)));
    }

    #[test]
    fn a_read_elsewhere_reads_what_it_asks_for_unless_it_follows_a_trail() {
        let mut stream = Stream::new(12);
        assert_eq!(stream.missed(100, 2, WINDOW, |_| 1), plan(100, 2, 0));
        assert_eq!(stream.missed(100, 2, WINDOW, |_| 5), plan(100, 7, 1));
        stream.begin(100 << 12, 8192);
        stream.end(102 << 12);
        assert_eq!(stream.missed(102, 2, WINDOW, |_| 0), plan(102, 4, 2));
        assert_eq!(stream.missed(7, 2, 0, |_| 5), plan(7, 2, 0), "disabled");
    }

    #[test]
    fn the_next_window_comes_in_larger_folios_and_ends_where_one_does() {
        let mut stream = Stream::new(12);
        stream.missed(0, 1, 2048, |_| 0);
        let plan = stream.mark_reached(1, 1, 1, 2048, true, |_| None);
        let plan = plan.expect("a window");
        assert_eq!((plan.start, plan.size, plan.order), (4, 16, 2));
    }

    #[test]
    fn reads_here_and_there_are_random_until_one_goes_on() {
        let mut stream = Stream::new(12);
        for read in 0..20 {
            assert_eq!(stream.is_random(), read > 15);
            let offset = (read * 10) << 20;
            stream.begin(offset, 4096);
            stream.end(offset + 4096);
        }
        stream.begin((190 << 20) + 4096, 4096);
        assert!(!stream.is_random());
    }
}
