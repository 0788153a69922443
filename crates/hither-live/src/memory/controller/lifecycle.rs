//! Regions are allocated and freed, and with them their pages.

use hither_core::placement::{Region, RegionTier};
use hither_core::{Block, Node, Object, Process, Thread};
use rustc_hash::FxHashMap;

use super::super::event::Decision;
use super::super::region_map::CutPages;
use super::bind_segments::BindState;
use super::page_runs::PageRun;
use super::placement_controller::PlacementController;
use super::summary::Locality;
use super::tracked_region::{FaultUnit, Sharing, TrackedRegion};

impl PlacementController {
    /// A region was allocated. Regions that were there before are gone, even if nobody reported it.
    pub(super) fn region(
        &mut self,
        now_ns: u64,
        (pid, tid): (u32, u32),
        (start, length): (u64, u64),
        signature: u64,
        cpu: u32,
        out: &mut Vec<Decision>,
    ) {
        let Some(range) = self.regions.pages_within(start, length) else {
            return;
        };
        let cuts = self.regions.cut(pid, range, u64::MAX);
        self.cut(&cuts, out);
        let pages = (range.1 - range.0) / self.page_bytes;
        let base = match pages <= self.pages_max {
            true => self.page_numbers.take(pages as u32),
            false => None,
        };
        let Some(base) = base else {
            self.summary.unfollowed += 1;
            out.push(Decision::Unfollowed { pid, start, length });
            return;
        };
        let pages = pages as u32;
        self.host.grow(self.page_numbers.end());
        let object = self.unused.pop().unwrap_or_else(|| {
            self.tracked.push(None);
            self.generations.push(0);
            Object(self.tracked.len() as u32 - 1)
        });
        let next = Process((self.processes.len() + self.unused_processes.len()) as u32);
        let unused = &mut self.unused_processes;
        let process = *self
            .processes
            .entry(pid)
            .or_insert_with(|| unused.pop().unwrap_or(next));
        self.regions.insert(pid, range, object, now_ns);
        let huge = self
            .huge_page_bytes
            .filter(|&huge| range.1 - range.0 > huge);
        self.tracked[object.index()] = Some(TrackedRegion {
            pid,
            process,
            start: range.0,
            pages,
            base,
            left: pages,
            cuts: Vec::new(),
            signature,
            faults: 0,
            unit: huge.map_or(FaultUnit::Small, |_| FaultUnit::Huge(Vec::new())),
            tier: None,
            from: Node(0),
            segments: Vec::new(),
            kept: Vec::new(),
            key: self.saved_placements.key(pid, tid, signature),
            own: false,
            watched: false,
            counted: false,
            asked: FxHashMap::default(),
            hinted: None,
            of_node: vec![0; self.host.node_count()],
            users: Sharing::Nobody,
            before: Locality::default(),
            after: Locality::default(),
            migrated: 0,
        });
        self.bases.insert(base, object);
        // The size as allocated: the whole pages of a mebibyte from malloc are a little less, and
        // it has to count as a mebibyte.
        self.host.region_allocated(&Region {
            object,
            owner: process,
            bytes: length,
            expected_tier: self.sites.tier(signature),
        });
        self.summary.regions += 1;
        self.reconsider(now_ns, pid, out);
        if self.host.region_tier(object).is_some() {
            self.summary.known += 1;
            let thread = Thread(pid);
            self.settle(now_ns, object, self.host.node_of_cpu(cpu), thread, out);
        } else if self.host.needs_first_faults(object) {
            if let Some(region) = &mut self.tracked[object.index()] {
                region.watched = true;
            }
            self.recording.undecided(now_ns);
        } else {
            self.summary.plain += 1;
            self.count(now_ns, object, out);
        }
        self.apply_saved_placement(now_ns, object, out);
    }

    /// Memory is no longer a region's, or no longer mapped. Regions that were allocated later are
    /// not touched by it.
    pub(super) fn region_ended(
        &mut self,
        now_ns: u64,
        pid: u32,
        (start, length): (u64, u64),
        out: &mut Vec<Decision>,
    ) {
        if let Some(pages) = self.regions.pages_within(start, length) {
            let cuts = self.regions.cut(pid, pages, now_ns);
            self.cut(&cuts, out);
        }
    }

    /// A process has ended, or runs another program: all that it had is gone.
    pub(super) fn process_ended(&mut self, pid: u32, out: &mut Vec<Decision>) {
        let cuts = self.regions.cut_all(pid);
        self.cut(&cuts, out);
        if let Some(process) = self.processes.remove(&pid) {
            self.host.process_exited(process);
            self.unused_processes.push(process);
        }
        self.saved_placements.ended(pid);
        if let Some(counting) = &mut self.counting {
            counting.ended(pid);
        }
    }

    /// Pages were unmapped. With the last of them their region is gone.
    pub(super) fn cut(&mut self, cuts: &[CutPages], out: &mut Vec<Decision>) {
        for &cut in cuts {
            let slot = &mut self.tracked[cut.object.index()];
            let region = slot.as_mut().expect("its pages were found");
            if region.left == region.pages && region.left == cut.pages {
                self.saved_placements.keep(region, &self.host);
            }
            region.left -= cut.pages;
            region.cuts.push(cut);
            let first = region.base + cut.first;
            (first..first + cut.pages).for_each(|page| self.host.remove(Block(page)));
            let all = region.left == 0;
            self.displaced.cut(cut.object, cut.first, cut.pages, all);
            let counting = self.counting.as_mut().filter(|_| region.counted);
            if let Some(counting) = counting {
                counting.cut(region.pid, first..first + cut.pages);
                if all {
                    out.extend(counting.end(cut.object, region, self.page_bytes));
                }
            }
            if all {
                if region.watched {
                    self.recording.decided();
                }
                self.limited.remove(&(region.pid, cut.object));
                self.bases.remove(&region.base);
                if let Some(gain) = region.migration_gain() {
                    self.summary.add_gain(gain);
                }
                self.page_numbers.release(region.base, region.pages);
                *slot = None;
                self.generations[cut.object.index()] += 1;
                self.host.region_freed(cut.object);
                self.unused.push(cut.object);
            }
        }
    }

    /// The region of an address, and the index of its page there. Most addresses are in the region
    /// of the one before.
    pub(super) fn find(&mut self, pid: u32, address: u64) -> Option<(Object, u32)> {
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
    pub(super) fn apply_saved_placement(
        &mut self,
        now_ns: u64,
        object: Object,
        out: &mut Vec<Decision>,
    ) {
        let Some(region) = self.tracked[object.index()].as_ref() else {
            return;
        };
        let placed = self.saved_placements.find(region.signature, region.key);
        let placed = placed.filter(|_| region.tier != Some(RegionTier::Remote));
        // A region of another size is another one.
        let Some(placed) = placed.filter(|placed| placed.pages == region.pages) else {
            return;
        };
        let mut runs = Vec::new();
        let mut first = 0;
        for &(pages, home) in &placed.runs {
            let node = home.and_then(|home| self.host.node_of_kernel(home));
            let pages = pages.min(region.pages - first);
            if let Some(node) = node.filter(|_| pages > 0) {
                let nodes = self.host.node_mask(node);
                runs.push((
                    PageRun {
                        first,
                        pages,
                        nodes,
                    },
                    BindState::Requested,
                ));
            }
            first += pages;
        }
        self.summary.applied += 1;
        self.bind(now_ns, object, runs.into_iter(), out);
    }
}
