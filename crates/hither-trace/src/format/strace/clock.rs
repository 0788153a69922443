//! The time of a line, from any of the clocks of strace.

use super::line::Time;

const DAY_NS: u64 = 24 * 3600 * 1_000_000_000;

/// Times relative to the first one.
#[derive(Debug, Default)]
pub(super) struct Clock {
    first_ns: Option<u64>,
    /// Days passed so far, for logs with the time of day only.
    midnights_ns: u64,
    last_of_day_ns: u64,
    pub(super) now_ns: u64,
}

impl Clock {
    /// The time of a line. It never decreases.
    pub(super) fn at(&mut self, time: Option<Time>) -> u64 {
        let absolute = match time {
            None => self
                .first_ns
                .unwrap_or(0)
                .saturating_add(self.now_ns)
                .saturating_add(1),
            Some(Time::SinceLast(ns)) => {
                let last = self.first_ns.unwrap_or(0).saturating_add(self.now_ns);
                last.saturating_add(ns)
            }
            Some(Time::Epoch(ns)) => ns,
            Some(Time::OfDay(ns)) => {
                if ns.saturating_add(DAY_NS / 2) < self.last_of_day_ns {
                    self.midnights_ns = self.midnights_ns.saturating_add(DAY_NS);
                }
                self.last_of_day_ns = ns;
                ns.saturating_add(self.midnights_ns)
            }
        };
        let first = *self.first_ns.get_or_insert(absolute);
        self.now_ns = absolute.saturating_sub(first).max(self.now_ns);
        self.now_ns
    }
}
