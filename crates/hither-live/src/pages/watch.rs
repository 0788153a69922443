//! When page faults are worth watching.
//!
//! A fault that is watched costs the program 0.3 to 1 us more (2 cores, Linux 6.18, 2026-11), and only the first faults of
//! a region that is not decided on say anything. The agent learns of a new region milliseconds late, when a small one has
//! been touched already, so faults are watched beforehand while new regions keep coming, within a budget: some faults that
//! say nothing a second, 1 % of a CPU at 1 us each. With nothing undecided and nothing new, they cost nothing. While pages
//! are armed, their faults are what is waited for, and those of other pages cost as much as they do otherwise.

/// Faults that say nothing, a second.
const BUDGET: u64 = 10_000;

/// What a new region is allowed at once, however little is left.
const ALLOWANCE: u64 = 1_000;

/// After a pause for lack of budget, watching goes on with this much.
const RESUME: u64 = BUDGET / 2;

/// Watching goes on for so long after the last new region.
const QUIET_NS: u64 = 1_000_000_000;

/// Whether faults are watched, and what may be spent on it.
#[derive(Debug)]
pub(crate) struct Watch {
    on: bool,
    left: u64,
    filled_ns: u64,
    news_ns: u64,
    undecided: u32,
    /// Pages are armed: faults are what is waited for.
    samples: bool,
}

impl Watch {
    /// Watching is on from the program's start.
    pub(crate) fn new() -> Watch {
        Watch {
            on: true,
            left: BUDGET,
            filled_ns: 0,
            news_ns: 0,
            undecided: 0,
            samples: false,
        }
    }

    /// A region came that is not decided on.
    pub(crate) fn undecided(&mut self, now_ns: u64) {
        self.undecided += 1;
        self.news_ns = now_ns;
        self.left = self.left.max(ALLOWANCE);
    }

    /// Whether pages are armed.
    pub(crate) fn samples(&mut self, samples: bool) {
        self.samples = samples;
    }

    /// Whether faults are seen.
    pub(crate) fn is_on(&self) -> bool {
        self.on
    }

    /// One is decided on, or gone.
    pub(crate) fn decided(&mut self) {
        self.undecided -= 1;
    }

    /// A fault said nothing.
    pub(crate) fn useless(&mut self) {
        self.left = self.left.saturating_sub(1);
    }

    /// Whether to watch from now on, where that has changed.
    pub(crate) fn change(&mut self, now_ns: u64) -> Option<bool> {
        let earned = (now_ns.saturating_sub(self.filled_ns)) / (1_000_000_000 / BUDGET);
        if earned > 0 {
            self.left = (self.left + earned).min(BUDGET);
            self.filled_ns = now_ns;
        }
        let wanted =
            self.undecided > 0 || self.samples || now_ns.saturating_sub(self.news_ns) < QUIET_NS;
        let enough = match self.on {
            true => self.left > 0,
            false => self.left >= RESUME || self.news_ns == now_ns,
        };
        let on = wanted && enough;
        (on != std::mem::replace(&mut self.on, on)).then_some(on)
    }

    /// When time alone may change it.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        let refilled = self.filled_ns + RESUME * (1_000_000_000 / BUDGET);
        match (self.on, self.undecided > 0 || self.samples) {
            (true, false) => Some(self.news_ns + QUIET_NS),
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
        let mut watch = Watch::new();
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
    fn faults_that_say_nothing_use_the_budget_up() {
        let mut watch = Watch::new();
        watch.undecided(0);
        (0..BUDGET).for_each(|_| watch.useless());
        assert_eq!(watch.change(1), Some(false));
        let due = watch.due_ns().expect("it is undecided");
        assert_eq!(watch.change(due - 1), None);
        // Every earlier look earned what it could; half a second's worth is there at the latest after one more.
        assert_eq!(watch.change(due + SECOND), Some(true));
        // What is new is watched at once.
        (0..BUDGET).for_each(|_| watch.useless());
        assert_eq!(watch.change(due + SECOND + 1), Some(false));
        watch.undecided(due + SECOND + 2);
        assert_eq!(watch.change(due + SECOND + 2), Some(true));
    }
}
