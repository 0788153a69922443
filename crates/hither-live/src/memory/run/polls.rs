//! How often the agent polls.

use std::time::Duration;

use super::super::event::{Input, TimedInput};
use crate::polling::Backoff;

/// The shortest and longest interval between two polls.
const INTERVALS: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(20)];

/// Those of a policy that goes by use alone: nothing that it learns is urgent. A poll takes some
/// 0.1 ms (2026-11), and where all CPUs are busy it stops a thread for which the others may wait.
const INTERVALS_BY_USE: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(100)];

/// The longest where pages are armed: a program that asks for a userfaultfd of its own waits for a
/// tenth of a second at most until the agent has let go.
const INTERVAL_MAX_ARMED: Duration = Duration::from_millis(50);

/// With fewer inputs, none of them a new region, the next poll comes later. A program that has its
/// pages and goes from construct to construct would lose more by a poll each millisecond than its
/// inputs are worth.
const BUSY_INPUTS_MIN: usize = 64;

/// The interval grows while little happens.
pub(super) struct Polls {
    is_quiet: bool,
    backoff: Backoff,
}

impl Polls {
    pub(super) fn new(by_use: bool, arms: bool) -> Polls {
        let [shortest, mut longest] = if by_use { INTERVALS_BY_USE } else { INTERVALS };
        if arms {
            longest = longest.min(INTERVAL_MAX_ARMED);
        }
        Polls {
            is_quiet: false,
            backoff: Backoff::new(shortest, longest),
        }
    }

    /// A poll has led to these inputs.
    pub(super) fn polled(&mut self, inputs: &[TimedInput]) {
        let region = |at: &TimedInput| matches!(at.input, Input::Region { .. });
        self.is_quiet = inputs.len() < BUSY_INPUTS_MIN && !inputs.iter().any(region);
    }

    /// The time until the next poll.
    pub(super) fn interval(&mut self) -> Duration {
        self.backoff.after(self.is_quiet)
    }
}
