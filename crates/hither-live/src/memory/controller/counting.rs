//! Who uses which pages: samples come in, iterations end, the policy is asked, and pages move.
//!
//! Regions that are near, or that the policy gives no class, are counted: [`Plan`] says which of
//! their pages to arm next, a fault on an armed page is a sample, and [`Estimates`] makes counts of
//! samples for the policy, at the end of an iteration or, where a program has none, of a period.
//! Where a page is, the kernel is asked before it is counted.
//!
//! Readings:
//! - The policy is asked at most every [`EPOCH_NS`], unless an iteration had [`EPOCH_SAMPLES`]
//!   samples, and so seldom that looking at the counts takes about a hundredth of a CPU: iterations
//!   may take microseconds, and samples come slowly.
//! - A page of an iteration that is used at all is taken to be read once from memory, line by line:
//!   samples tell of shares only. What moving a page costs is spread over the iterations since
//!   threads last moved, as by the paper's counters that go on over iterations: a move that does
//!   not pay within one is made when it would have paid by now.
//! - What a region saw before a second node came to it is forgotten then: one thread fills it, and
//!   then all use it.
//! - A period of a program without iterations is judged as an iteration of it. The policy's own
//!   periodic mode looks at a few pages each time, since reading counters of all was dear; here the
//!   counts are there. A parameter of the policy asks for it.
//! - The policy hears what came of a migration when all pages that it asked for at once are
//!   settled, and is not asked anything until then.
//! - A process whose pages nobody may move is left alone from then on. One of which a whole batch
//!   stayed where it was, as busy pages do, is asked about again after a pause that doubles.

use std::collections::{BTreeMap, VecDeque};

use hither_core::placement::{Action, Counters, Epoch, EpochKind};
use hither_core::{Block, Object, Process};
use hither_sys::record::ConstructKind;
use rustc_hash::{FxHashMap, FxHashSet};

use super::super::counters::{Budget, Estimates, Pick, Plan, window_pages};
use super::super::event::{Decision, Ended, Judged};
use super::hint_faults::{Hints, Inspection};
use super::lifecycle::{Locality, Sharing, TrackedRegion};
use super::migrations::Pending;
use super::placement_host::PlacementHost;
use super::{Config, PlacementController, SampleSource};
use crate::numa::ranges::PageRange;

mod program;

use program::Program;

/// What a page that is looked at keeps the next look waiting: 20 ns (2026-11) are a hundredth of
/// it.
const WAIT_PER_PAGE_NS: u64 = 2_000;

/// Whether a program's period is over is looked at so often.
const PERIODS_NS: u64 = 1_000_000;

/// Where less is sampled, because nothing came of it, the counts change less as well, and wait as
/// much longer, up to this.
const QUIET_MAX_NS: u64 = 1_000_000_000;

/// Iterations that the cost of a move is spread over at the most.
const ROUNDS_MAX: u64 = 64;

/// A region that cannot be sampled, because it lies on huge pages or the program is changing its
/// mappings, is tried again.
const AGAIN_NS: u64 = 5_000_000_000;

/// The chance that all of a page's bounds hold. A wrong move costs two migrations, and waiting
/// costs in each iteration: 0.99 takes a quarter to a half more samples.
const CONFIDENCE: f64 = 0.95;

/// The kernel takes the rights off all pages of a region at once, so that what touches them next is
/// the same pass over them: of pages of a window with one home such a pass counts as so many
/// samples, which is enough if they all agree, and does not outvote the passes before it. Fewer, so
/// that two or three passes have to agree, is surer and later. The lab does not tell them apart:
/// nas from a single start took 3,170 and 3,604 ms with 4, 3,521 and 3,740 with 7, and 3,207, 3,651
/// and 3,655 with 16 (2026-11).
const AT_ONCE: u32 = 16;

/// What moving a page costs until it was measured: the call, the copy, the flush of translations
/// and the fault of who finds it gone.
const MIGRATION_NS: u64 = 1_000;

/// While more than this part of the samples are of pages on other nodes, the rate of sampling is
/// not lowered.
const AWAY: u64 = 8;

/// So many samples between two looks, all of them local, say without more ado that there is nothing
/// to gain.
const SURE: u64 = 256;

/// Bytes that memory answers with at once.
const LINE_BYTES: u64 = 64;

