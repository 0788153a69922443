//! Migrations under way, and what they cost.

use std::collections::BTreeMap;

use hither_core::placement::ActionOutcome;
use hither_core::{Block, Node, Object};
use rustc_hash::FxHashMap;

/// What the policy asked for at once, until all outcomes are known.
#[derive(Debug, Default)]
pub(super) struct PendingMoves {
    /// In the order of the policy's actions.
    pub(super) outcomes: Vec<ActionOutcome>,
    /// The index of a cell's outcome.
    pub(super) index: FxHashMap<Block, usize>,
    /// Batches that the mover has not finished, by job.
    pub(super) jobs: BTreeMap<u64, MoveBatch>,
}

/// Cells of one region on their way to one node.
#[derive(Debug)]
pub(super) struct MoveBatch {
    pub(super) object: Object,
    pub(super) generation: u64,
    pub(super) to: Node,
    pub(super) cells: Vec<u32>,
}

/// The cost of moving pages, as measured.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MovingCost {
    pub(super) took_ns: u64,
    pub(super) pages: u64,
}

impl MovingCost {
    /// Of a page, if any was measured.
    pub(super) fn page_ns(self) -> Option<u64> {
        self.took_ns.checked_div(self.pages)
    }
}
