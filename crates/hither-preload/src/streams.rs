//! Streams of reads that are interleaved on one descriptor, as in a merge of many sorted runs:
//! which read continues which one.
//!
//! One table for the process remembers where the last reads ended. A read that begins there
//! continues the stream; three in a row make it one, since among records in shuffled order one read
//! often begins where an earlier one ended, and three seldom do. With 256 places, 64 streams are
//! recognised nearly always, 128 mostly.
//!
//! Threads may race for a place: what is lost costs a few reads.

use std::sync::atomic::{AtomicU64, Ordering};

use hither_kernel::file_id::mix;

const PLACES: usize = 256;

/// So many reads in a row that each continue the one before are a stream.
const STREAM_READS_MIN: u64 = 3;

/// The low bits of a place count the reads of a stream; the others identify its end.
const COUNT_MASK: u64 = 15;

/// See the module.
pub(crate) struct Streams([AtomicU64; PLACES]);

impl Streams {
    pub(crate) const fn new() -> Streams {
        Streams([const { AtomicU64::new(0) }; PLACES])
    }

    /// Takes into account a read through `fd` from block `first` to block `last`. Whether it
    /// continues a stream.
    pub(crate) fn continues(&self, fd: i32, first: u32, last: u32) -> bool {
        // It begins in the block where the other ended, or in the next one.
        let before = [first, first.wrapping_sub(1)].map(|end| self.count(fd, end));
        let count = before.into_iter().flatten().max();
        let count = count.map_or(0, |count| (count + 1).min(COUNT_MASK));
        let (place, tag) = self.place(fd, last);
        place.store(tag | count, Ordering::Relaxed);
        count >= STREAM_READS_MIN
    }

    /// The reads of the stream that ends in a block, if one does.
    fn count(&self, fd: i32, end: u32) -> Option<u64> {
        let (place, tag) = self.place(fd, end);
        let found = place.load(Ordering::Relaxed);
        (found & !COUNT_MASK == tag).then_some(found & COUNT_MASK)
    }

    fn place(&self, fd: i32, end: u32) -> (&AtomicU64, u64) {
        let key = mix((fd as u64) << 32 | u64::from(end));
        let index = key as usize >> COUNT_MASK.count_ones();
        // Never zero, which is an empty place.
        (&self.0[index % PLACES], (key | 1 << 63) & !COUNT_MASK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The share of reads that continue a stream, in percent.
    fn found(reads: impl Iterator<Item = (u32, u32)>) -> usize {
        let streams = Streams::new();
        let (mut found, mut all) = (0, 0);
        for (first, last) in reads {
            found += usize::from(streams.continues(3, first, last));
            all += 1;
        }
        100 * found / all
    }

    /// Interleaved streams of reads of two blocks.
    fn interleaved(count: u32) -> impl Iterator<Item = (u32, u32)> {
        let first = |step: u32, of: u32| (of + 1) * 100_000 + 2 * step;
        let reads = move |step| (0..count).map(move |of| first(step, of));
        (0..200_u32).flat_map(reads).map(|first| (first, first + 1))
    }

    #[test]
    fn many_streams_are_found() {
        assert!(found(interleaved(64)) >= 40, "{}", found(interleaved(64)));
        assert!(found(interleaved(8)) >= 90);
    }

    #[test]
    fn records_in_shuffled_order_are_no_streams() {
        // Each of 1021 records of eight blocks once, then again in the same order.
        let records =
            (0..10_210_u64).map(|read| (read * read.wrapping_mul(2_654_435_761) % 1021) as u32);
        let share = found(records.map(|record| (8 * record, 8 * record + 7)));
        assert!(share < 5, "{share}");
    }
}
