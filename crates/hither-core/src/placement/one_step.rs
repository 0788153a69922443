//! One step (OSM): a block that another node accesses moves one hop towards that node, and the
//! block that has to make room there moves to where it came from.
//!
//! The paper leaves the axis open; here the step follows the topology's route, along the last axis
//! (`X`) first.

use super::entry::{Build, EpochNeeds, PlacementEntry, ReplicaLayer};
use super::events::{Action, IncomingBlock};
use super::interface::{FilePlacement, Placement};
use super::nodes::Nodes;
use crate::access::Access;
use crate::entry::{Compared, Needs};
use crate::ids::{Block, Node};

pub(super) const ENTRY: PlacementEntry = PlacementEntry {
    name: "one-step",
    summary: "moves one hop towards the node that asks for it, in exchange for the victim",
    source: "Son, Kandemir, Zhang and Garg, topology-aware I/O caching, section 6.1",
    params: &[],
    needs: Needs::NOTHING,
    epochs: EpochNeeds::NONE,
    live: &[],
    compared: Compared::Everywhere(3),
    build: Build::Files(ReplicaLayer::Shared, &|_, _| Box::new(OneStep)),
};

struct OneStep;

impl Placement for OneStep {
    fn place(&mut self, access: &Access, _: &Nodes) -> Node {
        access.node
    }

    fn on_access(&mut self, access: &Access, _: Node, nodes: &Nodes, out: &mut Vec<Action>) {
        let block = access.block;
        if let Some(home) = nodes.home(block).filter(|&home| home != access.node) {
            let to = nodes.topology().next_hop(home, access.node);
            out.push(Action::Migrate { block, to });
        }
    }
}

impl FilePlacement for OneStep {
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
    fn moves_one_hop() {
        let topology = Arc::new(Topology::mesh(&[5, 5]));
        let mut nodes = Nodes::new(topology, vec![1; 25], 2);
        let by = |node| Access {
            node: Node(node),
            ..Access::bare(0, Block(0))
        };
        let (mut policy, mut out) = (OneStep, Vec::new());
        assert_eq!(policy.place(&by(7), &nodes), Node(7));
        nodes.insert(Block(0), Node(7), Slot(0));
        policy.on_access(&by(7), Node(7), &nodes, &mut out);
        assert!(out.is_empty());
        policy.on_access(&by(24), Node(7), &nodes, &mut out);
        let (block, to) = (Block(0), Node(8));
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
