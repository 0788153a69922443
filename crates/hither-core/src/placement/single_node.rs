//! Single node: all pages on one node, as where one thread initialises what all threads use: the
//! UPM paper's worst case (section 5.2). If the node is full, the nearest nodes take the rest.

use super::entry::{Build, EpochNeeds, PlacementEntry};
use super::interface::{MemoryPlacement, Placement};
use super::nodes::Nodes;
use crate::access::Access;
use crate::entry::{Compared, Mechanism, Needs, Param};
use crate::ids::Node;

pub(super) const ENTRY: PlacementEntry = PlacementEntry {
    name: "single-node",
    summary: "all on one node, as far as they fit",
    source: "Nikolopoulos et al., ICS 2000",
    params: &[Param::count(
        "node",
        "the node; the last one if there are fewer",
        0,
        0..=65_535,
    )],
    needs: Needs::NOTHING,
    epochs: EpochNeeds::NONE,
    live: &[Mechanism::FilePlacement],
    compared: Compared::ByName,
    build: Build::Memory(&|settings, values| {
        let last = settings.topology.nodes() as u64 - 1;
        Box::new(SingleNode(Node(values.count(0).min(last) as u16)))
    }),
};

struct SingleNode(Node);

impl Placement for SingleNode {
    fn place(&mut self, _: &Access, _: &Nodes) -> Node {
        self.0
    }
}

impl MemoryPlacement for SingleNode {}
