//! What the controller starts from: the first line of a log.

use hither_core::placement::{PlacementHost, SavedPlacement, SiteTier};
use hither_kernel::machine::NodeMemory;
use serde::{Deserialize, Serialize};

use super::budget::PERMILLE;
use crate::error::{Error, Result};
use crate::numa::PagePolicy;
use crate::numa::calibration::Calibration;
use crate::numa::host::{MeasuredCosts, NodeConfig, first_touch_and_counted, goes_by_use};

/// What the controller starts from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct MemoryConfig {
    /// The policy with its parameters.
    pub(crate) policy: PagePolicy,
    pub(crate) page_bytes: u64,
    /// Size of a huge page, where a fault may bring in a whole one.
    pub(crate) huge_page_bytes: Option<u64>,
    /// Decisions are not carried out.
    pub(crate) dry_run: bool,
    /// How accesses are counted.
    #[serde(default)]
    pub(crate) source: SampleSource,
    pub(crate) nodes: Vec<NodeConfig>,
    /// Thousandths of a CPU that counting may take.
    #[serde(default = "default_cpu_permille")]
    pub(crate) cpu_permille: u32,
    #[serde(default)]
    pub(crate) measured: MeasuredCosts,
    /// Tiers of allocation sites, from earlier runs.
    pub(crate) sites: Vec<SiteTier>,
    /// The nodes that programs bind regions to from their first allocation on, where an earlier run
    /// has sent all of the site's pages away; 0: they bind none.
    #[serde(default)]
    pub(crate) far_nodes: u64,
    /// Where regions of earlier runs had their pages in the end.
    pub(crate) placed: Vec<SavedPlacement>,
}

fn default_cpu_permille() -> u32 {
    PERMILLE
}

/// The source of access samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SampleSource {
    /// Faults on pages that the agent has armed.
    #[default]
    Armed,
    /// The kernel's hint faults. The agent arms nothing.
    Hints,
    /// Samples by the processor. The agent arms nothing, and faults are first touches.
    Processor,
}

impl MemoryConfig {
    /// For a machine whose memory costs what the calibration says, if there is one. Decisions are
    /// carried out, and nothing is known from earlier runs.
    pub(crate) fn new(
        policy: PagePolicy,
        page_bytes: u64,
        nodes: &[NodeMemory],
        calibration: Option<&Calibration>,
    ) -> MemoryConfig {
        MemoryConfig {
            policy,
            page_bytes,
            huge_page_bytes: None,
            dry_run: false,
            source: SampleSource::Armed,
            nodes: NodeConfig::list(nodes, page_bytes),
            cpu_permille: default_cpu_permille(),
            measured: MeasuredCosts::new(nodes, calibration),
            sites: Vec::new(),
            far_nodes: 0,
            placed: Vec::new(),
        }
    }

    /// Checks the values, since a log's first line may say anything.
    pub(crate) fn check(&self) -> Result<()> {
        let wrong = |what: &str| Err(Error::Log(format!("settings: {what}")));
        let pages = |bytes: u64| bytes.is_power_of_two() && bytes.is_multiple_of(self.page_bytes);
        if self.huge_page_bytes.is_some_and(|bytes| !pages(bytes)) {
            return wrong("huge_page_bytes is no multiple of page_bytes");
        }
        match self.cpu_permille {
            0..=1000 => Ok(()),
            _ => wrong("cpu_permille is more than 1000"),
        }
    }

    /// Whether the policy needs accesses to be counted.
    pub(crate) fn counts_accesses(&self) -> Result<bool> {
        Ok(self.hosts()?.1.is_some())
    }

    /// Whether the policy goes by use alone: it places no page at its first touch.
    pub(crate) fn goes_by_use(&self) -> bool {
        goes_by_use(self.policy)
    }

    /// The host of what places pages at their first touch, and of what moves them by counts.
    pub(crate) fn hosts(&self) -> Result<(PlacementHost, Option<PlacementHost>)> {
        first_touch_and_counted(self.policy, self.page_bytes, &self.nodes, &self.measured)
    }
}
