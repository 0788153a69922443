//! What is kept for moving memory to its users, and how regions come and go.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use hither_core::placement::{Action, Counters, PlacementHost};
use hither_core::{Block, Object};
use hither_ids::{KernelNode, Pid};
use hither_kernel::writable_memory::MemoryKind;

use super::super::budget::share;
use super::super::config::{MemoryConfig, SampleSource};
use super::super::event::Decision;
use super::super::locality::{Locality, MigrationGain};
use super::super::region_map::PageNumbers;
use super::armed_pages::{ArmedPages, Touches};
use super::arming::{Arming, Pick};
use super::counts::RegionCounts;
use super::listening::Listening;
use super::pending::{MovingCost, PendingMoves};
use super::program::Program;
use super::region::{CountedRegion, RegionStart, Sharing};
use crate::iterations::FoundIterations;

/// The assumed cost of moving a page, until it was measured: the call, the copy, the flush of
/// translations, and the fault of the thread that finds the page gone.
const PAGE_MOVE_NS: u64 = 1_000;

/// See the module.
#[derive(Debug)]
pub(crate) struct Migration {
    pub(super) host: PlacementHost,
    pub(super) page_bytes: u64,
    pub(super) dry_run: bool,
    pub(super) source: SampleSource,
    pub(super) arming: Arming,
    pub(super) listening: Listening,
    pub(super) armed: ArmedPages,
    pub(super) touches: Touches,
    pub(super) picks: Vec<Pick>,
    pub(super) regions: BTreeMap<Object, CountedRegion>,
    /// Regions by the number of their first cell.
    pub(super) bases: BTreeMap<u32, Object>,
    pub(super) numbers: PageNumbers,
    pub(super) generations: u64,
    pub(super) programs: BTreeMap<Pid, Program>,
    pub(super) counters: Counters,
    pub(super) actions: Vec<Action>,
    pub(super) pending: Option<PendingMoves>,
    pub(super) cost: MovingCost,
    pub(super) assumed_move_ns: u64,
    /// Regions that could not be sampled, and when to try again.
    pub(super) retries: VecDeque<(u64, Object, u64)>,
    pub(super) now_ns: u64,
    pub(crate) sampled: Locality,
    /// Samples by kind of memory.
    pub(super) by_kind: [u64; MemoryKind::ALL.len()],
    /// Iterations of the process that had most of them, of those that have ended.
    ended_iterations: FoundIterations,
    pub(crate) judged: u64,
    pub(crate) migrated: u64,
    pub(crate) stopped: u64,
}

impl Migration {
    /// Nothing is counted yet. `host` has the policy.
    pub(crate) fn new(host: PlacementHost, config: &MemoryConfig) -> Migration {
        Migration {
            page_bytes: config.page_bytes,
            dry_run: config.dry_run,
            source: config.source,
            arming: Arming::new(0, share(config.cpu_permille)),
            listening: Listening::default(),
            armed: ArmedPages::default(),
            touches: Touches::default(),
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
            by_kind: [0; MemoryKind::ALL.len()],
            ended_iterations: FoundIterations::default(),
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
            kind: region.kind,
            base,
            generation: self.generations,
            counts,
            users: Sharing::Nobody,
            by_node: vec![0; nodes],
            cuts: Vec::new(),
            huge: BTreeSet::new(),
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
        self.touches.cut(object, &pages);
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
            self.armed.forget(object);
            self.touches.forget(object);
            out.push(region.sampling(false, self.page_bytes));
        }
        region.gain()
    }

    /// A process is gone, and its regions before it.
    pub(crate) fn process_ended(&mut self, pid: Pid) {
        if let Some(program) = self.programs.remove(&pid) {
            self.ended_iterations = more(self.ended_iterations, program.found);
            self.host.process_exited(program.process);
        }
    }

    /// When the next step is due. Nothing is armed while faults are not `recorded`.
    pub(crate) fn due_ns(&self, recorded: bool) -> Option<u64> {
        let retry = self.retries.front().map(|&(due_ns, ..)| due_ns);
        let programs = self.programs.values().filter(|_| self.pending.is_none());
        let programs = programs.filter(|program| !program.iterates(self.now_ns));
        let ask = programs.filter_map(Program::ask_due_ns).min();
        let arming = self.arming.due_ns().filter(|_| recorded);
        [retry, ask, arming, self.listening.due_ns()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Stops sampling and moving pages of a process.
    pub(crate) fn stop(&mut self, pid: Pid, out: &mut Vec<Decision>) {
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
    pub(super) fn cell_of(&self, block: Block) -> Option<(Object, u32, u32)> {
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
    /// that is known. `None` for a region that is not counted.
    pub(crate) fn homes(&self, object: Object) -> Option<(u32, Vec<Option<KernelNode>>)> {
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

    /// Samples by the kind of memory, where no allocation has reported it.
    pub(crate) fn sampled_by_kind(&self) -> BTreeMap<&'static str, u64> {
        let named = MemoryKind::ALL.into_iter().zip(self.by_kind);
        let named = named.filter(|&(_, samples)| samples > 0);
        named
            .map(|(kind, samples)| (kind.name(), samples))
            .collect()
    }

    /// The iterations of the process that had most of them.
    pub(crate) fn iterations(&self) -> FoundIterations {
        let found = self.programs.values().map(|program| program.found);
        found.fold(self.ended_iterations, more)
    }

    /// Walks every invariant and panics on a broken one.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        self.host.check(self.pending.is_none());
        assert_eq!(self.regions.len(), self.bases.len());
        let cells = self.regions.values().map(|region| region.counts.cells());
        assert!(cells.sum::<u32>() <= self.numbers.end());
        let is_live = |(object, page): (Object, hither_ids::PageIndex)| {
            let region = self.regions.get(&object);
            region.is_some_and(|region| page.0 < region.pages)
        };
        assert!(self.armed.ends().all(is_live));
    }
}

/// Of two processes' iterations, those of the one that had more.
fn more(one: FoundIterations, other: FoundIterations) -> FoundIterations {
    let key = |of: &FoundIterations| (of.count, of.constructs);
    std::cmp::max_by_key(other, one, key)
}
