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
//! The error has three terms, all from the sample alone. It is split by block into eighths, each
//! simulated in an eighth of the cache, and into halves, each in half of the cache.
//!
//! - *Which blocks were drawn*: the standard error of the mean of the eighths.
//! - *Which popular blocks were drawn*: the slope of the eighths' misses over their references,
//!   times the references that the sample lacks (the regression estimator of Cochran, Sampling
//!   Techniques, chapter 7). It is small where the correction above holds. It does not hold for
//!   `mru`, which misses popular blocks too.
//! - *Whether the policy scales*: the miss ratio's change per doubling of the sample. One
//!   observation is from halves to the whole, one is half the change from eighths to halves. All
//!   have the same blocks, so without an effect of scale they differ little: for most policies by
//!   less than a tenth of the first term. The larger one is taken, times the doublings from the
//!   sample to the trace: as if each were to change the ratio as much again. There is at least one,
//!   since a result that depends on accidents differs as much in the trace once more.
//!
//! The terms are added in quadrature. A 95 % interval is [`QUANTILE`] standard errors to either
//! side, but `QUANTILE_OF_SCALE` times the third term. Where the third term alone exceeds the 95 %
//! interval of the other two, chance does not explain it, and what follows for the trace is a
//! guess: the estimate is refused. The checks triple the work of a sample. No error is reported if
//! the cache of an eighth would be smaller than [`PART_BLOCKS_MIN`].
//!
//! The check sees no effect that ends within the sample. Some references return to a block after
//! fewer other ones than `1 / rate`. In any sample they follow each other at once and always hit.
//! In the trace a policy that may evict a new block at the next miss, such as `sieve`, can miss
//! them (docs/results/simulator.md).

use std::fmt;

use hither_core::random::mix;
use hither_core::{Access, Block, Spec};
use hither_trace::Sampled;
use serde::{Serialize, Serializer};

/// Eighths, from which most of the error is estimated.
const EIGHTHS: usize = 8;

/// The eighths and then the halves. A half has the blocks of four eighths.
pub(crate) const SAMPLE_PARTS: usize = EIGHTHS + 2;

/// The smallest cache of an eighth whose miss ratio is used.
pub const PART_BLOCKS_MIN: u32 = 8;

/// Half the width of a 95 % interval in standard errors: the quantile of Student's t distribution
/// with seven degrees of freedom, since the error comes from eight parts.
pub const QUANTILE: f64 = 2.365;

/// The same quantile with two degrees of freedom, since the change per doubling comes from two
/// observations.
const QUANTILE_OF_SCALE: f64 = 4.303;

/// What a result was estimated from.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The share of all blocks that was simulated.
    pub rate: f64,
    /// References that were simulated.
    pub references: u64,
    /// The size of the simulated cache.
    pub cache_blocks: u32,
    /// The standard error of the hit ratio. `None` if the cache is too small or the estimate is
    /// refused.
    pub standard_error: Option<f64>,
    /// The limits of the hit ratio's 95 % interval. `None` without a standard error.
    pub interval: Option<[f64; 2]>,
    /// Why there is no estimate, if there is none. The counts of the outcome must not be used then.
    pub refused: Option<Refusal>,
}

/// The hit ratio changes with the size of the sample by more than chance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Refusal {
    /// The hit ratio of the sample.
    pub sample: f64,
    /// The mean of its halves, in half of the cache.
    pub halves: f64,
    /// The mean of its eighths, in an eighth of the cache.
    pub eighths: f64,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [sample, halves, eighths] =
            [self.sample, self.halves, self.eighths].map(|ratio| 100.0 * ratio);
        write!(
            f,
            "its hit ratio depends on the size of the sample: {sample:.1} %, {halves:.1} % for \
             halves of it and {eighths:.1} % for eighths; leave --sample out or raise it"
        )
    }
}

impl Serialize for Refusal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// References and misses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) references: u64,
    pub(crate) misses: u64,
}

/// The size that represents a cache of `cache_blocks`, at least one block.
pub(crate) fn scaled_blocks(cache_blocks: u32, rate: f64) -> u32 {
    ((f64::from(cache_blocks) * rate).round() as u32).max(1)
}

