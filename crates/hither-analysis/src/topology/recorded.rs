//! The topology of the machine that a trace was recorded on.

use hither_core::Topology;
use hither_trace::Trace;

/// The latency of local memory that is assumed where the trace has only the firmware's distances.
const DEFAULT_LOCAL_NS: u32 = 70;

/// The distance of a node to itself in the firmware's table (ACPI SLIT).
const LOCAL_DISTANCE: u32 = 10;

/// The nodes of the machine that the trace was recorded on, with the distances of its firmware, or
/// one hop apart where the trace has none.
pub fn recorded(trace: &Trace) -> Topology {
    let nodes = trace.nodes();
    let known = &trace.meta().nodes;
    let latencies: Vec<u32> = known
        .iter()
        .flat_map(|node| {
            node.distances
                .iter()
                .map(|&distance| DEFAULT_LOCAL_NS.saturating_mul(distance) / LOCAL_DISTANCE)
        })
        .collect();
    let matrix = (latencies.len() == nodes * nodes)
        .then(|| Topology::from_matrix("the trace's nodes", &latencies).ok());
    matrix.flatten().unwrap_or_else(|| Topology::uniform(nodes))
}
