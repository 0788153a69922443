//! The environment of a program. The program creates processes, threads, files, regions and call
//! sites here, pushes the accesses of its threads, and asks on which nodes they run.
//!
//! Numbers are the program's own, in order of creation; [`ProgramMix`](super::ProgramMix) renumbers
//! them. What was created is sent ahead of the rows that use it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::mpsc::SyncSender;

use hither_core::placement::EpochKind;
use hither_core::random::{Random, mix};

use hither_trace::schema::{AccessRow, ObjectKind, ObjectRow, RegionReferences};

/// Rows per batch. An event loop should commit after as many.
pub(crate) const BATCH_ROWS: usize = 1 << 14;

/// The receiver is gone, because the trace cannot be written. The program ends at once.
#[derive(Debug)]
pub(crate) struct Stopped;

/// Rows in order of time, and what was created before them.
#[derive(Debug, Default)]
pub(super) struct RowBatch {
    pub(super) objects: Vec<ObjectRow>,
    /// Names of functions.
    pub(super) sites: Vec<String>,
    /// Executables and their arguments.
    pub(super) processes: Vec<(String, Vec<String>)>,
    /// The process of each thread.
    pub(super) threads: Vec<u32>,
    pub(super) rows: Vec<AccessRow>,
    /// References to its regions, by the program's numbers of them.
    pub(super) references: Vec<RegionReferences>,
    /// The share of the work that is done, from 0 to 1.
    pub(super) done: f64,
}

/// A thread of a program.
#[derive(Clone, Copy, Debug)]
struct ThreadState {
    process: u32,
    node: u32,
    rows: u64,
}

/// A run of a program.
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
    batch: RowBatch,
    /// Number of rows of the batch that are in order, and the latest time so far.
    committed: usize,
    committed_ns: u64,
    out: SyncSender<RowBatch>,
}

/// How a program is to run.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExecutionSettings {
    pub(super) threads: u32,
    pub(super) nodes: u32,
    pub(super) seed: u64,
    pub(super) migrate_every: u64,
    pub(super) iterates: bool,
    /// Number of threads of the programs before this one in the mix. Nodes are dealt in turn over
    /// all.
    pub(super) threads_before: u32,
}

impl Execution {
    pub(super) fn new(setting: ExecutionSettings, out: SyncSender<RowBatch>) -> Execution {
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
            batch: RowBatch::default(),
            committed: 0,
            committed_ns: 0,
            out,
        }
    }

    /// The number of threads that work at the same time, as the user chose.
    pub(crate) fn threads(&self) -> u32 {
        self.threads
    }

    /// The number of nodes.
    pub(crate) fn nodes(&self) -> u32 {
        self.nodes
    }

    /// A random number generator for `stream`. It depends only on the stream and the seed of the
    /// run.
    pub(crate) fn random(&self, stream: u64) -> Random {
        Random::new(self.seed ^ mix(stream.wrapping_add(1)))
    }

    /// Starts a process. `command` is its executable and its arguments.
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

    /// Creates a file. The trace lists it from its first access on.
    pub(crate) fn file(&mut self, path: impl Into<String>, bytes: u64) -> u32 {
        self.object(ObjectKind::File, path.into(), bytes)
    }

    /// Creates a region of memory, in the way of [`Execution::file`].
    pub(crate) fn region(&mut self, name: impl Into<String>, bytes: u64) -> u32 {
        self.object(ObjectKind::Memory, name.into(), bytes)
    }

    /// Says how often a region's pages were referenced, hits of the caches included.
    pub(crate) fn references(&mut self, references: RegionReferences) {
        self.batch.references.push(references);
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

    /// Creates a call site in the function of that name.
    pub(crate) fn site(&mut self, function: impl Into<String>) -> u32 {
        self.batch.sites.push(function.into());
        self.sites += 1;
        self.sites - 1
    }

    /// Adds a row. Its process and node follow from its thread. Until the next
    /// [`Execution::commit`], rows may come in any order of time.
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

    /// Marks the end of a parallel construct or an iteration. No row so far may be later.
    pub(crate) fn mark(&mut self, kind: EpochKind, time_ns: u64) -> Result<(), Stopped> {
        self.push(AccessRow::mark(kind, time_ns));
        self.commit()
    }

    /// Marks the end of an iteration, and migrates the threads where that is due.
    pub(crate) fn iteration_ends(&mut self, time_ns: u64) -> Result<(), Stopped> {
        self.mark(EpochKind::Iteration, time_ns)?;
        self.iterations += 1;
        if self.migrate_every > 0 && self.iterations.is_multiple_of(self.migrate_every) {
            self.migrate();
        }
        Ok(())
    }

    /// Permutes the nodes of the threads, so that each node keeps its number of threads.
    pub(crate) fn migrate(&mut self) {
        for last in (1..self.running.len()).rev() {
            let other = self.moves.below(last as u64 + 1) as usize;
            let nodes = (self.running[last].node, self.running[other].node);
            (self.running[other].node, self.running[last].node) = nodes;
        }
    }

    /// Puts the rows since the last call in order and sends a full batch. Rows of the same time
    /// keep their order. The caller promises that no later row has an earlier time.
    pub(crate) fn commit(&mut self) -> Result<(), Stopped> {
        let new = &mut self.batch.rows[self.committed..];
        new.sort_by_key(|row| row.time_ns);
        if let (Some(first), Some(last)) = (new.first(), new.last()) {
            assert!(
                first.time_ns >= self.committed_ns,
                "a row before committed ones"
            );
            self.committed_ns = last.time_ns;
        }
        self.committed = self.batch.rows.len();
        if self.committed < BATCH_ROWS {
            return Ok(());
        }
        self.committed = 0;
        let done = self.batch.done;
        let batch = std::mem::take(&mut self.batch);
        self.batch.done = done;
        self.out.send(batch).map_err(|_| Stopped)
    }

    /// Reports the share of the work that is done, from 0 to 1.
    pub(crate) fn done(&mut self, share: f64) {
        self.batch.done = share;
    }

    /// Sends what is left.
    pub(super) fn finish(mut self) -> Result<(), Stopped> {
        self.commit()?;
        self.batch.done = 1.0;
        self.out.send(self.batch).map_err(|_| Stopped)
    }
}

/// Runs `actors` in order of time, from `start_ns` on. `step` is called with an actor and the time,
/// and returns when the actor is ready for its next step, or `None` where it has ended. Of several
/// ready at the same time, the lowest number goes first. Returns when the last one ended.
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
            execution.commit()?;
        }
    }
    execution.commit()?;
    Ok(end_ns)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;
    use hither_trace::schema::RowOp;

    fn execution(out: SyncSender<RowBatch>, threads: u32, nodes: u32) -> Execution {
        let setting = ExecutionSettings {
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
    fn rows_are_put_in_order_between_commits_and_threads_are_dealt_and_moved() {
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
