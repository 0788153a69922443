//! Runs the cases of a comparison, as many at a time as processors and memory allow.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hither_core::Topology;
use hither_sim::References;
use hither_sim::placement::{PlacementOptions, PlacementSpec, files, memory};
use hither_trace::Trace;
use rayon::prelude::*;

use super::case::{CaseResult, EngineCosts, PlacementCase, RunSettings};
use super::data_kind::check_kind;
use crate::Result;
use crate::free_memory::half_of_free_bytes;

/// How a run reports its progress, and how it is cancelled.
#[derive(Clone, Copy, Default)]
pub struct RunControl<'a> {
    /// Called with the references done, summed over all runs.
    pub progress: Option<&'a (dyn Fn(u64) + Sync)>,
    /// Ends the runs early with [`Error::Cancelled`](crate::Error::Cancelled) once it is true.
    pub cancel: Option<&'a AtomicBool>,
}

/// Runs every case, in parallel as far as processors and memory allow. The results are in the order
/// of the cases, and each keeps at most `moves` of its moves.
pub fn run(
    trace: &Trace,
    cases: Vec<PlacementCase>,
    running: &RunSettings,
    moves: usize,
    control: RunControl<'_>,
) -> Result<Vec<CaseResult>> {
    let placements: Vec<PlacementSpec> = cases.iter().map(|case| case.configuration.spec).collect();
    check_kind(trace, &placements)?;
    let warm_up = running.warm_up.resolved(trace)?;
    let block_bytes = trace.options().block_bytes;
    let with_costs = |case: PlacementCase| {
        let costs = case.costs(&running.costs, block_bytes)?;
        Ok((case, costs))
    };
    let each: Result<Vec<(PlacementCase, EngineCosts)>> =
        cases.into_iter().map(with_costs).collect();
    let mut each = each?;
    let done = AtomicU64::new(0);
    let one = |(case, costs): (PlacementCase, EngineCosts)| {
        let before = AtomicU64::new(0);
        let progress = |references: u64| {
            let more = references - before.swap(references, Ordering::Relaxed);
            let all = done.fetch_add(more, Ordering::Relaxed) + more;
            if let Some(progress) = control.progress {
                progress(all);
            }
        };
        let options = PlacementOptions {
            binding: running.binding,
            warm_up,
            moves,
            progress: Some(&progress),
            cancel: control.cancel,
            ..PlacementOptions::default()
        };
        let outcome = match &costs {
            EngineCosts::Files(costs) => files::run(trace, &case.configuration, costs, &options),
            EngineCosts::Memory(costs) => memory::run(trace, &case.configuration, costs, &options),
        }?;
        Ok(CaseResult { case, outcome })
    };
    let mut results = Vec::with_capacity(each.len());
    let at_once = concurrent_runs(trace, &each);
    while !each.is_empty() {
        let some = each.drain(..at_once.min(each.len()));
        let some: Result<Vec<CaseResult>> =
            some.collect::<Vec<_>>().into_par_iter().map(one).collect();
        results.extend(some?);
    }
    Ok(results)
}

/// The approximate memory of a run for each distinct block of the trace: 40 bytes for its holders
/// and its rank, and two counters a node.
pub(crate) fn bytes_per_block(topology: &Topology) -> u64 {
    40 + 8 * topology.nodes() as u64
}

/// The number of runs that fit into memory at the same time.
///
/// For files, a run takes memory for the calendars of links and disks besides.
fn concurrent_runs(trace: &Trace, cases: &[(PlacementCase, EngineCosts)]) -> usize {
    let bytes = |(case, costs): &(PlacementCase, EngineCosts)| {
        let topology = &case.configuration.topology;
        let calendars = match costs {
            EngineCosts::Files(costs) => files::calendar_bytes(topology, costs),
            EngineCosts::Memory(_) => 0,
        };
        References::blocks(trace).max(1) as u64 * bytes_per_block(topology) + calendars
    };
    let largest = cases.iter().map(bytes).max().unwrap_or(1);
    usize::try_from(half_of_free_bytes() / largest)
        .unwrap_or(usize::MAX)
        .max(1)
}
