//! Counts who uses which pages: takes samples in, asks the policy at the end of iterations, and has
//! pages moved.
//!
//! Near regions, and regions without a tier, are counted. [`Plan`](super::super::counters::Plan)
//! picks the page to arm next. A fault on an armed page is a sample.
//! [`Estimates`](super::super::counters::Estimates) makes access counts of the samples, for the
//! policy to decide by: at the end of an iteration or, in a program without iterations, of a
//! period. The kernel is asked for the node of a page before its samples count.
//!
//! Choices that the papers leave open:
//!
//! - The policy is asked at most every 100 ms, unless an iteration had 512 samples, and so rarely
//!   that going through the counts takes about a hundredth of a CPU: iterations may take
//!   microseconds, and samples come slowly.
//! - A page that an iteration uses at all counts as read once from memory, line by line, since
//!   samples only show shares. The cost of moving a page is spread over the iterations since
//!   threads last moved, as the paper's counters go on over iterations: a move that does not pay
//!   within one iteration is made once it would have paid.
//! - The samples of a region from before a second node used it are forgotten: one thread fills the
//!   region, and then all use it.
//! - A period of a program without iterations is judged as an iteration. The policy's own periodic
//!   mode looks at a few pages each time, since reading hardware counters of all pages was costly;
//!   here the counts exist. A parameter of the policy asks for that mode.
//! - The policy learns the outcomes of its migrations when all pages that it asked for at once are
//!   settled, and is not asked before.
//! - A process whose pages cannot be moved is left alone from then on. After a batch of which no
//!   page moved, since all were busy, the policy is not asked for a pause that doubles.

use std::collections::BTreeMap;

use hither_core::placement::{Action, Epoch, EpochKind};
use hither_core::{Block, Object};
use hither_sys::record::ConstructKind;

use super::super::counters::{Pick, window_pages};
use super::super::event::{Decision, Ended, Judged};
use super::access_counting::AccessCounting;
use super::placement_controller::PlacementController;
use super::summary::Locality;
use super::tracked_region::Sharing;
use crate::numa::ranges::PageRange;

/// The rest before the next judgement, for each page that is gone through. A page takes 20 ns
/// (2026-11), a hundredth of this.
const JUDGE_REST_NS_PER_PAGE: u64 = 2_000;

/// How often it is checked whether a program's period is over.
const PERIOD_CHECK_NS: u64 = 1_000_000;

/// Where less is sampled, because nothing came of it, the counts change more slowly, and the rest
/// is as much longer, up to this.
const QUIET_REST_NS_MAX: u64 = 1_000_000_000;

/// The most iterations that the cost of a move is spread over.
const ITERATIONS_PER_MOVE_MAX: u64 = 64;

/// A region that cannot be sampled, because it lies on huge pages or the program is changing its
/// mappings, is tried again after this time.
const SAMPLING_RETRY_NS: u64 = 5_000_000_000;

/// While more than one in so many samples are remote, the rate of sampling is not lowered.
const REMOTE_DIVISOR: u64 = 8;

/// So many samples between two judgements, all of them local, show at once that there is nothing to
/// gain.
const ALL_LOCAL_SAMPLES_MIN: u64 = 256;

impl PlacementController {
    /// Begins to count a region.
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

