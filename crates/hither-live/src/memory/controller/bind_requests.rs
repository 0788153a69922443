//! Orders to bind a range, the waiting for programs to carry them out, and the moving of what was
//! touched before.

use std::collections::BTreeMap;

use hither_core::placement::RegionTier;
use hither_core::{Block, Object};
use hither_sys::record::OWN_POLICY;

use super::super::event::Decision;
use super::PlacementController;
use super::lifecycle::TrackedRegion;
use super::page_runs::Run;
use crate::numa::ranges::{MoveResult, RefusalReason};

/// How long a program has to carry an order out before what it touched meanwhile is moved. While
/// there is something to move each time, it is moved at this distance, since until then it takes
/// frames of the near node that others will want: a loop that fills a region makes no call that we
/// hook, and touches some 5 MB meanwhile. Where nothing has come, the distance doubles.
pub(super) const WAIT_NS: u64 = 5_000_000;

/// The distance is so many times what the last move took, at the least: what is there of a large
/// range takes its time to find out.
const PACE: u64 = 20;

/// How often pages that were busy are tried again once their range is bound.
const RETRIES: u32 = 4;

/// A run of a region's pages that is wanted elsewhere.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) run: Run,
    pub(super) state: State,
    pub(super) wait_ns: u64,
    pub(super) retries: u32,
    /// The timer that it waits for; others that were set for it count no longer.
    pub(super) timer: u64,
}

/// How far the binding of a segment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The program should have bound it when it allocated it.
    Site,
    /// It was ordered.
    Requested,
    /// The program says that it is done; what it touched before is moved for the last time.
    Bound,
}

/// A segment of a region that may be gone by now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    pub(super) object: Object,
    pub(super) generation: u32,
    pub(super) segment: usize,
}

/// A move under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Move {
    key: Key,
    /// Its range was bound before it began.
    bound_before: bool,
}

/// Segments to be looked at, by time and number, since several may be due at once.
#[derive(Debug, Default)]
pub(super) struct BindTimers {
    due: BTreeMap<(u64, u64), Key>,
    count: u64,
}

impl BindTimers {
    /// The number of no timer.
    pub(super) const NONE: u64 = u64::MAX;

    /// Returns the timer's number.
    pub(super) fn set(&mut self, due_ns: u64, key: Key) -> u64 {
        self.due.insert((due_ns, self.count), key);
        self.count += 1;
        self.count - 1
    }

    /// When the next is due.
    pub(super) fn due_ns(&self) -> Option<u64> {
        self.due.keys().next().map(|&(due_ns, _)| due_ns)
    }

    /// Takes the next that is due.
    pub(super) fn due(&mut self, now_ns: u64) -> Option<(u64, Key)> {
        let entry = self.due.first_entry()?;
        let &(due_ns, timer) = entry.key();
        (due_ns <= now_ns).then(|| (timer, entry.remove()))
    }
}

impl PlacementController {
    /// Runs of a region's pages are wanted elsewhere: has the program bind them, unless it should
    /// have done so by itself.
    pub(super) fn bind(
        &mut self,
        now_ns: u64,
        object: Object,
        runs: impl Iterator<Item = (Run, State)>,
        out: &mut Vec<Decision>,
    ) {
        let Some(region) = self.tracked[object.index()].as_mut() else {
            return;
        };
        for (run, state) in runs {
            if state == State::Requested {
                out.push(region.bind_request(&run, run.nodes, self.page_bytes));
                if region.class == Some(RegionTier::Remote) && !self.dry_run {
                    self.spilled.leaves(object);
                }
            }
            let key = Key {
                object,
                generation: self.generations[object.index()],
                segment: region.segments.len(),
            };
            let timer = match self.dry_run {
                true => BindTimers::NONE,
                false => self.timers.set(now_ns + WAIT_NS, key),
            };
            region.segments.push(Segment {
                run,
                state,
                wait_ns: WAIT_NS,
                retries: 0,
                timer,
            });
        }
    }

    pub(super) fn segment(&mut self, key: Key) -> Option<(&mut TrackedRegion, usize)> {
        let current = self.generations[key.object.index()] == key.generation;
        let region = self.tracked[key.object.index()].as_mut();
        region
            .filter(|region| current && key.segment < region.segments.len())
            .map(|region| (region, key.segment))
    }

