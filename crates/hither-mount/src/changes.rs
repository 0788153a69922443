//! Which names this mount is changing, or has changed lately.
//!
//! A look-up that asked the source before a change ended may be answered after it. The kernel must
//! not believe such an answer for any time, or a program would not find what it has just written.

use std::hash::{BuildHasher, BuildHasherDefault};
use std::time::{Duration, Instant};

use hither_node::source::SourcePath;
use parking_lot::Mutex;
use rustc_hash::FxHasher;
use tokio::sync::{Mutex as AsyncMutex, MutexGuard as AsyncMutexGuard};

/// Names share so many slots: two of one slot cost a look-up more, and nothing else.
const SLOTS: usize = 4096;

/// See the module.
#[derive(Debug)]
pub(crate) struct Changes(Box<[Mutex<Slot>]>);

/// The locks under which versions at the source change: those of one file one after the other.
#[derive(Debug)]
pub(crate) struct VersionLocks(Box<[AsyncMutex<()>]>);

/// The locks of two versions, which may share one.
pub(crate) type BothVersions<'a> = [Option<AsyncMutexGuard<'a, ()>>; 2];

impl VersionLocks {
    pub(crate) fn new() -> VersionLocks {
        VersionLocks((0..SLOTS).map(|_| AsyncMutex::default()).collect())
    }

    /// Waits until nobody changes the version at `path`.
    pub(crate) async fn lock(&self, path: &SourcePath) -> AsyncMutexGuard<'_, ()> {
        self.0[slot(path)].lock().await
    }

    /// As [`lock`](Self::lock), of two paths.
    pub(crate) async fn lock_both(&self, one: &SourcePath, other: &SourcePath) -> BothVersions<'_> {
        // Always in this order, so that no two wait for one another.
        let (first, last) = (slot(one).min(slot(other)), slot(one).max(slot(other)));
        let locked = Some(self.0[first].lock().await);
        if first == last {
            [locked, None]
        } else {
            [locked, Some(self.0[last].lock().await)]
        }
    }
}

fn slot(path: &SourcePath) -> usize {
    let hash = BuildHasherDefault::<FxHasher>::default().hash_one(path);
    (hash >> 32) as usize % SLOTS
}

#[derive(Debug, Default)]
struct Slot {
    /// Changes that go on.
    under_way: u32,
    /// When the last one has ended.
    ended: Option<Instant>,
}

/// A change that goes on while this lives.
pub(crate) struct Change<'a>(&'a Mutex<Slot>);

impl Changes {
    pub(crate) fn new() -> Changes {
        Changes((0..SLOTS).map(|_| Mutex::default()).collect())
    }

    fn slot(&self, path: &SourcePath) -> &Mutex<Slot> {
        &self.0[slot(path)]
    }

    /// A change of `path` begins.
    pub(crate) fn begin(&self, path: &SourcePath) -> Change<'_> {
        let slot = self.slot(path);
        slot.lock().under_way += 1;
        Change(slot)
    }

    /// How long the kernel may believe what the source said of `path` at `asked`, if it may be
    /// `ttl` old.
    pub(crate) fn ttl(&self, path: &SourcePath, asked: Instant, ttl: Duration) -> Duration {
        let slot = self.slot(path).lock();
        if slot.under_way > 0 || slot.ended.is_some_and(|ended| ended >= asked) {
            Duration::ZERO
        } else {
            ttl
        }
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        let mut slot = self.0.lock();
        slot.under_way -= 1;
        slot.ended = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_before_a_change_has_ended_is_not_believed() {
        let changes = Changes::new();
        let path = SourcePath::new(b"a/b").unwrap();
        let ttl = Duration::from_secs(60);
        let before = Instant::now();
        assert_eq!(changes.ttl(&path, before, ttl), ttl);
        let change = changes.begin(&path);
        let meanwhile = Instant::now();
        assert_eq!(changes.ttl(&path, meanwhile, ttl), Duration::ZERO);
        drop(change);
        assert_eq!(changes.ttl(&path, meanwhile, ttl), Duration::ZERO);
        let after = Instant::now() + Duration::from_nanos(1);
        assert_eq!(changes.ttl(&path, after, ttl), ttl);
    }
}
