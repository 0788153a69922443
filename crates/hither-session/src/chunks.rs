//! The pool of chunks that rings are made of, in shared memory.
//!
//! A ring takes a chunk when its last one is full, and the agent gives it back when it is empty. So
//! memory follows what is queued, and a burst of one thread may use what others do not need.
//!
//! Free chunks are on two lists: `warm` ones have memory behind them, `cold` ones have none.
//! Chunks that were never used are on neither. The lists are stacks that any thread may push to and
//! pop from without a lock. The word of a list counts its changes, so that a chunk that was popped
//! and pushed meanwhile is noticed. A thread that dies between taking a chunk and linking it loses
//! that chunk, until the session ends. All memory is the program's to write over: every number read
//! from it is checked, and no loop depends on it.

use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use crate::pool_parts::PoolParts;
pub(crate) use crate::pool_parts::{CHUNK_BYTES, CHUNKS_MAX};
use hither_kernel::page_bytes;
use hither_kernel::shared_memory::populate;

/// Size of a chunk in words.
pub(crate) const CHUNK_WORDS: u64 = CHUNK_BYTES as u64 / 8;

/// Words at the start of a chunk that hold no records.
pub(crate) const HEADER_WORDS: u64 = 3;

/// The words of that header.
const IDENTITY: u64 = 0;
const LINK: u64 = 1;
const BACKED: u64 = 2;

/// How often a thread tries to change a list that others change meanwhile, before it gives up.
const TRIES_MAX: usize = 1000;

/// The lists of free chunks. All-zero bytes: every chunk is unused.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub(crate) struct FreeLists {
    /// Each: chunks on the list, the number of the first one, and changes.
    warm: AtomicU64,
    cold: AtomicU64,
    /// How many chunks were ever taken.
    used: AtomicU32,
}

/// Names a chunk. Numbers are one more than the place, so that 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunk(u16);

impl Chunk {
    pub(crate) const NONE: Chunk = Chunk(0);

    /// Of a number in shared memory. What is larger than any chunk's is none.
    pub(crate) fn of(number: u64) -> Chunk {
        Chunk(u16::try_from(number).unwrap_or(0))
    }

    pub(crate) fn number(self) -> u64 {
        u64::from(self.0)
    }

    fn place(self) -> Option<usize> {
        usize::from(self.0).checked_sub(1)
    }
}

/// The word of a list.
#[derive(Clone, Copy)]
struct Head(u64);

impl Head {
    fn first(self) -> Chunk {
        Chunk(self.0 as u16)
    }

    fn length(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// This list after one more change.
    fn changed(self, first: Chunk, length: u16) -> Head {
        Head(((self.0 >> 32) + 1) << 32 | u64::from(length) << 16 | first.number())
    }
}

/// Why there is no chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoChunk {
    /// All are in use.
    Empty,
    /// The kernel has no memory for one.
    NoMemory,
}

/// A view of the pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunks<'a> {
    pub(crate) lists: &'a FreeLists,
    /// The next chunk on the list, for each chunk that is on one.
    pub(crate) next: &'a [AtomicU16],
    pub(crate) parts: &'a PoolParts,
}

