//! The mounts and nodes that `hither top` shows.

use hither_ids::Pid;
use hither_service::status::NodeStatus;
use hither_service::{client, sockets};

use crate::command::cache;

/// The mounts and nodes of a cache.
#[derive(Default)]
pub(super) struct Nodes(Vec<NodeStatus>);

impl Nodes {
    /// Those of this user, or the one that has this process number.
    pub(super) fn running(pid: Option<Pid>) -> Nodes {
        let sockets = sockets::running();
        let nodes = sockets.iter().filter_map(|it| client::status(it).ok());
        Nodes(
            nodes
                .filter(|node| pid.is_none_or(|pid| node.pid == pid.0))
                .collect(),
        )
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A text of each.
    pub(super) fn texts(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(cache::status::text)
    }
}
