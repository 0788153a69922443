//! Runs of a region that the program is to bind, and the timers that wait for it.

use std::collections::BTreeMap;

use hither_core::Object;

use super::page_runs::PageRun;

/// A run of a region's pages that is wanted elsewhere.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) run: PageRun,
    pub(super) state: BindState,
    /// The current interval between two moves.
    pub(super) wait_ns: u64,
    /// Moves since it was bound that found busy pages.
    pub(super) retries: u32,
    /// The timer that it waits for. Others that were set for it before are void.
    pub(super) timer: u64,
}

/// How far the binding of a segment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BindState {
    /// The program should have bound it when it allocated it, by the policy of its site.
    BySite,
    /// The program was asked to bind it.
    Requested,
    /// The program reports that it is bound. Pages that were touched before are moved for the last
    /// time.
    Bound,
}

/// A segment of a region, which may be gone by now.
#[derive(Clone, Copy, Debug)]
pub(super) struct SegmentKey {
    pub(super) object: Object,
    pub(super) generation: u32,
    pub(super) segment: usize,
}

/// A move of a segment under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct SegmentMove {
    pub(super) key: SegmentKey,
    /// Its range was bound before the move began.
    pub(super) bound_before: bool,
}

/// Segments by the time at which to act on them, and by timer, since several may be due at once.
#[derive(Debug, Default)]
pub(super) struct BindTimers {
    due: BTreeMap<(u64, u64), SegmentKey>,
    count: u64,
}

impl BindTimers {
    /// The number of no timer.
    pub(super) const NONE: u64 = u64::MAX;

    /// The number of the next timer.
    pub(super) fn next_number(&self) -> u64 {
        self.count
    }

    /// Sets a timer, and returns its number.
    pub(super) fn set(&mut self, due_ns: u64, key: SegmentKey) -> u64 {
        self.due.insert((due_ns, self.count), key);
        self.count += 1;
        self.count - 1
    }

    /// When the next one is due.
    pub(super) fn due_ns(&self) -> Option<u64> {
        self.due.keys().next().map(|&(due_ns, _)| due_ns)
    }

    /// Takes the next one that is due.
    pub(super) fn due(&mut self, now_ns: u64) -> Option<(u64, SegmentKey)> {
        let entry = self.due.first_entry()?;
        let &(due_ns, timer) = entry.key();
        (due_ns <= now_ns).then(|| (timer, entry.remove()))
    }
}
