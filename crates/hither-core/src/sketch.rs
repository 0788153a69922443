//! Roughly how often each block was referenced recently: a count-min sketch of four-bit counters.
//! All are halved after as many references as the sample is long.
//!
//! Source: Einziger, Friedman and Manes, "TinyLFU", ACM Transactions on Storage 13(4), 2017,
//! sections 3.2 to 3.4, and Caffeine's `FrequencySketch` for the layout: a block's four counters,
//! one in each of four rows, are in one cache line of 64 bytes (32 counters a row), so that a
//! reference accesses memory once. The size is Caffeine's: a line for eight blocks of the cache,
//! rounded up to a power of two, which is 16 to 32 counters a block. Its doorkeeper, and its random
//! admission against attacks on the hash, are left out.

use crate::ids::Block;
use crate::random::mix;

const ROWS: u32 = 4;
const COUNTER_MAX: u64 = 15;

#[derive(Clone, Debug, Default)]
#[repr(align(64))]
struct Line([u64; 8]);

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Sketch {
    lines: Vec<Line>,
    counted: u64,
    sample: u64,
}

impl Sketch {
    /// For a cache of `capacity` blocks, with a sample of `sample` references.
    pub(crate) fn new(capacity: u32, sample: u64) -> Self {
        let lines = (capacity as usize).next_power_of_two().div_ceil(8);
        Sketch {
            lines: vec![Line::default(); lines],
            counted: 0,
            sample,
        }
    }

    /// Sets the length of the sample.
    pub(crate) fn set_sample(&mut self, sample: u64) {
        self.sample = sample;
    }

    /// Counts a reference to `block`.
    #[inline]
    pub(crate) fn count(&mut self, block: Block) {
        let (line, hash) = self.place(block);
        let line = &mut self.lines[line];
        for row in 0..ROWS {
            let (word, shift) = counter(hash, row);
            if line.0[word] >> shift & COUNTER_MAX < COUNTER_MAX {
                line.0[word] += 1 << shift;
            }
        }
        self.counted += 1;
        if self.counted >= self.sample {
            self.halve();
        }
    }

    /// How often `block` was referenced recently, at most 15. Too high where other blocks share all
    /// its counters.
    #[inline]
    pub(crate) fn estimate(&self, block: Block) -> u64 {
        let (line, hash) = self.place(block);
        let line = &self.lines[line];
        (0..ROWS)
            .map(|row| {
                let (word, shift) = counter(hash, row);
                line.0[word] >> shift & COUNTER_MAX
            })
            .min()
            .expect("there are rows")
    }

    #[inline]
    fn place(&self, block: Block) -> (usize, u64) {
        let hash = mix(u64::from(block.0) + 1);
        ((hash >> 32) as usize & (self.lines.len() - 1), hash)
    }

    #[cold]
    fn halve(&mut self) {
        for word in self.lines.iter_mut().flat_map(|line| &mut line.0) {
            *word = *word >> 1 & 0x7777_7777_7777_7777;
        }
        self.counted /= 2;
    }
}

/// The counter of `row` in a line: its word, and its shift there. Each row has two words; five bits
/// of the hash choose one of their 32 counters.
#[inline]
fn counter(hash: u64, row: u32) -> (usize, u64) {
    let pick = hash >> (5 * row) & 31;
    ((2 * row) as usize + (pick >> 4) as usize, (pick & 15) * 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_too_low_nearly_right_and_halved() {
        let mut sketch = Sketch::new(1000, 10_000);
        for block in 0..1000 {
            for _ in 0..block % 8 {
                sketch.count(Block(block));
            }
        }
        let wrong = (0..1000).filter(|&block| {
            let estimate = sketch.estimate(Block(block));
            assert!(estimate >= u64::from(block % 8));
            estimate > u64::from(block % 8)
        });
        assert!(wrong.count() < 100);

        let mut sketch = Sketch::new(1, 32);
        (0..31).for_each(|_| sketch.count(Block(7)));
        assert_eq!(sketch.estimate(Block(7)), 15);
        sketch.count(Block(7));
        assert_eq!(sketch.estimate(Block(7)), 7);
        (0..16).for_each(|_| sketch.count(Block(7)));
        assert_eq!(sketch.estimate(Block(7)), 7);
    }
}
