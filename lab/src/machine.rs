//! The machine that QEMU shows to a guest: nodes, their CPUs and memory, and the distances between
//! them.

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

/// A guest's hardware. QEMU's options, the plugin's arguments and the name of the snapshot follow
/// from it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Machine {
    /// The nodes in order; node 0 must have CPUs and memory (Linux boots there).
    pub(crate) nodes: Vec<Node>,
    /// Distances as in the ACPI SLIT, 10 for the node itself: `distances[from][to]`.
    /// Left out: 10 and 20.
    #[serde(default)]
    pub(crate) distances: Vec<Vec<u8>>,
    /// Whether QEMU gives the guest an HMAT (latencies and bandwidths), which Linux's memory tiers
    /// read.
    #[serde(default)]
    pub(crate) hmat: bool,
    /// One TCG thread and a guest clock that counts instructions (`-icount shift=0,sleep=off`): for
    /// policies that depend on the guest's clock.
    #[serde(default)]
    pub(crate) icount: bool,
}

/// A NUMA node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Node {
    /// CPUs of the node; 0 for a node of memory only (CXL). CPUs are numbered node by node.
    pub(crate) cpus: u16,
    /// Memory in MiB, a multiple of 2.
    pub(crate) memory_mib: u32,
}

impl Machine {
    /// CPUs of all nodes.
    pub(crate) fn cpus(&self) -> u32 {
        self.nodes.iter().map(|node| u32::from(node.cpus)).sum()
    }

    /// The distance between two nodes in the SLIT.
    pub(crate) fn distance(&self, from: usize, to: usize) -> u8 {
        let given = self
            .distances
            .get(from)
            .and_then(|row| row.get(to))
            .copied();
        given.unwrap_or(if from == to { 10 } else { 20 })
    }

    /// Checks that QEMU and Linux support such a machine.
    pub(crate) fn check(&self) -> Result<()> {
        let nodes = self.nodes.len();
        ensure!((1..=16).contains(&nodes), "nodes: {nodes}, not 1 to 16");
        ensure!(
            self.nodes[0].cpus > 0 && self.nodes[0].memory_mib >= 256,
            "nodes[0]: Linux boots there, which needs a CPU and 256 MiB"
        );
        for (index, node) in self.nodes.iter().enumerate() {
            let mib = node.memory_mib;
            ensure!(
                mib > 0 && mib.is_multiple_of(2),
                "nodes[{index}].memory_mib: {mib} is no positive multiple of 2"
            );
        }
        ensure!(
            self.cpus() <= 64,
            "nodes: {} CPUs, more than 64",
            self.cpus()
        );
        if self.distances.is_empty() {
            return Ok(());
        }
        ensure!(
            self.distances.len() == nodes,
            "distances: {} rows for {nodes} nodes",
            self.distances.len()
        );
        for (from, row) in self.distances.iter().enumerate() {
            ensure!(
                row.len() == nodes,
                "distances[{from}]: {} distances for {nodes} nodes",
                row.len()
            );
            for (to, &distance) in row.iter().enumerate() {
                // 255 means that a node cannot be reached; the kernel refuses a table with 10 or
                // less elsewhere.
                let right = if from == to {
                    distance == 10
                } else {
                    (11..255).contains(&distance)
                };
                ensure!(
                    right,
                    "distances[{from}][{to}]: {distance}, not 10 for the node itself and more for \
                     others"
                );
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_that_cannot_be_are_refused() {
        let node = |cpus, memory_mib| Node { cpus, memory_mib };
        let machine = |nodes, distances| Machine {
            nodes,
            distances,
            hmat: false,
            icount: false,
        };
        let two = || vec![node(1, 256), node(2, 128)];
        let error = |machine: Machine| machine.check().expect_err("no such machine").to_string();
        assert!(
            machine(two(), vec![vec![10, 20], vec![30, 10]])
                .check()
                .is_ok()
        );
        assert!(error(machine(Vec::new(), Vec::new())).contains("nodes: 0"));
        assert!(error(machine(vec![node(0, 256)], Vec::new())).contains("nodes[0]: Linux"));
        assert!(error(machine(vec![node(1, 257)], Vec::new())).contains("nodes[0].memory_mib"));
        assert!(error(machine(two(), vec![vec![10, 20]])).contains("distances: 1 rows"));
        assert!(
            error(machine(two(), vec![vec![10, 20], vec![10, 10]])).contains("distances[1][0]")
        );
        assert_eq!(machine(two(), Vec::new()).cpus(), 3);
        assert_eq!(machine(two(), Vec::new()).distance(0, 1), 20);
    }
}
