//! The plan of a sweep: traces, each with its policies, sizes and placements.

use std::path::PathBuf;

use hither_core::Spec;
use hither_sim::Size;
use hither_sim::placement::PlacementSpec;
use hither_trace::{LoadOptions, Trace};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::stamp;
use crate::Result;
use crate::placement::{self, PlacementRequest, PlacementSetup};
use crate::simulate;

/// The traces of a sweep with their work.
#[derive(Clone, Debug)]
pub struct SweepPlan {
    /// The traces, in the order of the output.
    pub jobs: Vec<TraceJob>,
}

/// One trace with its work: each policy at each size, or, where nodes are named, each placement on
/// each of them.
#[derive(Clone, Debug)]
pub struct TraceJob {
    /// The path as the user wrote it.
    pub name: PathBuf,
    /// The path from the current folder: of the trace, or of its copy on this machine.
    pub path: PathBuf,
    /// The size by which work is divided. `None`: what the files at `path` have.
    pub bytes: Option<u64>,
    /// The format of the trace. `None`: it is detected from the content.
    pub format: Option<String>,
    /// How the trace is read.
    pub options: LoadOptions,
    /// The policies to simulate.
    pub policies: Vec<Spec>,
    /// The cache sizes, or the capacities of each node where nodes are named. Where it is empty,
    /// five shares of the distinct blocks are used.
    pub sizes: Vec<Size>,
    /// The nodes and placements.
    pub placing: PlacementSetup,
}

/// The settings of traces that have none of their own.
#[derive(Clone, Debug)]
pub struct JobDefaults {
    /// The format of the trace. `None`: it is detected from the content.
    pub format: Option<String>,
    /// How the trace is read.
    pub options: LoadOptions,
}

impl SweepPlan {
    /// A hash of all settings that determine the results, without the content of the traces.
    pub fn digest(&self) -> String {
        let jobs: Vec<serde_json::Value> = self
            .jobs
            .iter()
            .map(|job| {
                let policies: Vec<String> = job.policies.iter().map(Spec::to_string).collect();
                let sizes: Vec<String> = job.sizes.iter().map(Size::to_string).collect();
                let placing = &job.placing;
                let placements = placing.placements.iter().map(PlacementSpec::to_string);
                // The whole topology, since it may come from a file or from this machine.
                let nodes = placing.nodes.iter().map(|nodes| format!("{nodes:?}"));
                json!({
                    "name": job.name.to_string_lossy(),
                    "format": job.format,
                    "options": job.options,
                    "policies": policies,
                    "sizes": sizes,
                    "nodes": nodes.collect::<Vec<_>>(),
                    "placements": placements.collect::<Vec<_>>(),
                    "running": format!("{:?}", placing.running),
                })
            })
            .collect();
        let text = json!({ "hither": env!("CARGO_PKG_VERSION"), "jobs": jobs }).to_string();
        hex(&Sha256::digest(text))
    }
}

impl TraceJob {
    /// Loads the trace. Sizes in bytes, unless they are those of nodes, mean that objects have
    /// sizes where the trace says so.
    pub(super) fn load(&self) -> Result<Trace> {
        let mut options = self.options;
        if self.placing.nodes.is_empty() {
            options.keep_sizes |= simulate::are_of_bytes(&self.sizes);
        }
        let trace = Trace::load(&self.path, self.format.as_deref(), &options)?;
        if !trace.has_sizes() {
            simulate::refuse_bytes(&self.sizes, &trace)
                .map_err(|error| error.in_trace(&self.name))?;
        }
        Ok(trace)
    }

    /// The placements to simulate, by default those of the list `defaults`.
    pub(super) fn request(&self, defaults: &str) -> Result<PlacementRequest> {
        Ok(PlacementRequest {
            nodes: self.placing.nodes.clone(),
            placements: placement::placements_or_default(&self.placing.placements, defaults)?,
            sizes: self.sizes.clone(),
            policies: self.policies.clone(),
            reclaims: self.placing.running.costs.reclaims(),
        })
    }

    /// The approximate amount of work: the bytes of the trace times the caches.
    pub fn weight(&self) -> u64 {
        let placing = &self.placing;
        let placed = placing.nodes.len().max(1) * placing.placements.len().max(1);
        let caches = self.policies.len().max(1) * self.sizes.len().max(1) * placed;
        self.bytes
            .unwrap_or_else(|| stamp::bytes(&self.path))
            .max(1)
            .saturating_mul(caches as u64)
    }
}

/// Bytes in hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
