//! The machine that a guest believes to run on: nodes, their CPUs and memory, the distances between them.

use serde::{Deserialize, Serialize};

/// A guest's hardware. The same value gives QEMU's options, the plugin's arguments and the name of the snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// The nodes in order; node 0 must have CPUs and memory (Linux boots there).
    pub nodes: Vec<Node>,
    /// Distances as in the ACPI SLIT, 10 for the node itself: `distances[from][to]`.
    /// Left out: 10 and 20.
    #[serde(default)]
    pub distances: Vec<Vec<u8>>,
    /// Whether QEMU gives the guest an HMAT (latencies and bandwidths), which Linux's memory tiers read.
    #[serde(default)]
    pub hmat: bool,
    /// One TCG thread and a guest clock that counts instructions (`-icount shift=0,sleep=off`): for policies that depend on
    /// the guest's clock.
    #[serde(default)]
    pub icount: bool,
}

/// A NUMA node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// CPUs of the node; 0 for a node of memory only (CXL). CPUs are numbered node by node.
    pub cpus: u16,
    /// Memory in MiB, a multiple of 2.
    pub memory_mib: u32,
}
