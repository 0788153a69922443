//! A report: what `stat`, `sim` and `advise` say of one trace, or of two beside each other, with
//! the pictures that a terminal cannot show, as one page that needs nothing else.
//!
//! The page is a template with a JSON document in it. What the other commands print goes into the
//! document as they print it, serialised by the same code, so that a number on the page is the
//! number that they give. What only the page has is gathered here, a file each: `activity` (one
//! pass of the trace: who made which references when), `access_picture` (blocks against time),
//! `distribution` (how few files and call sites make most of it), and `compare` (two runs).
//!
//! The document is bounded whatever the trace: tables keep the rows that matter and say how many
//! they leave out, the picture is coarsened until it fits (`access_picture::Grid`), drawings of
//! placements that would not fit are left out.

mod access_picture;
mod activity;
mod compare;
mod distribution;
mod page;
mod run;

use std::path::PathBuf;

use hither_core::Spec;
use hither_sim::Size;
use hither_trace::Trace;
use serde::Serialize;
use serde_json::Value;

use crate::placement::PlacementSetup;
use crate::progress::Progress;
use crate::simulate;
use crate::{Error, Result};
use compare::Comparison;
use run::RunReport;

/// What a report is to be of, besides its traces.
pub struct ReportRequest {
    /// The policies to simulate.
    pub policies: Vec<Spec>,
    /// Whether a user named these policies: then one that the trace is too poor for is an error.
    pub own_policies: bool,
    /// None: parts of the first trace's distinct blocks.
    pub sizes: Vec<Size>,
    /// Sizes on the curve of a policy that is simulated size by size; by the length of the trace
    /// where nothing is said.
    pub points: Option<usize>,
    /// What is placed where.
    pub placing: PlacementSetup,
}

/// One run, or two and what differs between them.
#[derive(Serialize)]
pub struct Report {
    hither: &'static str,
    runs: Vec<RunReport>,
    comparison: Option<Comparison>,
}

/// Loads each trace in turn and makes a report of what is in them. One trace is in memory at a
/// time.
pub fn of<E: From<Error>>(
    paths: &[PathBuf],
    load: impl Fn(&PathBuf) -> Result<Trace, E>,
    asked: &ReportRequest,
    progress: &dyn Progress,
) -> Result<Report, E> {
    let mut runs: Vec<RunReport> = Vec::new();
    let mut sizes: Option<Vec<(Size, u32)>> = None;
    for path in paths {
        let trace = load(path)?;
        // Runs are held to each other in caches of the same size, which parts of each one's blocks
        // would not be.
        let sizes = match &sizes {
            Some(sizes) => sizes,
            None => {
                let block_bytes = u64::from(trace.options().block_bytes);
                sizes.insert(simulate::sizes(
                    &asked.sizes,
                    block_bytes,
                    trace.blocks_of_all(),
                )?)
            }
        };
        runs.push(RunReport::of(&trace, asked, sizes, paths.len(), progress)?);
    }
    let comparison = match &runs[..] {
        [a, b] => Some(Comparison::of(a, b)),
        _ => None,
    };
    Ok(Report {
        hither: env!("CARGO_PKG_VERSION"),
        runs,
        comparison,
    })
}

impl Report {
    /// The page's data.
    pub fn document(&self) -> Result<Value> {
        Ok(serde_json::to_value(self)?)
    }

    /// The page.
    pub fn page(&self) -> Result<String> {
        Ok(page::page(&serde_json::to_string(self)?))
    }
}
