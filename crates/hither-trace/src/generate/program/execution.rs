//! What a program is given to run in: it makes processes, threads, files, regions and call sites,
//! says what its threads touch, and hears where they run.
//!
//! Numbers are the program's own, in the order in which things are made; whoever merges several
//! programs gives them new ones. What is made goes over a channel ahead of the rows that use it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::mpsc::SyncSender;

use hither_core::placement::EpochKind;
use hither_core::random::{Random, mix};

use crate::schema::{AccessRow, ObjectKind, ObjectRow};

/// Rows that are handed on at a time, and after which an event loop should settle.
pub(crate) const BATCH_ROWS: usize = 1 << 14;

/// Nobody takes rows any more: the trace cannot be written. A program ends at once.
#[derive(Debug)]
pub(crate) struct Stopped;

/// Rows in order of time, and what was made before them.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) objects: Vec<ObjectRow>,
    /// Functions.
    pub(super) sites: Vec<String>,
    /// Programs and their arguments.
    pub(super) processes: Vec<(String, Vec<String>)>,
    /// The process of each.
    pub(super) threads: Vec<u32>,
    pub(super) rows: Vec<AccessRow>,
    /// How much of the work is done, from 0 to 1.
    pub(super) done: f64,
}

/// A thread of a program.
#[derive(Clone, Copy, Debug)]
struct ThreadState {
    process: u32,
    node: u32,
    rows: u64,
}

/// The run of a program.
#[derive(Debug)]
pub(crate) struct Execution {
    threads: u32,
    nodes: u32,
    seed: u64,
    migrate_every: u64,
    iterates: bool,
    /// The node of the next thread.
    next_node: u32,
    iterations: u64,
    moves: Random,
    running: Vec<ThreadState>,
    processes: u32,
    objects: u32,
    sites: u32,
    batch: Batch,
    /// Rows of the batch that are in order, and the last time of any so far.
    settled: usize,
    settled_ns: u64,
    out: SyncSender<Batch>,
}

/// How a program is to run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    pub(super) threads: u32,
    pub(super) nodes: u32,
    pub(super) seed: u64,
    pub(super) migrate_every: u64,
    pub(super) iterates: bool,
    /// Threads of the programs before it in a mix: theirs is the turn after those.
    pub(super) threads_before: u32,
}

impl Execution {
    pub(super) fn new(setting: Setting, out: SyncSender<Batch>) -> Execution {
        Execution {
            threads: setting.threads,
            nodes: setting.nodes,
            seed: setting.seed,
            migrate_every: setting.migrate_every,
            iterates: setting.iterates,
            next_node: setting.threads_before % setting.nodes,
            iterations: 0,
            moves: Random::new(mix(setting.seed)),
            running: Vec::new(),
            processes: 0,
            objects: 0,
            sites: 1,
            batch: Batch::default(),
            settled: 0,
            settled_ns: 0,
            out,
        }
    }

    /// How many threads the user wants to work at a time.
    pub(crate) fn threads(&self) -> u32 {
        self.threads
    }

    /// How many nodes there are.
    pub(crate) fn nodes(&self) -> u32 {
        self.nodes
    }

    /// A source of random numbers; each number of a stream gives another one, the same in every run
    /// with this seed.
    pub(crate) fn random(&self, stream: u64) -> Random {
        Random::new(self.seed ^ mix(stream.wrapping_add(1)))
    }

    /// Starts a process: `command` is its program and its arguments.
    pub(crate) fn process(&mut self, command: &[&str]) -> u32 {
        let arguments = command.iter().map(|&text| text.to_owned()).collect();
        let exe = command.first().copied().unwrap_or_default().to_owned();
        self.batch.processes.push((exe, arguments));
        self.processes += 1;
        self.processes - 1
    }

    /// Starts a thread of a process. Threads are dealt to the nodes in turn, over all programs of a
    /// mix.
    pub(crate) fn thread(&mut self, process: u32) -> u32 {
        let node = self.next_node;
        self.next_node = (node + 1) % self.nodes;
        self.thread_on(process, node)
    }

