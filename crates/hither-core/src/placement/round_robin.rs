//! Round-robin: pages go to the nodes in turn, in order of their first touch. IRIX and
//! `numactl --interleave` do this where accesses should be spread evenly and nothing is known of
//! them (UPM paper, section 5.2). A full node is skipped.

use super::entry::{Build, EpochNeeds, PlacementEntry};
use super::interface::{MemoryPlacement, Placement};
use super::nodes::Nodes;
use crate::access::Access;
use crate::entry::{Compared, Mechanism, Needs};
use crate::ids::Node;

pub(super) const ENTRY: PlacementEntry = PlacementEntry {
    name: "round-robin",
    summary: "on the nodes in turn",
    source: "IRIX; Nikolopoulos et al., ICS 2000",
    params: &[],
    needs: Needs::NOTHING,
    epochs: EpochNeeds::NONE,
    live: &[Mechanism::FilePlacement],
    compared: Compared::Everywhere(2),
    build: Build::Memory(&|_, _| Box::new(RoundRobin { next: 0 })),
};

struct RoundRobin {
    next: usize,
}

impl Placement for RoundRobin {
    fn place(&mut self, _: &Access, nodes: &Nodes) -> Node {
        let from = self.next;
        let turn = (0..nodes.len()).map(|by| Node(((from + by) % nodes.len()) as u16));
        let mut with_room = turn.filter(|&node| nodes.free(node) > 0);
        let node = with_room.next().unwrap_or(Node(from as u16));
        self.next = (node.index() + 1) % nodes.len();
        node
    }
}

impl MemoryPlacement for RoundRobin {}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::ids::{Block, Slot};
    use crate::topology::Topology;

    #[test]
    fn full_nodes_lose_their_turn() {
        let mut nodes = Nodes::new(Arc::new(Topology::uniform(3)), vec![2, 1, 3], 9);
        let mut policy = RoundRobin { next: 0 };
        let mut place = |block| {
            let node = policy.place(&Access::bare(0, Block(block)), &nodes);
            if nodes.free(node) > 0 {
                nodes.insert(Block(block), node, Slot(0));
            }
            node.0
        };
        let placed: Vec<u16> = (0..9).map(&mut place).collect();
        assert_eq!(
            placed,
            [0, 1, 2, 0, 2, 2, 0, 1, 2],
            "all are full after six"
        );
    }
}
