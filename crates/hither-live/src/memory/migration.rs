//! Moves memory to its users: counts who uses what by samples, asks the policy, and has pages
//! moved.
//!
//! A sample is an access by a thread on a node to a page on a node. Where it comes from is not
//! known here ([`SampleSource`]), except that pages may have to be armed for it ([`arming`]).
//! [`counts`] makes ranges of a region's samples. The policy is asked about the cells of these
//! ranges at the end of an iteration, or ten times a second in a program without iterations, as far
//! as there are new samples ([`program`]). [`moves`] has moved what it wants.
//!
//! Choices that the papers leave open:
//!
//! - A cell that is used in an iteration counts as read once from memory, line by line, since
//!   samples only show shares. The counts are those of all iterations since threads last moved, as
//!   the paper's counters go on over iterations: a move that does not pay within one iteration is
//!   made once it would have paid.
//! - The samples of a region from before a second node used it are dropped: one thread fills the
//!   region, and then all use it. So are all of a program's samples when half of its threads have
//!   moved to other nodes.
//! - The policy learns the outcomes of its migrations when all that it asked for at once are known,
//!   and is not asked before.
//! - A process whose pages cannot be moved is left alone from then on. After a batch of which no
//!   page moved, since all were busy, the policy is not asked for a pause that doubles.

mod arming;
mod budget;
mod counts;
mod listening;
mod looks;
mod moves;
mod program;
mod region;
mod samples;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use hither_core::placement::{Action, Counters, PlacementHost};
use hither_core::{Block, Object};
use rustc_hash::FxHashMap;

use self::arming::{Arming, Pick};
pub(crate) use self::budget::{PERMILLE, arming_share, read_a_second};
use self::counts::RegionCounts;
use self::listening::Listening;
use self::moves::{MovingCost, PendingMoves};
use self::program::Program;
pub(crate) use self::region::RegionStart;
use self::region::{CountedRegion, Sharing};
use super::controller::{Locality, MemoryConfig, MigrationGain, SampleSource};
use super::event::Decision;
use super::region_map::PageNumbers;

/// The assumed cost of moving a page, until it was measured: the call, the copy, the flush of
/// translations, and the fault of the thread that finds the page gone.
const PAGE_MOVE_NS: u64 = 1_000;

/// See the module.
#[derive(Debug)]
pub(crate) struct Migration {
    host: PlacementHost,
    page_bytes: u64,
    dry_run: bool,
    source: SampleSource,
    arming: Arming,
    listening: Listening,
    /// Pages that are armed and were not touched since: a bit each, by region and block.
    armed: FxHashMap<(Object, u32), u64>,
    picks: Vec<Pick>,
    regions: BTreeMap<Object, CountedRegion>,
    /// Regions by the number of their first cell.
    bases: BTreeMap<u32, Object>,
    numbers: PageNumbers,
    generations: u64,
    programs: BTreeMap<u32, Program>,
    counters: Counters,
    actions: Vec<Action>,
    pending: Option<PendingMoves>,
    cost: MovingCost,
    assumed_move_ns: u64,
    /// Regions that could not be sampled, and when to try again.
    retries: VecDeque<(u64, Object, u64)>,
    now_ns: u64,
    pub(super) sampled: Locality,
    pub(super) judged: u64,
    pub(super) migrated: u64,
    pub(super) stopped: u64,
}

impl Migration {
    /// Nothing is counted yet. `host` has the policy.
    pub(crate) fn new(host: PlacementHost, config: &MemoryConfig) -> Migration {
        let cpus = config.nodes.iter().map(|node| node.cpus.len()).sum();
        Migration {
            page_bytes: config.page_bytes,
            dry_run: config.dry_run,
            source: config.source,
            arming: Arming::new(0, arming_share(cpus, config.cpu_permille)),
            listening: Listening::default(),
            armed: FxHashMap::default(),
            picks: Vec::new(),
            regions: BTreeMap::new(),
            bases: BTreeMap::new(),
            numbers: PageNumbers::default(),
            generations: 0,
            programs: BTreeMap::new(),
            counters: Counters::new(host.node_count(), 0),
            actions: Vec::new(),
            pending: None,
            cost: MovingCost::default(),
            assumed_move_ns: config.measured.migration_ns.unwrap_or(PAGE_MOVE_NS),
            retries: VecDeque::new(),
            now_ns: 0,
            sampled: Locality::default(),
            judged: 0,
            migrated: 0,
            stopped: 0,
            host,
        }
    }

    /// Begins to count who uses a region.
    pub(crate) fn begin(
        &mut self,
        now_ns: u64,
        object: Object,
        region: RegionStart,
        out: &mut Vec<Decision>,
    ) {
        let nodes = self.host.node_count();
        let counts = RegionCounts::new(region.pages, nodes);
        let Some(base) = self.numbers.take(counts.cells()) else {
            return;
        };
        self.host.grow(self.numbers.end());
        self.counters.grow(self.numbers.end());
        self.bases.insert(base, object);
        self.generations += 1;
        let counted = CountedRegion {
            pid: region.pid,
            process: region.process,
            start: region.start,
            pages: region.pages,
            signature: region.signature,
            base,
            generation: self.generations,
            counts,
            users: Sharing::Nobody,
            by_node: vec![0; nodes],
            cuts: Vec::new(),
            before: Locality::default(),
            after: Locality::default(),
            migrated: 0,
        };
        let program = self.programs.entry(region.pid);
        let program = program.or_insert_with(|| Program::new(region.process, now_ns));
        self.listening.wake(now_ns);
        if !program.stopped && self.source == SampleSource::Armed {
            self.arming.begin(now_ns, object.0, region.pages);
            out.push(counted.sampling(true, self.page_bytes));
        }
        self.regions.insert(object, counted);
    }

