//! The adaptive sizes of S3-FIFO-D: a history of what each queue evicted last, and how many of
//! these came back. The queue whose victims come back more often grows at the other's expense.

use crate::ghost_pair::{GhostKind, GhostPair};
use crate::ids::Block;
use crate::weight::Weight;

/// Hits of both histories together before a size changes.
const HITS_MIN: u64 = 100;
/// How many times as many hits as the other one a history must have.
const IMBALANCE: u64 = 2;
/// A step, as a share of the smaller queue: one thousandth.
const STEPS: u64 = 1000;
/// The smallest a queue may become: one hundredth of the cache.
const QUEUE_MIN: u64 = 100;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Adaptation<W> {
    /// Each at most so heavy.
    history_max: u64,
    /// Of the small queue ([`GhostKind::Once`]) and of the main one.
    histories: GhostPair<W>,
    small_hits: u64,
    main_hits: u64,
}

impl<W: Weight> Adaptation<W> {
    pub(super) fn new(history_max: u64) -> Self {
        Adaptation {
            history_max,
            histories: GhostPair::default(),
            small_hits: 0,
            main_hits: 0,
        }
    }

    pub(super) fn evicted(&mut self, block: Block, from_main: bool, weight: W) {
        let kind = if from_main {
            GhostKind::Often
        } else {
            GhostKind::Once
        };
        self.histories.remember(block.0, kind, weight);
        self.histories.cut_each(self.history_max);
    }

    /// A miss of `block`. Returns the size that the small queue shall have of `capacity`, now that
    /// it is `small_max`.
    pub(super) fn missed(&mut self, block: Block, small_max: u64, capacity: u64) -> u64 {
        let main_max = capacity - small_max;
        let (small_hits, main_hits) = (self.small_hits, self.main_hits);
        let mut small = small_max;
        if self.histories.often() == 0 {
            (self.small_hits, self.main_hits) = (0, 0);
        } else if small_hits + main_hits > HITS_MIN {
            let step = (small_max.min(main_max) / STEPS).max(1);
            if small_hits > IMBALANCE * main_hits && main_max > (capacity / QUEUE_MIN).max(step) {
                small += step;
            } else if main_hits > IMBALANCE * small_hits
                && small_max > (capacity / QUEUE_MIN).max(step)
            {
                small -= step;
            }
            // Four fifths, rounded down.
            (self.small_hits, self.main_hits) = (small_hits * 4 / 5, main_hits * 4 / 5);
        }
        match self.histories.forget(block.0) {
            GhostKind::Once => self.small_hits += 1,
            GhostKind::Often => self.main_hits += 1,
            GhostKind::No => (),
        }
        small
    }

    pub(super) fn resize(&mut self, history_max: u64) {
        self.history_max = history_max;
        self.histories.cut_each(history_max);
    }

    pub(super) fn check(&self, resident: impl Iterator<Item = u32>) {
        self.histories.check_each(self.history_max, resident);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weight::Unit;

    /// The queue whose victims come back grows, step by step, to its bound.
    #[test]
    fn the_queue_whose_victims_return_grows() {
        for returns_to_main in [false, true] {
            let mut adaptation = Adaptation::<Unit>::new(100);
            let mut last = 100u64;
            for round in 0..50_000 {
                // The main queue has a victim that is remembered, or nothing is learnt.
                if round == 0 {
                    adaptation.evicted(Block(1), true, Unit);
                }
                adaptation.evicted(Block(2), returns_to_main, Unit);
                let small = adaptation.missed(Block(2), last, 1000);
                assert!(last.abs_diff(small) <= 1);
                adaptation.check(std::iter::once(2));
                last = small;
            }
            assert_eq!(last, if returns_to_main { 10 } else { 990 });
        }
    }
}
