//! Placements for commands: what is asked for, the runs, and what they come to in tables, documents
//! and pictures.
//!
//! Every combination of topology, size, replacement and placement is a [`PlacementCase`]. Cases
//! keep that order everywhere, so that what is compared stands together.

mod advice;
mod analysis;
mod cost_overrides;
mod document;
mod pictures;
mod setup;
mod table;
mod warm_up;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hither_core::placement::{self, Target};
use hither_core::registry::baseline;
use hither_core::{Spec, Topology};
use hither_sim::placement::{
    Binding, PlacementConfiguration, PlacementOptions, PlacementOutcome, PlacementSpec, files,
    memory,
};
use hither_sim::{References, Size};
use hither_trace::Trace;
use hither_trace::schema::ObjectKind;
use rayon::prelude::*;
use serde::Serialize;

pub use advice::{PlacementAdvice, advise};
pub use analysis::PlacementAnalysis;
pub use cost_overrides::CostOverrides;
pub use document::{document, pretty};
pub use pictures::Pictures;
pub use setup::{PlacementSetup, binding_name, binding_named};
pub use table::{CaseResult, lines, table, traffic};

pub use warm_up::WarmUpSpec;

use crate::format::{count, counted};
use crate::free_memory::half_of_free_bytes;
use crate::{Error, Result};

/// What is to be placed, how, and on which nodes.
#[derive(Clone, Debug, Default)]
pub struct PlacementRequest {
    /// None: no placement is simulated.
    pub nodes: Vec<Arc<Topology>>,
    /// The placements to compare; the first is the baseline.
    pub placements: Vec<PlacementSpec>,
    /// Of each node; the default capacity where it is empty.
    pub sizes: Vec<Size>,
    /// What a node gives up where the placement does not say.
    pub policies: Vec<Spec>,
}

/// How a run goes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunSettings {
    /// Which node a thread runs on.
    pub binding: Binding,
    /// The part at the beginning that is not counted.
    pub warm_up: WarmUpSpec,
    /// Costs that differ from those of the model.
    pub costs: CostOverrides,
}

/// One run.
#[derive(Clone, Debug)]
pub struct PlacementCase {
    /// What the engine is given.
    pub configuration: PlacementConfiguration,
    /// The size of a node as it was written, or what was chosen.
    pub size: String,
}

/// What the engine of a case takes things to cost.
#[derive(Serialize)]
#[serde(untagged)]
pub enum EngineCosts {
    /// Of caches of files.
    Files(files::FileCosts),
    /// Of pages of memory.
    Memory(memory::MemoryCosts),
}

impl PlacementCase {
    /// What things cost in it.
    pub fn costs(&self, costs: &CostOverrides, block_bytes: u32) -> Result<EngineCosts> {
        match self.target() {
            Target::Files => costs
                .files(&self.configuration.topology, block_bytes)
                .map(EngineCosts::Files),
            Target::Memory => costs.pages().map(EngineCosts::Memory),
        }
    }

    /// What it is of.
    pub fn target(&self) -> Target {
        self.configuration.spec.entry().target()
    }

    /// What a node gives up; pages of memory are not given up.
    pub fn policy(&self) -> Option<Spec> {
        (self.target() == Target::Files).then_some(self.configuration.replacement)
    }

    /// Blocks that all nodes together hold.
    pub fn blocks(&self) -> u64 {
        self.configuration
            .capacity
            .iter()
            .map(|&blocks| u64::from(blocks))
            .sum()
    }
}

/// What a trace is of; nothing where it says nothing of objects, and its blocks may be either.
pub fn data_kind(trace: &Trace) -> Option<Target> {
    let mut objects = trace.objects().iter().peekable();
    objects.peek()?;
    match objects.any(|object| object.kind == ObjectKind::Memory) {
        true => Some(Target::Memory),
        false => Some(Target::Files),
    }
}

/// The placements that are compared where none is named, as a list; bare block numbers are taken
/// for those of files.
pub fn default_placements(kind: Option<Target>) -> String {
    let compared = placement::compared(kind.unwrap_or(Target::Files)).into_iter();
    let names: Vec<&str> = compared.map(|spec| spec.entry().name).collect();
    names.join(",")
}

/// What is named, or else a list such as [`default_placements`] gives.
pub fn placements_or_default(
    named: &[PlacementSpec],
    defaults: &str,
) -> Result<Vec<PlacementSpec>> {
    match named.is_empty() {
        true => {
            PlacementSpec::parse_list(defaults).map_err(|error| Error::Usage(error.to_string()))
        }
        false => Ok(named.to_vec()),
    }
}

