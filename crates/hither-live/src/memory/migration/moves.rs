//! Has moved what the policy asks for at once, in batches of a region's cells to a node, and tells
//! it the outcomes.

use std::collections::BTreeMap;

use hither_core::placement::{Action, ActionOutcome};
use hither_core::{Block, Node, Object};

use super::super::event::{Decision, Migrate, Order};
use super::pending::{MoveBatch, PendingMoves};
use super::state::Migration;
use crate::numa::ranges::{MoveResult, RefusalReason, RefusedRun};

/// Batches of fewer pages do not count for the measured cost of a migration: a call alone costs 44
/// us (2026-11).
const MEASURED_PAGES_MIN: u32 = 64;

impl Migration {
    /// Has the cells moved that the policy wants elsewhere.
    pub(super) fn send(&mut self, jobs: &mut u64, out: &mut Vec<Decision>) {
        let mut pending = PendingMoves::default();
        let nodes = (0..self.host.node_count()).map(|node| Node(node as u16));
        let mut free: Vec<u32> = nodes.map(|node| self.host.free_frames(node)).collect();
        let mut batches: BTreeMap<(Object, Node), Vec<u32>> = BTreeMap::new();
        for action in std::mem::take(&mut self.actions) {
            pending.outcomes.push(ActionOutcome {
                action,
                done: false,
            });
            let Action::Migrate { block, to } = action else {
                continue;
            };
            let Some((object, cell, pages)) = self.cell_of(block) else {
                continue;
            };
            // A full node refuses, as in the simulator.
            let room = &mut free[to.index()];
            if self.host.home(block).is_none() || *room < pages {
                continue;
            }
            *room -= pages;
            pending.index.insert(block, pending.outcomes.len() - 1);
            batches.entry((object, to)).or_default().push(cell);
        }
        for ((object, to), mut cells) in batches {
            cells.sort_unstable();
            let Some(region) = self.regions.get(&object) else {
                continue;
            };
            let ranges = region.ranges(&cells, self.page_bytes);
            let samples = |node: Node| u64::from(region.by_node[node.index()]);
            out.push(Decision::Order(Order::Migrate(Migrate {
                job: *jobs,
                pid: region.pid,
                signature: region.signature,
                to: self.host.kernel_number(to),
                pages: ranges.iter().map(|range| range.pages).sum(),
                ranges,
                samples: region.by_node.iter().map(|&count| u64::from(count)).sum(),
                from_there: samples(to),
            })));
            let batch = MoveBatch {
                object,
                generation: region.generation,
                to,
                cells,
            };
            pending.jobs.insert(*jobs, batch);
            *jobs += 1;
        }
        if self.dry_run {
            while let Some((_, batch)) = pending.jobs.pop_first() {
                self.arrive(&mut pending, &batch, &[]);
            }
        }
        self.conclude(pending);
    }

    /// Takes in the outcome of a move, if it is one of these. A process whose pages cannot be moved
    /// is left alone.
    pub(crate) fn moved(&mut self, now_ns: u64, moved: &MoveResult, out: &mut Vec<Decision>) {
        let Some(mut pending) = self.pending.take() else {
            return;
        };
        let Some(batch) = pending.jobs.remove(&moved.job) else {
            self.pending = Some(pending);
            return;
        };
        if moved.moved >= MEASURED_PAGES_MIN && moved.took_ns > 0 {
            self.cost.took_ns += moved.took_ns;
            self.cost.pages += u64::from(moved.moved);
        }
        let pid = self.regions.get(&batch.object).map(|region| region.pid);
        let program = pid.and_then(|pid| self.programs.get_mut(&pid));
        if let Some(program) = program {
            program.batch_ended(now_ns, moved.moved + moved.there > 0);
        }
        self.arrive(&mut pending, &batch, &moved.refused);
        self.conclude(pending);
        let gives_up = |why| matches!(why, RefusalReason::NotPermitted | RefusalReason::NoProcess);
        let given_up = moved.refused.iter().any(|run| gives_up(run.why));
        if let Some(pid) = pid.filter(|_| given_up) {
            self.stop(pid, out);
        }
    }

    /// Takes down that the cells of a batch have moved, except for those of which every page was
    /// refused. Refused runs are given by the numbers of pages within the batch.
    fn arrive(&mut self, pending: &mut PendingMoves, batch: &MoveBatch, refused: &[RefusedRun]) {
        let region = self.regions.get_mut(&batch.object);
        let Some(region) = region.filter(|of| of.generation == batch.generation) else {
            return;
        };
        let mut first = 0;
        for &cell in &batch.cells {
            let pages = region.pages_of(cell).len() as u32;
            let (start, end) = (first, first + pages);
            first = end;
            let overlap = |run: &RefusedRun| {
                let to = run.first.saturating_add(run.pages).min(end);
                to.saturating_sub(run.first.max(start))
            };
            let stayed: u32 = refused.iter().map(overlap).sum();
            let huge = |run: &RefusedRun| run.why == RefusalReason::PartOfHuge && overlap(run) > 0;
            if refused.iter().any(huge) {
                region.huge.insert(cell);
            }
            let block = Block(region.base + cell);
            let done = stayed < pages && self.host.relocate(block, batch.to);
            if done {
                region.migrated += pages - stayed;
                self.migrated += u64::from(pages - stayed);
                region.counts.moved(cell, batch.to);
            }
            if let Some(&index) = pending.index.get(&block) {
                pending.outcomes[index].done = done;
            }
        }
    }

    /// Reports the outcomes to the policy, once all of them are known.
    fn conclude(&mut self, pending: PendingMoves) {
        if !pending.jobs.is_empty() {
            self.pending = Some(pending);
        } else if !pending.outcomes.is_empty() {
            self.host.report_outcomes(&pending.outcomes);
        }
    }
}
