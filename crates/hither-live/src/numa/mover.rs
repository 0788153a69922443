//! Moves pages and looks up their nodes, on a thread of its own: a call may take long, and the
//! rings must be drained meanwhile.
//!
//! The mover looks up where pages are before it moves any: most of a range is in place already or
//! was not touched yet, and the look-up takes no lock on a page. The first call moves
//! [`BATCH_PAGES_START`] pages: one page took 44 us, and in a call for 512 pages each took 0.4 us.
//! Later calls move fewer pages where calls take long, and more where they are quick. So a call,
//! which holds the program's map of memory for reading, is short on any machine.
//!
//! A huge page moves as a whole. It is moved if at least half of it is to move, and left otherwise;
//! none is split, which the kernel offers no call for, and which would cost what it was made for.
//!
//! The mover gives up the rest of a job where the process is gone or belongs to another user, and
//! where the node is full, since each further try would have the kernel search for frames. It keeps
//! no state by process: by the next job a process number may be another one's.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use hither_ids::{Address, KernelNode, Pid};
use hither_kernel::machine::{Machine, MoveError, PageState};
use hither_kernel::process::thread_cpu_ns;

use crate::numa::ranges::{
    LocatedRun, MoveResult, PageRange, RefusalReason, RefusedRun, addresses,
};

/// Pages of the first call, and the fewest and most of any call.
const BATCH_PAGES_START: usize = 512;
const BATCH_PAGES_MIN: usize = 64;
const BATCH_PAGES_MAX: usize = 4096;

/// After a call that takes longer batches are halved. After one that takes less than a quarter of
/// it they are doubled.
const CALL_TIME_MAX: Duration = Duration::from_millis(4);

/// Pages of a process to move or look up.
#[derive(Clone, Debug)]
pub(crate) struct PageJob {
    pub(crate) job: u64,
    pub(crate) pid: Pid,
    pub(crate) pages: Vec<PageRange>,
    pub(crate) task: Task,
}

/// What to do with the pages of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Move the pages to these nodes, a bit each. Pages that were not touched yet are counted: they
    /// will be allocated there later.
    Move(u64),
    /// Move the pages to this node. Pages that do not exist are refused.
    Migrate(KernelNode),
    /// Look up the nodes of the pages.
    Locate,
}

/// The huge pages of a job by number: those of which it moves less than half, and the others, until
/// they have moved.
#[derive(Default)]
struct HugePages {
    parts: BTreeSet<u64>,
    whole: BTreeSet<u64>,
}

impl PageJob {
    /// The number of pages of all ranges.
    fn length(&self) -> u32 {
        self.pages.iter().map(|range| range.pages).sum()
    }
}

/// The outcome of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum JobResult {
    /// Of a job that moves.
    Moved(MoveResult),
    /// Of a look-up.
    Located { job: u64, found: Vec<LocatedRun> },
}

/// The thread that moves pages. It takes jobs of one kind, `J`.
#[derive(Debug)]
pub(crate) struct Mover<J = PageJob, D = JobResult> {
    jobs: Sender<J>,
    done: Receiver<D>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl<J: Send + 'static, D: Send + 'static> Mover<J, D> {
    /// Starts the thread, which calls `carry_out` for each job. Each time a job is done the thread
    /// that called this is woken.
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
                // Nobody receives reports any more while the mover is stopped.
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

    /// Sends a job to the thread.
    pub(crate) fn send(&self, job: J) {
        // The thread ends when the channel is closed, or by a panic that `stop` passes on.
        let _ = self.jobs.send(job);
    }

    /// The outcomes since the last call.
    pub(crate) fn done(&self) -> impl Iterator<Item = D> + '_ {
        self.done.try_iter()
    }

    /// Ends the thread after its current call. Returns the outcomes that were not taken yet.
    pub(crate) fn stop(self) -> Vec<D> {
        self.stop.store(true, Ordering::Relaxed);
        drop(self.jobs);
        if let Err(panic) = self.thread.join() {
            std::panic::resume_unwind(panic);
        }
        self.done.iter().collect()
    }
}

/// Carries out jobs.
pub(crate) struct Worker {
    machine: Arc<dyn Machine>,
    page_bytes: u64,
    huge_bytes: Option<u64>,
    batch: usize,
    stop: Arc<AtomicBool>,
    states: Vec<PageState>,
    addresses: Vec<Address>,
}

impl Worker {
    pub(crate) fn new(machine: Arc<dyn Machine>, page_bytes: u64, stop: Arc<AtomicBool>) -> Worker {
        Worker {
            huge_bytes: machine.huge_page_bytes(),
            machine,
            page_bytes,
            batch: BATCH_PAGES_START,
            stop,
            states: Vec::new(),
            addresses: Vec::new(),
        }
    }

