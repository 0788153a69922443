//! Round trips to the other members, as classes that stay the same unless the network changes.
//!
//! A node takes its round trips from the pings that it sends anyway. Load only adds to a round
//! trip, so what counts of [`WINDOW`] samples is one of the least: the third, as a stalled clock
//! may make single samples too short.
//!
//! Classes are powers of the square root of 2 of [`BASE_NS`], and an estimate must be beyond the
//! border of its class by [`MARGIN`] for [`WINDOWS`] windows to change it. So a factor of
//! up to 1.35 from what the class was taken from never changes it, and a factor of 2 always does:
//! within a class estimates differ by a factor of at most 1.42, and 2 / 1.42 is above the margin.
//! Classes with a factor of 2 would not have both properties with any margin.
//!
//! What is below the base is more the time of programs and processors than of the network: three
//! nodes on one busy computer of two cores had 140 to 200 µs between them (2026-11-26). To a
//! source that takes milliseconds, such differences do not matter.
//!
//! Each node tells all others its classes, so that all know the same. Of the two classes that two
//! members have of each other, the larger one counts.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::message::RoundTrip;
use super::view::MemberId;

/// Samples of which one estimate is made.
pub(super) const WINDOW: usize = 20;

/// How many lower samples than the estimate there are in a window.
const LEAST: usize = 2;

/// Windows in a row that must be beyond the border of a class.
const WINDOWS: usize = 3;

/// The middle of class 0, and the least round trip that is told from shorter ones.
const BASE_NS: u64 = 250_000;

/// Powers of the fourth root of 2, in ten-thousandths.
const QUARTERS: [u64; 4] = [10_000, 11_892, 14_142, 16_818];

/// How far beyond a border an estimate must be, in hundredths.
const MARGIN: u64 = 135;

/// The highest class, of round trips of 3 s.
pub(super) const CLASS_MAX: u8 = 27;

/// `BASE_NS` times the fourth root of 2, so many times.
fn quarters_ns(quarters: u32) -> u64 {
    (BASE_NS * QUARTERS[quarters as usize % 4] / 10_000) << (quarters / 4)
}

/// The round trip that a class stands for.
pub(super) fn class_ns(class: u8) -> u64 {
    quarters_ns(2 * u32::from(class))
}

/// Where a class ends and the next one begins.
fn border_ns(class: u8) -> u64 {
    quarters_ns(2 * u32::from(class) + 1)
}

fn class_of(round_trip_ns: u64) -> u8 {
    let mut classes = 0..CLASS_MAX;
    let class = classes.find(|&class| round_trip_ns < border_ns(class));
    class.unwrap_or(CLASS_MAX)
}

/// On which side of a class's borders a round trip is, with a margin.
fn side(class: u8, round_trip_ns: u64) -> Ordering {
    if class < CLASS_MAX && round_trip_ns > border_ns(class) / 100 * MARGIN {
        Ordering::Greater
    } else if class > 0 && round_trip_ns < border_ns(class - 1) / MARGIN * 100 {
        Ordering::Less
    } else {
        Ordering::Equal
    }
}

/// The samples of one other member, and the class that they have led to.
#[derive(Debug)]
struct Estimate {
    samples: Vec<u64>,
    class: Option<u8>,
    /// The side on which the latest estimates are, how many there are, and the nearest of them.
    beyond: (Ordering, usize, u64),
}

impl Default for Estimate {
    fn default() -> Estimate {
        Estimate {
            samples: Vec::new(),
            class: None,
            beyond: (Ordering::Equal, 0, 0),
        }
    }
}

impl Estimate {
    /// Takes a sample. Returns the class if it is another one now.
    fn add(&mut self, sample_ns: u64) -> Option<u8> {
        self.samples.push(sample_ns);
        if self.samples.len() < WINDOW {
            return None;
        }
        self.samples.sort_unstable();
        let estimate_ns = self.samples[LEAST];
        self.samples.clear();
        let Some(class) = self.class else {
            self.class = Some(class_of(estimate_ns));
            return self.class;
        };
        let now = side(class, estimate_ns);
        self.beyond = match self.beyond {
            (before, windows, nearest) if before == now => match now {
                Ordering::Less => (now, windows + 1, nearest.max(estimate_ns)),
                _ => (now, windows + 1, nearest.min(estimate_ns)),
            },
            _ => (now, 1, estimate_ns),
        };
        let (_, windows, nearest) = self.beyond;
        if now == Ordering::Equal || windows < WINDOWS {
            return None;
        }
        self.beyond = (Ordering::Equal, 0, 0);
        self.class = Some(class_of(nearest));
        self.class
    }
}

/// What the members know of their round trips to each other. It may know of members that have
/// left: they may be back.
#[derive(Debug)]
pub(super) struct RoundTrips {
    me: MemberId,
    estimates: BTreeMap<MemberId, Estimate>,
    /// The classes that each member has told, and those of this one.
    rows: BTreeMap<MemberId, BTreeMap<MemberId, u8>>,
}

impl RoundTrips {
    pub(super) fn new(me: MemberId) -> RoundTrips {
        RoundTrips {
            me,
            estimates: BTreeMap::new(),
            rows: BTreeMap::new(),
        }
    }

    /// Takes the time that a member took to answer a ping. Returns whether its class changed.
    pub(super) fn add(&mut self, member: MemberId, sample_ns: u64) -> bool {
        let class = self.estimates.entry(member).or_default().add(sample_ns);
        let own = self.rows.entry(self.me).or_default();
        class
            .inspect(|&class| _ = own.insert(member, class))
            .is_some()
    }

    /// The classes that this node has of `members`.
    pub(super) fn own(&self, members: &[MemberId]) -> Vec<RoundTrip> {
        let Some(own) = self.rows.get(&self.me) else {
            return Vec::new();
        };
        let of = |&member: &MemberId| {
            let class = *own.get(&member)?;
            Some(RoundTrip { member, class })
        };
        members.iter().filter_map(of).collect()
    }

    /// Takes what another member has told. Returns whether it is news.
    pub(super) fn set(&mut self, from: MemberId, row: &[RoundTrip]) -> bool {
        let of = |it: &RoundTrip| (it.member, it.class.min(CLASS_MAX));
        let row: BTreeMap<MemberId, u8> = row.iter().map(of).collect();
        self.rows.insert(from, row.clone()) != Some(row)
    }

    /// A member is not coming back.
    pub(super) fn forget(&mut self, member: MemberId) {
        self.estimates.remove(&member);
        for row in self.rows.values_mut() {
            row.remove(&member);
        }
        self.rows.remove(&member);
    }

    /// The class of each pair of `members`, by row; `None` where neither of them has told it. And
    /// how many classes they have told: two for each pair, if they have told all.
    pub(super) fn classes(&self, members: &[MemberId]) -> (Vec<Option<u8>>, usize) {
        let nodes = members.len();
        let mut classes = vec![None; nodes * nodes];
        let mut told = 0;
        for (from, one) in members.iter().enumerate() {
            let Some(row) = self.rows.get(one) else {
                continue;
            };
            for (to, other) in members.iter().enumerate().filter(|(to, _)| *to != from) {
                let class = row.get(other).copied();
                told += usize::from(class.is_some());
                for at in [from * nodes + to, to * nodes + from] {
                    classes[at] = classes[at].max(class);
                }
            }
        }
        (classes, told)
    }
}

#[cfg(test)]
mod tests;
