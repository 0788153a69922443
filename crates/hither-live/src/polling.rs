//! How often an agent polls the rings, and does periodic work.
//!
//! Each poll wakes a thread on a CPU that the program may need: in the lab, polls each half a
//! millisecond took a fifth of a CPU where there was nothing to gain. A ring holds 21,000 accesses.
//! So the interval between polls is such that programs fill no more than a part of a ring.

use std::time::Duration;

const INTERVAL_MIN: Duration = Duration::from_micros(500);
const INTERVAL_MAX: Duration = Duration::from_millis(20);

/// A poll with so many records halves the interval.
const HALVING_RECORDS_MIN: usize = 4096;

/// A poll with fewer records doubles it.
const DOUBLING_RECORDS_MAX: usize = 1024;

/// The interval between polls.
#[derive(Debug)]
pub(crate) struct PollInterval {
    interval: Duration,
}

impl PollInterval {
    /// Begins with the shortest interval: the first records name the program's files.
    pub(crate) fn new() -> PollInterval {
        PollInterval {
            interval: INTERVAL_MIN,
        }
    }

    /// How long to wait after a poll with so many records.
    pub(crate) fn after(&mut self, records: usize) -> Duration {
        self.interval = match records {
            HALVING_RECORDS_MIN.. => self.interval / 2,
            DOUBLING_RECORDS_MAX.. => self.interval,
            _ => self.interval * 2,
        };
        self.interval = self.interval.clamp(INTERVAL_MIN, INTERVAL_MAX);
        self.interval
    }
}

/// How late the agent was woken, in powers of two of nanoseconds: where programs keep all
/// processors busy, it waits for one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lateness {
    wakes: [u64; 32],
}

impl Lateness {
    /// It was woken, so much later than it had asked for.
    pub(crate) fn add(&mut self, late_ns: u64) {
        let power = u64::BITS - late_ns.leading_zeros();
        self.wakes[(power as usize).min(self.wakes.len() - 1)] += 1;
    }

    /// It was that late or less this share of the times, within a factor of two.
    pub(crate) fn share_ns(&self, share: f64) -> u64 {
        let all: u64 = self.wakes.iter().sum();
        let mut wakes = 0;
        let power = self.wakes.iter().position(|&of_power| {
            wakes += of_power;
            wakes as f64 >= share * all as f64
        });
        (1 << power.unwrap_or(0)) - 1
    }
}

/// A wait that doubles with each poll that found nothing, and is shortest after one that did.
#[derive(Debug)]
pub(crate) struct Backoff {
    pause: Duration,
    min: Duration,
    max: Duration,
}

impl Backoff {
    pub(crate) fn new(min: Duration, max: Duration) -> Backoff {
        Backoff {
            pause: min,
            min,
            max,
        }
    }

    /// How long to wait after a poll.
    pub(crate) fn after(&mut self, found_nothing: bool) -> Duration {
        self.pause = if found_nothing {
            (self.pause * 2).min(self.max)
        } else {
            self.min
        };
        self.pause
    }
}

/// Work that is done once in a period.
#[derive(Debug)]
pub(crate) struct Periodic {
    period_ns: u64,
    next_ns: u64,
}

impl Periodic {
    /// Is due at once for the first time.
    pub(crate) fn from_start(period_ns: u64) -> Periodic {
        Periodic {
            period_ns,
            next_ns: 0,
        }
    }

    /// Is due for the first time after a period.
    pub(crate) fn after(period_ns: u64) -> Periodic {
        Periodic {
            period_ns,
            next_ns: period_ns,
        }
    }

    /// Whether the work is due. If so, it is next due a period later.
    pub(crate) fn is_due(&mut self, now_ns: u64) -> bool {
        let due = now_ns >= self.next_ns;
        if due {
            self.next_ns = now_ns + self.period_ns;
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lateness_is_known_to_a_power_of_two() {
        let mut lateness = Lateness::default();
        assert_eq!(lateness.share_ns(0.95), 0);
        (0..94).for_each(|_| lateness.add(700));
        (0..6).for_each(|_| lateness.add(3_000_000));
        assert_eq!(
            [0.5, 0.95].map(|share| lateness.share_ns(share)),
            [1023, 4_194_303]
        );
        lateness.add(u64::MAX);
    }

    #[test]
    fn waits_double_until_something_is_found() {
        let ms = Duration::from_millis;
        let mut pause = Backoff::new(ms(1), ms(5));
        let waits = [true, true, true, false, true].map(|nothing| pause.after(nothing));
        assert_eq!(waits, [ms(2), ms(4), ms(5), ms(1), ms(2)]);
    }

    #[test]
    fn a_period_begins_when_something_is_done() {
        let mut every = Periodic::after(10);
        let due = [0, 9, 12, 21, 22].map(|now_ns| every.is_due(now_ns));
        assert_eq!(due, [false, false, true, false, true]);
        let mut every = Periodic::from_start(10);
        let due = [0, 9, 10].map(|now_ns| every.is_due(now_ns));
        assert_eq!(due, [true, false, true]);
    }

    #[test]
    fn the_interval_grows_while_little_comes() {
        let mut interval = PollInterval::new();
        let mut wait = |records, polls| (0..polls).map(|_| interval.after(records)).last();
        assert_eq!(wait(0, 1), Some(Duration::from_millis(1)));
        assert_eq!(wait(0, 20), Some(INTERVAL_MAX));
        assert_eq!(wait(DOUBLING_RECORDS_MAX, 20), Some(INTERVAL_MAX));
        assert_eq!(wait(HALVING_RECORDS_MIN, 1), Some(INTERVAL_MAX / 2));
        assert_eq!(wait(HALVING_RECORDS_MIN, 20), Some(INTERVAL_MIN));
        assert_eq!(wait(DOUBLING_RECORDS_MAX, 20), Some(INTERVAL_MIN));
    }
}
