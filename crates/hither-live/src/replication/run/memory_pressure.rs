//! Whether memory is short, or programs wait for it as the kernel counts that (pressure stall
//! information, Documentation/accounting/psi.rst).

use std::fs;

use hither_kernel::cgroup::MemoryGroup;
use hither_kernel::machine::{Machine, NodeMemory, ThisMachine};

/// Programs wait for memory if some of them did for this share of the last ten seconds (PSI,
/// `some`, `avg10`).
const STALLED_PERCENT_OF_10_S_MIN: f64 = 1.0;

/// Or for this share of the time since the last tick: a program that allocates fast has run out of
/// memory before that shows in ten seconds.
const STALLED_PERCENT_OF_TICK_MIN: u64 = 10;

/// Memory is short where less than 1/16 of it is available. Where only replicas could be reclaimed,
/// a program that goes on allocating is killed before any has waited (in the lab's guest of 512
/// MiB, 2026-11).
const SHORT_DIVISOR: u64 = 16;

/// Of a memory cgroup, less than 1/8: what a program allocates between two checks is a larger share
/// of it.
const GROUP_SHORT_DIVISOR: u64 = 8;

/// 1/8 of memory is reserved for programs: it counts as used, so that what was reclaimed for them
/// does not become replicas again at once.
const RESERVED_DIVISOR: u64 = 8;

/// Of a memory cgroup, 1/4 is reserved.
const GROUP_RESERVED_DIVISOR: u64 = 4;

const PPM: u128 = 1_000_000;

/// How much of a cgroup's memory may be taken before it is measured again: its programs allocate
/// meanwhile.
const GROUP_CHUNK_BYTES: u64 = 1 << 20;

/// The memory for replicas: the machine's, and that of the agent's memory cgroup, to which replicas
/// are charged.
#[derive(Debug)]
pub(super) struct ReplicaMemory {
    group: Option<MemoryGroup>,
    chunk: GroupChunk,
}

/// What may be taken of a cgroup before it is measured again.
#[derive(Debug, Default)]
struct GroupChunk {
    spare_bytes: u64,
    /// The last measurement left too little.
    refused: bool,
}

impl ReplicaMemory {
    pub(super) fn of_this_process() -> ReplicaMemory {
        ReplicaMemory {
            group: MemoryGroup::of_this_process().ok().flatten(),
            chunk: GroupChunk::default(),
        }
    }

    /// Takes memory for a replica, if that leaves the cgroup's programs their reserve. Once it does
    /// not, the cgroup is not measured again before the next [`ReplicaMemory::check_short`].
    pub(super) fn take(&mut self, bytes: u64) -> bool {
        match &self.group {
            None => true,
            Some(group) => {
                let left = || measured(group).map_or(0, left_of_group);
                self.chunk.take(bytes, left)
            }
        }
    }

    /// The memory that is available for replicas, in millionths: free, or with files that were not
    /// used for long. Of a cgroup, what it leaves for files.
    pub(super) fn free_ppm(&self) -> u32 {
        let nodes = ThisMachine.nodes().unwrap_or_default();
        let sum = |of: fn(&NodeMemory) -> u64| nodes.iter().map(of).sum::<u64>();
        let free = sum(NodeMemory::available_bytes);
        let all = sum(|node| node.bytes);
        let machine = ppm(free.saturating_sub(all / RESERVED_DIVISOR), all);
        let left = |group: (u64, u64)| ppm(left_of_group(group), group.1);
        let group = self.group.as_ref().and_then(measured);
        group.map_or(machine, |group| machine.min(left(group)))
    }

    /// Measures whether memory is short, and lets [`ReplicaMemory::take`] measure again.
    pub(super) fn check_short(&mut self) -> bool {
        self.chunk = GroupChunk::default();
        let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let group = || self.group.as_ref().and_then(measured);
        meminfo_is_short(&text).unwrap_or(false) || group().is_some_and(group_is_short)
    }
}

impl GroupChunk {
    /// `left` measures what is available of the cgroup.
    fn take(&mut self, bytes: u64, left: impl FnOnce() -> u64) -> bool {
        if self.spare_bytes < bytes && !self.refused {
            self.spare_bytes = left().min(GROUP_CHUNK_BYTES);
            self.refused = self.spare_bytes < bytes;
        }
        let taken = self.spare_bytes >= bytes;
        self.spare_bytes -= if taken { bytes } else { 0 };
        taken
    }
}

/// What a cgroup leaves for files, and its limit. None where it is gone.
fn measured(group: &MemoryGroup) -> Option<(u64, u64)> {
    Some((group.file_bytes()?, group.limit_bytes()?))
}

