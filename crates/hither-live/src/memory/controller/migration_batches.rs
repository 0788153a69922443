//! Migrations under way: what the policy asked for at once, in batches of a region's pages to a
//! node.

use hither_core::placement::ActionOutcome;
use hither_core::{Block, Node, Object};
use rustc_hash::FxHashMap;

/// What the policy asked for at once, until all outcomes are known.
#[derive(Debug, Default)]
pub(super) struct PendingMigrations {
    /// In the order of the policy's actions.
    pub(super) outcomes: Vec<ActionOutcome>,
    /// The index of a page's outcome.
    pub(super) index: FxHashMap<Block, usize>,
    /// Batches that the mover has not finished, by job.
    pub(super) jobs: FxHashMap<u64, MigrationBatch>,
}

/// Pages of one region on their way to one node.
#[derive(Debug)]
pub(super) struct MigrationBatch {
    pub(super) pid: u32,
    pub(super) object: Object,
    pub(super) generation: u32,
    pub(super) to: Node,
    pub(super) blocks: Vec<Block>,
}
