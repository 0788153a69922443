//! Steers the kernel's page cache: a replacement policy, the simulator's own code, decides what
//! stays cached of the files of an unmodified program.
//!
//! `run` sets the mechanism up. `controller` takes what programs read and write, asks the policy,
//! and decides which ranges to drop. It touches no file and no clock: equal inputs give equal
//! decisions, so a log can be replayed, and a trace too: `expected` says what a run would read.
//! `event` has the inputs and the decisions.

mod controller;
mod event;
mod expected;
pub(crate) mod run;
#[cfg(test)]
mod tests;

use std::path::Path;

use self::controller::PageCacheController;
use crate::decision_log::{self, Mismatch};
use crate::error::Result;

pub use controller::{PageCacheSummary, ReadStats, SiteStats};
pub use expected::expected_reads;
pub use run::{
    BUDGET_MIN_BYTES, Budget, FileStats, MappedError, PageCacheOptions, PageCacheReport,
};
pub(crate) use run::{PageCacheMechanism, set_up};

/// Replays the log of a run: steps the controller through its inputs and compares the decisions.
/// Returns how many there were, or the first that differs.
pub fn replay(path: &Path) -> Result<std::result::Result<usize, Mismatch>> {
    decision_log::replay::<PageCacheController>(path)
}
