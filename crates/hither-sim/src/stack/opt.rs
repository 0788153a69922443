//! Stack distances of Belady's optimum, computed from the past alone.
//!
//! Mattson's stack for OPT orders blocks by their next use, so it has to know the future. But the
//! hits of the optimum up to now depend only on the past, and so does the distance of each
//! reference (Bilardi, Ekanadham and Pattnaik, "Optimal on-line computation of stack distances for
//! MIN and OPT", CF 2017). This is a simple way to compute them.
//!
//! Keeping a block from a reference at time `s` to the next one at `e` occupies one of the cache's
//! `c` slots for that time, and the optimum keeps as many blocks as fit. So, in hindsight, a cache
//! is a set of slots, each *free since* some time. A reference to a block last used at `s` hits if
//! a slot is free since `s` or longer. It takes the slot with the latest such time, the tightest
//! fit. If there is none it misses, and the block passes through the slot with the latest time of
//! all, that of the previous reference. Either way the slot is then free since `e`. (This is the
//! greedy colouring of intervals by their ends with the tightest fit, which is optimal.)
//!
//! The slots of `c + 1` are always those of `c` and one more. So one list of times serves all
//! sizes: a cache of `c` has its first `c` times. The distance of a reference is the position of
//! the first time not after `s`. Every smaller cache misses. Every larger cache takes its own
//! tightest fit, which moves times down the list as in Mattson's stack: among the times not after
//! `s`, each that is later than all before it moves to the position of the next such time, and the
//! last of these (the latest time not after `s`) is removed.
//!
//! For some sizes only, exact positions are not needed, but only between which two sizes each lies:
//! the *group* of the position. Moves within a group change nothing, and few moves remain: 3.7 per
//! reference for 1000 sizes, against 71 for all sizes (2 million references to 360,000 blocks,
//! zipf, 2026-11).
//!
//! Here the list is stored the other way around: the times lie on a line in order, each labelled
//! with its group, and the labels are in a tree of minima with 32 children per node (a cache line).
//! The walk starts at the latest time not after `s`. It goes left from each label to the nearest
//! smaller one, and moves each label to the place of the smaller one. The smallest label is the
//! group of the distance. A first reference walks nowhere: it changes no slot but the first, as in
//! every cache that misses.
//!
//! A reference takes O((1 + moves) log n), and a block 6 to 9 bytes. Measured (2026-11, one core of
//! a cloud machine, ns per reference): zipf over 360,000 blocks 136 for 8 sizes, 218 for 64, 341
//! for 1000, against 18 for a single size; a loop over a million blocks 35 to 39, against 8. The
//! line is compacted when it is full, like that of
//! [`StackDistances`](hither_trace::StackDistances).

/// The number of a size among the chosen ones. A reference of group `g` hits in the sizes from
/// number `g` on.
pub type SizeGroup = u16;

/// A label: a group, or [`NO_TIME`]. Every x86 compares eight signed 16-bit numbers at a time.
type Label = i16;

/// The label of a place whose time was removed.
const NO_TIME: Label = Label::MAX;

/// The largest number of sizes.
pub(super) const SIZES_MAX: usize = NO_TIME as usize - 1;

/// A block that was never referenced.
const NEVER: u32 = u32::MAX;

/// Children of a node.
const NODE_CHILDREN: usize = 32;

/// The fewest free places after closing gaps.
const FREE_PLACES_MIN: usize = 1024;

/// Computes the groups of distances, one reference at a time. Block numbers should be dense: memory
/// grows with the highest one.
#[derive(Clone, Debug)]
pub struct OptDistances {
    /// The chosen sizes, ascending.
    sizes: Vec<u32>,
    /// Per block: the number of places up to that of its last reference. If the time of that place
    /// was removed, the latest time before it counts. Its length is the highest block so far plus
    /// 1.
    until: Vec<u32>,
    labels: Minima,
    /// The number of places used so far. The last one belongs to the last reference, which is first
    /// in the list.
    taken: usize,
    /// The group of the first position.
    first: Label,
    /// The length of the list. All further slots were never used.
    positions: u32,
}

impl OptDistances {
    /// Starts without references. Sizes must ascend, and be at most 32,766. `blocks` is the
    /// expected number of distinct blocks, as a hint.
    pub fn new(sizes: &[u32], blocks: usize) -> OptDistances {
        assert!(sizes.len() <= SIZES_MAX, "too many sizes");
        debug_assert!(sizes.is_sorted());
        OptDistances {
            first: group(sizes, 1),
            sizes: sizes.to_vec(),
            until: Vec::with_capacity(blocks),
            labels: Minima::new(FREE_PLACES_MIN),
            taken: 0,
            positions: 0,
        }
    }

