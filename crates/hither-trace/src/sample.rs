//! Samples of blocks: all references to some of the blocks. The sample behaves like the whole trace
//! in a cache that is smaller by the same factor. A sample of references would not.
//!
//! Source: Waldspurger, Park, Garthwaite and Ahmad, "Efficient MRC construction with SHARDS", FAST
//! 2015, sections 3.1 (fixed rate) and 3.2 (fixed size). That this holds for policies of any kind
//! is shown in Waldspurger, Saemundsson, Ahmad and Park, "Cache modeling and optimization using
//! miniature simulations", USENIX ATC 2017.
//!
//! A block is in the sample if the hash of its key is below a threshold. For a fixed number of
//! blocks the threshold is lowered whenever there are more, so the sample is the blocks with the
//! lowest hashes of the whole trace. Section 3.2 rescales earlier counts when blocks leave the
//! sample. Here all references to these blocks are removed after the load, so a sample of fixed
//! size equals the sample of the rate at which it ended.

use std::collections::BinaryHeap;

use hither_core::random::mix;

/// Which blocks of a trace are loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Sample {
    /// All.
    #[default]
    All,
    /// A share of the blocks, above 0 and at most 1.
    Rate(f64),
    /// At most that many blocks.
    Blocks(u32),
}

/// The smallest number of blocks. Fewer show nothing, and a user who writes 1 may mean all.
const SAMPLE_BLOCKS_MIN: u32 = 100;

/// The text is not a [`Sample`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a sample: write a part of the blocks (0.01 or 1%) or how many of them at most \
     (100000; 100 or more)"
)]
pub struct SampleError(String);

impl std::str::FromStr for Sample {
    type Err = SampleError;

    fn from_str(text: &str) -> Result<Sample, SampleError> {
        let text = text.trim();
        let rate = match text.strip_suffix('%') {
            Some(percent) => percent
                .trim_end()
                .parse()
                .ok()
                .map(|percent: f64| percent / 100.0),
            None if text.contains('.') => text.parse().ok(),
            None => {
                let blocks = text
                    .parse()
                    .ok()
                    .filter(|blocks| *blocks >= SAMPLE_BLOCKS_MIN);
                return blocks
                    .map(Sample::Blocks)
                    .ok_or_else(|| SampleError(text.to_owned()));
            }
        };
        rate.filter(|rate| *rate > 0.0 && *rate <= 1.0)
            .map(Sample::Rate)
            .ok_or_else(|| SampleError(text.to_owned()))
    }
}

/// What a sampled trace is a sample of.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Sampled {
    /// The share of all blocks that is in the sample, by the threshold of the hash.
    pub rate: f64,
    /// The references of the whole trace.
    pub references: u64,
}

/// Chooses blocks while a trace is loaded.
#[derive(Debug)]
pub(crate) struct Sampler {
    /// Blocks with a hash below this are in the sample.
    threshold: u64,
    blocks_max: usize,
    /// The blocks in the sample, the highest hash on top. Empty if only the rate is fixed.
    inside: BinaryHeap<(u64, u32)>,
    /// References seen so far.
    references: u64,
}

impl Sampler {
    /// `None` for [`Sample::All`].
    pub(crate) fn new(sample: Sample) -> Option<Sampler> {
        let (threshold, blocks_max) = match sample {
            Sample::All => return None,
            Sample::Rate(rate) => ((rate * HASH_LIMIT as f64) as u64, usize::MAX),
            Sample::Blocks(blocks) => (HASH_LIMIT, blocks as usize),
        };
        Some(Sampler {
            threshold,
            blocks_max,
            inside: BinaryHeap::new(),
            references: 0,
        })
    }

    /// Whether the block with this key is in the sample. Must be called for each reference.
    #[inline]
    pub(crate) fn admits(&mut self, key: u64) -> bool {
        self.references += 1;
        hash(key) < self.threshold
    }

    /// Adds a new block that was admitted.
    pub(crate) fn added(&mut self, key: u64, number: u32) {
        if self.blocks_max == usize::MAX {
            return;
        }
        self.inside.push((hash(key), number));
        while self.inside.len() > self.blocks_max {
            self.threshold = self.inside.peek().expect("it is not empty").0;
            while self
                .inside
                .peek()
                .is_some_and(|top| top.0 >= self.threshold)
            {
                self.inside.pop();
            }
        }
    }

    /// Which of the added blocks are still in the sample. `None` if all are.
    pub(crate) fn inside(&self, blocks: usize) -> Option<Vec<bool>> {
        if self.blocks_max == usize::MAX || self.inside.len() == blocks {
            return None;
        }
        let mut inside = vec![false; blocks];
        for (_, number) in &self.inside {
            inside[*number as usize] = true;
        }
        Some(inside)
    }

    pub(crate) fn sampled(&self) -> Sampled {
        Sampled {
            rate: self.threshold as f64 / HASH_LIMIT as f64,
            references: self.references,
        }
    }
}

/// Upper limit of hashes: the number of values that a rate can represent exactly.
const HASH_LIMIT: u64 = 1 << f64::MANTISSA_DIGITS;

/// The hash of a block's key. Every bit of it depends on every bit of the key.
fn hash(key: u64) -> u64 {
    mix(key.wrapping_add(0x9e37_79b9_7f4a_7c15)) >> (u64::BITS - f64::MANTISSA_DIGITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_users_write() {
        for (text, sample) in [
            ("0.01", Sample::Rate(0.01)),
            ("1%", Sample::Rate(0.01)),
            (" 100 % ", Sample::Rate(1.0)),
            ("1.0", Sample::Rate(1.0)),
            ("5000", Sample::Blocks(5000)),
        ] {
            assert_eq!(text.parse(), Ok(sample), "{text}");
        }
        for junk in [
            "1",
            "99",
            "",
            "0",
            "0.0",
            "0%",
            "101%",
            "1.5",
            "-1",
            "nan%",
            "1e-3",
            "x",
            "5000000000",
        ] {
            assert!(junk.parse::<Sample>().is_err(), "{junk}");
        }
    }
}
