//! Decides when page faults are worth recording.
//!
//! A recorded fault costs the program 0.3 to 1 us more (2 cores, Linux 6.18, 2026-11), and only the
//! first faults of an undecided region are of use. The agent learns of a new region milliseconds
//! late, when a small one has been touched already. So faults are recorded ahead while new regions
//! keep coming, and from the program's start where the policy places pages at their first touch,
//! within a budget of useless faults a second: 1 % of a CPU at 1 us each. With no undecided and no
//! new region, recording is off and costs nothing. While pages are armed, recording waits for their
//! faults, and faults of other pages, and of other programs, are charged to the budget as ever.

/// The budget, in faults a second.
const FAULTS_PER_SECOND: i64 = 10_000;
const NS_PER_FAULT: u64 = 1_000_000_000 / FAULTS_PER_SECOND as u64;

/// The faults that are left at least when a new region comes.
const NEW_REGION_FAULTS_MIN: i64 = 1_000;

/// Recording goes on for this long after the last new region.
const QUIET_NS: u64 = 1_000_000_000;

/// Whether faults are recorded, and what may be spent on it.
#[derive(Debug)]
pub(crate) struct FaultRecording {
    on: bool,
    /// Less than nothing where more came than was left, before recording could be switched off.
    left: i64,
    filled_ns: u64,
    /// When the last new region came. `Some(0)` at the start if regions are expected.
    news_ns: Option<u64>,
    /// How many regions are undecided.
    undecided: u32,
    /// Pages are armed, or are to be.
    samples: bool,
}

impl FaultRecording {
    /// Recording is on at the program's start. It stays so if regions are to be `expected` whose
    /// first faults are of use.
    pub(crate) fn new(expected: bool) -> FaultRecording {
        FaultRecording {
            on: true,
            left: FAULTS_PER_SECOND,
            filled_ns: 0,
            news_ns: expected.then_some(0),
            undecided: 0,
            samples: false,
        }
    }

    /// An undecided region has come.
    pub(crate) fn undecided(&mut self, now_ns: u64) {
        self.undecided += 1;
        self.news_ns = Some(now_ns);
        self.left = self.left.max(NEW_REGION_FAULTS_MIN);
    }

    /// Sets whether pages are armed.
    pub(crate) fn set_sampling(&mut self, samples: bool) {
        self.samples = samples;
    }

    /// Whether faults are recorded.
    pub(crate) fn is_on(&self) -> bool {
        self.on
    }

    /// An undecided region was decided, or is gone.
    pub(crate) fn decided(&mut self) {
        self.undecided -= 1;
    }

    /// Charges faults that were not asked for.
    pub(crate) fn charge(&mut self, faults: u64) {
        self.left = self.left.saturating_sub_unsigned(faults);
    }

    /// Whether to record from now on, where that has changed.
    pub(crate) fn change(&mut self, now_ns: u64) -> Option<bool> {
        let earned = now_ns.saturating_sub(self.filled_ns) / NS_PER_FAULT;
        if earned > 0 {
            self.left = self
                .left
                .saturating_add_unsigned(earned)
                .min(FAULTS_PER_SECOND);
            self.filled_ns += earned * NS_PER_FAULT;
        }
        let is_news = |news_ns| now_ns.saturating_sub(news_ns) < QUIET_NS;
        let wanted = self.undecided > 0 || self.samples || self.news_ns.is_some_and(is_news);
        let enough = if self.on {
            self.left > 0
        } else {
            self.left >= FAULTS_PER_SECOND / 2 || self.news_ns == Some(now_ns)
        };
        let on = wanted && enough;
        (on != std::mem::replace(&mut self.on, on)).then_some(on)
    }

    /// When the passing of time may change it.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        let missing = (FAULTS_PER_SECOND / 2 - self.left).max(0) as u64;
        let refilled = self.filled_ns + missing * NS_PER_FAULT;
        match (self.on, self.undecided > 0 || self.samples) {
            (true, false) => Some(self.news_ns.map_or(0, |news_ns| news_ns + QUIET_NS)),
            (false, true) => Some(refilled),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn off_when_nothing_is_new_and_on_again_for_a_new_region() {
        let mut watch = FaultRecording::new(true);
        assert_eq!(watch.change(SECOND / 2), None);
        assert_eq!(watch.due_ns(), Some(SECOND));
        assert_eq!(watch.change(SECOND), Some(false));
        assert_eq!(watch.due_ns(), None, "nothing to wait for");
        watch.undecided(5 * SECOND);
        assert_eq!(watch.change(5 * SECOND), Some(true));
        assert_eq!(watch.change(9 * SECOND), None, "it is still undecided");
        watch.decided();
        assert_eq!(watch.change(9 * SECOND), Some(false));
    }

    #[test]
    fn off_at_once_where_nothing_is_expected() {
        let mut watch = FaultRecording::new(false);
        assert_eq!(watch.due_ns(), Some(0));
        assert_eq!(watch.change(5), Some(false));
        assert_eq!(watch.due_ns(), None);
        watch.set_sampling(true);
        assert_eq!(watch.change(SECOND), Some(true), "pages are to be armed");
    }

    #[test]
    fn faults_that_say_nothing_use_the_budget_up() {
        let mut watch = FaultRecording::new(true);
        watch.undecided(0);
        (0..FAULTS_PER_SECOND).for_each(|_| watch.charge(1));
        assert_eq!(watch.change(1), Some(false));
        let due = watch.due_ns().expect("it is undecided");
        assert_eq!(watch.change(due - 1), None);
        assert_eq!(watch.change(due), Some(true));
        assert_eq!(watch.change(due + SECOND), None);
        // Many at once, of other programs: a debt. What is new is watched all the same.
        watch.charge(3 * FAULTS_PER_SECOND as u64);
        assert_eq!(watch.change(due + SECOND + 1), Some(false));
        let due_later = watch.due_ns().expect("it is undecided");
        assert!(due_later > due + 3 * SECOND, "{due_later}");
        watch.undecided(due + SECOND + 2);
        assert_eq!(watch.change(due + SECOND + 2), Some(true));
    }
}