/// Of all programs.
#[derive(Debug)]
pub(super) struct Counting {
    pub(super) nodes: usize,
    /// Of a page in an iteration that uses it.
    accesses: u32,
    plan: Plan,
    /// Pages are armed, by plan.
    arms: bool,
    /// The kernel samples.
    pub(super) hints: Option<Hints>,
    picks: Vec<Pick>,
    /// Armed and not touched since.
    armed: FxHashSet<u32>,
    pub(super) programs: BTreeMap<u32, Program>,
    pub(super) counters: Counters,
    /// Windows to be asked about: regions and first pages.
    pub(super) asks: Vec<(Object, u32)>,
    /// Pages that are asked about: by job, of whom, and for which look.
    pub(super) located: FxHashMap<u64, (u32, Vec<PageRange>, Option<Inspection>)>,
    /// Regions that could not be sampled, and when to try again.
    again: VecDeque<(u64, Object, u32)>,
    pub(super) pending: Option<Pending>,
    pub(super) actions: Vec<Action>,
    /// What moving a page costs as long as none of the program's has moved.
    migration_ns: u64,
    /// Of all migrations.
    pub(super) took_ns: u64,
    pub(super) migrated: u64,
    /// The policy's own period, and when it was last asked for it.
    period_ns: Option<u64>,
    period_judged_ns: u64,
    /// Whether a program's period is over is not looked at before.
    periods_due_ns: u64,
}

impl TrackedRegion {
    fn sampling(&self, on: bool, page_bytes: u64) -> Decision {
        Decision::Sample {
            pid: self.pid,
            start: self.start,
            length: u64::from(self.pages) * page_bytes,
            on,
        }
    }

    /// The kernel does with its pages what it would without us.
    pub(super) fn given_back(&self, page_bytes: u64) -> Decision {
        Decision::Hint {
            pid: self.pid,
            start: self.start,
            length: u64::from(self.pages) * page_bytes,
            node: None,
        }
    }
}

impl Counting {
    pub(super) fn new(model: &PlacementHost, config: &Config, cpus: usize) -> Option<Counting> {
        let measured = &config.measured;
        model.counts().then(|| Counting {
            migration_ns: measured.migration_ns.unwrap_or(MIGRATION_NS),
            nodes: model.nodes(),
            accesses: (config.page_bytes / LINE_BYTES) as u32,
            hints: (config.source == SampleSource::Hints).then(|| Hints::new(cpus)),
            arms: config.source == SampleSource::Armed,
            // Any seed will do, as long as a log replays.
            plan: Plan::new(
                1,
                Budget::of(cpus, config.cpu_permille).costing(measured.sample_ns),
            ),
            picks: Vec::new(),
            armed: FxHashSet::default(),
            programs: BTreeMap::new(),
            counters: Counters::new(model.nodes(), 0),
            asks: Vec::new(),
            located: FxHashMap::default(),
            again: VecDeque::new(),
            pending: None,
            actions: Vec::new(),
            took_ns: 0,
            migrated: 0,
            period_ns: model.period_ns(),
            period_judged_ns: 0,
            periods_due_ns: 0,
        })
    }

    /// What moving a page costs, as far as that is known.
    pub(super) fn migration_ns(&self) -> u64 {
        match self.migrated {
            0 => self.migration_ns,
            pages => self.took_ns / pages,
        }
    }

    pub(super) fn due_ns(&self) -> Option<u64> {
        let again = self.again.front().map(|&(due_ns, ..)| due_ns);
        let hints = self.hints.as_ref().and_then(Hints::due_ns);
        let judges = self.pending.is_none() && self.period_ns.is_none();
        let programs = self.programs.values().filter(|_| judges);
        let periods = programs.filter_map(Program::period_due_ns).min();
        let periods = periods.map(|due_ns| due_ns.max(self.periods_due_ns));
        [again, hints, periods, self.plan.due_ns()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Whether the policy knows what came of all that it asked for.
    #[cfg(test)]
    pub(super) fn is_settled(&self) -> bool {
        self.pending.is_none()
    }

    /// Whether any page is armed, or will be.
    pub(super) fn samples(&self) -> bool {
        self.plan.due_ns().is_some() || self.hints.as_ref().is_some_and(Hints::is_live)
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

    /// A counted region is gone. What has to be done about it.
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
            hints.end(region);
            return None;
        }
        Some(region.sampling(false, page_bytes))
    }

    /// A process is gone.
    pub(super) fn ended(&mut self, pid: u32) {
        self.programs.remove(&pid);
    }

    fn program(&mut self, pid: u32, process: Process, now_ns: u64) -> &mut Program {
        let nodes = self.nodes;
        let at_once = self.hints.as_ref().map(|_| AT_ONCE);
        self.programs.entry(pid).or_insert_with(|| {
            Program::new(process, Estimates::new(nodes, CONFIDENCE, at_once), now_ns)
        })
    }
}

impl PlacementController {
    /// A region is counted from now on.
    pub(super) fn count(&mut self, now_ns: u64, object: Object, out: &mut Vec<Decision>) {
        let region = self.tracked[object.index()].as_mut();
        let (Some(counting), Some(region)) = (&mut self.counting, region) else {
            return;
        };
        if region.own || std::mem::replace(&mut region.counted, true) {
            return;
        }
        self.summary.counted += 1;
        let program = counting.program(region.pid, region.process, now_ns);
        program
            .estimates
            .begin(region.base..region.base + region.pages);
        program.pages += u64::from(region.pages);
        program.quiet_until_ns = 0;
        if program.stopped {
            return;
        }
        if counting.arms {
            counting.plan.begin(now_ns, object.0, region.pages);
            out.push(region.sampling(true, self.page_bytes));
        }
        self.hint(now_ns, object);
    }

