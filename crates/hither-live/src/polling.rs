//! How often an agent looks for what programs tell, and does what is done from time to time.
//!
//! Each look wakes a thread on a CPU that the program may have use for: half a millisecond apart
//! they took a fifth of a CPU in the lab where there was nothing to be gained. A ring holds 21,000
//! accesses, so looks are as far apart as will fill no more than a part of one.

use std::time::Duration;

const PAUSE_MIN: Duration = Duration::from_micros(500);
const PAUSE_MAX: Duration = Duration::from_millis(20);

/// Records of one look after which the next comes sooner, and below which it comes later.
const MUCH: usize = 4096;
const LITTLE: usize = 1024;

/// See the module.
#[derive(Debug)]
pub(crate) struct PollInterval {
    pause: Duration,
}

impl PollInterval {
    /// Looks often to begin with: what comes first are the files that there are.
    pub(crate) fn new() -> PollInterval {
        PollInterval { pause: PAUSE_MIN }
    }

    /// How long to wait after a look that found so many records.
    pub(crate) fn after(&mut self, records: usize) -> Duration {
        self.pause = match records {
            MUCH.. => self.pause / 2,
            LITTLE.. => self.pause,
            _ => self.pause * 2,
        };
        self.pause = self.pause.clamp(PAUSE_MIN, PAUSE_MAX);
        self.pause
    }
}

/// A wait that doubles with each look that found nothing, and is the shortest after one that did.
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

    /// How long to wait after a look.
    pub(crate) fn after(&mut self, found_nothing: bool) -> Duration {
        self.pause = match found_nothing {
            true => (self.pause * 2).min(self.max),
            false => self.min,
        };
        self.pause
    }
}

/// Something that is done so often, and no more often.
#[derive(Debug)]
pub(crate) struct Periodic {
    period_ns: u64,
    next_ns: u64,
}

impl Periodic {
    /// For the first time at once.
    pub(crate) fn from_start(period_ns: u64) -> Periodic {
        Periodic {
            period_ns,
            next_ns: 0,
        }
    }

    /// For the first time after that long.
    pub(crate) fn after(period_ns: u64) -> Periodic {
        Periodic {
            period_ns,
            next_ns: period_ns,
        }
    }

    /// Whether it is to be done, which it then is not for as long again.
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
    fn looks_are_as_far_apart_as_little_comes() {
        let mut pace = PollInterval::new();
        let mut wait = |records, looks| (0..looks).map(|_| pace.after(records)).last();
        assert_eq!(wait(0, 1), Some(Duration::from_millis(1)));
        assert_eq!(wait(0, 20), Some(PAUSE_MAX));
        assert_eq!(wait(LITTLE, 20), Some(PAUSE_MAX));
        assert_eq!(wait(MUCH, 1), Some(PAUSE_MAX / 2));
        assert_eq!(wait(MUCH, 20), Some(PAUSE_MIN));
        assert_eq!(wait(LITTLE, 20), Some(PAUSE_MIN));
    }
}
