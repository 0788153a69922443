//! Moves of what an earlier run has shown, and the outcomes of all moves.

use std::ops::Range;

use hither_core::Object;
use hither_core::placement::RegionTier;
use hither_ids::Pid;

use super::super::event::Decision;
use super::placement_controller::PlacementController;
use super::tracked_region::TrackedRegion;
use crate::numa::ranges::MoveResult;

impl PlacementController {
    /// Pages have been bound to nodes: those of a region that an earlier run has shown, and that
    /// were touched before, are moved there.
    pub(super) fn move_touched(
        &mut self,
        object: Object,
        runs: Vec<Range<u32>>,
        nodes: u64,
        out: &mut Vec<Decision>,
    ) {
        let region = self.tracked[object.index()].as_ref();
        let known = |region: &&TrackedRegion| region.known && !region.site_bound && nodes != 0;
        let Some(region) = region.filter(known) else {
            return;
        };
        for pages in runs {
            if region.tier == Some(RegionTier::Remote) {
                self.making_room.insert(self.job_count, region.pid);
            }
            out.push(region.move_request(self.job_count, &pages, nodes, self.page_bytes));
            self.job_count += 1;
        }
    }

    /// Takes in the outcome of a move.
    pub(super) fn moved(&mut self, now_ns: u64, moved: &MoveResult, out: &mut Vec<Decision>) {
        self.summary.pages_moved += u64::from(moved.moved);
        self.summary.huge_moved += u64::from(moved.huge);
        let refused = moved.refused.iter().map(|run| u64::from(run.pages));
        self.summary.pages_refused += refused.sum::<u64>();
        if let Some(migration) = &mut self.migration {
            migration.moved(now_ns, moved, out);
        }
        if let Some(pid) = self.making_room.remove(&moved.job)
            && moved.moved > 0
            && !self.making_room.values().any(|&of| of == pid)
        {
            self.bring_back(pid, out);
        }
    }

    /// The last of a program's far pages have left a near node. While they filled it, pages of near
    /// regions may have found no room there: those of regions that an earlier run has shown come
    /// back, once: to look for their pages costs time.
    fn bring_back(&mut self, pid: Pid, out: &mut Vec<Decision>) {
        let near = |region: &&mut TrackedRegion| {
            region.pid == pid
                && region.known
                && region.tier == Some(RegionTier::Local)
                && region.left == region.pages
                && !region.own
                && !region.brought_back
        };
        for region in self.tracked.iter_mut().flatten().filter(near) {
            region.brought_back = true;
            let (all, nodes) = (0..region.pages, self.host.node_mask(region.from));
            out.push(region.move_request(self.job_count, &all, nodes, self.page_bytes));
            self.job_count += 1;
        }
    }
}