    /// Pages of a counted region were unmapped.
    pub(crate) fn cut(&mut self, object: Object, pages: Range<u32>) {
        let Some(region) = self.regions.get_mut(&object) else {
            return;
        };
        region.counts.cut(pages.clone());
        let cell_pages = region.counts.cell_pages();
        let whole = pages.start.div_ceil(cell_pages)..pages.end / cell_pages;
        whole.for_each(|cell| self.host.remove(Block(region.base + cell)));
        region.cuts.push(pages);
    }

    /// A region is gone, or is left alone from now on. Returns what moving it has changed.
    pub(crate) fn end(&mut self, object: Object, out: &mut Vec<Decision>) -> Option<MigrationGain> {
        let region = self.regions.remove(&object)?;
        self.bases.remove(&region.base);
        let cells = region.counts.cells();
        (0..cells).for_each(|cell| self.host.remove(Block(region.base + cell)));
        self.host.region_freed(object);
        self.numbers.release(region.base, cells);
        if self.source == SampleSource::Armed {
            self.arming.end(object.0);
            self.armed.retain(|&(of, _), _| of != object);
            out.push(region.sampling(false, self.page_bytes));
        }
        region.gain()
    }

    /// A process is gone, and its regions before it.
    pub(crate) fn process_ended(&mut self, pid: u32) {
        if let Some(program) = self.programs.remove(&pid) {
            self.host.process_exited(program.process);
        }
    }

    /// When the next step is due. Nothing is armed while faults are not `recorded`.
    pub(crate) fn due_ns(&self, recorded: bool) -> Option<u64> {
        let retry = self.retries.front().map(|&(due_ns, ..)| due_ns);
        let programs = self.programs.values().filter(|_| self.pending.is_none());
        let programs = programs.filter(|program| !program.iterates(self.now_ns));
        let look = programs.filter_map(Program::look_due_ns).min();
        let arming = self.arming.due_ns().filter(|_| recorded);
        [retry, look, arming, self.listening.due_ns()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Stops sampling and moving pages of a process.
    pub(crate) fn stop(&mut self, pid: u32, out: &mut Vec<Decision>) {
        let Some(program) = self.programs.get_mut(&pid).filter(|of| !of.stopped) else {
            return;
        };
        program.stopped = true;
        self.stopped += 1;
        let regions = self.regions.iter().filter(|(_, region)| region.pid == pid);
        for (&object, region) in regions.filter(|_| self.source == SampleSource::Armed) {
            self.arming.end(object.0);
            out.push(region.sampling(false, self.page_bytes));
        }
    }

    /// Sends what the policy asked for to the mover. A look leaves it here.
    pub(crate) fn carry_out(&mut self, jobs: &mut u64, out: &mut Vec<Decision>) {
        if self.actions.is_empty() {
            return;
        }
        self.send(jobs, out);
        for region in self.regions.values_mut() {
            region.by_node.fill(0);
        }
    }

    /// The region of a cell, the cell's index there, and its pages.
    fn cell_of(&self, block: Block) -> Option<(Object, u32, u32)> {
        let (&base, &object) = self.bases.range(..=block.0).next_back()?;
        let region = self.regions.get(&object)?;
        let cell = block.0 - base;
        let pages = region.pages_of(cell);
        (cell < region.counts.cells()).then_some((object, cell, pages.len() as u32))
    }

    /// Takes down how many pages are in use on each node.
    pub(crate) fn set_used_frames(&mut self, used: &[u32]) {
        self.host.set_used_frames(used);
    }

    /// Takes down the time.
    pub(crate) fn set_now_ns(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        self.host.set_now_ns(now_ns);
    }

    /// Pages of a cell of the region, and where its cells are, by the kernel's numbers, as far as
    /// that is known. `None` for a region of which nothing was moved.
    pub(crate) fn homes(&self, object: Object) -> Option<(u32, Vec<Option<u32>>)> {
        let region = self.regions.get(&object)?;
        let home = |cell| {
            let home = self.host.home(Block(region.base + cell))?;
            Some(self.host.kernel_number(home))
        };
        let homes = (0..region.counts.cells()).map(home).collect();
        Some((region.counts.cell_pages(), homes))
    }

    /// Whether pages of the region were moved.
    pub(crate) fn has_moved(&self, object: Object) -> bool {
        let region = self.regions.get(&object);
        region.is_some_and(|region| region.migrated > 0)
    }

    /// How long nobody listened to samples, since nothing came of them.
    pub(crate) fn paused_ns(&self) -> u64 {
        match self.source {
            SampleSource::Armed => 0,
            SampleSource::Hints | SampleSource::Processor => self.listening.paused_ns,
        }
    }

    /// What moving pages of the regions that are still there has changed.
    pub(crate) fn gains(&self) -> impl Iterator<Item = MigrationGain> + '_ {
        self.regions.values().filter_map(CountedRegion::gain)
    }

    /// Walks every invariant and panics on a broken one.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        self.host.check(self.pending.is_none());
        assert_eq!(self.regions.len(), self.bases.len());
        let cells = self.regions.values().map(|region| region.counts.cells());
        assert!(cells.sum::<u32>() <= self.numbers.end());
        let is_live = |(object, block): &(Object, u32)| {
            let region = self.regions.get(object);
            region.is_some_and(|region| block * self::arming::BLOCK_PAGES < region.pages)
        };
        assert!(self.armed.keys().all(is_live));
    }
}
