//! Decides what the page cache keeps of a program's files. Pure: equal inputs give equal decisions.
//!
//! A policy of the simulator, unchanged, owns a budget of blocks. It is given each block that the
//! program reads or writes. What it evicts is dropped as [`extents`] says, if that pays, which
//! [`gain_monitor`] decides.
//!
//! **References** are made of requests by the rule of [`hither_core::references`], as in the
//! simulator.
//!
//! **What is left alone.** Files that are mapped, unless [`touches`] shows that they are read in
//! order: other accesses through the mapping are not seen. Pages written in the last 40 seconds:
//! `POSIX_FADV_DONTNEED` would write them to storage, which may never be needed. Pages that were
//! cached before the program accessed them: they are another program's. Readahead beyond what was
//! read is not in the model; it is dropped with its extent. Where there is a [`limit`], all that
//! was read or written counts, and what is beyond it is dropped, too.

mod attribution;
mod byte_ranges;
mod cache;
mod config;
mod extent_readers;
mod extents;
mod gain_monitor;
mod limit;
mod limiting;
mod preexisting;
mod reporting;
mod residency;
mod resizing;
mod stats;
mod storage_account;
mod summary;
mod touches;
mod unexplained;

use hither_core::references::{LastRequests, Request};
use hither_core::registry::{Mechanism, ReplacementEntry, baseline};
use hither_core::site_profile::{self, SiteProfile};
use hither_core::{Access, AccessResult, Block, Object, Op, Process, Site, Spec, Thread};
use hither_ids::{FileKey, Tid};
use rustc_hash::FxHashMap;

use self::attribution::{Attribution, CountedFile};
pub(crate) use self::byte_ranges::ByteRanges;
use self::cache::{SimulatedCache, blocks};
pub(crate) use self::config::{LimitConfig, PageCacheConfig};
use self::extent_readers::{ExtentReaders, LeftExtent};
pub(crate) use self::extents::{BLOCK_BYTES, BLOCK_SIZE, CHUNK_BYTES, EXTENT_BYTES};
use self::extents::{BlockRun, ExtentPosition, ExtentState, Extents};
use self::gain_monitor::{Counted, GainMonitor};
use self::limit::CacheLimit;
use self::reporting::Reporting;
use self::stats::{BlockClasses, busiest};
pub use self::stats::{ReadStats, SiteStats};
use self::storage_account::StorageAccount;
pub use self::summary::PageCacheSummary;
use self::touches::{Touched, Touches};
use self::unexplained::UnexplainedFiles;
use super::event::{Decision, Input, Judged, Note, Order, TimedInput};
use crate::controller::Controller;
use crate::error::{Error, Result};
use crate::observe::intern::Numbers;
use crate::references::{BlockPosition, last_requests};

/// The kernel reads whole pages.
const PAGE_BYTES: u64 = 4096;

/// Stale blocks are dropped piecemeal once they are 1/8 of the budget.
const STALE_BUDGET_DIVISOR: usize = 8;

/// Or when this much time has passed since the last time. Never sooner than a tenth of it, because
/// written blocks stay stale for a while.
const PARTIAL_DROP_PERIOD_NS: u64 = 1_000_000_000;

#[derive(Clone, Debug, Default)]
struct TrackedFile {
    key: FileKey,
    readers: ExtentReaders,
    stats: ReadStats,
    /// Its length, as far as is known.
    bytes: u64,
    /// How far the kernel reads ahead in it.
    readahead_bytes: u64,
    /// It is mapped and watched.
    watched: Option<Box<WatchedFile>>,
    /// It is mapped and left alone.
    mapped: bool,
    gone: bool,
}

#[derive(Clone, Debug)]
struct WatchedFile {
    bytes: u64,
    touches: Touches,
}

