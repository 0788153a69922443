//! What the counting of accesses keeps, for all programs: pages to arm, look-ups, samples, and the
//! migrations under way.

use std::collections::{BTreeMap, VecDeque};

use hither_core::placement::{Action, Counters, PlacementHost};
use hither_core::{Object, Process};
use rustc_hash::{FxHashMap, FxHashSet};

use super::super::counters::{Estimates, Pick, Plan, SamplingBudget};
use super::super::event::Decision;
use super::config::{MemoryConfig, SampleSource};
use super::counted_program::CountedProgram;
use super::hinted_regions::{HintedRegions, Inspection};
use super::migration_batches::PendingMigrations;
use super::tracked_region::TrackedRegion;
use crate::numa::ranges::PageRange;

/// The chance that all confidence bounds of a page hold. A wrong move costs two migrations, and
/// waiting costs in each iteration: 0.99 takes a quarter to a half more samples.
const CONFIDENCE: f64 = 0.95;

/// The samples that one pass of the kernel's scanner over a window counts as, for pages with one
/// home. The kernel takes the rights off all pages of a region at once, so that the touches after
/// it are one pass over them and not independent. So many are enough if they all agree, and do not
/// outvote the passes before. With fewer samples two or three passes have to agree, which is safer
/// and slower. The lab does not tell the values apart: nas from a single start took 3,170 and 3,604
/// ms with 4, 3,521 and 3,740 with 7, and 3,207, 3,651 and 3,655 with 16 (2026-11).
const SAMPLES_PER_PASS: u32 = 16;

/// The assumed cost of moving a page, until it was measured: the call, the copy, the flush of
/// translations, and the fault of the thread that finds the page gone.
const PAGE_MIGRATION_NS: u64 = 1_000;

/// A cache line: the bytes of one access to memory.
const LINE_BYTES: u64 = 64;

/// See the module.
#[derive(Debug)]
pub(super) struct AccessCounting {
    pub(super) nodes: usize,
    /// Accesses to a page in an iteration that uses it.
    pub(super) accesses: u32,
    pub(super) plan: Plan,
    /// The plan arms pages.
    pub(super) arms: bool,
    /// The kernel samples regions.
    pub(super) hints: Option<HintedRegions>,
    /// Room for what the plan picks.
    pub(super) picks: Vec<Pick>,
    /// Pages that are armed and were not touched since.
    pub(super) armed: FxHashSet<u32>,
    /// By process.
    pub(super) programs: BTreeMap<u32, CountedProgram>,
    pub(super) counters: Counters,
    /// Windows to look up, by region and first page.
    pub(super) asks: Vec<(Object, u32)>,
    /// Look-ups under way, by job: the process, its ranges, and the inspection that they belong to.
    pub(super) located: FxHashMap<u64, (u32, Vec<PageRange>, Option<Inspection>)>,
    /// Regions that could not be sampled: when to try again, and their generation.
    pub(super) retries: VecDeque<(u64, Object, u32)>,
    pub(super) pending: Option<PendingMigrations>,
    /// Room for the policy's actions.
    pub(super) actions: Vec<Action>,
    /// The cost of moving a page, as long as no page has moved.
    migration_ns: u64,
    /// The time that all measured migrations took, and their pages.
    pub(super) took_ns: u64,
    pub(super) migrated: u64,
    /// The policy's own period, and when it was last asked.
    pub(super) period_ns: Option<u64>,
    pub(super) period_judged_ns: u64,
    /// When to check next whether a program's period is over.
    pub(super) periods_due_ns: u64,
}

