//! Whether programs report their accesses.
//!
//! A policy can save no more than what programs read from storage. So they report nothing until
//! they have read 1/32 of what the page cache can hold for them, and nothing again once they
//! read next to nothing: programs that find their files cached, and short ones, run as without
//! hither. What they read from storage is known without their reports (`/proc/PID/io`).

/// Programs report after they have read this share of the cache: 1/32. The first pass of
/// a loop is seen almost whole. Programs that find their files cached read less.
const START_ROOM_DIVISOR: u64 = 32;

/// They stop when in [`STOP_PERIOD_NS`] they have read less than this share: 1/64.
const STOP_ROOM_DIVISOR: u64 = 64;

/// See [`STOP_ROOM_DIVISOR`].
const STOP_PERIOD_NS: u64 = 2_000_000_000;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Reporting {
    on: bool,
    always: bool,
    /// Bytes read from storage since `since_ns`.
    read_bytes: u64,
    since_ns: u64,
}

impl Reporting {
    /// They report `always`, or only while they read from storage.
    pub(super) fn new(always: bool) -> Reporting {
        Reporting {
            on: always,
            always,
            read_bytes: 0,
            since_ns: 0,
        }
    }

    /// Whether programs report.
    pub(super) fn on(&self) -> bool {
        self.on
    }

    /// Programs have read this much more from storage. `room_bytes` is what the page cache can hold
    /// for them, and `needed` says that reports must not stop. Returns whether they start (true) or
    /// stop.
    pub(super) fn read(
        &mut self,
        now_ns: u64,
        bytes: u64,
        room_bytes: u64,
        needed: bool,
    ) -> Option<bool> {
        self.read_bytes += bytes;
        if !self.on {
            return (self.read_bytes >= room_bytes / START_ROOM_DIVISOR)
                .then(|| self.begin(now_ns, true));
        }
        if now_ns.saturating_sub(self.since_ns) < STOP_PERIOD_NS {
            return None;
        }
        let idle = self.read_bytes < room_bytes / STOP_ROOM_DIVISOR;
        let on = self.always || needed || !idle;
        self.begin(now_ns, on);
        (!on).then_some(false)
    }

    fn begin(&mut self, now_ns: u64, on: bool) -> bool {
        (self.on, self.read_bytes, self.since_ns) = (on, 0, now_ns);
        on
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: u64 = 256 << 20;
    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn reports_start_with_the_first_reads_and_stop_when_nothing_is_read() {
        let mut reporting = Reporting::new(false);
        let mut read = |second, mib: u64| reporting.read(second * SECOND, mib << 20, ROOM, false);
        assert_eq!([read(0, 0), read(1, 4), read(100, 3)], [None; 3]);
        assert_eq!(read(101, 1), Some(true));
        assert_eq!([read(102, 0), read(103, 4)], [None; 2]);
        assert_eq!([read(104, 0), read(105, 0)], [None, Some(false)]);
        assert_eq!([read(106, 7), read(107, 1)], [None, Some(true)]);
    }

    #[test]
    fn reports_that_are_needed_go_on() {
        let mut reporting = Reporting::new(true);
        assert_eq!(reporting.read(10 * SECOND, 0, ROOM, false), None);
        let mut reporting = Reporting::new(false);
        assert_eq!(reporting.read(SECOND, ROOM, ROOM, false), Some(true));
        assert_eq!(reporting.read(10 * SECOND, 0, ROOM, true), None);
        assert!(reporting.on());
    }
}
