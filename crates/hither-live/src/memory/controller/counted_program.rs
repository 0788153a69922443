//! A program whose accesses are counted: its threads and iterations, its samples, and when the
//! policy is asked about it.

use std::collections::BTreeMap;

use hither_core::placement::ThreadMigration;
use hither_core::{Block, Node, Process, Thread};

use super::super::counters::{Estimates, Phases};
use super::summary::Locality;
use crate::iterations::{Iterations, State};

/// The time between two judgements of a program, unless there are [`JUDGE_SAMPLES`].
const JUDGE_INTERVAL_NS: u64 = 100_000_000;

/// With so many samples a program is judged at once.
const JUDGE_SAMPLES: u64 = 512;

/// After a thread reported that it has moved, all threads have reported where they run by the end
/// of so many iterations.
const THREAD_REPORT_ITERATIONS: u64 = 2;

/// A period of a program without iterations.
const PERIOD_NS: u64 = 500_000_000;

/// A program that met constructs and no iteration is judged by periods after this time.
const LEARNING_NS: u64 = 4 * PERIOD_NS;

/// A program without an iteration for this time does something else, or the iteration takes longer:
/// it is judged by periods meanwhile. If another thread meets constructs then, that thread's
/// constructs are the program's from there on.
const STALLED_NS: u64 = 10_000_000_000;

/// Samples count half after each such time: the program may do something else by then.
const HALF_LIFE_NS: u64 = 10_000_000_000;

/// Beyond this number, threads without recent samples are forgotten: most have ended.
const THREADS_MAX: usize = 4096;

/// After a batch of which no page moved, though nothing forbids it, the policy is not asked for
/// this long, and for twice as long after each further one in a row. The last value is that of the
/// longest pause, counted in batches.
const FRUITLESS_PAUSE_NS: u64 = JUDGE_INTERVAL_NS;
const FRUITLESS_BATCHES_MAX: u32 = 7;

/// A process.
#[derive(Debug)]
pub(super) struct CountedProgram {
    pub(super) process: Process,
    pub(super) estimates: Estimates,
    /// The phases between constructs, where the moments of samples depend on them.
    pub(super) phases: Phases,
    /// How many of its pages are counted.
    pub(super) pages: u64,
    /// The thread whose constructs are the program's.
    pub(super) master: Option<u32>,
    /// When that thread last met one.
    construct_ns: u64,
    pub(super) iterations: Iterations,
    /// Threads by the kernel's numbers.
    threads: BTreeMap<u32, CountedThread>,
    /// Threads of the last team, as far as that is known.
    pub(super) team: usize,
    /// Samples since the last judgement.
    pub(super) tally: Locality,
    pub(super) judged_ns: u64,
    /// It is not judged again before.
    pub(super) rests_until_ns: u64,
    /// Nor before this, unless threads move or memory is allocated.
    pub(super) quiet_until_ns: u64,
    /// When samples were last halved.
    aged_ns: u64,
    /// Iterations, or periods, since threads last moved.
    pub(super) rounds: u64,
    /// How many there were at the last judgement.
    pub(super) judged_rounds: u64,
    /// Some pages are used more by another node for certain. They move once there were iterations
    /// enough to pay for it.
    pub(super) open: bool,
    /// When the first thread since the last judgement reported that it has moved.
    pub(super) moved_ns: Option<u64>,
    /// Batches in a row of which no page moved.
    fruitless: u32,
    /// Nothing of it is sampled or moved any more.
    pub(super) stopped: bool,
}

/// Where a thread runs.
#[derive(Clone, Copy, Debug)]
struct CountedThread {
    node: Node,
    /// The node that the policy was last told.
    reported: Node,
    /// The node at the last judgement. Samples count for it until the next one.
    judged: Node,
    /// Its samples; older ones count less.
    samples: u64,
    /// It had a sample. Until then it does not count as moved: a new thread reports where it
    /// begins, which may not be where it will run.
    was_sampled: bool,
}

impl CountedProgram {
    /// A program without samples. Its samples will be in `estimates`.
    pub(super) fn new(process: Process, estimates: Estimates, now_ns: u64) -> CountedProgram {
        CountedProgram {
            process,
            estimates,
            phases: Phases::new(),
            pages: 0,
            master: None,
            construct_ns: now_ns,
            iterations: Iterations::new(),
            threads: BTreeMap::new(),
            team: 0,
            tally: Locality::default(),
            judged_ns: now_ns,
            rests_until_ns: 0,
            quiet_until_ns: 0,
            aged_ns: now_ns,
            rounds: 0,
            judged_rounds: 0,
            open: false,
            moved_ns: None,
            fruitless: 0,
            stopped: false,
        }
    }

    /// A thread met a construct. Returns whether the thread's constructs are the program's.
    pub(super) fn is_master(&mut self, now_ns: u64, tid: u32) -> bool {
        if *self.master.get_or_insert(tid) != tid {
            if now_ns.saturating_sub(self.construct_ns) < STALLED_NS {
                return false;
            }
            self.master = Some(tid);
            self.iterations = Iterations::new();
        }
        self.construct_ns = now_ns;
        true
    }