/// Every combination of what is asked for, of a trace of so many blocks.
pub fn cases(
    request: &PlacementRequest,
    block_bytes: u64,
    distinct: u64,
) -> Result<Vec<PlacementCase>> {
    let mut cases = Vec::new();
    let sizes: Vec<Option<Size>> = match request.sizes.is_empty() {
        true => vec![None],
        false => request.sizes.iter().copied().map(Some).collect(),
    };
    let policies = match request.policies.is_empty() {
        true => vec![baseline()],
        false => request.policies.clone(),
    };
    for topology in &request.nodes {
        for size in &sizes {
            for &replacement in &policies {
                for &spec in &request.placements {
                    let (capacity, size) = match size {
                        Some(size) => capacity_of_size(*size, topology, block_bytes, distinct)?,
                        None => default_capacity(spec.entry().target(), topology, distinct)?,
                    };
                    check_capacity(&spec, topology, &capacity, distinct, &size)?;
                    cases.push(PlacementCase {
                        configuration: PlacementConfiguration {
                            spec,
                            topology: topology.clone(),
                            capacity,
                            replacement,
                        },
                        size,
                    });
                }
            }
        }
    }
    Ok(cases)
}

/// The blocks of each node where a node is to have that size, and the size as written.
fn capacity_of_size(
    size: Size,
    topology: &Topology,
    block_bytes: u64,
    distinct: u64,
) -> Result<(Vec<u32>, String)> {
    let blocks = size.blocks(block_bytes, distinct);
    let blocks = blocks.map_err(|error| Error::Usage(error.to_string()))?;
    Ok((capacity_by_share(topology, blocks)?, size.to_string()))
}

/// So many blocks a node in the mean, shared out as the topology's capacities are where it knows
/// them.
fn capacity_by_share(topology: &Topology, blocks: u32) -> Result<Vec<u32>> {
    let total = blocks.checked_mul(topology.nodes() as u32).ok_or_else(|| {
        let (nodes, most) = (topology.nodes(), u32::MAX);
        Error::Usage(format!(
            "{blocks} blocks on each of {nodes} nodes are more than {most}, \
             the most that is possible"
        ))
    })?;
    let shares = topology.shares(total).into_iter();
    // A node without memory of its own has one block all the same: it is where the engine's
    // invariants begin.
    Ok(shares.map(|blocks| blocks.max(1)).collect())
}

/// The blocks of each node where nothing is said: caches of files hold half of the data in all
/// nodes together, so that there is something to decide; each node's memory holds all pages, as
/// that of most machines does, so that the placement and not the want of frames decides.
fn default_capacity(
    target: Target,
    topology: &Topology,
    distinct: u64,
) -> Result<(Vec<u32>, String)> {
    let nodes = topology.nodes() as u64;
    let (blocks, size) = match target {
        Target::Files => (distinct.div_ceil(2 * nodes), "half of the data"),
        Target::Memory => (distinct, "all of the data"),
    };
    let blocks = u32::try_from(blocks.max(1)).unwrap_or(u32::MAX);
    Ok((capacity_by_share(topology, blocks)?, size.to_owned()))
}

/// Pages cannot be put anywhere else: all frames together hold them all.
fn check_capacity(
    spec: &PlacementSpec,
    topology: &Topology,
    capacity: &[u32],
    distinct: u64,
    size: &str,
) -> Result<()> {
    let frames: u64 = capacity.iter().map(|&frames| u64::from(frames)).sum();
    if spec.entry().target() == Target::Memory && frames < distinct {
        let nodes = topology.nodes() as u64;
        return Err(Error::Usage(format!(
            "{} ({} of size {size}) do not hold the {} of the trace: `{}` needs {} a node or more",
            counted(frames, "frame"),
            counted(nodes, "node"),
            counted(distinct, "page"),
            spec.entry().name,
            count(distinct.div_ceil(nodes))
        )));
    }
    Ok(())
}

/// Fails where a placement is for another kind of data than the trace has.
pub fn check_kind(trace: &Trace, placements: &[PlacementSpec]) -> Result<()> {
    let mut found = data_kind(trace);
    for spec in placements {
        let entry = spec.entry();
        // Bare block numbers may be either, but not both at once: one table compares what can be
        // compared.
        if *found.get_or_insert(entry.target()) == entry.target() {
            continue;
        }
        let words = |target| match target {
            Target::Memory => "pages of memory",
            Target::Files => "blocks of files",
        };
        let others = placement::placement_policies()
            .iter()
            .filter(|other| other.target() != entry.target());
        let others: Vec<&str> = others.map(|other| other.name).collect();
        let at_hand = match data_kind(trace) {
            Some(of) => format!("{} is a trace of {}", trace.path().display(), words(of)),
            None => format!(
                "`{}` places {}",
                placements[0].entry().name,
                words(placements[0].entry().target())
            ),
        };
        return Err(Error::Usage(format!(
            "`{}` places {}, and {at_hand}; placements of those: {}",
            entry.name,
            words(entry.target()),
            others.join(", ")
        )));
    }
    Ok(())
}

