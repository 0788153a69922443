//! First and forever (FAF): a block stays on the node that first accessed it, until that node needs
//! the room. Most cooperative caches do this, and post-office is compared with it.

use super::entry::{Build, EpochNeeds, PlacementEntry, ReplicaLayer};
use super::interface::{AccessesWanted, FilePlacement, Placement};
use super::nodes::Nodes;
use crate::access::Access;
use crate::entry::{Compared, Needs};
use crate::ids::Node;

pub(super) const ENTRY: PlacementEntry = PlacementEntry {
    name: "first-and-forever",
    summary: "on the node that asked first, until it is evicted there",
    source: "Son, Kandemir, Zhang and Garg, topology-aware I/O caching, section 6.1",
    params: &[],
    needs: Needs::NOTHING,
    epochs: EpochNeeds::NONE,
    live: &[],
    compared: Compared::Everywhere(1),
    build: Build::Files(ReplicaLayer::Shared, &|_, _| Box::new(FirstAndForever)),
};

struct FirstAndForever;

impl Placement for FirstAndForever {
    fn place(&mut self, access: &Access, _: &Nodes) -> Node {
        access.node
    }
}

impl FilePlacement for FirstAndForever {
    fn accesses_wanted(&self) -> AccessesWanted {
        AccessesWanted::None
    }
}
