//! A binary max-heap over dense indices whose keys can change: which block is needed furthest in
//! the future, which loop has the longest period.
//!
//! `std::collections::BinaryHeap` cannot change a key. The usual workaround (push again, and skip
//! stale elements when popping) grows with the number of changes, here one an access. Of equal keys
//! the larger index is on top, so that the order never depends on history.

use crate::list::NIL;

/// A max-heap of `(key, index)`, each index at most once.
#[derive(Clone, Debug)]
pub(crate) struct IndexedHeap<K> {
    entries: Vec<(K, u32)>,
    place: Vec<u32>,
}

impl<K: Ord + Copy> IndexedHeap<K> {
    pub(crate) fn new() -> Self {
        IndexedHeap {
            entries: Vec::new(),
            place: Vec::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The largest element.
    #[inline]
    pub(crate) fn top(&self) -> Option<(K, u32)> {
        self.entries.first().copied()
    }

    /// The key of `index`, if it is in the heap.
    pub(crate) fn key(&self, index: u32) -> Option<K> {
        match self.place.get(index as usize) {
            Some(&at) if at != NIL => Some(self.entries[at as usize].0),
            _ => None,
        }
    }

    /// All keys, in no order.
    pub(crate) fn keys(&self) -> impl Iterator<Item = K> + '_ {
        self.entries.iter().map(|&(key, _)| key)
    }

    /// Inserts `index` with `key`, or changes its key.
    pub(crate) fn set(&mut self, index: u32, key: K) {
        if index as usize >= self.place.len() {
            self.place.resize(index as usize + 1, NIL);
        }
        match self.place[index as usize] {
            NIL => {
                self.entries.push((key, index));
                self.up(self.entries.len() - 1);
            }
            at => {
                let at = at as usize;
                let before = self.entries[at].0;
                self.entries[at].0 = key;
                if key > before {
                    self.up(at);
                } else if key < before {
                    self.down(at);
                }
            }
        }
    }

    /// Removes `index`; nothing happens if it is not in the heap.
    pub(crate) fn remove(&mut self, index: u32) {
        let at = match self.place.get(index as usize) {
            Some(&at) if at != NIL => at as usize,
            _ => return,
        };
        self.place[index as usize] = NIL;
        self.entries.swap_remove(at);
        if at < self.entries.len() {
            // The element that fills the gap may have to move either way. What `up` leaves at `at`
            // is never too small for its children, unless it is the filler itself.
            self.up(at);
            self.down(at);
        }
    }

    fn up(&mut self, mut at: usize) {
        let entry = self.entries[at];
        while at > 0 {
            let parent = (at - 1) / 2;
            if self.entries[parent] >= entry {
                break;
            }
            self.put(at, self.entries[parent]);
            at = parent;
        }
        self.put(at, entry);
    }

    fn down(&mut self, mut at: usize) {
        let entry = self.entries[at];
        loop {
            let mut child = 2 * at + 1;
            if child >= self.entries.len() {
                break;
            }
            if child + 1 < self.entries.len() && self.entries[child + 1] > self.entries[child] {
                child += 1;
            }
            if self.entries[child] <= entry {
                break;
            }
            self.put(at, self.entries[child]);
            at = child;
        }
        self.put(at, entry);
    }

    #[inline]
    fn put(&mut self, at: usize, entry: (K, u32)) {
        self.entries[at] = entry;
        self.place[entry.1 as usize] = at as u32;
    }

    /// Panics unless every parent is at least its children and every index knows its place.
    pub(crate) fn check(&self) {
        for (at, entry) in self.entries.iter().enumerate() {
            assert_eq!(
                self.place[entry.1 as usize] as usize, at,
                "index {} is misplaced",
                entry.1
            );
            assert!(
                at == 0 || self.entries[(at - 1) / 2] >= *entry,
                "a child at {at} is above its parent"
            );
        }
        let known = self.place.iter().filter(|&&at| at != NIL).count();
        assert_eq!(
            known,
            self.entries.len(),
            "an index outside the heap has a place"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn behaves_like_a_sorted_set() {
        let mut heap = IndexedHeap::new();
        let mut keys = [None; 24];
        let mut state = 3u64;
        for _ in 0..6000 {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let index = (state >> 33) as usize % keys.len();
            if state >> 62 == 0 {
                heap.remove(index as u32);
                keys[index] = None;
            } else {
                let key = (state >> 40) % 10;
                heap.set(index as u32, key);
                keys[index] = Some(key);
            }
            heap.check();
            let set: BTreeSet<(u64, u32)> = keys
                .iter()
                .enumerate()
                .filter_map(|(index, key)| Some(((*key)?, index as u32)))
                .collect();
            assert_eq!(heap.top(), set.last().copied());
            assert_eq!(heap.len(), set.len());
            assert_eq!(heap.key(index as u32), keys[index]);
        }
    }
}
