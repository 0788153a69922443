//! Moves cached pages of files to the nodes that read them.
//!
//! The policy is the simulator's `upm`: it weighs what remote reads have cost against what a move
//! costs. Its page is a block of a file here, and its counts come from the reads that programs
//! report. `controller` decides without touching the world, so a log of its inputs replays to the
//! same decisions; `event` has these inputs and decisions, and `config` what the controller starts
//! from. `job` maps the pages of a file and has [`crate::numa`]'s mover move them, as it moves
//! pages of memory. `run` sets the mechanism up and drives it.

mod config;
mod controller;
mod event;
mod job;
mod run;

use std::path::Path;

use self::controller::FileMigrationController;
use crate::decision_log::{self, Mismatch};
use crate::error::Result;

pub use controller::FileMigrationSummary;
pub use run::FileMigrationReport;
pub(super) use run::{FileMigration, set_up};

/// Replays a run's log: gives its inputs to the policy once more, and compares the decisions.
/// Returns how many there were, or the first that differs.
pub fn replay(path: &Path) -> Result<std::result::Result<usize, Mismatch>> {
    decision_log::replay::<FileMigrationController>(path)
}