    /// Halves the weight of older samples, once in a half-life.
    pub(super) fn age(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.aged_ns) >= HALF_LIFE_NS {
            self.aged_ns = now_ns;
            self.estimates.phase_ended();
            self.phases.age();
            let many = self.threads.len() > THREADS_MAX;
            self.threads.retain(|_, thread| {
                thread.samples /= 2;
                !many || thread.samples > 0
            });
        }
    }

    /// A thread runs on a node. Returns whether it is the first thread that has moved since the
    /// last judgement.
    pub(super) fn runs_on(&mut self, now_ns: u64, tid: u32, node: Node) -> bool {
        let thread = self.threads.entry(tid).or_insert(CountedThread {
            node,
            reported: node,
            judged: node,
            samples: 0,
            was_sampled: false,
        });
        thread.node = node;
        if !thread.was_sampled {
            (thread.reported, thread.judged) = (node, node);
        }
        let moved = thread.node != thread.judged && self.moved_ns.is_none();
        if moved {
            self.moved_ns = Some(now_ns);
            self.tally = Locality::default();
            self.rounds = 0;
        }
        moved
    }

    /// Takes in a sample: a known thread has touched a page, at this latency where its node is
    /// known.
    pub(super) fn sampled(&mut self, tid: u32, block: Block, latency_ns: Option<u32>) {
        if let Some(latency_ns) = latency_ns {
            self.phases.record_latency(latency_ns);
        }
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.samples += 1;
            thread.was_sampled = true;
            self.estimates
                .sampled(block, thread.judged, self.phases.current());
        }
    }

    /// Counts samples for the nodes where threads run now. The samples of a node follow the threads
    /// that had most of them. If the threads of any node have scattered, all samples are forgotten.
    pub(super) fn update_judged_nodes(&mut self, nodes: usize) {
        let mut went = vec![0; nodes * nodes];
        for thread in self.threads.values_mut() {
            went[thread.judged.index() * nodes + thread.node.index()] += thread.samples;
            thread.judged = thread.node;
        }
        let most = |(from, went): (usize, &[u64])| {
            let total: u64 = went.iter().sum();
            let to = match total {
                0 => from,
                _ => went.iter().position(|&samples| 2 * samples > total)?,
            };
            Some(Node(to as u16))
        };
        let to: Option<Vec<Node>> = went.chunks_exact(nodes).enumerate().map(most).collect();
        match to {
            Some(to) => self.estimates.follow(&to),
            None => self.estimates.restart(),
        }
    }

    /// Threads that run on another node than the policy was last told, to tell it now.
    pub(super) fn thread_migrations(&mut self) -> Vec<ThreadMigration> {
        let process = self.process;
        let threads = self.threads.iter_mut();
        threads
            .filter(|(_, thread)| thread.node != thread.reported)
            .map(|(&tid, thread)| ThreadMigration {
                thread: Thread(tid),
                process,
                from: std::mem::replace(&mut thread.reported, thread.node),
                to: thread.node,
            })
            .collect()
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

    /// Whether to judge it at the end of an iteration.
    pub(super) fn is_ready(&self, now_ns: u64) -> bool {
        let much = self.tally.samples >= JUDGE_SAMPLES;
        let waited_ns = now_ns.saturating_sub(self.judged_ns);
        let rested = now_ns >= self.rests_until_ns;
        let cheaper = self.open && self.rounds >= 2 * self.judged_rounds;
        let worth = match self.moved_ns {
            // The policy takes the first counts after a thread's move for what the move has
            // changed, so that all threads must have reported where they run.
            Some(moved_ns) => {
                self.rounds >= THREAD_REPORT_ITERATIONS
                    || now_ns.saturating_sub(moved_ns) >= JUDGE_INTERVAL_NS
            }
            None if cheaper && waited_ns >= JUDGE_INTERVAL_NS => true,
            None if self.tally.samples == 0 => false,
            None => now_ns >= self.quiet_until_ns && (much || waited_ns >= JUDGE_INTERVAL_NS),
        };
        !self.stopped && rested && worth
    }

    /// When its period is over, if it has no iterations and any samples.
    pub(super) fn period_due_ns(&self) -> Option<u64> {
        let from_ns = match (self.iterations.state(), self.master) {
            (State::Learning, Some(_)) => self.judged_ns + LEARNING_NS,
            (State::Learning | State::Unknown, _) => self.judged_ns + PERIOD_NS,
            (State::Iterating { .. } | State::Told, _) => {
                (self.construct_ns + STALLED_NS).max(self.judged_ns + PERIOD_NS)
            }
        };
        let quiet_ns = match self.moved_ns {
            Some(moved_ns) => moved_ns + JUDGE_INTERVAL_NS,
            None => self.quiet_until_ns,
        };
        let sampled = self.tally.samples > 0 && !self.stopped;
        let due_ns = from_ns.max(self.rests_until_ns);
        sampled.then_some(due_ns.max(quiet_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_threads_those_without_recent_samples_are_forgotten() {
        let mut estimates = Estimates::new(2, 0.99, None);
        estimates.begin(0..8);
        let mut program = CountedProgram::new(Process(0), estimates, 0);
        let mut tids = 0..;
        for period in 1..=8 {
            for tid in tids.by_ref().take(THREADS_MAX) {
                program.runs_on(0, tid, Node(0));
                program.sampled(tid, Block(0), None);
            }
            for _ in 0..4 {
                program.sampled(7, Block(0), None);
            }
            program.age(period * HALF_LIFE_NS);
            assert!(program.threads.len() <= THREADS_MAX, "in period {period}");
            assert!(program.threads.contains_key(&7), "in period {period}");
        }
    }
}