    /// The processor sampled an access.
    pub(super) fn load(&mut self, now_ns: u64, thread: (u32, u32), cpu: u32, address: u64) {
        if let Some(found) = self.find(thread.0, address) {
            self.sample(now_ns, found, thread, cpu, true);
        }
    }

    /// A page of a region was touched: whether that was a sample which was asked for, as one that
    /// was `sampled` by the processor is. Others are the kernel's.
    pub(super) fn sample(
        &mut self,
        now_ns: u64,
        (object, page): (Object, u32),
        (pid, tid): (u32, u32),
        cpu: u32,
        sampled: bool,
    ) -> bool {
        let region = self.tracked[object.index()].as_mut();
        let (Some(counting), Some(region)) = (&mut self.counting, region) else {
            return false;
        };
        if !region.counted {
            return false;
        }
        let block = Block(region.base + page);
        let home = self.model.home(block);
        let armed = counting.armed.remove(&block.0) || sampled;
        // What touches a page that is there, and faults, was stopped by the kernel's scanner,
        // whether it follows our policy yet or not.
        let hint = region.hinted.is_some();
        if hint && home.is_none() {
            self.unknown_touched(now_ns, object);
            return false;
        }
        let program = counting.programs.get_mut(&pid);
        let Some(program) = program.filter(|program| !program.stopped && (armed || hint)) else {
            return false;
        };
        let node = self.model.node_of_cpu(cpu);
        region.users = match region.users {
            Sharing::Nobody => Sharing::Of(node),
            Sharing::Of(first) if first != node => {
                let blocks = region.base..region.base + region.pages;
                program.estimates.forget(blocks);
                counting.plan.hurry(object.0);
                if let Some(hints) = &mut counting.hints {
                    hints.shared(object);
                }
                Sharing::Several
            }
            users => users,
        };
        if program.at(now_ns, tid, node) {
            counting.plan.wake();
        }
        let latency_ns = home.map(|home| self.model.latency_ns(node, home));
        program.sampled(tid, block, latency_ns);
        if armed {
            let window = page - page % window_pages(region.pages);
            if region.asked.entry(window).or_default().is_due(now_ns) {
                counting.asks.push((object, window));
            }
        }
        let local = home.map(|home| home == node);
        program.tally.add(local);
        self.summary.sampled.add(local);
        if let (Some(hinted), Some(hints)) = (&mut region.hinted, &mut counting.hints) {
            let of = (object, self.generations[object.index()]);
            hinted.sampled(now_ns, of, region.users, hints);
        }
        region.of_node[node.index()] += 1;
        match region.migrated {
            0 => region.before.add(local),
            _ => region.after.add(local),
        }
        armed
    }

    /// Arms what is due to be armed.
    pub(super) fn arm(&mut self, now_ns: u64, out: &mut Vec<Decision>) {
        let Some(counting) = self.counting.as_mut().filter(|counting| counting.arms) else {
            return;
        };
        let mut picks = std::mem::take(&mut counting.picks);
        counting.plan.due(now_ns, &mut picks);
        let mut arm: BTreeMap<u32, Vec<PageRange>> = BTreeMap::new();
        for Pick { key, page } in picks.drain(..) {
            let region = self.tracked[key as usize].as_ref();
            let Some(region) = region.filter(|region| !region.is_cut(page)) else {
                continue;
            };
            if counting.armed.insert(region.base + page) {
                let start = region.address(page, self.page_bytes);
                let ranges = arm.entry(region.pid).or_default();
                ranges.push(PageRange { start, pages: 1 });
            }
        }
        counting.picks = picks;
        for (pid, ranges) in arm {
            out.push(Decision::Arm { pid, ranges });
        }
    }

