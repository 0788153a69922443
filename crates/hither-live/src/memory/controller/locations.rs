//! Asks the kernel for the nodes of counted pages: nobody else knows them.

use std::collections::BTreeMap;

use hither_core::{Block, Thread};

use super::super::counters::window_pages;
use super::super::event::Decision;
use super::hinted_regions::Inspection;
use super::placement_controller::PlacementController;
use crate::numa::ranges::{LocatedRun, PageRange, addresses};

impl PlacementController {
    /// Looks up the windows that are noted for it, if the nodes of some of their pages are unknown.
    pub(super) fn look_up_windows(&mut self, out: &mut Vec<Decision>) {
        let counting = self.counting.as_mut();
        let Some(counting) = counting.filter(|counting| !counting.asks.is_empty()) else {
            return;
        };
        let mut locate: BTreeMap<u32, Vec<PageRange>> = BTreeMap::new();
        for (object, first) in counting.asks.drain(..) {
            let Some(region) = self.tracked[object.index()].as_ref() else {
                continue;
            };
            let last = (first + window_pages(region.pages)).min(region.pages);
            let is_unknown = |page: u32| {
                !region.is_cut(page) && self.host.home(Block(region.base + page)).is_none()
            };
            if (first..last).any(is_unknown) {
                locate.entry(region.pid).or_default().push(PageRange {
                    start: region.address(first, self.page_bytes),
                    pages: last - first,
                });
            }
        }
        for (pid, ranges) in locate {
            self.locate(pid, ranges, None, out);
        }
    }

    /// Looks up pages, for an inspection of a region or for windows of counted pages.
    pub(super) fn locate(
        &mut self,
        pid: u32,
        ranges: Vec<PageRange>,
        inspection: Option<Inspection>,
        out: &mut Vec<Decision>,
    ) {
        let Some(counting) = &mut self.counting else {
            return;
        };
        let job = self.job_count;
        self.job_count += 1;
        counting
            .located
            .insert(job, (pid, ranges.clone(), inspection));
        out.push(Decision::Locate { job, pid, ranges });
    }

    /// Takes in the answer to a look-up.
    pub(super) fn located(
        &mut self,
        now_ns: u64,
        job: u64,
        found: &[LocatedRun],
        out: &mut Vec<Decision>,
    ) {
        let asked = self.counting.as_mut();
        let asked = asked.and_then(|counting| counting.located.remove(&job));
        let Some((pid, ranges, inspection)) = asked else {
            return;
        };
        self.set_homes(pid, &ranges, found);
        if let Some(inspection) = inspection {
            self.inspected(now_ns, inspection, out);
        }
    }

    /// Takes down the nodes of pages of a process.
    fn set_homes(&mut self, pid: u32, ranges: &[PageRange], found: &[LocatedRun]) {
        let flat: Vec<u64> = addresses(ranges, self.page_bytes).collect();
        let thread = Thread(pid);
        for run in found {
            let Some(node) = self.host.node_of_kernel(run.node) else {
                continue;
            };
            let end = run.first.saturating_add(run.pages).min(flat.len() as u32);
            for &address in flat.get(run.first as usize..end as usize).unwrap_or(&[]) {
                let Some((object, index)) = self.find(pid, address) else {
                    continue;
                };
                let Some(region) = self.tracked[object.index()].as_ref() else {
                    continue;
                };
                let block = Block(region.base + index);
                // In a dry run, pages of a region of which any were to be moved count as moved.
                let known = self.host.home(block).is_some();
                if self.dry_run && known && region.migrated > 0 {
                    continue;
                }
                let moved = self
                    .host
                    .set_home(region.touch(object, index, thread, node));
                let counting = self.counting.as_mut().filter(|_| moved);
                if let Some(program) = counting.and_then(|of| of.programs.get_mut(&pid)) {
                    program.estimates.again(block);
                }
            }
        }
    }
}
