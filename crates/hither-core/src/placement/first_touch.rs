//! First touch: a page lives on the node whose processor touches it first, for good. What Linux,
//! IRIX and Solaris do by default (UPM paper, section 1; cache-aware thesis, chapter 2).

use super::{Nodes, Placement, PlacementEntry, Target};
use crate::access::Access;
use crate::ids::Node;
use crate::registry::Needs;

pub(super) const ENTRY: PlacementEntry = PlacementEntry {
    name: "first-touch",
    summary: "on the first node that touches it, for good",
    source: "Linux and IRIX default; Marchetti et al., IPPS 1995",
    params: &[],
    target: Target::Memory,
    needs: Needs::NOTHING,
    foresight: false,
    live: true,
    build: |_, _| Box::new(FirstTouch),
};

struct FirstTouch;

impl Placement for FirstTouch {
    fn place(&mut self, access: &Access, _: &Nodes) -> Node {
        access.node
    }
}