    /// Takes in a touch of a counted page; `sampled`: by a sample of the processor. Returns whether
    /// the touch was asked for. Other touches are those that the kernel's scanner stopped.
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
        let home = self.host.home(block);
        let armed = counting.armed.remove(&block.0) || sampled;
        // A fault on a page that exists was caused by the kernel's scanner, whether the page has
        // our policy yet or not.
        let hint = region.hinted.is_some();
        if hint && home.is_none() {
            self.unknown_touched(now_ns, object);
            return false;
        }
        let program = counting.programs.get_mut(&pid);
        let Some(program) = program.filter(|program| !program.stopped && (armed || hint)) else {
            return false;
        };
        let node = self.host.node_of_cpu(cpu);
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
        if program.runs_on(now_ns, tid, node) {
            counting.plan.wake();
        }
        let latency_ns = home.map(|home| self.host.latency_ns(node, home));
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
            hinted.sampled(now_ns, of, region.users == Sharing::Several, hints);
        }
        region.of_node[node.index()] += 1;
        match region.migrated {
            0 => region.before.add(local),
            _ => region.after.add(local),
        }
        armed
    }

    /// Arms the pages that are due.
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

    /// Takes in how long it took to arm pages.
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
                    .retries
                    .push_back((now_ns + SAMPLING_RETRY_NS, object, generation));
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

    /// Stops sampling and moving pages of a process.
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

    /// A thread met a construct, or reports where it runs.
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
        let node = self.host.node_of_cpu(cpu);
        let program = counting.program(pid, process, now_ns);
        if program.runs_on(now_ns, tid, node) {
            counting.plan.wake();
        }
        let program = counting.program(pid, process, now_ns);
        let Some((kind, signature, threads)) = construct else {
            return;
        };
        if !program.is_master(now_ns, tid) {
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
                // The policy counts for how many constructs a thread stays where it moved to.
                let (moved, threads) = (program.thread_migrations(), program.team);
                counting.counters.clear();
                let epoch = Epoch {
                    kind: EpochKind::Construct,
                    process: Some(process),
                    counts: &counting.counters,
                    thread_migrations: &moved,
                    active_threads: threads,
                };
                self.host.end_epoch(&epoch, &mut counting.actions);
                debug_assert!(counting.actions.is_empty(), "there are no counts");
                counting.actions.clear();
            }
            _ => {}
        }
    }

    /// Takes the steps that are due by time: for regions that the kernel samples, for regions that
    /// could not be sampled, and for programs without iterations.
    pub(super) fn take_due_steps(&mut self, now_ns: u64, out: &mut Vec<Decision>) {
        self.hints_due(now_ns, out);
        let Some(counting) = &mut self.counting else {
            return;
        };
        while let Some(&(due_ns, object, generation)) = counting.retries.front()
            && due_ns <= now_ns
        {
            counting.retries.pop_front();
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
        // Inputs come by the thousand, and periods are long.
        if now_ns < counting.periods_due_ns {
            return;
        }
        counting.periods_due_ns = now_ns + PERIOD_CHECK_NS;
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

    /// Gives the policy the counts of a program, or of all, and has pages moved as it asks.
    fn judge(&mut self, now_ns: u64, pid: Option<u32>, ended: Ended, out: &mut Vec<Decision>) {
        let Some(counting) = &mut self.counting else {
            return;
        };
        let own_period = counting.period_ns.is_some();
        if counting.pending.is_some() || (pid.is_some() && own_period) {
            return;
        }
        let migration_ns = counting.migration_ns();
        let AccessCounting {
            programs,
            counters,
            actions,
            ..
        } = counting;
        counters.grow(self.host.blocks());
        counters.clear();
        let (mut moved, mut threads, mut tally) = (Vec::new(), 0, Locality::default());
        let (mut any_moved, mut rounds) = (false, ITERATIONS_PER_MOVE_MAX);
        let judged = pid.map_or(0..=u32::MAX, |pid| pid..=pid);
        for (_, program) in programs.range_mut(judged.clone()) {
            program.age(now_ns);
            program.rounds += u64::from(ended == Ended::Period);
            rounds = rounds.min(program.rounds);
            if program.moved_ns.take().is_some() {
                any_moved = true;
                program.update_judged_nodes(counting.nodes);
            }
            let before = counters.touched().len();
            let home = |block| self.host.home(block);
            program.open =
                program
                    .estimates
                    .counts(&home, counting.accesses, &program.phases, counters);
            program.judged_rounds = program.rounds;
            let pages = (counters.touched().len() - before) as u64;
            moved.extend(program.thread_migrations());
            threads += program.team;
            tally.join(std::mem::take(&mut program.tally));
            program.judged_ns = now_ns;
            let wait_ns = pages * JUDGE_REST_NS_PER_PAGE;
            program.rests_until_ns = now_ns + wait_ns;
            program.quiet_until_ns = now_ns + counting.plan.slowed(wait_ns).min(QUIET_REST_NS_MAX);
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
        self.host.set_migration_ns(migration_ns / rounds.max(1));
        self.host.end_epoch(&epoch, actions);
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
            // Where most samples are local there is little to learn. Elsewhere it may only take
            // longer.
            let remote = tally.placed - tally.local;
            let useful = !actions.is_empty() || remote * REMOTE_DIVISOR > tally.placed;
            counting.plan.useful(useful);
            if !useful && remote == 0 && tally.placed >= ALL_LOCAL_SAMPLES_MIN {
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