    /// Starts a thread of a process on a node.
    pub(crate) fn thread_on(&mut self, process: u32, node: u32) -> u32 {
        self.batch.threads.push(process);
        self.running.push(ThreadState {
            process,
            node,
            rows: 0,
        });
        self.running.len() as u32 - 1
    }

    /// The node that a thread runs on.
    pub(crate) fn node(&self, thread: u32) -> u32 {
        self.running[thread as usize].node
    }

    /// A file of that size. The trace lists it from when it is touched first.
    pub(crate) fn file(&mut self, path: impl Into<String>, bytes: u64) -> u32 {
        self.object(ObjectKind::File, path.into(), bytes)
    }

    /// A region of memory of that size, as [`Execution::file`].
    pub(crate) fn region(&mut self, name: impl Into<String>, bytes: u64) -> u32 {
        self.object(ObjectKind::Memory, name.into(), bytes)
    }

    fn object(&mut self, kind: ObjectKind, name: String, size: u64) -> u32 {
        self.objects += 1;
        self.batch.objects.push(ObjectRow {
            kind,
            path: name.into_bytes(),
            inode: u64::from(self.objects),
            size,
            ..ObjectRow::default()
        });
        self.objects - 1
    }

    /// A call site, by the function that it is in.
    pub(crate) fn site(&mut self, function: impl Into<String>) -> u32 {
        self.batch.sites.push(function.into());
        self.sites += 1;
        self.sites - 1
    }

    /// Adds a row of a thread; its process and node follow from the thread. Rows may come in any
    /// order of time until the next [`Execution::settle`].
    pub(crate) fn push(&mut self, row: AccessRow) {
        let every = self.migrate_every;
        if every > 0 && !self.iterates && self.nodes > 1 {
            let thread = &mut self.running[row.thread as usize];
            if thread.rows > 0 && thread.rows.is_multiple_of(every) {
                let step = 1 + self.moves.below(u64::from(self.nodes) - 1) as u32;
                thread.node = (thread.node + step) % self.nodes;
            }
        }
        let thread = &mut self.running[row.thread as usize];
        thread.rows += 1;
        self.batch.rows.push(AccessRow {
            process: thread.process,
            node: thread.node,
            ..row
        });
    }

    /// A parallel construct or an iteration ended at that time, which is not before any row so far.
    pub(crate) fn mark(&mut self, kind: EpochKind, time_ns: u64) -> Result<(), Stopped> {
        self.push(AccessRow::mark(kind, time_ns));
        self.settle()
    }

    /// An iteration ended: marks it, and deals the threads to the nodes anew if it is time for it.
    pub(crate) fn iteration_ends(&mut self, time_ns: u64) -> Result<(), Stopped> {
        self.mark(EpochKind::Iteration, time_ns)?;
        self.iterations += 1;
        if self.migrate_every > 0 && self.iterations.is_multiple_of(self.migrate_every) {
            self.migrate();
        }
        Ok(())
    }

    /// Deals the nodes of the threads to the threads anew, so that each node has as many as before.
    pub(crate) fn migrate(&mut self) {
        for last in (1..self.running.len()).rev() {
            let other = self.moves.below(last as u64 + 1) as usize;
            let nodes = (self.running[last].node, self.running[other].node);
            (self.running[other].node, self.running[last].node) = nodes;
        }
    }

    /// No later row is of an earlier time than these: puts them in order, by time, and those of the
    /// same time in the order in which they were pushed, and hands them on.
    pub(crate) fn settle(&mut self) -> Result<(), Stopped> {
        let unsettled = &mut self.batch.rows[self.settled..];
        unsettled.sort_by_key(|row| row.time_ns);
        if let (Some(first), Some(last)) = (unsettled.first(), unsettled.last()) {
            assert!(
                first.time_ns >= self.settled_ns,
                "a row before settled ones"
            );
            self.settled_ns = last.time_ns;
        }
        self.settled = self.batch.rows.len();
        if self.settled < BATCH_ROWS {
            return Ok(());
        }
        self.settled = 0;
        let done = self.batch.done;
        let batch = std::mem::take(&mut self.batch);
        self.batch.done = done;
        self.out.send(batch).map_err(|_| Stopped)
    }

