//! The controller's state, and how it takes an input in. What it does about each kind of input is
//! in the files beside this one.

use std::collections::{BTreeMap, BTreeSet};

use hither_core::placement::{PlacementHost, RegionTier};
use hither_core::{Object, Process};
use rustc_hash::FxHashMap;

use super::super::counters::SamplingBudget;
use super::super::event::{Decision, Input, TimedInput};
use super::super::fault_recording::{FaultRecording, SCAN_PAGES};
use super::super::region_map::{PageNumbers, RegionMap};
use super::access_counting::AccessCounting;
use super::allocation_sites::AllocationSites;
use super::bind_segments::{BindTimers, SegmentMove};
use super::config::{MemoryConfig, SampleSource, SavedPlacement};
use super::displaced_pages::DisplacedPages;
use super::saved_placements::SavedPlacements;
use super::summary::MemorySummary;
use super::tracked_region::TrackedRegion;
use crate::controller::Controller;
use crate::error::Result;

/// The controller of the memory mechanism.
#[derive(Debug)]
pub(crate) struct PlacementController {
    pub(super) page_bytes: u64,
    pub(super) huge_page_bytes: Option<u64>,
    pub(super) dry_run: bool,
    /// Regions of more pages are not tracked.
    pub(super) pages_max: u64,
    pub(super) host: PlacementHost,
    pub(super) regions: RegionMap,
    /// The region of the last address that was looked up.
    pub(super) found: Option<Object>,
    pub(super) page_numbers: PageNumbers,
    /// By object.
    pub(super) tracked: Vec<Option<TrackedRegion>>,
    /// By object, how many regions had that number before.
    pub(super) generations: Vec<u32>,
    pub(super) unused: Vec<Object>,
    pub(super) processes: FxHashMap<u32, Process>,
    /// Numbers of processes that have ended.
    pub(super) unused_processes: Vec<Process>,
    pub(super) sites: AllocationSites,
    pub(super) recording: FaultRecording,
    /// Far regions of which the policy keeps a part near, by process.
    pub(super) limited: BTreeSet<(u32, Object)>,
    pub(super) displaced: DisplacedPages,
    pub(super) timers: BindTimers,
    /// Moves of segments under way, by job.
    pub(super) jobs: FxHashMap<u64, SegmentMove>,
    pub(super) job_count: u64,
    /// Regions by the number of their first page.
    pub(super) bases: BTreeMap<u32, Object>,
    pub(super) saved_placements: SavedPlacements,
    /// `None` where the policy does not decide by access counts.
    pub(super) counting: Option<AccessCounting>,
    pub(super) summary: MemorySummary,
}

