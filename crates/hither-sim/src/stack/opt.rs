//! Stack distances of Belady's optimum, worked out from the past alone.
//!
//! Mattson's stack for OPT orders the blocks by their next use, so it has to know the future. But how many hits the
//! optimum has up to now depends on the past alone, and so does each reference's distance (Bilardi, Ekanadham and
//! Pattnaik, "Optimal on-line computation of stack distances for MIN and OPT", CF 2017). This is a way to do it that
//! is simple to reason about:
//!
//! Keeping a block from a reference at time `s` to its next one at `e` takes one of the cache's `c` slots for that
//! while, and the optimum keeps as many as fit. So, in hindsight, a cache is no more than a set of slots, each *free
//! since* some time. At a reference to a block last used at `s`, a slot that is free since `s` or longer makes it a
//! hit: the one that is free since the latest such time is taken, for it fits least else. With no such slot it is a
//! miss, and the block passes through the slot that is free since the latest time of all, the one of the reference
//! before. Either way the slot is free since `e` from now on. (This is the greedy colouring of intervals by their
//! ends, with the tightest fit, which is optimal.)
//!
//! The slots of `c + 1` are those of `c` and one more, always: so all sizes together are one list of times, of which a
//! cache of `c` has the first `c`. A reference's distance is the position in it of the first time not after `s`. Every
//! smaller cache misses, and every larger one takes its own tightest fit, which goes down the list as in Mattson's
//! stack: of the times not after `s`, each that is later than all before it moves to the position of the next such,
//! and the last of these (the latest time not after `s`) is the one that goes.
//!
//! Here the list is kept the other way around: the times lie on a line in order, each with its position as a label, and
//! labels are in a tree of minima with 16 children a node (a cache line). The walk starts at the latest time not after `s`
//! and goes left from each label to the nearest smaller one, moving each to where the smaller one was; the
//! smallest is the distance. A block never used again costs nothing, nor does a first reference: there all slots but
//! the first are left as they are.
//!
//! A reference takes O((1 + moves) log n), with 1 to 3 moves on the traces that were measured (2026-11: zipf, the
//! traces of the LIRS authors); 8 to 13 bytes a block. The line is closed up when it is full, like that of
//! [`StackDistances`](hither_trace::StackDistances).

/// A block that was never referenced.
const NEVER: u32 = u32::MAX;

/// The label of a place whose time is gone.
const GONE: u32 = u32::MAX;

/// Children of a node.
const FAN: usize = 16;

/// The fewest free places after closing gaps.
const FREE_MIN: usize = 1024;

/// Works out the distance of one reference after the other. Block identifiers are best dense: memory goes by the
/// highest.
#[derive(Clone, Debug)]
pub struct OptDistances {
    /// How many places lie at or before the one of the block's last reference; as long as the highest block seen.
    /// Where the time of that place is gone, the latest before it counts.
    until: Vec<u32>,
    labels: Minima,
    /// How many places were ever taken; the last one is of the last reference, with label 1.
    taken: usize,
    /// The highest label in use; slots of higher ones are free since ever.
    labels_max: u32,
}

impl OptDistances {
    /// Nothing referenced yet. `blocks` is the expected number of distinct blocks: a hint.
    pub fn new(blocks: usize) -> OptDistances {
        OptDistances {
            until: Vec::with_capacity(blocks),
            labels: Minima::new(FREE_MIN),
            taken: 0,
            labels_max: 0,
        }
    }

    /// The distance of the next reference, which is to `block`: it is a hit in every cache of more blocks than that.
    /// `None` for the first reference.
    #[inline]
    pub fn touch(&mut self, block: u32) -> Option<u32> {
        let index = block as usize;
        if index >= self.until.len() {
            self.until.resize(index + 1, NEVER);
        }
        let mut until = self.until[index];
        if until as usize == self.taken && self.taken > 0 {
            return Some(0);
        }
        if self.taken == self.labels.len() {
            self.close_gaps();
            until = self.until[index];
        }
        // The time of the reference before goes from label 1 to the one that the walk leaves over.
        let label = if until == NEVER {
            GONE
        } else {
            self.release(until as usize)
        };
        match self.taken.checked_sub(1) {
            Some(last) => self.labels.raise(last, label),
            None => self.labels_max = 1,
        }
        self.labels.lower(self.taken, 1);
        self.taken += 1;
        self.until[index] = self.taken as u32;
        (until != NEVER).then(|| label - 1)
    }

