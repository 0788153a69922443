//! Pages of a running program's files follow their readers: where those of a file, or of a part of it, run on another node than its pages are on, the pages are moved there.
//!
//! The policy is the simulator's `upm`, which weighs what reads from afar have cost against what a move costs; its page is a block of a file here, and its counts are of what
//! programs tell. `driver` hears and decides, without ever touching the world: the same inputs give the same decisions, so a log can be replayed. `mover` maps what is to be moved
//! and has it moved as pages of memory are ([`crate::pages`]). [`run`] drives it all, `event` is what goes in and out of the driver, `log` the file that it is written to.

mod driver;
mod event;
mod log;
mod mover;
pub mod run;

pub use driver::Summary;
pub use log::replay;
pub use run::{Followed, FollowingOptions, Ran, Runner};