    /// Arming has taken so long.
    pub(super) fn armed(&mut self, pages: u32, took_ns: u64) {
        if let Some(counting) = &mut self.counting {
            counting.plan.took(pages, took_ns);
        }
    }

    /// A range could not be armed.
    pub(super) fn unarmed(
        &mut self,
        now_ns: u64,
        pid: u32,
        (start, pages): (u64, u32),
        for_good: bool,
        out: &mut Vec<Decision>,
    ) {
        self.summary.unarmed += u64::from(pages);
        let found = self.regions.find(pid, start);
        let Some(counting) = &mut self.counting else {
            return;
        };
        if let Some((object, page)) = found
            && let Some(region) = self.tracked[object.index()].as_ref()
        {
            if page == 0 && pages >= region.pages && !for_good {
                counting.plan.end(object.0);
                let generation = self.generations[object.index()];
                counting
                    .again
                    .push_back((now_ns + AGAIN_NS, object, generation));
            }
            let first = region.base + page;
            (first..first.saturating_add(pages)).for_each(|block| {
                counting.armed.remove(&block);
            });
        }
        if for_good {
            self.stop_counting(pid, out);
        }
    }

    /// Nothing is sampled or moved of a process any more.
    pub(super) fn stop_counting(&mut self, pid: u32, out: &mut Vec<Decision>) {
        let Some(counting) = &mut self.counting else {
            return;
        };
        let Some(program) = counting.programs.get_mut(&pid) else {
            return;
        };
        if std::mem::replace(&mut program.stopped, true) {
            return;
        }
        self.summary.stopped += 1;
        let mut hinted = Vec::new();
        for (number, region) in (0..).zip(&self.tracked) {
            let region = region.as_ref();
            if let Some(region) = region.filter(|region| region.pid == pid && region.counted) {
                if region.hinted.is_some() {
                    hinted.push(Object(number));
                    continue;
                }
                counting.plan.end(number);
                out.push(region.sampling(false, self.page_bytes));
            }
        }
        for object in hinted {
            self.unhint(object, out);
        }
    }

    /// A thread met a construct, or says where it runs.
    pub(super) fn construct(
        &mut self,
        now_ns: u64,
        (pid, tid): (u32, u32),
        cpu: u32,
        construct: Option<(ConstructKind, u64, u16)>,
        out: &mut Vec<Decision>,
    ) {
        let Some(&process) = self.processes.get(&pid) else {
            return;
        };
        let Some(counting) = &mut self.counting else {
            return;
        };
        let idle = counting.pending.is_none();
        let by_kernel = counting.hints.is_some();
        let node = self.model.node_of_cpu(cpu);
        let program = counting.program(pid, process, now_ns);
        if program.at(now_ns, tid, node) {
            counting.plan.wake();
        }
        let program = counting.program(pid, process, now_ns);
        let Some((kind, signature, threads)) = construct else {
            return;
        };
        if !program.is_heard(now_ns, tid) {
            return;
        }
        if threads > 0 {
            program.team = usize::from(threads);
        }
        let ended = program.iterations.construct(kind, signature);
        if by_kernel {
            program.phases.construct(now_ns, kind, signature);
        }
        program.rounds += u64::from(ended == Some(EpochKind::Iteration));
        match ended {
            Some(EpochKind::Iteration) if program.is_ready(now_ns) => {
                self.judge(now_ns, Some(pid), Ended::Iteration, out);
            }
            Some(EpochKind::Construct) if idle => {
                // The policy counts the constructs for which a thread stays where it moved to.
                let (moved, threads) = (program.moved(), program.team);
                counting.counters.clear();
                let epoch = Epoch {
                    kind: EpochKind::Construct,
                    process: Some(process),
                    counts: &counting.counters,
                    thread_migrations: &moved,
                    active_threads: threads,
                };
                self.model.epoch(&epoch, &mut counting.actions);
                debug_assert!(counting.actions.is_empty(), "nothing was counted");
                counting.actions.clear();
            }
            _ => {}
        }
    }

