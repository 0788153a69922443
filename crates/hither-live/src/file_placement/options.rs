//! The options of the mechanism.

use std::path::PathBuf;

use hither_core::Spec;
use hither_core::placement::PlacementEntry;
use hither_ids::KernelNode;

/// The options of the mechanism.
#[derive(Clone, Debug)]
pub struct FilePlacementOptions {
    /// A placement that [runs live](PlacementEntry::live) as one of files.
    pub policy: Spec<PlacementEntry>,
    /// The folder that keeps calibrations of machines.
    pub cache: Option<PathBuf>,
}

impl FilePlacementOptions {
    /// Whether the programs themselves place pages, as they read them in. Then there is nothing to
    /// watch, to log and to leave undone. Otherwise cached pages move.
    pub fn is_at_read(&self) -> bool {
        self.at_read().is_some()
    }

    /// Where pages are placed as they are read in: on one node, or on all in turn.
    pub(super) fn at_read(&self) -> Option<Option<KernelNode>> {
        match self.policy.entry().name {
            "round-robin" => Some(None),
            "single-node" => Some(Some(KernelNode(self.policy.values().count(0) as u32))),
            _ => None,
        }
    }
}
