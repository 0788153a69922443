//! Moves pages, on a thread of its own: a call takes as long as the kernel likes, and the rings must be emptied
//! meanwhile.
//!
//! Pages are asked about before they are moved, since most of a range is in place already or not there yet: that takes
//! no lock on a page. A call moves [`BATCH`] pages to begin with (44 us a call for one page, 0.4 us a page in 512: DESIGN.md)
//! and fewer or more where it takes long or next to no time, so that a call, which holds the program's map of memory for
//! reading, is short whatever the machine. The mover gives up on its own: on a process that is gone or not ours for good,
//! and for the rest of a range where the node has no room, since each further try would have the kernel look for frames.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use hither_sys::machine::{Machine, PageState, Refusal};

use super::event::{Moved, Refused, Why};

/// Pages of the first call, and the fewest and most of any.
const BATCH: usize = 512;
const BATCH_MIN: usize = 64;
const BATCH_MAX: usize = 4096;

/// A call that takes longer is followed by smaller ones, and one that takes a quarter of it by larger ones.
const CALL_MAX: Duration = Duration::from_millis(4);

/// Pages to be moved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) job: u64,
    pub(crate) pid: u32,
    pub(crate) start: u64,
    pub(crate) pages: u32,
    /// Where to, a bit each node.
    pub(crate) nodes: u64,
}