/// The share of the sample's blocks that a part has.
pub(crate) fn share_of_part(part: usize) -> f64 {
    if part < EIGHTHS {
        1.0 / EIGHTHS as f64
    } else {
        0.5
    }
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

/// The standard error of the miss ratio of the `whole` sample, or why there is no estimate.
pub(crate) fn standard_error(
    sampled: Sampled,
    whole: Counts,
    parts: &[Counts; SAMPLE_PARTS],
) -> Result<f64, Refusal> {
    if sampled.rate >= 1.0 {
        return Ok(0.0);
    }
    let expected = sampled.references as f64 * sampled.rate;
    // Not limited to 1: that would hide how far the parts are apart.
    let ratio = |counts: Counts, share: f64| counts.misses as f64 / (expected * share);
    let of_part = |part: usize| ratio(parts[part], share_of_part(part));
    let eighths: [f64; EIGHTHS] = std::array::from_fn(of_part);
    let sample = ratio(whole, 1.0);
    let halves_mean = (of_part(EIGHTHS) + of_part(EIGHTHS + 1)) / 2.0;
    let eighths_mean = mean(&eighths);

    let squares: f64 = eighths
        .iter()
        .map(|ratio| (ratio - eighths_mean).powi(2))
        .sum();
    let drawn = (squares / (EIGHTHS * (EIGHTHS - 1)) as f64).sqrt();
    let references: [f64; EIGHTHS] = std::array::from_fn(|part| {
        parts[part].references as f64 / (expected * share_of_part(part))
    });
    let popular = slope(&references, &eighths) * (1.0 - whole.references as f64 / expected);
    let by_chance = drawn.hypot(popular);

    // From halves to the whole is one doubling, from eighths to halves are two.
    let per_doubling = (sample - halves_mean)
        .abs()
        .max((halves_mean - eighths_mean).abs() / 2.0);
    let by_scale = per_doubling * (-sampled.rate.log2()).max(1.0);
    if by_scale > QUANTILE * by_chance {
        let [sample, halves, eighths] =
            [sample, halves_mean, eighths_mean].map(|misses| (1.0 - misses).max(0.0));
        return Err(Refusal {
            sample,
            halves,
            eighths,
        });
    }
    Ok(by_chance.hypot(by_scale * QUANTILE_OF_SCALE / QUANTILE))
}

/// The 95 % interval of a ratio.
pub(crate) fn interval(ratio: f64, standard_error: f64) -> [f64; 2] {
    let margin = QUANTILE * standard_error;
    [(ratio - margin).max(0.0), (ratio + margin).min(1.0)]
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The slope of the line through the points by least squares; 0 if all `x` are equal.
fn slope(x: &[f64; EIGHTHS], y: &[f64; EIGHTHS]) -> f64 {
    let (x_mean, y_mean) = (mean(x), mean(y));
    let squares: f64 = x.iter().map(|x| (x - x_mean).powi(2)).sum();
    let products: f64 = x
        .iter()
        .zip(y)
        .map(|(x, y)| (x - x_mean) * (y - y_mean))
        .sum();
    if squares > 0.0 {
        products / squares
    } else {
        0.0
    }
}

/// Splits a batch by block into the parts.
pub(crate) fn split_into_parts(batch: &[Access], parts: &mut [Vec<Access>; SAMPLE_PARTS]) {
    parts.iter_mut().for_each(Vec::clear);
    for access in batch {
        for part in parts_of(access.block) {
            parts[part].push(*access);
        }
    }
}

/// The parts of a sample that a block is in: its eighth and its half.
#[inline]
pub(crate) fn parts_of(block: Block) -> [usize; 2] {
    // Neighbouring blocks are alike, so the parts must not be more even than chance. With a mere
    // multiplication, which spreads neighbours over all parts, the error of P6 (ARC's traces) came
    // out ten times too small.
    let eighth = (mix(u64::from(block.0) + 1) % EIGHTHS as u64) as usize;
    [eighth, EIGHTHS + eighth / (EIGHTHS / 2)]
}