    /// Carries out a job as far as possible, and measures the processor time.
    pub(crate) fn carry_out(&mut self, job: &PageJob) -> JobResult {
        let before_ns = thread_cpu_ns();
        let mut done = self.attempt(job);
        if let JobResult::Moved(moved) = &mut done {
            moved.took_ns = thread_cpu_ns() - before_ns;
        }
        done
    }

    /// The huge pages of which a job moves less than half, by number: each would go as a whole, and
    /// most of it is used elsewhere. And those of which it moves more.
    fn huge_pages(&self, job: &PageJob) -> HugePages {
        let Some(huge_bytes) = self.huge_bytes else {
            return HugePages::default();
        };
        let mut wanted: BTreeMap<u64, u64> = BTreeMap::new();
        for range in &job.pages {
            let end = range.start + u64::from(range.pages) * self.page_bytes;
            for huge in range.start.0 / huge_bytes..end.0.div_ceil(huge_bytes) {
                let (from, to) = (huge * huge_bytes, (huge + 1) * huge_bytes);
                *wanted.entry(huge).or_default() += to.min(end.0) - from.max(range.start.0);
            }
        }
        let addresses = wanted.keys().map(|huge| Address(huge * huge_bytes));
        let addresses: Vec<Address> = addresses.collect();
        let are_huge = self.machine.are_huge(job.pid, &addresses);
        let huge = wanted.into_iter().zip(are_huge);
        let huge = huge.filter_map(|(of, is_huge)| is_huge.then_some(of));
        let (whole, parts): (Vec<_>, Vec<_>) =
            huge.partition(|&(_, bytes)| 2 * bytes >= huge_bytes);
        let numbers = |of: Vec<(u64, u64)>| of.into_iter().map(|(huge, _)| huge).collect();
        HugePages {
            parts: numbers(parts),
            whole: numbers(whole),
        }
    }

