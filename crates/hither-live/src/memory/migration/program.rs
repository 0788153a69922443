//! A program whose memory is moved to its users: its threads, its iterations, and when its samples
//! are looked at.

use std::collections::BTreeMap;

use hither_core::placement::{EpochKind, ThreadMigration};
use hither_core::{Node, Process, Thread};
use hither_ids::Tid;
use hither_session::record::ConstructKind;

use super::counts::RANGE_SAMPLES;
use crate::iterations::{FoundIterations, Iterations, State};

/// The time between two looks. A look takes well below a hundredth of it: see
/// [`LOOK_REST_NS_PER_CELL`].
pub(super) const LOOK_INTERVAL_NS: u64 = 100_000_000;

/// Going through a cell takes some 100 ns (2026-11), a hundredth of this.
const LOOK_REST_NS_PER_CELL: u64 = 10_000;

/// The new samples for which it is worth to look: as many as two ranges need.
const LOOK_SAMPLES: f32 = 2.0 * RANGE_SAMPLES;

/// A program without an iteration for this time does something else, or the iteration takes longer:
/// its samples are looked at without waiting for one. If another thread meets constructs then, that
/// thread's constructs are the program's from there on.
const STALLED_NS: u64 = 10_000_000_000;

/// Samples count half after each such time: the program may do something else by then. It is ten
/// times the period in which the kernel's scanner goes through a program's memory when it is fast.
const HALF_LIFE_NS: u64 = 10_000_000_000;

/// Beyond this number, threads without recent samples are forgotten: most have ended.
const THREADS_MAX: usize = 4096;

/// After a batch of which no page moved, though nothing forbids it, nothing is looked at for this
/// long, and for twice as long after each further one in a row, up to the last value, in batches.
const FRUITLESS_PAUSE_NS: u64 = LOOK_INTERVAL_NS;
const FRUITLESS_BATCHES_MAX: u32 = 7;

/// A process.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) process: Process,
    /// The thread whose constructs are the program's.
    master: Option<Tid>,
    /// When that thread last met one.
    construct_ns: u64,
    iterations: Iterations,
    pub(super) found: FoundIterations,
    /// When its first iteration ended.
    iterating_ns: u64,
    /// Threads by the kernel's numbers.
    threads: BTreeMap<Tid, ProgramThread>,
    /// Threads of the last team, as far as that is known.
    pub(super) team: usize,
    /// Samples since the last look.
    new: f32,
    looked_ns: u64,
    rests_until_ns: u64,
    /// When samples were last halved.
    aged_ns: u64,
    /// Iterations, or looks without any, since threads last moved.
    pub(super) rounds: u64,
    /// Threads that moved since samples were last halved or dropped.
    moved: usize,
    /// Batches in a row of which no page moved.
    fruitless: u32,
    /// Nothing of it is sampled or moved any more.
    pub(super) stopped: bool,
}

/// Where a thread runs.
#[derive(Clone, Copy, Debug)]
struct ProgramThread {
    node: Node,
    /// The node that the policy was last told.
    reported: Node,
    /// It had a sample since samples were last halved.
    sampled: bool,
}

impl Program {
    pub(super) fn new(process: Process, now_ns: u64) -> Program {
        Program {
            process,
            master: None,
            construct_ns: now_ns,
            iterations: Iterations::new(),
            found: FoundIterations::default(),
            iterating_ns: now_ns,
            threads: BTreeMap::new(),
            team: 0,
            new: 0.0,
            looked_ns: now_ns,
            rests_until_ns: 0,
            aged_ns: now_ns,
            rounds: 0,
            moved: 0,
            fruitless: 0,
            stopped: false,
        }
    }

