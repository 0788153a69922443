//! Live memory pages: an unmodified program runs, its large regions of memory are watched while
//! they are first touched, and a placement policy, the simulator's own code, says where their pages
//! are to be.
//!
//! `run` sets it up: the program reports regions through its rings, perf their first faults.
//! `controller` takes both in, asks the policy, and answers with decisions, without ever touching
//! the world: the same inputs give the same decisions, so a log can be replayed. `region_map` finds
//! the region of an address, `fault_recording` says when faults are worth their cost. Decisions are
//! carried out by the program itself (binding a range, at its next hooked call) and by
//! [`crate::numa`]'s mover (what is there already). `counters` counts accesses by sampling. `event`
//! is what goes in and out. [`capabilities`] is what a machine would let it do.
//!
//! First faults are observed and not intercepted; docs/internals/memory.md says why.

pub mod capabilities;
pub(crate) mod controller;
mod counters;
pub(crate) mod event;
mod fault_recording;
mod region_map;
pub(crate) mod run;
#[cfg(test)]
mod tests;

use std::path::Path;

use self::controller::PlacementController;
use crate::decision_log::{self, Mismatch};
use crate::error::Result;

pub use controller::{Locality, MigrationGain, SavedPlacement, Summary};
pub use run::{MemoryOptions, MemoryReport};
pub(crate) use run::{PlacementActuator, set_up};

/// Replays a run's log: drives the policy by its inputs once more, and compares the decisions.
/// Returns how many there were, or the first that differs.
pub fn replay(path: &Path) -> Result<std::result::Result<usize, Mismatch>> {
    decision_log::replay::<PlacementController>(path)
}
