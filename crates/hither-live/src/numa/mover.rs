//! Moves pages and says where they are, on a thread of its own: a call takes as long as the kernel
//! likes, and the rings must be emptied meanwhile.
//!
//! Pages are asked about before they are moved, since most of a range is in place already or not
//! there yet: that takes no lock on a page. A call moves [`BATCH`] pages to begin with (44 us a
//! call for one page, 0.4 us a page in 512) and fewer or more where it takes long or next to no
//! time, so that a call, which holds the program's map of memory for reading, is short whatever the
//! machine. The mover gives up a job on its own: where the process is gone or not ours, and for the
//! rest of a range where the node has no room, since each further try would have the kernel look
//! for frames. It remembers no process: a number may be another's by the next job.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use hither_sys::machine::{Machine, MoveError, PageState};
use hither_sys::process::thread_cpu_ns;

use crate::numa::ranges::{
    LocatedRun, MoveResult, PageRange, RefusalReason, RefusedRun, addresses,
};

/// Pages of the first call, and the fewest and most of any.
const BATCH: usize = 512;
const BATCH_MIN: usize = 64;
const BATCH_MAX: usize = 4096;

/// A call that takes longer is followed by smaller ones, and one that takes a quarter of it by
/// larger ones.
const CALL_MAX: Duration = Duration::from_millis(4);

/// Something to be done about pages.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) job: u64,
    pub(crate) pid: u32,
    pub(crate) pages: Vec<PageRange>,
    pub(crate) task: Task,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Move what is there to these nodes, a bit each; what is not there will be later.
    Move(u64),
    /// Move all of it to this node. Pages that are not there are refused.
    Migrate(u32),
    /// Say where it is.
    Locate,
}

impl Job {
    /// Pages of all ranges.
    fn length(&self) -> u32 {
        self.pages.iter().map(|range| range.pages).sum()
    }
}

/// What came of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum JobResult {
    /// Of pages that were to be moved.
    Moved(MoveResult),
    /// Of pages that were asked about.
    Located { job: u64, found: Vec<LocatedRun> },
}

/// The thread that moves pages, by jobs of one kind.
#[derive(Debug)]
pub(crate) struct Mover<J = Job, D = JobResult> {
    jobs: Sender<J>,
    done: Receiver<D>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl<J: Send + 'static, D: Send + 'static> Mover<J, D> {
    /// `carry_out` does a job. The thread that calls this is woken when one is done.
    pub(crate) fn start(
        machine: Arc<dyn Machine>,
        page_bytes: u64,
        carry_out: impl Fn(&mut Worker, &J) -> D + Send + 'static,
    ) -> io::Result<Mover<J, D>> {
        let (jobs, received) = mpsc::channel();
        let (report, done) = mpsc::channel();
        let stop = Arc::new(AtomicBool::new(false));
        let mut worker = Worker::new(machine, page_bytes, Arc::clone(&stop));
        let asks = thread::current();
        let work = move || {
            for job in received {
                // Whoever stops the mover may not wait for reports.
                let _ = report.send(carry_out(&mut worker, &job));
                asks.unpark();
            }
        };
        let thread = thread::Builder::new().name("move".to_owned()).spawn(work)?;
        Ok(Mover {
            jobs,
            done,
            stop,
            thread,
        })
    }

    /// Takes a job; it is reported when it is done.
    pub(crate) fn send(&self, job: J) {
        // The thread ends with the channel alone, or by a panic that `stop` passes on.
        let _ = self.jobs.send(job);
    }

    /// What was done since this was last asked.
    pub(crate) fn done(&self) -> impl Iterator<Item = D> + '_ {
        self.done.try_iter()
    }

    /// Ends the thread after the call that it is in, and returns what was not reported yet.
    pub(crate) fn stop(self) -> Vec<D> {
        self.stop.store(true, Ordering::Relaxed);
        drop(self.jobs);
        if let Err(panic) = self.thread.join() {
            std::panic::resume_unwind(panic);
        }
        self.done.iter().collect()
    }
}

/// Does the work.
pub(crate) struct Worker {
    machine: Arc<dyn Machine>,
    page_bytes: u64,
    batch: usize,
    stop: Arc<AtomicBool>,
    states: Vec<PageState>,
    addresses: Vec<u64>,
}

impl Worker {
    pub(crate) fn new(machine: Arc<dyn Machine>, page_bytes: u64, stop: Arc<AtomicBool>) -> Worker {
        Worker {
            machine,
            page_bytes,
            batch: BATCH,
            stop,
            states: Vec::new(),
            addresses: Vec::new(),
        }
    }

