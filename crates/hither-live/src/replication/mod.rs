//! Replicas of a running program's files: an unmodified program runs, and what it reads again and
//! again from memory that is far from it is copied near, as the simulator's `dual-layer` placement
//! says, and read from there.
//!
//! `run` drives it all. `controller` hears what programs read, asks the placement, and answers
//! with leases to take and blocks to copy, without ever touching the world: the same inputs give
//! the same decisions, so a log can be replayed. `lease_thread` is the thread that holds the
//! leases: whatever else goes on, it ends a file's replicas before a writer is let in. `event` is
//! what goes in and out of the controller. The shared memory, and what makes a copy as good as a
//! read, is [`hither_sys::replica`].

mod controller;
mod event;
mod lease_thread;
pub(crate) mod run;

use std::path::Path;

use self::controller::ReplicationController;
use crate::decision_log::{self, Mismatch};
use crate::error::Result;

pub use controller::Summary;
pub(crate) use run::{ReplicationActuator, set_up};
pub use run::{ReplicationOptions, ReplicationReport, Scope};

/// Replays a run's log: drives the policy by its inputs once more, and compares the decisions.
/// Returns how many there were, or the first that differs.
pub fn replay(path: &Path) -> Result<std::result::Result<usize, Mismatch>> {
    decision_log::replay::<ReplicationController>(path)
}
