//! First touch: a page stays on the node whose processor touches it first. The default of Linux,
//! IRIX and Solaris (UPM paper, section 1; cache-aware thesis, chapter 2).

use super::entry::{Build, EpochNeeds, PlacementEntry};
use super::interface::{MemoryPlacement, Placement};
use super::nodes::Nodes;
use crate::access::Access;
use crate::entry::{Compared, Mechanism, Needs};
use crate::ids::Node;

pub(super) const ENTRY: PlacementEntry = PlacementEntry {
    name: "first-touch",
    summary: "on the first node that touches it, for good",
    source: "Linux and IRIX default; Marchetti et al., IPPS 1995",
    params: &[],
    needs: Needs::NOTHING,
    epochs: EpochNeeds::NONE,
    live: &[Mechanism::Memory],
    compared: Compared::Everywhere(1),
    build: Build::Memory(&|_, _| Box::new(FirstTouch)),
};

struct FirstTouch;

impl Placement for FirstTouch {
    fn place(&mut self, access: &Access, _: &Nodes) -> Node {
        access.node
    }
}

impl MemoryPlacement for FirstTouch {}
