//! A set-associative LRU cache of line numbers, for the levels inside the mutex.
//!
//! Each set is a row of lines in order of recency. Sixteen ways are two host cache lines, so
//! shifting a row costs less than storing ages. The directory knows whether a line is modified.

use super::Geometry;

/// An empty way: no line, since lines are addresses divided by 16 at least.
const EMPTY: u64 = u64::MAX;

/// One cache.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    ways: usize,
    sets: u64,
    lines: Vec<u64>,
}

impl Cache {
    pub(crate) fn new(geometry: Geometry, line_bytes: u64) -> Self {
        let sets = geometry.bytes / line_bytes / geometry.ways as u64;
        Self {
            ways: geometry.ways,
            sets,
            lines: vec![EMPTY; sets as usize * geometry.ways],
        }
    }

    /// Makes the line the most recent of its set, and inserts it if it is missing. Returns the
    /// evicted line.
    pub(crate) fn fetch(&mut self, line: u64) -> Option<u64> {
        let row = self.row(line);
        let found = row.iter().position(|&held| held == line || held == EMPTY);
        let last = row.len() - 1;
        row[..=found.unwrap_or(last)].rotate_right(1);
        let displaced = std::mem::replace(&mut row[0], line);
        (displaced != line && displaced != EMPTY).then_some(displaced)
    }

    /// Drops the line, if it is there.
    pub(crate) fn remove(&mut self, line: u64) {
        let row = self.row(line);
        if let Some(way) = row.iter().position(|&held| held == line) {
            // Empty ways stay at the end, after all lines.
            row[way..].rotate_left(1);
            row[row.len() - 1] = EMPTY;
        }
    }

    fn row(&mut self, line: u64) -> &mut [u64] {
        let start = (line % self.sets) as usize * self.ways;
        &mut self.lines[start..start + self.ways]
    }

    /// All lines held.
    #[cfg(test)]
    pub(crate) fn lines(&self) -> impl Iterator<Item = u64> + '_ {
        self.lines.iter().copied().filter(|&line| line != EMPTY)
    }
}
