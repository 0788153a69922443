//! Replicates blocks of a running program's files: what an unmodified program reads repeatedly from
//! remote memory is copied to its node, as the simulator's `dual-layer` placement decides, and read
//! from there.
//!
//! `run` sets the mechanism up. `controller` takes what programs read, asks the placement, and
//! decides which leases to take and which blocks to copy. It touches no file and no clock: equal
//! inputs give equal decisions, so a log can be replayed. `leases` keeps the process that holds the
//! leases ([`hither_session::lease_process`]): whatever else goes on, that ends a file's replicas
//! before a writer is let in. `event` has the controller's inputs and decisions.
//! [`hither_session::replica`] has the shared memory, and says why reading a copy is as good as
//! reading the file.

mod controller;
mod event;
mod leases;
pub(crate) mod run;

use std::path::Path;

use self::controller::ReplicationController;
use crate::decision_log::{self, Mismatch};
use crate::error::Result;

pub use controller::ReplicationSummary;
pub(crate) use run::{ReplicationMechanism, set_up};
pub use run::{ReplicationOptions, ReplicationReport, Scope, obstacles};

/// Replays the log of a run: steps the controller through its inputs and compares the decisions.
/// Returns how many there were, or the first that differs.
pub fn replay(path: &Path) -> Result<std::result::Result<usize, Mismatch>> {
    decision_log::replay::<ReplicationController>(path)
}
