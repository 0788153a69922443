//! The actuator: takes what programs read and write, and has the kernel drop what the controller
//! decides.

mod limit;
mod limiter;
mod questions;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hither_ids::{FileKey, Pid};
use hither_kernel::cgroup::refaulted_file_bytes;
use hither_kernel::file_id::Inode;
use hither_kernel::mapped_files::keep_program_pages;
use hither_kernel::page_cache::PageCache;
use hither_kernel::process::{children_read_bytes, monotonic_ns, thread_cpu_ns};
use hither_kernel::process_tree::{ProcessTree, Transferred};
use hither_session::record::{Op, Record};
use hither_session::session::RingInfo;

use self::limiter::Limiter;
use super::super::controller::{PageCacheConfig, PageCacheController};
use super::super::event::{Input, Order, TimedInput};
use super::mapped::{Change, MappedFiles};
use super::options::{Budget, CacheSizes, PageCacheOptions};
use super::report::{FileStats, PageCacheReport};
use crate::mechanism::{Actuator, Context, Origin, Poll, RunState};
use crate::polling::{Backoff, Periodic};
use crate::program_files::{OpenedFile, ProgramFiles};
use crate::status::{MechanismStatus, MechanismTag, to_figures};

pub(crate) const POLL_INTERVAL_MIN: Duration = Duration::from_micros(500);
pub(crate) const POLL_INTERVAL_MAX: Duration = Duration::from_millis(5);

/// How often a memory cgroup is asked what it leaves for files.
pub(crate) const BUDGET_PERIOD_NS: u64 = 1_000_000_000;

/// How often programs are asked what they have read from storage, while they report accesses.
pub(crate) const STORAGE_PERIOD_NS: u64 = 100_000_000;

/// How often they are while they do not, the first while they read.
pub(crate) const PAUSED_PERIOD_NS: u64 = 5_000_000;
const PAUSED_POLL_INTERVAL_MIN: Duration = Duration::from_nanos(PAUSED_PERIOD_NS);
const PAUSED_POLL_INTERVAL_MAX: Duration = Duration::from_millis(20);

/// Asking a large tree takes long, so it is asked less often: that takes at most this share of a
/// CPU, 1/50, but is done once a second.
const COUNTING_DIVISOR: u64 = 50;
const PAUSED_POLL_INTERVAL_LONGEST: Duration = Duration::from_secs(1);

/// How often the kernel is asked which of the kept extents are still cached.
pub(crate) const RESIDENCY_PERIOD_NS: u64 = 250_000_000;

/// How many files and how many call sites a report names.
const BUSIEST_MAX: usize = 8;

/// Steers the page cache.
pub(crate) struct PageCacheActuator {
    policy: String,
    dry_run: bool,
    spare_preexisting: bool,
    by_kernel: bool,
    budget: Budget,
    /// The sizes that the budget last came to.
    sizes: CacheSizes,
    /// How far the kernel reads ahead in the programs' files: the most.
    readahead_bytes: u64,
    program_files: ProgramFiles,
    /// Files that were opened since the last step.
    opened: BTreeMap<FileKey, OpenedFile>,
    /// The work for a limit, if there is one.
    limiter: Option<Limiter>,
    /// Inputs that result from carrying out orders, for the next step.
    later: Vec<Input>,
    /// The program's processes; none until it has started.
    processes: Option<ProcessTree>,
    /// What they had read from storage, and written, at the last count.
    transferred: Transferred,
    /// The CPU time of the last count.
    counting_ns: u64,
    /// Not before, while programs report.
    count_after_ns: u64,
    refaulted_bytes: u64,
    count_storage: Periodic,
    /// Programs report no accesses.
    paused: bool,
    /// Device and inode of the files that were mapped when the last pause ended.
    mapped: BTreeSet<Inode>,
    /// Those that are steered.
    mapped_files: MappedFiles,
    /// Files that were mapped since the last step, and by which process.
    newly_mapped: Vec<(FileKey, Pid)>,
    /// The page faults since the last poll.
    faults: usize,
    /// Devices whose file systems count reads, or do not.
    counts_reads: BTreeMap<u64, bool>,
    check_residency: Periodic,
    read_budget: Periodic,
    /// What programs had transferred that ran before.
    transferred_before: Option<Transferred>,
    /// What this process's children had read from storage before the run.
    storage_before_bytes: u64,
    poll_backoff: Backoff,
    paused_poll_backoff: Backoff,
    /// Programs have read from storage since the count before the last.
    reads_now: bool,
    /// What the kernel was asked to drop and could have.
    dropped_bytes: u64,
    report: PageCacheReport,
}