impl Controller for PlacementController {
    const NAME: &'static str = "memory";
    const FORMAT: (&'static str, u32) = ("hither_memory", 2);
    type Config = MemoryConfig;
    type Input = Input;
    type Decision = Decision;

    fn new(config: &MemoryConfig) -> Result<PlacementController> {
        config.check()?;
        let frames = config.nodes.iter().map(|node| u64::from(node.frames));
        let cpus = config.nodes.iter().map(|node| node.cpus.len()).sum();
        let known = config.sites.iter();
        let host = config.host()?;
        Ok(PlacementController {
            counting: AccessCounting::new(&host, config, cpus),
            page_bytes: config.page_bytes,
            huge_page_bytes: config.huge_page_bytes,
            dry_run: config.dry_run,
            pages_max: frames.sum::<u64>().min(1 << 31),
            host,
            regions: RegionMap::new(config.page_bytes),
            found: None,
            page_numbers: PageNumbers::default(),
            tracked: Vec::new(),
            generations: Vec::new(),
            unused: Vec::new(),
            processes: FxHashMap::default(),
            unused_processes: Vec::new(),
            sites: AllocationSites::new(known.map(|site| (site.signature, site.tier))),
            recording: match config.source {
                SampleSource::Hints => FaultRecording::new(
                    SamplingBudget::of(cpus, config.cpu_permille).samples_a_second(),
                    SCAN_PAGES,
                ),
                SampleSource::Armed | SampleSource::Processor => FaultRecording::new(0, 0),
            },
            limited: BTreeSet::new(),
            displaced: DisplacedPages::default(),
            timers: BindTimers::default(),
            jobs: FxHashMap::default(),
            job_count: 0,
            bases: BTreeMap::new(),
            saved_placements: SavedPlacements::new(&config.placed),
            summary: MemorySummary::default(),
        })
    }

    fn step(&mut self, at: &TimedInput, out: &mut Vec<Decision>) {
        let now_ns = at.time_ns;
        self.host.set_now_ns(now_ns);
        self.take_timers(now_ns, out);
        self.take_input(now_ns, &at.input, out);
        self.take_due_steps(now_ns, out);
        let samples = self.counting.as_ref().is_some_and(AccessCounting::samples);
        self.recording.set_sampling(samples);
        if let Some(on) = self.recording.change(now_ns) {
            out.push(Decision::Watch { on });
        }
        self.look_up_windows(out);
        // Faults on armed pages would not be seen while recording is off.
        if self.recording.is_on() {
            self.arm(now_ns, out);
        }
    }

    fn next_deadline_ns(&self) -> Option<u64> {
        let plan = self.counting.as_ref().filter(|_| self.recording.is_on());
        let plan = plan.and_then(AccessCounting::due_ns);
        [plan, self.timers.due_ns(), self.recording.due_ns()]
            .into_iter()
            .flatten()
            .min()
    }
}

impl PlacementController {
    /// Acts on the segments whose timers are due.
    fn take_timers(&mut self, now_ns: u64, out: &mut Vec<Decision>) {
        while let Some((timer, key)) = self.timers.due(now_ns) {
            let waits = |(region, number): (&mut TrackedRegion, usize)| {
                region.segments[number].timer == timer
            };
            if self.segment(key).is_some_and(waits) {
                self.due(key, now_ns, out);
            }
        }
    }

    fn take_input(&mut self, now_ns: u64, input: &Input, out: &mut Vec<Decision>) {
        match input {
            &Input::Started { pid } | &Input::Ended { pid } => self.process_ended(pid, out),
            &Input::Region {
                pid,
                tid,
                start,
                length,
                signature,
                cpu,
            } => self.region(now_ns, (pid, tid), (start, length), signature, cpu, out),
            &Input::RegionEnd { pid, start, length } => {
                self.region_ended(now_ns, pid, (start, length), out);
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
            Input::Usage { used } => self.host.set_used_frames(used),
            Input::Tick => {}
        }
    }

    /// What was counted so far.
    pub(crate) fn summary(&self) -> MemorySummary {
        let mut summary = self.summary.clone();
        let live = self.tracked.iter().flatten();
        live.filter_map(TrackedRegion::migration_gain)
            .for_each(|gain| summary.add_gain(gain));
        summary
    }

    /// The placements of regions, for the next run.
    pub(crate) fn saved_placements(&mut self) -> Vec<SavedPlacement> {
        let live = self.tracked.iter().flatten();
        live.filter(|region| region.left == region.pages)
            .for_each(|region| self.saved_placements.keep(region, &self.host));
        self.saved_placements.all()
    }

    /// The tiers of allocation sites.
    pub(crate) fn sites(&self) -> impl Iterator<Item = (u64, RegionTier)> + '_ {
        self.sites.known()
    }

    /// Walks every invariant and panics on a broken one.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        self.regions.check();
        let settled = self
            .counting
            .as_ref()
            .is_none_or(AccessCounting::is_settled);
        self.host.check(settled);
        self.check_hints();
        let live = self.tracked.iter().flatten();
        assert_eq!(live.count() + self.unused.len(), self.tracked.len());
        let pages = self.tracked.iter().flatten().map(|region| region.pages);
        assert!(pages.sum::<u32>() <= self.page_numbers.end());
    }
}
