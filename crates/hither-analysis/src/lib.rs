//! The analysis of traces: simulated caches and placements, the advice that follows from them,
//! sweeps, curves, and reports.
//!
//! This crate is the library under the `hither` command. It reads only files whose paths it is
//! given, prints nothing, knows no command line, and never ends the process. To show progress, a
//! caller passes a [`Progress`]; to show none, [`progress::Silent`].
#![forbid(unsafe_code)]

pub mod advice;
mod applicable;
pub mod cache_analysis;
pub mod coverage;
pub mod curve;
mod error;
pub mod expected;
pub mod file;
pub mod format;
pub mod free_memory;
pub mod load_options;
pub mod objects;
pub mod placement;
pub mod plot;
pub mod profile;
pub mod progress;
pub mod relevance;
pub mod report;
pub mod result_rows;
pub mod run_plan;
pub mod simulate;
pub mod stacks;
pub mod sweep;
pub mod table;
mod toml_file;
pub mod topology;
pub mod verdict;

pub use error::{Error, Result};
pub use progress::Progress;
