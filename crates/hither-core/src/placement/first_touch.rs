//! First touch: a page lives on the node whose processor touches it first, for good. What Linux,
//! IRIX and Solaris do by default (UPM paper, section 1; cache-aware thesis, chapter 2).

use super::{Build, EpochNeeds, MemoryPlacement, Nodes, Placement, PlacementEntry};
use crate::access::Access;
use crate::ids::Node;
use crate::registry::{Compared, Mechanism, Needs};

pub(super) const ENTRY: PlacementEntry = PlacementEntry {
    name: "first-touch",
    summary: "on the first node that touches it, for good",
    source: "Linux and IRIX default; Marchetti et al., IPPS 1995",
    params: &[],
    needs: Needs::NOTHING,
    epochs: EpochNeeds::NONE,
    live: &[Mechanism::Memory],
    compared: Compared::Everywhere(1),
    build: Build::Memory(|_, _| Box::new(FirstTouch)),
};

struct FirstTouch;

impl Placement for FirstTouch {
    fn place(&mut self, access: &Access, _: &Nodes) -> Node {
        access.node
    }
}

impl MemoryPlacement for FirstTouch {}