impl Actuator for PageCacheActuator {
    type Controller = PageCacheController;
    type Report = PageCacheReport;

    fn attach(&mut self, run: &mut RunState) {
        if self.budget.group().is_some() {
            keep_program_pages();
        }
        // Of programs that run already.
        if let Some(roots) = run.roots.clone() {
            self.processes = Some(ProcessTree::below(roots));
            self.transferred = self.transferred(run);
            self.transferred_before = Some(self.transferred);
        }
        run.pause(self.paused);
        // The controller leaves alone what others have cached, as long as it is there.
        run.skip_cached(self.limiter.is_some() && self.spare_preexisting);
    }

    fn take_samples(&mut self, start_ns: u64, inputs: &mut Vec<TimedInput>) {
        let before = inputs.len();
        self.mapped_files.drain(|time_ns, file, offset, thread| {
            let input = Input::Touched {
                file,
                offset,
                thread,
            };
            inputs.push(TimedInput {
                time_ns: time_ns.saturating_sub(start_ns),
                input,
            });
        });
        self.faults = inputs.len() - before;
    }

    fn on_record(&mut self, origin: &mut Origin<'_>, record: &Record<'_>) -> Option<(u64, Input)> {
        if let Some((file, opened)) = self.program_files.on_record(origin.ring, record) {
            self.opened.entry(file).or_insert(opened);
        }
        let &Record::Access {
            op,
            time_ns,
            signature,
            object: file,
            offset,
            length,
            ..
        } = record
        else {
            return None;
        };
        let input = match op {
            Op::Read | Op::Write => {
                let stream = origin.streams.of(origin.ring);
                Input::Access {
                    file,
                    offset,
                    length,
                    signature,
                    process: origin.streams.stream(stream).image,
                    thread: stream,
                    write: op == Op::Write,
                }
            }
            Op::Insert => Input::Inserted {
                file,
                offset,
                length,
            },
            Op::UseByOthers => Input::UsedByOthers {
                file,
                offset,
                length,
            },
            Op::Evict => Input::Evicted {
                file,
                offset,
                length,
            },
            // Which touches there were without a fault is not known.
            Op::Map | Op::Fault if self.by_kernel => Input::Mapped { file },
            Op::Map if self.may_watch(origin.ring, file, length) => {
                self.newly_mapped.push((file, origin.ring.pid));
                return None;
            }
            Op::Map => Input::Mapped { file },
            Op::Truncate => Input::Cut {
                file,
                bytes: offset,
            },
            Op::Unmap | Op::Fault => return None,
        };
        Some((time_ns, input))
    }

    fn step(&mut self, context: &mut Context<'_, PageCacheController>, poll: Poll<Input>) {
        let now_ns = poll.now_ns;
        self.take(context, now_ns, poll.inputs);
        // Sources may wake the agent more often than this can be asked.
        let is_due = self.count_storage.is_due(now_ns) || self.paused;
        if poll.last || is_due && now_ns >= self.count_after_ns {
            self.count_storage(context, now_ns);
            self.count_after_ns = now_ns + COUNTING_DIVISOR * self.counting_ns;
        }
        if self.check_residency.is_due(now_ns) {
            context.input(now_ns, Input::CheckResidency);
            self.carry_out(context, now_ns, &[]);
        }
        if self.read_budget.is_due(now_ns) {
            self.read_budget(context, now_ns);
        }
        if self.limiter.is_some() {
            self.apply_limit(context, now_ns, poll.last);
        }
    }

    fn poll_interval(&mut self, records: usize) -> Duration {
        if self.paused {
            let rest = Duration::from_nanos(COUNTING_DIVISOR * self.counting_ns);
            let rest = rest.min(PAUSED_POLL_INTERVAL_LONGEST);
            self.paused_poll_backoff.after(!self.reads_now).max(rest)
        } else {
            self.poll_backoff.after(records + self.faults == 0)
        }
    }

    fn status(&mut self, context: &mut Context<'_, PageCacheController>) -> MechanismStatus {
        self.count(context);
        MechanismStatus {
            mechanism: MechanismTag::PageCache,
            policy: self.policy.clone(),
            figures: to_figures(&self.report.figures()),
            sites: context
                .run
                .sites(self.report.busiest_sites.iter().map(|of| of.signature)),
            ..MechanismStatus::default()
        }
    }