    /// The number of the first size at which the next reference, to `block`, hits, or the number of
    /// sizes if it hits in none. `None` for the first reference to the block.
    #[inline]
    pub fn touch(&mut self, block: u32) -> Option<SizeGroup> {
        let index = block as usize;
        if index >= self.until.len() {
            self.until.resize(index + 1, NEVER);
        }
        let mut until = self.until[index];
        if until as usize == self.taken && self.taken > 0 {
            return Some(self.first as SizeGroup);
        }
        if self.taken == self.labels.len() {
            self.close_gaps();
            until = self.until[index];
        }
        // The time of the previous reference moves from the first position to the one that the walk
        // frees.
        let label = if until == NEVER {
            NO_TIME
        } else {
            self.release(until as usize)
        };
        match self.taken.checked_sub(1) {
            Some(last) => self.labels.raise(last, label),
            None => self.positions = 1,
        }
        self.labels.lower(self.taken, self.first);
        self.taken += 1;
        self.until[index] = self.taken as u32;
        (until != NEVER).then_some(label as SizeGroup)
    }

    /// Removes the latest time among the first `until` places, and returns the smallest label among
    /// them.
    fn release(&mut self, until: usize) -> Label {
        let Some((mut place, mut label)) = self.labels.last_below(until, NO_TIME) else {
            self.positions += 1;
            return group(&self.sizes, self.positions);
        };
        self.labels.raise(place, NO_TIME);
        while let Some((smaller, found)) = self.labels.last_below(place, label) {
            self.labels.raise(smaller, label);
            (place, label) = (smaller, found);
        }
        label
    }

    /// Closes the gaps and leaves as many free places as there are blocks, so the cost is O(1) per
    /// reference.
    fn close_gaps(&mut self) {
        let before = self.labels.ranks();
        for until in self.until.iter_mut().filter(|until| **until != NEVER) {
            *until = self.labels.rank(&before, *until as usize);
        }
        let free = self.until.len().max(FREE_PLACES_MIN);
        self.taken = self.labels.close_gaps(free);
        debug_assert_eq!(self.taken, self.positions as usize);
    }

    /// Panics unless each group has as many places as positions, the last place belongs to the
    /// first group, and the minima are right.
    #[cfg(test)]
    fn check(&self) {
        let mut labels = self.labels.levels[0].clone();
        assert!(labels[self.taken..].iter().all(|&label| label == NO_TIME));
        assert!(self.taken == 0 || labels[self.taken - 1] == self.first);
        labels.retain(|&label| label != NO_TIME);
        labels.sort_unstable();
        let groups: Vec<Label> = (1..=self.positions)
            .map(|position| group(&self.sizes, position))
            .collect();
        assert_eq!(labels, groups);
        for pair in self.labels.levels.windows(2) {
            for (node, children) in pair[1].iter().zip(pair[0].chunks(NODE_CHILDREN)) {
                assert_eq!(Some(node), children.iter().min());
            }
        }
    }
}

/// The group of a position, counted from 1.
fn group(sizes: &[u32], position: u32) -> Label {
    sizes.partition_point(|&size| size < position) as Label
}

/// Labels with a tree of minima above them. The length of each level is a multiple of a node's.
#[derive(Clone, Debug)]
struct Minima {
    levels: Vec<Vec<Label>>,
}

impl Minima {
    /// At least `places` places, all [`NO_TIME`].
    fn new(places: usize) -> Minima {
        let mut minima = Minima {
            levels: vec![vec![NO_TIME; places.next_multiple_of(NODE_CHILDREN)]],
        };
        minima.rebuild();
        minima
    }

    fn len(&self) -> usize {
        self.levels[0].len()
    }

    /// Rebuilds all levels above the lowest.
    fn rebuild(&mut self) {
        let mut level = 0;
        while self.levels[level].len() > NODE_CHILDREN {
            let nodes = self.levels[level].chunks_exact(NODE_CHILDREN);
            let mut minima: Vec<Label> = nodes.map(minimum).collect();
            minima.resize(minima.len().next_multiple_of(NODE_CHILDREN), NO_TIME);
            level += 1;
            self.levels.truncate(level);
            self.levels.push(minima);
        }
        self.levels.truncate(level + 1);
    }

    /// The last of the first `end` places with a label below `bound`, and that label.
    #[inline]
    fn last_below(&self, end: usize, bound: Label) -> Option<(usize, Label)> {
        let mut end = end;
        for (level, labels) in self.levels.iter().enumerate() {
            // If `end` is the start of a node, there is nothing before it in the node.
            let (node, lanes) = (end / NODE_CHILDREN * NODE_CHILDREN, end % NODE_CHILDREN);
            if lanes != 0
                && let Some(lane) =
                    last_lane_below(&labels[node..node + NODE_CHILDREN], lanes, bound)
            {
                return Some(self.descend(level, node + lane, bound));
            }
            end /= NODE_CHILDREN;
        }
        None
    }