/// What a run tells while it goes, and what may end it.
#[derive(Clone, Copy, Default)]
pub struct RunControl<'a> {
    /// Called with the references done, summed over all runs.
    pub progress: Option<&'a (dyn Fn(u64) + Sync)>,
    /// Ends the runs early with [`Error::Cancelled`] once it is true.
    pub cancel: Option<&'a AtomicBool>,
}

/// Runs every case, as many at a time as there are processors and as memory allows, and keeps up to
/// so many `moves` of each.
pub fn run(
    trace: &Trace,
    cases: &[PlacementCase],
    running: &RunSettings,
    moves: usize,
    watch: RunControl<'_>,
) -> Result<Vec<PlacementOutcome>> {
    let placements: Vec<PlacementSpec> = cases.iter().map(|case| case.configuration.spec).collect();
    check_kind(trace, &placements)?;
    let warm_up = running.warm_up.of(trace)?;
    let block_bytes = trace.options().block_bytes;
    let costs = cases
        .iter()
        .map(|case| case.costs(&running.costs, block_bytes));
    let costs: Vec<EngineCosts> = costs.collect::<Result<_, _>>()?;
    let done = AtomicU64::new(0);
    let one = |(case, costs): (&PlacementCase, &EngineCosts)| {
        let before = AtomicU64::new(0);
        let progress = |references: u64| {
            let more = references - before.swap(references, Ordering::Relaxed);
            let all = done.fetch_add(more, Ordering::Relaxed) + more;
            if let Some(progress) = watch.progress {
                progress(all);
            }
        };
        let options = PlacementOptions {
            binding: running.binding,
            warm_up,
            moves,
            progress: Some(&progress),
            cancel: watch.cancel,
            ..PlacementOptions::default()
        };
        match costs {
            EngineCosts::Files(costs) => files::run(trace, &case.configuration, costs, &options),
            EngineCosts::Memory(costs) => memory::run(trace, &case.configuration, costs, &options),
        }
    };
    let mut outcomes = Vec::with_capacity(cases.len());
    let each: Vec<(&PlacementCase, &EngineCosts)> = cases.iter().zip(&costs).collect();
    for some in each.chunks(concurrent_runs(trace, &each)) {
        let ended: Result<Vec<PlacementOutcome>, _> = some.par_iter().copied().map(one).collect();
        outcomes.extend(ended?);
    }
    Ok(outcomes)
}

/// How many runs have room in memory at a time. A run takes about 40 bytes a block for who holds it
/// and what ranks it, two counters for each block and node, and for files the calendars of links
/// and disks.
fn concurrent_runs(trace: &Trace, cases: &[(&PlacementCase, &EngineCosts)]) -> usize {
    let bytes = |(case, costs): &(&PlacementCase, &EngineCosts)| {
        let topology = &case.configuration.topology;
        let calendars = match costs {
            EngineCosts::Files(costs) => files::calendar_bytes(topology, costs),
            EngineCosts::Memory(_) => 0,
        };
        let each = 40 + 8 * topology.nodes() as u64;
        References::blocks(trace).max(1) as u64 * each + calendars
    };
    let largest = cases.iter().map(bytes).max().unwrap_or(1);
    usize::try_from(half_of_free_bytes() / largest)
        .unwrap_or(usize::MAX)
        .max(1)
}

/// Local latency of a machine of which only the firmware's distances are known, in which 10 is
/// local.
const DEFAULT_LOCAL_NS: u32 = 70;

/// The nodes of the machine that the trace was recorded on, as far apart as its firmware said, or
/// else one hop.
pub fn recorded_topology(trace: &Trace) -> Topology {
    let nodes = trace.nodes();
    let known = &trace.meta().nodes;
    let latencies: Vec<u32> = known
        .iter()
        .flat_map(|node| {
            node.distances
                .iter()
                .map(|&distance| DEFAULT_LOCAL_NS.saturating_mul(distance) / 10)
        })
        .collect();
    let matrix = (latencies.len() == nodes * nodes)
        .then(|| Topology::from_matrix("the trace's nodes", &latencies).ok());
    matrix.flatten().unwrap_or_else(|| Topology::uniform(nodes))
}

/// The file's name alone, for a title.
pub fn file_name(path: &Path) -> String {
    let name = path.file_name();
    name.map_or_else(
        || path.to_string_lossy().into(),
        |name| name.to_string_lossy().into(),
    )
}
