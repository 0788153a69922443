//! What a trace says: simulated caches and placements, the advice that follows from them, sweeps,
//! curves, and reports.
//!
//! This crate is the library under the `hither` command. It loads nothing by itself but what it is
//! given a path of, prints nothing, knows no command line, and never ends the process. A caller
//! that wants to show progress hands in a [`Progress`]; one that wants none hands in
//! [`progress::Silent`].
#![forbid(unsafe_code)]
#![allow(missing_docs, unreachable_pub)]

pub mod advice;
pub mod curve;
mod error;
pub mod file;
pub mod format;
pub mod knowledge;
pub mod loading;
mod located;
pub mod memory;
pub mod place;
pub mod plan;
pub mod plot;
pub mod progress;
pub mod report;
pub mod rows;
pub mod simulate;
pub mod sweep;
pub mod topology;
pub mod verdict;

pub use error::{Error, Result};
pub use progress::Progress;
