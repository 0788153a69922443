//! Drives a placement policy by what a program does: inputs in, decisions out, and nothing else.
//!
//! A region is *watched* until the policy has a class for it. Each first fault that is seen is
//! placed. Once it is settled the policy is asked about all its other pages, in order, as if they
//! were touched now from where the last one was: so the policy's rules on full nodes and on how
//! much of a program may be far hold for ranges as they do for pages. Where the answer is another
//! node, the program is ordered to bind the range, and what was touched before the order took
//! effect is moved: once when the program says that it has bound it, or, while it does not come to
//! a hooked call, again and again, at doubling distances while nothing comes. As the program
//! allocates more, more of what is far may be: the pages that the policy kept near are asked about
//! again. Pages of a local region are left to the kernel, whose first choice is the node that
//! touches them as well, and which knows best what is full by then; what it put elsewhere while a
//! far region's pages still had to leave is brought home after them.
//!
//! Regions that stay near are counted if the policy asks who uses what ([`counting`], or by the
//! kernel: [`hint_faults`]); what an earlier run found out about a region is applied when it is
//! allocated ([`saved_placements`]).
//!
//! Readings: a fault with huge pages brings in 2 MiB, so that a stream's faults are 512 pages
//! apart. While no two faults of a region fell into the same 2 MiB, it is numbered by these; a
//! program that touches one small page in each of five adjacent ones is taken for a stream. A
//! forked child's copies are not regions: pages that are shared cannot be moved anyway, and what
//! the child writes it touches where its parent's order says.

mod allocation_sites;
mod bind_requests;
mod classification;
mod config;
mod counting;
mod displaced_pages;
mod hint_faults;
mod lifecycle;
mod locations;
mod migrations;
mod page_runs;
mod placement_host;
mod saved_placements;
mod snapshot;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use hither_core::placement::RegionTier;
use hither_core::{Object, Process};
use rustc_hash::FxHashMap;

use self::allocation_sites::AllocationSites;
use self::bind_requests::{BindTimers, Move};
pub use self::config::SavedPlacement;
pub(crate) use self::config::{Config, KnownSiteTier, SampleSource};
#[cfg(test)]
pub(crate) use self::config::{Measured, NodeConfig};
use self::counting::Counting;
use self::displaced_pages::DisplacedPages;
pub use self::lifecycle::Locality;
use self::lifecycle::TrackedRegion;
pub(crate) use self::placement_host::{PlacementHost, Touch};
use self::saved_placements::SavedPlacements;
use super::counters::Budget;
use super::event::{Decision, Input, TimedInput};
use super::fault_recording::{FaultRecording, SCAN};
use super::region_map::{Ranges, RegionMap};
use crate::controller::Controller;
use crate::error::Result;

/// What a run came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Regions that were followed.
    pub regions: u64,
    /// Of these, decided to be far: their pages go to another node than the one that touches them.
    pub far: u64,
    /// Of these, decided to be near.
    pub near: u64,
    /// Of these, decided on by what was known of their allocation site, without watching.
    pub known: u64,
    /// Regions that were too large to be followed: more than the machine has.
    pub unfollowed: u64,
    /// First faults of regions that were seen.
    pub faults: u64,
    /// Pages that are wanted on another node than the one that touches them.
    pub pages_away: u64,
    /// Ranges that programs bound.
    pub ranges_bound: u64,
    /// Ranges that programs could not bind.
    pub ranges_refused: u64,
    /// Pages that were moved.
    pub pages_moved: u64,
    /// Pages that could not be moved.
    pub pages_refused: u64,
    /// Regions that the policy has nothing to say of before they are used: too small, or it looks
    /// at what is used alone.
    pub plain: u64,
    /// Regions whose pages were sampled.
    pub counted: u64,
    /// Regions that were placed as a region of an earlier run had its pages in the end.
    pub applied: u64,
    /// Regions that were left alone, since the program has chosen itself where they are.
    pub own: u64,
    /// Samples of who uses which pages.
    pub sampled: Locality,
    /// Pages that could not be armed, each time.
    pub unarmed: u64,
    /// How often the policy was asked about them.
    pub judged: u64,
    /// Pages that moved since they are used from elsewhere, each time.
    pub migrated: u64,
    /// Of regions of which pages moved so: samples before the first did, and after.
    pub before: Locality,
    /// After.
    pub after: Locality,
    /// Region by region, the first of them.
    pub gains: Vec<MigrationGain>,
    /// Processes that were left alone, since none of their pages could be moved.
    pub stopped: u64,
}

