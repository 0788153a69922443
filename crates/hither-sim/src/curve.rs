//! Miss-ratio curves: the misses of a trace in caches of all sizes.
//!
//! Policies with a [stack] have exact curves: a thousand sizes cost no more than one. For other
//! policies each size is a cache to simulate, so their curves have fewer points.

use crate::caches::{CacheOptions, Error};
use crate::grid::Row;
use crate::objects::{self, ObjectCache, ObjectOutcome};
use crate::references::References;
use crate::stack;
use hither_core::Spec;
use hither_trace::Trace;

/// How sizes are spaced, from one block to all distinct blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spacing {
    /// By equal factors: the same detail for small and for large caches.
    #[default]
    Log,
    /// By equal steps. A quarter of the sizes lies below the first step, by equal factors, since
    /// curves are steepest there.
    Linear,
}

/// The number of points of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Points {
    /// The largest number for a policy that is simulated size by size.
    pub simulated: usize,
    /// The largest number for a policy with a stack. Includes the points above.
    pub exact: usize,
    /// Their spacing.
    pub spacing: Spacing,
}

impl Default for Points {
    fn default() -> Self {
        Points {
            simulated: 64,
            exact: 1000,
            spacing: Spacing::Log,
        }
    }
}

/// The curve of one policy: the result of each cache, by size.
pub type MissRatioCurve = Row;

/// The curves of all policies, in one pass over the trace.
pub fn curves(
    references: &impl References,
    specs: &[Spec],
    points: Points,
    options: &CacheOptions<'_>,
) -> Result<Vec<MissRatioCurve>, Error> {
    let rate = references.sampled().map_or(1.0, |sampled| sampled.rate);
    let distinct = (f64::from(references.blocks()) / rate).round() as u32;
    let simulated = sizes(distinct, points.simulated, points.spacing);
    let mut exact = sizes(distinct, points.exact, points.spacing);
    exact.extend(&simulated);
    exact.sort_unstable();
    exact.dedup();
    let sizes_of = |&policy: &Spec| Row {
        policy,
        cells: if stack::is_stack_algorithm(&policy) {
            exact.clone()
        } else {
            simulated.clone()
        },
    };
    let rows: Vec<Row<u32>> = specs.iter().map(sizes_of).collect();
    Row::run(&rows, references, options)
}

/// The curves of all policies over sizes in bytes, in one pass over a trace whose objects have
/// sizes. The sizes are those of a curve of as many blocks, times the mean size of an object.
pub fn object_curves(
    trace: &Trace,
    specs: &[Spec],
    points: Points,
    options: &CacheOptions<'_>,
) -> Result<Vec<Row<ObjectOutcome>>, Error> {
    let (distinct, distinct_bytes) = (trace.blocks_of_all(), trace.distinct_bytes_of_all());
    let mean_bytes = distinct_bytes as f64 / distinct.max(1) as f64;
    let distinct = u32::try_from(distinct).unwrap_or(u32::MAX);
    let bytes = |objects: u32| (f64::from(objects) * mean_bytes).round() as u64;
    let mut sizes: Vec<u64> = sizes(distinct, points.simulated, points.spacing)
        .into_iter()
        .map(|objects| bytes(objects).max(1))
        .collect();
    sizes.dedup();
    let caches: Vec<ObjectCache> = specs
        .iter()
        .flat_map(|&spec| sizes.iter().map(move |&bytes| ObjectCache { spec, bytes }))
        .collect();
    let outcomes = objects::run(trace, &caches, options)?;
    let lengths = specs.iter().map(|&spec| (spec, sizes.len()));
    Ok(Row::split(lengths, outcomes))
}

/// Up to `points` sizes from one block to `distinct` blocks, ascending. All sizes if there are
/// fewer, and none without blocks.
pub fn sizes(distinct: u32, points: usize, spacing: Spacing) -> Vec<u32> {
    if distinct as usize <= points {
        return (1..=distinct).collect();
    }
    let below = match spacing {
        Spacing::Log => 0,
        Spacing::Linear => points / 4,
    };
    let steps = (points - below).saturating_sub(1).max(1) as f64;
    let step = f64::from(distinct - 1) / steps;
    let mut sizes: Vec<u32> = (0..points - below)
        .map(|number| match spacing {
            _ if points == 1 => f64::from(distinct),
            Spacing::Log => f64::from(distinct).powf(number as f64 / steps),
            Spacing::Linear => 1.0 + number as f64 * step,
        })
        .chain((1..=below).map(|number| step.powf(number as f64 / (below + 1) as f64)))
        .map(|size| (size.round() as u32).clamp(1, distinct))
        .collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_go_from_one_block_to_all() {
        assert_eq!(sizes(0, 8, Spacing::Log), [0u32; 0]);
        assert_eq!(sizes(5, 8, Spacing::Log), [1, 2, 3, 4, 5]);
        assert_eq!(sizes(100, 1, Spacing::Log), [100]);
        assert_eq!(sizes(10_000, 5, Spacing::Log), [1, 10, 100, 1000, 10_000]);
        let linear = [1, 10, 101, 201, 301, 401];
        assert_eq!(sizes(401, 6, Spacing::Linear), linear);
        let many = sizes(1_000_000_007, 1000, Spacing::Log);
        assert!(many.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(many.last(), Some(&1_000_000_007));
    }
}
