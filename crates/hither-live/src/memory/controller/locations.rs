//! Where counted pages are, which only the kernel knows.

use std::collections::BTreeMap;

use hither_core::{Block, Thread};

use super::super::counters::window_pages;
use super::super::event::Decision;
use super::PlacementController;
use super::hint_faults::Inspection;
use crate::numa::ranges::{LocatedRun, PageRange, addresses};

/// Where the pages of a window are is asked when it has a sample, and as long as some are nowhere
/// at doubling distances: an answer takes some 100 ns a page, and there may be many that the
/// program never comes to.
const ASK_NS: u64 = 100_000_000;
const ASK_MAX_NS: u64 = 10_000_000_000;

/// When to ask where the pages of a window are.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LocationQuery {
    due_ns: u64,
    wait_ns: u64,
}

impl LocationQuery {
    /// It is asked for the first time, or anew; the next time is later.
    pub(super) fn is_due(&mut self, now_ns: u64) -> bool {
        let due = now_ns >= self.due_ns;
        if due {
            self.wait_ns = (self.wait_ns * 2).clamp(ASK_NS, ASK_MAX_NS);
            self.due_ns = now_ns + self.wait_ns;
        }
        due
    }
}

impl PlacementController {
    /// Asks where the pages of windows are of which some are nowhere yet.
    pub(super) fn ask(&mut self, out: &mut Vec<Decision>) {
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
            let nowhere = |page: u32| {
                !region.is_cut(page) && self.model.home(Block(region.base + page)).is_none()
            };
            if (first..last).any(nowhere) {
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

    /// Asks where pages are, for a look at a region or for what is counted alone.
    pub(super) fn locate(
        &mut self,
        pid: u32,
        ranges: Vec<PageRange>,
        look: Option<Inspection>,
        out: &mut Vec<Decision>,
    ) {
        let Some(counting) = &mut self.counting else {
            return;
        };
        let job = self.job_count;
        self.job_count += 1;
        counting.located.insert(job, (pid, ranges.clone(), look));
        out.push(Decision::Locate { job, pid, ranges });
    }

    /// The kernel says where pages are.
    pub(super) fn located(
        &mut self,
        now_ns: u64,
        job: u64,
        found: &[LocatedRun],
        out: &mut Vec<Decision>,
    ) {
        let asked = self.counting.as_mut();
        let asked = asked.and_then(|counting| counting.located.remove(&job));
        let Some((pid, ranges, look)) = asked else {
            return;
        };
        self.found_at(pid, &ranges, found);
        if let Some(look) = look {
            self.looked(now_ns, look, out);
        }
    }

    /// Takes down where pages of a process were found.
    fn found_at(&mut self, pid: u32, ranges: &[PageRange], found: &[LocatedRun]) {
        let flat: Vec<u64> = addresses(ranges, self.page_bytes).collect();
        let thread = Thread(pid);
        for run in found {
            let Some(node) = self.model.node_of_kernel(run.node) else {
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
                // In a dry run what was decided is taken to be so, of a region of which anything
                // was.
                let known = self.model.home(block).is_some();
                if self.dry_run && known && region.migrated > 0 {
                    continue;
                }
                let moved = self.model.found(region.touch(object, index, thread, node));
                let counting = self.counting.as_mut().filter(|_| moved);
                if let Some(program) = counting.and_then(|of| of.programs.get_mut(&pid)) {
                    program.estimates.again(block);
                }
            }
        }
    }
}
