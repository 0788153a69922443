//! Whether the policy's drops pay: compares its misses with those of LRU, which the kernel's page
//! cache approximates, over the same accesses.
//!
//! At first nothing is dropped. Evictions are carried out as soon as the policy has saved
//! [`MIN_SAVED_SHARE`] of the misses, and a sixteenth of the budget; in a loop that is within the
//! second pass. A window has as many references as four budgets have blocks. Steering stops after
//! one window in which the policy misses more than LRU, or after two in a row in which it saves
//! less than [`MIN_SAVED_SHARE`]. Both caches are simulated all the time, so it is known when
//! steering would pay again.
//!
//! LRU's misses of blocks that were accessed before count for what the kernel alone would have
//! read, where it reads less than LRU misses
//! ([`StorageAccount`](super::storage_account::StorageAccount)). So steering begins only when that
//! has just been counted. Each time that steering was stopped by what was read, four times as much
//! has to be saved before it starts again: the models are wrong for this program. Twice as much was
//! too little for DuckDB, where it began four times in ten seconds.
//!
//! An earlier version steered from the start until two windows had shown no gain. That cost
//! programs with nothing to gain: a reader of 4 KiB here and there had 7 % more read (2026-11).

use super::super::event::Judged;

/// The least share of LRU's misses that the policy must save.
const MIN_SAVED_SHARE: f64 = 0.02;

/// Windows in a row without gain after which steering stops.
const WINDOWS_WITHOUT_GAIN_MAX: u32 = 2;

/// The length of a window, in budgets.
const BUDGETS_PER_WINDOW: u64 = 4;

/// Steering starts only once the policy has saved at least 1/64 of a window's references: less may
/// be chance.
const START_SAVED_DIVISOR: u64 = 64;

/// The least length of a window, in references: a few small files are no evidence.
const WINDOW_REFERENCES_MIN: u64 = 256;

/// A reference, and its result in either cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted {
    /// In the policy's cache.
    pub(super) miss: bool,
    pub(super) lru_miss: bool,
    /// The block is accessed for the first time.
    pub(super) new: bool,
    /// The policy has evicted a block.
    pub(super) evicted: bool,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct GainMonitor {
    /// Steering is on, and never judged.
    always: bool,
    /// Its length in references.
    window: u64,
    now: Judged,
    /// Its misses of blocks that are accessed for the first time.
    new: u64,
    evicted: bool,
    /// What was saved in the window when a count was last asked for.
    asked_at: u64,
    windows_without_gain: u32,
    /// How often steering was stopped from outside.
    losses: u32,
}

impl GainMonitor {
    /// `always`: steers whether or not there is a gain.
    pub(super) fn new(capacity: u32, always: bool) -> GainMonitor {
        let mut monitor = GainMonitor {
            always,
            window: 0,
            now: Judged {
                steering: always,
                ..Judged::default()
            },
            new: 0,
            evicted: false,
            asked_at: 0,
            windows_without_gain: 0,
            losses: 0,
        };
        monitor.resized(capacity);
        monitor
    }

    /// The budget has changed: the misses so far were those of another cache.
    pub(super) fn resized(&mut self, capacity: u32) {
        self.window = (u64::from(capacity) * BUDGETS_PER_WINDOW).max(WINDOW_REFERENCES_MIN);
        self.begin();
    }

    fn begin(&mut self) {
        self.now = Judged {
            steering: self.now.steering,
            ..Judged::default()
        };
        (self.new, self.asked_at) = (0, 0);
        self.evicted = false;
    }

    /// Whether evictions are carried out.
    pub(super) fn steering(&self) -> bool {
        self.now.steering
    }

    /// Steering has lost, by what was read from storage.
    pub(super) fn lost(&mut self) {
        self.now.steering = false;
        self.losses += 1;
        self.begin();
    }

    /// Counts a reference and its result in either cache. Returns the result of the window that it
    /// ends, if it ends one. `ratio` is what the kernel reads for each block that LRU reads again;
    /// none if steering may begin whatever that is.
    pub(super) fn reference(&mut self, counted: Counted, ratio: Option<f64>) -> Option<Judged> {
        self.now.references += 1;
        self.now.misses += u64::from(counted.miss);
        self.now.lru_misses += u64::from(counted.lru_miss);
        self.new += u64::from(counted.new);
        self.evicted |= counted.evicted;
        let begins = ratio.is_none() && self.may_begin(1.0);
        if self.now.references < self.window && !begins {
            return None;
        }
        self.end(ratio.unwrap_or(1.0), begins)
    }

    /// Whether what was read from storage is to be counted now, because the policy has saved enough
    /// to begin, unless the kernel has saved it too.
    pub(super) fn asks(&mut self) -> bool {
        let saved = self.now.lru_misses.saturating_sub(self.now.misses);
        let asks = self.may_begin(1.0) && saved >= self.asked_at + self.needed();
        if asks {
            self.asked_at = saved;
        }
        asks
    }

    /// What was read from storage has been counted. Returns the result of the window, if it ends
    /// because steering begins.
    pub(super) fn counted(&mut self, ratio: f64) -> Option<Judged> {
        self.may_begin(ratio).then(|| self.end(ratio, true))?
    }

    /// Ends the window. Where all data fit nothing is evicted: there is nothing to compare.
    fn end(&mut self, ratio: f64, begins: bool) -> Option<Judged> {
        let judged = (self.evicted && !self.always).then(|| self.judge(ratio, begins));
        self.begin();
        judged
    }

    /// Whether enough was saved to start steering, at the end of a window or before.
    fn may_begin(&self, ratio: f64) -> bool {
        let saved = self.misses_alone(ratio) - self.now.misses as f64;
        !self.now.steering && saved >= self.needed() as f64 && self.gains(ratio)
    }

