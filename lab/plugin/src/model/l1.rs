//! A CPU's first level, which its CPU reads without a lock. The parent module explains why that is
//! right.
//!
//! A tag is one word: the line, whether it is modified, and whether it is valid. Recency is one
//! word per set with a nibble per way, the most recent one lowest, so there are at most 16 ways.
//! The CPU's own counters are here too, so a hit touches no host cache lines of other CPUs.

use super::{CpuCounts, Geometry, Mode};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const VALID: u64 = 1;
const MODIFIED: u64 = 2;

/// The L1 and the lock-free counters of one CPU. The alignment exceeds the host's pair of
/// prefetched lines.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct L1 {
    ways: usize,
    set_mask: u64,
    tags: Box<[AtomicU64]>,
    recency: Box<[AtomicU64]>,
    hits: [AtomicU64; 2],
    instructions: [AtomicU64; 2],
}

fn tag(line: u64) -> u64 {
    line << 2 | VALID
}

impl L1 {
    pub(crate) fn new(geometry: Geometry, line_bytes: u64) -> Self {
        let sets = geometry.bytes / line_bytes / geometry.ways as u64;
        assert!(geometry.ways <= 16);
        assert!(sets.is_power_of_two());
        Self {
            ways: geometry.ways,
            set_mask: sets - 1,
            tags: (0..sets as usize * geometry.ways)
                .map(|_| AtomicU64::new(0))
                .collect(),
            recency: (0..sets)
                .map(|_| AtomicU64::new(0xfedc_ba98_7654_3210))
                .collect(),
            hits: Default::default(),
            instructions: Default::default(),
        }
    }

    /// Whether the access needs no other CPU: the line is present, and for a store it is already
    /// modified.
    #[inline]
    pub(crate) fn hit(&self, line: u64, store: bool) -> bool {
        let set = (line & self.set_mask) as usize;
        let ways = &self.tags[set * self.ways..][..self.ways];
        let wanted = tag(line);
        let matches = |held: u64| {
            if store {
                held == wanted | MODIFIED
            } else {
                held & !MODIFIED == wanted
            }
        };
        let latest = (self.recency[set].load(Relaxed) & 15) as usize;
        if matches(ways[latest].load(Relaxed)) {
            return true;
        }
        let Some(way) = ways.iter().position(|held| matches(held.load(Relaxed))) else {
            return false;
        };
        self.make_latest(set, way);
        true
    }

    #[inline]
    pub(crate) fn count_hit(&self, mode: Mode) {
        add(&self.hits[mode as usize], 1);
    }

    #[inline]
    pub(crate) fn count_instructions(&self, count: u64, mode: Mode) {
        add(&self.instructions[mode as usize], count);
    }

    pub(crate) fn add_to(&self, counts: &mut CpuCounts) {
        for mode in 0..2 {
            counts.l1_hits[mode] += self.hits[mode].load(Relaxed);
            counts.instructions[mode] += self.instructions[mode].load(Relaxed);
        }
    }

    pub(crate) fn holds(&self, line: u64) -> bool {
        self.way(line).is_some()
    }

    /// Uses a line that is present. Called by the owner, under the mutex.
    pub(crate) fn touch(&self, line: u64, modified: bool) {
        let way = self.way(line).expect("held");
        self.put(line, way, modified);
    }

    /// Inserts a line that is missing. Returns the evicted line. Called by the owner, under the
    /// mutex.
    pub(crate) fn insert(&self, line: u64, modified: bool) -> Option<u64> {
        let (set, row) = self.row(line);
        let way = row
            .iter()
            .position(|held| held.load(Relaxed) & VALID == 0)
            .unwrap_or_else(|| {
                let oldest = 4 * (self.ways - 1);
                (self.recency[set].load(Relaxed) >> oldest & 15) as usize
            });
        let displaced = row[way].load(Relaxed);
        self.put(line, way, modified);
        (displaced & VALID != 0).then_some(displaced >> 2)
    }

    /// Drops the line, if it is present. Called under the mutex.
    pub(crate) fn invalidate(&self, line: u64) {
        self.replace(line, 0);
    }

    /// Makes the line unmodified, if it is present. Called under the mutex.
    pub(crate) fn clean(&self, line: u64) {
        self.replace(line, tag(line));
    }

    fn replace(&self, line: u64, by: u64) {
        if let Some(way) = self.way(line) {
            self.row(line).1[way].store(by, Relaxed);
        }
    }

    fn put(&self, line: u64, way: usize, modified: bool) {
        let (set, row) = self.row(line);
        row[way].store(tag(line) | if modified { MODIFIED } else { 0 }, Relaxed);
        self.make_latest(set, way);
    }

    fn way(&self, line: u64) -> Option<usize> {
        self.row(line)
            .1
            .iter()
            .position(|held| held.load(Relaxed) & !MODIFIED == tag(line))
    }

    fn row(&self, line: u64) -> (usize, &[AtomicU64]) {
        let set = (line & self.set_mask) as usize;
        (set, &self.tags[set * self.ways..][..self.ways])
    }

    fn make_latest(&self, set: usize, way: usize) {
        let order = self.recency[set].load(Relaxed);
        let mut position = 0;
        while order >> (4 * position) & 15 != way as u64 {
            position += 1;
        }
        let newer = (1_u64 << (4 * position)) - 1;
        let through = newer << 4 | 15;
        self.recency[set].store(
            order & !through | (order & newer) << 4 | way as u64,
            Relaxed,
        );
    }

    /// All lines held, each with whether it is modified.
    #[cfg(test)]
    pub(crate) fn lines(&self) -> impl Iterator<Item = (u64, bool)> + '_ {
        let tags = self
            .tags
            .iter()
            .map(|held| held.load(Relaxed))
            .filter(|held| held & VALID != 0);
        tags.map(|held| (held >> 2, held & MODIFIED != 0))
    }
}

/// A counter that one thread writes needs no locked addition.
#[inline]
fn add(counter: &AtomicU64, count: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(count), Relaxed);
}
