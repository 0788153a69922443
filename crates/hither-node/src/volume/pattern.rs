//! What a reader of a file will want next.
//!
//! The kernel reads ahead 128 KiB at most, less than a slow source needs to be kept busy. So each
//! open file has a detector of its own: it sees the reads, finds sequential and strided ones, and
//! says what to prefetch. The window starts small and doubles while the reader follows it; a seek
//! drops it. Pure: no clock, no I/O.

use std::ops::Range;

/// The first window of a sequential reader, in blocks.
const WINDOW_BLOCKS_MIN: u64 = 2;

/// Reads at one distance that make a stride.
const STRIDE_READS: u32 = 3;

/// Strides that are prefetched at once.
const STRIDES_AHEAD: u64 = 4;

/// Reads of several threads of the kernel overtake each other by this much, in bytes: a reader that
/// is so near to where it was expected is still sequential.
const DISORDER_BYTES: u64 = 1 << 20;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    block_bytes: u64,
    window_bytes_max: u64,
    /// Where the next sequential read starts: the furthest end so far.
    end: u64,
    /// The start and the length of the last read.
    last: Option<(u64, u64)>,
    stride: i64,
    /// Reads in a row that were `stride` apart.
    strides: u32,
    /// Sequential reads in a row.
    sequential: u32,
    window_bytes: u64,
    /// Up to where a sequential reader's data was asked for.
    asked: u64,
}

impl Pattern {
    /// A reader of a file cut into blocks of `block_bytes`, with a window of at most
    /// `window_bytes_max`: 0 prefetches nothing.
    pub(crate) fn new(block_bytes: u32, window_bytes_max: u64) -> Pattern {
        Pattern {
            block_bytes: u64::from(block_bytes),
            window_bytes_max,
            end: 0,
            last: None,
            stride: 0,
            strides: 0,
            sequential: 0,
            window_bytes: 0,
            asked: 0,
        }
    }

    /// Whether a reader that goes on as before will read some of the bytes of `range`, which it was
    /// told to prefetch.
    pub(crate) fn is_ahead(&self, range: &Range<u64>) -> bool {
        if self.window_bytes == 0 {
            return false;
        }
        if self.strides >= STRIDE_READS {
            let reach = self.stride.unsigned_abs().saturating_mul(STRIDES_AHEAD + 1);
            let nearest = self.end.clamp(range.start, range.end);
            return nearest.abs_diff(self.end) <= reach;
        }
        range.end > self.end && range.start < self.asked
    }

    /// The reader reads `bytes` from `offset` on, in a file of `file_bytes`. Returns what to
    /// prefetch.
    pub(crate) fn on_read(&mut self, offset: u64, bytes: u64, file_bytes: u64) -> Vec<Range<u64>> {
        let last = self.last.replace((offset, bytes));
        let expected = self.end;
        let near = offset.abs_diff(expected) <= DISORDER_BYTES.min(expected);
        if offset == expected || (near && self.sequential > 0) {
            self.end = self.end.max(offset + bytes);
            self.sequential += 1;
            self.strides = 0;
            return self.ahead(file_bytes);
        }
        let Some((last_offset, last_bytes)) = last else {
            // The first read of a reader that starts in the middle.
            self.restart(offset + bytes);
            return Vec::new();
        };
        let stride = offset.wrapping_sub(last_offset) as i64;
        self.strides = if stride == self.stride && bytes == last_bytes {
            self.strides + 1
        } else {
            1
        };
        self.stride = stride;
        if self.strides < STRIDE_READS {
            self.restart(offset + bytes);
            return Vec::new();
        }
        self.end = offset + bytes;
        self.strided(offset, bytes, file_bytes)
    }

    fn restart(&mut self, end: u64) {
        self.end = end;
        self.sequential = 0;
        self.window_bytes = 0;
        self.asked = 0;
    }

    /// Asks for more once half of the window is used up, so that requests are long.
    fn ahead(&mut self, file_bytes: u64) -> Vec<Range<u64>> {
        if self.window_bytes_max < self.block_bytes {
            return Vec::new();
        }
        let ahead = self.asked.saturating_sub(self.end);
        if self.window_bytes > 0 && ahead > self.window_bytes / 2 {
            return Vec::new();
        }
        let first = WINDOW_BLOCKS_MIN * self.block_bytes;
        self.window_bytes = (self.window_bytes * 2)
            .max(first)
            .min(self.window_bytes_max);
        let from = self.asked.max(self.end).next_multiple_of(self.block_bytes);
        let to = (self.end + self.window_bytes).next_multiple_of(self.block_bytes);
        let to = to.min(file_bytes);
        if from >= to {
            return Vec::new();
        }
        self.asked = to;
        std::iter::once(from..to).collect()
    }