    /// Does what it can of a job, and says how long that took.
    pub(crate) fn carry_out(&mut self, job: &Job) -> JobResult {
        let before_ns = thread_cpu_ns();
        let mut done = self.attempt(job);
        if let JobResult::Moved(moved) = &mut done {
            moved.took_ns = thread_cpu_ns() - before_ns;
        }
        done
    }

    fn attempt(&mut self, job: &Job) -> JobResult {
        let nodes: Vec<u32> = match job.task {
            Task::Move(nodes) => (0..64).filter(|node| nodes >> node & 1 == 1).collect(),
            Task::Migrate(node) => vec![node],
            Task::Locate => {
                return JobResult::Located {
                    job: job.job,
                    found: self.locate(job),
                };
            }
        };
        let mut moved = MoveResult {
            job: job.job,
            ..MoveResult::default()
        };
        let mut addresses = addresses(&job.pages, self.page_bytes);
        let mut batch = std::mem::take(&mut self.addresses);
        let pages = job.length();
        let mut next = 0;
        let mut end = nodes.is_empty().then_some(RefusalReason::Untried);
        while next < pages && end.is_none() {
            if self.stop.load(Ordering::Relaxed) {
                end = Some(RefusalReason::Untried);
                break;
            }
            batch.clear();
            batch.extend(addresses.by_ref().take(self.batch));
            end = self.batch(job, &nodes, (next, &batch), &mut moved).err();
            next += batch.len() as u32;
        }
        if let Some(why) = end {
            push_refused(&mut moved.refused, next, pages - next, why);
        }
        self.addresses = batch;
        JobResult::Moved(moved)
    }

    /// Where pages are, as far as the kernel says.
    fn locate(&mut self, job: &Job) -> Vec<LocatedRun> {
        let mut found: Vec<LocatedRun> = Vec::new();
        let mut states = std::mem::take(&mut self.states);
        let mut batch = std::mem::take(&mut self.addresses);
        let mut addresses = addresses(&job.pages, self.page_bytes);
        let mut first = 0;
        loop {
            batch.clear();
            batch.extend(addresses.by_ref().take(BATCH_MAX));
            if batch.is_empty() || self.stop.load(Ordering::Relaxed) {
                break;
            }
            if self.call(job.pid, &batch, None, &mut states).is_err() {
                break;
            }
            for (index, state) in (first..).zip(&states) {
                let &PageState::On(node) = state else {
                    continue;
                };
                match found.last_mut() {
                    Some(run) if run.node == node && run.first + run.pages == index => {
                        run.pages += 1;
                    }
                    _ => found.push(LocatedRun {
                        first: index,
                        pages: 1,
                        node,
                    }),
                }
            }
            first += batch.len() as u32;
        }
        self.addresses = batch;
        self.states = states;
        found
    }

    /// Moves one batch, the first page of which has the number `first`. An error is the reason for
    /// which the rest is not tried.
    fn batch(
        &mut self,
        job: &Job,
        nodes: &[u32],
        (first, addresses): (u32, &[u64]),
        moved: &mut MoveResult,
    ) -> Result<(), RefusalReason> {
        let migrates = matches!(job.task, Task::Migrate(_));
        let mut states = std::mem::take(&mut self.states);
        if let Err(why) = self.call(job.pid, addresses, None, &mut states) {
            push_refused(&mut moved.refused, first, addresses.len() as u32, why);
            return Err(rest(why));
        }
        let absent = |index: u32, moved: &mut MoveResult| match migrates {
            true => push_refused(&mut moved.refused, index, 1, RefusalReason::Absent),
            false => moved.absent += 1,
        };
        // To several nodes pages go in turn, as the kernel's interleaving has them go.
        let mut elsewhere: Vec<Vec<u32>> = vec![Vec::new(); nodes.len()];
        for (index, state) in (first..).zip(&states) {
            match state {
                PageState::On(node) if nodes.contains(node) => moved.there += 1,
                PageState::On(_) => elsewhere[index as usize % nodes.len()].push(index),
                PageState::Absent | PageState::Unmapped => absent(index, moved),
                &state => push_refused(&mut moved.refused, index, 1, reason(state)),
            }
        }
        let mut end = Ok(());
        for (&node, indices) in nodes.iter().zip(&elsewhere) {
            if indices.is_empty() {
                continue;
            }
            let address = |&index: &u32| addresses[(index - first) as usize];
            let to_move: Vec<u64> = indices.iter().map(address).collect();
            let answer = end.and_then(|()| self.send_to(job.pid, &to_move, node, &mut states));
            if let Err(why) = answer {
                let refused = indices.iter();
                refused.for_each(|&index| push_refused(&mut moved.refused, index, 1, why));
                end = Err(rest(why));
                continue;
            }
            for (&index, &state) in indices.iter().zip(&states) {
                match state {
                    PageState::On(at) if at == node => moved.moved += 1,
                    PageState::Absent | PageState::Unmapped => absent(index, moved),
                    state => push_refused(&mut moved.refused, index, 1, reason(state)),
                }
            }
            if states.contains(&PageState::NoRoom) {
                end = Err(RefusalReason::Untried);
            }
        }
        self.states = states;
        moved.refused.sort_by_key(|run| run.first);
        end
    }

