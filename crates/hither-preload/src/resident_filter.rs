//! Which pages of files are resident in the page cache, as far as this process has read them
//! lately. By this filter `read_placement` tells which reads may bring pages in.
//!
//! One table has a bit for each page, in windows of 32 pages; another says which file each
//! descriptor stands for. Both are plain words and may be wrong: two windows may fall to one place,
//! of which the later one is kept, and a page may have left the cache meanwhile. So an entry lasts
//! for [`AGE_SHIFT`] only.

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use hither_kernel::file_id::mix;
use hither_kernel::page_bytes;
use hither_kernel::process::tick_ns;
use hither_kernel::syscalls;

use crate::descriptor_table::{Row, Table};

/// What one word remembers: as many pages as half of it has bits.
const WINDOW_PAGES: u64 = 32;

/// 8 GiB of windows, in 512 KiB, with pages of 4 KiB.
const WINDOW_WORDS: usize = 1 << 16;

/// A read of more windows than this is not looked up: it takes its time anyway.
const LOOKUP_WINDOWS_MAX: u64 = 64;

/// An entry counts for the span of time that it was made in: of 2^33 ns, some 8.6 s.
const AGE_SHIFT: u32 = 33;

/// A file's key is never one of these.
const UNKNOWN: u64 = 0;
const IGNORED: u64 = 1;

/// Bytes of a window.
#[inline]
pub(crate) fn window_bytes() -> u64 {
    WINDOW_PAGES * page_bytes()
}

/// One without a row is always looked at.
#[repr(C)]
pub(crate) struct Descriptor {
    file: AtomicU64,
    /// Where its offset was last known to be: a guess, since others may move it.
    offset: AtomicU64,
}

pub(crate) static TABLE: Table<Descriptor> = Table::new();
static WINDOW: AtomicPtr<AtomicU64> = AtomicPtr::new(std::ptr::null_mut());

/// Makes the tables. To be called once.
pub(crate) fn prepare() -> bool {
    let Ok(windows) = syscalls::map(WINDOW_WORDS * size_of::<AtomicU64>(), None) else {
        return false;
    };
    WINDOW.store(windows.cast(), Ordering::Release);
    TABLE.open()
}

/// Unmaps the tables.
///
/// # Safety
/// No read is being looked up.
#[cfg(feature = "interpose")]
pub(crate) unsafe fn unmap() {
    let windows = WINDOW.swap(std::ptr::null_mut(), Ordering::AcqRel);
    if !windows.is_null() {
        // SAFETY: `prepare` mapped so much there, and as the caller says.
        unsafe { syscalls::unmap(windows.cast(), WINDOW_WORDS * size_of::<AtomicU64>()) };
    }
    // SAFETY: as above.
    unsafe { TABLE.unmap() };
}

// SAFETY: two words, of which zeroes are values.
unsafe impl Row for Descriptor {
    fn is_blank(&self) -> bool {
        self.file.load(Ordering::Relaxed) == UNKNOWN
    }

    fn forget(&self) {
        self.file.store(UNKNOWN, Ordering::Relaxed);
        self.offset.store(0, Ordering::Relaxed);
    }
}

/// `fd` stands for no regular file: no read of it brings pages in.
pub(crate) fn ignore(fd: i32) {
    if let Some(descriptor) = TABLE.row(fd) {
        descriptor.file.store(IGNORED, Ordering::Relaxed);
    }
}

/// `fd` stands for this file, and its offset, or the one that it is read at, is there.
pub(crate) fn learn(fd: i32, file: u64, offset: u64) {
    if let Some(descriptor) = TABLE.row(fd) {
        descriptor.file.store(file.max(2), Ordering::Relaxed);
        descriptor.offset.store(offset, Ordering::Relaxed);
    }
}

/// A read of so many bytes has moved the offset of `fd`.
pub(crate) fn advance(fd: i32, length: u64) {
    if let Some(descriptor) = TABLE.row(fd) {
        let offset = descriptor.offset.load(Ordering::Relaxed);
        let after = offset.wrapping_add(length);
        descriptor.offset.store(after, Ordering::Relaxed);
    }
}

