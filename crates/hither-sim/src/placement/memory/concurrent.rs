//! Programs that run at the same time (`concurrent`).
//!
//! Each thread makes its accesses in the order of the trace, and each process has its marks in that
//! order, after what comes before them. Otherwise the trace's order does not matter: what comes
//! first in modelled time goes next. So the programs of a trace may lie one behind the other, and
//! how they interleave follows from the placement: a program that waits less gets ahead. All begin
//! at time 0.

use std::collections::{BTreeMap, VecDeque};

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
    while let Some((first, others_ns)) = first_in_time(&programs, &engine.clocks) {
        let program = &mut programs[first];
        // Only this process's clocks advance until waits are added, at a mark or at the end.
        loop {
            let Some(access) = program.next_access(&engine.clocks) else {
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
            program.read(source)?;
            if engine.done.is_multiple_of(BATCH_REFERENCES as u64) {
                options.report(engine.done)?;
            }
            if engine.done >= stop {
                engine.reached(engine.done);
                stop = engine.timeline.stop().max(engine.done + 1);
            }
            engine.drive(&[access]);
            if program.next_ns(&engine.clocks) > others_ns {
                break;
            }
        }
    }
    engine.add_waits(None);
    engine.reached(engine.done);
    options.report(engine.done)
}

/// The program that goes next, and when the first of the others would.
fn first_in_time(programs: &[Program], clocks: &Clocks) -> Option<(usize, u64)> {
    let times = programs.iter().map(|program| program.next_ns(clocks));
    let (first, _) = times.clone().enumerate().min_by_key(|&(_, ns)| ns)?;
    let others = times.enumerate().filter(|&(at, _)| at != first);
    let others_ns = others.map(|(_, ns)| ns).min().unwrap_or(u64::MAX);
    Some((first, others_ns))
}

/// A process, and what it does next.
struct Program {
    process: Process,
    marks: VecDeque<Mark>,
    /// What its threads do until the next mark, or a part of that.
    threads: BTreeMap<Thread, VecDeque<Access>>,
    /// Accesses in `threads`.
    ready: usize,
    /// Its accesses among those that were read last, from `at` on.
    batch: Vec<Access>,
    at: usize,
    /// The trace's reference to read from, and the one before which the process has ended.
    from: u64,
    end: u64,
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
        let mark = self.marks.front().map_or(u64::MAX, |mark| mark.reference);
        while self.ready < READY_MAX {
            match self.batch.get(self.at) {
                Some(next) if next.tick >= mark => break,
                Some(&next) => {
                    self.threads.entry(next.thread).or_default().push_back(next);
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

    /// The thread that goes next, and when.
    fn first(&self, clocks: &Clocks) -> Option<(Thread, u64)> {
        let threads = self.threads.iter();
        let times = threads.filter_map(|(&thread, accesses)| {
            let access = accesses.front()?;
            Some((thread, clocks.next_ns(access)))
        });
        times.min_by_key(|&(_, ns)| ns)
    }

    /// Takes the next access before the next mark, if there is one.
    fn next_access(&mut self, clocks: &Clocks) -> Option<Access> {
        let (thread, _) = self.first(clocks)?;
        self.ready -= 1;
        self.threads.get_mut(&thread)?.pop_front()
    }

    /// When it goes on: with an access, or where its slowest thread comes to a mark or the end.
    fn next_ns(&self, clocks: &Clocks) -> u64 {
        let first = self.first(clocks);
        first.map_or_else(|| clocks.of_ns(self.process), |(_, ns)| ns)
    }
}