    /// Moves pages to one node. Of a huge page the first small one takes the others along, which
    /// the kernel calls busy: so these are asked about once more.
    fn send_to(
        &mut self,
        pid: u32,
        addresses: &[u64],
        node: u32,
        states: &mut Vec<PageState>,
    ) -> Result<(), RefusalReason> {
        self.call(pid, addresses, Some(node), states)?;
        let busy = |at: &usize| states[*at] == PageState::Busy;
        let busy: Vec<usize> = (0..addresses.len()).filter(busy).collect();
        if busy.is_empty() || busy.len() == addresses.len() {
            return Ok(());
        }
        let again: Vec<u64> = busy.iter().map(|&at| addresses[at]).collect();
        let mut now = Vec::new();
        if self.call(pid, &again, None, &mut now).is_ok() {
            for (&at, &state) in busy.iter().zip(&now) {
                if state == PageState::On(node) {
                    states[at] = state;
                }
            }
        }
        Ok(())
    }

    /// One call, timed.
    fn call(
        &mut self,
        pid: u32,
        addresses: &[u64],
        to: Option<u32>,
        states: &mut Vec<PageState>,
    ) -> Result<(), RefusalReason> {
        let started = Instant::now();
        let answer = self.machine.move_pages(pid, addresses, to, states);
        let took = started.elapsed();
        if took > CALL_MAX {
            self.batch = (self.batch / 2).max(BATCH_MIN);
        } else if to.is_some() && addresses.len() >= self.batch && took < CALL_MAX / 4 {
            self.batch = (self.batch * 2).min(BATCH_MAX);
        }
        // A kernel that says less than it was asked for is not to be believed.
        match answer {
            Ok(()) if states.len() == addresses.len() => Ok(()),
            Ok(()) => Err(RefusalReason::Error(0)),
            Err(refusal) => Err(refused(refusal)),
        }
    }
}

/// Why the rest of a range is not tried once a call was refused.
fn rest(why: RefusalReason) -> RefusalReason {
    match why {
        RefusalReason::NoProcess | RefusalReason::NotPermitted | RefusalReason::NodeNotAllowed => {
            why
        }
        _ => RefusalReason::Untried,
    }
}

fn reason(state: PageState) -> RefusalReason {
    match state {
        PageState::Busy | PageState::NotWrittenBack => RefusalReason::Busy,
        PageState::Shared => RefusalReason::Shared,
        PageState::NoRoom => RefusalReason::NoRoom,
        // It went elsewhere than it was sent.
        PageState::On(_) => RefusalReason::Busy,
        PageState::Absent | PageState::Unmapped | PageState::Untried => RefusalReason::Untried,
        PageState::Other(error) => RefusalReason::Error(error),
    }
}

fn refused(refusal: MoveError) -> RefusalReason {
    match refusal {
        MoveError::NoProcess => RefusalReason::NoProcess,
        MoveError::NotPermitted | MoveError::NoCall => RefusalReason::NotPermitted,
        MoveError::NodeNotAllowed | MoveError::NoNode => RefusalReason::NodeNotAllowed,
        MoveError::NoMemory => RefusalReason::NoRoom,
        MoveError::Other(error) => RefusalReason::Error(error),
    }
}

/// Adds pages to the last run if they follow it.
pub(crate) fn push_refused(runs: &mut Vec<RefusedRun>, first: u32, pages: u32, why: RefusalReason) {
    match runs.last_mut() {
        _ if pages == 0 => {}
        Some(run) if run.why == why && run.first + run.pages == first => run.pages += pages,
        _ => runs.push(RefusedRun { first, pages, why }),
    }
}

#[cfg(test)]
mod tests;
