//! The machine that we run on as a topology of memory nodes.

use hither_core::Topology;
use hither_core::topology::TopologyError;
pub use hither_sys::machine::{Machine, NodeMemory, ThisMachine};

/// What the firmware's table of distances calls local, and what Linux takes a remote node for where
/// that table says nothing (`LOCAL_DISTANCE` and `REMOTE_DISTANCE`).
pub(crate) const LOCAL: u32 = 10;
const REMOTE: u32 = 20;

/// Nanoseconds of a local access, where nothing says better: the table has relative latencies only.
pub(crate) const LOCAL_NS: u32 = 70;

/// Nanoseconds for one unit of distance.
const UNIT_NS: u32 = LOCAL_NS / LOCAL;

/// The firmware's distance from one node to another, by their places; never as near as a node
/// itself.
pub(crate) fn distance(nodes: &[NodeMemory], from: usize, to: usize) -> u32 {
    match nodes[from].distances.get(to) {
        _ if from == to => LOCAL,
        Some(&distance) if distance > LOCAL => distance,
        _ => REMOTE,
    }
}

/// The topology of these nodes, in their order; an error where there is none.
pub fn topology(nodes: &[NodeMemory]) -> Result<Topology, TopologyError> {
    let pairs = 0..nodes.len() * nodes.len();
    let latencies: Vec<u32> = pairs
        .map(|at| distance(nodes, at / nodes.len(), at % nodes.len()).saturating_mul(UNIT_NS))
        .collect();
    with_latencies(nodes, &latencies)
}

/// The same with the latency of each pair of nodes, row by row.
pub(crate) fn with_latencies(
    nodes: &[NodeMemory],
    latency_ns: &[u32],
) -> Result<Topology, TopologyError> {
    let topology = Topology::from_matrix("this", latency_ns)?;
    Ok(topology.with_nodes(|node, about| {
        let node = &nodes[node.index()];
        about.name = format!("node{}", node.node);
        about.cpus = node.cpus.len() as u32;
        about.capacity_bytes = node.bytes;
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hither_core::Node;

    #[test]
    fn numbers_with_gaps_and_distances_that_lack() {
        let node = |node, cpus: &[u32], distances: &[u32]| NodeMemory {
            node,
            cpus: cpus.to_vec(),
            bytes: 1 << 30,
            distances: distances.to_vec(),
            ..NodeMemory::default()
        };
        let made = topology(&[
            node(0, &[0, 1], &[10, 32, 10]),
            node(2, &[2], &[32, 10]),
            node(5, &[], &[28, 28, 10]),
        ])
        .unwrap();
        let latencies = |from| {
            made.all()
                .map(|to| made.latency_ns(Node(from), to))
                .collect::<Vec<_>>()
        };
        assert_eq!(latencies(0), [70, 224, 140]);
        assert_eq!(latencies(1), [224, 70, 140]);
        assert_eq!(latencies(2), [196, 196, 70]);
        assert_eq!(made.about(Node(1)).name, "node2");
        assert_eq!(made.cpus(Node(2)), 0);
        assert!(topology(&[]).is_err());
    }
}
