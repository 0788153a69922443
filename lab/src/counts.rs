//! What the plugin counted: one JSON line an interval between marks, read back by the runner, which prices it.

use serde::Deserialize;

/// The counts of one interval: from one mark to the next while the region of interest is open.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Interval {
    /// The region, counted from 0: each `begin` mark opens the next.
    pub(crate) region: u32,
    /// The interval within the region, counted from 0: each `iteration` mark ends one; `end` ends the last.
    pub(crate) interval: u32,
    /// Counts of each CPU, in the order of the CPUs.
    pub(crate) cpus: Vec<Cpu>,
    /// Lines fetched from memory by user code in each address range, in the order of the ranges' definition:
    /// `ranges[range][cpu node][memory node]`.
    #[serde(default)]
    pub(crate) ranges: Vec<Vec<Vec<u64>>>,
}

/// The counts of one CPU; each pair is `[user, kernel]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Cpu {
    /// The CPU's node.
    pub(crate) node: u16,
    /// Instructions executed.
    pub(crate) instructions: [u64; 2],
    /// Data accesses (an access that crosses lines counts once for each line).
    pub(crate) accesses: [u64; 2],
    /// Accesses that hit in the CPU's L1.
    pub(crate) l1_hits: [u64; 2],
    /// Accesses that hit in the CPU's L2.
    pub(crate) l2_hits: [u64; 2],
    /// Accesses that hit in the node's last-level cache, or in another CPU's cache of the same node.
    pub(crate) llc_hits: [u64; 2],
    /// Accesses served by a cache of another node, by that node: `[node][user, kernel]`.
    pub(crate) cache_to_cache: Vec<[u64; 2]>,
    /// Lines read from memory on a load, by the memory's node.
    pub(crate) reads: Vec<[u64; 2]>,
    /// Lines read from memory on a store (write allocate), by the memory's node.
    pub(crate) writes: Vec<[u64; 2]>,
    /// Dirty lines written back to memory, by the memory's node; no CPU waits for them.
    pub(crate) write_backs: Vec<u64>,
    /// Accesses to device memory or to addresses of no node: not modelled.
    pub(crate) unmapped: u64,
}
