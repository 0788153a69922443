//! Replicas of a running program's files: an unmodified program runs, and what it reads again and
//! again from memory that is far from it is copied near, as the simulator's `dual-layer` placement
//! says, and read from there.
//!
//! [`run`] drives it all. `driver` hears what programs read, asks the placement, and answers with
//! leases to take and blocks to copy, without ever touching the world: the same inputs give the
//! same decisions, so a log can be replayed. `keeper` is the thread that holds the leases: whatever
//! else goes on, it ends a file's replicas before a writer is let in. `event` is what goes in and
//! out of the driver. The shared memory, and what makes a copy as good as a read, is
//! [`hither_sys::replica`].

mod driver;
mod event;
mod keeper;
pub mod run;

use std::path::Path;

use self::driver::Driver;
use crate::error::Result;
use crate::log::{self, Mismatch};

pub use driver::Summary;
pub use run::{Ran, Replicas, ReplicasOptions, Runner, Which};

/// Replays a run's log: drives the policy by its inputs once more, and compares the decisions.
/// Returns how many there were, or the first that differs.
pub fn replay(path: &Path) -> Result<std::result::Result<usize, Mismatch>> {
    log::replay::<Driver>(path)
}
