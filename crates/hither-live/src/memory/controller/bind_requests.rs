//! Asks programs to bind ranges, and moves the pages that they touched before they did.

use hither_core::placement::RegionTier;
use hither_core::{Block, Object};
use hither_sys::record::OWN_POLICY;

use super::super::event::Decision;
use super::bind_segments::{BindState, BindTimers, Segment, SegmentKey, SegmentMove};
use super::page_runs::PageRun;
use super::placement_controller::PlacementController;
use super::tracked_region::TrackedRegion;
use crate::numa::ranges::{MoveResult, RefusalReason};

/// The time that a program has to bind a range before the pages that it touched meanwhile are
/// moved, and the interval of further moves as long as each finds pages to move: until then they
/// take frames of the near node that others will want. A loop that fills a region makes no hooked
/// call, and touches some 5 MB meanwhile. The interval doubles each time that no page was there.
const BIND_WAIT_NS: u64 = 5_000_000;

/// The interval is at least this many times the duration of the last move: finding out which pages
/// of a large range exist takes its time.
const INTERVAL_PER_MOVE_TIME: u64 = 20;

/// How often pages that were busy are tried again once their range is bound.
const BUSY_RETRIES_MAX: u32 = 4;

impl PlacementController {
    /// Has the program bind runs of a region, unless it should have done so by their site.
    pub(super) fn bind(
        &mut self,
        now_ns: u64,
        object: Object,
        runs: impl Iterator<Item = (PageRun, BindState)>,
        out: &mut Vec<Decision>,
    ) {
        let Some(region) = self.tracked[object.index()].as_mut() else {
            return;
        };
        for (run, state) in runs {
            if state == BindState::Requested {
                out.push(region.bind_request(&run, run.nodes, self.page_bytes));
                if region.tier == Some(RegionTier::Remote) && !self.dry_run {
                    self.displaced.leaves(object);
                }
            }
            let key = SegmentKey {
                object,
                generation: self.generations[object.index()],
                segment: region.segments.len(),
            };
            let timer = match self.dry_run {
                true => BindTimers::NONE,
                false => self.timers.set(now_ns + BIND_WAIT_NS, key),
            };
            region.segments.push(Segment {
                run,
                state,
                wait_ns: BIND_WAIT_NS,
                retries: 0,
                timer,
            });
        }
    }

    /// A segment's region and its index there, if the region is still there.
    pub(super) fn segment(&mut self, key: SegmentKey) -> Option<(&mut TrackedRegion, usize)> {
        let current = self.generations[key.object.index()] == key.generation;
        let region = self.tracked[key.object.index()].as_mut();
        region
            .filter(|region| current && key.segment < region.segments.len())
            .map(|region| (region, key.segment))
    }

    /// A segment's timer is due: requests its binding, or has it moved.
    pub(super) fn due(&mut self, key: SegmentKey, now_ns: u64, out: &mut Vec<Decision>) {
        let page_bytes = self.page_bytes;
        let timer = self.timers.next_number();
        let Some((region, number)) = self.segment(key) else {
            return;
        };
        let Segment { run, state, .. } = region.segments[number];
        if state == BindState::BySite {
            region.segments[number].state = BindState::Requested;
            region.segments[number].timer = timer;
            out.push(region.bind_request(&run, run.nodes, page_bytes));
            self.timers.set(now_ns + BIND_WAIT_NS, key);
            self.displaced.leaves(key.object);
            return;
        }
        let (pid, start) = (region.pid, region.address(run.first, page_bytes));
        let job = self.job_count;
        self.job_count += 1;
        self.jobs.insert(
            job,
            SegmentMove {
                key,
                bound_before: state == BindState::Bound,
            },
        );
        out.push(Decision::Move {
            job,
            pid,
            start,
            pages: run.pages,
            nodes: run.nodes,
        });
    }

