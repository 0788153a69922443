//! The cases of a comparison: every combination of topology, size, replacement policy and placement
//! that a request names.

use std::sync::Arc;

use hither_core::placement::Target;
use hither_core::registry::baseline;
use hither_core::{Spec, Topology};
use hither_sim::Size;
use hither_sim::placement::{
    Binding, PlacementConfiguration, PlacementOutcome, PlacementSpec, Totals, files, memory,
};
use serde::Serialize;

use super::cost_overrides::CostOverrides;
use super::warm_up::WarmUpSpec;
use crate::format::{count, counted};
use crate::{Error, Result};

/// A comparison of placements: every combination of these is one case.
#[derive(Clone, Debug, Default)]
pub struct PlacementRequest {
    /// The topologies. Where there is none, no placement is simulated.
    pub nodes: Vec<Arc<Topology>>,
    /// The placements to compare; the first is the baseline.
    pub placements: Vec<PlacementSpec>,
    /// The capacities of each node. Where it is empty, the default capacity is simulated.
    pub sizes: Vec<Size>,
    /// The replacement policies of the nodes, for placements that do not choose victims themselves.
    pub policies: Vec<Spec>,
    /// Whether pages are reclaimed where frames do not hold all pages of the trace at once.
    /// Otherwise such a case is refused.
    pub reclaims: bool,
}

/// The settings that all runs of a comparison share.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunSettings {
    /// Which node a thread runs on.
    pub binding: Binding,
    /// The part at the beginning of the trace that is not counted.
    pub warm_up: WarmUpSpec,
    /// The costs that replace those of the model.
    pub costs: CostOverrides,
}

/// One run: a placement on a topology, with a capacity and a replacement policy.
#[derive(Clone, Debug)]
pub struct PlacementCase {
    /// The input of the engine.
    pub configuration: PlacementConfiguration,
    /// The size of a node as the user wrote it, or the name of the default.
    pub size: String,
}

/// A case with what came of it.
#[derive(Clone, Debug)]
pub struct CaseResult {
    /// The case that was simulated.
    pub case: PlacementCase,
    /// What came of it.
    pub outcome: PlacementOutcome,
}

/// A case, and the part of its outcome that tables and advice need: a sweep keeps no more.
#[derive(Clone, Copy, Debug)]
pub struct CaseSummary<'a> {
    /// The case that was simulated.
    pub case: &'a PlacementCase,
    /// The counts after the warm-up.
    pub totals: &'a Totals,
    /// The modelled time of the whole run in nanoseconds.
    pub modelled_time_ns: u64,
}

/// The modelled costs of the engine that runs a case.
#[derive(Serialize)]
#[serde(untagged)]
pub enum EngineCosts {
    /// Costs of caches of file blocks.
    Files(files::FileCosts),
    /// Costs of pages of memory.
    Memory(memory::MemoryCosts),
}

impl CaseResult {
    /// The part that tables and advice need.
    pub fn summary(&self) -> CaseSummary<'_> {
        CaseSummary {
            case: &self.case,
            totals: &self.outcome.totals,
            modelled_time_ns: self.outcome.modelled_time_ns,
        }
    }
}

impl PlacementCase {
    /// The modelled costs of this case.
    pub fn costs(&self, costs: &CostOverrides, block_bytes: u32) -> Result<EngineCosts> {
        match self.target() {
            Target::Files => costs
                .files(&self.configuration.topology, block_bytes)
                .map(EngineCosts::Files),
            Target::Memory => costs.pages().map(EngineCosts::Memory),
        }
    }

    /// What is placed: files or memory.
    pub fn target(&self) -> Target {
        self.configuration.spec.entry().target()
    }

    /// The replacement policy of the nodes. Pages of memory have none: a clock reclaims them.
    pub fn policy(&self) -> Option<Spec> {
        (self.target() == Target::Files).then_some(self.configuration.replacement)
    }

    /// The capacity of all nodes together in blocks.
    pub fn blocks(&self) -> u64 {
        self.configuration
            .capacity
            .iter()
            .map(|&blocks| u64::from(blocks))
            .sum()
    }
}

/// Every combination of what is requested, for a trace of `distinct` blocks.
pub fn cases(
    request: &PlacementRequest,
    block_bytes: u64,
    distinct: u64,
) -> Result<Vec<PlacementCase>> {
    let mut cases = Vec::new();
    let sizes: Vec<Option<Size>> = if request.sizes.is_empty() {
        vec![None]
    } else {
        request.sizes.iter().copied().map(Some).collect()
    };
    let policies = if request.policies.is_empty() {
        vec![baseline()]
    } else {
        request.policies.clone()
    };
    for topology in &request.nodes {
        for size in &sizes {
            for &replacement in &policies {
                for &spec in &request.placements {
                    let (capacity, size) = match size {
                        Some(size) => capacity_of_size(*size, topology, block_bytes, distinct)?,
                        None => default_capacity(spec.entry().target(), topology, distinct)?,
                    };
                    if !request.reclaims {
                        check_capacity(&spec, topology, &capacity, distinct, &size)?;
                    }
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

/// The capacity of each node in blocks for a size that the user wrote, and that size as text.
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

/// Distributes `blocks` times the number of nodes over the nodes, in proportion to their memory
/// where the topology knows it.
fn capacity_by_share(topology: &Topology, blocks: u32) -> Result<Vec<u32>> {
    let total = blocks.checked_mul(topology.nodes() as u32).ok_or_else(|| {
        let (nodes, most) = (topology.nodes(), u32::MAX);
        Error::Usage(format!(
            "{blocks} blocks on each of {nodes} nodes are more than {most}, \
             the most that is possible"
        ))
    })?;
    let shares = topology.shares(total).into_iter();
    // The engine's invariants need at least one block on each node.
    Ok(shares.map(|blocks| blocks.max(1)).collect())
}

/// The capacity of each node in blocks where the user names none.
///
/// Caches of files hold half of the data in all nodes together, so that the policies have to
/// choose. The memory of each node holds all pages, as on most machines, so that the placement
/// decides and not a lack of frames.
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

/// Fails where the frames of all nodes together are fewer than the pages of the trace. Without a
/// price for pages that come back from swap, that is a mistake rather than a wish.
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
            "{} ({} of size {size}) do not hold the {} of the trace: `{}` needs {} a node or more, \
             or --costs refault_ns=N for pages that come back from swap",
            counted(frames, "frame"),
            counted(nodes, "node"),
            counted(distinct, "page"),
            spec.entry().name,
            count(distinct.div_ceil(nodes))
        )));
    }
    Ok(())
}
