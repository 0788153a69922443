//! The part for sequential blocks: these are never worth keeping, so they are evicted before all
//! others, except one for each thread.
//!
//! Source: PCC paper, section 5.1 ("the subcache for sequential references consists of only one
//! block per application thread"). While the cache has free slots, sequential blocks stay, unless
//! they are to be discarded (see [`partition`](super)). Which of them goes first matters only where
//! the classification is wrong, and the paper names that case: the first round of every loop. So
//! the *latest* one is evicted, which is best for a loop and makes no difference to a true
//! sequence. A thread that has ended leaves a block behind, which can be evicted once it is older
//! than `capacity` references. A stream that turns out to loop takes its blocks from here (see
//! [`partition`](super)).

use crate::classify::at;
use crate::ids::{Slot, Tick};
use crate::list::{Links, List};

#[derive(Clone, Debug)]
pub(super) struct Sequential {
    slots: Links,
    /// The latest reference in front.
    recency: List,
    thread_links: Links,
    /// The same slots, by thread.
    by_thread: Vec<List>,
    /// Threads that own at least one slot.
    owners: usize,
    thread: Vec<u32>,
    stream_links: Links,
    /// The same slots, by stream.
    by_stream: Vec<List>,
    stream: Vec<u32>,
    tick: Vec<Tick>,
}

impl Sequential {
    pub(super) fn new(capacity: u32) -> Self {
        Sequential {
            slots: Links::new(capacity as usize),
            recency: List::default(),
            thread_links: Links::new(capacity as usize),
            by_thread: Vec::new(),
            owners: 0,
            thread: vec![0; capacity as usize],
            stream_links: Links::new(capacity as usize),
            by_stream: Vec::new(),
            stream: vec![0; capacity as usize],
            tick: vec![0; capacity as usize],
        }
    }

    pub(super) fn len(&self) -> usize {
        self.recency.len()
    }

    pub(super) fn insert(&mut self, slot: Slot, thread: u32, stream: u32, tick: Tick) {
        self.recency.push_front(&mut self.slots, slot.0);
        let owned = at(&mut self.by_thread, thread);
        self.owners += usize::from(owned.is_empty());
        owned.push_front(&mut self.thread_links, slot.0);
        self.thread[slot.index()] = thread;
        at(&mut self.by_stream, stream).push_front(&mut self.stream_links, slot.0);
        self.stream[slot.index()] = stream;
        self.tick[slot.index()] = tick;
    }

    pub(super) fn remove(&mut self, slot: Slot) {
        self.recency.remove(&mut self.slots, slot.0);
        let owned = &mut self.by_thread[self.thread[slot.index()] as usize];
        owned.remove(&mut self.thread_links, slot.0);
        self.owners -= usize::from(owned.is_empty());
        self.by_stream[self.stream[slot.index()] as usize].remove(&mut self.stream_links, slot.0);
    }

    /// The least recent block of a stream.
    pub(super) fn oldest_of(&self, stream: u32) -> Option<Slot> {
        self.by_stream.get(stream as usize)?.back().map(Slot)
    }

    /// The most recent block of a thread.
    pub(super) fn latest_of(&self, thread: u32) -> Option<Slot> {
        self.by_thread.get(thread as usize)?.front().map(Slot)
    }

    /// The block that has to be evicted for an access by `thread`, if any goes before those of the
    /// other parts.
    pub(super) fn victim(&self, thread: u32, now: Tick, capacity: u32) -> Option<Slot> {
        if let Some(own) = self.latest_of(thread) {
            return Some(own);
        }
        if self.recency.len() > self.owners {
            return self.recency.front().map(Slot);
        }
        self.oldest()
            .filter(|slot| now - self.tick[slot.index()] > u64::from(capacity))
    }

    pub(super) fn oldest(&self) -> Option<Slot> {
        self.recency.back().map(Slot)
    }

    pub(super) fn check(&self) {
        self.recency.check(&self.slots);
        for owned in &self.by_thread {
            owned.check(&self.thread_links);
        }
        for blocks in &self.by_stream {
            blocks.check(&self.stream_links);
        }
        let owned: usize = self.by_thread.iter().map(List::len).sum();
        assert_eq!(owned, self.recency.len());
        let in_streams: usize = self.by_stream.iter().map(List::len).sum();
        assert_eq!(in_streams, self.recency.len());
        assert_eq!(
            self.by_thread
                .iter()
                .filter(|owned| !owned.is_empty())
                .count(),
            self.owners
        );
    }
}
