//! The actuator: takes what programs read and write, and has the kernel drop what the controller
//! decides.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hither_sys::page_cache::PageCache;
use hither_sys::process::{children_read_bytes, monotonic_ns};
use hither_sys::record::{Op, Record};

use super::super::controller::{BLOCK_BYTES, EXTENT_BYTES, PageCacheController};
use super::super::event::{Decision, Input, TimedInput};
use super::options::{Budget, CacheSizes, PageCacheOptions};
use super::report::{FileStats, PageCacheReport};
use crate::agent::{Actuator, Context, Poll, RecordSource};
use crate::polling::{Backoff, Periodic};
use crate::program_files::ProgramFiles;
use crate::status::{MechanismStatus, MechanismTag, to_figures};

const POLL_INTERVAL_MIN: Duration = Duration::from_micros(500);
const POLL_INTERVAL_MAX: Duration = Duration::from_millis(5);

/// How often a memory cgroup is asked what it leaves for files.
const BUDGET_PERIOD_NS: u64 = 1_000_000_000;

/// How often the kernel is asked which of the kept extents are still cached.
const RESIDENCY_PERIOD_NS: u64 = 250_000_000;

/// The extents of one such check. At 5 us each, and 10 us for opening a file, that takes less than
/// a hundredth of a CPU.
const RESIDENCY_EXTENTS: usize = 128;

/// The reserve in a cgroup, in readaheads: two are on their way in, and the extents that are read
/// and not yet dropped take as much.
const RESERVED_READAHEADS: u64 = 4;

/// How far a program that reads from storage may be ahead of its first record that is seen.
const REPORTING_LAG_BYTES: u64 = 8 << 20;

/// From this many bytes read of a file on, the bytes that the program read from storage tell
/// whether the file was cached. Storage reads count when they are submitted, so none is missing.
const STORAGE_EVIDENCE_BYTES_MIN: u64 = 64 << 10;

/// The most extents whose residency is checked when a file is opened.
const PREEXISTING_EXTENTS_MAX: u64 = 4096;

/// How many files and how many call sites a report names.
const BUSIEST_MAX: usize = 8;

/// Steers the page cache.
pub(crate) struct PageCacheActuator {
    policy: String,
    dry_run: bool,
    spare_preexisting: bool,
    budget: Budget,
    /// The sizes that the budget last came to.
    sizes: CacheSizes,
    /// The reserve of a cgroup's memory.
    reserve_bytes: u64,
    program_files: ProgramFiles,
    /// Files that were opened since the last step; with their size, if no program had used them
    /// before.
    opened: BTreeMap<u64, Option<u64>>,
    /// Inputs that result from carrying out decisions, for the next step.
    later: Vec<Input>,
    check_residency: Periodic,
    read_budget: Periodic,
    /// What this process's children had read from storage before the run.
    storage_before_bytes: u64,
    poll_backoff: Backoff,
    report: PageCacheReport,
}

impl Actuator for PageCacheActuator {
    type Controller = PageCacheController;
    type Report = PageCacheReport;