    fn descend(&self, level: usize, at: usize, bound: Label) -> (usize, Label) {
        let at = self.levels[..level].iter().rev().fold(at, |node, labels| {
            let children = &labels[node * NODE_CHILDREN..][..NODE_CHILDREN];
            let lane = last_lane_below(children, NODE_CHILDREN, bound);
            node * NODE_CHILDREN + lane.expect("a node's minimum is that of a child")
        });
        (at, self.levels[0][at])
    }

    /// Sets a label to a larger one.
    fn raise(&mut self, place: usize, label: Label) {
        let mut at = place;
        let mut old = std::mem::replace(&mut self.levels[0][at], label);
        for level in 1..self.levels.len() {
            let node = at / NODE_CHILDREN;
            if self.levels[level][node] != old {
                break;
            }
            let smallest =
                minimum(&self.levels[level - 1][node * NODE_CHILDREN..][..NODE_CHILDREN]);
            if smallest == old {
                break;
            }
            old = std::mem::replace(&mut self.levels[level][node], smallest);
            at = node;
        }
    }

    /// Sets a label to a smaller one.
    fn lower(&mut self, place: usize, label: Label) {
        let mut at = place;
        for labels in &mut self.levels {
            if labels[at] <= label {
                break;
            }
            labels[at] = label;
            at /= NODE_CHILDREN;
        }
    }

    /// The number of labels before each node of the lowest level.
    fn ranks(&self) -> Vec<u32> {
        let mut sum = 0;
        let nodes = self.levels[0].chunks_exact(NODE_CHILDREN);
        nodes
            .map(|node| {
                let before = sum;
                sum += labels_in(node);
                before
            })
            .collect()
    }

    /// The number of labels at the first `end` places. `before` comes from [`Minima::ranks`].
    fn rank(&self, before: &[u32], end: usize) -> u32 {
        let Some(last) = end.checked_sub(1) else {
            return 0;
        };
        let node = last / NODE_CHILDREN;
        before[node] + labels_in(&self.levels[0][node * NODE_CHILDREN..=last])
    }

    /// Moves all labels to the front, with at least `free` places after them, and returns their
    /// number.
    fn close_gaps(&mut self, free: usize) -> usize {
        let labels = &mut self.levels[0];
        labels.retain(|&label| label != NO_TIME);
        let taken = labels.len();
        labels.resize((taken + free).next_multiple_of(NODE_CHILDREN), NO_TIME);
        self.rebuild();
        taken
    }
}

fn minimum(node: &[Label]) -> Label {
    let node: &[Label; NODE_CHILDREN] = node.try_into().expect("a whole node");
    node.iter().fold(NO_TIME, |least, &label| least.min(label))
}

/// The last of the first `lanes` of a node whose label is below `bound`. Lanes are numbered from 1
/// and the maximum of the matching numbers is kept: vector units compare and take maxima of 16-bit
/// numbers, and compilers know no vector instruction from many bits to one.
#[inline]
fn last_lane_below(node: &[Label], lanes: usize, bound: Label) -> Option<usize> {
    let node: &[Label; NODE_CHILDREN] = node.try_into().expect("a whole node");
    let lanes = lanes as Label;
    let mut last = 0;
    for (number, &label) in (1..).zip(node) {
        let counts = label < bound && number <= lanes;
        last = last.max(if counts { number } else { 0 });
    }
    (last as usize).checked_sub(1)
}

fn labels_in(places: &[Label]) -> u32 {
    places.iter().filter(|&&label| label != NO_TIME).count() as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The list of times as described above, with one scan per reference.
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
        #![proptest_config(ProptestConfig {
            cases: 32,
            failure_persistence: None,
            ..ProptestConfig::default()
        })]
        #[test]
        fn groups_are_those_of_the_distances_in_a_list(
            blocks in 1u32..400,
            stream in prop::collection::vec(any::<u32>(), 0..6000),
            mut few in prop::collection::vec(1u32..300, 0..9),
        ) {
            few.sort_unstable();
            few.dedup();
            let every: Vec<u32> = (1..=blocks).collect();
            let mut naive = Naive::default();
            let mut grouped = [&few, &every].map(|sizes| (sizes, OptDistances::new(sizes, 0)));
            for block in stream {
                // A third of the references go to an eighth of the blocks.
                let of = if block % 3 == 0 { blocks / 8 + 1 } else { blocks };
                let block = block / 3 % of;
                let distance = naive.touch(block);
                for (sizes, distances) in &mut grouped {
                    let group = |distance| sizes.partition_point(|&size| size <= distance);
                    let group = distance.map(|distance| group(distance) as SizeGroup);
                    prop_assert_eq!(distances.touch(block), group);
                }
            }
            grouped.iter().for_each(|(_, distances)| distances.check());
        }
    }
}
