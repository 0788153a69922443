//! The cost of an access to a file, on a topology of caches above storage.
//!
//! Clusters have the costs of POP's table 1: a cache access takes 0.1 ms, a hop 0.1 ms and a disk
//! access 8.2 ms, each for 4 KiB. The paper does not price the steps of its lookup. Here each step
//! that finds nothing costs one cache access, and a message without a block has 64 bytes and takes
//! that share of a hop. The latency of a remote hit is then that of 3 hops, plus one per hop of
//! distance. This agrees with the paper's figures 6 and 7, where 2.25 hops less mean 29.1 % less
//! latency.
//!
//! On one machine there are no lookup messages, and a block is copied line by line from the memory
//! that holds it.

use hither_core::{Node, Topology};
use serde::{Deserialize, Serialize};

use crate::placement::costs::{CostsError, changed};

/// The block size of table 1.
const PAPER_BLOCK_BYTES: u64 = 4096;
const MESSAGE_BYTES: u64 = 64;
/// The bytes that a processor fetches at a time, and the number of such fetches in flight.
const LINE_BYTES: u64 = 64;
const LINES_IN_FLIGHT: u64 = 10;

/// Latencies of the parts of an access, for the block size of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileCosts {
    /// Reading or writing a block in a cache.
    pub cache_ns: u64,
    /// A lookup that finds nothing in a cache, or in several caches at once.
    pub lookup_ns: u64,
    /// Sending a block over one hop. The link is busy for this time.
    pub hop_ns: u64,
    /// Sending a message over one hop. Messages take time, but do not occupy the link.
    pub message_hop_ns: u64,
    /// Whether the directory is split over the nodes by rendezvous hashing. A lookup then asks the
    /// block's node, which sends the request on, and not the neighbours and then all nodes.
    pub split_directory: bool,
    /// How long a node collects its hits before it reports them to the placement. 0: each at once.
    pub report_ns: u64,
    /// Computation of a node between two accesses.
    pub compute_ns: u64,
    /// Whether blocks wait for busy links.
    pub contention: bool,
    /// A disk access of constant cost. 0: computed from arm, platter and buffer.
    pub disk_ns: u64,
    /// One turn of the platter.
    pub disk_turn_ns: u64,
    /// Moving the arm to the next track.
    pub disk_seek_ns_min: u64,
    /// Moving the arm from the first track to the last. Between the two, the time grows with the
    /// square root of the distance.
    pub disk_seek_ns_max: u64,
    /// Transferring a block between the platter or buffer and the node.
    pub disk_transfer_ns: u64,
    /// Blocks on a track.
    pub disk_track_blocks: u32,
    /// Sequential streams that the disk's buffer tracks.
    pub disk_streams: u32,
    /// Blocks that the buffer reads ahead per stream.
    pub disk_ahead_blocks: u32,
    /// The nodes with a disk; blocks are striped over them. Empty: all nodes.
    pub disks: Vec<u16>,
}

/// The written form of costs.
const EXAMPLE: &str = "hop_ns=100000,disks=0:24";

impl FileCosts {
    /// Costs of a cluster or of one machine. Clusters are topologies with a latency of storage, and
    /// meshes, tori, hypercubes and trees without known latencies. All others are machines.
    pub fn of(topology: &Topology, block_bytes: u32) -> FileCosts {
        let cluster = FileCosts::cluster(block_bytes);
        if let Some(storage_ns) = topology.storage_ns() {
            let latencies = topology.latencies();
            let table = FileCosts::cluster(PAPER_BLOCK_BYTES as u32);
            let known = [latencies.local_ns, latencies.hop_ns, storage_ns].map(u64::from);
            if known == [table.cache_ns, table.hop_ns, PAPER_DISK_NS] {
                return cluster;
            }
            let [cache_ns, hop_ns, disk_ns] = known;
            return FileCosts {
                cache_ns: scaled(cache_ns, block_bytes),
                lookup_ns: cache_ns,
                hop_ns: scaled(hop_ns, block_bytes),
                message_hop_ns: scaled(hop_ns, MESSAGE_BYTES as u32),
                disk_ns,
                ..cluster
            };
        }
        if ["mesh", "torus", "hypercube", "tree"].contains(&topology.kind()) {
            return cluster;
        }
        let lines = u64::from(block_bytes).div_ceil(LINE_BYTES);
        let copy_ns = |latency_ns: u32| lines * u64::from(latency_ns) / LINES_IN_FLIGHT;
        FileCosts {
            cache_ns: copy_ns(topology.local_ns()),
            lookup_ns: 0,
            hop_ns: copy_ns(topology.hop_ns()),
            message_hop_ns: 0,
            ..cluster
        }
    }