    /// Takes away the latest time among the first `until` places and gives the smallest label among them.
    fn release(&mut self, until: usize) -> u32 {
        let Some((mut place, mut label)) = self.labels.last_below(until, GONE) else {
            self.labels_max += 1;
            return self.labels_max;
        };
        self.labels.raise(place, GONE);
        while let Some((smaller, found)) = self.labels.last_below(place, label) {
            self.labels.raise(smaller, label);
            (place, label) = (smaller, found);
        }
        label
    }

    /// Closes the gaps and leaves as many places free as there are blocks, so that this costs O(1) a reference.
    fn close_gaps(&mut self) {
        let before = self.labels.ranks();
        for until in self.until.iter_mut().filter(|until| **until != NEVER) {
            *until = self.labels.rank(&before, *until as usize);
        }
        let free = self.until.len().max(FREE_MIN);
        self.taken = self.labels.close_gaps(free);
        debug_assert_eq!(self.taken, self.labels_max as usize);
    }

    /// Panics unless every label up to the highest is at one place, the last place has label 1 and the minima are right.
    #[cfg(test)]
    fn check(&self) {
        let mut labels: Vec<u32> = self.labels.levels[0].clone();
        assert!(labels[self.taken..].iter().all(|&label| label == GONE));
        assert!(self.taken == 0 || labels[self.taken - 1] == 1);
        labels.retain(|&label| label != GONE);
        labels.sort_unstable();
        assert_eq!(labels, (1..=self.labels_max).collect::<Vec<u32>>());
        for pair in self.labels.levels.windows(2) {
            for (node, children) in pair[1].iter().zip(pair[0].chunks(FAN)) {
                assert_eq!(Some(node), children.iter().min());
            }
        }
    }
}

/// Labels with a tree of minima over them. Each level is a whole number of nodes long.
#[derive(Clone, Debug)]
struct Minima {
    levels: Vec<Vec<u32>>,
}

impl Minima {
    /// At least `places`, all [`GONE`].
    fn new(places: usize) -> Minima {
        let mut minima = Minima {
            levels: vec![vec![GONE; places.next_multiple_of(FAN)]],
        };
        minima.rebuild();
        minima
    }

    fn len(&self) -> usize {
        self.levels[0].len()
    }

    /// Makes the levels above the lowest from it.
    fn rebuild(&mut self) {
        let mut level = 0;
        while self.levels[level].len() > FAN {
            let nodes = self.levels[level].chunks_exact(FAN);
            let mut minima: Vec<u32> = nodes.map(minimum).collect();
            minima.resize(minima.len().next_multiple_of(FAN), GONE);
            level += 1;
            self.levels.truncate(level);
            self.levels.push(minima);
        }
        self.levels.truncate(level + 1);
    }

    /// The last of the first `end` places with a label below `bound`, and that label.
    fn last_below(&self, end: usize, bound: u32) -> Option<(usize, u32)> {
        let mut end = end;
        for (level, labels) in self.levels.iter().enumerate() {
            let node = end / FAN * FAN;
            // The lanes from `end` on do not count. Where `end` starts a node, there is none before it in the node.
            let lanes = (1u32 << (end % FAN)) - 1;
            if lanes != 0 {
                let found = below(&labels[node..node + FAN], bound) & lanes;
                if found != 0 {
                    return Some(self.descend(level, node + last_lane(found), bound));
                }
            }
            end /= FAN;
        }
        None
    }

    fn descend(&self, level: usize, at: usize, bound: u32) -> (usize, u32) {
        let at = self.levels[..level].iter().rev().fold(at, |node, labels| {
            let children = &labels[node * FAN..][..FAN];
            node * FAN + last_lane(below(children, bound))
        });
        (at, self.levels[0][at])
    }

