//! What the controller starts from: the first line of a log.

use hither_core::Spec;
use hither_core::placement::{PlacementEntry, PlacementHost};
use hither_kernel::machine::NodeMemory;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::numa::calibration::Calibration;
use crate::numa::host::{MeasuredCosts, NodeConfig, placement_host};

/// What the controller starts from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct FileMigrationConfig {
    /// The policy with its parameters.
    pub(crate) policy: Spec<PlacementEntry>,
    /// Size of a block, which is what the policy takes for a page.
    pub(crate) page_bytes: u64,
    /// Decisions are not carried out.
    pub(crate) dry_run: bool,
    /// Memory nodes, with their frames in blocks.
    pub(crate) nodes: Vec<NodeConfig>,
    pub(crate) measured: MeasuredCosts,
}

impl FileMigrationConfig {
    /// For a machine whose memory costs what the calibration says, if there is one.
    pub(crate) fn new(
        policy: Spec<PlacementEntry>,
        block_bytes: u64,
        nodes: &[NodeMemory],
        calibration: Option<&Calibration>,
    ) -> FileMigrationConfig {
        FileMigrationConfig {
            policy,
            page_bytes: block_bytes,
            dry_run: false,
            nodes: NodeConfig::list(nodes, block_bytes),
            measured: MeasuredCosts::new(nodes, calibration),
        }
    }

    pub(super) fn host(&self) -> Result<PlacementHost> {
        placement_host(self.policy, self.page_bytes, &self.nodes, &self.measured)
    }
}
