//! The directory of a home: who holds the blocks of its chunks, who reads them from the source, who
//! waits for them. Only the data structure; what is done with it is in `home`.
//!
//! Its size is bounded. To make room, a hand goes round and drops an entry that was not used since
//! it last came by (CLOCK; Corbató, "A paging experiment with the Multics system", 1968). That
//! costs at most one more read of the source. Entries that somebody waits for stay.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::event::Time;
use super::message::{Request, RequestId, Urgency};
use super::timers::Timers;
use super::view::MemberId;
use crate::key::ChunkKey;

/// A member that reads blocks from the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fetcher {
    pub(super) member: MemberId,
    /// Who keeps them.
    pub(super) keeper: MemberId,
    pub(super) mask: u64,
    pub(super) urgency: Urgency,
    pub(super) deadline: Time,
}

/// A request that waits for blocks which others read from the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiter {
    pub(super) member: MemberId,
    pub(super) id: RequestId,
    pub(super) mask: u64,
    pub(super) urgency: Urgency,
    pub(super) deadline: Time,
}

impl Waiter {
    pub(super) fn request(&self) -> Request {
        Request {
            member: self.member,
            id: self.id,
            urgency: self.urgency,
        }
    }
}

/// Reads of the source and requests that wait for them.
#[derive(Debug, Default)]
pub(super) struct Busy {
    pub(super) fetchers: Vec<Fetcher>,
    pub(super) waiters: Vec<Waiter>,
    timer: Option<Time>,
}

impl Busy {
    /// The blocks that are being read.
    pub(super) fn fetching(&self) -> u64 {
        let masks = self.fetchers.iter().map(|fetcher| fetcher.mask);
        masks.fold(0, |all, mask| all | mask)
    }

    /// Adds a fetcher, which replaces what was known of it for these blocks.
    pub(super) fn add_fetcher(&mut self, fetcher: Fetcher) {
        self.remove_fetcher(fetcher.member, fetcher.mask);
        self.fetchers.push(fetcher);
    }

    /// Takes blocks from a fetcher. Returns those that it was reading.
    pub(super) fn remove_fetcher(&mut self, member: MemberId, mask: u64) -> u64 {
        self.remove(mask, |fetcher| fetcher.member == member)
    }

    /// The same for all fetchers that read for a keeper, itself or another member.
    pub(super) fn remove_fetcher_for(&mut self, keeper: MemberId, mask: u64) -> u64 {
        self.remove(mask, |fetcher| fetcher.keeper == keeper)
    }

    /// The same for what a fetcher keeps itself.
    pub(super) fn remove_own(&mut self, member: MemberId, mask: u64) -> u64 {
        self.remove(mask, |it| it.member == member && it.keeper == member)
    }

    fn remove(&mut self, mask: u64, which: impl Fn(&Fetcher) -> bool) -> u64 {
        let mut removed = 0;
        self.fetchers.retain_mut(|fetcher| {
            if which(fetcher) {
                removed |= fetcher.mask & mask;
                fetcher.mask &= !mask;
            }
            fetcher.mask != 0
        });
        removed
    }

    /// Removes blocks from the waiting requests of a member.
    pub(super) fn remove_waiter(&mut self, member: MemberId, mask: u64) {
        self.waiters.retain_mut(|waiter| {
            if waiter.member == member {
                waiter.mask &= !mask;
            }
            waiter.mask != 0
        });
    }

    /// Takes the blocks of `mask` out of all waiting requests, in order of their arrival.
    pub(super) fn take_waiters(&mut self, mask: u64) -> Vec<Waiter> {
        let mut taken = Vec::new();
        self.waiters.retain_mut(|waiter| {
            if waiter.mask & mask != 0 {
                taken.push(Waiter {
                    mask: waiter.mask & mask,
                    ..*waiter
                });
                waiter.mask &= !mask;
            }
            waiter.mask != 0
        });
        taken
    }

    fn deadline(&self) -> Option<Time> {
        let fetchers = self.fetchers.iter().map(|fetcher| fetcher.deadline);
        let waiters = self.waiters.iter().map(|waiter| waiter.deadline);
        fetchers.chain(waiters).min()
    }

    fn is_idle(&self) -> bool {
        self.fetchers.is_empty() && self.waiters.is_empty()
    }
}

/// What is known of a chunk.
#[derive(Debug, Default)]
pub(super) struct Entry {
    /// Members with the blocks that they hold, those that reported last at the end.
    pub(super) holders: Vec<(MemberId, u64)>,
    /// Boxed, since most entries have none of it.
    pub(super) busy: Option<Box<Busy>>,
    used: bool,
}

impl Entry {
    pub(super) fn busy(&mut self) -> &mut Busy {
        self.busy.get_or_insert_default()
    }

    /// Adds blocks to what a member holds.
    pub(super) fn add_holder(&mut self, member: MemberId, mask: u64) {
        let before = self.remove_holder(member, u64::MAX);
        self.holders.push((member, before | mask));
    }

    /// The blocks that a member holds.
    pub(super) fn held_by(&self, member: MemberId) -> u64 {
        let mut holders = self.holders.iter();
        let found = holders.find(|&&(holder, _)| holder == member);
        found.map_or(0, |&(_, mask)| mask)
    }

