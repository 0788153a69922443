//! The value of one more block, or one less, to the part for other references: measured, in hits a
//! reference.
//!
//! The stack of [`stack`](super::stack) is divided around the present size n of the part: the
//! *top*; the *tail*, the last n/8 blocks inside; the *near* ghosts, just beyond; the *far* ghosts,
//! down to the size of the cache.
//!
//! UBM (section 3.3) measures the hits of ghost buffers beyond that part and fits Belady's lifetime
//! function through them, to get the gain of the n-th block. That is `gain=fitted`: the curve of
//! [`lifetime`](super::lifetime) through the ends of the four segments.
//!
//! Departure (`gain`): the fit smooths what a window of a few thousand references measures well
//! enough, and it is wrong for every workload whose curve does not have that form. By default
//! nothing is fitted. The hits of a segment divided by its length are hits a reference and block,
//! and the gain is the largest of three: the tail's (lost by shrinking), the near ghosts' (gained
//! by a little growth), and all ghosts' (gained a block by growing to the full cache; without it a
//! part that was squeezed out could not show that it has a working set further down).

use super::lifetime::{self, MissRatio};
use super::stack::SegmentedStack;

/// The segments around the present size: the top is 0.
const TAIL: usize = 1;
const NEAR: usize = 2;
const FAR: usize = 3;

#[derive(Clone, Debug)]
pub(super) struct MarginalGain {
    /// By the lifetime function, not by segments around the present size.
    fitted: bool,
    size: usize,
    stack: SegmentedStack,
}

impl MarginalGain {
    pub(super) fn new(capacity: u32, fitted: bool) -> Self {
        let mut gain = MarginalGain {
            fitted,
            size: 0,
            stack: SegmentedStack::new(capacity as usize),
        };
        gain.resize(0);
        gain
    }

    /// Counts an access of any class; `other`: it belongs to this part.
    pub(super) fn access(&mut self, block: u32, other: bool) {
        self.stack.access(block, other);
    }

    /// Sets the part's size.
    pub(super) fn resize(&mut self, size: usize) {
        self.size = size;
        let capacity = self.stack.capacity();
        let tail = (size / 8).max(8).min(size);
        let ghosts = capacity - size;
        let near = (size / 8).max(capacity / 16).max(8).min(ghosts);
        self.stack.divide([size - tail, tail, near, ghosts - near]);
    }

    /// The hits a reference that the part would lose with a block, or gain with one more.
    pub(super) fn hits_per_reference(&self) -> f64 {
        let references = self.stack.references.max(1.0);
        if self.fitted {
            self.fitted_hits() / references
        } else {
            self.segment_hits() / references
        }
    }

    /// By the lifetime function, the hits of one more block.
    fn fitted_hits(&self) -> f64 {
        let others = self.stack.others;
        let (mut blocks, mut hits) = (0, 0.0);
        let segments = self.stack.limits().into_iter().zip(self.stack.hits);
        let points = segments.map(|(length, hits_here)| {
            blocks += length;
            hits += hits_here;
            MissRatio {
                blocks,
                ratio: (others - hits) / others,
            }
        });
        if others > 0.0 {
            others * lifetime::gain(points.filter(|point| point.blocks > 0), self.size)
        } else {
            0.0
        }
    }

    /// By segments, the hits of a block more or less.
    fn segment_hits(&self) -> f64 {
        let (hits, limits) = (self.stack.hits, self.stack.limits());
        let density = |hits: f64, length: usize| {
            if length == 0 {
                0.0
            } else {
                hits / length as f64
            }
        };
        let tail = density(hits[TAIL], limits[TAIL]);
        let near = density(hits[NEAR], limits[NEAR]);
        let ghosts = density(hits[NEAR] + hits[FAR], limits[NEAR] + limits[FAR]);
        tail.max(near).max(ghosts)
    }

    pub(super) fn check(&self) {
        self.stack.check();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Worked by hand: a stack of 32, of which the sub-cache has 16: 8 on top, 8 in the tail, 8
    /// near, 8 far.
    #[test]
    fn hits_by_segment() {
        let mut gain = MarginalGain::new(32, false);
        gain.resize(16);
        assert_eq!(gain.stack.limits(), [8, 8, 8, 8]);
        (0..32).for_each(|block| gain.access(block, true));
        gain.check();
        assert_eq!(gain.hits_per_reference(), 0.0);
        // From the top of the stack: 31..=24 lie on top, 23..=16 in the tail, 15..=8 near, 7..=0
        // far.
        gain.access(31, true);
        assert_eq!(
            gain.hits_per_reference(),
            0.0,
            "a hit on top is not at the margin"
        );
        gain.access(16, true);
        assert_eq!(
            gain.hits_per_reference(),
            1.0 / 8.0 / 34.0,
            "one hit in a tail of eight, 34 references"
        );
        gain.access(8, true);
        gain.access(9, true);
        assert_eq!(gain.hits_per_reference(), 2.0 / 8.0 / 36.0, "two near");
        (0..5).for_each(|block| gain.access(block, true));
        assert_eq!(
            gain.hits_per_reference(),
            7.0 / 16.0 / 41.0,
            "five more far away: all ghosts together"
        );
        gain.access(10, false);
        assert_eq!(
            gain.hits_per_reference(),
            7.0 / 16.0 / 42.0,
            "an access of another class is no hit here"
        );
        gain.check();
        gain.resize(32);
        assert_eq!(
            gain.stack.limits(),
            [24, 8, 0, 0],
            "nothing beyond the cache can be gained"
        );
        gain.check();
    }

    #[test]
    fn old_hits_fade() {
        let mut gain = MarginalGain::new(8, false);
        gain.resize(8);
        (0..8)
            .chain(0..8)
            .for_each(|block| gain.access(block, true));
        let fresh = gain.hits_per_reference() * gain.stack.references;
        (100..100 + 2 * 512).for_each(|block| gain.access(block, false));
        assert!(gain.hits_per_reference() * gain.stack.references <= fresh / 2.0);
    }

    /// Worked by hand: 64 blocks twice in the same order, so each returns at depth 64, beyond three
    /// of the four sizes.
    #[test]
    fn fitted_through_the_misses_at_four_sizes() {
        let mut gain = MarginalGain::new(64, true);
        gain.resize(16);
        assert_eq!(gain.stack.limits(), [8, 8, 8, 40]);
        assert_eq!(gain.hits_per_reference(), 0.0, "nothing was seen");
        (0..64).for_each(|block| gain.access(block, true));
        assert_eq!(gain.hits_per_reference(), 0.0, "nothing returned");
        (0..64).for_each(|block| gain.access(block, true));
        gain.check();
        // Misses at 8, 16, 24 and 64: all, all, all, a half. In powers of two, with 64 as the last
        // of x and -1 as the last of y:
        let x = [8f64, 16.0, 24.0, 64.0].map(f64::log2);
        let middle = x.iter().sum::<f64>() / 4.0;
        let spread: f64 = x.iter().map(|x| (x - middle).powi(2)).sum();
        let slope = -(6.0 - middle) / spread;
        let misses = |blocks: f64| 2f64.powf(-0.25 + slope * (blocks.log2() - middle));
        let expected = misses(16.0) - misses(17.0);
        let found = gain.hits_per_reference();
        assert!((found - expected).abs() < 1e-9, "{found}, {expected}");
        // References of other classes thin it out.
        (1000..1064).for_each(|block| gain.access(block, false));
        let thinner = gain.hits_per_reference();
        assert!((thinner - found * 128.0 / 192.0).abs() < 1e-9);
    }
}
