//! Asks the policy about ranges with new samples, when it is time.

use hither_core::placement::{Epoch, EpochKind, PageTouch};
use hither_core::{Block, Thread};
use hither_ids::{Pid, Tid};
use hither_session::record::ConstructKind;

use super::super::config::SampleSource;
use super::super::event::{Decision, Ended, Judged, Note, Order};
use super::program::Program;
use super::state::Migration;

/// The accesses to a cell in an iteration that uses it: of 16 pages of 64 lines. A larger cell
/// counts as much, and so does its move.
const CELL_ACCESSES: u64 = CELL_PAGES * 64;
const CELL_PAGES: u64 = 16;

/// A look is worth more samples if more than one in so many cells may have to move: chance alone
/// shows one in nine as such where the home makes two thirds of the accesses.
const OPEN_DIVISOR: usize = 8;

/// The most iterations that the cost of a move is spread over.
const ROUNDS_MAX: u64 = 64;

impl Migration {
    /// A thread met a construct, or reports where it runs.
    pub(crate) fn construct(
        &mut self,
        now_ns: u64,
        (pid, tid): (Pid, Tid),
        cpu: u32,
        construct: Option<(ConstructKind, u64, u16)>,
        out: &mut Vec<Decision>,
    ) {
        let node = self.host.node_of_cpu(cpu);
        let Some(program) = self.programs.get_mut(&pid) else {
            return;
        };
        let scattered = program.runs_on(tid, node);
        let ended = construct.and_then(|construct| program.construct(now_ns, tid, construct));
        if scattered {
            self.forget_samples(pid);
        }
        match ended {
            Some(EpochKind::Iteration) => {
                self.ask_policy_if_due(now_ns, pid, Ended::Iteration, out)
            }
            Some(EpochKind::Construct) if self.pending.is_none() => {
                // The policy counts for how many constructs a thread stays where it moved to.
                self.counters.clear();
                self.end_epoch(pid, EpochKind::Construct);
            }
            _ => {}
        }
    }

    /// Takes the steps that are due by time.
    pub(crate) fn due(&mut self, now_ns: u64, out: &mut Vec<Decision>) {
        while let Some(&(due_ns, object, generation)) = self.retries.front()
            && due_ns <= now_ns
        {
            self.retries.pop_front();
            let region = self.regions.get(&object);
            let region = region.filter(|region| region.generation == generation);
            let stopped = |pid| self.programs.get(&pid).is_none_or(|of| of.stopped);
            if let Some(region) = region.filter(|region| !stopped(region.pid)) {
                self.arming.begin(now_ns, object.0, region.pages);
                out.push(region.sampling(true, self.page_bytes));
            }
        }
        let listens = self.listening.change(now_ns);
        if let Some(on) = listens.filter(|_| self.source != SampleSource::Armed) {
            out.push(Decision::Order(Order::Listen { on }));
        }
        let programs = self.programs.iter();
        let due = programs.filter(|(_, program)| {
            let due_ns = program.ask_due_ns();
            due_ns.is_some_and(|due_ns| due_ns <= now_ns) && !program.iterates(now_ns)
        });
        let due: Vec<Pid> = due.map(|(&pid, _)| pid).collect();
        for pid in due {
            self.ask_policy_if_due(now_ns, pid, Ended::Period, out);
        }
    }

    /// Looks at a program's samples if it is time.
    fn ask_policy_if_due(&mut self, now_ns: u64, pid: Pid, ended: Ended, out: &mut Vec<Decision>) {
        let due_ns = self.programs.get(&pid).and_then(Program::ask_due_ns);
        if due_ns.is_some_and(|due_ns| due_ns <= now_ns) && self.pending.is_none() {
            self.ask_policy(now_ns, pid, ended, out);
        }
    }

    /// Asks the policy about the ranges of a program that have new samples.
    fn ask_policy(&mut self, now_ns: u64, pid: Pid, ended: Ended, out: &mut Vec<Decision>) {
        let Some(program) = self.programs.get_mut(&pid) else {
            return;
        };
        let accesses = (CELL_ACCESSES * program.rounds.clamp(1, ROUNDS_MAX)) as f32;
        let ages = program.ages(now_ns);
        self.counters.clear();
        let (mut cells, mut open) = (0, 0);
        for (&object, region) in &mut self.regions {
            if region.pid != pid {
                continue;
            }
            if ages {
                region.counts.age();
            }
            for home in region.counts.homes() {
                self.counters.add_served(home, accesses as u64);
            }
            for mut range in region.counts.judge() {
                range.cells.retain(|(cell, _)| !region.huge.contains(cell));
                cells += range.cells.len();
                open += range.cells.len() * usize::from(range.is_open());
                // Nearly all cells of a range are on one node.
                let mut row = (None, range.row(None, accesses));
                for &(cell, home) in &range.cells {
                    let block = Block(region.base + cell);
                    if let Some(node) = home {
                        self.host.set_home(PageTouch {
                            block,
                            object,
                            index: cell,
                            process: region.process,
                            thread: Thread(pid.0),
                            node,
                        });
                    }
                    if row.0 != home {
                        row = (home, range.row(home, accesses));
                    }
                    self.counters.add_row(block, &row.1);
                }
            }
        }
        let move_ns = self.cost.page_ns().unwrap_or(self.assumed_move_ns);
        self.host.set_migration_ns(move_ns * CELL_PAGES);
        self.end_epoch(pid, EpochKind::Iteration);
        let wanted = self.actions.len();
        // Without any range there was nothing to learn yet.
        if cells > 0 {
            let useful = open * OPEN_DIVISOR > cells || wanted > 0;
            self.arming.policy_asked(useful);
            self.listening.policy_asked(now_ns, useful);
        }
        if let Some(program) = self.programs.get_mut(&pid) {
            program.policy_asked(now_ns, cells, ended == Ended::Iteration);
        }
        self.judged += 1;
        out.push(Decision::Note(Note::Judged(Judged {
            pid,
            ended,
            cells: cells as u32,
            wanted: wanted as u32,
            rate: self.arming.rate(),
        })));
    }

    /// Asks the policy, by the counts that are in the table.
    fn end_epoch(&mut self, pid: Pid, kind: EpochKind) {
        let Some(program) = self.programs.get_mut(&pid) else {
            return;
        };
        let moved = program.thread_migrations();
        let epoch = Epoch {
            kind,
            process: Some(program.process),
            counts: &self.counters,
            thread_migrations: &moved,
            active_threads: program.team,
        };
        self.host.end_epoch(&epoch, &mut self.actions);
    }
}
