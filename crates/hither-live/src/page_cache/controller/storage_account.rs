//! What programs really read from storage, beside what they would read without steering.
//!
//! LRU is a model of the kernel's page cache, and the policy's cache is a model of what steering
//! makes of it. Both can be wrong: the kernel protects pages that are used twice, reads ahead, and
//! reclaims under pressure that the models do not know. So the kernel's own count decides.
//!
//! What is accessed for the first time is read in any case. The rest of LRU's misses are blocks
//! that it had and evicted: they are read *again* by a kernel that does as LRU does.
//!
//! - Without steering, the bytes read again are compared with those that LRU reads again. Their
//!   ratio says how far the kernel's cache is from LRU.
//! - With steering, what LRU reads again times that ratio, and what is new, would have been read
//!   without it. Once more than that has been read, by 1/32 of all that was read so far and by a
//!   sixteenth of the budget, steering stops. What a call reads is counted while it is under way,
//!   and reported when it returns, so what had been read at one count is held against what was
//!   reported at the next. (DuckDB reads 32 MB by one call, in 76 ms.)
//!
//! The estimate decides when to stop, and is not what a run has saved: no run says that. Held
//! against pairs of runs of seven programs (`experiments/page_cache/results`, 2026-11-25), it said
//! 217 to 235 MiB where runs without steering read 11 to 42 MiB less (numpy), 28 MiB lost where
//! 365 were saved (DuckDB), and 549 to 865 where 689 to 758 were (sqlite).

/// Steering stops at a loss of 1/32 of the bytes read so far: with what is read ahead in vain, runs
/// of one program differ by 1 to 2 %.
const LOSS_READ_DIVISOR: u64 = 32;

/// A loss, and evidence, of less than 1/16 of the budget may be chance.
const EVIDENCE_BUDGET_DIVISOR: u64 = 16;

/// Evidence older than the last so many budgets of misses counts half.
const HALVING_BUDGETS: u64 = 2;

/// The highest ratio. What is read beyond it is not in the model.
const RATIO_MAX: f64 = 1.25;

/// What LRU has missed, in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Missed {
    /// Accessed for the first time.
    new: u64,
    /// Accessed before, and evicted.
    again: u64,
}

impl Missed {
    fn all(self) -> u64 {
        self.new + self.again
    }
}

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StorageAccount {
    /// Since the last count.
    missed: Missed,
    /// Without steering: read, and missed by LRU. Old counts count less.
    alone_read: u64,
    alone_missed: Missed,
    /// The count decides nothing: not all that is read is counted, or it does not matter.
    distrusted: bool,
    /// All that was read.
    read: u64,
    /// With steering: read, and what would have been read without it.
    steered_read: u64,
    expected: u64,
}

impl StorageAccount {
    /// Whether what is read is to decide anything.
    pub(super) fn new(decides: bool) -> StorageAccount {
        StorageAccount {
            distrusted: !decides,
            ..StorageAccount::default()
        }
    }

    /// LRU has missed this much, which was accessed for the first time or not.
    pub(super) fn missed(&mut self, bytes: u64, new: bool) {
        if new {
            self.missed.new += bytes
        } else {
            self.missed.again += bytes
        }
    }

    /// Programs have read this much more. Returns whether steering, if it is on, has to stop.
    pub(super) fn read(&mut self, bytes: u64, budget_bytes: u64, steering: bool) -> bool {
        self.read += bytes;
        let missed = std::mem::take(&mut self.missed);
        if !steering {
            self.alone_read += bytes;
            self.alone_missed.new += missed.new;
            self.alone_missed.again += missed.again;
            if self.alone_missed.all() > HALVING_BUDGETS * budget_bytes {
                self.alone_read /= 2;
                self.alone_missed.new /= 2;
                self.alone_missed.again /= 2;
            }
            return false;
        }
        let read_before = self.steered_read;
        self.steered_read += bytes;
        let ratio = self.ratio(budget_bytes);
        let (new, again) = (missed.new as f64, missed.again as f64);
        self.expected += (new * ratio.max(1.0) + again * ratio) as u64;
        let bearable = (self.read / LOSS_READ_DIVISOR).max(budget_bytes / EVIDENCE_BUDGET_DIVISOR);
        !self.distrusted && read_before > self.expected + bearable
    }