    /// What has to be saved before steering begins.
    fn needed(&self) -> u64 {
        (self.window / START_SAVED_DIVISOR) << (2 * self.losses).min(32)
    }

    fn gains(&self, ratio: f64) -> bool {
        self.now.misses as f64 <= self.misses_alone(ratio) * (1.0 - MIN_SAVED_SHARE)
    }

    /// The misses of the kernel alone.
    fn misses_alone(&self, ratio: f64) -> f64 {
        let again = self.now.lru_misses - self.new;
        self.new as f64 + again as f64 * ratio.min(1.0)
    }

    fn judge(&mut self, ratio: f64, begins: bool) -> Judged {
        let (misses, lru_misses) = (self.now.misses as f64, self.now.lru_misses as f64);
        let gains = self.gains(ratio);
        let loses = misses > lru_misses * (1.0 + MIN_SAVED_SHARE);
        self.windows_without_gain = if gains {
            0
        } else {
            self.windows_without_gain + 1
        };
        self.now.steering = if self.now.steering {
            !loses && self.windows_without_gain < WINDOWS_WITHOUT_GAIN_MAX
        } else {
            begins
        };
        self.now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reference to a block that was accessed before, where the count does not matter.
    fn reference(monitor: &mut GainMonitor, miss: bool, lru_miss: bool) -> Option<Judged> {
        monitor.reference(counted(miss, lru_miss), None)
    }

    fn counted(miss: bool, lru_miss: bool) -> Counted {
        Counted {
            miss,
            lru_miss,
            new: false,
            evicted: true,
        }
    }

    /// A window with this many misses of each, in a cache of 64 blocks. The misses of both come
    /// first.
    fn window(monitor: &mut GainMonitor, misses: u64, lru_misses: u64) -> bool {
        let mut judged = None;
        for reference in 0..monitor.window {
            judged = self::reference(monitor, reference < misses, reference < lru_misses);
        }
        judged.expect("a window's end").steering
    }

    #[test]
    fn it_stops_at_a_loss_at_once_and_without_gain_after_a_while_and_comes_back() {
        let mut monitor = GainMonitor::new(64, false);
        assert_eq!(monitor.window, 256);
        assert!(!monitor.steering());
        assert!(!window(&mut monitor, 100, 100));
        assert!(!window(&mut monitor, 99, 100), "too little to begin for");
        begin(&mut monitor);
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
            let said = window(&mut monitor, misses, lru_misses);
            assert_eq!(said, steering, "window {number}");
            assert_eq!(monitor.steering(), steering);
        }
        begin(&mut monitor);
        assert!(!window(&mut monitor, 103, 100));
    }

    /// Saving four blocks, a sixteenth of the cache, is enough where that is 2 % of the misses.
    fn begin(monitor: &mut GainMonitor) {
        for _ in 0..150 {
            assert_eq!(reference(monitor, true, true), None);
        }
        for _ in 0..3 {
            assert_eq!(reference(monitor, false, true), None);
        }
        let judged = reference(monitor, false, true).expect("it begins");
        assert!(judged.steering && monitor.steering());
    }

    #[test]
    fn what_is_little_beside_the_misses_is_no_reason_to_begin() {
        let mut monitor = GainMonitor::new(4096, false);
        for number in 0..monitor.window - 1 {
            let judged = reference(&mut monitor, number % 55 != 0, true);
            assert_eq!(judged, None, "{number}");
        }
    }

    #[test]
    fn where_all_fits_there_is_nothing_to_judge() {
        let mut monitor = GainMonitor::new(64, false);
        for _ in 0..4096 {
            let fits = Counted {
                evicted: false,
                ..counted(true, true)
            };
            assert_eq!(monitor.reference(fits, None), None);
        }
        assert!(!monitor.steering());
    }

    #[test]
    fn after_a_loss_more_has_to_be_saved() {
        let mut monitor = GainMonitor::new(64, false);
        begin(&mut monitor);
        monitor.lost();
        assert!(!monitor.steering());
        for _ in 0..15 {
            assert_eq!(
                reference(&mut monitor, false, true),
                None,
                "four times four"
            );
        }
        let judged = reference(&mut monitor, false, true).expect("it begins");
        assert!(judged.steering);
    }

    #[test]
    fn what_the_kernel_has_saved_too_is_no_reason_to_begin() {
        let mut monitor = GainMonitor::new(64, false);
        let saves = |monitor: &mut GainMonitor, count: u64| {
            (0..count).any(|_| {
                let judged = monitor.reference(counted(false, true), Some(1.0));
                assert_eq!(judged, None, "it waits for the count");
                monitor.asks()
            })
        };
        assert!(!saves(&mut monitor, 3));
        assert!(saves(&mut monitor, 1));
        assert_eq!(monitor.counted(0.0), None, "the kernel reads nothing again");
        assert_eq!(monitor.counted(0.9), None, "3.6 saved");
        assert!(!saves(&mut monitor, 3), "it has just asked");
        assert!(saves(&mut monitor, 1));
        assert!(monitor.counted(0.9).expect("7.2 saved").steering);
    }

    #[test]
    fn what_is_new_is_read_whatever_the_kernel_keeps() {
        let mut monitor = GainMonitor::new(64, false);
        for _ in 0..200 {
            let new = Counted {
                new: true,
                ..counted(true, true)
            };
            monitor.reference(new, Some(0.0));
        }
        for _ in 0..8 {
            monitor.reference(counted(false, true), Some(0.0));
        }
        assert_eq!(monitor.counted(0.0), None);
        assert_eq!(monitor.counted(0.5), None, "less than 2 % of 204");
        assert!(monitor.counted(1.0).expect("8 of 208").steering);
    }
}
