//! Exact LRU stack distances: for each reference, how many distinct other blocks were referenced since its block was
//! last. An LRU cache of `c` blocks hits exactly the references with a distance below `c` (Mattson et al., 1970), so
//! the histogram holds the hit ratio of every cache size at once.
//!
//! The blocks lie on a line in the order of their last reference, and a Fenwick tree counts those to the right of a
//! place in O(log n). The line has two places a block and is compacted when it is full, so memory depends on the
//! distinct blocks (16 bytes each for the tree and the line, 4 for the places) and not on the length of the trace,
//! and the tree stays small enough for the cache where the footprint is.

use serde::Serialize;

use crate::error::Result;
use crate::trace::Trace;

const NONE: u32 = u32::MAX;

/// A histogram of stack distances in buckets of powers of two: cheap to show, and the sum of the first k + 1 buckets
/// is the number of hits of an LRU cache of 2^k blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReuseHistogram {
    /// First references, which miss in every cache.
    pub cold: u64,
    /// Bucket 0 counts distance 0, bucket k the distances from 2^(k-1) to 2^k - 1.
    pub buckets: Vec<u64>,
}

impl ReuseHistogram {
    /// The histogram of a trace. Fails where [`Trace::fill`] does.
    pub fn of(trace: &Trace) -> Result<ReuseHistogram> {
        let mut histogram = ReuseHistogram::default();
        let mut distances = StackDistances::new(trace.blocks());
        trace.for_each_chunk(|chunk| {
            for &block in chunk.blocks() {
                histogram.add(distances.touch(block));
            }
        })?;
        Ok(histogram)
    }

    fn add(&mut self, distance: Option<u32>) {
        let Some(distance) = distance else {
            self.cold += 1;
            return;
        };
        let bucket = (u32::BITS - distance.leading_zeros()) as usize;
        if self.buckets.len() <= bucket {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += 1;
    }
}

/// The LRU stack of a stream of references.
#[derive(Debug)]
pub struct StackDistances {
    /// The block at each place, or [`NONE`] where it has moved on.
    at: Vec<u32>,
    /// The place of each block.
    place: Vec<u32>,
    tree: Fenwick,
    /// The first free place.
    free: usize,
    present: u32,
}

impl StackDistances {
    /// For blocks that are numbered below `blocks`.
    pub fn new(blocks: usize) -> StackDistances {
        let places = (2 * blocks).max(64);
        let tree = Fenwick(vec![0; places + 1]);
        StackDistances {
            at: vec![NONE; places],
            place: vec![NONE; blocks],
            tree,
            free: 0,
            present: 0,
        }
    }

    /// References a block, and returns its stack distance: how many blocks it passes on its way to the end of the line;
    /// `None` the first time.
    pub fn touch(&mut self, block: u32) -> Option<u32> {
        if self.free == self.at.len() {
            self.compact();
        }
        let old = self.place[block as usize];
        let distance = if old == NONE {
            self.present += 1;
            None
        } else {
            let passed = self.present - self.tree.sum(old as usize + 1);
            self.tree.add(old as usize, u32::MAX);
            self.at[old as usize] = NONE;
            Some(passed)
        };
        self.tree.add(self.free, 1);
        self.at[self.free] = block;
        self.place[block as usize] = self.free as u32;
        self.free += 1;
        distance
    }

    /// Closes the gaps. At least half of the places become free, so this costs O(1) a reference.
    fn compact(&mut self) {
        let mut kept = 0;
        for place in 0..self.at.len() {
            let block = std::mem::replace(&mut self.at[place], NONE);
            if block != NONE {
                self.at[kept] = block;
                self.place[block as usize] = kept as u32;
                kept += 1;
            }
        }
        self.free = kept;
        self.tree.fill(kept);
    }
}

/// A Fenwick tree of counts; node `i` covers the `i & -i` places before place `i`.
#[derive(Debug)]
struct Fenwick(Vec<u32>);

impl Fenwick {
    /// Adds to a place; subtracts by wrapping.
    fn add(&mut self, place: usize, count: u32) {
        let mut node = place + 1;
        while node < self.0.len() {
            self.0[node] = self.0[node].wrapping_add(count);
            node += node & node.wrapping_neg();
        }
    }

    /// The sum of the first `places`.
    fn sum(&self, places: usize) -> u32 {
        let mut node = places;
        let mut sum = 0u32;
        while node > 0 {
            sum = sum.wrapping_add(self.0[node]);
            node &= node - 1;
        }
        sum
    }

    /// Sets the first `ones` places to 1 and the others to 0.
    fn fill(&mut self, ones: usize) {
        for node in 1..self.0.len() {
            let from = node & (node - 1);
            self.0[node] = (node.min(ones) - from.min(ones)) as u32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn distances_equal_those_of_a_list(stream in prop::collection::vec(0u32..90, 0..900)) {
            let mut stack: Vec<u32> = Vec::new();
            let mut expected = Vec::new();
            for &block in &stream {
                let depth = stack.iter().rev().position(|other| *other == block);
                stack.retain(|other| *other != block);
                stack.push(block);
                expected.push(depth.map(|depth| depth as u32));
            }
            let mut distances = StackDistances::new(90);
            let found: Vec<_> = stream.iter().map(|&block| distances.touch(block)).collect();
            prop_assert_eq!(&found, &expected);

            let mut histogram = ReuseHistogram::default();
            found.into_iter().for_each(|distance| histogram.add(distance));
            prop_assert_eq!(histogram.cold as usize, stack.len());
            for (k, _) in histogram.buckets.iter().enumerate() {
                let hits = expected.iter().flatten().filter(|distance| **distance < 1 << k).count() as u64;
                prop_assert_eq!(histogram.buckets[..=k].iter().sum::<u64>(), hits);
            }
        }
    }
}
