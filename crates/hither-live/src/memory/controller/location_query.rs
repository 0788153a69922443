//! When to ask the kernel for the nodes of a window of pages.

/// A window is looked up when it has its first sample, and as long as some of its pages are not
/// there, again at doubling intervals from the first to the second: an answer takes 100 ns a page,
/// and the program may never touch the missing pages.
const LOOKUP_INTERVAL_NS_MIN: u64 = 100_000_000;
const LOOKUP_INTERVAL_NS_MAX: u64 = 10_000_000_000;

/// When to look up a window.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LocationQuery {
    due_ns: u64,
    wait_ns: u64,
}

impl LocationQuery {
    /// Whether it is time for a look-up. If so, the next one is due an interval later.
    pub(super) fn is_due(&mut self, now_ns: u64) -> bool {
        let due = now_ns >= self.due_ns;
        if due {
            self.wait_ns = (self.wait_ns * 2).clamp(LOOKUP_INTERVAL_NS_MIN, LOOKUP_INTERVAL_NS_MAX);
            self.due_ns = now_ns + self.wait_ns;
        }
        due
    }
}
