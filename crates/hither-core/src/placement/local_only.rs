//! Local only: each node caches what it reads, as a client's own cache does. What another node
//! holds is fetched from there rather than from storage, and then kept here as well. So the caches
//! together hold the popular blocks many times.
//!
//! A cache without any sharing would read those blocks from storage again. That differs in the time
//! of a first read, not in what the caches hold. A write drops all copies but the nearest one.

use super::entry::{Build, EpochNeeds, PlacementEntry, ReplicaLayer};
use super::events::Action;
use super::interface::{FilePlacement, Placement};
use super::nodes::Nodes;
use crate::access::Access;
use crate::entry::{Compared, Needs};
use crate::ids::Node;

pub(super) const ENTRY: PlacementEntry = PlacementEntry {
    name: "local-only",
    summary: "each node keeps what it reads, whoever else holds it",
    source: "common use",
    params: &[],
    needs: Needs::NOTHING,
    epochs: EpochNeeds::NONE,
    live: &[],
    compared: Compared::ByName,
    build: Build::Files(ReplicaLayer::Shared, &|_, _| Box::new(LocalOnly)),
};

struct LocalOnly;

impl Placement for LocalOnly {
    fn place(&mut self, access: &Access, _: &Nodes) -> Node {
        access.node
    }

    fn on_access(&mut self, access: &Access, from: Node, _: &Nodes, out: &mut Vec<Action>) {
        let (block, to) = (access.block, access.node);
        if from != to {
            out.push(Action::Replicate { block, to });
        }
    }

    fn on_write(&mut self, access: &Access, nodes: &Nodes, out: &mut Vec<Action>) {
        out.extend(nodes.copies_but_nearest(access.block, access.node));
    }
}

impl FilePlacement for LocalOnly {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Block, Slot};
    use crate::topology::Topology;
    use std::sync::Arc;

    #[test]
    fn a_reader_keeps_a_copy_and_a_writer_the_only_one() {
        let mut nodes = Nodes::new(Arc::new(Topology::mesh(&[1, 3])), vec![1; 3], 1);
        let (mut policy, mut out, block) = (LocalOnly, Vec::new(), Block(0));
        let by = |node| Access {
            node: Node(node),
            ..Access::bare(0, block)
        };
        assert_eq!(policy.place(&by(0), &nodes), Node(0));
        nodes.insert(block, Node(0), Slot(0));
        policy.on_access(&by(0), Node(0), &nodes, &mut out);
        assert!(out.is_empty());
        policy.on_access(&by(2), Node(0), &nodes, &mut out);
        let to = Node(2);
        assert_eq!(out, [Action::Replicate { block, to }]);
        nodes.insert(block, to, Slot(0));
        out.clear();
        policy.on_write(&by(2), &nodes, &mut out);
        let at = Node(0);
        assert_eq!(out, [Action::Drop { block, at }]);
    }
}