    fn finish(
        mut self,
        mut context: Context<'_, PageCacheController>,
        ran: Duration,
    ) -> PageCacheReport {
        self.count(&context);
        let mut report = PageCacheReport {
            sites: context.controller.sites(),
            storage_bytes: if self.by_kernel {
                let before = self.transferred_before.unwrap_or_default();
                self.transferred.since(before).read_bytes
            } else {
                children_read_bytes() - self.storage_before_bytes
            },
            lost: context.run.lost(),
            agent: context.run.cpu(),
            ran,
            ..self.report
        };
        report.log = context.finish_log(&report.figures());
        // As the controller.
        std::mem::forget(self.program_files);
        report
    }
}

impl PageCacheActuator {
    pub(super) fn new(
        cache: Arc<dyn PageCache>,
        options: &PageCacheOptions,
        config: &PageCacheConfig,
    ) -> PageCacheActuator {
        let dry_run = config.dry_run;
        let limit = config.limit;
        let limiter = limit.filter(|_| !dry_run).map(|_| Limiter::default());
        PageCacheActuator {
            policy: options.policy.to_string(),
            dry_run,
            spare_preexisting: !options.all_files,
            by_kernel: options.by_kernel,
            budget: options.budget.clone(),
            sizes: options.budget.sizes(0).unwrap_or_default(),
            readahead_bytes: 0,
            program_files: ProgramFiles::new(cache, limiter.is_some()),
            limiter,
            opened: BTreeMap::new(),
            later: Vec::new(),
            processes: None,
            transferred: Transferred::default(),
            counting_ns: 0,
            count_after_ns: 0,
            refaulted_bytes: 0,
            count_storage: Periodic::after(STORAGE_PERIOD_NS),
            paused: !config.reports_at_once(),
            mapped: BTreeSet::new(),
            mapped_files: MappedFiles::new(),
            newly_mapped: Vec::new(),
            faults: 0,
            counts_reads: BTreeMap::new(),
            check_residency: Periodic::after(RESIDENCY_PERIOD_NS),
            read_budget: Periodic::after(BUDGET_PERIOD_NS),
            transferred_before: None,
            storage_before_bytes: children_read_bytes(),
            poll_backoff: Backoff::new(POLL_INTERVAL_MIN, POLL_INTERVAL_MAX),
            paused_poll_backoff: Backoff::new(PAUSED_POLL_INTERVAL_MIN, PAUSED_POLL_INTERVAL_MAX),
            reads_now: false,
            dropped_bytes: 0,
            report: PageCacheReport::default(),
        }
    }

    /// Gives the controller all inputs, and carries out what it decides.
    fn take(
        &mut self,
        context: &mut Context<'_, PageCacheController>,
        now_ns: u64,
        events: Vec<TimedInput>,
    ) {
        for input in std::mem::take(&mut self.later) {
            context.input(now_ns, input);
        }
        self.take_mapped(context, now_ns);
        for (file, opened) in std::mem::take(&mut self.opened) {
            let readahead_bytes = self.program_files.readahead_bytes(file);
            let input = Input::Opened {
                file,
                bytes: opened.bytes,
                readahead_bytes,
                is_first: opened.is_first,
                cached_before: opened.cached_before,
            };
            context.input(now_ns, input);
            self.on_opened(context, now_ns, file);
            if readahead_bytes > self.readahead_bytes {
                self.readahead_bytes = readahead_bytes;
                self.read_budget(context, now_ns);
            }
        }
        // What others have cached has to be known before programs come to it.
        self.carry_out(context, now_ns, &events);
        for at in events {
            if let Input::Access { signature, .. } = at.input
                && context.is_logged()
            {
                context.sites.insert(signature);
            }
            context.input(at.time_ns, at.input);
        }
        if context.controller.due(now_ns) {
            context.input(now_ns, Input::Tick);
        }
        self.carry_out(context, now_ns, &[]);
    }

    /// Whether a file that a program has mapped may be one to steer.
    fn may_watch(&self, ring: &RingInfo, file: FileKey, length: u64) -> bool {
        let watched = self.mapped_files.is_watched(file);
        let may_watch = |length| self.mapped_files.may_watch(length, self.sizes.bytes);
        ring.namespace.is_own() && (watched || may_watch(length))
    }

