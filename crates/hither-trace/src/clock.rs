//! When references were made: a bounded list of times, for pictures with an axis in seconds.

use serde::Serialize;

/// The name of the clock of a trace whose times are the numbers of its references.
pub const REFERENCE_CLOCK: &str = "number of the reference";

/// The most points. A picture is about this many pixels wide.
const POINTS_MAX: usize = 1024;

/// The time of a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ReferenceTime {
    /// The number of references before it.
    pub reference: u64,
    /// Its time in nanoseconds since the start of the recording.
    pub time_ns: u64,
}

/// The times of some references, about equally many apart.
#[derive(Debug, Default)]
pub(crate) struct ReferenceTimes {
    points: Vec<ReferenceTime>,
    /// References from one point to the next, at least one.
    apart: u64,
    last: Option<ReferenceTime>,
}

impl ReferenceTimes {
    /// Notes that the next reference, after `reference` others, is made at `time_ns`.
    #[inline]
    pub(crate) fn push(&mut self, reference: u64, time_ns: u64) {
        let before = self.last.map_or(0, |last| last.time_ns);
        let now = ReferenceTime {
            reference,
            time_ns: time_ns.max(before),
        };
        self.last = Some(now);
        let due = self
            .points
            .last()
            .map_or(0, |last| last.reference + self.apart);
        if reference < due {
            return;
        }
        self.points.push(now);
        if self.points.len() > POINTS_MAX {
            let mut number = 0;
            self.points.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.apart *= 2;
        }
        self.apart = self.apart.max(1);
    }

    /// The points, in order, with the last one that was noted.
    pub(crate) fn points(&self) -> Vec<ReferenceTime> {
        let mut points = self.points.clone();
        points.extend(self.last.filter(|last| points.last() != Some(last)));
        points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pushed(references: impl Iterator<Item = (u64, u64)>) -> Vec<(u64, u64)> {
        let mut times = ReferenceTimes::default();
        references.for_each(|(reference, time_ns)| times.push(reference, time_ns));
        let points = times.points().into_iter();
        points
            .map(|point| (point.reference, point.time_ns))
            .collect()
    }

    #[test]
    fn few_are_all_there_and_many_keep_their_first_and_last() {
        assert_eq!(pushed(std::iter::empty()), []);
        assert_eq!(pushed([(0, 5), (3, 9)].into_iter()), [(0, 5), (3, 9)]);
        let many = pushed((0..1_000_001).map(|n| (n, 10 * n)));
        assert!((POINTS_MAX / 2..=POINTS_MAX + 1).contains(&many.len()));
        assert_eq!(
            (many[0], many[many.len() - 1]),
            ((0, 0), (1_000_000, 10_000_000))
        );
        assert!(
            many.iter()
                .all(|&(reference, time_ns)| time_ns == 10 * reference)
        );
        let apart = many[1].0;
        let steps = many[..many.len() - 1].windows(2);
        assert!(steps.into_iter().all(|two| two[1].0 - two[0].0 == apart));
    }

    #[test]
    fn time_never_goes_back() {
        assert_eq!(pushed([(0, 7), (1, 3)].into_iter()), [(0, 7), (1, 7)]);
    }
}
