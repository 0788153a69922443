//! What a sweep is to do.

use std::path::PathBuf;

use hither_core::Spec;
use hither_sim::Size;
use hither_trace::LoadOptions;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::stamp;

/// All traces of a sweep, each with its caches.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) jobs: Vec<Job>,
}

/// One trace with its caches: each policy at each size.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// The path as the user wrote it.
    pub(crate) name: PathBuf,
    /// Where it is.
    pub(crate) path: PathBuf,
    pub(crate) format: Option<String>,
    pub(crate) options: LoadOptions,
    pub(crate) policies: Vec<Spec>,
    /// Five parts of the distinct blocks, where it is empty.
    pub(crate) sizes: Vec<Size>,
}

/// What holds for a trace of which nothing else is said.
#[derive(Clone, Debug)]
pub(crate) struct Defaults {
    pub(crate) format: Option<String>,
    pub(crate) options: LoadOptions,
}

impl Plan {
    /// A hash of all that decides on the results but for the content of the traces.
    pub(crate) fn digest(&self) -> String {
        let jobs: Vec<serde_json::Value> = self
            .jobs
            .iter()
            .map(|job| {
                let policies: Vec<String> = job.policies.iter().map(Spec::to_string).collect();
                let sizes: Vec<String> = job.sizes.iter().map(Size::to_string).collect();
                json!({
                    "name": job.name.to_string_lossy(),
                    "format": job.format,
                    "options": job.options,
                    "policies": policies,
                    "sizes": sizes,
                })
            })
            .collect();
        let text = json!({ "hither": env!("CARGO_PKG_VERSION"), "jobs": jobs }).to_string();
        hex(&Sha256::digest(text))
    }
}

impl Job {
    /// Its share of the work, roughly: the bytes to read times the caches.
    pub(crate) fn weight(&self) -> u64 {
        let caches = self.policies.len() * self.sizes.len().max(1);
        stamp::bytes(&self.path)
            .max(1)
            .saturating_mul(caches as u64)
    }
}

/// Bytes in hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
