//! Whether the policy is worth its drops: beside it runs least-recently-used, which the kernel's page cache approximates, over
//! the same accesses and the same budget.
//!
//! A window is as many references as four budgets have blocks. A window in which the policy misses more than
//! least-recently-used ends the steering, or else two in a row in which it saves less than [`GAIN`]: a policy that learns, as
//! `pcc` does, spends the first round of a loop and part of the second on that. Both go on being simulated, so it is known when
//! steering would gain again.

use super::super::event::Judged;

/// The least share of the misses that is to be saved.
const GAIN: f64 = 0.02;

/// Windows without gain in a row that end the steering.
const PATIENCE: u32 = 2;

/// References of a window, in budgets.
const BUDGETS: u64 = 4;

/// The smallest window, in references: a few files of nothing are no evidence.
const WINDOW_MIN: u64 = 256;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Judge {
    window: u64,
    now: Judged,
    evicted: bool,
    without_gain: u32,
}

impl Judge {
    pub(super) fn new(capacity: u32) -> Judge {
        let mut judge = Judge {
            window: 0,
            now: Judged {
                steering: true,
                ..Judged::default()
            },
            evicted: false,
            without_gain: 0,
        };
        judge.resized(capacity);
        judge
    }

    /// The budget has changed: what was seen so far was another cache.
    pub(super) fn resized(&mut self, capacity: u32) {
        self.window = (u64::from(capacity) * BUDGETS).max(WINDOW_MIN);
        self.begin();
    }

    fn begin(&mut self) {
        self.now = Judged {
            steering: self.now.steering,
            ..Judged::default()
        };
        self.evicted = false;
    }

    /// Whether evictions are carried out.
    pub(super) fn steering(&self) -> bool {
        self.now.steering
    }

    /// One reference, and what it was in either cache. Says what the window comes to that it ends.
    pub(super) fn reference(
        &mut self,
        miss: bool,
        lru_miss: bool,
        evicted: bool,
    ) -> Option<Judged> {
        self.now.references += 1;
        self.now.misses += u64::from(miss);
        self.now.lru_misses += u64::from(lru_miss);
        self.evicted |= evicted;
        if self.now.references < self.window {
            return None;
        }
        // Where all fits there is nothing to judge, and nothing is dropped.
        let judged = self.evicted.then(|| self.judge());
        self.begin();
        judged
    }

    fn judge(&mut self) -> Judged {
        let (misses, lru_misses) = (self.now.misses as f64, self.now.lru_misses as f64);
        let gains = misses <= lru_misses * (1.0 - GAIN);
        let loses = misses > lru_misses * (1.0 + GAIN);
        self.without_gain = if gains { 0 } else { self.without_gain + 1 };
        self.now.steering = match self.now.steering {
            true => !loses && self.without_gain < PATIENCE,
            false => gains && lru_misses > 0.0,
        };
        self.now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A window of so many misses of each, in a cache of 64 blocks.
    fn window(judge: &mut Judge, misses: u64, lru_misses: u64) -> bool {
        let mut judged = None;
        for reference in 0..judge.window {
            judged = judge.reference(reference < misses, reference < lru_misses, true);
        }
        judged.expect("a window's end").steering
    }

    #[test]
    fn it_stops_at_a_loss_at_once_and_without_gain_after_a_while_and_comes_back() {
        let mut judge = Judge::new(64);
        assert_eq!(judge.window, 256);
        let windows = [
            (100, 100, true),
            (90, 100, true),
            (99, 100, true),
            (98, 100, true),
            (99, 100, true),
            (99, 100, false),
            (99, 100, false),
            (98, 100, true),
            (103, 100, false),
            (50, 100, true),
        ];
        for (number, (misses, lru_misses, steering)) in windows.into_iter().enumerate() {
            let said = window(&mut judge, misses, lru_misses);
            assert_eq!(said, steering, "window {number}");
            assert_eq!(judge.steering(), steering);
        }
    }

    #[test]
    fn where_all_fits_there_is_nothing_to_judge() {
        let mut judge = Judge::new(64);
        for _ in 0..4096 {
            assert_eq!(judge.reference(true, true, false), None);
        }
        assert!(judge.steering());
    }
}
