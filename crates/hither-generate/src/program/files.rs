//! What programs that use files share: file sizes, the duration of requests, the node of a new
//! thread, and slots that work through jobs.

use std::vec;

use hither_core::random::Random;

use super::execution::{Execution, Stopped, take_turns};
use hither_trace::schema::{AccessRow, RowOp};

/// Cost of a call of read or write.
const CALL_NS: f64 = 1500.0;
/// Cost of starting a process or a thread.
const START_NS: f64 = 1e6;
/// Cost of copying and processing a byte: 1 GB/s.
const NS_PER_BYTE: f64 = 1.0;

/// The duration of work: its cost, varied at random, so that threads that do the same do not run in
/// lockstep.
pub(super) struct TimeModel(Random);

impl TimeModel {
    pub(super) fn new(random: Random) -> TimeModel {
        TimeModel(random)
    }

    /// When a request of `bytes` that begins at `now` ends.
    fn after(&mut self, now: u64, bytes: u64) -> u64 {
        self.drawn(now, CALL_NS + NS_PER_BYTE * bytes as f64)
    }

    /// When work of `ns` that begins at `now` ends: `ns` plus or minus a quarter, at least 1.
    pub(super) fn drawn(&mut self, now: u64, ns: f64) -> u64 {
        now + 1 + (ns * (0.75 + 0.5 * self.0.unit())) as u64
    }
}

/// Sizes of `files` files of about `total` bytes together, each at least one byte. They are
/// log-normal (the logarithm to base e has a deviation of 1.6), like folders of sources and of
/// configuration.
fn sizes(total: u64, files: u64, random: &mut Random) -> Vec<u64> {
    const LOG_DEVIATION: f64 = 1.6;
    let mut weights = || {
        // The sum of twelve uniform numbers (Irwin and Hall) is normal enough here, and the same on
        // every machine.
        let normal = (0..12).map(|_| random.unit()).sum::<f64>() - 6.0;
        libm::exp(LOG_DEVIATION * normal)
    };
    let weights: Vec<f64> = (0..files).map(|_| weights()).collect();
    let whole: f64 = weights.iter().sum();
    let size = |weight: f64| ((weight / whole * total as f64) as u64).max(1);
    weights.into_iter().map(size).collect()
}

/// A file.
#[derive(Clone, Copy)]
pub(super) struct File {
    pub(super) object: u32,
    pub(super) bytes: u64,
}

impl File {
    /// Creates a file.
    pub(super) fn new(execution: &mut Execution, path: impl Into<String>, bytes: u64) -> File {
        let object = execution.file(path, bytes);
        File { object, bytes }
    }

    /// Creates `files` files of `total` bytes together, of log-normal sizes, with names by `path`.
    pub(super) fn folder(
        execution: &mut Execution,
        total: u64,
        files: u64,
        random: &mut Random,
        path: impl Fn(usize) -> String,
    ) -> Vec<File> {
        let sizes = sizes(total, files, random).into_iter().enumerate();
        sizes
            .map(|(number, bytes)| File::new(execution, path(number), bytes))
            .collect()
    }

    /// Requests for the whole file from its start, with a buffer of that size.
    pub(super) fn whole(
        self,
        site: u32,
        op: RowOp,
        buffer_bytes: u64,
    ) -> impl Iterator<Item = FileRequest> {
        let starts = (0..self.bytes).step_by(buffer_bytes as usize);
        starts.map(move |offset| FileRequest {
            site,
            object: self.object,
            op,
            offset,
            length: buffer_bytes.min(self.bytes - offset),
            in_kernel: false,
        })
    }
}

/// A request on a file.
#[derive(Clone, Copy)]
pub(super) struct FileRequest {
    pub(super) site: u32,
    pub(super) object: u32,
    pub(super) op: RowOp,
    pub(super) offset: u64,
    pub(super) length: u64,
    pub(super) in_kernel: bool,
}

impl FileRequest {
    /// Its row.
    pub(super) fn row(self, thread: u32, time_ns: u64) -> AccessRow {
        AccessRow {
            time_ns,
            thread,
            site: self.site,
            object: self.object,
            op: self.op,
            in_kernel: self.in_kernel,
            offset: self.offset,
            length: self.length,
            ..AccessRow::default()
        }
    }
}

/// The scheduler. A new thread runs on a node with the fewest running threads, as Linux balances on
/// fork and exec; a child process may rather stay where its parent is.
pub(super) struct Scheduler {
    running: Vec<u32>,
    /// Chooses among several such nodes, and which children stay.
    random: Random,
}

impl Scheduler {
    pub(super) fn new(execution: &Execution, random: Random) -> Scheduler {
        Scheduler {
            running: vec![0; execution.nodes() as usize],
            random,
        }
    }

    /// Starts a process of one thread.
    pub(super) fn process(&mut self, execution: &mut Execution, command: &[&str]) -> StartedThread {
        let process = execution.process(command);
        self.thread(execution, process)
    }

