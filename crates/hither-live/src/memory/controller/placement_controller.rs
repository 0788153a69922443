//! The controller's state, and how it takes an input in. What it does about each kind of input is
//! in the files beside this one.

use std::collections::{BTreeMap, BTreeSet};

use hither_core::placement::{PlacementHost, SavedPlacement, SiteTier};
use hither_core::{Object, Process};
use hither_ids::{Address, Pid};
use rustc_hash::FxHashMap;

use super::super::config::MemoryConfig;
use super::super::event::{Decision, Input, Note, Order, TimedInput, TouchedPage};
use super::super::fault_recording::FaultRecording;
use super::super::migration::Migration;
use super::super::region_map::{PageNumbers, RegionMap};
use super::allocation_sites::AllocationSites;
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
    /// Regions of more pages are not tracked.
    pub(super) pages_max: u64,
    /// Of what places pages at their first touch.
    pub(super) host: PlacementHost,
    pub(super) regions: RegionMap,
    /// The region of the last address that was looked up.
    pub(super) found: Option<Object>,
    pub(super) page_numbers: PageNumbers,
    /// By object.
    pub(super) tracked: Vec<Option<TrackedRegion>>,
    pub(super) unused: Vec<Object>,
    pub(super) processes: FxHashMap<Pid, Process>,
    /// Numbers of processes that have ended.
    pub(super) unused_processes: Vec<Process>,
    /// What processes have placed themselves, by process.
    pub(super) own_ranges: BTreeMap<Pid, Vec<(Address, Address)>>,
    pub(super) sites: AllocationSites,
    pub(super) recording: FaultRecording,
    /// Far regions of which the policy keeps a part near, by process.
    pub(super) limited: BTreeSet<(Pid, Object)>,
    /// Moves so far, to number the next one.
    pub(super) job_count: u64,
    /// The process of each move under way that makes room on a near node, by job.
    pub(super) making_room: BTreeMap<u64, Pid>,
    pub(super) saved_placements: SavedPlacements,
    /// `None` where the policy does not decide by access counts.
    pub(super) migration: Option<Migration>,
    pub(super) summary: MemorySummary,
}

