//! Whether the policy is worth its drops: beside it runs least-recently-used, which the kernel's
//! page cache approximates, over the same accesses and the same budget.
//!
//! Nothing is dropped to begin with. As soon as the policy has saved [`GAIN`] of the misses, and a
//! sixteenth of the budget, its evictions are carried out: in a loop that is as long into the
//! second round. A window is as many references as four budgets have blocks. One in which the
//! policy misses more than least-recently-used ends the steering, or else two in a row in which it
//! saves less than [`GAIN`]. Both go on being simulated, so it is known when steering would gain
//! again.
//!
//! Steering from the start, until two windows had shown no gain, cost what has nothing to gain: a
//! reader of 4 KiB here and there had 7 % more read (2026-11).

use super::super::event::Judged;

/// The least share of the misses that is to be saved.
const GAIN: f64 = 0.02;

/// Windows without gain in a row that end the steering.
const PATIENCE: u32 = 2;

/// References of a window, in budgets.
const BUDGETS: u64 = 4;

/// The part of a window that is to be saved before steering begins: less may be chance.
const BEGIN_PART: u64 = 64;

/// The smallest window, in references: a few files of nothing are no evidence.
const WINDOW_MIN: u64 = 256;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct GainMonitor {
    window: u64,
    now: Judged,
    evicted: bool,
    without_gain: u32,
}

impl GainMonitor {
    pub(super) fn new(capacity: u32) -> GainMonitor {
        let mut judge = GainMonitor {
            window: 0,
            now: Judged::default(),
            evicted: false,
            without_gain: 0,
        };
        judge.resized(capacity);
        judge
    }

    /// Steering for good, whatever there is to gain.
    #[cfg(test)]
    pub(super) fn always(mut self) -> GainMonitor {
        self.now.steering = true;
        self.window = u64::MAX;
        self
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
        if self.now.references < self.window && !self.may_begin() {
            return None;
        }
        // Where all fits there is nothing to judge, and nothing is dropped.
        let judged = self.evicted.then(|| self.judge());
        self.begin();
        judged
    }

    /// Enough was saved to begin, whether or not the window is at its end.
    fn may_begin(&self) -> bool {
        let saved = self.now.lru_misses.saturating_sub(self.now.misses);
        !self.now.steering && saved >= self.window / BEGIN_PART && self.gains()
    }

    fn gains(&self) -> bool {
        self.now.misses as f64 <= self.now.lru_misses as f64 * (1.0 - GAIN)
    }

    fn judge(&mut self) -> Judged {
        let (misses, lru_misses) = (self.now.misses as f64, self.now.lru_misses as f64);
        let gains = self.gains();
        let loses = misses > lru_misses * (1.0 + GAIN);
        self.without_gain = if gains { 0 } else { self.without_gain + 1 };
        self.now.steering = match self.now.steering {
            true => !loses && self.without_gain < PATIENCE,
            false => self.may_begin(),
        };
        self.now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A window of so many misses of each, those of both first, in a cache of 64 blocks.
    fn window(judge: &mut GainMonitor, misses: u64, lru_misses: u64) -> bool {
        let mut judged = None;
        for reference in 0..judge.window {
            judged = judge.reference(reference < misses, reference < lru_misses, true);
        }
        judged.expect("a window's end").steering
    }

    #[test]
    fn it_stops_at_a_loss_at_once_and_without_gain_after_a_while_and_comes_back() {
        let mut judge = GainMonitor::new(64);
        assert_eq!(judge.window, 256);
        assert!(!judge.steering());
        assert!(!window(&mut judge, 100, 100));
        assert!(!window(&mut judge, 99, 100), "too little to begin for");
        begin(&mut judge);
        let windows = [
            (100, 100, true),
            (90, 100, true),
            (99, 100, true),
            (98, 100, true),
            (99, 100, true),
            (99, 100, false),
            (99, 100, false),
        ];
        for (number, (misses, lru_misses, steering)) in windows.into_iter().enumerate() {
            let said = window(&mut judge, misses, lru_misses);
            assert_eq!(said, steering, "window {number}");
            assert_eq!(judge.steering(), steering);
        }
        begin(&mut judge);
        assert!(!window(&mut judge, 103, 100));
    }

    /// Four blocks saved, a sixteenth of the cache, are enough where they are 2 % of the misses as
    /// well.
    fn begin(judge: &mut GainMonitor) {
        for _ in 0..150 {
            assert_eq!(judge.reference(true, true, true), None);
        }
        for _ in 0..3 {
            assert_eq!(judge.reference(false, true, true), None);
        }
        let judged = judge.reference(false, true, true).expect("it begins");
        assert!(judged.steering && judge.steering());
    }

    #[test]
    fn what_is_little_beside_the_misses_is_no_reason_to_begin() {
        let mut judge = GainMonitor::new(4096);
        for reference in 0..judge.window - 1 {
            let judged = judge.reference(reference % 55 != 0, true, true);
            assert_eq!(judged, None, "{reference}");
        }
    }

    #[test]
    fn where_all_fits_there_is_nothing_to_judge() {
        let mut judge = GainMonitor::new(64);
        for _ in 0..4096 {
            assert_eq!(judge.reference(true, true, false), None);
        }
        assert!(!judge.steering());
    }
}
