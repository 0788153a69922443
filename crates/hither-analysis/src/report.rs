//! A report: the results of `stat`, `sim` and `advise` for one trace, or for two side by side, with
//! pictures, as one self-contained HTML page.
//!
//! The page is a template with a JSON document in it. The results of the other commands are
//! serialised by the same code, so a number on the page equals theirs. What only the page has is
//! computed here: `activity` (the references of processes and threads over time), `access_picture`
//! (blocks against time), `distribution` (the share of the most used files and call sites), and
//! `compare` (two runs).
//!
//! The size of the document is bounded for any trace. Tables keep their most important rows and say
//! how many they leave out. The picture is coarsened until it fits
//! (`access_picture::AccessGrid`). Pictures of placements that do not fit are left out.

mod access_picture;
mod activity;
mod call_stacks;
mod compare;
mod distribution;
mod page;
mod request;
mod room;
mod run;

use std::path::PathBuf;

use hither_sim::CacheSize;
use hither_trace::Trace;
use serde::Serialize;
use serde_json::Value;

use crate::progress::Progress;
use crate::simulate;
use crate::{Error, Result};
use compare::Comparison;
pub use request::ReportRequest;
use run::RunReport;

/// The report of one run, or of two with their comparison.
#[derive(Serialize)]
pub struct Report {
    hither: &'static str,
    runs: Vec<RunReport>,
    comparison: Option<Comparison>,
}

impl Report {
    /// Loads the traces one after the other, so that one at a time is in memory, and reports on
    /// them.
    pub fn of_traces<E: From<Error>>(
        paths: &[PathBuf],
        load: impl Fn(&PathBuf) -> Result<Trace, E>,
        request: &ReportRequest,
        progress: &dyn Progress,
    ) -> Result<Report, E> {
        let mut runs: Vec<RunReport> = Vec::new();
        let mut common: Option<Vec<CacheSize>> = None;
        for path in paths {
            let trace = load(path)?;
            // Runs are compared in caches of the same size. Shares of each trace's own blocks would
            // differ. The verdict on each is about the memory that it had.
            let common = match &common {
                Some(common) => common,
                None => {
                    let block_bytes = u64::from(trace.options().block_bytes);
                    let blocks = trace.blocks_of_all();
                    common.insert(simulate::sizes(&request.sizes, block_bytes, blocks)?)
                }
            };
            let sizes = simulate::with_own_memory(common.clone(), &request.sizes, &trace);
            let page_share = paths.len();
            runs.push(RunReport::of(
                &trace, request, &sizes, page_share, progress,
            )?);
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

    /// The data of the page.
    pub fn document(&self) -> Result<Value> {
        Ok(serde_json::to_value(self)?)
    }

    /// The HTML page.
    pub fn page(&self) -> Result<String> {
        Ok(page::page(&serde_json::to_string(self)?))
    }
}
