//! Decides what of a program's files the page cache keeps: pure, so that the same inputs give the
//! same decisions.
//!
//! A policy of the simulator's, unchanged, owns a budget of blocks. It hears of every block that
//! the program reads or writes; what it evicts is dropped as [`extents`] says, and [`judge`]
//! whether it is worth that.
//!
//! What a reference is. A request that spans blocks is one reference to each, in ascending order,
//! as in the simulator. A request that begins in the block in which the same thread's last one to
//! that file ended is none to that block: `fgets` over a file reads each block four times, which is
//! no loop.
//!
//! What is left alone. A file that is mapped: touches are not seen, and mapped pages are not
//! dropped. What was written in the last 40 seconds: `POSIX_FADV_DONTNEED` would have it written to
//! the disk, which may never be needed. What was in the page cache before the program came, which
//! somebody else put there. What readahead brings beyond what was read is not in the model; it goes
//! with its extent.

mod extent_readers;
mod extents;
mod gain_monitor;
mod stats;

use hither_core::registry::{Mechanism, ReplacementEntry, ReplacementSettings, baseline};
use hither_core::replacement::{ClassCounts, SiteRecord};
use hither_core::site_profile::{self, SiteProfile};
use hither_core::{
    Access, AccessResult, Block, NEVER, Node, Object, Op, Process, ReplacementPolicy, Residency,
    Site, Spec, Thread,
};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use self::extent_readers::{ExtentReaders, LeftExtent};
pub(crate) use self::extents::{BLOCK_BYTES, EXTENT_BYTES};
use self::extents::{BlockPosition, BlockRun, ExtentState, Extents};
use self::gain_monitor::GainMonitor;
use self::stats::{BlockPatterns, busiest};
pub use self::stats::{ReadStats, SiteStats};
use super::event::{Decision, Input, TimedInput};
use crate::controller::Controller;
use crate::decision_log::hex;
use crate::error::{Error, Result};
use crate::observe::Numbers;

/// Stale blocks are dropped piecemeal when they are this part of the budget.
const STALE_PART: usize = 8;

/// Or so long after the last time, and not again sooner than a tenth of it: what was written is
/// stale for a while.
const PARTS_NS: u64 = 1_000_000_000;

/// A budget that changes by less than this part of itself is left as it is: what is known of
/// recency is lost with it.
const BUDGET_PART: u64 = 16;

/// What the controller starts from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Config {
    /// The policy with its parameters.
    pub(crate) policy: String,
    /// What the program's files may have of the page cache.
    pub(crate) budget_bytes: u64,
    /// What they would have of it without steering; more, where the budget leaves room for what is
    /// on its way in.
    pub(crate) alone_bytes: u64,
    /// Of blocks; a log of another size does not replay.
    pub(crate) block_bytes: u64,
    /// Decisions are not carried out.
    pub(crate) dry_run: bool,
    /// Leave alone what was in the page cache before.
    pub(crate) spare_preexisting: bool,
    /// What is known of call sites.
    pub(crate) sites: Vec<KnownSitePattern>,
}

/// What is known of a call site; see [`SiteProfile`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KnownSitePattern {
    #[serde(with = "hex")]
    pub(crate) signature: u64,
    pub(crate) sequential: u64,
    pub(crate) looping: u64,
    pub(crate) period: u64,
}

/// What a run of the controller comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Files that the program used.
    pub files: u64,
    /// Of these, mapped ones, left alone.
    pub mapped: u64,
    /// Of these, those that could not be got at.
    pub unreachable: u64,
    /// The budget at the end.
    pub budget_bytes: u64,
    /// References to blocks.
    pub references: u64,
    /// Those that the cache did not hold, the policy's or, as long as evictions were not carried
    /// out, least-recently-used's; in bytes.
    pub missed_bytes: u64,
    /// Those that least-recently-used would not have held in what the kernel has for them without
    /// steering; in bytes.
    pub lru_missed_bytes: u64,
    /// Bytes that the policy evicted while that was carried out.
    pub evicted_bytes: u64,
    /// Ranges that were to be dropped, and their bytes: whole extents, which may hold more than was
    /// read.
    pub drops: u64,
    /// See `drops`.
    pub dropped_bytes: u64,
    /// Bytes in the page cache before the program came to them.
    pub preexisting_bytes: u64,
    /// Bytes that the policy would have kept and the kernel did not.
    pub absent_bytes: u64,
    /// Windows that were judged.
    pub judged: u64,
    /// Of these, at the end of how many steering stopped.
    pub stopped: u64,
    /// Whether evictions are carried out.
    pub steering: bool,
    /// How references were classified, by a policy that classifies.
    pub classes: Option<ClassCounts>,
    /// Of `evicted_bytes`, by class, those of each.
    pub evicted_by_class: Option<ClassCounts>,
}