    /// Judges programs without iterations, period by period, and tries again what could not be
    /// sampled a while ago.
    pub(super) fn periods(&mut self, now_ns: u64, out: &mut Vec<Decision>) {
        self.hints_due(now_ns, out);
        let Some(counting) = &mut self.counting else {
            return;
        };
        while let Some(&(due_ns, object, generation)) = counting.again.front()
            && due_ns <= now_ns
        {
            counting.again.pop_front();
            let current = self.generations[object.index()] == generation;
            let region = self.tracked[object.index()].as_ref().filter(|_| current);
            let stopped = |pid| counting.programs.get(&pid).is_none_or(|of| of.stopped);
            if let Some(region) = region.filter(|region| !stopped(region.pid)) {
                counting.plan.begin(now_ns, object.0, region.pages);
                out.push(region.sampling(true, self.page_bytes));
            }
        }
        if counting.pending.is_some() {
            return;
        }
        if let Some(period_ns) = counting.period_ns {
            if now_ns.saturating_sub(counting.period_judged_ns) >= period_ns {
                counting.period_judged_ns = now_ns;
                self.judge(now_ns, None, Ended::Period, out);
            }
            return;
        }
        // Events come by the thousand, and periods are long.
        if now_ns < counting.periods_due_ns {
            return;
        }
        counting.periods_due_ns = now_ns + PERIODS_NS;
        let programs = counting.programs.iter();
        let over = programs.filter(|(_, program)| {
            let due_ns = program.period_due_ns();
            due_ns.is_some_and(|due_ns| due_ns <= now_ns)
        });
        let over: Vec<u32> = over.map(|(&pid, _)| pid).collect();
        for pid in over {
            self.judge(now_ns, Some(pid), Ended::Period, out);
        }
    }

    /// Shows the policy what is known of a program, or of all, and has done what it asks for.
    fn judge(&mut self, now_ns: u64, pid: Option<u32>, ended: Ended, out: &mut Vec<Decision>) {
        let Some(counting) = &mut self.counting else {
            return;
        };
        let own_period = counting.period_ns.is_some();
        if counting.pending.is_some() || (pid.is_some() && own_period) {
            return;
        }
        let migration_ns = counting.migration_ns();
        let Counting {
            programs,
            counters,
            actions,
            ..
        } = counting;
        counters.grow(self.model.blocks());
        counters.clear();
        let (mut moved, mut threads, mut tally) = (Vec::new(), 0, Locality::default());
        let (mut any_moved, mut rounds) = (false, ROUNDS_MAX);
        let judged = pid.map_or(0..=u32::MAX, |pid| pid..=pid);
        for (_, program) in programs.range_mut(judged.clone()) {
            program.age(now_ns);
            program.rounds += u64::from(ended == Ended::Period);
            rounds = rounds.min(program.rounds);
            if program.moved_ns.take().is_some() {
                any_moved = true;
                program.seat(counting.nodes);
            }
            let before = counters.touched().len();
            let home = |block| self.model.home(block);
            program.open =
                program
                    .estimates
                    .counts(&home, counting.accesses, &program.phases, counters);
            program.judged_rounds = program.rounds;
            let pages = (counters.touched().len() - before) as u64;
            moved.extend(program.moved());
            threads += program.team;
            tally.join(std::mem::take(&mut program.tally));
            program.judged_ns = now_ns;
            let wait_ns = pages * WAIT_PER_PAGE_NS;
            program.rests_until_ns = now_ns + wait_ns;
            program.quiet_until_ns = now_ns + counting.plan.slowed(wait_ns).min(QUIET_MAX_NS);
        }
        let process = pid.and_then(|pid| Some(programs.get(&pid)?.process));
        let kind = match process {
            Some(_) => EpochKind::Iteration,
            None => EpochKind::Period,
        };
        let epoch = Epoch {
            kind,
            process,
            counts: counters,
            thread_migrations: &moved,
            active_threads: threads,
        };
        self.model.set_migration_ns(migration_ns / rounds.max(1));
        self.model.epoch(&epoch, actions);
        for (_, program) in programs.range_mut(judged.clone()) {
            for action in actions.iter() {
                if let Action::Migrate { block, .. } = *action {
                    program.estimates.again(block);
                }
            }
        }
        if any_moved {
            counting.plan.wake();
        } else {
            // Where most use what is near nothing is to be learnt; elsewhere it may only take
            // longer.
            let away = tally.placed - tally.local;
            let useful = !actions.is_empty() || away * AWAY > tally.placed;
            counting.plan.useful(useful);
            if !useful && away == 0 && tally.placed >= SURE {
                counting.plan.calm();
            }
        }
        self.summary.judged += 1;
        out.push(Decision::Judged(Judged {
            pid,
            ended,
            samples: tally.samples,
            local: tally.local,
            pages: counting.counters.touched().len() as u32,
            wanted: counting.actions.len() as u32,
            rate: counting.plan.rate(),
        }));
        self.migrate(&judged, out);
    }
}

#[cfg(test)]
mod tests;
