//! A program that is counted: its threads and iterations, what was sampled of it, and when it is
//! judged.

use std::collections::BTreeMap;

use hither_core::placement::ThreadMigration;
use hither_core::{Block, Node, Process, Thread};

use super::super::super::counters::{Estimates, Phases};
use super::super::lifecycle::Locality;
use crate::iterations::{Iterations, State};

/// Time between two looks at the counts, unless there is much to see.
const EPOCH_NS: u64 = 100_000_000;

/// So much.
const EPOCH_SAMPLES: u64 = 512;

/// The ends of so many iterations after a thread was heard to have moved, all threads have said
/// where they run.
const MOVED_ROUNDS: u64 = 2;

/// A period of a program without iterations.
const PERIOD_NS: u64 = 500_000_000;

/// Constructs without an iteration are waited for so long.
const LEARNING_NS: u64 = 4 * PERIOD_NS;

/// A program whose iterations have not come for so long does something else, or one of them takes
/// longer: it is judged by periods meanwhile. If another thread comes to constructs then, they are
/// the program's from there on.
const STALLED_NS: u64 = 10_000_000_000;

/// After so long a program may do something else: older samples count half.
const PHASE_NS: u64 = 10_000_000_000;

/// Of more threads than this those that were not seen lately are forgotten: most have ended.
const THREADS: usize = 4096;

/// After a batch of which nothing moved, though nothing forbids it, the policy is not asked for so
/// long, and after each further one in a row for twice as long, up to 64 times.
const FRUITLESS_NS: u64 = EPOCH_NS;
const FRUITLESS_MAX: u32 = 7;

/// A process.
#[derive(Debug)]
pub(in super::super) struct Program {
    pub(super) process: Process,
    pub(in super::super) estimates: Estimates,
    /// What lies between constructs, where samples come at moments that depend on them.
    pub(in super::super) phases: Phases,
    /// Pages that are counted.
    pub(super) pages: u64,
    /// The thread whose constructs are the program's.
    pub(super) master: Option<u32>,
    /// When it was last at one.
    heard_ns: u64,
    pub(super) iterations: Iterations,
    /// Threads by the kernel's numbers.
    threads: BTreeMap<u32, Place>,
    /// Of the last team, as far as that is known.
    pub(super) team: usize,
    /// Samples since it was last judged.
    pub(super) tally: Locality,
    pub(super) judged_ns: u64,
    /// Not judged again before.
    pub(super) rests_until_ns: u64,
    /// Nor before this, unless threads move or memory comes.
    pub(super) quiet_until_ns: u64,
    phase_ns: u64,
    /// Iterations, or periods, of this phase.
    pub(super) rounds: u64,
    /// How many there were when it was last judged.
    pub(super) judged_rounds: u64,
    /// Some pages are surely used more by another node: they move when there were iterations enough
    /// to pay for it.
    pub(super) open: bool,
    /// When it was heard that threads have moved since it was last judged.
    pub(super) moved_ns: Option<u64>,
    fruitless: u32,
    pub(super) stopped: bool,
}

/// Where a thread runs.
#[derive(Clone, Copy, Debug)]
struct Place {
    node: Node,
    /// What the policy was told last.
    told: Node,
    /// Where it ran when the program was last judged: what it has used since is counted there until
    /// the next time.
    seat: Node,
    /// Its samples, older ones counting less.
    samples: u64,
    /// It had any. Before that it has moved from nowhere: new threads are told of where they begin,
    /// which is not where they are to run.
    seen: bool,
}

impl Program {
    /// Nothing is known of it. Its samples are in `estimates`.
    pub(super) fn new(process: Process, estimates: Estimates, now_ns: u64) -> Program {
        Program {
            process,
            estimates,
            phases: Phases::new(),
            pages: 0,
            master: None,
            heard_ns: now_ns,
            iterations: Iterations::new(),
            threads: BTreeMap::new(),
            team: 0,
            tally: Locality::default(),
            judged_ns: now_ns,
            rests_until_ns: 0,
            quiet_until_ns: 0,
            phase_ns: now_ns,
            rounds: 0,
            judged_rounds: 0,
            open: false,
            moved_ns: None,
            fruitless: 0,
            stopped: false,
        }
    }

    /// A thread is at a construct. Whether that is the program's.
    pub(super) fn is_heard(&mut self, now_ns: u64, tid: u32) -> bool {
        if *self.master.get_or_insert(tid) != tid {
            if now_ns.saturating_sub(self.heard_ns) < STALLED_NS {
                return false;
            }
            self.master = Some(tid);
            self.iterations = Iterations::new();
        }
        self.heard_ns = now_ns;
        true
    }

