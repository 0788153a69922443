//! Memory that may be copied to: the kernel has written to it for this thread's reads, and no call
//! has unmapped or protected memory since.
//!
//! A read into memory that is unmapped or read-only fails with EFAULT, and programs rely on that (a
//! collector's protected pages, a test of the call). A copy would end in SIGSEGV. So the first read
//! into a buffer is the kernel's, and the buffer's pages are remembered if it succeeds: programs
//! read into the same few buffers. Any call through libc that unmaps or protects memory clears what
//! is remembered. What libc unmaps by itself (a large `free`) is not seen: a program that reads
//! into memory that it has freed may be killed where the kernel would return EFAULT.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// The ranges that a thread remembers.
const RANGES_MAX: usize = 4;
const PAGE_BYTES: u64 = 4096;

/// Counts calls that unmapped or protected memory.
static CHANGES: AtomicU64 = AtomicU64::new(0);

/// Some memory was unmapped or protected, or is about to be.
pub(crate) fn changed() {
    CHANGES.fetch_add(1, Ordering::Release);
}

/// Ranges of whole pages, the latest first.
#[derive(Clone, Copy)]
struct Ranges {
    changes: u64,
    ranges: [(u64, u64); RANGES_MAX],
}

const NONE: Ranges = Ranges {
    changes: 0,
    ranges: [(0, 0); RANGES_MAX],
};

thread_local! {
    static WRITABLE: Cell<Ranges> = const { Cell::new(NONE) };
    static READABLE: Cell<Ranges> = const { Cell::new(NONE) };
}

impl Ranges {
    #[inline]
    fn covers(&self, start: u64, length: usize) -> bool {
        let end = start.wrapping_add(length as u64);
        self.changes == CHANGES.load(Ordering::Acquire)
            && end >= start
            && self
                .ranges
                .iter()
                .any(|&(from, to)| from <= start && end <= to)
    }

    /// The kernel wrote there successfully after `changes` were counted.
    fn add(&mut self, start: u64, length: usize) {
        if length == 0 || self.covers(start, length) {
            return;
        }
        let changes = CHANGES.load(Ordering::Acquire);
        if self.changes != changes {
            *self = Ranges { changes, ..NONE };
        }
        let (from, to) = (
            start & !(PAGE_BYTES - 1),
            (start + length as u64).next_multiple_of(PAGE_BYTES),
        );
        // A buffer that is read into piece by piece becomes one range.
        let touching = |range: &(u64, u64)| range.0 <= to && from <= range.1 && range.1 > 0;
        let (place, joined) = match self.ranges.iter().position(touching) {
            Some(place) => {
                let before = self.ranges[place];
                (place, (before.0.min(from), before.1.max(to)))
            }
            None => (RANGES_MAX - 1, (from, to)),
        };
        self.ranges.copy_within(..place, 1);
        self.ranges[0] = joined;
    }
}

/// Whether `length` bytes at `start` may be copied to.
#[inline]
pub(crate) fn are_writable(start: u64, length: usize) -> bool {
    WRITABLE.with(|ranges| covers(ranges, start, length))
}

/// Whether `length` bytes at `start` may be read.
pub(crate) fn is_readable(start: u64, length: usize) -> bool {
    READABLE.with(|ranges| covers(ranges, start, length))
}

#[inline]
fn covers(ranges: &Cell<Ranges>, start: u64, length: usize) -> bool {
    // SAFETY: the cell is this thread's own, and nobody else refers to what is in it while this
    // looks; a signal handler that changes it meanwhile has written values of the same kind.
    unsafe { &*ranges.as_ptr() }.covers(start, length)
}

/// The kernel has written there.
pub(crate) fn wrote(start: u64, length: usize) {
    WRITABLE.with(|ranges| add(ranges, start, length));
}

/// The kernel has read there.
pub(crate) fn read(start: u64, length: usize) {
    READABLE.with(|ranges| add(ranges, start, length));
}

fn add(ranges: &Cell<Ranges>, start: u64, length: usize) {
    if covers(ranges, start, length) {
        return;
    }
    let mut changed = ranges.get();
    changed.add(start, length);
    ranges.set(changed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_kernel_has_seen_since_the_last_change_is_good() {
        let at = 0x10_0000;
        wrote(at + 10, 100);
        assert!(are_writable(at + 10, 100) && are_writable(at, 4096));
        assert!(!are_writable(at, 4097) && !is_readable(at, 1));
        assert!(!are_writable(u64::MAX - 3, 100), "around the end of memory");
        wrote(at + 4096, 1);
        assert!(are_writable(at, 8192), "piece by piece");
        read(at, 8);
        assert!(is_readable(at, 16));
        for other in 1..=RANGES_MAX as u64 {
            wrote(at + other * 0x10_0000, 1);
        }
        assert!(!are_writable(at, 1), "the oldest makes room");
        assert!(are_writable(at + RANGES_MAX as u64 * 0x10_0000, 1));
        changed();
        assert!(!are_writable(at + RANGES_MAX as u64 * 0x10_0000, 1) && !is_readable(at, 1));
        wrote(at, 1);
        assert!(are_writable(at, 1) && !are_writable(at + 0x10_0000, 1));
    }
}