impl AccessCounting {
    /// `None` where the policy does not decide by access counts.
    pub(super) fn new(
        host: &PlacementHost,
        config: &MemoryConfig,
        cpus: usize,
    ) -> Option<AccessCounting> {
        let measured = &config.measured;
        host.counts_accesses().then(|| AccessCounting {
            migration_ns: measured.migration_ns.unwrap_or(PAGE_MIGRATION_NS),
            nodes: host.node_count(),
            accesses: (config.page_bytes / LINE_BYTES) as u32,
            hints: (config.source == SampleSource::Hints).then(|| HintedRegions::new(cpus)),
            arms: config.source == SampleSource::Armed,
            // Any seed will do, if it is always the same: a log must replay.
            plan: Plan::new(
                1,
                SamplingBudget::of(cpus, config.cpu_permille).costing(measured.sample_ns),
            ),
            picks: Vec::new(),
            armed: FxHashSet::default(),
            programs: BTreeMap::new(),
            counters: Counters::new(host.node_count(), 0),
            asks: Vec::new(),
            located: FxHashMap::default(),
            retries: VecDeque::new(),
            pending: None,
            actions: Vec::new(),
            took_ns: 0,
            migrated: 0,
            period_ns: host.period_ns(),
            period_judged_ns: 0,
            periods_due_ns: 0,
        })
    }

    /// The cost of moving a page, as far as it is known.
    pub(super) fn migration_ns(&self) -> u64 {
        match self.migrated {
            0 => self.migration_ns,
            pages => self.took_ns / pages,
        }
    }

    /// When the next step is due.
    pub(super) fn due_ns(&self) -> Option<u64> {
        let retry = self.retries.front().map(|&(due_ns, ..)| due_ns);
        let hints = self.hints.as_ref().and_then(HintedRegions::due_ns);
        let judges = self.pending.is_none() && self.period_ns.is_none();
        let programs = self.programs.values().filter(|_| judges);
        let periods = programs.filter_map(CountedProgram::period_due_ns).min();
        let periods = periods.map(|due_ns| due_ns.max(self.periods_due_ns));
        [retry, hints, periods, self.plan.due_ns()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Whether the policy knows the outcomes of all its actions.
    #[cfg(test)]
    pub(super) fn is_settled(&self) -> bool {
        self.pending.is_none()
    }

    /// Whether any page is sampled, or will be.
    pub(super) fn samples(&self) -> bool {
        self.plan.due_ns().is_some() || self.hints.as_ref().is_some_and(HintedRegions::is_live)
    }

    /// Pages of a counted region are gone.
    pub(super) fn cut(&mut self, pid: u32, blocks: std::ops::Range<u32>) {
        let pages = u64::from(blocks.end - blocks.start);
        if let Some(program) = self.programs.get_mut(&pid) {
            program.estimates.forget(blocks.clone());
            program.pages = program.pages.saturating_sub(pages);
        }
        for block in blocks {
            self.armed.remove(&block);
        }
    }

    /// A counted region is gone. Returns what is to be done about it.
    pub(super) fn end(
        &mut self,
        object: Object,
        region: &TrackedRegion,
        page_bytes: u64,
    ) -> Option<Decision> {
        self.plan.end(object.0);
        if let Some(program) = self.programs.get_mut(&region.pid) {
            let blocks = region.base..region.base + region.pages;
            program.estimates.end(blocks);
        }
        if let Some(hints) = &mut self.hints {
            hints.end(region.hinted.is_some());
            return None;
        }
        Some(region.sampling(false, page_bytes))
    }

    /// A process is gone.
    pub(super) fn ended(&mut self, pid: u32) {
        self.programs.remove(&pid);
    }

    /// The state of a process, new or known.
    pub(super) fn program(
        &mut self,
        pid: u32,
        process: Process,
        now_ns: u64,
    ) -> &mut CountedProgram {
        let nodes = self.nodes;
        let per_pass = self.hints.as_ref().map(|_| SAMPLES_PER_PASS);
        self.programs.entry(pid).or_insert_with(|| {
            let estimates = Estimates::new(nodes, CONFIDENCE, per_pass);
            CountedProgram::new(process, estimates, now_ns)
        })
    }
}