    /// Watches what programs have mapped since the last time, and tells the controller.
    fn take_mapped(&mut self, context: &mut Context<'_, PageCacheController>, now_ns: u64) {
        let newly_mapped = std::mem::take(&mut self.newly_mapped);
        for &(_, pid) in &newly_mapped {
            self.mapped_files.watch(pid, self.sizes.bytes);
        }
        self.mapped_files.look(now_ns);
        for change in self.mapped_files.changes() {
            match change {
                Change::Watched(mapped) => {
                    let (file, id, bytes) = (mapped.key, mapped.id, mapped.bytes);
                    self.mapped.remove(&id.inode());
                    let known = self.program_files.id(file).is_some();
                    self.program_files.add(file, id, mapped.path, mapped.pid);
                    self.opened.entry(file).or_insert(OpenedFile {
                        bytes,
                        is_first: !known,
                        cached_before: None,
                    });
                    context.input(now_ns, Input::Watched { file, bytes });
                }
                Change::LeftAlone { file } => context.input(now_ns, Input::Mapped { file }),
            }
        }
        for (file, _) in newly_mapped {
            if !self.mapped_files.is_watched(file) {
                context.input(now_ns, Input::Mapped { file });
            }
        }
    }

    /// What is to be known of a file that a program has opened, or is reported for the first time.
    fn on_opened(
        &mut self,
        context: &mut Context<'_, PageCacheController>,
        now_ns: u64,
        file: FileKey,
    ) {
        let Some(id) = self.program_files.id(file) else {
            return;
        };
        if self.mapped.contains(&id.inode()) {
            context.input(now_ns, Input::Mapped { file });
        }
        if !self.counts_reads.contains_key(&id.device)
            && let Ok(opened) = self.program_files.open(file)
        {
            let counts = opened.counts_reads();
            self.counts_reads.insert(id.device, counts);
            if !counts {
                context.input(now_ns, Input::Unaccounted);
            }
        }
    }

    /// Tells the controller what programs have read from storage since the last time.
    ///
    /// Where the file system does not count reads, refaults show that programs read anew what was
    /// reclaimed. They count only while programs report nothing, and only to end that.
    fn count_storage(&mut self, context: &mut Context<'_, PageCacheController>, now_ns: u64) {
        if context.run.roots.is_none() {
            return;
        }
        let start_ns = thread_cpu_ns();
        let transferred = self.transferred(context.run);
        self.counting_ns = thread_cpu_ns() - start_ns;
        let before = std::mem::replace(&mut self.transferred, transferred);
        let mut bytes = transferred.read_bytes - before.read_bytes;
        if self.paused {
            let refaulted = refaulted_file_bytes(self.budget.group());
            let before = std::mem::replace(&mut self.refaulted_bytes, refaulted);
            if before > 0 {
                bytes = bytes.max(refaulted.saturating_sub(before));
            }
        }
        self.reads_now = bytes > 0;
        // In a pause, nothing depends on the time.
        if bytes > 0 || !self.paused || transferred != before {
            let transferred_bytes = transferred.read_bytes + transferred.written_bytes;
            let stored = Input::Stored {
                bytes,
                transferred_bytes,
            };
            context.input(now_ns, stored);
        }
    }

    /// What programs have transferred so far.
    fn transferred(&mut self, run: &mut RunState) -> Transferred {
        // Asked first: who ends meanwhile is in the next count.
        let ended = run.transferred_by_ended();
        let Some(roots) = &run.roots else {
            return Transferred::default();
        };
        let processes = self
            .processes
            .get_or_insert_with(|| ProcessTree::below(roots.clone()));
        let Some(mut all) = ended else {
            return processes.transferred();
        };
        all.add(processes.transferred_by_living());
        // It was counted before, in another way.
        let mut sum = self.transferred;
        sum.add(all.since(sum));
        sum
    }

    /// Has programs report nothing from now on, or report again.
    fn pause(&mut self, run: &mut RunState, paused: bool) {
        self.paused = paused;
        run.pause(paused);
        if paused {
            self.refaulted_bytes = 0;
            self.mapped_files.pause();
        } else {
            if self.by_kernel {
                return;
            }
            let processes = self.processes.as_mut();
            self.mapped = processes.map_or_else(BTreeSet::new, ProcessTree::mapped_files);
            let processes = self.processes.iter().flat_map(ProcessTree::processes);
            for &pid in processes {
                self.mapped_files.watch(pid, self.sizes.bytes);
            }
        }
    }