impl Chunks<'_> {
    /// `words` words of a chunk from position `at` on, if they are within it, and it within what of
    /// the pool is attached.
    #[inline]
    pub(crate) fn slots(&self, chunk: Chunk, at: u64, words: usize) -> Option<&[AtomicU64]> {
        let within = (at % CHUNK_WORDS) as usize;
        let place = chunk.place().filter(|&place| place < self.next.len())?;
        let start = self.parts.chunk(place);
        if start.is_null() || within + words > CHUNK_WORDS as usize {
            return None;
        }
        // SAFETY: the layout places so many chunks there, page-aligned, each of so many words, and
        // any bytes are valid for atomics; what is attached stays as long as `self` borrows it.
        Some(unsafe { std::slice::from_raw_parts(start.wrapping_add(within), words) })
    }

    /// Attaches the part of the pool that a chunk is in. False where that is not possible.
    fn reach(&self, chunk: Chunk) -> bool {
        let place = chunk.place().filter(|&place| place < self.next.len());
        place.is_some_and(|place| self.parts.reach(place))
    }

    fn header(&self, chunk: Chunk, word: u64) -> Option<&AtomicU64> {
        self.slots(chunk, word, 1)?.first()
    }

    /// Takes a chunk with memory behind its first `bytes` bytes, at least a page.
    pub(crate) fn take(&self, bytes: usize) -> Result<Chunk, NoChunk> {
        if let Some(chunk) = self.pop(&self.lists.warm) {
            if self.reach(chunk) {
                return Ok(chunk);
            }
            self.push(&self.lists.warm, chunk);
            return Err(NoChunk::NoMemory);
        }
        let fresh = || {
            let used = &self.lists.used;
            // Asked first, so that threads that find none do not count on.
            let is_left = || used.load(Ordering::Relaxed) < self.next.len() as u32;
            let place = is_left().then(|| used.fetch_add(1, Ordering::Relaxed))?;
            ((place as usize) < self.next.len()).then(|| Chunk::of(u64::from(place) + 1))
        };
        let chunk = self.pop(&self.lists.cold).or_else(fresh);
        let chunk = chunk.ok_or(NoChunk::Empty)?;
        if self.reach(chunk) && self.populate(chunk, 0, bytes) {
            return Ok(chunk);
        }
        self.push(&self.lists.cold, chunk);
        Err(NoChunk::NoMemory)
    }

    /// Makes a chunk that was taken the one of this identity, with nothing in it.
    pub(crate) fn prepare(&self, chunk: Chunk, identity: u64) {
        for (word, value) in [(LINK, 0), (IDENTITY, identity)] {
            if let Some(slot) = self.header(chunk, word) {
                slot.store(value, Ordering::Relaxed);
            }
        }
    }

    /// Whether a chunk is the one of this identity.
    pub(crate) fn is(&self, chunk: Chunk, identity: u64) -> bool {
        let found = self.header(chunk, IDENTITY);
        found.is_some_and(|found| found.load(Ordering::Relaxed) == identity)
    }

    /// How many of a chunk's words have memory behind them: at least a page.
    pub(crate) fn backed_words(&self, chunk: Chunk) -> u64 {
        let backed = self.header(chunk, BACKED);
        let backed = backed.map_or(0, |backed| backed.load(Ordering::Relaxed));
        let page = page_bytes() / 8;
        let backed = backed.max(page).min(CHUNK_WORDS);
        backed & !(page - 1)
    }

    /// Asks for memory behind all of a chunk.
    pub(crate) fn back_whole(&self, chunk: Chunk) -> bool {
        let from = 8 * self.backed_words(chunk) as usize;
        from == CHUNK_BYTES || self.populate(chunk, from, CHUNK_BYTES)
    }

    /// Asks for memory behind a range of a chunk's bytes, whole pages, and notes its end.
    fn populate(&self, chunk: Chunk, from: usize, to: usize) -> bool {
        let slots = self.slots(chunk, from as u64 / 8, (to - from) / 8);
        let Some(slots) = slots else {
            return false;
        };
        // SAFETY: the slots are part of the segment, and behind what the chunk has memory for.
        if !unsafe { populate(slots.as_ptr().cast_mut().cast(), to - from) } {
            return false;
        }
        if let Some(backed) = self.header(chunk, BACKED) {
            backed.store(to as u64 / 8, Ordering::Relaxed);
        }
        true
    }

    /// Where the ring goes on after a chunk.
    pub(crate) fn link(&self, chunk: Chunk) -> Option<&AtomicU64> {
        self.header(chunk, LINK)
    }

    /// Gives back a chunk, which nobody uses any more.
    pub(crate) fn give(&self, chunk: Chunk) {
        if let Some(identity) = self.header(chunk, IDENTITY) {
            identity.store(0, Ordering::Relaxed);
            self.push(&self.lists.warm, chunk);
        }
    }

    /// How many free chunks have memory behind them.
    pub(crate) fn warm(&self) -> usize {
        let head = Head(self.lists.warm.load(Ordering::Relaxed));
        usize::from(head.length())
    }

    /// Passes a warm chunk to `clear`, which frees its memory. False if there is none.
    pub(crate) fn cool(&self, clear: impl FnOnce(*mut u8)) -> bool {
        let Some(chunk) = self.pop(&self.lists.warm) else {
            return false;
        };
        if let Some(slots) = self.slots(chunk, 0, CHUNK_WORDS as usize) {
            clear(slots.as_ptr().cast_mut().cast());
        }
        self.push(&self.lists.cold, chunk);
        true
    }

    fn push(&self, list: &AtomicU64, chunk: Chunk) {
        let Some(next) = chunk.place().and_then(|place| self.next.get(place)) else {
            return;
        };
        let mut head = Head(list.load(Ordering::Relaxed));
        for _ in 0..TRIES_MAX {
            next.store(head.first().0, Ordering::Relaxed);
            let new = head.changed(chunk, head.length().saturating_add(1));
            // Release: who pops the chunk writes to it after our last load of it.
            let order = (Ordering::Release, Ordering::Relaxed);
            match list.compare_exchange_weak(head.0, new.0, order.0, order.1) {
                Ok(_) => return,
                Err(other) => head = Head(other),
            }
        }
    }

    fn pop(&self, list: &AtomicU64) -> Option<Chunk> {
        let mut head = Head(list.load(Ordering::Acquire));
        for _ in 0..TRIES_MAX {
            let chunk = head.first();
            // A chunk that somebody else takes meanwhile may have another next one; then the list
            // has changed.
            let next = Chunk(self.next.get(chunk.place()?)?.load(Ordering::Relaxed));
            let new = head.changed(next, head.length().saturating_sub(1));
            let order = (Ordering::Acquire, Ordering::Acquire);
            match list.compare_exchange_weak(head.0, new.0, order.0, order.1) {
                Ok(_) => return Some(chunk),
                Err(other) => head = Head(other),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> usize {
        page_bytes() as usize
    }
    use crate::segment::{Layout, Segment};

    fn pool(chunks: usize) -> Segment {
        let layout = Layout::new(1, chunks).expect("a layout");
        Segment::create(layout, 0, false).expect("a segment").1
    }

    #[test]
    fn each_chunk_is_taken_once_and_the_last_one_given_back_first() {
        let segment = pool(3);
        let pool = segment.chunks();
        let taken: Vec<Chunk> = (0..3).map(|_| pool.take(page()).expect("one")).collect();
        assert_eq!(taken, [Chunk(1), Chunk(2), Chunk(3)]);
        assert_eq!(pool.take(page()), Err(NoChunk::Empty));
        pool.give(taken[0]);
        pool.give(taken[2]);
        assert_eq!(pool.warm(), 2);
        assert_eq!(pool.take(page()), Ok(Chunk(3)));
        assert_eq!(pool.take(page()), Ok(Chunk(1)));
        assert_eq!((pool.take(page()), pool.warm()), (Err(NoChunk::Empty), 0));
    }

    #[test]
    fn memory_comes_page_by_page_and_goes_when_a_chunk_is_cooled() {
        let segment = pool(1);
        let pool = segment.chunks();
        let chunk = pool.take(page()).expect("one");
        assert_eq!(pool.backed_words(chunk), page_bytes() / 8);
        assert!(pool.back_whole(chunk));
        assert_eq!(pool.backed_words(chunk), CHUNK_WORDS);
        pool.slots(chunk, CHUNK_WORDS - 1, 1).expect("a slot")[0].store(7, Ordering::Relaxed);
        pool.give(chunk);
        // SAFETY: a whole chunk, which nobody has taken.
        let clear = |at| unsafe { hither_kernel::shared_memory::clear(at, CHUNK_BYTES) };
        assert!(pool.cool(clear) && !pool.cool(clear));
        assert_eq!(pool.take(page()), Ok(chunk));
        assert_eq!(pool.backed_words(chunk), page_bytes() / 8);
        let last = &pool.slots(chunk, CHUNK_WORDS - 1, 1).expect("a slot")[0];
        assert_eq!(last.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn threads_that_take_and_give_at_once_never_share_a_chunk() {
        let segment = pool(5);
        let pool = segment.chunks();
        std::thread::scope(|scope| {
            for thread in 1..=4 {
                scope.spawn(move || {
                    for round in 0..20_000 {
                        let Ok(chunk) = pool.take(page()) else {
                            panic!("one for each thread")
                        };
                        let slot = &pool.slots(chunk, 100, 1).expect("a slot")[0];
                        slot.store(thread << 32 | round, Ordering::Relaxed);
                        std::hint::spin_loop();
                        assert_eq!(slot.load(Ordering::Relaxed), thread << 32 | round);
                        pool.give(chunk);
                    }
                });
            }
        });
        let left = (0..10).filter(|_| pool.take(page()).is_ok()).count();
        assert_eq!(left, 5, "none was lost");
    }

    #[test]
    fn numbers_from_nowhere_name_no_chunk() {
        let segment = pool(2);
        let pool = segment.chunks();
        for number in [0, 3, 0xffff, 1 << 20, u64::MAX] {
            let chunk = Chunk::of(number);
            assert!(pool.slots(chunk, 0, 1).is_none(), "{number}");
            assert!(!pool.is(chunk, 0));
            pool.give(chunk);
        }
        assert_eq!(pool.warm(), 0);
        pool.lists.warm.store(u64::MAX, Ordering::Relaxed);
        pool.lists.used.store(u32::MAX, Ordering::Relaxed);
        assert_eq!(pool.take(page()), Err(NoChunk::Empty));
        // A list that leads back to itself ends all the same.
        pool.lists.warm.store(1 << 16 | 1, Ordering::Relaxed);
        pool.next[0].store(1, Ordering::Relaxed);
        assert_eq!(
            (pool.take(page()), pool.take(page())),
            (Ok(Chunk(1)), Ok(Chunk(1)))
        );
    }
}
