//! The protocol's own time, which leaves out what the node missed.
//!
//! A protocol that was stopped for a minute, or whose clock jumped, would find all its deadlines
//! passed at once: it would suspect everybody, and give up requests whose answers lie in its
//! queues. Its time therefore goes on from the deadline that it missed.

use super::event::Time;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Clock {
    /// What is added to the node's clock: wide enough for any two times.
    offset: i128,
    now: Time,
}

impl Clock {
    /// Takes the time of the node's clock. `deadline`, in the protocol's time, was to be met within
    /// `stall_ns`. Returns the protocol's time, and how much of the node's time was left out now.
    pub(super) fn advance(
        &mut self,
        clock: Time,
        deadline: Option<Time>,
        stall_ns: u64,
    ) -> (Time, u64) {
        let now = i128::from(clock.0) + self.offset;
        let last = i128::from(self.now.0);
        let met = deadline.map(|deadline| deadline.max(self.now));
        let missed = met.filter(|met| now > i128::from(met.after(stall_ns).0));
        let at = match missed {
            Some(deadline) => i128::from(deadline.0),
            // A clock that went back, which a monotonic one does not.
            None => now.max(last),
        };
        self.offset += at - now;
        self.now = Time(u64::try_from(at).unwrap_or(u64::MAX));
        (self.now, u64::try_from(now - at).unwrap_or(0))
    }

    /// When `deadline`, in the protocol's time, is by the node's clock.
    pub(super) fn clock_at(&self, deadline: Time) -> Time {
        let clock = i128::from(deadline.0) - self.offset;
        Time(u64::try_from(clock).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missed_time_is_left_out() {
        let mut clock = Clock::default();
        assert_eq!(clock.advance(Time(100), None, 10), (Time(100), 0));
        assert_eq!(
            clock.advance(Time(125), Some(Time(120)), 10),
            (Time(125), 0)
        );
        assert_eq!(
            clock.advance(Time(500), Some(Time(150)), 10),
            (Time(150), 350)
        );
        assert_eq!(clock.clock_at(Time(160)), Time(510));
        assert_eq!(
            clock.advance(Time(510), Some(Time(160)), 10),
            (Time(160), 0)
        );
        assert_eq!(clock.advance(Time(20), Some(Time(170)), 10), (Time(160), 0));
        assert_eq!(clock.clock_at(Time(170)), Time(30));
        assert_eq!(clock.advance(Time(30), Some(Time(170)), 10), (Time(170), 0));
    }
}