    /// After so long it may do something else: what was seen before counts half.
    pub(super) fn age(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.phase_ns) >= PHASE_NS {
            self.phase_ns = now_ns;
            self.estimates.phase_ended();
            self.phases.age();
            let many = self.threads.len() > THREADS;
            self.threads.retain(|_, place| {
                place.samples /= 2;
                !many || place.samples > 0
            });
        }
    }

    /// A thread runs there. Whether it is the first that ran elsewhere when the program was last
    /// judged.
    pub(super) fn at(&mut self, now_ns: u64, tid: u32, node: Node) -> bool {
        let place = self.threads.entry(tid).or_insert(Place {
            node,
            told: node,
            seat: node,
            samples: 0,
            seen: false,
        });
        place.node = node;
        if !place.seen {
            (place.told, place.seat) = (node, node);
        }
        let moved = place.node != place.seat && self.moved_ns.is_none();
        if moved {
            self.moved_ns = Some(now_ns);
            self.tally = Locality::default();
            self.rounds = 0;
        }
        moved
    }

    /// A thread that was heard of has touched a page, which was so far where that is known.
    pub(super) fn sampled(&mut self, tid: u32, block: Block, latency_ns: Option<u32>) {
        if let Some(latency_ns) = latency_ns {
            self.phases.record_latency(latency_ns);
        }
        if let Some(place) = self.threads.get_mut(&tid) {
            place.samples += 1;
            place.seen = true;
            self.estimates
                .sampled(block, place.seat, self.phases.current());
        }
    }

    /// Threads take their seats where they run now. What was seen of the threads of a node goes
    /// with most of them, by what they have used; if those of any node have scattered, all is
    /// forgotten.
    pub(super) fn seat(&mut self, nodes: usize) {
        let mut went = vec![0; nodes * nodes];
        for place in self.threads.values_mut() {
            went[place.seat.index() * nodes + place.node.index()] += place.samples;
            place.seat = place.node;
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

    /// Threads that run on another node than the policy was told of, which it now is.
    pub(super) fn moved(&mut self) -> Vec<ThreadMigration> {
        let process = self.process;
        let places = self.threads.iter_mut();
        places
            .filter(|(_, place)| place.node != place.told)
            .map(|(&tid, place)| ThreadMigration {
                thread: Thread(tid),
                process,
                from: std::mem::replace(&mut place.told, place.node),
                to: place.node,
            })
            .collect()
    }

    /// A batch has been tried, and some of it moved or was there already, or nothing.
    pub(in super::super) fn tried(&mut self, now_ns: u64, fruitful: bool) {
        if fruitful {
            self.fruitless = 0;
            return;
        }
        self.fruitless = (self.fruitless + 1).min(FRUITLESS_MAX);
        let pause_ns = FRUITLESS_NS << (self.fruitless - 1);
        self.rests_until_ns = self.rests_until_ns.max(now_ns + pause_ns);
    }

    /// Whether it is worth being judged at the end of an iteration.
    pub(super) fn is_ready(&self, now_ns: u64) -> bool {
        let much = self.tally.samples >= EPOCH_SAMPLES;
        let waited_ns = now_ns.saturating_sub(self.judged_ns);
        let rested = now_ns >= self.rests_until_ns;
        let cheaper = self.open && self.rounds >= 2 * self.judged_rounds;
        let worth = match self.moved_ns {
            // The policy takes the first look after a move for what the move has changed: all
            // threads must have been heard of.
            Some(moved_ns) => {
                self.rounds >= MOVED_ROUNDS || now_ns.saturating_sub(moved_ns) >= EPOCH_NS
            }
            None if cheaper && waited_ns >= EPOCH_NS => true,
            None if self.tally.samples == 0 => false,
            None => now_ns >= self.quiet_until_ns && (much || waited_ns >= EPOCH_NS),
        };
        !self.stopped && rested && worth
    }

    /// When a period of it is over, if it has no iterations and something was sampled.
    pub(super) fn period_due_ns(&self) -> Option<u64> {
        let from_ns = match (self.iterations.state(), self.master) {
            (State::Learning, Some(_)) => self.judged_ns + LEARNING_NS,
            (State::Learning | State::Unknown, _) => self.judged_ns + PERIOD_NS,
            (State::Iterating { .. } | State::Told, _) => {
                (self.heard_ns + STALLED_NS).max(self.judged_ns + PERIOD_NS)
            }
        };
        let quiet_ns = match self.moved_ns {
            Some(moved_ns) => moved_ns + EPOCH_NS,
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
    fn of_many_threads_those_that_were_not_seen_lately_are_forgotten() {
        let mut estimates = Estimates::new(2, 0.99, None);
        estimates.begin(0..8);
        let mut program = Program::new(Process(0), estimates, 0);
        let mut tids = 0..;
        for period in 1..=8 {
            for tid in tids.by_ref().take(THREADS) {
                program.at(0, tid, Node(0));
                program.sampled(tid, Block(0), None);
            }
            for _ in 0..4 {
                program.sampled(7, Block(0), None);
            }
            program.age(period * PHASE_NS);
            assert!(program.threads.len() <= THREADS, "in period {period}");
            assert!(program.threads.contains_key(&7), "in period {period}");
        }
    }
}