/// See the module.
pub(crate) struct PageCacheController {
    spec: Spec<ReplacementEntry>,
    lru_spec: Spec<ReplacementEntry>,
    /// The policy's cache.
    model: SimulatedCache,
    /// The LRU cache that it is compared with.
    lru_model: SimulatedCache,
    gain_monitor: GainMonitor,
    storage: StorageAccount,
    reporting: Reporting,
    extents: Extents,
    /// What the page cache may have of the programs' files, if that is limited.
    limit: Option<CacheLimit>,
    attribution: Attribution,
    unexplained: UnexplainedFiles,
    files: Vec<TrackedFile>,
    by_key: FxHashMap<FileKey, u32>,
    last_requests: LastRequests<Op>,
    /// Signatures; site 0 is the unknown one.
    sites: Numbers<u64>,
    /// By site.
    site_stats: Vec<SiteStats>,
    classes: BlockClasses,
    spare_preexisting: bool,
    /// The LRU cache has been full.
    full: bool,
    /// By block, the last access to it: used to fill a cache of another size.
    latest: Vec<Access>,
    tick: u64,
    now_ns: u64,
    last_partial_drop_ns: u64,
    /// The extent at which the next residency check goes on.
    next_checked: ExtentPosition,
    summary: PageCacheSummary,
}

