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

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct GainMonitor {
    /// Its length in references.
    window: u64,
    now: Judged,
    evicted: bool,
    windows_without_gain: u32,
}

impl GainMonitor {
    pub(super) fn new(capacity: u32) -> GainMonitor {
        let mut monitor = GainMonitor {
            window: 0,
            now: Judged::default(),
            evicted: false,
            windows_without_gain: 0,
        };
        monitor.resized(capacity);
        monitor
    }

    /// Steers always, whether or not there is a gain.
    #[cfg(test)]
    pub(super) fn always(mut self) -> GainMonitor {
        self.now.steering = true;
        self.window = u64::MAX;
        self
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
        self.evicted = false;
    }

    /// Whether evictions are carried out.
    pub(super) fn steering(&self) -> bool {
        self.now.steering
    }

    /// Counts a reference and its result in either cache. Returns the result of the window that it
    /// ends, if it ends one.
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
        // Where all data fit nothing is evicted: there is nothing to compare.
        let judged = self.evicted.then(|| self.judge());
        self.begin();
        judged
    }

    /// Whether enough was saved to start steering, at the end of a window or before.
    fn may_begin(&self) -> bool {
        let saved = self.now.lru_misses.saturating_sub(self.now.misses);
        !self.now.steering && saved >= self.window / START_SAVED_DIVISOR && self.gains()
    }

    fn gains(&self) -> bool {
        self.now.misses as f64 <= self.now.lru_misses as f64 * (1.0 - MIN_SAVED_SHARE)
    }

    fn judge(&mut self) -> Judged {
        let (misses, lru_misses) = (self.now.misses as f64, self.now.lru_misses as f64);
        let gains = self.gains();
        let loses = misses > lru_misses * (1.0 + MIN_SAVED_SHARE);
        self.windows_without_gain = if gains {
            0
        } else {
            self.windows_without_gain + 1
        };
        self.now.steering = match self.now.steering {
            true => !loses && self.windows_without_gain < WINDOWS_WITHOUT_GAIN_MAX,
            false => self.may_begin(),
        };
        self.now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A window with this many misses of each, in a cache of 64 blocks. The misses of both come
    /// first.
    fn window(monitor: &mut GainMonitor, misses: u64, lru_misses: u64) -> bool {
        let mut judged = None;
        for reference in 0..monitor.window {
            judged = monitor.reference(reference < misses, reference < lru_misses, true);
        }
        judged.expect("a window's end").steering
    }

    #[test]
    fn it_stops_at_a_loss_at_once_and_without_gain_after_a_while_and_comes_back() {
        let mut monitor = GainMonitor::new(64);
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
            assert_eq!(monitor.reference(true, true, true), None);
        }
        for _ in 0..3 {
            assert_eq!(monitor.reference(false, true, true), None);
        }
        let judged = monitor.reference(false, true, true).expect("it begins");
        assert!(judged.steering && monitor.steering());
    }

    #[test]
    fn what_is_little_beside_the_misses_is_no_reason_to_begin() {
        let mut monitor = GainMonitor::new(4096);
        for reference in 0..monitor.window - 1 {
            let judged = monitor.reference(reference % 55 != 0, true, true);
            assert_eq!(judged, None, "{reference}");
        }
    }

    #[test]
    fn where_all_fits_there_is_nothing_to_judge() {
        let mut monitor = GainMonitor::new(64);
        for _ in 0..4096 {
            assert_eq!(monitor.reference(true, true, false), None);
        }
        assert!(!monitor.steering());
    }
}