impl Summary {
    /// A region is gone, or the run is over.
    fn keep(&mut self, region: &TrackedRegion) {
        if region.migrated > 0 {
            self.before.join(region.before);
            self.after.join(region.after);
            let gain = MigrationGain {
                signature: region.signature,
                migrated: region.migrated,
                before: region.before,
                after: region.after,
            };
            if self.gains.len() < GAINS_MAX {
                self.gains.push(gain);
            }
        }
    }
}

/// Regions of which is kept what moving brought.
const GAINS_MAX: usize = 4096;

/// What moving pages of a region brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MigrationGain {
    /// Its allocation site.
    pub signature: u64,
    /// Pages that moved, each time.
    pub migrated: u32,
    /// Samples before the first did.
    pub before: Locality,
    /// Samples after.
    pub after: Locality,
}

/// The controller.
#[derive(Debug)]
pub(crate) struct PlacementController {
    page_bytes: u64,
    huge_page_bytes: Option<u64>,
    dry_run: bool,
    /// A region of more pages is not followed.
    pages_max: u64,
    model: PlacementHost,
    regions: RegionMap,
    /// Where an address was found last.
    found: Option<Object>,
    ranges: Ranges,
    /// By object.
    tracked: Vec<Option<TrackedRegion>>,
    generations: Vec<u32>,
    unused: Vec<Object>,
    processes: FxHashMap<u32, Process>,
    /// Numbers of processes that are gone.
    unused_processes: Vec<Process>,
    sites: AllocationSites,
    watch: FaultRecording,
    /// Far regions of which the policy keeps a part near, by process.
    limited: BTreeSet<(u32, Object)>,
    spilled: DisplacedPages,
    timers: BindTimers,
    /// Moves under way, and whether their range was bound before they began.
    jobs: FxHashMap<u64, Move>,
    job_count: u64,
    /// Regions by the number of their first page.
    bases: BTreeMap<u32, Object>,
    saved_placements: SavedPlacements,
    /// Nothing where the policy does not ask who uses what.
    counting: Option<Counting>,
    summary: Summary,
}