/// A cache and who rules it.
struct Cache {
    residency: Residency,
    policy: Box<dyn ReplacementPolicy>,
}

impl Cache {
    fn new(spec: &Spec<ReplacementEntry>, capacity: u32, sites: &[SiteRecord]) -> Cache {
        Cache {
            residency: Residency::new(capacity, 0),
            policy: spec.build(&ReplacementSettings { capacity, sites }),
        }
    }

    fn access(&mut self, access: &Access) -> AccessResult {
        self.residency.access(self.policy.as_mut(), access)
    }

    fn remove(&mut self, block: Block) -> bool {
        self.residency.remove(self.policy.as_mut(), block)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct File {
    key: u64,
    visits: ExtentReaders,
    tally: ReadStats,
    mapped: bool,
    gone: bool,
}

/// See the module.
pub(crate) struct PageCacheController {
    spec: Spec<ReplacementEntry>,
    lru: Spec<ReplacementEntry>,
    model: Cache,
    shadow: Cache,
    judge: GainMonitor,
    extents: Extents,
    files: Vec<File>,
    by_key: FxHashMap<u64, u32>,
    /// Signatures; site 0 is the unknown one.
    sites: Numbers<u64>,
    /// By site.
    site_tallies: Vec<SiteStats>,
    classes: BlockPatterns,
    spare_preexisting: bool,
    /// Of what there would be without steering all was used.
    full: bool,
    /// By block, the last access to it: what a cache of another size is filled by.
    latest: Vec<Access>,
    tick: u64,
    now_ns: u64,
    parts_ns: u64,
    /// Where asking goes on.
    doubted: (u32, u32),
    summary: Summary,
}

impl Controller for PageCacheController {
    const NAME: &'static str = "page_cache";
    const FORMAT: (&'static str, u32) = ("hither_files", 3);
    type Config = Config;
    type Input = Input;
    type Decision = Decision;

    /// An error where the policy is none for a running program.
    fn new(config: &Config) -> Result<PageCacheController> {
        let wrong = |what: String| Err(Error::Log(what));
        if config.block_bytes != BLOCK_BYTES {
            return wrong(format!("blocks of {} bytes", config.block_bytes));
        }
        let spec: Spec<ReplacementEntry> = match config.policy.parse() {
            Ok(spec) => spec,
            Err(error) => return wrong(format!("{}: {error}", config.policy)),
        };
        if !spec.entry().runs(Mechanism::PageCache) {
            return wrong(format!("{}: it needs the future", spec.entry().name));
        }
        let lru = baseline();
        let mut sites = Numbers::default();
        sites.number(0);
        let known: Vec<SiteProfile> = config.sites.iter().map(SiteProfile::from).collect();
        let numbered = config.sites.iter();
        let numbered = numbered.map(|site| (Site(sites.number(site.signature)), site.signature));
        let records = site_profile::import(&known, numbered.collect::<Vec<_>>());
        let capacity = blocks(config.budget_bytes);
        let alone = blocks(config.alone_bytes).max(capacity);
        Ok(PageCacheController {
            model: Cache::new(&spec, capacity, &records),
            shadow: Cache::new(&lru, alone, &[]),
            judge: GainMonitor::new(capacity),
            spec,
            lru,
            extents: Extents::default(),
            files: Vec::new(),
            by_key: FxHashMap::default(),
            sites,
            site_tallies: Vec::new(),
            classes: BlockPatterns::default(),
            spare_preexisting: config.spare_preexisting,
            full: false,
            latest: Vec::new(),
            tick: 0,
            now_ns: 0,
            parts_ns: 0,
            doubted: (0, 0),
            summary: Summary {
                budget_bytes: config.budget_bytes,
                ..Summary::default()
            },
        })
    }

    fn step(&mut self, at: &TimedInput, out: &mut Vec<Decision>) {
        self.now_ns = self.now_ns.max(at.time_ns);
        match at.input {
            Input::Opened { file } => {
                let number = self.file(file);
                self.files[number as usize].gone = false;
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
                let (file, site) = (self.file(file), Site(self.sites.number(signature)));
                let access = Access {
                    tick: 0,
                    next: NEVER,
                    block: Block(0),
                    object: Object(file),
                    index: 0,
                    site,
                    thread: Thread(thread),
                    process: Process(process),
                    op: if write { Op::Write } else { Op::Read },
                    node: Node(0),
                    count: 1,
                };
                self.access(access, offset, length, out);
            }
            Input::Mapped { file } => {
                let file = self.file(file);
                let was = std::mem::replace(&mut self.files[file as usize].mapped, true);
                if !was {
                    self.summary.mapped += 1;
                    self.forget(BlockRun::from(file, 0, u64::MAX));
                }
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
            } => {
                if self.spare_preexisting {
                    let file = self.file(file);
                    let marked = self
                        .extents
                        .preexisting(BlockRun::from(file, offset, length));
                    self.summary.preexisting_bytes += marked * BLOCK_BYTES;
                }
            }
            Input::Absent {
                file,
                offset,
                length,
            } => {
                let run = BlockRun::from(self.file(file), offset, length);
                self.extents.not_preexisting(run);
                if !self.judge.steering() {
                    return;
                }
                for block in self.extents.blocks(run) {
                    let kept = self.model.remove(block);
                    self.summary.absent_bytes += u64::from(kept) * BLOCK_BYTES;
                    self.extents.lost(block);
                }
            }
            Input::Gone { file } => {
                let file = self.file(file);
                let was = std::mem::replace(&mut self.files[file as usize].gone, true);
                self.summary.unreachable += u64::from(!was);
                self.forget(BlockRun::from(file, 0, u64::MAX));
            }
            Input::Budget { bytes, alone_bytes } => self.resize(bytes, alone_bytes),
            Input::Tick => self.settle(out),
        }
    }
}

impl PageCacheController {
    fn file(&mut self, key: u64) -> u32 {
        *self.by_key.entry(key).or_insert_with(|| {
            self.files.push(File {
                key,
                ..File::default()
            });
            self.files.len() as u32 - 1
        })
    }

    fn access(&mut self, access: Access, offset: u64, length: u64, out: &mut Vec<Decision>) {
        let file = &mut self.files[access.object.index()];
        if length == 0 || file.mapped || file.gone {
            return;
        }
        let run = BlockRun::from(access.object.0, offset, length);
        let (first, last) = (run.first, run.first + (run.blocks - 1));
        let again = file.visits.last(access.thread.0) == Some(first);
        for index in first + u32::from(again)..=last {
            let file = &mut self.files[access.object.index()];
            if let Some(left) = file.visits.touch(access.thread.0, index, self.now_ns) {
                self.left(access.object.0, left);
            }
            self.reference(Access { index, ..access }, out);
        }
    }

    /// Who it was, and what it was taken for.
    fn count(&mut self, access: &Access, miss: bool, lru_miss: bool) {
        let slot = self.model.residency.slot(access.block);
        let class = slot.and_then(|slot| self.model.policy.class(slot));
        self.classes.set(access.block.index(), class);
        let file = &mut self.files[access.object.index()];
        file.tally.reference(miss, lru_miss);
        let site = access.site.index();
        if site >= self.site_tallies.len() {
            self.site_tallies.resize(site + 1, SiteStats::default());
        }
        let of_site = &mut self.site_tallies[site];
        of_site.class = class;
        of_site.tally.reference(miss, lru_miss);
    }

    /// A reader has left an extent. What was read through is one from now on, if the policy has
    /// kept most of it; else nothing of it is kept: the rest would stay in the page cache all the
    /// same, beyond the budget.
    fn left(&mut self, file: u32, left: LeftExtent) {
        let at = (file, left.extent);
        self.extents.left(at);
        if !left.read_through {
            return;
        }
        let blocks = self.extents.blocks_of(at);
        let kept = |&&block: &&Block| self.model.residency.slot(block).is_some();
        if 2 * blocks.iter().filter(kept).count() >= blocks.len() {
            self.extents.read_through(at);
        } else {
            self.give_up(&blocks);
        }
    }

    /// The policy has evicted a block: with it goes the rest of an extent that is one.
    fn evicted(&mut self, block: Block) {
        self.gone(block);
        if let Some(rest) = self.extents.broken_up(block) {
            self.give_up(&rest);
        }
    }

    /// Has nothing of these kept. A policy hears of them as of blocks that were lost.
    fn give_up(&mut self, blocks: &[Block]) {
        for &block in blocks {
            if self.model.remove(block) {
                self.gone(block);
            }
        }
    }

    fn gone(&mut self, block: Block) {
        if self.judge.steering() {
            self.extents.evicted(block);
            self.classes.evicted(block.index());
            self.summary.evicted_bytes += BLOCK_BYTES;
        }
    }

    fn reference(&mut self, access: Access, out: &mut Vec<Decision>) {
        let place = BlockPosition {
            file: access.object.0,
            index: access.index,
        };
        let write = access.op == Op::Write;
        let Some(block) = self.extents.accessed(place, write, self.now_ns) else {
            return;
        };
        let access = Access {
            block,
            tick: self.tick,
            ..access
        };
        self.tick += 1;
        match self.latest.get_mut(block.index()) {
            Some(latest) => *latest = access,
            None => self.latest.push(access),
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
        let lru = self.shadow.access(&access);
        let lru_miss = lru != AccessResult::Hit;
        let full = matches!(lru, AccessResult::Miss { evicted: Some(_) });
        if full && !std::mem::replace(&mut self.full, true) {
            out.push(Decision::Full);
        }
        let steered = self.judge.steering();
        let missed = if steered { miss } else { lru_miss };
        self.summary.missed_bytes += u64::from(missed) * BLOCK_BYTES;
        self.summary.lru_missed_bytes += u64::from(lru_miss) * BLOCK_BYTES;
        self.count(&access, missed, lru_miss);
        if let Some(judged) = self.judge.reference(miss, lru_miss, evicted.is_some()) {
            self.summary.judged += 1;
            match (steered, judged.steering) {
                (false, true) => self.take_over(),
                (true, false) => self.summary.stopped += 1,
                _ => {}
            }
            out.push(Decision::Judged(judged));
        }
    }

    /// Evictions are carried out from now on. What the policy would have kept is not what the
    /// kernel has kept meanwhile, which is by and large what least-recently-used holds: the policy
    /// goes on from there, with what was used last, as the kernel may have taken more of the rest.
    fn take_over(&mut self) {
        self.extents.nothing_stale();
        let capacity = blocks(self.summary.budget_bytes);
        self.renew(capacity);
        let mut held = self.held(&self.shadow);
        let beyond = held.len().saturating_sub(capacity as usize);
        for access in held.drain(..beyond) {
            self.gone(access.block);
        }
        self.fill(held);
    }

    /// Nothing of a range is the program's page cache any more.
    fn forget(&mut self, run: BlockRun) {
        for block in self.extents.blocks(run) {
            self.model.remove(block);
            self.shadow.remove(block);
            self.extents.lost(block);
        }
    }

    /// Whether a tick would do anything.
    pub(crate) fn due(&self) -> bool {
        self.judge.steering() && self.extents.due()
    }

    /// Drops what is to be dropped.
    fn settle(&mut self, out: &mut Vec<Decision>) {
        if !self.due() {
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
        let state = |(file, extent): (u32, u32)| {
            let file = &files[file as usize];
            ExtentState {
                left_alone: file.mapped || file.gone,
                read: file.visits.reading(extent, now_ns),
            }
        };
        let mut runs = extents.whole(self.now_ns, kept, state);
        let many = extents.stale() > model.residency.capacity() as usize / STALE_PART;
        let since_ns = self.now_ns - self.parts_ns;
        if since_ns >= PARTS_NS || many && since_ns >= PARTS_NS / 10 {
            self.parts_ns = self.now_ns;
            runs.extend(extents.parts(self.now_ns, kept, state));
        }
        for run in runs {
            let length = u64::from(run.blocks) * BLOCK_BYTES;
            self.summary.drops += 1;
            self.summary.dropped_bytes += length;
            out.push(Decision::Drop {
                file: self.files[run.file as usize].key,
                offset: u64::from(run.first) * BLOCK_BYTES,
                length,
            });
        }
    }

    /// Extents to ask the kernel about, at most so many, by file and offset: of which the model, or
    /// somebody else, has something. They come in turn; which ones are asked about is no decision
    /// of the controller's. As long as evictions are not carried out the model is not what is
    /// cached.
    pub(crate) fn doubtful(&mut self, count: usize) -> Vec<(u64, u64)> {
        let steering = self.judge.steering();
        let kept = |block| steering && self.model.residency.slot(block).is_some();
        let held = self.extents.held(self.doubted, count, kept);
        self.doubted = match held.last() {
            Some(&(file, extent)) if held.len() == count => (file, extent + 1),
            _ => (0, 0),
        };
        let place = |(file, extent): (u32, u32)| {
            let offset = u64::from(extent) * EXTENT_BYTES;
            (self.files[file as usize].key, offset)
        };
        held.into_iter().map(place).collect()
    }

    /// Makes room, or uses what there is: caches of the new size that start from what the old ones
    /// held, in the order in which it was last used, and from what was learnt of call sites. No
    /// policy can be asked for a victim while it has room.
    fn resize(&mut self, bytes: u64, alone_bytes: u64) {
        let before = self.summary.budget_bytes;
        if bytes.abs_diff(before) < before / BUDGET_PART {
            return;
        }
        self.summary.budget_bytes = bytes;
        let capacity = blocks(bytes);
        let old = self.renew(capacity);
        let held = self.held(&old);
        self.fill(held);
        let shadow = Cache::new(&self.lru, blocks(alone_bytes).max(capacity), &[]);
        let old = std::mem::replace(&mut self.shadow, shadow);
        for access in self.held(&old) {
            self.shadow.access(&access);
        }
        self.judge.resized(capacity);
    }

    /// An empty model of this size, that knows of call sites what the one before it has learnt,
    /// which is returned.
    fn renew(&mut self, capacity: u32) -> Cache {
        let sites = self.model.policy.sites().unwrap_or_default();
        let model = Cache::new(&self.spec, capacity, &sites);
        std::mem::replace(&mut self.model, model)
    }

    /// Has the model hold these, as far as it has room.
    fn fill(&mut self, held: Vec<Access>) {
        let mut given_up = Vec::new();
        for access in held {
            if let AccessResult::Miss {
                evicted: Some(evicted),
            } = self.model.access(&access)
            {
                given_up.push(evicted);
            }
        }
        for evicted in given_up {
            self.evicted(evicted);
        }
    }

    /// What a cache holds, the latest last.
    fn held(&self, cache: &Cache) -> Vec<Access> {
        let held = cache.residency.resident();
        let mut held: Vec<Access> = held.map(|block| self.latest[block.index()]).collect();
        held.sort_by_key(|access| access.tick);
        held
    }

    /// What came of it so far.
    pub(crate) fn summary(&self) -> Summary {
        Summary {
            files: self.files.len() as u64,
            references: self.tick,
            steering: self.judge.steering(),
            classes: self.model.policy.class_counts(),
            evicted_by_class: self
                .model
                .policy
                .class_counts()
                .map(|_| self.classes.evicted_bytes()),
            ..self.summary
        }
    }

    /// The files that most was read of, at most so many, by key.
    pub(crate) fn busiest_files(&self, count: usize) -> Vec<(u64, ReadStats)> {
        let all = self.files.iter().map(|file| (file.key, file.tally));
        busiest(all, count, |&(_, tally)| tally)
    }

    /// The call sites that read most, at most so many.
    pub(crate) fn busiest_sites(&self, count: usize) -> Vec<SiteStats> {
        let keys = self.sites.keys().iter();
        let all = keys.zip(&self.site_tallies);
        let all = all.map(|(&signature, &found)| SiteStats { signature, ..found });
        busiest(all, count, |found| found.tally)
    }

    /// What is known of call sites now.
    pub(crate) fn sites(&self) -> Vec<SiteProfile> {
        let records = self.model.policy.sites().unwrap_or_default();
        site_profile::export(&records, |site| self.sites.keys()[site.index()])
    }

    /// Walks every invariant and panics on a broken one.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        for cache in [&self.model, &self.shadow] {
            cache.residency.check();
            cache.policy.check(cache.residency.len());
        }
        self.extents
            .check(|block| self.model.residency.slot(block).is_some());
    }
}

impl From<&KnownSitePattern> for SiteProfile {
    fn from(site: &KnownSitePattern) -> SiteProfile {
        SiteProfile {
            signature: site.signature,
            sequential: site.sequential,
            looping: site.looping,
            period: site.period,
        }
    }
}

impl From<&SiteProfile> for KnownSitePattern {
    fn from(site: &SiteProfile) -> KnownSitePattern {
        KnownSitePattern {
            signature: site.signature,
            sequential: site.sequential,
            looping: site.looping,
            period: site.period,
        }
    }
}

impl BlockRun {
    /// The blocks that a range of bytes touches; those beyond what a number holds (64 TiB) are one
    /// with the last.
    fn from(file: u32, offset: u64, length: u64) -> BlockRun {
        let block = |byte: u64| (byte / BLOCK_BYTES).min(u64::from(u32::MAX - 1)) as u32;
        let (first, last) = (
            block(offset),
            block(offset.saturating_add(length.max(1) - 1)),
        );
        BlockRun {
            file,
            first,
            blocks: last - first + 1,
        }
    }
}

/// The blocks of a budget.
fn blocks(bytes: u64) -> u32 {
    u32::try_from(bytes / BLOCK_BYTES)
        .unwrap_or(u32::MAX)
        .max(1)
}

#[cfg(test)]
mod tests;