/// Whether a read, at an offset or at the descriptor's own, brings no pages in, as far as is known:
/// it is of no file, or of resident pages.
#[inline]
pub(crate) fn needs_no_pages(fd: i32, at: Option<u64>, count: u64) -> bool {
    let Some(descriptor) = TABLE.row(fd) else {
        return false;
    };
    let file = descriptor.file.load(Ordering::Relaxed);
    match file {
        UNKNOWN => false,
        IGNORED => true,
        _ => {
            let offset = at.unwrap_or_else(|| descriptor.offset.load(Ordering::Relaxed));
            Pages::of(file, offset, count, u64::MAX).is_none_or(|pages| pages.are_resident())
        }
    }
}

/// Pages of a file, one at least.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pages {
    file: u64,
    first: u64,
    last: u64,
    time: u64,
}

impl Pages {
    /// Those of so many bytes, as far as they lie before the file's end. `None` if there are none.
    pub(crate) fn of(file: u64, offset: u64, count: u64, size: u64) -> Option<Pages> {
        let end = offset.saturating_add(count).min(size);
        (offset < end).then(|| Pages {
            file: file.max(2),
            first: offset / page_bytes(),
            last: (end - 1) / page_bytes(),
            time: tick_ns() >> AGE_SHIFT,
        })
    }

    /// By window, its place, the upper half of its word, and the pages in it.
    fn windows(self) -> impl Iterator<Item = (usize, u64, u64)> {
        let pages = WINDOW_PAGES;
        let windows = self.first / pages..=self.last / pages;
        windows
            .take(LOOKUP_WINDOWS_MAX as usize)
            .map(move |window| {
                let (place, tag) = self.place(window);
                let first = self.first.max(window * pages) % pages;
                let last = self.last.min(window * pages + pages - 1) % pages;
                let mask =
                    (u64::from(u32::MAX) >> (pages - 1 - last)) & (u64::from(u32::MAX) << first);
                (place, tag, mask & u64::from(u32::MAX))
            })
    }

    /// A window's place, and what its word has in its upper half.
    fn place(self, window: u64) -> (usize, u64) {
        let hash = mix(self.file ^ mix(window));
        let place = hash as usize % WINDOW_WORDS;
        (place, (hash >> 40 << 40) | (self.time & 0xff) << 32)
    }

    /// Whether all of them are resident.
    pub(crate) fn are_resident(self) -> bool {
        let short = self.last - self.first < LOOKUP_WINDOWS_MAX * WINDOW_PAGES;
        short
            && self.windows().all(|(place, tag, mask)| {
                let word = word(place).map_or(0, |word| word.load(Ordering::Relaxed));
                word >> 32 == tag >> 32 && word & mask == mask
            })
    }

    /// Whether nothing is known of the first window.
    pub(crate) fn is_new(self) -> bool {
        let (place, tag) = self.place(self.first / WINDOW_PAGES);
        word(place).is_none_or(|word| word.load(Ordering::Relaxed) >> 32 != tag >> 32)
    }

    /// All of the first window is resident.
    pub(crate) fn mark_window(self) {
        let first = self.first - self.first % WINDOW_PAGES;
        let last = first + WINDOW_PAGES - 1;
        Pages {
            first,
            last,
            ..self
        }
        .mark();
    }

    /// They are resident.
    pub(crate) fn mark(self) {
        for (place, tag, mask) in self.windows() {
            let Some(word) = word(place) else {
                return;
            };
            let before = word.load(Ordering::Relaxed);
            let kept = if before >> 32 == tag >> 32 {
                before
            } else {
                tag
            };
            word.store(kept | mask, Ordering::Relaxed);
        }
    }
}

/// The node of a window of a file. By chance and not in turn: reads ahead come at equal distances,
/// and would all fall to one node.
pub(crate) fn node_of_window(nodes: u64, file: u64, offset: u64) -> u64 {
    let chosen = mix(file ^ mix(offset / window_bytes())) % u64::from(nodes.count_ones().max(1));
    let mut left = nodes;
    for _ in 0..chosen {
        left &= left - 1;
    }
    left & left.wrapping_neg()
}

