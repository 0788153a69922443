//! Traces of accesses: the trace folder, readers of other formats, and statistics.
//!
//! - [`Writer`] writes a trace folder (its [`schema`]), completely or not at all. [`PartialTrace`]
//!   completes one that was cut.
//! - [`Trace::load`] reads any [format](mod@format) from any [`Input`], and numbers blocks densely.
//!   [`Trace::fill`] passes the references to policies.
//! - [`import`](fn@import) converts a trace to a trace folder, and [`Export`] writes it for other
//!   tools.
//! - [`Stats`] are the statistics of a trace.
//!
//! Nothing here prints, exits or reads a clock. An error names its file, and its row, line or
//! column.
#![forbid(unsafe_code)]

mod arrow_schema;
mod clock;
mod columns;
mod counts;
mod delimited;
mod error;
mod export;
mod folder;
pub mod format;
mod import;
mod intern;
mod journal;
pub mod labels;
mod load;
mod load_options;
mod meta;
mod object_columns;
mod objects;
mod partial;
mod per_line;
mod private_file;
mod requests;
mod reuse;
mod row_range;
mod sample;
pub mod schema;
mod sink;
mod source;
mod stats;
mod store;
pub mod table;
mod text;
mod trace;
mod trace_builder;
mod writer;

pub use clock::{REFERENCE_CLOCK, ReferenceTime};
pub use counts::{RequestCounts, Skipped, TraceCounts};
pub use error::{Error, Result};
pub use export::{EXPORTS, Export};
pub use folder::{clear_leftovers, create_locked, partial_path, recoverable};
pub use import::{Imported, Importer, import};
pub use journal::TableRows;
pub use load_options::LoadOptions;
pub use object_columns::ObjectRequest;
pub use partial::{Kept, KeptObject, PartialTrace, publish_complete};
pub use private_file::PRIVATE_MODE;
pub use reuse::{ReuseHistogram, StackDistances};
pub use sample::{Sample, SampleError, Sampled};
pub use sink::Sink;
pub use source::{Input, Location};
pub use stats::{Concentration, RankedRow, Sharing, SharingCounts, Stats};
pub use trace::Trace;
pub use trace_builder::TraceBuilder;
pub use writer::Writer;

/// Compiles and runs what the README shows.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
