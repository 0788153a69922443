//! A small table of open things that are likely needed again: descriptors of files that are being
//! read, and directories that are being listed.
//!
//! It is bounded, and what was not used for a while is closed, since an open descriptor keeps the
//! space of a deleted file, and keeps its file system from being unmounted.

use std::hash::Hash;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

/// Things by key, at most a fixed number of them.
pub(super) struct Kept<K, V> {
    capacity: usize,
    entries: Mutex<FxHashMap<K, (V, Instant)>>,
}

impl<K: Hash + Eq + Clone, V> Kept<K, V> {
    /// An empty table for `capacity` things.
    pub(super) fn new(capacity: usize) -> Kept<K, V> {
        Kept {
            capacity,
            entries: Mutex::default(),
        }
    }

    /// Takes the thing out.
    pub(super) fn take(&self, key: &K) -> Option<V> {
        self.entries.lock().remove(key).map(|(value, _)| value)
    }

    /// Keeps a thing, in place of the one that was not used for longest if the table is full.
    pub(super) fn put(&self, key: K, value: V) {
        let mut entries = self.entries.lock();
        let mut evicted = None;
        if entries.len() >= self.capacity && !entries.contains_key(&key) {
            let oldest = entries.iter().min_by_key(|(_, (_, used))| *used);
            let oldest = oldest.map(|(key, _)| key.clone());
            evicted = oldest.and_then(|key| entries.remove(&key));
        }
        let replaced = entries.insert(key, (value, Instant::now()));
        drop(entries);
        // Closing may wait for a file system: not with the lock held.
        drop((evicted, replaced));
    }

    /// Closes what was not used for `idle`.
    pub(super) fn sweep(&self, idle: Duration) {
        let mut entries = self.entries.lock();
        let closed: Vec<(V, Instant)> = entries
            .extract_if(|_, (_, used)| used.elapsed() >= idle)
            .map(|(_, entry)| entry)
            .collect();
        drop(entries);
        drop(closed);
    }
}

impl<K: Hash + Eq + Clone, V: Clone> Kept<K, V> {
    /// A copy of the thing, which stays.
    pub(super) fn get(&self, key: &K) -> Option<V> {
        let mut entries = self.entries.lock();
        let (value, used) = entries.get_mut(key)?;
        *used = Instant::now();
        Some(value.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_bounded_and_forgets_what_is_idle() {
        let kept = Kept::new(2);
        for number in 0..3 {
            kept.put(number, number);
        }
        assert_eq!(kept.get(&0), None, "the oldest made way");
        assert_eq!(kept.take(&1), Some(1));
        assert_eq!(kept.take(&1), None, "it was taken");
        kept.sweep(Duration::from_secs(60));
        assert_eq!(kept.get(&2), Some(2));
        kept.sweep(Duration::ZERO);
        assert_eq!(kept.get(&2), None);
    }
}