fn word(place: usize) -> Option<&'static AtomicU64> {
    let table = WINDOW.load(Ordering::Acquire);
    // SAFETY: the table is a mapping of WINDOW_WORDS words, zeroed and never unmapped, and a place
    // is below that.
    (!table.is_null()).then(|| unsafe { &*table.wrapping_add(place % WINDOW_WORDS) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: u64 = 0x1234_5678_9abc;

    #[test]
    fn windows_go_to_all_of_the_nodes_and_to_no_other() {
        assert_eq!(node_of_window(0b100, 7, 0), 0b100);
        let nodes = 0b1010_0001;
        let mut counts = [0; 8];
        for window in 0..3000 {
            let node = node_of_window(nodes, 7, window * window_bytes() + page_bytes());
            assert_eq!(node.count_ones(), 1);
            assert_eq!(node_of_window(nodes, 7, window * window_bytes()), node);
            counts[node.trailing_zeros() as usize] += 1;
        }
        for (node, &count) in counts.iter().enumerate() {
            let expected = nodes >> node & 1 == 1;
            assert_eq!((900..1100).contains(&count), expected, "{counts:?}");
        }
    }

    /// One test: the tables are the process's.
    #[test]
    fn what_was_read_is_remembered_and_nothing_else() {
        assert!(prepare());
        let pages = |offset, count| Pages::of(FILE, offset, count, 10 << 20).unwrap();
        assert!(Pages::of(FILE, 10 << 20, 1, 10 << 20).is_none());
        assert!(Pages::of(FILE, 5, 0, 10 << 20).is_none());
        // A slow machine may come into the next span of time in between: then it begins anew.
        loop {
            let now = tick_ns() >> AGE_SHIFT;
            let (start, length) = (window_bytes() - page_bytes() - 1904, 2 * window_bytes());
            for word in 0..WINDOW_WORDS {
                super::word(word).unwrap().store(0, Ordering::Relaxed);
            }
            let before = pages(start, 1).is_new() && !pages(start, 1).are_resident();
            pages(start, length).mark();
            let seen = [
                (start, length),
                (window_bytes() - 2 * page_bytes(), 2 * page_bytes()),
                (window_bytes(), window_bytes()),
                (3 * window_bytes() - page_bytes() - 1905, 1),
            ];
            let unseen = [
                (window_bytes() - 2 * page_bytes() - 1, 1),
                (window_bytes() - 2 * page_bytes() - 1, 2 * page_bytes()),
                (3 * window_bytes() - page_bytes(), 1),
                (0, 10 << 20),
            ];
            let all = seen
                .iter()
                .all(|&(at, count)| pages(at, count).are_resident());
            let none = unseen
                .iter()
                .any(|&(at, count)| pages(at, count).are_resident());
            let other = Pages::of(FILE + 1, start, 1, u64::MAX)
                .unwrap()
                .are_resident();
            pages(5 * window_bytes() + page_bytes(), 1).mark_window();
            let whole = pages(5 * window_bytes(), window_bytes()).are_resident();
            let rest = pages(6 * window_bytes(), 1).are_resident();
            // As after some seconds.
            let late = Pages {
                time: now + 1,
                ..pages(start, 1)
            };
            let late = late.are_resident();
            if tick_ns() >> AGE_SHIFT == now {
                assert!(before && all && !none && !other && whole && !rest && !late);
                break;
            }
        }
        descriptors_are_learnt_and_forgotten();
    }

    fn descriptors_are_learnt_and_forgotten() {
        let current = None;
        assert!(!needs_no_pages(9, current, 1));
        ignore(9);
        assert!(needs_no_pages(9, current, 1));
        TABLE.forget(9);
        assert!(!needs_no_pages(9, current, 1));
        learn(9, FILE, 7 * window_bytes());
        let read = Pages::of(FILE, 7 * window_bytes(), 100, u64::MAX).unwrap();
        read.mark();
        assert!(needs_no_pages(9, current, 100));
        assert!(needs_no_pages(9, Some(7 * window_bytes() + 50), 100));
        advance(9, page_bytes());
        assert!(!needs_no_pages(9, current, 100));
        TABLE.forget_range(3, 20);
        assert!(!needs_no_pages(9, Some(7 * window_bytes() + 50), 100));
        assert!(!needs_no_pages(-1, current, 1) && !needs_no_pages(i32::MAX, current, 1));
    }
}
