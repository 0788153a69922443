//! How often an agent looks for what programs tell.
//!
//! Each look wakes a thread on a CPU that the program may have use for: half a millisecond apart they took a fifth of a CPU in the lab where there was nothing to be gained.
//! A ring holds 21,000 accesses, so looks are as far apart as will fill no more than a part of one.

use std::time::Duration;

const PAUSE_MIN: Duration = Duration::from_micros(500);
const PAUSE_MAX: Duration = Duration::from_millis(20);

/// Records of one look after which the next comes sooner, and below which it comes later.
const MUCH: usize = 4096;
const LITTLE: usize = 1024;

/// See the module.
#[derive(Debug)]
pub(crate) struct Pace {
    pause: Duration,
}

impl Pace {
    /// Looks often to begin with: what comes first are the files that there are.
    pub(crate) fn new() -> Pace {
        Pace { pause: PAUSE_MIN }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_as_far_apart_as_little_comes() {
        let mut pace = Pace::new();
        let mut wait = |records, looks| (0..looks).map(|_| pace.after(records)).last();
        assert_eq!(wait(0, 1), Some(Duration::from_millis(1)));
        assert_eq!(wait(0, 20), Some(PAUSE_MAX));
        assert_eq!(wait(LITTLE, 20), Some(PAUSE_MAX));
        assert_eq!(wait(MUCH, 1), Some(PAUSE_MAX / 2));
        assert_eq!(wait(MUCH, 20), Some(PAUSE_MIN));
        assert_eq!(wait(LITTLE, 20), Some(PAUSE_MIN));
    }
}
