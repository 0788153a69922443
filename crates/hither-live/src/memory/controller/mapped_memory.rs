//! Memory that no hooked allocation has reported: static data, the heap, stacks, arenas of small
//! allocations, shared memory. The agent reads the kernel's list of a process's mappings now and
//! then, and what of it is in no region yet becomes regions of its own, whose users are counted.
//! Left alone is what the program has placed itself, and all of a process that asks for certain
//! nodes.

use hither_ids::{Address, Pid};

use super::super::event::{Decision, MappedRange};
use super::placement_controller::PlacementController;

/// A smaller mapping is not worth its registration with the kernel: small pieces of static data, of
/// which each library has some.
const MAPPED_PAGES_MIN: u64 = 16;

/// What is new of a mapping becomes a region when it is at least one part in so many of it: a heap
/// that grows page by page would have a region for each of them.
const GROWTH_DIVISOR: u64 = 16;

impl PlacementController {
    /// Takes in the memory of a process.
    pub(super) fn mapped(
        &mut self,
        now_ns: u64,
        pid: Pid,
        own: bool,
        ranges: &[MappedRange],
        out: &mut Vec<Decision>,
    ) {
        if self.migration.is_none() {
            return;
        }
        if own {
            self.summary.own_processes += 1;
            return;
        }
        self.end_unmapped(now_ns, pid, ranges, out);
        for range in ranges {
            let Some(whole) = self.regions.pages_within(range.start, range.length) else {
                continue;
            };
            let pages = (whole.1 - whole.0) / self.page_bytes;
            let least = MAPPED_PAGES_MIN.max(pages / GROWTH_DIVISOR) * self.page_bytes;
            for (start, end) in self.regions.gaps(pid, whole) {
                let mut own = self.own_ranges.get(&pid).into_iter().flatten();
                if end - start < least || own.any(|own| own.0 < end && own.1 > start) {
                    continue;
                }
                if let Some(object) = self.track(now_ns, pid, (start, end), 0, Some(range.kind)) {
                    self.summary.mapped += 1;
                    self.summary.plain += 1;
                    self.count(now_ns, object, out);
                }
            }
        }
    }

    /// Parts of regions that were found in such a list, and are not in this one, are gone.
    fn end_unmapped(
        &mut self,
        now_ns: u64,
        pid: Pid,
        ranges: &[MappedRange],
        out: &mut Vec<Decision>,
    ) {
        let page = self.page_bytes;
        let mut at = Address(0);
        // Of a log that somebody has changed, ends may lie within a page.
        let ends = ranges.iter().map(|range| {
            let end = range.start.0.saturating_add(range.length);
            let end = end.div_ceil(page).saturating_mul(page);
            (range.start.page_start(page), Address(end))
        });
        for (start, end) in ends.chain([(Address(u64::MAX).page_start(page), Address(u64::MAX))]) {
            let between = (at, start.max(at));
            for object in self.regions.overlapping(pid, between) {
                let region = self.tracked[object.index()].as_ref();
                let Some(region) = region.filter(|region| region.kind.is_some()) else {
                    continue;
                };
                let length = u64::from(region.pages) * self.page_bytes;
                let end = region.start + length;
                let gone = (between.0.max(region.start), between.1.min(end));
                let cuts = self.regions.cut(pid, gone, now_ns);
                self.cut(&cuts, out);
            }
            at = at.max(end);
        }
    }
}