impl Controller for PlacementController {
    const NAME: &'static str = "memory";
    const FORMAT: (&'static str, u32) = ("hither_pages", 2);
    type Config = Config;
    type Input = Input;
    type Decision = Decision;

    fn new(config: &Config) -> Result<PlacementController> {
        config.check()?;
        let frames = config.nodes.iter().map(|node| u64::from(node.frames));
        let cpus = config.nodes.iter().map(|node| node.cpus.len()).sum();
        let known = config.sites.iter();
        let model = PlacementHost::new(config)?;
        Ok(PlacementController {
            counting: Counting::new(&model, config, cpus),
            page_bytes: config.page_bytes,
            huge_page_bytes: config.huge_page_bytes,
            dry_run: config.dry_run,
            pages_max: frames.sum::<u64>().min(1 << 31),
            model,
            regions: RegionMap::new(config.page_bytes),
            found: None,
            ranges: Ranges::default(),
            tracked: Vec::new(),
            generations: Vec::new(),
            unused: Vec::new(),
            processes: FxHashMap::default(),
            unused_processes: Vec::new(),
            sites: AllocationSites::new(known.map(|site| (site.signature, site.class))),
            watch: match config.source {
                SampleSource::Hints => FaultRecording::new(
                    Budget::of(cpus, config.cpu_permille).samples_a_second(),
                    SCAN,
                ),
                SampleSource::Armed | SampleSource::Processor => FaultRecording::new(0, 0),
            },
            limited: BTreeSet::new(),
            spilled: DisplacedPages::default(),
            timers: BindTimers::default(),
            jobs: FxHashMap::default(),
            job_count: 0,
            bases: BTreeMap::new(),
            saved_placements: SavedPlacements::new(&config.placed),
            summary: Summary::default(),
        })
    }

    fn step(&mut self, at: &TimedInput, out: &mut Vec<Decision>) {
        let now_ns = at.time_ns;
        self.model.set_now_ns(now_ns);
        while let Some((timer, key)) = self.timers.due(now_ns) {
            let waits = |(region, number): (&mut TrackedRegion, usize)| {
                region.segments[number].timer == timer
            };
            if self.segment(key).is_some_and(waits) {
                self.due(key, now_ns, out);
            }
        }
        match &at.input {
            &Input::Started { pid } | &Input::Ended { pid } => {
                let cuts = self.regions.cut_all(pid);
                self.cut(&cuts, out);
                if let Some(process) = self.processes.remove(&pid) {
                    self.model.ended(process);
                    self.unused_processes.push(process);
                }
                self.saved_placements.ended(pid);
                if let Some(counting) = &mut self.counting {
                    counting.ended(pid);
                }
            }
            &Input::Region {
                pid,
                tid,
                start,
                length,
                signature,
                cpu,
            } => self.region(now_ns, (pid, tid), (start, length), signature, cpu, out),
            &Input::RegionEnd { pid, start, length } => {
                if let Some(pages) = self.regions.pages_within(start, length) {
                    let cuts = self.regions.cut(pid, pages, now_ns);
                    self.cut(&cuts, out);
                }
            }
            &Input::Fault {
                pid,
                tid,
                cpu,
                address,
            } => self.fault(now_ns, (pid, tid), cpu, address, out),
            &Input::Load {
                pid,
                tid,
                cpu,
                address,
            } => self.load(now_ns, (pid, tid), cpu, address),
            &Input::Bound {
                pid,
                start,
                length,
                nodes,
                error,
                site,
                hint,
            } => self.bound(
                now_ns,
                (pid, start, length),
                nodes,
                error,
                (site, hint),
                out,
            ),
            &Input::Construct {
                pid,
                tid,
                cpu,
                kind,
                signature,
                threads,
            } => {
                let construct = Some((kind, signature, threads));
                self.construct(now_ns, (pid, tid), cpu, construct, out);
            }
            &Input::Thread { pid, tid, cpu } => self.construct(now_ns, (pid, tid), cpu, None, out),
            &Input::Unarmed {
                pid,
                start,
                pages,
                for_good,
                ..
            } => self.unarmed(now_ns, pid, (start, pages), for_good, out),
            &Input::Armed { pages, took_ns } => self.armed(pages, took_ns),
            Input::Located { job, found } => {
                self.located(now_ns, *job, found, out);
            }
            Input::Moved(moved) => self.moved(now_ns, moved, out),
            Input::Usage { used } => self.model.set_usage(used),
            Input::Tick => {}
        }
        self.periods(now_ns, out);
        self.watch
            .samples(self.counting.as_ref().is_some_and(Counting::samples));
        if let Some(on) = self.watch.change(now_ns) {
            out.push(Decision::Watch { on });
        }
        self.ask(out);
        // What nobody would see is not armed.
        if self.watch.is_on() {
            self.arm(now_ns, out);
        }
    }

    fn next_deadline_ns(&self) -> Option<u64> {
        let plan = self.counting.as_ref().filter(|_| self.watch.is_on());
        let plan = plan.and_then(Counting::due_ns);
        [plan, self.timers.due_ns(), self.watch.due_ns()]
            .into_iter()
            .flatten()
            .min()
    }
}

impl PlacementController {
    /// What the run came to so far.
    pub(crate) fn summary(&self) -> Summary {
        let mut summary = self.summary.clone();
        let live = self.tracked.iter().flatten();
        live.for_each(|region| summary.keep(region));
        summary
    }

    /// Where regions have their pages, for the next run.
    pub(crate) fn saved_placements(&mut self) -> Vec<SavedPlacement> {
        let live = self.tracked.iter().flatten();
        live.filter(|region| region.left == region.pages)
            .for_each(|region| self.saved_placements.keep(region, &self.model));
        self.saved_placements.all()
    }

    /// What is known of allocation sites.
    pub(crate) fn sites(&self) -> impl Iterator<Item = (u64, RegionTier)> + '_ {
        self.sites.known()
    }

    /// Walks every invariant and panics on a broken one.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        self.regions.check();
        let settled = self.counting.as_ref().is_none_or(Counting::is_settled);
        self.model.check(settled);
        self.check_hints();
        let live = self.tracked.iter().flatten();
        assert_eq!(live.count() + self.unused.len(), self.tracked.len());
        let pages = self.tracked.iter().flatten().map(|region| region.pages);
        assert!(pages.sum::<u32>() <= self.ranges.end());
    }
}