impl Controller for PageCacheController {
    const NAME: &'static str = "page_cache";
    const FORMAT: (&'static str, u32) = ("hither_files", 7);
    type Config = PageCacheConfig;
    type Input = Input;
    type Order = Order;
    type Note = Note;

    /// An error where the policy cannot run live.
    fn new(config: &PageCacheConfig) -> Result<PageCacheController> {
        let wrong = |what: String| Err(Error::Log(what));
        if config.block_bytes != BLOCK_BYTES {
            return wrong(format!("blocks of {} bytes", config.block_bytes));
        }
        let spec = config.policy;
        if !spec.entry().runs(Mechanism::PageCache) {
            return wrong(format!("{}: it needs the future", spec.entry().name));
        }
        let lru_spec = baseline();
        let mut sites = Numbers::default();
        sites.number(0);
        let numbered = config.sites.iter();
        let numbered = numbered.map(|site| (Site(sites.number(site.signature)), site.signature));
        let records = site_profile::import(&config.sites, numbered.collect::<Vec<_>>());
        let capacity = blocks(config.budget_bytes);
        let alone = blocks(config.alone_bytes).max(capacity);
        let limit = config.limit.as_ref();
        if let Some(limit) = limit.filter(|limit| !limit.page_bytes.is_power_of_two()) {
            return wrong(format!("pages of {} bytes", limit.page_bytes));
        }
        let reported = config.reports_at_once();
        Ok(PageCacheController {
            model: SimulatedCache::new(&spec, capacity, &records),
            lru_model: SimulatedCache::new(&lru_spec, alone, &[]),
            gain_monitor: GainMonitor::new(capacity, config.always),
            storage: StorageAccount::new(!config.given && !config.always),
            reporting: Reporting::new(reported),
            spec,
            lru_spec,
            extents: Extents::default(),
            limit: limit.map(CacheLimit::new),
            attribution: Attribution::default(),
            unexplained: UnexplainedFiles::default(),
            files: Vec::new(),
            by_key: FxHashMap::default(),
            last_requests: last_requests(),
            sites,
            site_stats: Vec::new(),
            classes: BlockClasses::default(),
            spare_preexisting: config.spare_preexisting,
            full: false,
            latest: Vec::new(),
            tick: 0,
            now_ns: 0,
            last_partial_drop_ns: 0,
            next_checked: ExtentPosition::default(),
            summary: PageCacheSummary {
                budget_bytes: config.budget_bytes,
                limit_bytes: limit.map(|limit| limit.bytes),
                reported,
                ..PageCacheSummary::default()
            },
        })
    }

    fn step(&mut self, at: &TimedInput, out: &mut Vec<Decision>) {
        self.now_ns = self.now_ns.max(at.time_ns);
        self.limit_input(&at.input, out);
        match at.input {
            Input::Opened {
                file,
                bytes,
                readahead_bytes,
                is_first,
                ref cached_before,
            } => {
                let number = self.file(file);
                let of_file = &mut self.files[number as usize];
                (of_file.gone, of_file.readahead_bytes) = (false, readahead_bytes);
                of_file.bytes = bytes;
                if is_first {
                    self.find_preexisting(number, bytes, cached_before.as_ref(), out);
                }
            }
            Input::FileCounted {
                file,
                cached_bytes,
                counts_reads,
                ref read,
            } => {
                let file = self.file(file);
                let counted = CountedFile {
                    cached_bytes,
                    counts_reads,
                    read: read.clone(),
                };
                self.file_counted(file, counted, out);
            }
            Input::Access {
                file,
                offset,
                length,
                signature,
                process,
                thread,
                write,
            } => {
                let access = Access {
                    object: Object(self.file(file)),
                    site: Site(self.sites.number(signature)),
                    thread: Thread(thread),
                    process: Process(process),
                    op: if write { Op::Write } else { Op::Read },
                    ..Access::bare(0, Block(0))
                };
                self.access(access, offset, length, out);
            }
            Input::Watched { file, bytes } => {
                let file = self.file(file);
                let of_file = &mut self.files[file as usize];
                self.summary.watched += u64::from(of_file.watched.is_none());
                of_file.bytes = bytes;
                of_file.watched = Some(Box::new(WatchedFile {
                    bytes,
                    touches: Touches::default(),
                }));
            }
            Input::Touched {
                file,
                offset,
                thread,
            } => {
                let file = self.file(file);
                self.touched(file, offset, thread, out);
            }
            Input::Mapped { file } => {
                let file = self.file(file);
                self.leave_alone(file);
            }
            Input::Cut { file, bytes } => {
                let file = self.file(file);
                let kept = bytes.div_ceil(BLOCK_BYTES) * BLOCK_BYTES;
                let run = BlockRun::from(file, kept, u64::MAX);
                self.forget(run);
                self.extents.not_preexisting(run);
            }
            Input::Preexisting {
                file,
                offset,
                length,
                cached_bytes,
            } => {
                let file = self.file(file);
                self.is_preexisting(file, offset..offset + length, cached_bytes);
            }
            Input::Absent {
                file,
                offset,
                length,
            } => {
                let run = BlockRun::from(self.file(file), offset, length);
                self.extents.not_preexisting(run);
                if !self.gain_monitor.steering() {
                    return;
                }
                for block in self.extents.blocks(run) {
                    let kept = self.model.remove(block);
                    self.summary.absent_bytes += u64::from(kept) * BLOCK_BYTES;
                    self.extents.absent(block);
                }
            }
            Input::Evicted {
                file,
                offset,
                length,
            } => {
                let run = BlockRun::from(self.file(file), offset, length);
                if self.gain_monitor.steering() {
                    self.is_evicted(run);
                }
            }
            Input::Gone { file } => {
                let file = self.file(file);
                let was = std::mem::replace(&mut self.files[file as usize].gone, true);
                self.summary.unreachable += u64::from(!was);
                self.forget(BlockRun::from(file, 0, u64::MAX));
            }
            Input::Budget { bytes, alone_bytes } => self.resize(bytes, alone_bytes),
            Input::Stored {
                bytes,
                transferred_bytes,
            } => {
                self.attribution.transferred(transferred_bytes);
                self.judge_counted(out);
                self.stored(bytes, out);
            }
            Input::Unaccounted => self.storage.distrust(),
            Input::CheckResidency => self.check_residency(out),
            Input::Tick => {
                self.take_ahead();
                self.drop_evicted(out);
                self.drop_beyond_limit(out);
            }
            Input::Ended => self.drop_beyond_limit(out),
            Input::UsedByOthers {
                file,
                offset,
                length,
            } if self.limit.is_none() => {
                let run = BlockRun::from(self.file(file), offset, length);
                self.forget(run);
                self.summary.shared_bytes += self.extents.used_by_others(run) * BLOCK_BYTES;
            }
            // Of use to the limit alone.
            Input::Inserted { .. }
            | Input::UsedByOthers { .. }
            | Input::Unreported { .. }
            | Input::CachedAhead { .. }
            | Input::CheckLimit { .. }
            | Input::ExtentsCounted { .. }
            | Input::Undropped { .. } => {}
        }
    }
}

impl PageCacheController {
    fn file(&mut self, key: FileKey) -> u32 {
        *self.by_key.entry(key).or_insert_with(|| {
            self.files.push(TrackedFile {
                key,
                ..TrackedFile::default()
            });
            self.files.len() as u32 - 1
        })
    }