    /// Sets a label to a larger one.
    fn raise(&mut self, place: usize, label: u32) {
        let mut at = place;
        let mut old = std::mem::replace(&mut self.levels[0][at], label);
        for level in 1..self.levels.len() {
            let node = at / FAN;
            if self.levels[level][node] != old {
                break;
            }
            let smallest = minimum(&self.levels[level - 1][node * FAN..][..FAN]);
            if smallest == old {
                break;
            }
            old = std::mem::replace(&mut self.levels[level][node], smallest);
            at = node;
        }
    }

    /// Sets a label to a smaller one.
    fn lower(&mut self, place: usize, label: u32) {
        let mut at = place;
        for labels in &mut self.levels {
            if labels[at] <= label {
                break;
            }
            labels[at] = label;
            at /= FAN;
        }
    }

    /// How many labels there are before each lowest node.
    fn ranks(&self) -> Vec<u32> {
        let mut sum = 0;
        let nodes = self.levels[0].chunks_exact(FAN);
        nodes
            .map(|node| {
                let before = sum;
                sum += below(node, GONE).count_ones();
                before
            })
            .collect()
    }

    /// How many labels there are at the first `end` places; `before` comes from [`Minima::ranks`].
    fn rank(&self, before: &[u32], end: usize) -> u32 {
        let Some(last) = end.checked_sub(1) else {
            return 0;
        };
        let node = last / FAN;
        let lanes = u32::MAX >> (31 - last % FAN);
        let taken = below(&self.levels[0][node * FAN..][..FAN], GONE) & lanes;
        before[node] + taken.count_ones()
    }

    /// Moves all labels to the front, with `free` places or more behind them, and says how many they are.
    fn close_gaps(&mut self, free: usize) -> usize {
        let labels = &mut self.levels[0];
        labels.retain(|&label| label != GONE);
        let taken = labels.len();
        labels.resize((taken + free).next_multiple_of(FAN), GONE);
        self.rebuild();
        taken
    }
}

fn minimum(node: &[u32]) -> u32 {
    node.iter().fold(GONE, |least, &label| least.min(label))
}

/// A bit for each label below `bound`.
#[inline]
fn below(node: &[u32], bound: u32) -> u32 {
    let node: &[u32; FAN] = node.try_into().expect("a whole node");
    let lanes = node.iter().enumerate();
    lanes.fold(0, |bits, (lane, &label)| {
        bits | u32::from(label < bound) << lane
    })
}

fn last_lane(bits: u32) -> usize {
    31 - bits.leading_zeros() as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The list of times as the module's text has it, one scan a reference.
    #[derive(Default)]
    struct Naive {
        free_since: Vec<usize>,
        last: std::collections::BTreeMap<u32, usize>,
        now: usize,
    }

    impl Naive {
        fn touch(&mut self, block: u32) -> Option<u32> {
            self.now += 1;
            let last = self.last.insert(block, self.now);
            if self.free_since.is_empty() {
                self.free_since.push(self.now);
                return None;
            }
            let before = std::mem::replace(&mut self.free_since[0], self.now);
            let last = last?;
            if before <= last {
                return Some(0);
            }
            let fits = self.free_since.iter().position(|&since| since <= last);
            let Some(distance) = fits else {
                self.free_since.push(before);
                return Some(self.free_since.len() as u32 - 1);
            };
            let mut carried = std::mem::replace(&mut self.free_since[distance], before);
            for since in &mut self.free_since[distance + 1..] {
                if *since > carried && *since <= last {
                    std::mem::swap(since, &mut carried);
                }
            }
            Some(distance as u32)
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn distances_equal_those_of_a_list(
            blocks in 1u32..400,
            stream in prop::collection::vec(any::<u32>(), 0..6000),
        ) {
            let (mut distances, mut naive) = (OptDistances::new(0), Naive::default());
            for block in stream {
                // A third of the references go to an eighth of the blocks.
                let block = if block % 3 == 0 { block / 3 % (blocks / 8 + 1) } else { block / 3 % blocks };
                prop_assert_eq!(distances.touch(block), naive.touch(block));
            }
            distances.check();
        }
    }
}
