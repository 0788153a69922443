//! Traces of accesses: the folder that the recorder writes, readers of other formats, and what is
//! in a trace.
//!
//! - [`Writer`] writes a trace folder ([`schema`] says what is in it), all of it or nothing.
//! - [`Trace::load`] reads any [format](mod@format), from any [`Input`], into columns of dense
//!   block references, which [`Trace::fill`] hands to policies.
//! - [`generate`] makes traces up.
//! - [`import`](fn@import) makes a trace folder of any of them, and [`Export`] writes a trace for
//!   other tools.
//! - [`Stats`] says what is in a trace.
//!
//! Nothing here prints, exits or reads a clock; an error names its file and its row, line or
//! column.
#![forbid(unsafe_code)]

mod arrow_schema;
mod counts;
mod error;
mod export;
pub mod format;
pub mod generate;
mod import;
mod intern;
pub mod load;
mod meta;
mod reuse;
mod sample;
pub mod schema;
mod sink;
mod source;
mod stats;
mod store;
pub mod table;
mod text;
mod trace;
mod writer;

pub use counts::{Counts, Skipped, Tally};
pub use error::{Error, Result};
pub use export::{EXPORTS, Export};
pub use import::{Imported, import};
pub use load::{Builder, LoadOptions};
pub use reuse::{ReuseHistogram, StackDistances};
pub use sample::{Sample, SampleError, Sampled};
pub use sink::Sink;
pub use source::Input;
pub use stats::{Concentration, Ranked, Shared, Sharing, Stats};
pub use trace::Trace;
pub use writer::{Writer, partial_path};