    /// The programs use a file whose reads are not counted: the count says nothing from now on.
    pub(super) fn distrust(&mut self) {
        self.distrusted = true;
    }

    /// Whether the count decides.
    pub(super) fn decides(&self) -> bool {
        !self.distrusted
    }

    /// What the kernel reads without steering for each byte that LRU reads again. Where that is
    /// more than one, for each byte that LRU misses: readahead has already read what is missed
    /// next.
    pub(super) fn ratio(&self, budget_bytes: u64) -> f64 {
        let Missed { new, again } = self.alone_missed;
        if self.distrusted || again < budget_bytes / EVIDENCE_BUDGET_DIVISOR {
            return 1.0;
        }
        match self.alone_read.saturating_sub(new) {
            read_again if read_again < again => read_again as f64 / again as f64,
            _ => self.read_of_missed().min(RATIO_MAX),
        }
    }

    fn read_of_missed(&self) -> f64 {
        self.alone_read as f64 / self.alone_missed.all() as f64
    }

    /// What has been missed so far is not to be compared with anything.
    pub(super) fn restart(&mut self) {
        self.alone_read = 0;
        (self.missed, self.alone_missed) = Default::default();
    }

    /// Bytes read with steering, and what would have been read without it.
    pub(super) fn steered(&self) -> (u64, u64) {
        (self.steered_read, self.expected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const BUDGET: u64 = 160 * MIB;

    /// Ten MiB are new, the rest of LRU's misses is not.
    fn step(account: &mut StorageAccount, again: u64, read: u64, steering: bool) -> bool {
        account.missed(10 * MIB, true);
        account.missed(again * MIB, false);
        account.read((10 + read) * MIB, BUDGET, steering)
    }

    #[test]
    fn a_kernel_that_does_better_than_lru_is_what_steering_is_held_to() {
        let mut account = StorageAccount::default();
        assert_eq!(account.ratio(BUDGET), 1.0, "no evidence");
        assert!(!step(&mut account, 200, 150, false));
        assert_eq!(account.ratio(BUDGET), 0.75);
        // As much as without steering, then a little more, then too much.
        assert!(!step(&mut account, 100, 75, true));
        assert!(!step(&mut account, 100, 85, true));
        assert!(!step(&mut account, 100, 80, true), "of a call, perhaps");
        assert_eq!(account.steered(), (270 * MIB, 255 * MIB));
        assert!(
            account.read(0, BUDGET, true),
            "nor were they reported since"
        );
    }

    #[test]
    fn what_is_saved_may_be_lost_again_and_long_runs_bear_more() {
        let mut account = StorageAccount::default();
        assert!(!step(&mut account, 1000, 1000, false));
        assert!(!step(&mut account, 1000, 500, true));
        assert!(!step(&mut account, 1000, 1500, true), "as expected in all");
        assert!(!step(&mut account, 0, 80, true), "of 3120");
        assert!(!step(&mut account, 0, 20, true));
        assert!(account.read(0, BUDGET, true), "100 of 3150");
    }

    #[test]
    fn a_call_under_way_is_reported_when_it_returns() {
        let mut account = StorageAccount::default();
        assert!(!step(&mut account, 200, 200, false));
        assert!(!step(&mut account, 0, 60, true));
        assert!(!step(&mut account, 60, 0, true), "it has returned");
        assert!(!account.read(0, BUDGET, true));
    }

    #[test]
    fn evidence_ages_and_reads_outside_of_the_model_prove_nothing() {
        let mut account = StorageAccount::default();
        step(&mut account, 300, 300, false);
        for _ in 0..10 {
            step(&mut account, 300, 150, false);
        }
        assert!(account.ratio(BUDGET) < 0.51);
        step(&mut account, 300, 30_000, false);
        assert_eq!(account.ratio(BUDGET), RATIO_MAX);
        account.restart();
        assert_eq!(account.ratio(BUDGET), 1.0);
    }
}