    /// Table 1 for blocks of this size, with seeking disks at all nodes. 10,000 rotations per
    /// minute and a buffer of 16 MiB are the paper's. Seeks of 0.6 to 9.1 ms give the paper's mean
    /// random access of 8.2 ms: 8/15 of the way from the shortest to the longest seek, half a
    /// rotation of 3 ms, and 0.08 ms for 4 KiB.
    fn cluster(block_bytes: u32) -> FileCosts {
        let blocks = |bytes: u32| (bytes / block_bytes).max(1);
        FileCosts {
            cache_ns: scaled(100_000, block_bytes),
            lookup_ns: 100_000,
            hop_ns: scaled(100_000, block_bytes),
            message_hop_ns: scaled(100_000, MESSAGE_BYTES as u32),
            split_directory: false,
            report_ns: 0,
            compute_ns: 0,
            contention: true,
            disk_ns: 0,
            disk_turn_ns: 6_000_000,
            disk_seek_ns_min: 600_000,
            disk_seek_ns_max: 9_075_000,
            disk_transfer_ns: scaled(80_000, block_bytes),
            disk_track_blocks: blocks(300 << 10),
            disk_streams: 16,
            disk_ahead_blocks: blocks(1 << 20),
            disks: Vec::new(),
        }
    }

    /// These costs, changed by `text`: `hop_ns=50000,disks=0:4:20:24`.
    pub fn with(&self, text: &str) -> Result<FileCosts, CostsError> {
        let costs = changed(self, text, EXAMPLE)?;
        let counts = [costs.disk_streams, costs.disk_track_blocks];
        if counts.contains(&0) || costs.disk_turn_ns == 0 {
            let why = "a disk turns, has a track and follows a stream";
            return Err(CostsError::new(text, EXAMPLE, why));
        }
        Ok(costs)
    }

    /// The nodes of a topology that have a disk, or the first number that is not a node.
    pub(super) fn disk_nodes(&self, topology: &Topology) -> Result<Vec<Node>, u16> {
        let nodes = topology.nodes() as u16;
        match self.disks.iter().find(|&&disk| disk >= nodes) {
            Some(&wrong) => Err(wrong),
            None if self.disks.is_empty() => Ok(topology.all().collect()),
            None => Ok(self.disks.iter().copied().map(Node).collect()),
        }
    }

    /// Round numbers without contention, for results computed by hand.
    #[cfg(test)]
    pub(super) fn plain() -> FileCosts {
        FileCosts {
            cache_ns: 1000,
            lookup_ns: 100,
            hop_ns: 10,
            message_hop_ns: 1,
            contention: false,
            disk_ns: 100_000,
            disk_transfer_ns: 1000,
            ..FileCosts::cluster(4096)
        }
    }
}

/// The disk access of table 1.
const PAPER_DISK_NS: u64 = 8_200_000;

fn scaled(table_ns: u64, bytes: u32) -> u64 {
    (table_ns * u64::from(bytes) / PAPER_BLOCK_BYTES).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_1_and_what_differs_from_it() {
        let topology: Topology = "mesh5x5-io".parse().unwrap();
        let costs = FileCosts::of(&topology, 4096);
        assert_eq!((costs.cache_ns, costs.hop_ns), (100_000, 100_000));
        assert_eq!(costs, FileCosts::of(&Topology::mesh(&[5, 5]), 4096));
        assert_eq!(FileCosts::of(&topology, 16384).hop_ns, 400_000);

        let costs = costs
            .with("disk_ns = 7, disks=0:24,contention=false")
            .unwrap();
        assert_eq!((costs.disk_ns, costs.contention), (7, false));
        assert_eq!(costs.disk_nodes(&topology), Ok(vec![Node(0), Node(24)]));
        assert_eq!(
            costs.with("disks=25").unwrap().disk_nodes(&topology),
            Err(25)
        );
        for wrong in [
            "hop=7",
            "hop_ns",
            "hop_ns=x",
            "hop_ns=1,hop_ns=2",
            "disk_streams=0",
            "disk_ns=18446744073709551615",
            "disk_seek_ns_max=10000000001",
        ] {
            assert!(costs.with(wrong).is_err(), "{wrong}");
        }
    }

    /// 64 lines, 10 at a time: 70 ns each, and 34 ns more from the other node.
    #[test]
    fn one_machine_copies_lines() {
        let costs = FileCosts::of(&Topology::uniform(2), 4096);
        assert_eq!(
            (costs.cache_ns, costs.hop_ns, costs.lookup_ns),
            (448, 217, 0)
        );
    }
}
