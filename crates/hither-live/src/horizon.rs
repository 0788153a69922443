//! How far the sources are drained at once.
//!
//! Where other work keeps the agent from a CPU, what it finds is up to seconds old. Then it drains
//! all sources step by step in time, so that the oldest events of all threads come first.

/// How much time a drain covers at most, when the agent is behind.
const STEP_NS_MAX: u64 = 250_000_000;
const STEP_NS_MIN: u64 = 1_000_000;

/// A drain of more records than this was too long a step, and one of fewer than a quarter too
/// short: the recorder's window of 2^20 events is to hold several.
const STEP_RECORDS_MAX: usize = 1 << 17;

/// Up to when the rings are read, so that of what is queued for long in many rings the oldest is
/// read first.
#[derive(Debug)]
pub(crate) struct Horizon {
    until_ns: u64,
    step_ns: u64,
}

impl Horizon {
    pub(crate) fn new(start_ns: u64) -> Self {
        Horizon {
            until_ns: start_ns,
            step_ns: STEP_NS_MAX,
        }
    }

    /// The time of the last event to read now: `u64::MAX` if all that is queued is a step or less.
    pub(crate) fn advance(&mut self, now_ns: u64) -> u64 {
        let until_ns = self.until_ns.saturating_add(self.step_ns);
        self.until_ns = until_ns.min(now_ns);
        if until_ns < now_ns {
            until_ns
        } else {
            u64::MAX
        }
    }

    /// The step had so many records.
    pub(crate) fn took(&mut self, records: usize) {
        let step_ns = match records {
            _ if records > STEP_RECORDS_MAX => self.step_ns / 2,
            _ if records < STEP_RECORDS_MAX / 4 => self.step_ns * 2,
            _ => self.step_ns,
        };
        self.step_ns = step_ns.clamp(STEP_NS_MIN, STEP_NS_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_queued_for_long_is_read_step_by_step() {
        let mut horizon = Horizon::new(1_000);
        assert_eq!(horizon.advance(1_000 + STEP_NS_MAX), u64::MAX);
        let late = 10 * STEP_NS_MAX;
        assert_eq!(horizon.advance(late), 1_000 + 2 * STEP_NS_MAX);
        horizon.took(8 * STEP_RECORDS_MAX);
        assert_eq!(horizon.advance(late), 1_000 + 5 * STEP_NS_MAX / 2);
        horizon.took(STEP_RECORDS_MAX);
        assert_eq!(horizon.advance(late), 1_000 + 3 * STEP_NS_MAX);
        horizon.took(0);
        assert_eq!(horizon.advance(late), 1_000 + 4 * STEP_NS_MAX);
        let steps = (0..10).take_while(|_| horizon.advance(late) < u64::MAX);
        assert_eq!(steps.count(), 5);
        assert_eq!(horizon.advance(late + 1), u64::MAX);
    }
}
