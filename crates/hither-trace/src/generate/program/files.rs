//! What programs that use files have in common: how large files are, how long requests take, which
//! node the scheduler gives a new thread, and working through jobs.

use std::vec;

use hither_core::random::Random;

use super::execution::{Execution, Stopped, take_turns};
use crate::schema::{AccessRow, RowOp};

/// A call of read or write.
const CALL_NS: f64 = 1500.0;
/// Starting a process or a thread.
const START_NS: f64 = 1e6;
/// Copying and looking at a byte: 1 GB/s.
const BYTE_NS: f64 = 1.0;

/// How fast things go: a cost by the work, and a part that is drawn, so that threads that do the
/// same do not march in step.
pub(super) struct Pace(Random);

impl Pace {
    pub(super) fn new(random: Random) -> Pace {
        Pace(random)
    }

    /// When a request of so many bytes that began now is over.
    fn after(&mut self, now: u64, bytes: u64) -> u64 {
        self.drawn(now, CALL_NS + BYTE_NS * bytes as f64)
    }

    /// When work of so long that begins now is over: within a quarter of it, and later than now.
    pub(super) fn drawn(&mut self, now: u64, ns: f64) -> u64 {
        now + 1 + (ns * (0.75 + 0.5 * self.0.unit())) as u64
    }
}

/// Sizes of `files` files of about `total` bytes together, log-normal (the logarithm to base e
/// deviates by 1.6), each at least one byte: what is found in folders of sources and of
/// configuration.
fn sizes(total: u64, files: u64, random: &mut Random) -> Vec<u64> {
    const DEVIATION: f64 = 1.6;
    let mut weights = || {
        // Twelve uniform numbers: normal enough here (Irwin and Hall), and the same on every
        // machine.
        let normal = (0..12).map(|_| random.unit()).sum::<f64>() - 6.0;
        libm::exp(DEVIATION * normal)
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
    /// Makes one.
    pub(super) fn new(execution: &mut Execution, path: impl Into<String>, bytes: u64) -> File {
        let object = execution.file(path, bytes);
        File { object, bytes }
    }

    /// Makes `files` of `total` bytes together, of sizes as they are found in folders, called what
    /// `path` says.
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

    /// The whole file from its start, with a buffer of that size.
    pub(super) fn whole(
        self,
        site: u32,
        op: RowOp,
        buffer_bytes: u64,
    ) -> impl Iterator<Item = Piece> {
        let starts = (0..self.bytes).step_by(buffer_bytes as usize);
        starts.map(move |offset| Piece {
            site,
            object: self.object,
            op,
            offset,
            length: buffer_bytes.min(self.bytes - offset),
            in_kernel: false,
        })
    }
}

/// A request.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    pub(super) site: u32,
    pub(super) object: u32,
    pub(super) op: RowOp,
    pub(super) offset: u64,
    pub(super) length: u64,
    pub(super) in_kernel: bool,
}

impl Piece {
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

/// The scheduler: a thread that starts goes to a node with the fewest running ones, as Linux
/// balances on fork and exec.
pub(super) struct Balance {
    running: Vec<u32>,
    /// Chooses among nodes with as few.
    tie: Random,
}

impl Balance {
    pub(super) fn new(execution: &Execution, tie: Random) -> Balance {
        Balance {
            running: vec![0; execution.nodes() as usize],
            tie,
        }
    }

    /// Starts a process of one thread.
    pub(super) fn process(&mut self, execution: &mut Execution, command: &[&str]) -> Starting {
        let process = execution.process(command);
        self.thread(execution, process)
    }

    /// Starts a thread of a process.
    pub(super) fn thread(&mut self, execution: &mut Execution, process: u32) -> Starting {
        let fewest = *self.running.iter().min().expect("there is a node");
        let nodes = (0u32..).zip(&self.running);
        let free = nodes.filter(|(_, running)| **running == fewest);
        let free: Vec<u32> = free.map(|(node, _)| node).collect();
        let node = free[self.tie.below(free.len() as u64) as usize];
        self.running[node as usize] += 1;
        Starting {
            thread: execution.thread_on(process, node),
            node,
        }
    }

    fn ended(&mut self, thread: Starting) {
        self.running[thread.node as usize] -= 1;
    }
}

/// A thread that was started, and where: it may go on elsewhere.
#[derive(Clone, Copy)]
pub(super) struct Starting {
    thread: u32,
    node: u32,
}

/// What a thread is to do.
pub(super) struct Job {
    pub(super) thread: u32,
    /// The thread, where it starts with this job and ends with it.
    pub(super) starting: Option<Starting>,
    pub(super) pieces: Vec<Piece>,
}

impl Job {
    /// One for a thread of its own.
    pub(super) fn of_new(thread: Starting, pieces: Vec<Piece>) -> Job {
        Job {
            thread: thread.thread,
            starting: Some(thread),
            pieces,
        }
    }
}

/// Works through jobs in `slots` at a time, from `start_ns` on: a slot asks for its `next` one when
/// the last has ended, and rests when there is none. Returns when all is done.
pub(super) fn work(
    execution: &mut Execution,
    pace: &mut Pace,
    balance: &mut Balance,
    slots: u32,
    start_ns: u64,
    mut next: impl FnMut(&mut Execution, &mut Balance, u32) -> Option<Job>,
) -> Result<u64, Stopped> {
    struct Slot {
        thread: u32,
        starting: Option<Starting>,
        pieces: vec::IntoIter<Piece>,
    }
    let mut slots: Vec<Option<Slot>> = (0..slots).map(|_| None).collect();
    take_turns(
        execution,
        slots.len() as u32,
        start_ns,
        |execution, number, now| {
            let slot = &mut slots[number as usize];
            let Some(at_work) = slot else {
                let Some(job) = next(execution, balance, number) else {
                    return Ok(None);
                };
                *slot = Some(Slot {
                    thread: job.thread,
                    starting: job.starting,
                    pieces: job.pieces.into_iter(),
                });
                let starts = job.starting.is_some();
                return Ok(Some(if starts {
                    pace.drawn(now, START_NS)
                } else {
                    now + 1
                }));
            };
            match at_work.pieces.next() {
                Some(piece) => {
                    execution.push(piece.row(at_work.thread, now));
                    Ok(Some(pace.after(now, piece.length)))
                }
                None => {
                    if let Some(thread) = at_work.starting {
                        balance.ended(thread);
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
        let pieces = file.whole(1, RowOp::Read, 4);
        let pieces: Vec<(u64, u64)> = pieces.map(|piece| (piece.offset, piece.length)).collect();
        assert_eq!(pieces, [(0, 4), (4, 4), (8, 2)]);
    }
}
