//! Records a program into a trace. The program runs with the recorder's library, which reports its
//! accesses.
//!
//! [`record`] starts the program. A thread drains the rings (`collect`), events are sorted by time
//! (`order`), keys get dense numbers (`intern`), call sites get their names (`sites`), and programs
//! that could not be recorded are listed (`not_recorded`). Touches of mapped files are recorded on
//! request (`mapped`). What would be missing if the agent were killed is noted on disk
//! (`checkpoint`). A trace that was cut is completed as far as it goes (`cut`).

mod checkpoint;
mod collect;
mod cut;
mod intern;
pub mod machine;
mod mapped;
mod memory_left;
mod not_recorded;
mod order;
mod perf_maps;
pub mod record;
mod running;
pub(crate) mod sites;
mod summary;
mod tables;

pub use cut::{CutRecording, Recovered, recover};
pub(crate) use intern::{Definitions, Numbers, Pid, Streams};
pub use record::{RecordOptions, Recorded, Recorder, unseen};
pub use summary::RecordingSummary;
