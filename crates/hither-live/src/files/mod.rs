//! Live file cache: an unmodified program runs, and what the page cache keeps of its files is up to a replacement policy,
//! the simulator's own code.
//!
//! [`run`] drives it all: programs tell what they read and write through their rings, the recorder's. `driver` hears what programs read and write, asks the policy, and answers with ranges to drop, without ever touching
//! the world: the same inputs give the same decisions, so a log can be replayed. `event` is what goes in and out, `log` the file that
//! it is written to.

mod driver;
mod event;
mod log;
pub mod run;

pub use driver::{SiteTally, Summary, Tally};
pub use log::replay;
pub use run::{BUDGET_MIN_BYTES, Budget, FileTally, Files, FilesOptions, Ran, Runner};
