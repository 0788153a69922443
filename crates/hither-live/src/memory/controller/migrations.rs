//! Migrations: sends what the policy asks for at once to the mover, by region and node, and reports
//! the outcomes to the policy.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use hither_core::placement::{Action, ActionOutcome};
use hither_core::{Block, Node, Object};

use super::super::event::{Decision, Migrate};
use super::migration_batches::{MigrationBatch, PendingMigrations};
use super::placement_controller::PlacementController;
use super::tracked_region::TrackedRegion;
use crate::numa::ranges::{MoveResult, PageRange, RefusalReason};

/// Batches of fewer pages do not count for the measured cost of a migration: a call alone costs 44
/// us (2026-11).
const MEASURED_PAGES_MIN: u32 = 64;

impl PlacementController {
    /// Has the pages moved that the policy wants elsewhere, now that it has judged these processes.
    pub(super) fn migrate(&mut self, judged: &RangeInclusive<u32>, out: &mut Vec<Decision>) {
        let Some(counting) = &mut self.counting else {
            return;
        };
        let mut pending = PendingMigrations::default();
        let mut free: Vec<u32> = (0..counting.nodes)
            .map(|node| self.host.free_frames(Node(node as u16)))
            .collect();
        let mut batches: BTreeMap<(Object, Node), Vec<Block>> = BTreeMap::new();
        for action in counting.actions.drain(..) {
            pending.outcomes.push(ActionOutcome {
                action,
                done: false,
            });
            let Action::Migrate { block, to } = action else {
                continue;
            };
            let Some(&object) = self.bases.range(..=block.0).next_back().map(|(_, o)| o) else {
                continue;
            };
            // A full node refuses, as in the simulator.
            if self.host.home(block).is_none() || free[to.index()] == 0 {
                continue;
            }
            free[to.index()] -= 1;
            pending.index.insert(block, pending.outcomes.len() - 1);
            batches.entry((object, to)).or_default().push(block);
        }
        for ((object, to), mut blocks) in batches {
            let Some(region) = self.tracked[object.index()].as_mut() else {
                continue;
            };
            blocks.sort_unstable();
            let job = self.job_count;
            self.job_count += 1;
            let samples = region.of_node.iter().sum();
            let from_there = region.of_node[to.index()];
            let counts = &counting.counters;
            let (mut here, mut there, mut gain_ns) = (0, 0, 0);
            for &block in &blocks {
                let Some(home) = self.host.home(block) else {
                    continue;
                };
                let of = counts.of(block);
                here += u64::from(of[home.index()]);
                there += u64::from(of[to.index()]);
                for (from, &count) in (0..).map(Node).zip(of) {
                    let ns = |at| i64::from(self.host.latency_ns(from, at));
                    gain_ns += i64::from(count) * (ns(home) - ns(to));
                }
            }
            let migration_ns = counting.migration_ns();
            out.push(Decision::Migrate(Migrate {
                job,
                pid: region.pid,
                signature: region.signature,
                to: self.host.kernel_number(to),
                pages: blocks.len() as u32,
                ranges: ranges(region, &blocks, self.page_bytes),
                samples,
                from_there,
                here,
                there,
                gain_ns,
                cost_ns: migration_ns * blocks.len() as u64,
            }));
            let batch = MigrationBatch {
                pid: region.pid,
                object,
                generation: self.generations[object.index()],
                to,
                blocks,
            };
            pending.jobs.insert(job, batch);
        }
        let regions = self.tracked.iter_mut().flatten();
        for region in regions.filter(|region| judged.contains(&region.pid)) {
            region.of_node.fill(0);
        }
        if self.dry_run {
            let jobs = std::mem::take(&mut pending.jobs);
            let mut jobs: Vec<(u64, MigrationBatch)> = jobs.into_iter().collect();
            jobs.sort_unstable_by_key(|&(job, _)| job);
            for (_, batch) in jobs {
                self.arrive(&mut pending, &batch, &[]);
            }
        }
        self.conclude(pending);
    }

    /// Takes in the outcome of a move. Returns whether it was one of a migration.
    pub(super) fn migrated(
        &mut self,
        now_ns: u64,
        moved: &MoveResult,
        out: &mut Vec<Decision>,
    ) -> bool {
        let Some(counting) = &mut self.counting else {
            return false;
        };
        let Some(mut pending) = counting.pending.take() else {
            return false;
        };
        let Some(batch) = pending.jobs.remove(&moved.job) else {
            counting.pending = Some(pending);
            return false;
        };
        if moved.moved >= MEASURED_PAGES_MIN && moved.took_ns > 0 {
            counting.took_ns += moved.took_ns;
            counting.migrated += u64::from(moved.moved);
        }
        let give_up = moved.refused.iter().any(|run| {
            matches!(
                run.why,
                RefusalReason::NotPermitted | RefusalReason::NoProcess
            )
        });
        if let Some(program) = counting.programs.get_mut(&batch.pid) {
            program.batch_ended(now_ns, moved.moved + moved.there > 0);
        }
        let mut refused = vec![false; batch.blocks.len()];
        for run in &moved.refused {
            let last = run.first.saturating_add(run.pages) as usize;
            let last = last.min(refused.len());
            if let Some(run) = refused.get_mut(run.first as usize..last) {
                run.fill(true);
            }
        }
        self.arrive(&mut pending, &batch, &refused);
        self.conclude(pending);
        if give_up {
            self.stop_counting(batch.pid, out);
        }
        true
    }

    /// Takes down that the pages of a batch have moved, except for those that were refused.
    fn arrive(
        &mut self,
        pending: &mut PendingMigrations,
        batch: &MigrationBatch,
        refused: &[bool],
    ) {
        let region = self.tracked[batch.object.index()].as_mut();
        let current = self.generations[batch.object.index()] == batch.generation;
        let Some(region) = region.filter(|_| current) else {
            return;
        };
        for (at, &block) in batch.blocks.iter().enumerate() {
            let stayed = refused.get(at).is_some_and(|&refused| refused);
            let done = !stayed && self.host.relocate(block, batch.to);
            region.migrated += u32::from(done);
            self.summary.migrated += u64::from(done);
            if let Some(&index) = pending.index.get(&block) {
                pending.outcomes[index].done = done;
            }
        }
        if let Some(hints) = self.counting.as_mut().and_then(|of| of.hints.as_mut()) {
            hints.moved(batch.object);
        }
    }

    /// Reports the outcomes to the policy, once all of them are known.
    fn conclude(&mut self, pending: PendingMigrations) {
        if pending.jobs.is_empty() {
            if !pending.outcomes.is_empty() {
                self.host.report_outcomes(&pending.outcomes);
            }
        } else if let Some(counting) = &mut self.counting {
            counting.pending = Some(pending);
        }
    }
}

/// Pages of a region, in order, as ranges.
fn ranges(region: &TrackedRegion, blocks: &[Block], page_bytes: u64) -> Vec<PageRange> {
    let mut ranges: Vec<PageRange> = Vec::new();
    for run in blocks.chunk_by(|a, b| a.0 + 1 == b.0) {
        ranges.push(PageRange {
            start: region.address(run[0].0 - region.base, page_bytes),
            pages: run.len() as u32,
        });
    }
    ranges
}
