//! Regions come and go, and with them their pages.

use hither_core::placement::{Region, RegionTier};
use hither_core::{Block, Node, Object, Process, Thread};
use rustc_hash::FxHashMap;

use super::super::event::Decision;
use super::super::region_map::Cut;
use super::PlacementController;
use super::bind_requests::Segment;
use super::hint_faults::Hinted;
use super::locations::LocationQuery;
use super::page_runs::Run;
use super::placement_host::Touch;

/// What is known of a region.
#[derive(Debug)]
pub(super) struct TrackedRegion {
    pub(super) pid: u32,
    pub(super) process: Process,
    pub(super) start: u64,
    pub(super) pages: u32,
    /// The number of its first page.
    pub(super) base: u32,
    /// Pages that it has still.
    pub(super) left: u32,
    /// What it has no longer.
    pub(super) cuts: Vec<Cut>,
    pub(super) signature: u64,
    /// First faults that were seen.
    pub(super) faults: u32,
    pub(super) unit: Unit,
    /// Nothing while it is watched.
    pub(super) class: Option<RegionTier>,
    /// The node that it was settled from.
    pub(super) from: Node,
    pub(super) segments: Vec<Segment>,
    /// What the policy kept near of a far region when it was settled, or last asked.
    pub(super) kept: Vec<Run>,
    /// The thread that allocated it and how many it had allocated at the site before.
    pub(super) key: (u32, u32),
    /// The program has chosen itself where it is.
    pub(super) own: bool,
    /// First faults are watched.
    pub(super) watched: bool,
    /// Its pages are sampled.
    pub(super) counted: bool,
    /// Windows of which it was asked where they are, by first page.
    pub(super) asked: FxHashMap<u32, LocationQuery>,
    /// Sampled by the kernel.
    pub(super) hinted: Option<Hinted>,
    /// Samples by node since it was last judged.
    pub(super) of_node: Vec<u64>,
    pub(super) users: Sharing,
    /// Samples before the first of its pages moved, and after.
    pub(super) before: Locality,
    pub(super) after: Locality,
    /// Pages that the policy had moved, each time.
    pub(super) migrated: u32,
}

/// From where a region's pages are used, as far as samples have shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    Nobody,
    /// From one node alone.
    Of(Node),
    /// From several nodes.
    Several,
}

/// Samples, and how many of them were of pages on the node that used them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Locality {
    /// All of them.
    pub samples: u64,
    /// Of pages of which it is known where they were.
    pub placed: u64,
    /// Of these, on the node that used them.
    pub local: u64,
}

impl Locality {
    /// One more; `local` is nothing where it is not known where the page is.
    pub(super) fn add(&mut self, local: Option<bool>) {
        self.samples += 1;
        self.placed += u64::from(local.is_some());
        self.local += u64::from(local == Some(true));
    }

    pub(super) fn join(&mut self, other: Locality) {
        self.samples += other.samples;
        self.placed += other.placed;
        self.local += other.local;
    }

    /// The part that was local, if there is any.
    pub fn share(&self) -> Option<f64> {
        (self.placed > 0).then(|| self.local as f64 / self.placed as f64)
    }
}

/// What faults of a region are numbered by.
#[derive(Debug)]
pub(super) enum Unit {
    /// Huge pages, each of which has seen one fault at most so far.
    Huge(Vec<u32>),
    Page,
}

