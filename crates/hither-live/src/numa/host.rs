//! The [`PlacementHost`] of a live run, made from what a log's first line says of the policy and
//! the machine.

use std::sync::Arc;

use hither_core::placement::{HostNode, PlacementEntry, PlacementHost, PlacementHostSettings};
use hither_core::{Spec, Topology};
use hither_ids::KernelNode;
use hither_kernel::machine::NodeMemory;
use serde::{Deserialize, Serialize};

use super::calibration::{Calibration, Costs};
use super::page_policy::PagePolicy;
use super::topology;
use crate::error::{Error, Result};

/// No kernel numbers CPUs from here on.
const CPU_NUMBER_MAX: u32 = 1 << 16;

/// The largest page that is believed.
const PAGE_BYTES_MAX: u64 = 1 << 30;

/// A policy with its parameters.
type Policy = Spec<PlacementEntry>;

/// The placement that leaves pages where they are touched first.
const FIRST_TOUCH: &str = "first-touch";

/// A memory node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeConfig {
    /// The kernel's number.
    pub(crate) node: KernelNode,
    pub(crate) cpus: Vec<u32>,
    /// How many pages it holds.
    pub(crate) frames: u32,
    /// The firmware's distances to all nodes.
    pub(crate) distances: Vec<u32>,
}

impl NodeConfig {
    /// These nodes, in pages of so many bytes.
    pub(crate) fn list(nodes: &[NodeMemory], page_bytes: u64) -> Vec<NodeConfig> {
        let node = |node: &NodeMemory| NodeConfig {
            node: node.node,
            cpus: node.cpus.clone(),
            frames: u32::try_from(node.bytes / page_bytes).unwrap_or(u32::MAX),
            distances: node.distances.clone(),
        };
        nodes.iter().map(node).collect()
    }
}

/// What things cost on this machine, as measured. Costs that are absent are assumed to be those of
/// other machines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MeasuredCosts {
    /// Of an access by the row's node to the memory of the column's, row by row. Empty: by
    /// distances.
    pub(crate) latency_ns: Vec<u32>,
    /// Of moving a page.
    pub(crate) migration_ns: Option<u64>,
}

impl MeasuredCosts {
    /// From a calibration, if there is one.
    pub(crate) fn new(nodes: &[NodeMemory], calibration: Option<&Calibration>) -> MeasuredCosts {
        let costs = Costs::of(nodes, calibration);
        MeasuredCosts {
            latency_ns: costs.latency_ns(),
            migration_ns: costs.migration_ns,
        }
    }
}

/// A host for a policy.
///
/// # Errors
/// The policy does not place memory, or the machine is impossible: a log's first line may say
/// anything.
pub(crate) fn placement_host(
    policy: Policy,
    page_bytes: u64,
    nodes: &[NodeConfig],
    measured: &MeasuredCosts,
) -> Result<PlacementHost> {
    host_of(policy, None, page_bytes, nodes, measured)
}

/// The hosts of the two halves of a policy: of what places pages when they are first touched, and
/// of what moves them by access counts, if it does.
///
/// # Errors
/// As for [`placement_host`].
pub(crate) fn first_touch_and_counted(
    PagePolicy { policy, initial }: PagePolicy,
    page_bytes: u64,
    nodes: &[NodeConfig],
    measured: &MeasuredCosts,
) -> Result<(PlacementHost, Option<PlacementHost>)> {
    let host = |policy, initial| host_of(policy, initial, page_bytes, nodes, measured);
    if !policy.entry().epochs.counts {
        return Ok((host(policy, initial)?, None));
    }
    let counted = host(policy, Some(first_touch()))?;
    Ok((host(first_of(policy, initial), None)?, Some(counted)))
}

fn first_touch() -> Policy {
    FIRST_TOUCH.parse().expect("it is in the registry")
}

/// What places pages when they are first touched, of a policy that moves them by access counts.
fn first_of(policy: Policy, initial: Option<Policy>) -> Policy {
    let initial = initial.or_else(|| policy.initial());
    initial.unwrap_or_else(first_touch)
}

/// Whether a policy decides by access counts alone, and leaves pages where they are first touched.
pub(crate) fn goes_by_use(PagePolicy { policy, initial }: PagePolicy) -> bool {
    let places_none = first_of(policy, initial).entry().name == FIRST_TOUCH;
    policy.entry().epochs.counts && places_none
}

fn host_of(
    policy: Policy,
    initial: Option<Policy>,
    page_bytes: u64,
    nodes: &[NodeConfig],
    measured: &MeasuredCosts,
) -> Result<PlacementHost> {
    check_machine(page_bytes, nodes, measured)?;
    let host_node = |node: &NodeConfig| HostNode {
        kernel_number: node.node,
        cpus: node.cpus.clone(),
        frames: node.frames,
    };
    let host = PlacementHost::new(&PlacementHostSettings {
        policy,
        initial,
        topology: Arc::new(machine_topology(page_bytes, nodes, measured)?),
        nodes: nodes.iter().map(host_node).collect(),
        page_bytes: page_bytes as u32,
    });
    host.ok_or_else(|| Error::Log(format!("{policy}: not for memory")))
}

fn check_machine(page_bytes: u64, nodes: &[NodeConfig], measured: &MeasuredCosts) -> Result<()> {
    let wrong = |what: &str| Err(Error::Log(format!("settings: {what}")));
    if !page_bytes.is_power_of_two() || page_bytes > PAGE_BYTES_MAX {
        return wrong("page_bytes is no page size");
    }
    let latencies = measured.latency_ns.len();
    if latencies > 0 && latencies != nodes.len().pow(2) {
        return wrong("latency_ns has not one entry for each pair of nodes");
    }
    let mut cpus = nodes.iter().flat_map(|node| &node.cpus);
    if cpus.any(|&cpu| cpu >= CPU_NUMBER_MAX) {
        wrong("a CPU's number is too large")
    } else {
        Ok(())
    }
}

fn machine_topology(
    page_bytes: u64,
    nodes: &[NodeConfig],
    measured: &MeasuredCosts,
) -> Result<Topology> {
    let node = |node: &NodeConfig| NodeMemory {
        node: node.node,
        cpus: node.cpus.clone(),
        bytes: u64::from(node.frames) * page_bytes,
        distances: node.distances.clone(),
        ..NodeMemory::default()
    };
    let nodes: Vec<NodeMemory> = nodes.iter().map(node).collect();
    let topology = match measured.latency_ns.as_slice() {
        [] => topology::topology(&nodes),
        latency_ns => topology::with_latencies(&nodes, latency_ns),
    };
    topology.map_err(|source| Error::Nodes(source.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_places_nothing_at_the_first_touch_goes_by_use() {
        let by_use = ["majority", "upm", "majority{initial=first-touch}"];
        let others = [
            "cache-aware",
            "cache-aware,majority",
            "majority{initial=cache-aware}",
        ];
        for (policies, expected) in [(by_use, true), (others, false)] {
            for policy in policies {
                let parsed = policy.parse().expect("a policy");
                assert_eq!(goes_by_use(parsed), expected, "{policy}");
            }
        }
    }
}