    fn access(&mut self, access: Access, offset: u64, length: u64, out: &mut Vec<Decision>) {
        let file = &mut self.files[access.object.index()];
        if file.mapped || file.gone || !self.reporting.on() {
            return;
        }
        file.bytes = file.bytes.max(offset.saturating_add(length));
        let request = Request {
            op: access.op,
            offset,
            length,
        };
        let (file, thread) = (access.object.0, access.thread.0);
        let indices = self
            .last_requests
            .indices(file, thread, request, BLOCK_SIZE);
        for index in indices {
            let file = &mut self.files[access.object.index()];
            if let Some(left) = file.readers.touch(access.thread.0, index, self.now_ns) {
                self.left(access.object.0, left);
            }
            self.reference(Access { index, ..access }, out);
        }
    }

    /// A thread has faulted in a file that is watched. What it has read by that is an access from a
    /// call site of the file's own.
    fn touched(&mut self, file: u32, offset: u64, thread: Tid, out: &mut Vec<Decision>) {
        let PageCacheController {
            model,
            lru_model,
            extents,
            files,
            reporting,
            ..
        } = self;
        let of_file = &mut files[file as usize];
        let (key, wanted) = (of_file.key, !of_file.mapped && reporting.on());
        let Some(watched) = of_file.watched.as_mut().filter(|_| wanted) else {
            return;
        };
        let bytes = watched.bytes;
        let holds = |block| {
            let holds = |cache: &SimulatedCache| cache.residency.slot(block).is_some();
            holds(model) || holds(lru_model)
        };
        let kept = |number| extents.any_block_of(ExtentPosition { file, number }, holds);
        let touched = ExtentPosition::of_byte(file, offset);
        match watched.touches.touch(thread, touched.number, kept) {
            Touched::Again => {}
            Touched::Through {
                reader,
                tail,
                first,
                last,
            } => {
                let access = Access {
                    object: Object(file),
                    site: Site(self.sites.number(key.0)),
                    thread: Thread(reader),
                    ..Access::bare(0, Block(0))
                };
                for (first, last) in tail.into_iter().chain([(first, last)]) {
                    let start = u64::from(first) * EXTENT_BYTES;
                    let end = (u64::from(last) + 1) * EXTENT_BYTES;
                    self.access(access, start, end.min(bytes).saturating_sub(start), out);
                }
            }
            Touched::Jumps => {
                self.leave_alone(file);
                out.push(Decision::Order(Order::Unwatch { file: key }));
            }
        }
    }

    /// Accesses to a file are not seen, or not all of them.
    fn leave_alone(&mut self, file: u32) {
        let was = std::mem::replace(&mut self.files[file as usize].mapped, true);
        if !was {
            self.summary.mapped += 1;
            let watched = self.files[file as usize].watched.take();
            self.summary.watched -= u64::from(watched.is_some());
            self.forget(BlockRun::from(file, 0, u64::MAX));
        }
    }

    /// The size of an access's block: the last one of a file is what the file has of it. Of many
    /// files it is the only one.
    fn bytes_of(&self, access: &Access) -> u64 {
        let from = u64::from(access.index) * BLOCK_BYTES;
        let left = self.files[access.object.index()].bytes.saturating_sub(from);
        left.clamp(1, BLOCK_BYTES).next_multiple_of(PAGE_BYTES)
    }

    /// Counts a reference by file and by call site, and notes the block's class.
    fn count(&mut self, access: &Access, bytes: u64, miss: bool, lru_miss: bool) {
        let slot = self.model.residency.slot(access.block);
        let class = slot.and_then(|slot| self.model.policy.class(slot));
        self.classes.set(access.block.index(), class);
        let file = &mut self.files[access.object.index()];
        file.stats.reference(bytes, miss, lru_miss);
        let site = access.site.index();
        if site >= self.site_stats.len() {
            self.site_stats.resize(site + 1, SiteStats::default());
        }
        let of_site = &mut self.site_stats[site];
        of_site.class = class;
        of_site.tally.reference(bytes, miss, lru_miss);
    }

    /// A reader has left an extent. If it was read through it becomes a unit, provided that the
    /// policy has kept most of it. Otherwise nothing of it is kept: the rest would stay in the page
    /// cache all the same, beyond the budget.
    fn left(&mut self, file: u32, left: LeftExtent) {
        let at = ExtentPosition {
            file,
            number: left.extent,
        };
        self.extents.reader_left(at);
        if !left.read_through {
            return;
        }
        let blocks = self.extents.blocks_of(at);
        let kept = |&&block: &&Block| self.model.residency.slot(block).is_some();
        if 2 * blocks.iter().filter(kept).count() >= blocks.len() {
            self.extents.make_unit(at);
        } else {
            self.give_up(&blocks);
        }
    }

