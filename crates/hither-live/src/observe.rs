//! Records a program into a trace. The program runs with the recorder's library, which reports its
//! accesses.
//!
//! [`record`] runs the program with nothing but a recording (`recording`). That is a sink of the
//! agent's loop (`collect`): events are sorted by time (`order`), keys get dense numbers
//! (`intern`), threads belong to programs (`streams`), call sites get their names (`sites`), and
//! programs that could not be recorded are listed (`not_recorded`). The kernel may report what the
//! library does not see (`beside`). Touches of mapped files are recorded on request (`mapped`).
//! What would be missing if the agent were killed is noted on disk (`checkpoint`). A trace that was
//! cut is completed as far as it goes (`cut`).

mod beside;
mod checkpoint;
mod collect;
mod cut;
mod hashed_names;
pub(crate) mod intern;
pub mod machine;
mod mapped;
pub(crate) mod memory_left;
mod not_recorded;
mod order;
mod perf_maps;
pub mod record;
pub(crate) mod recording;
mod running;
pub(crate) mod sites;
pub(crate) mod start;
pub(crate) mod streams;
mod summary;
mod tables;

pub use cut::{CutRecording, Recovered, recover};
pub use record::{RecordOptions, Recorder, unseen};
pub use recording::{Recorded, TraceOptions};
pub use summary::RecordingSummary;
