//! Programs that run at the same time (`concurrent`).
//!
//! Each thread makes its accesses in the order of the trace, and each process has its marks in that
//! order, after what comes before them. Otherwise the trace's order does not matter: what comes
//! first in modelled time goes next. So the programs of a trace may lie one behind the other, and
//! how they interleave follows from the placement: a program that waits less gets ahead. All begin
//! at time 0. Warm-ups and intervals count the references of all.

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use hither_core::placement::Mark;
use hither_core::{Access, Process, Thread};

use super::clocks::Clocks;
use super::engine::Engine;
use super::source::Lifetime;
use crate::caches::Error;
use crate::placement::PlacementOptions;
use crate::placement::source::{BATCH_REFERENCES, Source};
use crate::references::References;

/// Runs all processes to their ends.
pub(super) fn drive(
    engine: &mut Engine,
    source: &Source<'_, impl References>,
    lifetimes: &[Lifetime],
    options: &PlacementOptions<'_>,
) -> Result<(), Error> {
    let mut programs = Vec::with_capacity(lifetimes.len());
    for lifetime in lifetimes {
        programs.push(Program::new(source, lifetime)?);
    }
    let mut stop = 0;
    while let Some((first, others_ns)) = first_in_time(&mut programs, &engine.clocks) {
        let program = &mut programs[first];
        // Only this process's clocks advance until waits are added, at a mark or at the end.
        loop {
            let next = program.next(&engine.clocks);
            if next.ns > others_ns {
                break;
            }
            let Some(thread) = next.thread else {
                if let Some(mark) = program.marks.pop_front() {
                    engine.mark(Mark {
                        reference: engine.done,
                        ..mark
                    });
                    program.read(source)?;
                } else {
                    let process = programs.remove(first).process;
                    if !programs.is_empty() {
                        engine.ended(process);
                    }
                }
                break;
            };
            let access = program.take(thread);
            program.read(source)?;
            if engine.done.is_multiple_of(BATCH_REFERENCES as u64) {
                options.report(engine.done)?;
            }
            if engine.done >= stop {
                engine.reached(engine.done);
                stop = engine.timeline.stop().max(engine.done + 1);
            }
            engine.drive(&[access]);
        }
    }
    engine.add_waits(None);
    engine.reached(engine.done);
    options.report(engine.done)
}

/// The program that goes next, and when the first of the others would.
fn first_in_time(programs: &mut [Program], clocks: &Clocks) -> Option<(usize, u64)> {
    let (mut first, mut first_ns, mut others_ns) = (None, u64::MAX, u64::MAX);
    for (at, program) in programs.iter_mut().enumerate() {
        let ns = program.next(clocks).ns;
        if first.is_none() || ns < first_ns {
            others_ns = first_ns;
            (first, first_ns) = (Some(at), ns);
        } else {
            others_ns = others_ns.min(ns);
        }
    }
    Some((first?, others_ns))
}

/// A process, and what it does next.
struct Program {
    process: Process,
    marks: VecDeque<Mark>,
    /// What its threads do until the next mark, or a part of that.
    threads: BTreeMap<Thread, VecDeque<Access>>,
    /// Accesses in `threads`.
    ready: usize,
    /// The threads that have any, by when they go on. That may be later, never earlier: clocks
    /// advance.
    order: BinaryHeap<Reverse<Turn>>,
    /// Its accesses among those that were read last, from `at` on.
    batch: Vec<Access>,
    at: usize,
    /// The trace's reference to read from, and the one before which the process has ended.
    from: u64,
    end: u64,
}

/// What a process does next, and when.
struct Next {
    /// Whose access. `None`: the slowest thread comes to a mark or the end.
    thread: Option<Thread>,
    ns: u64,
}

/// A thread's next access.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    ns: u64,
    thread: Thread,
}

/// Accesses until the next mark that a process orders by time at once. Constructs of NAS benchmarks
/// have some ten thousand.
const READY_MAX: usize = 1 << 20;

impl Program {
    fn new(source: &Source<'_, impl References>, lifetime: &Lifetime) -> Result<Program, Error> {
        let process = lifetime.process;
        let marks = source.references.marks().iter().copied();
        let mut program = Program {
            process,
            marks: marks.filter(|mark| mark.process == process).collect(),
            threads: BTreeMap::new(),
            ready: 0,
            order: BinaryHeap::new(),
            batch: Vec::new(),
            at: 0,
            from: lifetime.start,
            end: lifetime.end,
        };
        program.read(source)?;
        Ok(program)
    }

    /// Reads on to the next mark if all that was read is done.
    fn read(&mut self, source: &Source<'_, impl References>) -> Result<(), Error> {
        if self.ready > 0 {
            return Ok(());
        }
        self.order.clear();
        let mark = self.marks.front().map_or(u64::MAX, |mark| mark.reference);
        while self.ready < READY_MAX {
            match self.batch.get(self.at) {
                Some(next) if next.tick >= mark => break,
                Some(&next) => {
                    let thread = next.thread;
                    let accesses = self.threads.entry(thread).or_default();
                    if accesses.is_empty() {
                        self.order.push(Reverse(Turn { ns: 0, thread }));
                    }
                    accesses.push_back(next);
                    self.ready += 1;
                    self.at += 1;
                }
                None if self.from >= self.end.min(mark) => break,
                None => {
                    source.fill(self.from, &mut self.batch)?;
                    assert!(!self.batch.is_empty(), "its last access lies ahead");
                    self.from += self.batch.len() as u64;
                    self.batch.retain(|access| access.process == self.process);
                    self.at = 0;
                }
            }
        }
        Ok(())
    }

    /// The next access before the next mark, or else that mark or the end.
    fn next(&mut self, clocks: &Clocks) -> Next {
        while let Some(mut turn) = self.order.peek_mut() {
            let thread = turn.0.thread;
            let Some(access) = self.threads[&thread].front() else {
                PeekMut::pop(turn);
                continue;
            };
            let ns = clocks.next_ns(access);
            if ns == turn.0.ns {
                let thread = Some(thread);
                return Next { thread, ns };
            }
            turn.0.ns = ns;
        }
        Next {
            thread: None,
            ns: clocks.of_ns(self.process),
        }
    }

    /// Takes the next access of a thread that has one.
    fn take(&mut self, thread: Thread) -> Access {
        self.ready -= 1;
        let accesses = self.threads.get_mut(&thread);
        let access = accesses.and_then(VecDeque::pop_front);
        access.expect("it is what comes next")
    }
}