impl PlacementController {
    /// A region comes. What was there before is gone, even if nobody said so.
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
            true => self.ranges.take(pages as u32),
            false => None,
        };
        let Some(base) = base else {
            self.summary.unfollowed += 1;
            out.push(Decision::Unfollowed { pid, start, length });
            return;
        };
        let pages = pages as u32;
        self.model.grow(self.ranges.end());
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
            unit: huge.map_or(Unit::Page, |_| Unit::Huge(Vec::new())),
            class: None,
            from: Node(0),
            segments: Vec::new(),
            kept: Vec::new(),
            key: self.saved_placements.key(pid, tid, signature),
            own: false,
            watched: false,
            counted: false,
            asked: FxHashMap::default(),
            hinted: None,
            of_node: vec![0; self.model.nodes()],
            users: Sharing::Nobody,
            before: Locality::default(),
            after: Locality::default(),
            migrated: 0,
        });
        self.bases.insert(base, object);
        // Its own size: of a mebibyte from malloc, whole pages are a little less, and it is to
        // count as one.
        self.model.allocated(&Region {
            object,
            owner: process,
            bytes: length,
            expected_tier: self.sites.class(signature),
        });
        self.summary.regions += 1;
        self.reconsider(now_ns, pid, out);
        if self.model.class(object).is_some() {
            self.summary.known += 1;
            let thread = Thread(pid);
            self.settle(now_ns, object, self.model.node_of_cpu(cpu), thread, out);
        } else if self.model.watches(object) {
            if let Some(region) = &mut self.tracked[object.index()] {
                region.watched = true;
            }
            self.watch.undecided(now_ns);
        } else {
            self.summary.plain += 1;
            self.count(now_ns, object, out);
        }
        self.apply(now_ns, object, out);
    }

    /// Pages are gone; with the last of them their region.
    pub(super) fn cut(&mut self, cuts: &[Cut], out: &mut Vec<Decision>) {
        for &cut in cuts {
            let slot = &mut self.tracked[cut.object.index()];
            let region = slot.as_mut().expect("its pages were found");
            if region.left == region.pages && region.left == cut.pages {
                self.saved_placements.keep(region, &self.model);
            }
            region.left -= cut.pages;
            region.cuts.push(cut);
            let first = region.base + cut.first;
            (first..first + cut.pages).for_each(|page| self.model.leave(Block(page)));
            let all = region.left == 0;
            self.spilled.cut(cut.object, cut.first, cut.pages, all);
            let counting = self.counting.as_mut().filter(|_| region.counted);
            if let Some(counting) = counting {
                counting.cut(region.pid, first..first + cut.pages);
                if all {
                    out.extend(counting.end(cut.object, region, self.page_bytes));
                }
            }
            if all {
                if region.watched {
                    self.watch.decided();
                }
                self.limited.remove(&(region.pid, cut.object));
                self.bases.remove(&region.base);
                self.summary.keep(region);
                self.ranges.release(region.base, region.pages);
                *slot = None;
                self.generations[cut.object.index()] += 1;
                self.model.freed(cut.object);
                self.unused.push(cut.object);
            }
        }
    }

    /// The region of an address and the page's index in it. Most are in the region of the one
    /// before.
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
}

impl TrackedRegion {
    /// The index of an address, of a region of which nothing is gone.
    fn index_of(&self, address: u64, page_bytes: u64) -> Option<u32> {
        let index = address.checked_sub(self.start)? / page_bytes;
        let index = u32::try_from(index).ok()?;
        (self.cuts.is_empty() && index < self.pages).then_some(index)
    }

    /// A touch of a page of it.
    pub(super) fn touch(&self, object: Object, index: u32, thread: Thread, node: Node) -> Touch {
        Touch {
            block: Block(self.base + index),
            object,
            index,
            process: self.process,
            thread,
            node,
        }
    }

    pub(super) fn address(&self, index: u32, page_bytes: u64) -> u64 {
        self.start + u64::from(index) * page_bytes
    }

    /// Whether the page is gone.
    pub(super) fn is_cut(&self, index: u32) -> bool {
        let gone = |cut: &Cut| (cut.first..cut.first + cut.pages).contains(&index);
        self.cuts.iter().any(gone)
    }

    pub(super) fn bind_request(&self, run: &Run, nodes: u64, page_bytes: u64) -> Decision {
        Decision::Bind {
            pid: self.pid,
            start: self.address(run.first, page_bytes),
            length: u64::from(run.pages) * page_bytes,
            nodes,
        }
    }

    /// The number of a fault's page in the region, such that what is touched next to it has the
    /// next number.
    pub(super) fn index(&mut self, address: u64, page: u32, huge_page_bytes: Option<u64>) -> u32 {
        let (Unit::Huge(seen), Some(huge)) = (&mut self.unit, huge_page_bytes) else {
            return page;
        };
        let number = (address / huge - self.start / huge) as u32;
        if seen.contains(&number) {
            self.unit = Unit::Page;
            return page;
        }
        seen.push(number);
        number
    }
}