fn group_is_short((free, all): (u64, u64)) -> bool {
    free.saturating_mul(GROUP_SHORT_DIVISOR) < all
}

/// How much of what a cgroup leaves for files replicas may have.
fn left_of_group((free, all): (u64, u64)) -> u64 {
    free.saturating_sub(all / GROUP_RESERVED_DIVISOR)
}

fn ppm(free: u64, all: u64) -> u32 {
    let all = all.max(1);
    (u128::from(free.min(all)) * PPM / u128::from(all)) as u32
}

fn meminfo_is_short(text: &str) -> Option<bool> {
    let kib = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    Some(kib("MemAvailable:")?.saturating_mul(SHORT_DIVISOR) < kib("MemTotal:")?)
}

/// How long programs wait for memory.
#[derive(Debug, Default)]
pub(super) struct MemoryStalls {
    /// The last sample, and its time.
    last: StallSample,
    last_ns: u64,
}

/// What the kernel counts of all programs: that some of them waited.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct StallSample {
    /// Percent of the last ten seconds.
    avg10: f64,
    /// Microseconds since the machine started.
    total_us: u64,
}

impl MemoryStalls {
    /// Whether programs have waited since the last call.
    pub(super) fn stalled_since_last_call(&mut self, now_ns: u64) -> bool {
        let text = fs::read_to_string("/proc/pressure/memory").unwrap_or_default();
        self.update(StallSample::of(&text).unwrap_or_default(), now_ns)
    }

    fn update(&mut self, sample: StallSample, now_ns: u64) -> bool {
        let waited_us = sample.total_us.saturating_sub(self.last.total_us);
        let since_us = now_ns.saturating_sub(self.last_ns) / 1000;
        // What came before the first sample is not new.
        let is_first = self.last == StallSample::default();
        (self.last, self.last_ns) = (sample, now_ns);
        !is_first && waited_us * 100 >= since_us * STALLED_PERCENT_OF_TICK_MIN && waited_us > 0
    }

    /// Whether programs waited in the last ten seconds, by the last sample.
    pub(super) fn is_stalled(&self) -> bool {
        self.last.avg10 >= STALLED_PERCENT_OF_10_S_MIN
    }
}

impl StallSample {
    /// None where the kernel does not count stalls.
    fn of(text: &str) -> Option<StallSample> {
        let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
        let named = |name: &str| some.split(' ').find_map(|word| word.strip_prefix(name));
        Some(StallSample {
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
        let said = StallSample {
            avg10: 1.25,
            total_us: 34_935_936,
        };
        assert_eq!(StallSample::of(text), Some(said));
        assert_eq!(StallSample::of(""), None);
    }

    #[test]
    fn less_than_a_sixteenth_is_short() {
        let text = |available: u64| {
            format!("MemTotal:       16000 kB\nMemFree:  10 kB\nMemAvailable:   {available} kB\n")
        };
        assert_eq!(meminfo_is_short(&text(1000)), Some(false));
        assert_eq!(meminfo_is_short(&text(999)), Some(true));
        assert_eq!(meminfo_is_short("MemTotal: 16000 kB\n"), None);
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

    /// A group with room for two and a half chunks. It is measured for each chunk; a change while
    /// one is in use does not count, and after a refusal it is not measured again.
    #[test]
    fn a_cgroup_is_measured_for_each_piece() {
        const BLOCK: u64 = 16 << 10;
        let blocks = GROUP_CHUNK_BYTES / BLOCK * 5 / 2;
        let measurements = Cell::new(0);
        let mut chunk = GroupChunk::default();
        let mut take = |left: u64| {
            chunk.take(BLOCK, || {
                measurements.set(measurements.get() + 1);
                left * BLOCK
            })
        };
        let taken = (0..1000).filter(|&taken| take(blocks.saturating_sub(taken)));
        assert_eq!(taken.count() as u64, blocks);
        assert_eq!(measurements.get(), 4);
        assert!(!take(1000), "refused until it is looked again");
        chunk = GroupChunk::default();
        assert!(chunk.take(BLOCK, || BLOCK));
        assert!(!chunk.take(BLOCK, || BLOCK - 1));
    }

    #[test]
    fn a_tenth_of_the_time_is_much() {
        let mut stalls = MemoryStalls::default();
        let said = |total_us| StallSample {
            avg10: 0.0,
            total_us,
        };
        let mut take = |total_us, at_ms: u64| stalls.update(said(total_us), at_ms * 1_000_000);
        assert!(!take(5_000_000, 100), "long ago");
        assert!(!take(5_000_000, 200));
        assert!(!take(5_009_999, 300));
        assert!(take(5_019_999, 400));
        assert!(!take(5_019_999, 400), "no time has passed");
        assert!(!stalls.is_stalled());
    }
}