    /// The policy has evicted a block. If its extent was a unit, the rest of it is given up too.
    fn evicted(&mut self, block: Block) {
        self.gone(block);
        if let Some(rest) = self.extents.break_unit(block) {
            self.give_up(&rest);
        }
    }

    /// Removes these blocks from the policy's cache. To the policy they are blocks that were lost.
    fn give_up(&mut self, blocks: &[Block]) {
        for &block in blocks {
            if self.model.remove(block) {
                self.gone(block);
            }
        }
    }

    fn gone(&mut self, block: Block) {
        if self.gain_monitor.steering() {
            self.extents.evicted(block);
            let bytes = self.bytes_of(&self.latest[block.index()]);
            self.classes.evicted(block.index(), bytes);
            self.summary.evicted_bytes += bytes;
        }
    }

    fn reference(&mut self, access: Access, out: &mut Vec<Decision>) {
        let position = BlockPosition {
            file: access.object.0,
            index: access.index,
        };
        let write = access.op == Op::Write;
        let Some(block) = self.extents.accessed(position, write, self.now_ns) else {
            return;
        };
        let access = Access {
            block,
            tick: self.tick,
            ..access
        };
        self.tick += 1;
        let new = block.index() == self.latest.len();
        if new {
            self.latest.push(access)
        } else {
            self.latest[block.index()] = access
        }
        let served = self.model.access(&access);
        let evicted = match served {
            AccessResult::Miss { evicted } => evicted,
            AccessResult::Hit => None,
        };
        if let Some(evicted) = evicted {
            self.evicted(evicted);
        }
        let miss = served != AccessResult::Hit;
        let lru = self.lru_model.access(&access);
        let lru_miss = lru != AccessResult::Hit;
        let full = matches!(lru, AccessResult::Miss { evicted: Some(_) });
        if full && !std::mem::replace(&mut self.full, true) {
            out.push(Decision::Order(Order::DisableReadahead));
        }
        let steered = self.gain_monitor.steering();
        let missed = if steered { miss } else { lru_miss };
        let bytes = self.bytes_of(&access);
        self.summary.missed_bytes += u64::from(missed) * bytes;
        self.summary.lru_missed_bytes += u64::from(lru_miss) * bytes;
        if lru_miss && !write {
            self.storage.missed(bytes, new);
        }
        self.count(&access, bytes, missed, lru_miss);
        let counted = Counted {
            miss,
            lru_miss,
            new,
            evicted: evicted.is_some(),
        };
        let decides = self.storage.decides();
        let ratio = decides.then(|| self.storage.ratio(self.summary.budget_bytes));
        let judged = self.gain_monitor.reference(counted, ratio);
        self.judged(steered, judged, out);
        if decides && self.gain_monitor.asks() {
            out.push(Decision::Order(Order::Count));
        }
    }

    /// A window has ended, perhaps.
    fn judged(&mut self, steered: bool, judged: Option<Judged>, out: &mut Vec<Decision>) {
        let Some(judged) = judged else {
            return;
        };
        self.summary.judged += 1;
        match (steered, judged.steering) {
            (false, true) => self.take_over(),
            (true, false) => self.summary.stopped += 1,
            _ => {}
        }
        out.push(Decision::Note(Note::Judged(judged)));
    }

    /// Programs have read so much more from storage.
    fn stored(&mut self, bytes: u64, out: &mut Vec<Decision>) {
        let (steering, budget) = (self.gain_monitor.steering(), self.summary.budget_bytes);
        if self.storage.read(bytes, budget, steering) {
            let (read_bytes, expected_bytes) = self.storage.steered();
            self.gain_monitor.lost();
            self.summary.stopped += 1;
            self.summary.lost += 1;
            out.push(Decision::Note(Note::Loses {
                read_bytes,
                expected_bytes,
            }));
        }
        if self.storage.decides() {
            let judged = self.gain_monitor.counted(self.storage.ratio(budget));
            self.judged(false, judged, out);
        }
        let room = u64::from(self.lru_model.residency.capacity()) * BLOCK_BYTES;
        let Some(on) = self.reporting.read(self.now_ns, bytes, room, steering) else {
            return;
        };
        self.summary.reported |= on;
        if on {
            self.resumed();
        }
        out.push(Decision::Order(Order::Pause { paused: !on }));
    }

