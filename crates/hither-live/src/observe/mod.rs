//! Recording: a program is started under the recorder's library, and what it sends becomes a trace.
//!
//! [`record`] drives it all. Behind it: a thread that empties the rings (`collect`), events put in
//! order of time (`order`), dense numbers for keys (`intern`), call sites with their names
//! (`sites`), and programs that were not recorded (`not_recorded`).

mod collect;
mod intern;
mod machine;
mod not_recorded;
mod order;
pub mod record;
pub(crate) mod sites;

pub(crate) use intern::{Definitions, Numbers, Streams};
pub use record::{RecordOptions, Recorded, Recorder, Summary, unseen};
