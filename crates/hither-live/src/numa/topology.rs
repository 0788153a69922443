//! The machine that hither runs on, as a topology of memory nodes.

use hither_core::Topology;
use hither_core::topology::TopologyError;
pub use hither_kernel::machine::{Machine, NodeMemory, ThisMachine};

/// The firmware's distance of a node to itself, and the one that Linux assumes between nodes where
/// the firmware has no table. The names are the kernel's.
pub(crate) const LOCAL_DISTANCE: u32 = 10;
const REMOTE_DISTANCE: u32 = 20;

/// Latency of a local access that is assumed where none was measured: distances are relative.
pub(crate) const LOCAL_NS: u32 = 70;

/// Latency for one unit of distance.
const NS_PER_DISTANCE: u32 = LOCAL_NS / LOCAL_DISTANCE;

/// The firmware's distance between two nodes, by their indices. Between different nodes it is
/// always more than [`LOCAL_DISTANCE`].
pub(crate) fn distance(nodes: &[NodeMemory], from: usize, to: usize) -> u32 {
    match nodes[from].distances.get(to) {
        _ if from == to => LOCAL_DISTANCE,
        Some(&distance) if distance > LOCAL_DISTANCE => distance,
        _ => REMOTE_DISTANCE,
    }
}

/// The topology of these nodes, in their order, with latencies by distance.
///
/// # Errors
/// There is no node, or more than a topology has.
pub fn topology(nodes: &[NodeMemory]) -> Result<Topology, TopologyError> {
    let pairs = 0..nodes.len() * nodes.len();
    let latencies: Vec<u32> = pairs
        .map(|at| {
            distance(nodes, at / nodes.len(), at % nodes.len()).saturating_mul(NS_PER_DISTANCE)
        })
        .collect();
    with_latencies(nodes, &latencies)
}

/// The topology with a latency for each pair of nodes, row by row.
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
    use hither_ids::KernelNode;

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
            node(KernelNode(0), &[0, 1], &[10, 32, 10]),
            node(KernelNode(2), &[2], &[32, 10]),
            node(KernelNode(5), &[], &[28, 28, 10]),
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
