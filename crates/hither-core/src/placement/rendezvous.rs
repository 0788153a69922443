//! Rendezvous hashing: a block lives on the node with the highest hash of block and node, whoever
//! reads it. Nobody has to look for it, and when a node joins or leaves, only that node's blocks
//! change places. There are no replicas. Most caches that share by hashing do this. The same hash
//! names the node with the block's directory entry ([`Nodes::directory`]).
//!
//! Source: Thaler and Ravishankar, "Using name-based mappings to increase hit rates", IEEE/ACM
//! Transactions on Networking 6(1), 1998. All nodes have the same weight here, also where their
//! room differs.

use super::entry::{Build, EpochNeeds, PlacementEntry, ReplicaLayer};
use super::interface::{AccessesWanted, FilePlacement, Placement};
use super::nodes::Nodes;
use crate::access::Access;
use crate::entry::{Compared, Needs};
use crate::ids::Node;

pub(super) const ENTRY: PlacementEntry = PlacementEntry {
    name: "rendezvous",
    summary: "on the node that a hash of the block names, until it is evicted there",
    source: "Thaler and Ravishankar, IEEE/ACM ToN 6(1), 1998",
    params: &[],
    needs: Needs::NOTHING,
    epochs: EpochNeeds::NONE,
    live: &[],
    compared: Compared::ByName,
    build: Build::Files(ReplicaLayer::Shared, &|_, _| Box::new(Rendezvous)),
};

struct Rendezvous;

impl Placement for Rendezvous {
    fn place(&mut self, access: &Access, nodes: &Nodes) -> Node {
        nodes.directory(access.block)
    }
}

impl FilePlacement for Rendezvous {
    fn accesses_wanted(&self) -> AccessesWanted {
        AccessesWanted::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Block;
    use crate::placement::rendezvous_node;

    /// 10,000 blocks on 9 nodes are 1111 each, give or take 5 standard deviations of 31. A tenth
    /// node takes a tenth of them, and no block moves between the others.
    #[test]
    fn even_and_stable() {
        let mut held = [0u32; 10];
        for block in (0..10_000).map(Block) {
            let before = rendezvous_node(block, 9);
            held[before.index()] += 1;
            let after = rendezvous_node(block, 10);
            assert!(after == before || after == Node(9), "{block:?}");
            held[9] += u32::from(after == Node(9));
        }
        assert!(
            held[..9].iter().all(|&held| held.abs_diff(1111) < 155),
            "{held:?}"
        );
        assert!(held[9].abs_diff(1000) < 150, "{held:?}");
    }
}
