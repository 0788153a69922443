//! The value of one more block, or one less, to the part for other references: measured, in hits a
//! reference.
//!
//! UBM (section 3.3) measures the hits of ghost buffers beyond that part and fits Belady's lifetime
//! function through them, to get the gain of the n-th block. The fit is left out here: it smooths
//! what a window of a few thousand references measures well enough, and it is wrong for every
//! workload whose curve does not have that form.
//!
//! Instead an LRU stack of the other references, as deep as the whole cache, is kept in four
//! segments around the present size n of the part: the *top*; the *tail*, the last n/8 blocks
//! inside; the *near* ghosts, just beyond; the *far* ghosts, down to the size of the cache. The
//! hits of a segment divided by its length are hits a reference and block. The gain is the largest
//! of three: the tail's (lost by shrinking), the near ghosts' (gained by a little growth), and all
//! ghosts' (gained a block by growing to the full cache; without it a part that was squeezed out
//! could not show that it has a working set further down). Counts are halved every window, so old
//! ones fade.

use crate::classify::at;
use crate::list::{Links, List};

/// The segments: the top is 0.
const TAIL: usize = 1;
const NEAR: usize = 2;
const FAR: usize = 3;
const SEGMENTS: usize = 4;

/// In place of a segment, for a block that is not in the stack.
const NOWHERE: u8 = 0;

#[derive(Clone, Debug)]
pub(super) struct MarginalGain {
    capacity: usize,
    window: f64,
    blocks: Links,
    segments: [List; SEGMENTS],
    limits: [usize; SEGMENTS],
    /// By block, one more than its segment, or [`NOWHERE`].
    segment: Vec<u8>,
    hits: [f64; SEGMENTS],
    references: f64,
}

impl MarginalGain {
    pub(super) fn new(capacity: u32) -> Self {
        let mut gain = MarginalGain {
            capacity: capacity as usize,
            window: f64::from(capacity.max(512)) * 2.0,
            blocks: Links::default(),
            segments: [List::default(); SEGMENTS],
            limits: [0; SEGMENTS],
            segment: Vec::new(),
            hits: [0.0; SEGMENTS],
            references: 0.0,
        };
        gain.resize(0);
        gain
    }

    /// Counts an access of any class; `other`: it belongs to this part.
    pub(super) fn access(&mut self, block: u32, other: bool) {
        self.references += 1.0;
        if self.references > self.window {
            self.references /= 2.0;
            self.hits = self.hits.map(|hits| hits / 2.0);
        }
        let segment = std::mem::replace(at(&mut self.segment, block), NOWHERE);
        if segment != NOWHERE {
            let segment = usize::from(segment - 1);
            self.segments[segment].remove(&mut self.blocks, block);
            if other {
                self.hits[segment] += 1.0;
            }
        }
        if other {
            self.blocks.cover(block);
            self.segments[0].push_front(&mut self.blocks, block);
            self.segment[block as usize] = 1;
        }
        if other || segment != NOWHERE {
            self.balance();
        }
    }

    /// Sets the part's size.
    pub(super) fn resize(&mut self, size: usize) {
        let tail = (size / 8).max(8).min(size);
        let ghosts = self.capacity - size;
        let near = (size / 8).max(self.capacity / 16).max(8).min(ghosts);
        self.limits = [size - tail, tail, near, ghosts - near];
        self.balance();
    }

    /// Moves blocks over the segments' borders until each segment is full, or all below it are
    /// empty. Segments are filled from below first: in the other order, a block that still has a
    /// place would fall off the end.
    fn balance(&mut self) {
        'fill: for at in 0..FAR {
            while self.segments[at].len() < self.limits[at] {
                let Some(from) = (at + 1..SEGMENTS).find(|&from| !self.segments[from].is_empty())
                else {
                    break 'fill;
                };
                let block = self.segments[from]
                    .pop_front(&mut self.blocks)
                    .expect("it is not empty");
                self.segments[at].push_back(&mut self.blocks, block);
                self.segment[block as usize] = at as u8 + 1;
            }
        }
        for at in 0..SEGMENTS {
            while self.segments[at].len() > self.limits[at] {
                let block = self.segments[at]
                    .pop_back(&mut self.blocks)
                    .expect("it is overfull");
                if at == FAR {
                    self.segment[block as usize] = NOWHERE;
                } else {
                    self.segments[at + 1].push_front(&mut self.blocks, block);
                    self.segment[block as usize] += 1;
                }
            }
        }
    }

    /// The hits a reference that the part would lose with a block, or gain with one more.
    pub(super) fn hits_per_reference(&self) -> f64 {
        let density = |hits: f64, length: usize| {
            if length == 0 {
                0.0
            } else {
                hits / length as f64
            }
        };
        let tail = density(self.hits[TAIL], self.limits[TAIL]);
        let near = density(self.hits[NEAR], self.limits[NEAR]);
        let ghosts = density(
            self.hits[NEAR] + self.hits[FAR],
            self.limits[NEAR] + self.limits[FAR],
        );
        tail.max(near).max(ghosts) / self.references.max(1.0)
    }

    pub(super) fn check(&self) {
        let mut behind_is_empty = false;
        for (at, segment) in self.segments.iter().enumerate() {
            segment.check(&self.blocks);
            assert!(segment.len() <= self.limits[at]);
            assert!(
                !behind_is_empty || segment.is_empty(),
                "segment {at} lies behind a gap"
            );
            behind_is_empty = segment.len() < self.limits[at];
            for block in segment.iter(&self.blocks) {
                assert_eq!(usize::from(self.segment[block as usize]), at + 1);
            }
        }
        let inside = self
            .segment
            .iter()
            .filter(|&&segment| segment != NOWHERE)
            .count();
        assert_eq!(inside, self.segments.iter().map(List::len).sum::<usize>());
        assert_eq!(self.limits.iter().sum::<usize>(), self.capacity);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Worked by hand: a stack of 32, of which the sub-cache has 16: 8 on top, 8 in the tail, 8
    /// near, 8 far.
    #[test]
    fn hits_by_segment() {
        let mut gain = MarginalGain::new(32);
        gain.resize(16);
        assert_eq!(gain.limits, [8, 8, 8, 8]);
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
            gain.limits,
            [24, 8, 0, 0],
            "nothing beyond the cache can be gained"
        );
        gain.check();
    }

    #[test]
    fn old_hits_fade() {
        let mut gain = MarginalGain::new(8);
        gain.resize(8);
        (0..8)
            .chain(0..8)
            .for_each(|block| gain.access(block, true));
        let fresh = gain.hits_per_reference() * gain.references;
        (100..100 + 2 * 512).for_each(|block| gain.access(block, false));
        assert!(gain.hits_per_reference() * gain.references <= fresh / 2.0);
    }
}