    fn attempt(&mut self, job: &PageJob) -> JobResult {
        let nodes: Vec<KernelNode> = match job.task {
            Task::Move(nodes) => KernelNode::in_mask(nodes).collect(),
            Task::Migrate(node) => vec![node],
            Task::Locate => {
                return JobResult::Located {
                    job: job.job,
                    found: self.locate(job),
                };
            }
        };
        let mut huge = self.huge_pages(job);
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
            let pages = (next, &batch[..]);
            end = self.batch(job, &nodes, pages, &mut huge, &mut moved).err();
            next += batch.len() as u32;
        }
        if let Some(why) = end {
            push_refused(&mut moved.refused, next, pages - next, why);
        }
        self.addresses = batch;
        JobResult::Moved(moved)
    }

    /// Looks up the nodes of pages. Pages that the kernel knows nothing of are left out.
    fn locate(&mut self, job: &PageJob) -> Vec<LocatedRun> {
        let mut found: Vec<LocatedRun> = Vec::new();
        let mut states = std::mem::take(&mut self.states);
        let mut batch = std::mem::take(&mut self.addresses);
        let mut addresses = addresses(&job.pages, self.page_bytes);
        let mut first = 0;
        loop {
            batch.clear();
            batch.extend(addresses.by_ref().take(BATCH_PAGES_MAX));
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

    /// Moves one batch, whose first page has the index `first` in the job. An error is the reason
    /// not to try the rest.
    fn batch(
        &mut self,
        job: &PageJob,
        nodes: &[KernelNode],
        (first, addresses): (u32, &[Address]),
        huge: &mut HugePages,
        moved: &mut MoveResult,
    ) -> Result<(), RefusalReason> {
        let mut states = std::mem::take(&mut self.states);
        if let Err(why) = self.call(job.pid, addresses, None, &mut states) {
            push_refused(&mut moved.refused, first, addresses.len() as u32, why);
            return Err(rest(why));
        }
        let address = |&index: &u32| addresses[(index - first) as usize];
        let pages = (first..).zip(&states);
        let pages = pages.map(|(index, &state)| (index, address(&index), state));
        let elsewhere = self.elsewhere(job.task, nodes, pages, huge, moved);
        let mut end = Ok(());
        for (&node, indices) in nodes.iter().zip(&elsewhere) {
            if indices.is_empty() {
                continue;
            }
            let to_move: Vec<Address> = indices.iter().map(address).collect();
            let answer = end.and_then(|()| self.send_to(job.pid, &to_move, node, &mut states));
            if let Err(why) = answer {
                let refused = indices.iter();
                refused.for_each(|&index| push_refused(&mut moved.refused, index, 1, why));
                end = Err(rest(why));
                continue;
            }
            for (&index, &state) in indices.iter().zip(&states) {
                match state {
                    PageState::On(at) if at == node => {
                        let number = self.huge_number(address(&index));
                        moved.moved += 1;
                        moved.huge += u32::from(huge.whole.remove(&number));
                    }
                    PageState::Absent | PageState::Unmapped => {
                        note_absent(job.task, index, moved);
                    }
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

    /// The indices of the pages that are to move to each of the nodes. With several nodes pages go
    /// to each in turn, as with the kernel's interleaving; huge pages as wholes.
    fn elsewhere(
        &self,
        task: Task,
        nodes: &[KernelNode],
        pages: impl Iterator<Item = (u32, Address, PageState)>,
        huge: &HugePages,
        moved: &mut MoveResult,
    ) -> Vec<Vec<u32>> {
        let mut elsewhere: Vec<Vec<u32>> = vec![Vec::new(); nodes.len()];
        for (index, address, state) in pages {
            let number = self.huge_number(address);
            match state {
                PageState::On(node) if nodes.contains(&node) => moved.there += 1,
                PageState::On(_) if huge.parts.contains(&number) => {
                    push_refused(&mut moved.refused, index, 1, RefusalReason::PartOfHuge);
                }
                PageState::On(_) => {
                    let turn = if huge.whole.contains(&number) {
                        number
                    } else {
                        u64::from(index)
                    };
                    elsewhere[turn as usize % nodes.len()].push(index);
                }
                PageState::Absent | PageState::Unmapped => note_absent(task, index, moved),
                state => push_refused(&mut moved.refused, index, 1, reason(state)),
            }
        }
        elsewhere
    }

    /// The number of the huge page, if there is one, at an address.
    fn huge_number(&self, address: Address) -> u64 {
        address.0 / self.huge_bytes.unwrap_or(u64::MAX)
    }

    /// Moves pages to one node. The first small page of a huge page takes the others along, and the
    /// kernel then reports those as busy: so busy pages are looked up once more.
    fn send_to(
        &mut self,
        pid: Pid,
        addresses: &[Address],
        node: KernelNode,
        states: &mut Vec<PageState>,
    ) -> Result<(), RefusalReason> {
        self.call(pid, addresses, Some(node), states)?;
        let busy = |at: &usize| states[*at] == PageState::Busy;
        let busy: Vec<usize> = (0..addresses.len()).filter(busy).collect();
        if busy.is_empty() || busy.len() == addresses.len() {
            return Ok(());
        }
        let again: Vec<Address> = busy.iter().map(|&at| addresses[at]).collect();
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

    /// Calls `move_pages`, and adjusts the batch size by the time that it took.
    fn call(
        &mut self,
        pid: Pid,
        addresses: &[Address],
        to: Option<KernelNode>,
        states: &mut Vec<PageState>,
    ) -> Result<(), RefusalReason> {
        let started = Instant::now();
        let answer = self.machine.move_pages(pid, addresses, to, states);
        let took = started.elapsed();
        if took > CALL_TIME_MAX {
            self.batch = (self.batch / 2).max(BATCH_PAGES_MIN);
        } else if to.is_some() && addresses.len() >= self.batch && took < CALL_TIME_MAX / 4 {
            self.batch = (self.batch * 2).min(BATCH_PAGES_MAX);
        }
        // The answer has to have one state for each page.
        match answer {
            Ok(()) if states.len() == addresses.len() => Ok(()),
            Ok(()) => Err(RefusalReason::Error(0)),
            Err(refusal) => Err(refused(refusal)),
        }
    }
}

/// A page is not there. A move of counted pages was refused by that; others wait for no page.
fn note_absent(task: Task, index: u32, moved: &mut MoveResult) {
    match task {
        Task::Migrate(_) => push_refused(&mut moved.refused, index, 1, RefusalReason::Absent),
        Task::Move(_) | Task::Locate => moved.absent += 1,
    }
}

/// The reason for the rest of a range, once a call was refused.
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
        // It went to another node than the requested one.
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

/// Adds refused pages: to the last run if they follow it, or else as a new run.
pub(crate) fn push_refused(runs: &mut Vec<RefusedRun>, first: u32, pages: u32, why: RefusalReason) {
    match runs.last_mut() {
        _ if pages == 0 => {}
        Some(run) if run.why == why && run.first + run.pages == first => run.pages += pages,
        _ => runs.push(RefusedRun { first, pages, why }),
    }
}

#[cfg(test)]
mod tests;
