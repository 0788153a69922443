//! Regions are allocated and freed, and with them their pages.

use hither_core::placement::{Region, RegionTier};
use hither_core::{Block, Node, Object, Process, Thread};
use hither_ids::{Address, KernelNode, PageIndex, Pid, Tid};
use hither_kernel::writable_memory::MemoryKind;

use super::super::event::{Decision, Note};
use super::super::migration::RegionStart;
use super::super::region_map::CutPages;
use super::page_runs::PageRun;
use super::placement_controller::PlacementController;
use super::tracked_region::{FaultUnit, RegionKey, TrackedRegion};

impl PlacementController {
    /// A region was allocated. Regions that were there before are gone, even if nobody reported it.
    pub(super) fn region(
        &mut self,
        now_ns: u64,
        (pid, tid): (Pid, Tid),
        (start, length): (Address, u64),
        signature: u64,
        cpu: u32,
        out: &mut Vec<Decision>,
    ) {
        let Some(range) = self.regions.pages_within(start, length) else {
            return;
        };
        let cuts = self.regions.cut(pid, range, u64::MAX);
        self.cut(&cuts, out);
        let key = self.saved_placements.key(pid, tid, signature);
        let Some(object) = self.track(now_ns, pid, range, signature, None) else {
            self.summary.unfollowed += 1;
            out.push(Decision::Note(Note::Unfollowed { pid, start, length }));
            return;
        };
        let process = self.process(pid);
        // The size as allocated: the whole pages of a mebibyte from malloc are a little less, and
        // it has to count as a mebibyte.
        self.host.region_allocated(&Region {
            object,
            owner: process,
            bytes: length,
            expected_tier: self.sites.tier(signature),
            whole: self.sites.is_whole(signature),
        });
        self.reconsider(pid, out);
        let needs_faults = self.host.needs_first_faults(object);
        let has_tier = self.host.region_tier(object).is_some();
        if let Some(region) = self.tracked[object.index()].as_mut() {
            region.key = key;
            region.watched = needs_faults;
            region.known = has_tier && self.sites.is_of_earlier_run(signature);
        }
        if (has_tier || needs_faults) && !self.number_pages(object) {
            return;
        }
        if has_tier {
            self.summary.known += 1;
            let thread = Thread(pid.0);
            self.tier_decided(now_ns, object, self.host.node_of_cpu(cpu), thread, out);
        } else if needs_faults {
            self.recording.undecided(now_ns);
        } else {
            self.summary.plain += 1;
            self.count(now_ns, object, out);
        }
        self.apply_saved_placement(object, out);
    }

    /// Tracks a range of whole pages as a region. `None` if it is larger than the machine's memory.
    pub(super) fn track(
        &mut self,
        now_ns: u64,
        pid: Pid,
        range: (Address, Address),
        signature: u64,
        kind: Option<MemoryKind>,
    ) -> Option<Object> {
        let pages = (range.1 - range.0) / self.page_bytes;
        let pages = u32::try_from(pages)
            .ok()
            .filter(|_| pages <= self.pages_max)?;
        let object = self.unused.pop().unwrap_or_else(|| {
            self.tracked.push(None);
            Object(self.tracked.len() as u32 - 1)
        });
        self.regions.insert(pid, range, object, now_ns);
        let huge = self
            .huge_page_bytes
            .filter(|&huge| range.1 - range.0 > huge);
        self.tracked[object.index()] = Some(TrackedRegion {
            pid,
            process: self.process(pid),
            start: range.0,
            pages,
            base: None,
            kind,
            left: pages,
            cuts: Vec::new(),
            signature,
            faults: 0,
            unit: huge.map_or(FaultUnit::Small, |_| FaultUnit::Huge(Vec::new())),
            tier: None,
            from: Node(0),
            known: false,
            brought_back: false,
            requested: Vec::new(),
            site_bound: false,
            kept: Vec::new(),
            key: RegionKey::default(),
            own: false,
            watched: false,
            counted: false,
        });
        self.summary.regions += 1;
        Some(object)
    }

    /// The policy's number of a process.
    fn process(&mut self, pid: Pid) -> Process {
        let next = Process((self.processes.len() + self.unused_processes.len()) as u32);
        let unused = &mut self.unused_processes;
        let fresh = || unused.pop().unwrap_or(next);
        *self.processes.entry(pid).or_insert_with(fresh)
    }

    /// Numbers the pages of a region, so that the policy can place each. False if there are no
    /// numbers left.
    fn number_pages(&mut self, object: Object) -> bool {
        let Some(region) = self.tracked[object.index()].as_mut() else {
            return false;
        };
        region.base = self.page_numbers.take(region.pages);
        region.watched &= region.base.is_some();
        self.host.grow(self.page_numbers.end());
        region.base.is_some()
    }

    /// Begins to count who uses a region.
    pub(super) fn count(&mut self, now_ns: u64, object: Object, out: &mut Vec<Decision>) {
        let region = self.tracked[object.index()].as_mut();
        let (Some(migration), Some(region)) = (&mut self.migration, region) else {
            return;
        };
        if region.own || std::mem::replace(&mut region.counted, true) {
            return;
        }
        self.summary.counted += 1;
        let start = RegionStart {
            pid: region.pid,
            process: region.process,
            start: region.start,
            pages: region.pages,
            signature: region.signature,
            kind: region.kind,
        };
        migration.begin(now_ns, object, start, out);
    }

