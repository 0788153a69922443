//! Places the memory of an unmodified program: a placement policy, the simulator's own code,
//! decides on which nodes its pages are.
//!
//! The program reports its regions through its rings, and perf reports their first faults. `run`
//! sets both up. `controller` takes them in, asks the policy, and decides without touching the
//! world: equal inputs give equal decisions, so a log can be replayed. `event` has these inputs and
//! decisions. `region_map` finds the region of an address, `fault_recording` decides when faults
//! are worth their cost. `migration` counts who uses what by samples, for policies that move pages
//! to their users, and covers all memory that a program writes to. The program itself binds ranges,
//! at its next hooked call, and [`crate::numa`]'s mover moves pages that exist already.
//! [`capabilities`] finds out what a machine permits.
//!
//! First faults are observed and not intercepted; docs/internals/memory.md says why.

mod budget;
pub mod capabilities;
mod config;
pub(crate) mod controller;
pub(crate) mod event;
mod fault_recording;
mod locality;
mod migration;
mod region_map;
pub(crate) mod run;
#[cfg(test)]
mod tests;

use std::path::Path;

use self::controller::PlacementController;
use crate::decision_log::{self, Mismatch};
use crate::error::Result;

pub use controller::MemorySummary;
pub use locality::{Locality, MigrationGain};
pub(crate) use run::{MemoryMechanism, set_up};
pub use run::{MemoryOptions, MemoryReport};

/// Replays a run's log: gives its inputs to the policy once more, and compares the decisions.
/// Returns how many there were, or the first that differs.
pub fn replay(path: &Path) -> Result<std::result::Result<usize, Mismatch>> {
    decision_log::replay::<PlacementController>(path)
}
