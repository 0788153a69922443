//! Sorts the events of many rings by time.
//!
//! The events of a ring are in order, but a thread may be descheduled for any time between reading
//! the clock and pushing. So events are held back for a while ([`HOLD_NS`]) and sorted before they
//! are released. Events that come even later are released at once, out of order, and counted: two
//! threads' accesses in the wrong order cost a simulation little, a missing access costs more.

/// How long an event is held back: longer than a runnable thread waits on a loaded machine.
pub(crate) const HOLD_NS: u64 = 1_000_000_000;

/// How often events are released. Each time, all that are held are sorted: after every drain, that
/// took 14 % of the CPU time of a program that opens small files, and its recorder's (2026-11).
pub(crate) const RELEASE_PERIOD_NS: u64 = HOLD_NS / 16;

/// The most events that are held back: 80 MiB. In a burst of more, events are held back for less
/// time.
const HELD_MAX: usize = 1 << 20;

/// Something that has a time.
pub(crate) trait Timed {
    /// The time, and the order among events of the same time. Equal events stay in order of
    /// arrival.
    fn key(&self) -> (u64, u32);
}

/// The events that are held back.
#[derive(Debug)]
pub(crate) struct ReorderWindow<T> {
    held: Vec<T>,
    held_max: usize,
    released_to_ns: u64,
    late: u64,
}

impl<T: Timed> ReorderWindow<T> {
    pub(crate) fn new() -> Self {
        ReorderWindow::with_capacity(HELD_MAX)
    }

    fn with_capacity(held_max: usize) -> Self {
        ReorderWindow {
            held: Vec::new(),
            held_max,
            released_to_ns: 0,
            late: 0,
        }
    }

    /// Events that were released out of order.
    pub(crate) fn late(&self) -> u64 {
        self.late
    }

    pub(crate) fn push(&mut self, event: T) {
        self.late += u64::from(event.key().0 < self.released_to_ns);
        self.held.push(event);
    }

    /// Whether some have to be released before there is room for more.
    pub(crate) fn is_full(&self) -> bool {
        self.held.len() >= self.held_max
    }

    /// Releases the events up to `until_ns` in order of time; of a full window at least half.
    pub(crate) fn release(&mut self, until_ns: u64) -> impl Iterator<Item = T> + '_ {
        // The sort is stable, and fast on sorted runs: the events of one ring in a drain are one.
        self.held.sort_by_key(T::key);
        let due = self.held.partition_point(|event| event.key().0 <= until_ns);
        let due = if self.is_full() {
            due.max(self.held.len() / 2)
        } else {
            due
        };
        if let Some(last) = due.checked_sub(1) {
            self.released_to_ns = self.released_to_ns.max(self.held[last].key().0);
        }
        self.held.drain(..due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Timed for (u64, u32, char) {
        fn key(&self) -> (u64, u32) {
            (self.0, self.1)
        }
    }

    fn released(window: &mut ReorderWindow<(u64, u32, char)>, until_ns: u64) -> String {
        window.release(until_ns).map(|event| event.2).collect()
    }

    #[test]
    fn rings_are_merged_by_time_and_ties_by_ring() {
        let mut window = ReorderWindow::new();
        for event in [
            (10, 1, 'b'),
            (30, 1, 'd'),
            (30, 1, 'e'),
            (10, 0, 'a'),
            (20, 0, 'c'),
            (31, 0, 'f'),
        ] {
            window.push(event);
        }
        assert_eq!(released(&mut window, 30), "abcde");
        assert_eq!(released(&mut window, 30), "");
        assert_eq!(released(&mut window, u64::MAX), "f");
        assert_eq!(window.late(), 0);
    }

    #[test]
    fn what_comes_too_late_is_released_at_once_and_counted() {
        let mut window = ReorderWindow::new();
        window.push((20, 0, 'b'));
        assert_eq!(released(&mut window, 25), "b");
        window.push((10, 1, 'a'));
        // Later than what was released, though earlier than the mark: still in order.
        window.push((22, 1, 'c'));
        assert_eq!(released(&mut window, 25), "ac");
        assert_eq!(window.late(), 1);
    }

    #[test]
    fn a_full_window_lets_half_go() {
        let mut window = ReorderWindow::with_capacity(4);
        for (time, name) in [(4, 'd'), (3, 'c'), (2, 'b'), (1, 'a')] {
            window.push((time, 0, name));
        }
        assert!(window.is_full());
        assert_eq!(released(&mut window, 0), "ab");
        assert!(!window.is_full());
        assert_eq!(released(&mut window, 0), "");
    }
}
