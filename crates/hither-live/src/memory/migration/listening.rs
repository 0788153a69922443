//! Whether to listen to samples that the processor or the kernel makes. Each costs the program and
//! the agent something. Where look after look leads to nothing, because pages lie well by now or
//! because the kernel's own balancing does what there is to do, nobody listens for a pause, which
//! doubles as long as nothing comes of the looks in between.

/// Looks in a row without use after which there is a pause: some seconds.
const QUIET_LOOKS: u32 = 16;

/// The shortest and the longest pause. Between two pauses is one look, of a tenth of a second or
/// more.
const PAUSE_NS_MIN: u64 = 1_000_000_000;
const PAUSE_NS_MAX: u64 = 64_000_000_000;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Listening {
    quiet_looks: u32,
    /// The last pause, and when it ends.
    pause_ns: u64,
    paused_until_ns: Option<u64>,
    /// What was said last.
    off: bool,
    /// How long all pauses were.
    pub(super) paused_ns: u64,
}

impl Listening {
    /// A look at the samples has led to something, or not.
    pub(super) fn policy_asked(&mut self, now_ns: u64, useful: bool) {
        if useful {
            self.wake(now_ns);
            return;
        }
        self.quiet_looks += 1;
        if self.quiet_looks >= QUIET_LOOKS && self.paused_until_ns.is_none() {
            self.pause_ns = (2 * self.pause_ns).clamp(PAUSE_NS_MIN, PAUSE_NS_MAX);
            self.paused_until_ns = Some(now_ns + self.pause_ns);
            self.paused_ns += self.pause_ns;
        }
    }

    /// Something is new: a region, threads that moved.
    pub(super) fn wake(&mut self, now_ns: u64) {
        self.end_pause(now_ns);
        (self.quiet_looks, self.pause_ns) = (0, 0);
    }

    fn end_pause(&mut self, now_ns: u64) {
        if let Some(until_ns) = self.paused_until_ns.take() {
            self.paused_ns -= until_ns.saturating_sub(now_ns);
        }
    }

    /// When a pause ends.
    pub(super) fn due_ns(&self) -> Option<u64> {
        self.paused_until_ns
    }

    /// Whether to listen from now on, where that has changed.
    pub(super) fn change(&mut self, now_ns: u64) -> Option<bool> {
        if self.paused_until_ns.is_some_and(|until| until <= now_ns) {
            self.end_pause(now_ns);
        }
        let off = self.paused_until_ns.is_some();
        (off != std::mem::replace(&mut self.off, off)).then_some(!off)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn pauses_double_until_something_comes_of_it() {
        let mut listening = Listening::default();
        (1..QUIET_LOOKS).for_each(|_| listening.policy_asked(0, false));
        assert_eq!(listening.change(0), None);
        listening.policy_asked(0, false);
        assert_eq!(
            (listening.change(0), listening.due_ns()),
            (Some(false), Some(SECOND))
        );
        assert_eq!(listening.change(SECOND - 1), None);
        assert_eq!(listening.change(SECOND), Some(true));
        // One look in between.
        listening.policy_asked(SECOND, false);
        assert_eq!(listening.change(SECOND), Some(false));
        assert_eq!(listening.due_ns(), Some(3 * SECOND));
        assert_eq!(listening.change(3 * SECOND), Some(true));
        listening.policy_asked(3 * SECOND, true);
        assert_eq!(
            (listening.change(3 * SECOND), listening.due_ns()),
            (None, None)
        );
        assert_eq!(listening.paused_ns, 3 * SECOND);
        // A pause that is cut short counts as long as it was.
        (0..QUIET_LOOKS).for_each(|_| listening.policy_asked(4 * SECOND, false));
        listening.wake(4 * SECOND + SECOND / 2);
        assert_eq!(listening.change(5 * SECOND), None, "nobody noticed");
        assert_eq!(listening.paused_ns, 3 * SECOND + SECOND / 2);
    }
}