    fn on_record(
        &mut self,
        source: &mut RecordSource<'_>,
        record: &Record<'_>,
    ) -> Option<(u64, Input)> {
        if let Some((file, size)) = self.program_files.on_record(source.ring, record) {
            self.opened.entry(file).or_insert(size);
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
        let stream = source.streams.of(source.ring);
        let input = match op {
            Op::Read | Op::Write => Input::Access {
                file,
                offset,
                length,
                signature,
                process: source.streams.stream(stream).image,
                thread: stream,
                write: op == Op::Write,
            },
            Op::Map => Input::Mapped { file },
            Op::Truncate => Input::Cut {
                file,
                bytes: offset,
            },
            Op::Unmap => return None,
        };
        Some((time_ns, input))
    }

    fn step(&mut self, context: &mut Context<'_, PageCacheController>, poll: Poll<Input>) {
        let now_ns = poll.now_ns;
        self.take(context, now_ns, poll.inputs);
        if self.check_residency.is_due(now_ns) {
            self.check_residency(context, now_ns);
        }
        if self.read_budget.is_due(now_ns) {
            self.read_budget(context, now_ns);
        }
    }

    fn poll_interval(&mut self, records: usize) -> Duration {
        self.poll_backoff.after(records == 0)
    }

    fn status(&mut self, context: &mut Context<'_, PageCacheController>) -> MechanismStatus {
        self.count(context);
        MechanismStatus {
            mechanism: MechanismTag::PageCache,
            policy: self.policy.clone(),
            figures: to_figures(&self.report.figures()),
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
            storage_bytes: children_read_bytes() - self.storage_before_bytes,
            lost: context.run.session.lost(),
            agent: context.run.cpu(),
            ran,
            ..self.report
        };
        report.log = context.finish_log(&report.figures());
        report
    }
}

impl PageCacheActuator {
    pub(super) fn new(
        cache: Arc<dyn PageCache>,
        options: &PageCacheOptions,
        dry_run: bool,
    ) -> PageCacheActuator {
        PageCacheActuator {
            policy: options.policy.to_string(),
            dry_run,
            spare_preexisting: !options.all_files,
            budget: options.budget.clone(),
            sizes: options.budget.sizes(0),
            reserve_bytes: 0,
            program_files: ProgramFiles::new(cache),
            opened: BTreeMap::new(),
            later: Vec::new(),
            check_residency: Periodic::after(RESIDENCY_PERIOD_NS),
            read_budget: Periodic::after(BUDGET_PERIOD_NS),
            storage_before_bytes: children_read_bytes(),
            poll_backoff: Backoff::new(POLL_INTERVAL_MIN, POLL_INTERVAL_MAX),
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
        for (file, size) in std::mem::take(&mut self.opened) {
            context.input(now_ns, Input::Opened { file });
            let Some(size) = size else {
                continue;
            };
            let reserve = RESERVED_READAHEADS * self.program_files.readahead_bytes(file);
            if reserve > self.reserve_bytes {
                self.reserve_bytes = reserve;
                self.read_budget(context, now_ns);
            }
            self.find_preexisting(context, now_ns, file, size, &events);
        }
        for at in events {
            if let Input::Access { signature, .. } = at.input {
                context.sites.insert(signature);
            }
            context.input(at.time_ns, at.input);
        }
        if context.controller.due() {
            context.input(now_ns, Input::Tick);
        }
        match self.dry_run {
            true => context.decisions.clear(),
            false => self.carry_out(context),
        }
    }

    /// Tells the controller which parts of a file were cached before the program opened it. Outside
    /// of the range that the program has read so far, with its readahead, these are the parts that
    /// are cached now. Inside of that range they are known only if the program has read enough:
    /// then what it read from storage meanwhile says whether the file was cached.
    fn find_preexisting(
        &mut self,
        context: &mut Context<'_, PageCacheController>,
        now_ns: u64,
        file: u64,
        size: u64,
        events: &[TimedInput],
    ) {
        if !self.spare_preexisting || size == 0 {
            return;
        }
        let ahead = 2 * self.program_files.readahead_bytes(file);
        let (mut from, mut to, mut read, mut last) = (u64::MAX, 0, 0, 0);
        for at in events {
            if let Input::Access {
                file: of,
                offset,
                length,
                write: false,
                ..
            } = at.input
                && of == file
            {
                (from, to) = (from.min(offset), to.max(offset + length));
                // Programs do not report reads that stay within the block of the read before.
                let unreported = offset.saturating_sub(last);
                let is_within = unreported < BLOCK_BYTES;
                read += length + if is_within { unreported } else { 0 };
                last = offset + length;
            }
        }
        let stored = self.program_files.stored_bytes(file);
        let cached =
            read >= STORAGE_EVIDENCE_BYTES_MIN && stored.is_some_and(|stored| stored < read / 2);
        let reached = match to {
            // The file was opened, and no read of it was reported yet.
            0 => 0..ahead.max(REPORTING_LAG_BYTES),
            to => from..to + ahead + REPORTING_LAG_BYTES,
        };
        let outside =
            |offset: u64| cached || offset + EXTENT_BYTES <= reached.start || offset >= reached.end;
        let extents = size.div_ceil(EXTENT_BYTES).min(PREEXISTING_EXTENTS_MAX);
        if !(0..extents).any(|extent| outside(extent * EXTENT_BYTES)) {
            return;
        }
        let Ok(opened) = self.program_files.open(file) else {
            return;
        };
        for offset in (0..extents).map(|extent| extent * EXTENT_BYTES) {
            if !outside(offset) {
                continue;
            }
            match opened.cached(offset, EXTENT_BYTES) {
                Ok(cached) if cached.pages > 0 => {
                    let length = EXTENT_BYTES;
                    let preexisting = Input::Preexisting {
                        file,
                        offset,
                        length,
                    };
                    context.input(now_ns, preexisting);
                }
                Ok(_) => {}
                Err(refused) => {
                    self.report.unseen = Some(refused);
                    return;
                }
            }
        }
    }

    /// Finds out which kept extents the kernel has reclaimed, or whose pages of other programs are
    /// gone: a few extents each time.
    fn check_residency(&mut self, context: &mut Context<'_, PageCacheController>, now_ns: u64) {
        let to_check = context.controller.extents_to_check(RESIDENCY_EXTENTS);
        for of_file in to_check.chunk_by(|a, b| a.0 == b.0) {
            let file = of_file[0].0;
            let Ok(opened) = self.program_files.open(file) else {
                continue;
            };
            for &(_, offset) in of_file {
                match opened.cached(offset, EXTENT_BYTES) {
                    Ok(cached) if cached.pages == 0 => {
                        let length = EXTENT_BYTES;
                        let absent = Input::Absent {
                            file,
                            offset,
                            length,
                        };
                        context.input(now_ns, absent);
                    }
                    Ok(_) => {}
                    Err(refused) => {
                        self.report.unseen = Some(refused);
                        return;
                    }
                }
            }
        }
    }

    fn read_budget(&mut self, context: &mut Context<'_, PageCacheController>, now_ns: u64) {
        let sizes = self.budget.sizes(self.reserve_bytes);
        if sizes != self.sizes {
            self.sizes = sizes;
            let CacheSizes { bytes, alone_bytes } = sizes;
            context.input(now_ns, Input::Budget { bytes, alone_bytes });
        }
    }

    /// Copies the controller's figures into the report.
    fn count(&mut self, context: &Context<'_, PageCacheController>) {
        let PageCacheActuator {
            program_files,
            report,
            ..
        } = self;
        let controller = &context.controller;
        report.summary = controller.summary();
        report.readahead_disabled = context.run.session.readahead_disabled();
        report.busiest_sites = controller.busiest_sites(BUSIEST_MAX);
        let busiest = controller.busiest_files(BUSIEST_MAX).into_iter();
        let named = busiest.map(|(file, tally)| FileStats {
            path: program_files.path(file).unwrap_or(Path::new("")).to_owned(),
            tally,
        });
        report.busiest_files = named.collect();
    }

    /// Carries out the decisions; each file with drops is opened once.
    fn carry_out(&mut self, context: &mut Context<'_, PageCacheController>) {
        let mut drops = Vec::new();
        for decision in context.decisions.drain(..) {
            match decision {
                Decision::Drop {
                    file,
                    offset,
                    length,
                } => drops.push((file, offset, length)),
                Decision::Full => context.run.session.disable_readahead(),
                Decision::Judged(_) => {}
            }
        }
        let start_ns = monotonic_ns();
        for of_file in drops.chunk_by(|a, b| a.0 == b.0) {
            let file = of_file[0].0;
            let opened = match self.program_files.open(file) {
                Ok(opened) => opened,
                Err(reason) => {
                    self.report.why_unreachable = Some(reason);
                    if !reason.may_pass() {
                        self.later.push(Input::Gone { file });
                    }
                    continue;
                }
            };
            for &(_, offset, length) in of_file {
                match opened.drop_pages(offset, length) {
                    Ok(()) => self.report.dropped += 1,
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