    /// Accesses are reported again: what the caches hold is not known any more. What was learnt of
    /// call sites is.
    fn resumed(&mut self) {
        for file in 0..self.files.len() as u32 {
            self.forget(BlockRun::from(file, 0, u64::MAX));
        }
        self.gain_monitor.resized(self.model.residency.capacity());
        self.storage.restart();
    }

    /// Nothing of a range belongs to the program's page cache any more.
    fn forget(&mut self, run: BlockRun) {
        for block in self.extents.blocks(run) {
            self.model.remove(block);
            self.lru_model.remove(block);
            self.extents.absent(block);
        }
    }

    /// Whether a tick would decide anything now.
    pub(crate) fn due(&self, now_ns: u64) -> bool {
        self.has_evicted() || self.is_over_limit(now_ns) || self.attribution.due()
    }

    /// Whether there may be something to drop that the policy has evicted.
    fn has_evicted(&self) -> bool {
        self.gain_monitor.steering() && self.extents.due()
    }

    /// Drops what the policy has evicted, as far as it can go now.
    fn drop_evicted(&mut self, out: &mut Vec<Decision>) {
        if !self.has_evicted() {
            return;
        }
        let PageCacheController {
            extents,
            model,
            files,
            ..
        } = self;
        let kept = |block| model.residency.slot(block).is_some();
        let now_ns = self.now_ns;
        let state = |at: ExtentPosition| {
            let file = &files[at.file as usize];
            ExtentState {
                left_alone: file.mapped || file.gone,
                is_being_read: file.readers.reading(at.number, now_ns),
            }
        };
        let mut runs = extents.take_whole(self.now_ns, kept, state);
        let stale_max = model.residency.capacity() as usize / STALE_BUDGET_DIVISOR;
        let many = extents.stale() > stale_max;
        let since_ns = self.now_ns - self.last_partial_drop_ns;
        let period_ns = PARTIAL_DROP_PERIOD_NS;
        if since_ns >= period_ns || many && since_ns >= period_ns / 10 {
            self.last_partial_drop_ns = self.now_ns;
            runs.extend(extents.take_parts(self.now_ns, kept, state));
        }
        for run in runs {
            self.drop_run(run, out);
        }
    }

    /// The figures so far.
    pub(crate) fn summary(&self) -> PageCacheSummary {
        PageCacheSummary {
            files: self.files.len() as u64,
            references: self.tick,
            steering: self.gain_monitor.steering(),
            steered_read_bytes: self.storage.steered().0,
            classes: self.model.policy.class_counts(),
            evicted_by_class: self
                .model
                .policy
                .class_counts()
                .map(|_| self.classes.evicted_bytes()),
            ..self.summary
        }
    }

    /// The files with the most bytes read, at most `count`, by key.
    pub(crate) fn busiest_files(&self, count: usize) -> Vec<(FileKey, ReadStats)> {
        let all = self.files.iter().map(|file| (file.key, file.stats));
        busiest(all, count, |&(_, tally)| tally)
    }

    /// The call sites with the most bytes read, at most `count`.
    pub(crate) fn busiest_sites(&self, count: usize) -> Vec<SiteStats> {
        let keys = self.sites.keys().iter();
        let all = keys.zip(&self.site_stats);
        let all = all.map(|(&signature, &found)| SiteStats { signature, ..found });
        busiest(all, count, |found| found.tally)
    }

    /// Profiles of the call sites now.
    pub(crate) fn sites(&self) -> Vec<SiteProfile> {
        let records = self.model.policy.sites().unwrap_or_default();
        site_profile::export(&records, |site| self.sites.keys()[site.index()])
    }

    /// Walks every invariant and panics on a broken one.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        for cache in [&self.model, &self.lru_model] {
            cache.residency.check();
            cache.policy.check(cache.residency.len());
        }
        self.extents
            .check(|block| self.model.residency.slot(block).is_some());
        self.limit.iter().for_each(CacheLimit::check);
    }
}

#[cfg(test)]
mod reference_tests;
#[cfg(test)]
mod tests;