/// The thread that moves pages.
#[derive(Debug)]
pub(crate) struct Mover {
    jobs: Sender<Job>,
    done: Receiver<Moved>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Mover {
    pub(crate) fn start(machine: Arc<dyn Machine>, page_bytes: u64) -> io::Result<Mover> {
        let (jobs, received) = mpsc::channel();
        let (report, done) = mpsc::channel();
        let stop = Arc::new(AtomicBool::new(false));
        let mut worker = Worker::new(machine, page_bytes, Arc::clone(&stop));
        let work = move || {
            for job in received {
                let started = Instant::now();
                let mut moved = worker.carry_out(&job);
                moved.took_ns = started.elapsed().as_nanos() as u64;
                // Whoever stops the mover may not wait for reports.
                let _ = report.send(moved);
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
    pub(crate) fn send(&self, job: Job) {
        // The thread ends with the channel alone, or by a panic that `stop` passes on.
        let _ = self.jobs.send(job);
    }

    /// What was done since this was last asked.
    pub(crate) fn done(&self) -> impl Iterator<Item = Moved> + '_ {
        self.done.try_iter()
    }

    /// Ends the thread after the call that it is in, and returns what was not reported yet.
    pub(crate) fn stop(self) -> Vec<Moved> {
        self.stop.store(true, Ordering::Relaxed);
        drop(self.jobs);
        if let Err(panic) = self.thread.join() {
            std::panic::resume_unwind(panic);
        }
        self.done.iter().collect()
    }
}

/// Does the work.
pub(super) struct Worker {
    machine: Arc<dyn Machine>,
    page_bytes: u64,
    batch: usize,
    /// Processes whose pages cannot be moved, and why.
    refused: BTreeMap<u32, Why>,
    stop: Arc<AtomicBool>,
    states: Vec<PageState>,
}

impl Worker {
    pub(super) fn new(machine: Arc<dyn Machine>, page_bytes: u64, stop: Arc<AtomicBool>) -> Worker {
        Worker {
            machine,
            page_bytes,
            batch: BATCH,
            refused: BTreeMap::new(),
            stop,
            states: Vec::new(),
        }
    }

    /// Moves what is there of a range, as far as it goes.
    pub(super) fn carry_out(&mut self, job: &Job) -> Moved {
        let mut moved = Moved {
            job: job.job,
            ..Moved::default()
        };
        let nodes: Vec<u32> = (0..64).filter(|node| job.nodes >> node & 1 == 1).collect();
        let mut next = 0;
        let mut end = match nodes.is_empty() {
            true => Some(Why::Untried),
            false => self.refused.get(&job.pid).copied(),
        };
        while next < job.pages && end.is_none() {
            if self.stop.load(Ordering::Relaxed) {
                end = Some(Why::Untried);
                break;
            }
            let pages = (self.batch as u32).min(job.pages - next);
            end = self.batch(job, &nodes, next, pages, &mut moved).err();
            next += pages;
        }
        if let Some(why) = end {
            add(&mut moved.refused, next, job.pages - next, why);
        }
        moved
    }

    /// Moves one batch. An error is the reason for which the rest of the range is not tried.
    fn batch(
        &mut self,
        job: &Job,
        nodes: &[u32],
        first: u32,
        pages: u32,
        moved: &mut Moved,
    ) -> Result<(), Why> {
        let page_bytes = self.page_bytes;
        let address = |index: u32| job.start + u64::from(index) * page_bytes;
        let indices: Vec<u32> = (first..first + pages).collect();
        let addresses: Vec<u64> = indices.iter().map(|&index| address(index)).collect();
        let mut states = std::mem::take(&mut self.states);
        if let Err(why) = self.call(job.pid, &addresses, None, &mut states) {
            add(&mut moved.refused, first, pages, why);
            return Err(rest(why));
        }
        // To several nodes pages go in turn, as the kernel's interleaving has them go.
        let mut elsewhere: Vec<Vec<u32>> = vec![Vec::new(); nodes.len()];
        for (&index, state) in indices.iter().zip(&states) {
            match state {
                PageState::On(node) if nodes.contains(node) => moved.there += 1,
                PageState::On(_) => elsewhere[index as usize % nodes.len()].push(index),
                PageState::Absent | PageState::Unmapped => moved.absent += 1,
                &state => add(&mut moved.refused, index, 1, reason(state)),
            }
        }
        let mut end = Ok(());
        for (&node, indices) in nodes.iter().zip(&elsewhere) {
            if indices.is_empty() {
                continue;
            }
            let addresses: Vec<u64> = indices.iter().map(|&index| address(index)).collect();
            let answer = end.and_then(|()| self.call(job.pid, &addresses, Some(node), &mut states));
            if let Err(why) = answer {
                let refused = indices.iter();
                refused.for_each(|&index| add(&mut moved.refused, index, 1, why));
                end = Err(rest(why));
                continue;
            }
            for (&index, &state) in indices.iter().zip(&states) {
                match state {
                    PageState::On(at) if at == node => moved.moved += 1,
                    PageState::Absent | PageState::Unmapped => moved.absent += 1,
                    state => add(&mut moved.refused, index, 1, reason(state)),
                }
            }
            if states.contains(&PageState::NoRoom) {
                end = Err(Why::Untried);
            }
        }
        self.states = states;
        moved.refused.sort_by_key(|run| run.first);
        end
    }

    /// One call, timed.
    fn call(
        &mut self,
        pid: u32,
        addresses: &[u64],
        to: Option<u32>,
        states: &mut Vec<PageState>,
    ) -> Result<(), Why> {
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
            Ok(()) => Err(Why::Error(0)),
            Err(refusal) => {
                let why = refused(refusal);
                if matches!(why, Why::NoProcess | Why::NotPermitted) {
                    self.refused.insert(pid, why);
                }
                Err(why)
            }
        }
    }
}

/// Why the rest of a range is not tried once a call was refused.
fn rest(why: Why) -> Why {
    match why {
        Why::NoProcess | Why::NotPermitted | Why::NodeNotAllowed => why,
        _ => Why::Untried,
    }
}

fn reason(state: PageState) -> Why {
    match state {
        PageState::Busy | PageState::NotWrittenBack => Why::Busy,
        PageState::Shared => Why::Shared,
        PageState::NoRoom => Why::NoRoom,
        // It went elsewhere than it was sent.
        PageState::On(_) => Why::Busy,
        PageState::Absent | PageState::Unmapped | PageState::Untried => Why::Untried,
        PageState::Other(error) => Why::Error(error),
    }
}

fn refused(refusal: Refusal) -> Why {
    match refusal {
        Refusal::NoProcess => Why::NoProcess,
        Refusal::NotPermitted | Refusal::NoCall => Why::NotPermitted,
        Refusal::NodeNotAllowed | Refusal::NoNode => Why::NodeNotAllowed,
        Refusal::NoMemory => Why::NoRoom,
        Refusal::Other(error) => Why::Error(error),
    }
}

/// Adds pages to the last run if they follow it.
fn add(runs: &mut Vec<Refused>, first: u32, pages: u32, why: Why) {
    match runs.last_mut() {
        _ if pages == 0 => {}
        Some(run) if run.why == why && run.first + run.pages == first => run.pages += pages,
        _ => runs.push(Refused { first, pages, why }),
    }
}

#[cfg(test)]
mod tests;
