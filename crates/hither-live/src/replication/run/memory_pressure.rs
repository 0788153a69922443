//! Whether memory is short, or programs wait for it, as the kernel counts that (pressure stall
//! information, Documentation/accounting/psi.rst).

use std::fs;

use hither_sys::cgroup::MemoryGroup;
use hither_sys::machine::{Machine, NodeMemory, ThisMachine};

/// Programs wait for memory (PSI, `some`) if some of them did for so many hundredths of the last
/// ten seconds, or so much of the time since the last tick: who allocates in a hurry has run out of
/// memory before that shows in ten seconds.
const WAITED: f64 = 1.0;
const WAITED_LATELY: u64 = 10;

/// Memory is short where a smaller part of it is free, or can be made so: where nothing but
/// replicas could be given up, who goes on allocating is killed before anybody has waited (in the
/// lab's guest of half a gibibyte, 2026-11). Of a memory cgroup it is a larger part, since what a
/// program takes from one look to the next is more of it.
const SHORT: u64 = 16;
const SHORT_OF_GROUP: u64 = 8;

/// This part is left to programs: it counts as in use, so that none are made again at once of what
/// was given up for them.
const LEFT: u64 = 8;
const LEFT_OF_GROUP: u64 = 4;

const MILLION: u128 = 1_000_000;

/// So much of a cgroup may be taken until it is measured anew: its programs take of it meanwhile.
const PIECE: u64 = 1 << 20;

/// The memory that there is for replicas: the machine's, and what a memory cgroup lets the agent
/// have, to which they are charged.
#[derive(Debug)]
pub(super) struct Room {
    group: Option<MemoryGroup>,
    piece: Piece,
}

/// What may be taken of a cgroup until it is measured anew.
#[derive(Debug, Default)]
struct Piece {
    spare: u64,
    /// There was too little.
    refused: bool,
}

impl Room {
    pub(super) fn of_this_process() -> Room {
        Room {
            group: MemoryGroup::of_this_process().ok().flatten(),
            piece: Piece::default(),
        }
    }

    /// Takes memory for a replica, if that leaves the cgroup's programs their part. Once it does
    /// not, it is not measured again before the next [`Room::look`].
    pub(super) fn take(&mut self, bytes: u64) -> bool {
        match &self.group {
            None => true,
            Some(group) => {
                let left = || measured(group).map_or(0, left_of_group);
                self.piece.take(bytes, left)
            }
        }
    }

    /// Millionths that are free for replicas, or hold files that were not used for long; of a
    /// cgroup, that hold files.
    pub(super) fn free_ppm(&self) -> u32 {
        let nodes = ThisMachine.nodes().unwrap_or_default();
        let sum = |of: fn(&NodeMemory) -> u64| nodes.iter().map(of).sum::<u64>();
        let free = sum(NodeMemory::available_bytes);
        let all = sum(|node| node.bytes);
        let machine = ppm(free.saturating_sub(all / LEFT), all);
        let left = |group: (u64, u64)| ppm(left_of_group(group), group.1);
        let group = self.group.as_ref().and_then(measured);
        group.map_or(machine, |group| machine.min(left(group)))
    }

    /// Looks anew whether memory is short, and has [`Room::take`] do so.
    pub(super) fn look(&mut self) -> bool {
        self.piece = Piece::default();
        let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let group = || self.group.as_ref().and_then(measured);
        says_short(&text).unwrap_or(false) || group().is_some_and(group_is_short)
    }
}

impl Piece {
    /// `left` measures what may be taken of the whole.
    fn take(&mut self, bytes: u64, left: impl FnOnce() -> u64) -> bool {
        if self.spare < bytes && !self.refused {
            self.spare = left().min(PIECE);
            self.refused = self.spare < bytes;
        }
        let taken = self.spare >= bytes;
        self.spare -= if taken { bytes } else { 0 };
        taken
    }
}

/// What a cgroup leaves for files, and all that it may have. Nothing where it is gone.
fn measured(group: &MemoryGroup) -> Option<(u64, u64)> {
    Some((group.file_bytes()?, group.limit_bytes()?))
}

fn group_is_short((free, all): (u64, u64)) -> bool {
    free.saturating_mul(SHORT_OF_GROUP) < all
}

/// What replicas may have of what a cgroup leaves for files.
fn left_of_group((free, all): (u64, u64)) -> u64 {
    free.saturating_sub(all / LEFT_OF_GROUP)
}

fn ppm(free: u64, all: u64) -> u32 {
    let all = all.max(1);
    (u128::from(free.min(all)) * MILLION / u128::from(all)) as u32
}

