//! Live file cache: an unmodified program runs, and what the page cache keeps of its files is up to
//! a replacement policy, the simulator's own code.
//!
//! `run` drives it all: programs tell what they read and write through their rings, the
//! recorder's. `controller` hears what programs read and write, asks the policy, and answers with
//! ranges to drop, without ever touching the world: the same inputs give the same decisions, so a
//! log can be replayed. `event` is what goes in and out.

mod controller;
mod event;
pub(crate) mod run;
#[cfg(test)]
mod tests;

use std::path::Path;

use self::controller::PageCacheController;
use crate::decision_log::{self, Mismatch};
use crate::error::Result;

pub use controller::{ReadStats, SiteStats, Summary};
pub use run::{BUDGET_MIN_BYTES, Budget, FileStats, PageCacheOptions, PageCacheReport};
pub(crate) use run::{PageCacheActuator, set_up};

/// Replays a run's log: drives the policy by its inputs once more, and compares the decisions.
/// Returns how many there were, or the first that differs.
pub fn replay(path: &Path) -> Result<std::result::Result<usize, Mismatch>> {
    decision_log::replay::<PageCacheController>(path)
}