    /// The next reads of a strided reader. Those that are less than a block apart need none: their
    /// blocks follow each other.
    fn strided(&mut self, offset: u64, bytes: u64, file_bytes: u64) -> Vec<Range<u64>> {
        if self.window_bytes_max / STRIDES_AHEAD < bytes.max(self.block_bytes) {
            return Vec::new();
        }
        self.window_bytes = self.window_bytes.max(1);
        let next = |times: u64| {
            let start = (offset as i64).saturating_add(self.stride.saturating_mul(times as i64));
            let start = u64::try_from(start)
                .ok()
                .filter(|&start| start < file_bytes)?;
            let from = start / self.block_bytes * self.block_bytes;
            let to = start
                .saturating_add(bytes)
                .next_multiple_of(self.block_bytes);
            Some(from..to.min(file_bytes))
        };
        // All of them at the third read, then one more a read.
        let first = if self.strides == STRIDE_READS {
            1
        } else {
            STRIDES_AHEAD
        };
        (first..=STRIDES_AHEAD).filter_map(next).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 1024;
    const FILE: u64 = 1000 * BLOCK;

    fn pattern() -> Pattern {
        Pattern::new(BLOCK as u32, 64 * BLOCK)
    }

    #[test]
    fn a_sequential_reader_finds_everything_asked_for_once() {
        let mut pattern = pattern();
        let mut asked = 0;
        let mut longest = 0;
        for offset in (0..FILE).step_by(100) {
            for range in pattern.on_read(offset, 100, FILE) {
                assert!(range.start >= asked, "{range:?} was asked for before");
                assert_eq!(range.start % BLOCK, 0);
                asked = range.end;
                longest = longest.max(range.end - range.start);
            }
            let end = (offset + 100).min(FILE);
            assert!(asked <= end + 65 * BLOCK, "too far ahead");
        }
        assert_eq!(asked, FILE);
        assert!(longest >= 30 * BLOCK, "requests stay short: {longest}");
    }

    #[test]
    fn reads_that_overtake_each_other_are_sequential() {
        let mut pattern = pattern();
        let mut asked = 0;
        let mut read = |offset: u64| {
            let ranges = pattern.on_read(offset, 256, FILE);
            asked += ranges
                .iter()
                .map(|range| range.end - range.start)
                .sum::<u64>();
        };
        read(0);
        for offset in (256..FILE).step_by(512) {
            read(offset + 256);
            read(offset);
        }
        assert!(asked > FILE * 9 / 10, "{asked}");
    }

    #[test]
    fn a_random_reader_gets_nothing_and_a_seek_drops_the_window() {
        let mut pattern = pattern();
        for offset in [500, 3, 900, 77, 412, 88, 650] {
            assert!(pattern.on_read(offset * BLOCK, 100, FILE).is_empty());
        }
        let mut pattern = self::pattern();
        for block in 0..20 {
            pattern.on_read(block * BLOCK, BLOCK, FILE);
        }
        assert!(pattern.is_ahead(&(22 * BLOCK..24 * BLOCK)));
        assert!(!pattern.is_ahead(&(2 * BLOCK..4 * BLOCK)));
        assert!(pattern.on_read(700 * BLOCK, BLOCK, FILE).is_empty());
        assert!(!pattern.is_ahead(&(22 * BLOCK..24 * BLOCK)));
    }

    #[test]
    fn a_strided_reader_gets_its_next_reads() {
        let mut pattern = pattern();
        let mut asked = Vec::new();
        for read in 0..20 {
            asked.extend(pattern.on_read((5 + read * 10) * BLOCK, 100, FILE));
        }
        let wanted: Vec<_> = (4..24).map(|read| (5 + read * 10) * BLOCK).collect();
        let starts: Vec<_> = asked.iter().map(|range| range.start).collect();
        assert_eq!(starts, wanted);
        // Backwards, up to the start of the file.
        let mut pattern = self::pattern();
        let mut asked = Vec::new();
        for read in (0..10).rev() {
            asked.extend(pattern.on_read(read * 20 * BLOCK, 2 * BLOCK, FILE));
        }
        assert_eq!(asked.last(), Some(&(0..2 * BLOCK)));
    }

    #[test]
    fn without_a_window_nothing_is_asked_for() {
        let mut pattern = Pattern::new(BLOCK as u32, 0);
        for block in 0..50 {
            assert!(pattern.on_read(block * BLOCK, BLOCK, FILE).is_empty());
        }
    }
}
