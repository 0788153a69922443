//! Describes the machine of a recording, by `/proc` and `/sys`. Values that cannot be read stay at
//! their defaults, so that recording works in a container that hides `/sys`.

use std::fs;
use std::path::Path;

use hither_kernel::machine::{Machine as _, ThisMachine, kib_field, parse_list};
use hither_kernel::page_bytes;
use hither_trace::schema::{Machine, MemoryNode};

fn text(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path)
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// Host, kernel, CPUs and memory.
pub fn machine() -> Machine {
    Machine {
        host: text("/proc/sys/kernel/hostname"),
        kernel: text("/proc/sys/kernel/osrelease"),
        cpus: parse_list(&text("/sys/devices/system/cpu/online")).len() as u32,
        page_bytes: page_bytes() as u32,
        memory_bytes: kib_field(&text("/proc/meminfo"), "MemTotal:"),
    }
}

/// The memory nodes in order of their numbers.
pub fn nodes() -> Vec<MemoryNode> {
    let nodes = ThisMachine.nodes().unwrap_or_default();
    nodes
        .into_iter()
        .map(|node| MemoryNode {
            node: node.node.0,
            cpus: node.cpus,
            memory_bytes: node.bytes,
            distances: node.distances,
        })
        .collect()
}

/// The node of each CPU, indexed by CPU; 0 for CPUs that no node lists.
pub(crate) fn node_of_cpu(nodes: &[MemoryNode]) -> Vec<u32> {
    let cpus = nodes
        .iter()
        .flat_map(|node| &node.cpus)
        .max()
        .map_or(0, |&cpu| cpu as usize + 1);
    let mut map = vec![0; cpus];
    for node in nodes {
        for &cpu in &node.cpus {
            map[cpu as usize] = node.node;
        }
    }
    map
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_with_gaps_map_their_cpus() {
        let node = |node, cpus: &[u32]| MemoryNode {
            node,
            cpus: cpus.to_vec(),
            ..MemoryNode::default()
        };
        let nodes = [node(0, &[0, 2, 3]), node(2, &[4, 5, 1])];
        assert_eq!(node_of_cpu(&nodes), [0, 2, 0, 0, 2, 2]);
        assert_eq!(node_of_cpu(&[]), Vec::<u32>::new());
    }

    #[test]
    fn this_machine_has_a_page_size_and_memory() {
        let machine = machine();
        assert!(machine.page_bytes.is_power_of_two());
        assert!(machine.memory_bytes > 0);
        assert!(machine.cpus > 0);
    }
}