    /// A program has bound a range, or could not.
    pub(super) fn bound(
        &mut self,
        now_ns: u64,
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
        let Some((object, _)) = self.regions.find(pid, start).filter(|_| error == 0) else {
            return;
        };
        let Some(region) = self.tracked[object.index()].as_mut() else {
            return;
        };
        let generation = self.generations[object.index()];
        let mut again = Vec::new();
        for (number, segment) in region.segments.iter_mut().enumerate() {
            let first = region.start + u64::from(segment.run.first) * self.page_bytes;
            if segment.run.nodes == nodes && (start..end).contains(&first) {
                segment.state = BindState::Bound;
                segment.timer = BindTimers::NONE;
                // A range that was bound by its site was bound before any touch.
                again.extend((!site).then_some(SegmentKey {
                    object,
                    generation,
                    segment: number,
                }));
            }
        }
        for key in again {
            self.due(key, now_ns, out);
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
            region.segments.clear();
            self.displaced.cut(object, 0, region.pages, true);
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

    /// Takes in the outcome of a move. A segment of which pages may still come, or were busy, is
    /// moved again later.
    pub(super) fn moved(&mut self, now_ns: u64, moved: &MoveResult, out: &mut Vec<Decision>) {
        self.summary.pages_moved += u64::from(moved.moved);
        let refused = moved.refused.iter().map(|run| u64::from(run.pages));
        self.summary.pages_refused += refused.sum::<u64>();
        let migration = self.migration.as_mut();
        if let Some(give_up) = migration.and_then(|of| of.moved(now_ns, moved)) {
            if let (Some(pid), Some(migration)) = (give_up, &mut self.migration) {
                migration.stop(pid, out);
            }
            return;
        }
        let Some(SegmentMove { key, bound_before }) = self.jobs.remove(&moved.job) else {
            return;
        };
        let timer = self.timers.next_number();
        let Some((region, number)) = self.segment(key) else {
            return;
        };
        let (base, from) = (region.base, region.from);
        let segment = &mut region.segments[number];
        let PageRun { first, pages, .. } = segment.run;
        let why = |why: RefusalReason| moved.refused.iter().any(|run| run.why == why);
        let given_up = [
            RefusalReason::NotPermitted,
            RefusalReason::NoProcess,
            RefusalReason::NodeNotAllowed,
        ];
        let done = match bound_before || moved.absent == 0 {
            true => !why(RefusalReason::Busy) || segment.retries >= BUSY_RETRIES_MAX,
            // Bound since this move began: another move is under way, the last one.
            false => segment.state == BindState::Bound,
        };
        let waits = !done && !given_up.into_iter().any(why);
        if waits {
            segment.retries += u32::from(why(RefusalReason::Busy));
            segment.timer = timer;
            let wait_ns = match moved.moved {
                0 => segment.wait_ns.saturating_mul(2),
                _ => BIND_WAIT_NS,
            };
            segment.wait_ns = wait_ns.max(moved.took_ns.saturating_mul(INTERVAL_PER_MOVE_TIME));
            let due_ns = now_ns + segment.wait_ns;
            self.timers.set(due_ns, key);
        }
        // Pages without numbers are those of a placement of an earlier run.
        if let Some(base) = base {
            for run in &moved.refused {
                let refused = run.first..run.first.saturating_add(run.pages).min(pages);
                refused.for_each(|page| self.host.keep_at(Block(base + first + page), from));
            }
        }
        if !waits {
            self.bring_back_displaced(key.object, out);
        }
    }

    /// A far region has arrived: pages that it displaced are brought back.
    fn bring_back_displaced(&mut self, far: Object, out: &mut Vec<Decision>) {
        for (object, node, run) in self.displaced.arrived(far) {
            let Some(region) = self.tracked[object.index()].as_ref() else {
                continue;
            };
            out.push(Decision::Move {
                job: self.job_count,
                pid: region.pid,
                start: region.address(run.first, self.page_bytes),
                pages: run.pages,
                nodes: self.host.node_mask(node),
            });
            self.job_count += 1;
        }
    }
}