fn says_short(text: &str) -> Option<bool> {
    let kib = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    Some(kib("MemAvailable:")?.saturating_mul(SHORT) < kib("MemTotal:")?)
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Pressure {
    /// What was last read, and when.
    said: Said,
    at_ns: u64,
}

/// What the kernel says of all programs: that some of them waited.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Said {
    /// In hundredths of the last ten seconds.
    avg10: f64,
    /// Microseconds since the start of the machine.
    total_us: u64,
}

impl Pressure {
    /// Whether some have, since this was last asked.
    pub(super) fn has_waited(&mut self, now_ns: u64) -> bool {
        let text = fs::read_to_string("/proc/pressure/memory").unwrap_or_default();
        self.take(Said::of(&text).unwrap_or_default(), now_ns)
    }

    fn take(&mut self, said: Said, now_ns: u64) -> bool {
        let waited_us = said.total_us.saturating_sub(self.said.total_us);
        let since_us = now_ns.saturating_sub(self.at_ns) / 1000;
        // What came before the first look is nothing new.
        let is_first = self.said == Said::default();
        (self.said, self.at_ns) = (said, now_ns);
        !is_first && waited_us * 100 >= since_us * WAITED_LATELY && waited_us > 0
    }

    /// Whether they do, on the whole, as was last read.
    pub(super) fn waits(&self) -> bool {
        self.said.avg10 >= WAITED
    }
}

impl Said {
    /// Nothing where the kernel does not count.
    fn of(text: &str) -> Option<Said> {
        let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
        let named = |name: &str| some.split(' ').find_map(|word| word.strip_prefix(name));
        Some(Said {
            avg10: named("avg10=")?.parse().ok()?,
            total_us: named("total=")?.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn pressure_is_read() {
        let text = "some avg10=1.25 avg60=0.00 avg300=0.00 total=34935936\nfull avg10=9.00 \
            avg60=0.00 avg300=0.00 total=5744289\n";
        let said = Said {
            avg10: 1.25,
            total_us: 34_935_936,
        };
        assert_eq!(Said::of(text), Some(said));
        assert_eq!(Said::of(""), None);
    }

    #[test]
    fn less_than_a_sixteenth_is_short() {
        let text = |available: u64| {
            format!("MemTotal:       16000 kB\nMemFree:  10 kB\nMemAvailable:   {available} kB\n")
        };
        assert_eq!(says_short(&text(1000)), Some(false));
        assert_eq!(says_short(&text(999)), Some(true));
        assert_eq!(says_short("MemTotal: 16000 kB\n"), None);
    }

    #[test]
    fn less_than_an_eighth_of_a_cgroup_is_short_and_a_quarter_is_left() {
        let of = |free| (free, 64 << 20);
        assert!(!group_is_short(of(8 << 20)));
        assert!(group_is_short(of((8 << 20) - 1)));
        assert_eq!(left_of_group(of(16 << 20)), 0);
        assert_eq!(left_of_group(of((16 << 20) + 1)), 1);
        assert_eq!(ppm(left_of_group(of(48 << 20)), 64 << 20), 500_000);
    }

    /// A group with room for two pieces and a half: it is measured for each, what it says while one
    /// is taken does not count, and after a refusal it is not measured any more.
    #[test]
    fn a_cgroup_is_measured_for_each_piece() {
        const BLOCK: u64 = 16 << 10;
        let blocks = PIECE / BLOCK * 5 / 2;
        let measurements = Cell::new(0);
        let mut piece = Piece::default();
        let mut take = |left: u64| {
            piece.take(BLOCK, || {
                measurements.set(measurements.get() + 1);
                left * BLOCK
            })
        };
        let taken = (0..1000).filter(|&taken| take(blocks.saturating_sub(taken)));
        assert_eq!(taken.count() as u64, blocks);
        assert_eq!(measurements.get(), 4);
        assert!(!take(1000), "refused until it is looked again");
        piece = Piece::default();
        assert!(piece.take(BLOCK, || BLOCK));
        assert!(!piece.take(BLOCK, || BLOCK - 1));
    }

    #[test]
    fn a_tenth_of_the_time_is_much() {
        let mut pressure = Pressure::default();
        let said = |total_us| Said {
            avg10: 0.0,
            total_us,
        };
        let mut take = |total_us, at_ms: u64| pressure.take(said(total_us), at_ms * 1_000_000);
        assert!(!take(5_000_000, 100), "long ago");
        assert!(!take(5_000_000, 200));
        assert!(!take(5_009_999, 300));
        assert!(take(5_019_999, 400));
        assert!(!take(5_019_999, 400), "no time has passed");
        assert!(!pressure.waits());
    }
}
