//! What accesses and moves are taken to cost: the best source for each pair of nodes.

use hither_kernel::machine::NodeMemory;

use super::measurement::{Calibration, is_farther, median};
use crate::numa::topology;

/// The source of a latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatencySource {
    /// A measurement.
    Measured,
    /// The firmware's table of latencies (HMAT).
    Latencies,
    /// The firmware's table of distances (SLIT).
    Distances,
}

/// What accesses and moves are taken to cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Latencies of a load by the CPUs of the row's node from the memory of the column's, row by
    /// row, with their sources.
    pub latencies: Vec<(u32, LatencySource)>,
    /// What moving a page costs, where that was measured.
    pub migration_ns: Option<u64>,
}

impl Costs {
    /// Takes the best source for each pair. A load from another node always takes longer than one
    /// from the node itself.
    pub fn of(nodes: &[NodeMemory], measured: Option<&Calibration>) -> Costs {
        let measured = measured.filter(|measured| measured.is_of(nodes.len()));
        let believed = measured.filter(|measured| !measured.is_flat());
        let load_ns = |from: usize, to: usize| believed.and_then(|of| of.load_ns[from][to]);
        let locals = (0..nodes.len()).filter_map(|node| load_ns(node, node));
        let local_ns = median(locals.map(u64::from).collect());
        let local_ns = local_ns.unwrap_or(topology::LOCAL_NS);
        let mut latencies = Vec::with_capacity(nodes.len() * nodes.len());
        for from in 0..nodes.len() {
            latencies.extend(row(nodes, from, local_ns, &load_ns));
        }
        Costs {
            latencies,
            migration_ns: measured.and_then(Calibration::migration_ns),
        }
    }

    /// The latencies, row by row.
    pub fn latency_ns(&self) -> Vec<u32> {
        self.latencies.iter().map(|&(ns, _)| ns).collect()
    }
}

/// Latencies from one node to all. `usual_ns` is that of a local load where this node's own was not
/// measured.
fn row(
    nodes: &[NodeMemory],
    from: usize,
    usual_ns: u32,
    load_ns: &impl Fn(usize, usize) -> Option<u32>,
) -> Vec<(u32, LatencySource)> {
    let by_firmware = |to: usize| {
        let nearest = nodes[to].nearest.as_ref()?;
        let ours = nearest.nodes.contains(&nodes[from].node);
        ours.then_some((nearest.read_ns, LatencySource::Latencies))
    };
    let known = |to: usize| {
        let measured = load_ns(from, to).map(|ns| (ns.max(1), LatencySource::Measured));
        measured.or_else(|| by_firmware(to))
    };
    let local = known(from).unwrap_or((usual_ns, LatencySource::Distances));
    let farther = |to: usize| known(to).filter(|&(ns, _)| is_farther(ns, local.0));
    let distance = |to| topology::distance(nodes, from, to);
    let by_distance = |to: usize| {
        let ns = u64::from(local.0) * u64::from(distance(to)) / u64::from(topology::LOCAL_DISTANCE);
        let ns = u32::try_from(ns).unwrap_or(u32::MAX);
        // At least the latency of each nearer node, and at most that of each farther one.
        let others = (0..nodes.len()).filter(|&other| other != from);
        let others = others.filter_map(|other| Some((distance(other), farther(other)?.0)));
        let (mut least, mut most) = (local.0.saturating_add(1), u32::MAX);
        for (at, ns) in others {
            if at <= distance(to) {
                least = least.max(ns);
            }
            if at >= distance(to) {
                most = most.min(ns);
            }
        }
        (ns.min(most).max(least), LatencySource::Distances)
    };
    let one = |to| {
        if to == from {
            local
        } else {
            farther(to).unwrap_or_else(|| by_distance(to))
        }
    };
    (0..nodes.len()).map(one).collect()
}