    /// Takes in a sample of a thread on a node. Returns whether so many threads have moved that
    /// older samples say nothing.
    pub(super) fn sampled(&mut self, tid: Tid, node: Node, weight: f32) -> bool {
        let scattered = self.runs_on(tid, node);
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.sampled = true;
        }
        self.new += weight;
        scattered
    }

    /// A thread runs on a node. Returns whether half of the threads have moved by now.
    pub(super) fn runs_on(&mut self, tid: Tid, node: Node) -> bool {
        let thread = self.threads.entry(tid).or_insert(ProgramThread {
            node,
            reported: node,
            sampled: false,
        });
        let moved = std::mem::replace(&mut thread.node, node) != node;
        if !thread.sampled {
            // A new thread reports where it begins, which may not be where it will run.
            thread.reported = node;
            return false;
        }
        self.moved += usize::from(moved);
        let active = self.threads.values().filter(|thread| thread.sampled);
        let scattered = moved && 2 * self.moved >= active.count();
        if scattered {
            (self.moved, self.rounds, self.new) = (0, 0, 0.0);
        }
        scattered
    }

    /// A thread met a construct. Returns what ended with it, if the thread's constructs are the
    /// program's.
    pub(super) fn construct(
        &mut self,
        now_ns: u64,
        tid: Tid,
        (kind, signature, threads): (ConstructKind, u64, u16),
    ) -> Option<EpochKind> {
        if *self.master.get_or_insert(tid) != tid {
            if now_ns.saturating_sub(self.construct_ns) < STALLED_NS {
                return None;
            }
            self.master = Some(tid);
            self.iterations = Iterations::new();
        }
        self.construct_ns = now_ns;
        if threads > 0 {
            self.team = usize::from(threads);
        }
        let ended = self.iterations.construct(kind, signature);
        self.found.constructs += 1;
        if ended == Some(EpochKind::Iteration) {
            self.rounds += 1;
            match self.found.count {
                0 => self.iterating_ns = now_ns,
                before => self.found.mean_ns = now_ns.saturating_sub(self.iterating_ns) / before,
            }
            self.found.count += 1;
            self.found.told |= self.iterations.state() == State::Told;
        }
        ended
    }

    /// Whether it has iterations now, at whose ends its samples are looked at.
    pub(super) fn iterates(&self, now_ns: u64) -> bool {
        let found = match self.iterations.state() {
            State::Iterating { .. } | State::Told => true,
            State::Learning | State::Unknown => false,
        };
        found && now_ns.saturating_sub(self.construct_ns) < STALLED_NS
    }

    /// When its samples are worth a look, if no more come.
    pub(super) fn ask_due_ns(&self) -> Option<u64> {
        let worth = self.new >= LOOK_SAMPLES && !self.stopped;
        worth.then(|| self.rests_until_ns.max(self.looked_ns + LOOK_INTERVAL_NS))
    }

    /// Its samples were looked at, which took going through so many cells.
    pub(super) fn policy_asked(&mut self, now_ns: u64, cells: usize, at_iteration: bool) {
        self.looked_ns = now_ns;
        self.new = 0.0;
        self.rounds += u64::from(!at_iteration);
        let rest_ns = LOOK_REST_NS_PER_CELL * cells as u64;
        self.rests_until_ns = self.rests_until_ns.max(now_ns + rest_ns);
    }

    /// Whether to halve the weight of older samples.
    pub(super) fn ages(&mut self, now_ns: u64) -> bool {
        let due = now_ns.saturating_sub(self.aged_ns) >= HALF_LIFE_NS;
        if due {
            (self.aged_ns, self.moved) = (now_ns, 0);
            let many = self.threads.len() > THREADS_MAX;
            self.threads
                .retain(|_, thread| std::mem::take(&mut thread.sampled) || !many);
        }
        due
    }

    /// Threads that run on another node than the policy was last told, to tell it now.
    pub(super) fn thread_migrations(&mut self) -> Vec<ThreadMigration> {
        let process = self.process;
        let moved = self.threads.iter_mut();
        let moved = moved.filter(|(_, thread)| thread.node != thread.reported);
        let migration = |(&tid, thread): (&Tid, &mut ProgramThread)| ThreadMigration {
            thread: Thread(tid.0),
            process,
            from: std::mem::replace(&mut thread.reported, thread.node),
            to: thread.node,
        };
        moved.map(migration).collect()
    }

    /// Takes in whether any page of a batch moved, or was in place already.
    pub(super) fn batch_ended(&mut self, now_ns: u64, fruitful: bool) {
        if fruitful {
            self.fruitless = 0;
            return;
        }
        self.fruitless = (self.fruitless + 1).min(FRUITLESS_BATCHES_MAX);
        let pause_ns = FRUITLESS_PAUSE_NS << (self.fruitless - 1);
        self.rests_until_ns = self.rests_until_ns.max(now_ns + pause_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_threads_moved() {
        let mut program = Program::new(Process(0), 0);
        for tid in 0..4 {
            assert!(!program.sampled(Tid(tid), Node(0), 1.0));
        }
        // A thread without samples may have been on its way.
        assert!(!program.runs_on(Tid(9), Node(0)) && !program.runs_on(Tid(9), Node(1)));
        assert!(!program.runs_on(Tid(0), Node(1)) && !program.runs_on(Tid(0), Node(1)));
        assert!(program.sampled(Tid(1), Node(1), 1.0));
        let told = program.thread_migrations();
        assert_eq!(
            told.iter().map(|of| of.thread.0).collect::<Vec<_>>(),
            [0, 1]
        );
        assert_eq!(program.thread_migrations(), []);
    }

    #[test]
    fn the_policy_is_asked_rarely_and_about_samples() {
        let mut program = Program::new(Process(0), 0);
        (0..7).for_each(|_| _ = program.sampled(Tid(1), Node(0), 1.0));
        assert_eq!(program.ask_due_ns(), None);
        program.sampled(Tid(1), Node(0), 1.0);
        assert_eq!(program.ask_due_ns(), Some(LOOK_INTERVAL_NS));
        program.policy_asked(LOOK_INTERVAL_NS, 50_000, true);
        assert_eq!(program.ask_due_ns(), None);
        (0..8).for_each(|_| _ = program.sampled(Tid(1), Node(0), 1.0));
        assert_eq!(program.ask_due_ns(), Some(LOOK_INTERVAL_NS + 500_000_000));
        // A batch of which nothing moved, and another one.
        program.batch_ended(1_000_000_000, false);
        program.batch_ended(2_000_000_000, false);
        assert_eq!(program.ask_due_ns(), Some(2_200_000_000));
    }

    #[test]
    fn of_many_threads_those_without_recent_samples_are_forgotten() {
        let mut program = Program::new(Process(0), 0);
        let mut tids = 100..;
        for period in 1..=8 {
            tids.by_ref().take(THREADS_MAX).for_each(|tid| {
                program.sampled(Tid(tid), Node(0), 1.0);
            });
            program.sampled(Tid(7), Node(0), 1.0);
            assert!(program.ages(period * HALF_LIFE_NS));
            assert!(program.threads.len() <= 2 * THREADS_MAX + 1);
            assert!(program.threads.contains_key(&Tid(7)), "in period {period}");
        }
    }
}
