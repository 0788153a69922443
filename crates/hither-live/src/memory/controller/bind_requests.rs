//! Asks programs to bind ranges, and takes in what they have bound.

use hither_core::Object;
use hither_sys::record::OWN_POLICY;

use super::super::event::Decision;
use super::page_runs::PageRun;
use super::placement_controller::PlacementController;

impl PlacementController {
    /// Has the program bind runs of a region.
    pub(super) fn bind(&self, object: Object, runs: Vec<PageRun>, out: &mut Vec<Decision>) {
        if let Some(region) = self.tracked[object.index()].as_ref() {
            let requests = runs.iter();
            out.extend(requests.map(|run| region.bind_request(run, run.nodes, self.page_bytes)));
        }
    }

    /// A program has bound a range, or could not.
    pub(super) fn bound(
        &mut self,
        (pid, start, length): (u32, u64, u64),
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
        let region = found.and_then(|(object, _)| self.tracked[object.index()].as_ref());
        // What was bound by its site was bound before any touch.
        if region.is_some_and(|region| region.known) && error == 0 && nodes != 0 && !site {
            out.push(Decision::Move {
                job: self.job_count,
                pid,
                start,
                pages: ((end - start) / self.page_bytes) as u32,
                nodes,
            });
            self.job_count += 1;
        }
    }

    /// The program has placed a range itself: the regions that overlap it are left alone from now
    /// on.
    fn leave_alone(&mut self, pid: u32, (start, end): (u64, u64), out: &mut Vec<Decision>) {
        for object in self.regions.overlapping(pid, (start, end)) {
            let Some(region) = self.tracked[object.index()].as_mut() else {
                continue;
            };
            self.limited.remove(&(pid, object));
            region.kept.clear();
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
