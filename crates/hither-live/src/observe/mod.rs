//! Recording: a program is started under the recorder's library, and what it sends becomes a trace.
//!
//! [`record`] drives it all. Behind it: a thread that empties the rings (`collect`), events put in order of time
//! (`order`), dense numbers for keys (`intern`), call sites with their names (`sites`), programs that were not recorded
//! (`not_recorded`), and how the program is started and waited for (`launch`).

mod collect;
mod intern;
mod launch;
mod machine;
mod not_recorded;
mod order;
pub mod record;
mod sites;

pub use machine::nodes;
pub use record::{RecordOptions, Recorded, Recorder, Summary};