    /// Removes blocks from what a member holds. Returns those that it held.
    pub(super) fn remove_holder(&mut self, member: MemberId, mask: u64) -> u64 {
        let mut removed = 0;
        self.holders.retain_mut(|(holder, held)| {
            if *holder == member {
                removed |= *held & mask;
                *held &= !mask;
            }
            *held != 0
        });
        removed
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Directory {
    entries: BTreeMap<ChunkKey, Entry>,
    timers: Timers,
    chunks_max: usize,
    hand: Option<ChunkKey>,
    /// Entries dropped to make room since the last call of [`Directory::take_evicted`].
    evicted: u64,
}

impl Directory {
    pub(super) fn new(chunks_max: usize) -> Directory {
        Directory {
            entries: BTreeMap::new(),
            timers: Timers::default(),
            chunks_max: chunks_max.max(1),
            hand: None,
            evicted: 0,
        }
    }

    pub(super) fn get(&mut self, chunk: ChunkKey) -> Option<&mut Entry> {
        self.entries.get_mut(&chunk)
    }

    /// The entry of `chunk`, made if need be. `None`: there is no room, since all are busy.
    pub(super) fn entry(&mut self, chunk: ChunkKey) -> Option<&mut Entry> {
        let full = self.entries.len() >= self.chunks_max;
        if full && !self.entries.contains_key(&chunk) && !self.make_room() {
            return None;
        }
        let entry = self.entries.entry(chunk).or_default();
        entry.used = true;
        Some(entry)
    }

    fn make_room(&mut self) -> bool {
        /// Entries examined: bounds the time, not the quality.
        const EXAMINED_MAX: usize = 64;
        let mut fallback = None;
        let mut victim = None;
        for _ in 0..EXAMINED_MAX.min(2 * self.entries.len()) {
            let from = self.hand.map_or(Bound::Unbounded, Bound::Excluded);
            let mut rest = self.entries.range_mut((from, Bound::Unbounded));
            let Some((&chunk, entry)) = rest.next() else {
                self.hand = None;
                continue;
            };
            self.hand = Some(chunk);
            if entry.busy.is_some() {
                continue;
            }
            if !std::mem::take(&mut entry.used) {
                victim = Some(chunk);
                break;
            }
            fallback.get_or_insert(chunk);
        }
        let Some(victim) = victim.or(fallback) else {
            return false;
        };
        self.entries.remove(&victim);
        self.evicted += 1;
        true
    }

    pub(super) fn take_evicted(&mut self) -> u64 {
        std::mem::take(&mut self.evicted)
    }

    /// After the entry of a chunk has changed: sets its deadline, or removes it.
    pub(super) fn update_entry(&mut self, chunk: ChunkKey) {
        let Some(entry) = self.entries.get_mut(&chunk) else {
            return;
        };
        if let Some(busy) = entry.busy.as_mut() {
            let deadline = busy.deadline();
            self.timers.set(chunk, &mut busy.timer, deadline);
            if busy.is_idle() {
                entry.busy = None;
            }
        }
        if entry.holders.is_empty() && entry.busy.is_none() {
            self.entries.remove(&chunk);
        }
    }

    /// Removes an entry.
    pub(super) fn remove(&mut self, chunk: ChunkKey) -> Option<Entry> {
        let mut entry = self.entries.remove(&chunk)?;
        if let Some(busy) = entry.busy.as_mut() {
            self.timers.set(chunk, &mut busy.timer, None);
        }
        Some(entry)
    }

    /// All chunks.
    pub(super) fn chunks(&self) -> Vec<ChunkKey> {
        self.entries.keys().copied().collect()
    }

    /// The chunks that somebody reads from the source or waits for, in the order of their keys.
    pub(super) fn busy_chunks(&self) -> Vec<ChunkKey> {
        let mut chunks: Vec<ChunkKey> = self.timers.chunks().collect();
        chunks.sort_unstable();
        chunks
    }

    /// The next deadline.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.timers.first()
    }

    /// A chunk whose deadline has come.
    pub(super) fn due(&self, now: Time) -> Option<ChunkKey> {
        self.timers.due(now)
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Walks every invariant and panics on a broken one.
    pub(super) fn check(&self) {
        assert!(self.entries.len() <= self.chunks_max);
        let mut busy_entries = 0;
        for entry in self.entries.values() {
            assert!(!entry.holders.is_empty() || entry.busy.is_some());
            for (at, &(member, mask)) in entry.holders.iter().enumerate() {
                assert_ne!(mask, 0);
                assert!(
                    entry.holders[..at]
                        .iter()
                        .all(|&(other, _)| other != member)
                );
            }
            let Some(busy) = entry.busy.as_ref() else {
                continue;
            };
            busy_entries += 1;
            assert!(!busy.is_idle());
            assert_eq!(busy.timer, busy.deadline());
            assert!(busy.fetchers.iter().all(|fetcher| fetcher.mask != 0));
            for waiter in &busy.waiters {
                assert_ne!(waiter.mask, 0);
                let unread = waiter.mask & !busy.fetching();
                assert_eq!(unread, 0, "somebody waits for what nobody reads");
            }
        }
        assert_eq!(self.timers.len(), busy_entries);
    }
}
