//! What a controller starts from: the first line of a log.

use hither_core::placement::{self, RegionTier};
use hither_core::{Spec, Topology};
use hither_sys::machine::NodeMemory;
use serde::{Deserialize, Serialize};

use super::super::counters::PERMILLE;
use super::placement_host::PlacementHost;
use crate::error::{Error, Result};
use crate::numa::calibration::{Calibration, Costs};
use crate::numa::topology;

/// A policy with its parameters.
type Placement = Spec<placement::PlacementEntry>;

/// What the controller starts from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Config {
    /// The policy with its parameters; before it, and a comma, the one that it is made of.
    pub(crate) policy: String,
    pub(crate) page_bytes: u64,
    /// Where a fault may bring in so much.
    pub(crate) huge_page_bytes: Option<u64>,
    /// Decisions are not carried out.
    pub(crate) dry_run: bool,
    /// How accesses are counted.
    #[serde(default)]
    pub(crate) source: SampleSource,
    pub(crate) nodes: Vec<NodeConfig>,
    /// Thousandths of the CPUs that counting may take.
    #[serde(default = "permille")]
    pub(crate) cpu_permille: u32,
    /// What was measured before.
    #[serde(default)]
    pub(crate) measured: Measured,
    /// What is known of allocation sites.
    pub(crate) sites: Vec<KnownSiteTier>,
    /// Where earlier runs' regions had their pages in the end.
    pub(crate) placed: Vec<SavedPlacement>,
}

fn permille() -> u32 {
    PERMILLE
}

/// Where samples come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SampleSource {
    /// Faults on pages that were armed.
    #[default]
    Armed,
    /// The kernel's hint faults: nothing is armed.
    Hints,
    /// The processor: nothing is armed, and faults are first touches.
    Processor,
}

/// What things cost here. What is not known is taken for what it is elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// Of an access, from the row's node to the column's, row by row; none: by distances.
    pub(crate) latency_ns: Vec<u32>,
    /// Of moving a page.
    pub(crate) migration_ns: Option<u64>,
    /// Of a sample.
    pub(crate) sample_ns: Option<u64>,
}

/// Where a region had its pages in the end. A program that runs again allocates it again: the same
/// thread, at the same call site, as many allocations later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedPlacement {
    /// The allocation site.
    #[serde(with = "super::super::event::hex")]
    pub signature: u64,
    /// Which thread of its process allocated it, in the order in which they first allocated a
    /// region.
    pub thread: u32,
    /// How many regions that thread had allocated at the site before.
    pub nth: u32,
    /// Its size.
    pub pages: u32,
    /// From the first page on: how many pages are on which node, by the kernel's number; the rest
    /// is where it was touched.
    pub runs: Vec<(u32, Option<u32>)>,
}

/// A memory node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeConfig {
    /// The kernel's number.
    pub(crate) node: u32,
    pub(crate) cpus: Vec<u32>,
    pub(crate) frames: u32,
    pub(crate) distances: Vec<u32>,
}

/// No kernel has CPUs of this number and more.
const CPUS_MAX: u32 = 1 << 16;

/// What an allocation site's regions were.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KnownSiteTier {
    #[serde(with = "super::super::event::hex")]
    pub(crate) signature: u64,
    #[serde(with = "super::super::event::class")]
    pub(crate) class: RegionTier,
}

impl Config {
    /// For a machine whose memory costs what was measured, if it was; `page_bytes` is what is
    /// placed at a time. Decisions are carried out, nothing is known of earlier runs.
    pub(crate) fn new(
        policy: String,
        page_bytes: u64,
        nodes: &[NodeMemory],
        calibration: Option<&Calibration>,
    ) -> Config {
        let costs = Costs::of(nodes, calibration);
        let node = |node: &NodeMemory| NodeConfig {
            node: node.node,
            cpus: node.cpus.clone(),
            frames: u32::try_from(node.bytes / page_bytes).unwrap_or(u32::MAX),
            distances: node.distances.clone(),
        };
        Config {
            policy,
            page_bytes,
            huge_page_bytes: None,
            dry_run: false,
            source: SampleSource::Armed,
            nodes: nodes.iter().map(node).collect(),
            cpu_permille: permille(),
            measured: Measured {
                latency_ns: costs.latency_ns(),
                migration_ns: costs.migration_ns,
                sample_ns: None,
            },
            sites: Vec::new(),
            placed: Vec::new(),
        }
    }

    /// Whether it can be a machine's. A log's header may say anything.
    pub(super) fn check(&self) -> Result<()> {
        let wrong = |what: &str| Err(Error::Log(format!("settings: {what}")));
        let pages = |bytes: u64| bytes.is_power_of_two() && bytes.is_multiple_of(self.page_bytes);
        if !self.page_bytes.is_power_of_two() || self.page_bytes > 1 << 30 {
            return wrong("page_bytes is no page size");
        }
        if self.huge_page_bytes.is_some_and(|bytes| !pages(bytes)) {
            return wrong("huge_page_bytes is no multiple of page_bytes");
        }
        let latencies = self.measured.latency_ns.len();
        if latencies > 0 && latencies != self.nodes.len().pow(2) {
            return wrong("latency_ns has not one entry for each pair of nodes");
        }
        let mut cpus = self.nodes.iter().flat_map(|node| &node.cpus);
        if cpus.any(|&cpu| cpu >= CPUS_MAX) {
            return wrong("a CPU's number is too large");
        }
        match self.cpu_permille {
            0..=1000 => Ok(()),
            _ => wrong("cpu_permille is more than 1000"),
        }
    }

    /// Whether anybody must count accesses.
    pub(crate) fn counts(&self) -> Result<bool> {
        Ok(PlacementHost::new(self)?.counts())
    }

    pub(super) fn topology(&self) -> Result<Topology> {
        let node = |node: &NodeConfig| NodeMemory {
            node: node.node,
            cpus: node.cpus.clone(),
            bytes: u64::from(node.frames) * self.page_bytes,
            distances: node.distances.clone(),
            ..NodeMemory::default()
        };
        let nodes: Vec<NodeMemory> = self.nodes.iter().map(node).collect();
        let topology = match self.measured.latency_ns.as_slice() {
            [] => topology::topology(&nodes),
            latency_ns => topology::with_latencies(&nodes, latency_ns),
        };
        topology.map_err(|source| Error::Nodes(source.to_string()))
    }

    /// The policy, and what it is made of where that has parameters of its own.
    pub(super) fn policy(&self) -> Result<(Placement, Option<Placement>)> {
        let wrong = |error: &str| Error::Log(format!("policy {:?}: {error}", self.policy));
        let specs = Spec::parse_list(&self.policy).map_err(|error| wrong(&error.to_string()))?;
        match *specs.as_slice() {
            [policy] => Ok((policy, None)),
            [initial, policy] => Ok((policy, Some(initial))),
            _ => Err(wrong("more than two")),
        }
    }
}
