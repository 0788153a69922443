//! What a driver starts from: the first line of a log.

use hither_core::placement::{self, Class};
use hither_core::{Spec, Topology};
use hither_sys::machine::NodeMemory;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::machine;

/// What the driver starts from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Config {
    /// The policy, with its parameters.
    pub(crate) policy: String,
    pub(crate) page_bytes: u64,
    /// Where a fault may bring in so much.
    pub(crate) huge_page_bytes: Option<u64>,
    /// Decisions are not carried out.
    pub(crate) dry_run: bool,
    pub(crate) nodes: Vec<NodeConfig>,
    /// What is known of allocation sites.
    pub(crate) sites: Vec<KnownSite>,
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

/// What an allocation site's regions were.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KnownSite {
    #[serde(with = "super::super::event::hex")]
    pub(crate) signature: u64,
    #[serde(with = "super::super::event::class")]
    pub(crate) class: Class,
}

impl Config {
    pub(super) fn topology(&self) -> Result<Topology> {
        let node = |node: &NodeConfig| NodeMemory {
            node: node.node,
            cpus: node.cpus.clone(),
            bytes: u64::from(node.frames) * self.page_bytes,
            distances: node.distances.clone(),
            ..NodeMemory::default()
        };
        let nodes: Vec<NodeMemory> = self.nodes.iter().map(node).collect();
        machine::topology(&nodes).map_err(|source| Error::Nodes(source.to_string()))
    }

    pub(super) fn policy(&self) -> Result<Spec<placement::Entry>> {
        let spec = self.policy.parse();
        spec.map_err(|error| Error::Log(format!("policy {:?}: {error}", self.policy)))
    }
}