    /// Says how much of the work is done, from 0 to 1.
    pub(crate) fn done(&mut self, share: f64) {
        self.batch.done = share;
    }

    /// Hands on what is left.
    pub(super) fn finish(mut self) -> Result<(), Stopped> {
        self.settle()?;
        self.batch.done = 1.0;
        self.out.send(self.batch).map_err(|_| Stopped)
    }
}

/// Runs `actors` that each do one thing at a time, in order of time from `start_ns` on: `step` is
/// told who and when, and says when that one is ready for its next thing; none where it has ended.
/// Of those ready at the same time the lowest number goes first. Returns when the last one ended.
pub(crate) fn take_turns(
    execution: &mut Execution,
    actors: u32,
    start_ns: u64,
    mut step: impl FnMut(&mut Execution, u32, u64) -> Result<Option<u64>, Stopped>,
) -> Result<u64, Stopped> {
    let first = (0..actors).map(|actor| Reverse((start_ns, actor)));
    let mut ready: BinaryHeap<_> = first.collect();
    let (mut turns, mut end_ns) = (0usize, start_ns);
    while let Some(Reverse((now, actor))) = ready.pop() {
        end_ns = now;
        if let Some(next) = step(execution, actor, now)? {
            assert!(next > now, "time goes on");
            ready.push(Reverse((next, actor)));
        }
        turns += 1;
        if turns.is_multiple_of(BATCH_ROWS) {
            execution.settle()?;
        }
    }
    execution.settle()?;
    Ok(end_ns)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;
    use crate::schema::RowOp;

    fn execution(out: SyncSender<Batch>, threads: u32, nodes: u32) -> Execution {
        let setting = Setting {
            threads,
            nodes,
            seed: 1,
            migrate_every: 2,
            iterates: true,
            threads_before: 1,
        };
        Execution::new(setting, out)
    }

    #[test]
    fn rows_are_put_in_order_between_settles_and_threads_are_dealt_and_moved() {
        let (out, batches) = sync_channel(4);
        let mut execution = execution(out, 4, 4);
        let process = execution.process(&["p"]);
        let threads: Vec<u32> = (0..4).map(|_| execution.thread(process)).collect();
        let nodes = |execution: &Execution| threads.iter().map(|&t| execution.node(t)).collect();
        let before: Vec<u32> = nodes(&execution);
        assert_eq!(before, [1, 2, 3, 0]);
        for iteration in 0..4 {
            for &thread in &threads {
                execution.push(AccessRow {
                    thread,
                    time_ns: iteration * 100 + 9 - u64::from(thread),
                    op: RowOp::Load,
                    ..AccessRow::default()
                });
            }
            execution.iteration_ends(iteration * 100 + 50).unwrap();
        }
        let mut after: Vec<u32> = nodes(&execution);
        assert_ne!(before, after);
        after.sort_unstable();
        assert_eq!(after, [0, 1, 2, 3]);
        execution.finish().unwrap();
        let rows = batches.recv().unwrap().rows;
        assert!(rows.is_sorted_by_key(|row| row.time_ns));
        let marks = rows.iter().filter(|row| row.op == RowOp::Mark);
        assert!(marks.map(|row| row.time_ns).eq([50, 150, 250, 350]));
    }

    #[test]
    fn a_program_is_stopped_where_nobody_takes_its_rows() {
        let (out, batches) = sync_channel(1);
        let execution = execution(out, 1, 1);
        drop(batches);
        assert!(execution.finish().is_err());
    }

    #[test]
    fn turns_are_by_time_and_then_by_number() {
        let (out, _batches) = sync_channel(1);
        let mut seen = Vec::new();
        let end = take_turns(&mut execution(out, 2, 1), 2, 10, |_, actor, now| {
            seen.push((now, actor));
            Ok((now < 16).then_some(now + 3 + 3 * u64::from(actor)))
        });
        assert_eq!(seen, [(10, 0), (10, 1), (13, 0), (16, 0), (16, 1)]);
        assert_eq!(end.unwrap(), 16);
    }
}
