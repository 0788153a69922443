//! Always migrate (AMG): a block moves to the node that accesses it, and the block that has to make
//! room there moves to where it came from.

use super::entry::{Build, EpochNeeds, PlacementEntry, ReplicaLayer};
use super::events::{Action, IncomingBlock};
use super::interface::{FilePlacement, Placement};
use super::nodes::Nodes;
use crate::access::Access;
use crate::entry::{Compared, Needs};
use crate::ids::{Block, Node};

pub(super) const ENTRY: PlacementEntry = PlacementEntry {
    name: "always-migrate",
    summary: "moves each block to the node that asks for it, in exchange for the victim",
    source: "Son, Kandemir, Zhang and Garg, topology-aware I/O caching, section 6.1",
    params: &[],
    needs: Needs::NOTHING,
    epochs: EpochNeeds::NONE,
    live: &[],
    compared: Compared::Everywhere(2),
    build: Build::Files(ReplicaLayer::Shared, &|_, _| Box::new(AlwaysMigrate)),
};

struct AlwaysMigrate;

impl Placement for AlwaysMigrate {
    fn place(&mut self, access: &Access, _: &Nodes) -> Node {
        access.node
    }

    fn on_access(&mut self, access: &Access, _: Node, nodes: &Nodes, out: &mut Vec<Action>) {
        let block = access.block;
        if nodes.home(block) != Some(access.node) {
            let to = access.node;
            out.push(Action::Migrate { block, to });
        }
    }
}

impl FilePlacement for AlwaysMigrate {
    /// The victim changes places with the incoming block; if that comes from storage, the victim is
    /// evicted.
    fn forward_to(
        &mut self,
        _: Block,
        _: Node,
        incoming: IncomingBlock,
        _: &Nodes,
    ) -> Option<Node> {
        incoming.from
    }

    fn forwards(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Slot;
    use crate::topology::Topology;
    use std::sync::Arc;

    #[test]
    fn moves_to_the_requester() {
        let topology = Arc::new(Topology::mesh(&[5, 5]));
        let mut nodes = Nodes::new(topology, vec![1; 25], 2);
        let by = |node| Access {
            node: Node(node),
            ..Access::bare(0, Block(0))
        };
        let (mut policy, mut out) = (AlwaysMigrate, Vec::new());
        assert_eq!(policy.place(&by(7), &nodes), Node(7));
        nodes.insert(Block(0), Node(7), Slot(0));
        policy.on_access(&by(7), Node(7), &nodes, &mut out);
        assert!(out.is_empty());
        policy.on_access(&by(24), Node(7), &nodes, &mut out);
        let (block, to) = (Block(0), Node(24));
        assert_eq!(out, [Action::Migrate { block, to }]);
        let coming = |from| IncomingBlock {
            from,
            migrates: false,
        };
        let from = Some(Node(7));
        assert_eq!(policy.forward_to(Block(1), to, coming(from), &nodes), from);
        assert_eq!(policy.forward_to(Block(1), to, coming(None), &nodes), None);
    }
}
