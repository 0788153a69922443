//! Pages of a running program's files follow their readers: where those of a file, or of a part of
//! it, run on another node than its pages are on, the pages are moved there.
//!
//! The policy is the simulator's `upm`, which weighs what reads from afar have cost against what a
//! move costs; its page is a block of a file here, and its counts are of what programs tell.
//! `controller` hears and decides, without ever touching the world: the same inputs give the same
//! decisions, so a log can be replayed. `mover` maps what is to be moved and has it moved as pages
//! of memory are ([`crate::memory`]). `run` drives it all, `event` is what goes in and out of the
//! controller.

mod controller;
mod event;
mod job;
pub(crate) mod run;

use std::path::Path;

use self::controller::FileMigrationController;
use crate::decision_log::{self, Mismatch};
use crate::error::Result;

pub use controller::Summary;
pub(crate) use run::{FileMigrationActuator, set_up};
pub use run::{FileMigrationOptions, FileMigrationReport};

/// Replays a run's log: drives the policy by its inputs once more, and compares the decisions.
/// Returns how many there were, or the first that differs.
pub fn replay(path: &Path) -> Result<std::result::Result<usize, Mismatch>> {
    decision_log::replay::<FileMigrationController>(path)
}
