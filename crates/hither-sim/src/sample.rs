//! From a sample of a trace's blocks to the whole trace: cache sizes are scaled down by the
//! sampling rate, misses are scaled up by it, and the error is estimated.
//!
//! Source: SHARDS (Waldspurger et al., FAST 2015) and its miniature simulation of any policy
//! (USENIX ATC 2017); `hither_trace` draws the sample. A cache of `c` blocks becomes one of `c`
//! times the rate. Misses are divided by the rate and related to all references of the trace, and
//! not to the sampled ones. This is the correction of SHARDS-adj (section 3.3): the references that
//! a very popular block adds by being in the sample, or removes by not being in it, are hits at
//! nearly any size.
//!
//! The error is estimated from the sample: it is split by block into eight parts of equal size,
//! each is simulated in a cache of an eighth of the size, and the standard error of the mean of the
//! eight miss ratios is reported. This doubles the work and needs nothing but the sample. It does
//! not include a bias that all parts share, such as that of a cache of a few blocks. So no error is
//! reported if the cache of a part would be smaller than [`PART_BLOCKS_MIN`].
//!
//! One policy does not scale: `lfu` reserves a few slots for blocks referenced once, in a cache of
//! any size, and these are a larger share of a small cache. Its estimates are too high, by up to 13
//! points on OLTP (2026-11, docs/results/simulator.md).

use hither_core::random::mix;
use hither_core::{Access, Spec};
use hither_trace::Sampled;
use serde::Serialize;

/// Parts into which a sample is split for its error.
pub(crate) const SAMPLE_PARTS: usize = 8;

/// The smallest cache of a part whose miss ratio is used.
pub const PART_BLOCKS_MIN: u32 = 8;

/// What a result was estimated from.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The share of all blocks that was simulated.
    pub rate: f64,
    /// References that were simulated.
    pub references: u64,
    /// The size of the simulated cache.
    pub cache_blocks: u32,
    /// The standard error of the hit ratio. `None` if the cache is too small.
    pub standard_error: Option<f64>,
}

/// The size that represents a cache of `cache_blocks`, at least one block.
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

/// Splits a batch by block into the parts.
pub(crate) fn split_into_parts(batch: &[Access], parts: &mut [Vec<Access>; SAMPLE_PARTS]) {
    parts.iter_mut().for_each(Vec::clear);
    for access in batch {
        // Neighbouring blocks are alike, so the parts must not be more even than chance. With a
        // mere multiplication, which spreads neighbours over all parts, the error of P6 (ARC's
        // traces) came out ten times too small.
        let hash = mix(u64::from(access.block.0) + 1);
        parts[(hash % SAMPLE_PARTS as u64) as usize].push(*access);
    }
}