impl Controller for PlacementController {
    const NAME: &'static str = "memory";
    const FORMAT: (&'static str, u32) = ("hither_memory", 6);
    type Config = MemoryConfig;
    type Input = Input;
    type Order = Order;
    type Note = Note;

    fn new(config: &MemoryConfig) -> Result<PlacementController> {
        config.check()?;
        let frames = config.nodes.iter().map(|node| u64::from(node.frames));
        let known = config.sites.iter().copied();
        let (host, counted) = config.hosts()?;
        Ok(PlacementController {
            migration: counted.map(|host| Migration::new(host, config)),
            page_bytes: config.page_bytes,
            huge_page_bytes: config.huge_page_bytes,
            pages_max: frames.sum::<u64>().min(1 << 31),
            host,
            regions: RegionMap::new(config.page_bytes),
            found: None,
            page_numbers: PageNumbers::default(),
            tracked: Vec::new(),
            unused: Vec::new(),
            processes: FxHashMap::default(),
            unused_processes: Vec::new(),
            own_ranges: BTreeMap::new(),
            sites: AllocationSites::new(known, config.far_nodes),
            recording: FaultRecording::new(!config.goes_by_use()),
            limited: BTreeSet::new(),
            job_count: 0,
            making_room: BTreeMap::new(),
            saved_placements: SavedPlacements::new(&config.placed),
            summary: MemorySummary::default(),
        })
    }

    fn step(&mut self, at: &TimedInput, out: &mut Vec<Decision>) {
        let now_ns = at.time_ns;
        self.host.set_now_ns(now_ns);
        if let Some(migration) = &mut self.migration {
            migration.set_now_ns(now_ns);
        }
        self.take_input(now_ns, &at.input, out);
        if let Some(migration) = &mut self.migration {
            migration.due(now_ns, out);
            migration.carry_out(&mut self.job_count, out);
        }
        let arms = self.migration.as_ref().is_some_and(Migration::arms);
        self.recording.set_sampling(arms);
        if let Some(on) = self.recording.change(now_ns) {
            out.push(Decision::Order(Order::Watch { on }));
        }
        // Faults on armed pages would not be seen while recording is off.
        let recorded = self.recording.is_on();
        if let Some(migration) = self.migration.as_mut().filter(|_| recorded) {
            migration.arm(now_ns, out);
        }
    }

    fn next_deadline_ns(&self) -> Option<u64> {
        let migration = self.migration.as_ref();
        let migration = migration.and_then(|of| of.due_ns(self.recording.is_on()));
        let recording = self.recording.due_ns();
        migration.into_iter().chain(recording).min()
    }
}

impl PlacementController {
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
            } => {
                let touched = TouchedPage { pid, tid, address };
                if !self.touched(touched, cpu, out) {
                    self.fault(now_ns, (pid, tid), cpu, address, out);
                }
            }
            &Input::OthersFaults { count } => self.recording.charge(count),
            Input::Memory { pid, own, ranges } => self.mapped(now_ns, *pid, *own, ranges, out),
            &Input::Bound {
                pid,
                start,
                length,
                nodes,
                error,
                site,
            } => self.bound((pid, start, length), nodes, error, site, out),
            &Input::Unarmed {
                pid,
                start,
                pages,
                for_good,
                ..
            } => self.unarmed(now_ns, pid, (start, pages), for_good, out),
            Input::Moved(moved) => self.moved(now_ns, moved, out),
            Input::Usage { used } => {
                self.host.set_used_frames(used);
                if let Some(migration) = &mut self.migration {
                    migration.set_used_frames(used);
                }
            }
            Input::Tick => {}
            of_use => self.take_use(now_ns, of_use, out),
        }
    }

    /// A thread faulted on a page. Returns whether that was armed.
    fn touched(&mut self, touched: TouchedPage, cpu: u32, out: &mut Vec<Decision>) -> bool {
        let TouchedPage { pid, address, .. } = touched;
        let found = self.find(pid, address).zip(self.migration.as_mut());
        found.is_some_and(|(found, migration)| migration.touched(found, touched, cpu, out))
    }

    /// Takes in what is of use to the policies that go by use alone.
    fn take_use(&mut self, now_ns: u64, input: &Input, out: &mut Vec<Decision>) {
        let Some(migration) = &mut self.migration else {
            return;
        };
        match *input {
            Input::Sample {
                pid,
                tid,
                cpu,
                address,
                home,
            } => match self.regions.find(pid, address) {
                Some(found) => migration.sample(found, (pid, tid), cpu, home),
                None => self.summary.sampled_outside += u64::from(migration.sees_accesses()),
            },
            Input::Located {
                page: TouchedPage { pid, tid, address },
                home,
            } => {
                if let Some(found) = self.regions.find(pid, address) {
                    migration.located(found, (pid, tid), home);
                }
            }
            Input::Construct {
                pid,
                tid,
                cpu,
                kind,
                signature,
                threads,
            } => {
                let construct = Some((kind, signature, threads));
                migration.construct(now_ns, (pid, tid), cpu, construct, out);
            }
            Input::Thread { pid, tid, cpu } => {
                migration.construct(now_ns, (pid, tid), cpu, None, out);
            }
            Input::FaultsLost => migration.forget_armed(),
            Input::Armed {
                blocks,
                took_ns,
                agent_ns,
            } => migration.took(blocks, took_ns, agent_ns),
            _ => {}
        }
    }

    /// What was counted so far.
    pub(crate) fn summary(&self) -> MemorySummary {
        let mut summary = self.summary.clone();
        if let Some(migration) = &self.migration {
            migration.gains().for_each(|gain| summary.add_gain(gain));
            summary.sampled = migration.sampled;
            summary.sampled_by_kind = migration.sampled_by_kind();
            summary.iterations = migration.iterations();
            summary.judged = migration.judged;
            summary.migrated = migration.migrated;
            summary.stopped = migration.stopped;
            summary.paused_ns = migration.paused_ns();
        }
        summary
    }

    /// The placements of regions, for the next run.
    pub(crate) fn saved_placements(&mut self) -> Vec<SavedPlacement> {
        let migration = self.migration.as_ref();
        for (number, region) in (0..).zip(&self.tracked) {
            let region = region.as_ref().filter(|of| of.left == of.pages);
            if let Some(region) = region {
                self.saved_placements
                    .keep(Object(number), region, migration);
            }
        }
        self.saved_placements.all()
    }

    /// The tiers of allocation sites, for the next run.
    pub(crate) fn sites(&self) -> Vec<SiteTier> {
        let limited = self.limited.iter();
        let limited = limited.filter_map(|&(_, object)| self.tracked[object.index()].as_ref());
        let partly_near: BTreeSet<u64> = limited.map(|region| region.signature).collect();
        let at_the_end = |site: SiteTier| SiteTier {
            whole: site.whole && !partly_near.contains(&site.signature),
            ..site
        };
        self.sites.known().map(at_the_end).collect()
    }

    /// Walks every invariant and panics on a broken one.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        self.regions.check();
        self.host.check(true);
        if let Some(migration) = &self.migration {
            migration.check();
        }
        let live = self.tracked.iter().flatten();
        assert_eq!(live.count() + self.unused.len(), self.tracked.len());
        let numbered = self.tracked.iter().flatten();
        let numbered = numbered.filter(|region| region.base.is_some());
        let pages = numbered.map(|region| region.pages);
        assert!(pages.sum::<u32>() <= self.page_numbers.end());
    }
}
