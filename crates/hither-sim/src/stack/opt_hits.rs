//! The hits of Belady's optimum in a cache of one size, computed from the past alone and without a
//! queue.
//!
//! [`OptDistances`](super::OptDistances) explains why, in hindsight, a cache is a set of slots that
//! are each *free since* some time. For one size, these times need no positions: a reference to a
//! block last used at `s` takes the latest time not after `s` and hits. If there is none it misses
//! and takes the latest of all, that of the previous reference. Either way the time of the
//! reference itself replaces it.
//!
//! Times are only removed, or added at the end. So "the latest time not after `s`" is a union-find
//! over the places of a line: a place whose time was removed points to its left. That takes nearly
//! constant time per reference: a third of the time of the policy
//! [`opt`](hither_core::replacement::opt), which keeps its blocks in a heap by next use (10 million
//! references to 760,000 blocks, zipf, 2026-11). It also needs no next uses. Tests compare the two
//! count by count.

/// A block that was never referenced.
const NEVER: u32 = u32::MAX;

/// The fewest free places after closing gaps.
const FREE_PLACES_MIN: usize = 1024;

/// Says which references hit in the optimum's cache of one size.
#[derive(Clone, Debug)]
pub(super) struct OptHits {
    /// By block: the place of its last reference.
    last: Vec<u32>,
    /// By place: itself if its time exists, otherwise a place to its left. Place 0 stands for the
    /// slots that were never used.
    left: Vec<u32>,
    /// Slots that were never used.
    fresh: u32,
    /// Places in use. The last one has its time.
    taken: u32,
    places_max: usize,
}

impl OptHits {
    /// A cache of `cache_blocks`, at least one. `blocks` is the expected number of distinct blocks,
    /// as a hint.
    pub(super) fn new(cache_blocks: u32, blocks: u32) -> OptHits {
        OptHits {
            last: vec![NEVER; blocks as usize],
            left: vec![0],
            fresh: cache_blocks,
            taken: 0,
            places_max: FREE_PLACES_MIN.max(2 * blocks as usize),
        }
    }

    /// Whether the next reference, which is to `block`, hits.
    #[inline]
    pub(super) fn touch(&mut self, block: u32) -> bool {
        if block as usize >= self.last.len() {
            self.last.resize(block as usize + 1, NEVER);
        }
        if self.left.len() > self.places_max {
            self.close_gaps();
        }
        let last = self.last[block as usize];
        if last == self.taken && last != 0 {
            return true;
        }
        let free = match last {
            NEVER => None,
            last => match self.find(last) {
                0 if self.fresh == 0 => None,
                place => Some(place),
            },
        };
        match free.unwrap_or(self.taken) {
            0 => self.fresh -= 1,
            place => self.left[place as usize] = place - 1,
        }
        self.taken += 1;
        self.left.push(self.taken);
        self.last[block as usize] = self.taken;
        free.is_some()
    }

    /// The latest place at or left of `place` that has its time.
    #[inline]
    fn find(&mut self, mut place: u32) -> u32 {
        loop {
            let left = self.left[place as usize];
            if left == place {
                return place;
            }
            // Halving the path during the walk keeps all paths short.
            let further = self.left[left as usize];
            self.left[place as usize] = further;
            place = further;
        }
    }

    /// Closes the gaps and leaves as many free places as there are blocks, so the cost is O(1) per
    /// reference.
    fn close_gaps(&mut self) {
        let mut kept = 0;
        // From left to right, so that the place to the left of each place is already known.
        let mut moved = vec![0; self.left.len()];
        for place in 1..self.left.len() {
            moved[place] = if self.left[place] as usize == place {
                kept += 1;
                kept
            } else {
                moved[self.left[place] as usize]
            };
        }
        for last in self.last.iter_mut().filter(|last| **last != NEVER) {
            *last = moved[*last as usize];
        }
        self.left.clear();
        self.left.extend(0..=kept);
        self.taken = kept;
        self.places_max = kept as usize + self.last.len().max(FREE_PLACES_MIN);
    }
}
