//! What `hither top` shows of nodes in a build that has none.

use hither_ids::Pid;

/// No mounts and nodes.
#[derive(Default)]
pub(super) struct Nodes;

impl Nodes {
    pub(super) fn running(_pid: Option<Pid>) -> Nodes {
        Nodes
    }

    pub(super) fn is_empty(&self) -> bool {
        true
    }

    pub(super) fn texts(&self) -> impl Iterator<Item = String> {
        std::iter::empty()
    }
}