    /// A range could not be armed.
    pub(super) fn unarmed(
        &mut self,
        now_ns: u64,
        pid: Pid,
        (start, pages): (Address, u32),
        for_good: bool,
        out: &mut Vec<Decision>,
    ) {
        self.summary.unarmed += u64::from(pages);
        let found = self.regions.find(pid, start);
        let Some(migration) = &mut self.migration else {
            return;
        };
        if for_good {
            migration.stop(pid, out)
        } else {
            found
                .into_iter()
                .for_each(|found| migration.unarmed(now_ns, found, pages))
        }
    }

    /// Memory is no longer a region's, or no longer mapped. Regions that were allocated later are
    /// not touched by it.
    pub(super) fn region_ended(
        &mut self,
        now_ns: u64,
        pid: Pid,
        (start, length): (Address, u64),
        out: &mut Vec<Decision>,
    ) {
        if let Some(pages) = self.regions.pages_within(start, length) {
            let cuts = self.regions.cut(pid, pages, now_ns);
            self.cut(&cuts, out);
        }
    }

    /// A process has ended, or runs another program: all that it had is gone.
    pub(super) fn process_ended(&mut self, pid: Pid, out: &mut Vec<Decision>) {
        let cuts = self.regions.cut_all(pid);
        self.cut(&cuts, out);
        if let Some(process) = self.processes.remove(&pid) {
            self.host.process_exited(process);
            self.unused_processes.push(process);
        }
        self.own_ranges.remove(&pid);
        self.saved_placements.ended(pid);
        if let Some(migration) = &mut self.migration {
            migration.process_ended(pid);
        }
    }

    /// Pages were unmapped. With the last of them their region is gone.
    pub(super) fn cut(&mut self, cuts: &[CutPages], out: &mut Vec<Decision>) {
        for &cut in cuts {
            let slot = &mut self.tracked[cut.object.index()];
            let region = slot.as_mut().expect("its pages were found");
            if region.left == region.pages && region.left == cut.pages {
                let migration = self.migration.as_ref();
                self.saved_placements.keep(cut.object, region, migration);
            }
            region.left -= cut.pages;
            region.cuts.push(cut);
            let all = region.left == 0;
            if let Some(base) = region.base {
                let first = base + cut.first;
                (first..first + cut.pages).for_each(|page| self.host.remove(Block(page)));
                if all {
                    self.page_numbers.release(base, region.pages);
                }
            }
            let migration = self.migration.as_mut().filter(|_| region.counted);
            if let Some(migration) = migration {
                if all {
                    let gain = migration.end(cut.object, out);
                    gain.into_iter()
                        .for_each(|gain| self.summary.add_gain(gain));
                } else {
                    migration.cut(cut.object, cut.first..cut.first + cut.pages)
                }
            }
            if all {
                if region.watched {
                    self.recording.decided();
                }
                if self.limited.remove(&(region.pid, cut.object)) {
                    self.sites.kept_near(region.signature);
                }
                *slot = None;
                self.host.region_freed(cut.object);
                self.unused.push(cut.object);
            }
        }
    }

    /// The region of an address, and the index of its page there. Most addresses are in the region
    /// of the one before.
    pub(super) fn find(&mut self, pid: Pid, address: Address) -> Option<(Object, PageIndex)> {
        let last = self.found.and_then(|object| {
            let region = self.tracked[object.index()].as_ref()?;
            let index = region.index_of(address, self.page_bytes)?;
            (region.pid == pid).then_some((object, index))
        });
        debug_assert!(last.is_none() || last == self.regions.find(pid, address));
        last.or_else(|| {
            let found = self.regions.find(pid, address);
            self.found = found.map(|(object, _)| object);
            found
        })
    }

    /// Places a region as it was in an earlier run, unless it is far.
    pub(super) fn apply_saved_placement(&mut self, object: Object, out: &mut Vec<Decision>) {
        let Some(region) = self.tracked[object.index()].as_mut() else {
            return;
        };
        let placed = self.saved_placements.find(region.signature, region.key);
        let placed = placed.filter(|_| region.tier != Some(RegionTier::Remote));
        // A region of another size is another one.
        let Some(placed) = placed.filter(|placed| placed.pages == region.pages) else {
            return;
        };
        region.known = true;
        let mut runs = Vec::new();
        let mut first = 0;
        for &(pages, home) in &placed.runs {
            let node = home.and_then(|home| self.host.node_of_kernel(KernelNode(home)));
            let pages = pages.min(region.pages - first);
            if let Some(node) = node.filter(|_| pages > 0) {
                let nodes = self.host.node_mask(node);
                runs.push(PageRun {
                    first,
                    pages,
                    nodes,
                });
            }
            first += pages;
        }
        self.summary.applied += 1;
        self.bind(object, runs, out);
    }
}