    fn read_budget(&mut self, context: &mut Context<'_, PageCacheController>, now_ns: u64) {
        let sizes = self.budget.sizes(self.readahead_bytes);
        if let Some(sizes) = sizes.filter(|sizes| *sizes != self.sizes) {
            self.sizes = sizes;
            let CacheSizes { bytes, alone_bytes } = sizes;
            context.input(now_ns, Input::Budget { bytes, alone_bytes });
        }
    }

    /// Copies the controller's figures into the report.
    fn count(&mut self, context: &Context<'_, PageCacheController>) {
        let PageCacheActuator {
            program_files,
            mapped_files,
            report,
            dry_run,
            dropped_bytes,
            ..
        } = self;
        let controller = &context.controller;
        report.summary = controller.summary();
        if !*dry_run {
            report.summary.dropped_bytes = *dropped_bytes;
        }
        report.why_mapped = mapped_files.refused();
        report.readahead_disabled = context.run.library.readahead_disabled();
        report.busiest_sites = controller.busiest_sites(BUSIEST_MAX);
        let busiest = controller.busiest_files(BUSIEST_MAX).into_iter();
        let named = busiest.map(|(file, tally)| FileStats {
            path: program_files.path(file).unwrap_or(Path::new("")).to_owned(),
            tally,
        });
        report.busiest_files = named.collect();
    }

    /// Carries out the orders, and those that the answers lead to; each file with drops is opened
    /// once. `events` are given to the controller next.
    fn carry_out(
        &mut self,
        context: &mut Context<'_, PageCacheController>,
        now_ns: u64,
        events: &[TimedInput],
    ) {
        let (mut drops, mut pauses) = (Vec::new(), None);
        while let Some(order) = context.orders.pop_front() {
            match order {
                Order::FindAbsent { file, offsets } => self.find_absent(context, file, &offsets),
                Order::CountFile { file } => self.count_file(context, now_ns, file, events),
                Order::Count => self.count_storage(context, now_ns),
                Order::FindAhead { file, ranges } => {
                    self.find_ahead(context, now_ns, file, &ranges);
                }
                Order::FindPreexisting {
                    file,
                    ranges,
                    by_extent,
                } => self.find_preexisting(context, now_ns, file, &ranges, by_extent),
                // A dry run only looks.
                _ if self.dry_run => {}
                Order::Drop {
                    file,
                    offset,
                    length,
                } => drops.push((file, offset, length)),
                Order::CountExtents {
                    file,
                    offset,
                    foreign,
                    questions,
                } => self.count_extents(context, now_ns, file, offset, &foreign, questions),
                Order::DisableReadahead => context.run.disable_readahead(),
                Order::Unwatch { file } => self.mapped_files.unwatch(file),
                Order::Pause { paused } => pauses = Some(paused),
            }
        }
        if let Some(paused) = pauses {
            self.pause(context.run, paused);
        }
        let start_ns = monotonic_ns();
        if drops
            .iter()
            .any(|&(file, ..)| self.mapped_files.is_watched(file))
        {
            self.mapped_files.look_up();
        }
        for of_file in drops.chunk_by(|a, b| a.0 == b.0) {
            let file = of_file[0].0;
            let opened = match self.program_files.open(file) {
                Ok(opened) => opened,
                Err(reason) => {
                    self.report.why_unreachable = Some(reason);
                    if !reason.may_pass() {
                        self.later.push(Input::Gone { file });
                    } else if self.limiter.is_some() {
                        self.try_again(of_file);
                    }
                    continue;
                }
            };
            for &(_, offset, length) in of_file {
                let unmapped = self.mapped_files.drop_pages(file, offset, length);
                match unmapped.and_then(|()| opened.drop_pages(offset, length)) {
                    Ok(()) => {
                        self.report.dropped += 1;
                        let in_file = opened.size().saturating_sub(offset);
                        self.dropped_bytes += length.min(in_file);
                        if self.limiter.is_some() {
                            self.find_undropped(&*opened, file, offset, length);
                        }
                    }
                    Err(refused) => {
                        self.report.refused += 1;
                        self.report.why_refused = Some(refused);
                    }
                }
            }
        }
        if !drops.is_empty() {
            self.report.drop_time += Duration::from_nanos(monotonic_ns() - start_ns);
        }
    }
}
