//! Lookups: how a node finds who holds a block, and what that costs.

use std::hint::select_unpredictable;

use hither_core::placement::rendezvous_node;
use hither_core::{Access, Block, Node, Topology};

use super::costs::FileCosts;

/// Who knows where blocks are.
pub(super) enum Directory {
    /// Nobody: a node asks its own cache, then the neighbours, then all nodes at once. By node:
    /// the cost of a lookup that finds nothing.
    Asked(Vec<u64>),
    /// The node that rendezvous hashing names, by block. It is asked after the own cache, and sends
    /// the request on to the holder, or to the disk.
    Split(Vec<Node>),
}

/// A lookup that found a holder, up to the arrival of the request there.
pub(super) struct Lookup {
    pub(super) ns: u64,
    pub(super) hops: u64,
}

impl Directory {
    pub(super) fn new(topology: &Topology, costs: &FileCosts, blocks: u32) -> Directory {
        if costs.split_directory {
            let at = |block| rendezvous_node(Block(block), topology.nodes());
            return Directory::Split((0..blocks).map(at).collect());
        }
        let failed = |node| failed_lookup_ns(topology, costs, node);
        Directory::Asked(topology.all().map(failed).collect())
    }

    /// The lookup of a block that `from` holds, by another node.
    #[inline]
    pub(super) fn found(
        &self,
        topology: &Topology,
        costs: &FileCosts,
        access: &Access,
        from: Node,
    ) -> Lookup {
        let hops = u64::from(topology.hops(access.node, from));
        let FileCosts {
            lookup_ns,
            message_hop_ns,
            ..
        } = *costs;
        match self {
            Directory::Asked(_) => {
                // Without a branch, since it could not be predicted whether a neighbour has the
                // block.
                let (next, beyond) = (lookup_ns, 2 * (lookup_ns + message_hop_ns));
                Lookup {
                    ns: select_unpredictable(hops == 1, next, beyond) + message_hop_ns * hops,
                    hops: select_unpredictable(hops == 1, 1, 1 + hops),
                }
            }
            Directory::Split(nodes) => {
                Directory::through(nodes[access.block.index()], topology, costs, access, from)
            }
        }
    }

    /// The time of a lookup that finds nothing, up to the arrival of the request at the disk.
    pub(super) fn failed_ns(
        &self,
        topology: &Topology,
        costs: &FileCosts,
        access: &Access,
        disk_at: Node,
    ) -> u64 {
        match self {
            Directory::Asked(failed_ns) => {
                let hops = u64::from(topology.hops(access.node, disk_at));
                failed_ns[access.node.index()] + costs.message_hop_ns * hops
            }
            Directory::Split(nodes) => {
                let at = nodes[access.block.index()];
                Directory::through(at, topology, costs, access, disk_at).ns
            }
        }
    }

    /// The way of a request through the directory's node `at`.
    fn through(
        at: Node,
        topology: &Topology,
        costs: &FileCosts,
        access: &Access,
        to: Node,
    ) -> Lookup {
        let hops = u64::from(topology.hops(access.node, at) + topology.hops(at, to));
        let lookups = if at == access.node { 1 } else { 2 };
        Lookup {
            ns: lookups * costs.lookup_ns + hops * costs.message_hop_ns,
            hops,
        }
    }
}

/// The cost of a lookup that finds nothing: each step waits for its farthest answer.
fn failed_lookup_ns(topology: &Topology, costs: &FileCosts, node: Node) -> u64 {
    let step_ns = |hops: u32| costs.lookup_ns + 2 * costs.message_hop_ns * u64::from(hops);
    let farthest = topology.nearest(node).last();
    match farthest.map_or(0, |&farthest| topology.hops(node, farthest)) {
        0 => step_ns(0),
        1 => step_ns(0) + step_ns(1),
        hops => step_ns(0) + step_ns(1) + step_ns(hops),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a line of five, the directory of each block in turn: node 0 asks it and it asks node 1.
    #[test]
    fn a_split_directory_is_on_the_way() {
        let line = Topology::mesh(&[1, 5]);
        let costs = FileCosts {
            split_directory: true,
            lookup_ns: 100,
            message_hop_ns: 1,
            ..FileCosts::of(&line, 4096)
        };
        let directory = Directory::new(&line, &costs, 100);
        let mut places = [0; 5];
        for block in (0..100).map(Block) {
            let at = rendezvous_node(block, 5);
            places[at.index()] += 1;
            let way = u64::from(at.0 + at.0.abs_diff(1));
            let access = Access::bare(0, block);
            let lookup = directory.found(&line, &costs, &access, Node(1));
            let lookups = if at == Node(0) { 100 } else { 200 };
            assert_eq!(
                (lookup.ns, lookup.hops),
                (lookups + way, way),
                "{block:?} at {at:?}"
            );
            let failed_ns = directory.failed_ns(&line, &costs, &access, Node(1));
            assert_eq!(failed_ns, lookup.ns);
        }
        assert!(places.iter().all(|&blocks| blocks > 5), "{places:?}");
    }
}
