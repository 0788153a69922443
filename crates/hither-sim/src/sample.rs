//! From a sample of a trace's blocks to the whole: cache sizes go down by the sampling rate, misses
//! go up by it, and the error is stated.
//!
//! Source: SHARDS (Waldspurger et al., FAST 2015) and its miniature simulation of any policy
//! (USENIX ATC 2017); `hither_trace` draws the sample. A cache of `c` blocks becomes one of `c`
//! times the rate. Misses are divided by the rate and related to all references of the trace, not
//! to those that happened to be sampled. That is the correction of SHARDS-adj (section 3.3): what a
//! very popular block adds by being in the sample, or takes away by being out of it, are hits at
//! nearly any size.
//!
//! The error comes from the sample itself: it is cut by block into eight equal parts, each is
//! simulated on its own in a cache of an eighth, and the standard error of the mean of the eight
//! miss ratios is given. That doubles the work, and it asks nothing of the trace that the sample
//! does not know. It does not see a bias that all parts share, such as that of a cache of a few
//! blocks: where a part's cache would be smaller than [`PART_BLOCKS_MIN`] no error is given.
//!
//! One policy does not scale: `lfu` leaves a handful of slots to blocks referenced once in a cache
//! of any size, and in a small one that is more. Its estimates are too high, by up to 13 points on
//! OLTP (2026-11, docs/results/simulator.md).

use hither_core::random::mix;
use hither_core::{Access, Spec};
use hither_trace::Sampled;
use serde::Serialize;

/// How many parts a sample is cut into for its error.
pub(crate) const SAMPLE_PARTS: usize = 8;

/// The smallest cache of a part whose miss ratio is taken for one.
pub const PART_BLOCKS_MIN: u32 = 8;

/// What an outcome was estimated from.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The part of all blocks that was simulated.
    pub rate: f64,
    /// References that were simulated.
    pub references: u64,
    /// The size of the cache that was.
    pub cache_blocks: u32,
    /// The standard error of the hit ratio; none where the cache is too small to tell.
    pub standard_error: Option<f64>,
}

/// The size that stands for a cache of `cache_blocks`, at least one block.
pub(crate) fn scaled_blocks(cache_blocks: u32, rate: f64) -> u32 {
    ((f64::from(cache_blocks) * rate).round() as u32).max(1)
}

/// Why a policy cannot be simulated on a sample, if it cannot.
pub(crate) fn why_not_sampled(spec: &Spec) -> Option<&'static str> {
    let needs = spec.entry().needs;
    (needs.sites || needs.objects || needs.processes).then_some("all blocks in their order")
}

/// Hits and misses of the whole trace, from the misses in the sample.
pub(crate) fn extrapolate(sampled: Sampled, misses: u64) -> (u64, u64) {
    let misses = ((misses as f64 / sampled.rate).round() as u64).min(sampled.references);
    (sampled.references - misses, misses)
}

/// The standard error of the miss ratio, from the misses in each part.
pub(crate) fn standard_error(sampled: Sampled, misses: &[u64; SAMPLE_PARTS]) -> f64 {
    let references = sampled.references as f64 * sampled.rate / SAMPLE_PARTS as f64;
    let ratios = misses.map(|misses| (misses as f64 / references).min(1.0));
    let mean = ratios.iter().sum::<f64>() / SAMPLE_PARTS as f64;
    let squares: f64 = ratios.iter().map(|ratio| (ratio - mean).powi(2)).sum();
    (squares / (SAMPLE_PARTS * (SAMPLE_PARTS - 1)) as f64).sqrt()
}

/// Deals a batch out to the parts, by block.
pub(crate) fn split_into_parts(batch: &[Access], parts: &mut [Vec<Access>; SAMPLE_PARTS]) {
    parts.iter_mut().for_each(Vec::clear);
    for access in batch {
        // Neighbours are alike, so the parts must not be more even than chance: with a mere
        // multiplication, which spreads neighbours over all parts, the error of P6 (ARC's traces)
        // came out as a tenth of what it was.
        let hash = mix(u64::from(access.block.0) + 1);
        parts[(hash % SAMPLE_PARTS as u64) as usize].push(*access);
    }
}
