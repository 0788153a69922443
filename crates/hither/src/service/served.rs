//! What a running node consists of, for those who ask about it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use hither_node::node::Node;
use hither_node::volume::Volume;

/// See the module.
pub(crate) struct Served {
    /// What the node is called.
    pub(crate) name: Option<String>,
    /// The cluster that it belongs to.
    pub(crate) cluster: Option<String>,
    /// When it started.
    pub(crate) since: Instant,
    /// The node.
    pub(crate) node: Arc<Node>,
    /// Its volumes.
    pub(crate) volumes: Vec<ServedVolume>,
}

/// A volume of it.
pub(crate) struct ServedVolume {
    /// Where the data is.
    pub(crate) source: String,
    /// Where it is mounted.
    pub(crate) directory: Option<PathBuf>,
    /// Whether it is mounted as one that never changes.
    pub(crate) is_immutable: bool,
    /// The volume.
    pub(crate) volume: Arc<Volume>,
}
