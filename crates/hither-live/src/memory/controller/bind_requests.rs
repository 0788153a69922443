//! Asks programs to bind ranges, and takes in what they have bound.

use std::ops::Range;

use hither_core::{Block, Object};
use hither_ids::{Address, PageIndex, Pid};
use hither_session::record::OWN_POLICY;

use super::super::event::Decision;
use super::page_runs::PageRun;
use super::placement_controller::PlacementController;

impl PlacementController {
    /// Has the program bind runs of a region.
    pub(super) fn bind(&mut self, object: Object, runs: Vec<PageRun>, out: &mut Vec<Decision>) {
        if let Some(region) = self.tracked[object.index()].as_mut() {
            let requests = runs.iter();
            out.extend(requests.map(|run| region.bind_request(run, run.nodes, self.page_bytes)));
            region.requested.extend(runs);
        }
    }

    /// A program has bound a range, or could not.
    pub(super) fn bound(
        &mut self,
        (pid, start, length): (Pid, Address, u64),
        nodes: u64,
        error: u32,
        site: bool,
        out: &mut Vec<Decision>,
    ) {
        match error {
            // Without nodes the range has the kernel's default policy again.
            0 => self.summary.ranges_bound += u64::from(nodes != 0),
            _ => self.summary.ranges_refused += 1,
        }
        let Some((start, end)) = self.regions.pages_within(start, length) else {
            return;
        };
        if error == OWN_POLICY {
            if !site {
                self.own_ranges.entry(pid).or_default().push((start, end));
            }
            self.leave_alone(pid, (start, end), out);
            return;
        }
        let found = self.regions.find(pid, start);
        let Some((object, PageIndex(first))) = found else {
            return;
        };
        let Some(region) = self.tracked[object.index()].as_mut() else {
            return;
        };
        if site {
            region.site_bound |= error == 0;
            return;
        }
        // A request for a region that was there before may be carried out on this one.
        let pages = (end - start) / self.page_bytes;
        let end = first + pages.min(u64::from(u32::MAX - first)) as u32;
        let overlaps = region.requested.iter().filter_map(|run| {
            let pages = run.first.max(first)..(run.first + run.pages).min(end);
            (run.nodes == nodes && !pages.is_empty()).then_some(pages)
        });
        let overlaps: Vec<Range<u32>> = overlaps.collect();
        if overlaps.is_empty() && nodes != 0 && error == 0 && !region.own {
            let (pages, nodes) = (end.min(region.pages).saturating_sub(first), 0);
            let stale = PageRun {
                first,
                pages,
                nodes,
            };
            out.push(region.bind_request(&stale, 0, self.page_bytes));
        }
        match error {
            0 => self.move_touched(object, overlaps, nodes, out),
            _ => self.keep(object, overlaps),
        }
    }

    /// Pages could not be bound: they stay where they are touched.
    fn keep(&mut self, object: Object, runs: Vec<Range<u32>>) {
        let region = self.tracked[object.index()].as_ref();
        if let Some((base, from)) = region.and_then(|region| Some((region.base?, region.from))) {
            let blocks = runs.into_iter().flatten().map(|page| Block(base + page));
            blocks.for_each(|block| self.host.keep_at(block, from));
        }
    }

    /// The program has placed a range itself: the regions that overlap it are left alone from now
    /// on.
    fn leave_alone(&mut self, pid: Pid, (start, end): (Address, Address), out: &mut Vec<Decision>) {
        for object in self.regions.overlapping(pid, (start, end)) {
            let Some(region) = self.tracked[object.index()].as_mut() else {
                continue;
            };
            self.limited.remove(&(pid, object));
            region.kept.clear();
            region.requested.clear();
            if !std::mem::replace(&mut region.own, true) {
                self.summary.own += 1;
            }
            if std::mem::take(&mut region.watched) {
                self.recording.decided();
            }
            let migration = self.migration.as_mut();
            if let Some(migration) = migration.filter(|_| std::mem::take(&mut region.counted)) {
                let gain = migration.end(object, out);
                gain.into_iter()
                    .for_each(|gain| self.summary.add_gain(gain));
            }
        }
    }
}
