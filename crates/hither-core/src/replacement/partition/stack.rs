//! An LRU stack of the other references, as deep as the whole cache, in four segments whose hits
//! are counted: what [`marginal_gain`](super::marginal_gain) measures. Blocks beyond the size of
//! the part for other blocks are ghosts. Counts are halved every window, so old ones fade.

use crate::classify::at;
use crate::list::{Links, List};

/// The segments; the one at the top of the stack is 0.
pub(super) const SEGMENTS: usize = 4;
const LAST: usize = SEGMENTS - 1;

/// In place of a segment, for a block that is not in the stack.
const NOWHERE: u8 = 0;

#[derive(Clone, Debug)]
pub(super) struct SegmentedStack {
    capacity: usize,
    window: f64,
    blocks: Links,
    segments: [List; SEGMENTS],
    /// Lengths of the segments, which add up to the capacity.
    limits: [usize; SEGMENTS],
    /// By block, one more than its segment, or [`NOWHERE`].
    segment: Vec<u8>,
    /// Hits by other references, by segment.
    pub(super) hits: [f64; SEGMENTS],
    /// References of any class.
    pub(super) references: f64,
    /// Other references.
    pub(super) others: f64,
}

impl SegmentedStack {
    pub(super) fn new(capacity: usize) -> Self {
        SegmentedStack {
            capacity,
            window: capacity.max(512) as f64 * 2.0,
            blocks: Links::default(),
            segments: [List::default(); SEGMENTS],
            limits: [0, 0, 0, capacity],
            segment: Vec::new(),
            hits: [0.0; SEGMENTS],
            references: 0.0,
            others: 0.0,
        }
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    pub(super) fn limits(&self) -> [usize; SEGMENTS] {
        self.limits
    }

    /// Counts an access of any class; `other`: it belongs to this part.
    pub(super) fn access(&mut self, block: u32, other: bool) {
        self.references += 1.0;
        if self.references > self.window {
            self.references /= 2.0;
            self.others /= 2.0;
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
            self.others += 1.0;
            self.blocks.cover(block);
            self.segments[0].push_front(&mut self.blocks, block);
            self.segment[block as usize] = 1;
        }
        if other || segment != NOWHERE {
            self.balance();
        }
    }

    /// Sets the lengths of the segments, which add up to the capacity.
    pub(super) fn divide(&mut self, limits: [usize; SEGMENTS]) {
        self.limits = limits;
        self.balance();
    }

    /// Moves blocks over the segments' borders until each segment is full, or all below it are
    /// empty. Segments are filled from below first: in the other order, a block that still has a
    /// place would fall off the end.
    fn balance(&mut self) {
        'fill: for at in 0..LAST {
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
                if at == LAST {
                    self.segment[block as usize] = NOWHERE;
                } else {
                    self.segments[at + 1].push_front(&mut self.blocks, block);
                    self.segment[block as usize] += 1;
                }
            }
        }
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