    /// Starts a process of one thread. It stays on the node of its parent by the chance `sticky`.
    /// Otherwise, and where the parent has no node yet, it runs on a node with the fewest running
    /// threads.
    pub(super) fn child(
        &mut self,
        execution: &mut Execution,
        command: &[&str],
        parent: Option<u32>,
        sticky: f64,
    ) -> StartedThread {
        let process = execution.process(command);
        let stays = sticky > 0.0 && self.random.unit() < sticky;
        let node = parent.filter(|_| stays);
        let node = node.unwrap_or_else(|| self.least_loaded());
        self.start(execution, process, node)
    }

    /// Starts a thread of a process.
    pub(super) fn thread(&mut self, execution: &mut Execution, process: u32) -> StartedThread {
        let node = self.least_loaded();
        self.start(execution, process, node)
    }

    /// A node with the fewest running threads.
    fn least_loaded(&mut self) -> u32 {
        let fewest = *self.running.iter().min().expect("there is a node");
        let nodes = (0u32..).zip(&self.running);
        let free = nodes.filter(|(_, running)| **running == fewest);
        let free: Vec<u32> = free.map(|(node, _)| node).collect();
        free[self.random.below(free.len() as u64) as usize]
    }

    fn start(&mut self, execution: &mut Execution, process: u32, node: u32) -> StartedThread {
        self.running[node as usize] += 1;
        StartedThread {
            thread: execution.thread_on(process, node),
            node,
        }
    }

    fn ended(&mut self, thread: StartedThread) {
        self.running[thread.node as usize] -= 1;
    }
}

/// A thread and the node on which it started. It may have migrated since.
#[derive(Clone, Copy)]
pub(super) struct StartedThread {
    thread: u32,
    /// Its node at the start.
    pub(super) node: u32,
}

/// The requests of a thread.
pub(super) struct Job {
    pub(super) thread: u32,
    /// The thread, where it starts and ends with this job.
    pub(super) started_thread: Option<StartedThread>,
    pub(super) requests: Vec<FileRequest>,
}

impl Job {
    /// A job of a thread that starts with it and ends with it.
    pub(super) fn of_new(thread: StartedThread, requests: Vec<FileRequest>) -> Job {
        Job {
            thread: thread.thread,
            started_thread: Some(thread),
            requests,
        }
    }
}

/// Works through jobs in `slots`, from `start_ns` on. A slot asks for its `next` job when the last
/// one has ended, and stops when there is none. Returns when all slots have stopped.
pub(super) fn work(
    execution: &mut Execution,
    time_model: &mut TimeModel,
    scheduler: &mut Scheduler,
    slots: u32,
    start_ns: u64,
    mut next: impl FnMut(&mut Execution, &mut Scheduler, u32) -> Option<Job>,
) -> Result<u64, Stopped> {
    struct Slot {
        thread: u32,
        started_thread: Option<StartedThread>,
        requests: vec::IntoIter<FileRequest>,
    }
    let mut slots: Vec<Option<Slot>> = (0..slots).map(|_| None).collect();
    take_turns(
        execution,
        slots.len() as u32,
        start_ns,
        |execution, number, now| {
            let slot = &mut slots[number as usize];
            let Some(at_work) = slot else {
                let Some(job) = next(execution, scheduler, number) else {
                    return Ok(None);
                };
                *slot = Some(Slot {
                    thread: job.thread,
                    started_thread: job.started_thread,
                    requests: job.requests.into_iter(),
                });
                let starts = job.started_thread.is_some();
                return Ok(Some(if starts {
                    time_model.drawn(now, START_NS)
                } else {
                    now + 1
                }));
            };
            match at_work.requests.next() {
                Some(request) => {
                    execution.push(request.row(at_work.thread, now));
                    Ok(Some(time_model.after(now, request.length)))
                }
                None => {
                    if let Some(thread) = at_work.started_thread {
                        scheduler.ended(thread);
                    }
                    *slot = None;
                    Ok(Some(now + 1))
                }
            }
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_the_size_that_is_asked_for_and_differ_in_theirs() {
        let sizes = sizes(40 << 20, 2000, &mut Random::new(1));
        let sum: u64 = sizes.iter().sum();
        assert!(sum.abs_diff(40 << 20) <= 2000, "{sum}");
        let mut sorted = sizes;
        sorted.sort_unstable();
        let (median, largest) = (sorted[1000], sorted[1999]);
        // The mean of a log-normal is e^(1.6^2 / 2) = 3.6 medians.
        assert!(
            (2.5..5.0).contains(&(sum as f64 / 2000.0 / median as f64)),
            "{median}"
        );
        assert!(sorted[0] >= 1 && largest > 20 * median, "{largest}");
    }

    #[test]
    fn the_last_piece_of_a_file_is_what_is_left() {
        let file = File {
            object: 3,
            bytes: 10,
        };
        let requests = file.whole(1, RowOp::Read, 4);
        let requests: Vec<(u64, u64)> = requests
            .map(|request| (request.offset, request.length))
            .collect();
        assert_eq!(requests, [(0, 4), (4, 4), (8, 2)]);
    }
}
