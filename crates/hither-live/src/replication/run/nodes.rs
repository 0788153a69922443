//! The nodes of the machine, as the table of replicas has them.

use hither_ids::KernelNode;
use hither_kernel::machine::NodeMemory;
use hither_session::replica::agent::ReplicaOptions;

/// A table for replicas of so many bytes on each node.
pub(super) fn shape(nodes: &[NodeMemory], node_bytes: u64) -> ReplicaOptions {
    let cpus = nodes.iter().flat_map(|node| &node.cpus).max();
    let mut node_of_cpu = vec![0; cpus.map_or(1, |&cpu| cpu as usize + 1)];
    for (number, node) in nodes.iter().enumerate() {
        for &cpu in &node.cpus {
            node_of_cpu[cpu as usize] = number as u8;
        }
    }
    let mut numbers: Vec<KernelNode> = nodes.iter().map(|node| node.node).collect();
    if numbers.is_empty() {
        numbers.push(KernelNode(0));
    }
    ReplicaOptions {
        nodes: numbers,
        node_of_cpu,
        node_bytes,
    }
}