    /// It is time to do something about a segment.
    pub(super) fn due(&mut self, key: Key, now_ns: u64, out: &mut Vec<Decision>) {
        let page_bytes = self.page_bytes;
        let timer = self.timers.count;
        let Some((region, number)) = self.segment(key) else {
            return;
        };
        let Segment { run, state, .. } = region.segments[number];
        if state == State::Site {
            region.segments[number].state = State::Requested;
            region.segments[number].timer = timer;
            out.push(region.bind_request(&run, run.nodes, page_bytes));
            self.timers.set(now_ns + WAIT_NS, key);
            self.spilled.leaves(key.object);
            return;
        }
        let (pid, start) = (region.pid, region.address(run.first, page_bytes));
        let job = self.job_count;
        self.job_count += 1;
        self.jobs.insert(
            job,
            Move {
                key,
                bound_before: state == State::Bound,
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
        (site, hint): (bool, bool),
        out: &mut Vec<Decision>,
    ) {
        match error {
            _ if hint => {}
            // A range that is given back to the kernel is bound no more.
            0 => self.summary.ranges_bound += u64::from(nodes != 0),
            _ => self.summary.ranges_refused += 1,
        }
        let Some((start, end)) = self.regions.pages_within(start, length) else {
            return;
        };
        if error == OWN_POLICY {
            self.leave_alone(pid, (start, end), out);
            return;
        }
        if hint {
            self.hinted(now_ns, pid, (start, end), error);
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
                segment.state = State::Bound;
                segment.timer = BindTimers::NONE;
                // Bound by its site, nothing was touched before.
                again.extend((!site).then_some(Key {
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

    /// The program has chosen itself where a range is: nothing is done any more about the regions
    /// that it touches.
    fn leave_alone(&mut self, pid: u32, (start, end): (u64, u64), out: &mut Vec<Decision>) {
        for object in self.regions.overlapping(pid, (start, end)) {
            let Some(region) = self.tracked[object.index()].as_mut() else {
                continue;
            };
            self.limited.remove(&(pid, object));
            region.kept.clear();
            region.segments.clear();
            self.spilled.cut(object, 0, region.pages, true);
            if !std::mem::replace(&mut region.own, true) {
                self.summary.own += 1;
            }
            if std::mem::take(&mut region.watched) {
                self.watch.decided();
            }
            let counting = self.counting.as_mut();
            if let Some(counting) = counting.filter(|_| std::mem::take(&mut region.counted)) {
                out.extend(counting.end(object, region, self.page_bytes));
                region.hinted = None;
            }
        }
    }

    /// A move has ended: whether there is more to do, and what is not where it was to be.
    pub(super) fn moved(&mut self, now_ns: u64, moved: &MoveResult, out: &mut Vec<Decision>) {
        self.summary.pages_moved += u64::from(moved.moved);
        let refused = moved.refused.iter().map(|run| u64::from(run.pages));
        self.summary.pages_refused += refused.sum::<u64>();
        if self.migrated(now_ns, moved, out) {
            return;
        }
        let Some(Move { key, bound_before }) = self.jobs.remove(&moved.job) else {
            return;
        };
        let timer = self.timers.count;
        let Some((region, number)) = self.segment(key) else {
            return;
        };
        let (base, from) = (region.base, region.from);
        let segment = &mut region.segments[number];
        let Run { first, pages, .. } = segment.run;
        let why = |why: RefusalReason| moved.refused.iter().any(|run| run.why == why);
        let given_up = [
            RefusalReason::NotPermitted,
            RefusalReason::NoProcess,
            RefusalReason::NodeNotAllowed,
        ];
        let done = match bound_before || moved.absent == 0 {
            true => !why(RefusalReason::Busy) || segment.retries >= RETRIES,
            // Bound meanwhile: that move is on its way, and the last.
            false => segment.state == State::Bound,
        };
        let waits = !done && !given_up.into_iter().any(why);
        if waits {
            segment.retries += u32::from(why(RefusalReason::Busy));
            segment.timer = timer;
            let wait_ns = match moved.moved {
                0 => segment.wait_ns.saturating_mul(2),
                _ => WAIT_NS,
            };
            segment.wait_ns = wait_ns.max(moved.took_ns.saturating_mul(PACE));
            let due_ns = now_ns + segment.wait_ns;
            self.timers.set(due_ns, key);
        }
        for run in &moved.refused {
            let refused = run.first..run.first.saturating_add(run.pages).min(pages);
            refused.for_each(|page| self.model.stays(Block(base + first + page), from));
        }
        if !waits {
            self.fetch(key.object, out);
        }
    }
}
