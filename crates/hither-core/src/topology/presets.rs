//! The papers' machines, with their latencies.

use super::network::{About, Latencies, Topology};

const MIB: u64 = 1 << 20;

/// A machine with a name.
#[derive(Debug)]
pub struct Preset {
    /// What a user writes.
    pub name: &'static str,
    /// One line on what it is.
    pub summary: &'static str,
    /// Where its figures come from.
    pub source: &'static str,
    shape: &'static str,
    latencies: Latencies,
    /// Of a node.
    cpus: u32,
    capacity_bytes: u64,
}

impl Preset {
    /// Builds the topology.
    pub fn topology(&self) -> Topology {
        let shape: Topology = self.shape.parse().expect("our own shapes are right");
        let about = |_, about: &mut About| {
            about.cpus = self.cpus;
            about.capacity_bytes = self.capacity_bytes;
        };
        shape
            .named(self.name)
            .with_latencies(self.latencies)
            .with_nodes(about)
    }
}

/// All presets, by name.
pub fn presets() -> &'static [Preset] {
    PRESETS
}

static PRESETS: &[Preset] = &[
    Preset {
        name: "mesh5x5-io",
        summary: "25 nodes in a mesh that cache blocks of 4 KiB over disks: 0.1 ms a node, 0.1 ms \
                  a hop, 8.2 ms from disk",
        source: "Son, Kandemir, Zhang and Garg, topology-aware I/O caching, table 1",
        shape: "mesh:5x5",
        latencies: Latencies {
            local_ns: 100_000,
            hop_ns: 100_000,
            storage_ns: Some(8_200_000),
        },
        cpus: 1,
        capacity_bytes: 512 * MIB,
    },
    // 135 and 594 cycles of 150 MHz. The one ring of its four stations has one remote latency; that
    // of a station on another ring (ring:2x4x4 with these latencies) was not measured.
    Preset {
        name: "numachine-4",
        summary: "NUMAchine: 4 stations of 4 processors on a ring: 900 ns local, 3960 ns remote",
        source: "Ho, page placement based on predicted cache behaviour (thesis, Toronto 2004), \
                 section 5.1.1 and table 5.1",
        shape: "ring:4x4",
        latencies: Latencies {
            local_ns: 900,
            hop_ns: 3060,
            storage_ns: None,
        },
        cpus: 4,
        capacity_bytes: 96 * MIB,
    },
    Preset {
        name: "opteron2",
        summary: "two AMD Opterons: 70 ns local, 104 ns remote",
        source: "Zhou, Meng and Ma, dual-layered file cache on cc-NUMA, section 1",
        shape: "2",
        latencies: Latencies {
            local_ns: 70,
            hop_ns: 34,
            storage_ns: None,
        },
        cpus: 1,
        capacity_bytes: 0,
    },
    // The machine of the paper has 32 such nodes; its 8 GiB are 256 MiB a node. Distance counts the
    // routers on the way: 1 within a router, so the furthest of 32 nodes are 800 ns away, "less
    // than 3:1" (section 4).
    Preset {
        name: "origin2000-16",
        summary: "SGI Origin2000: 16 nodes of 2 processors, two on each of 8 routers in a \
                  hypercube: 300 ns local, 100 ns a router",
        source: "Nikolopoulos et al., ICS 2000, section 3.1; Laudon and Lenoski, ISCA 1997",
        shape: "hypercube:3x2",
        latencies: Latencies {
            local_ns: 300,
            hop_ns: 100,
            storage_ns: None,
        },
        cpus: 2,
        capacity_bytes: 256 * MIB,
    },
];
