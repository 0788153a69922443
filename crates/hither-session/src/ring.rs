//! The queue between one recorded thread and the agent: single producer, single consumer, in shared
//! memory.
//!
//! A ring is a chain of chunks from a pool ([`crate::chunks`]). The producer links another chunk
//! when its last one is full, and the consumer gives back the chunks that it has emptied. So an
//! idle thread holds one chunk, and a busy one as many as the agent is behind.
//!
//! Positions count words and only grow. Chunk `k`, from 1 on, has the positions from
//! `(k - 1) * CHUNK_WORDS` to `k * CHUNK_WORDS`; the first few are its header. A record lies within
//! one chunk: where one does not fit any more, a mark sends the consumer to the next chunk.
//! The one store that publishes is that of `head`. Words, links and all else are stored relaxed
//! before it, so that a producer may stop at any instruction. A consumer that sees a position also
//! sees the words and links below it. A ring at its limit refuses the record: the program that is
//! recorded never waits. Neither side trusts the other's numbers, since the memory is open to any
//! stray store of the recorded program.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, compiler_fence};

use crate::chunks::{CHUNK_BYTES, CHUNK_WORDS, CHUNKS_MAX, Chunk, Chunks, HEADER_WORDS, NoChunk};
use crate::record::{WORDS_MAX, Words, words_of};
use hither_kernel::{PAGE_BYTES_MIN, page_bytes};

/// Stands where the next record is in the next chunk. No record begins with it: it would have too
/// many words.
const IN_NEXT_CHUNK: u64 = u64::from_be_bytes(*b"hither\xff\0");

const _: () = assert!(words_of(IN_NEXT_CHUNK) > WORDS_MAX);

/// The control part of one ring. All-zero bytes are an unused ring.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub(crate) struct Control {
    /// What the kernel may write to, to see whether a page of controls has memory.
    scratch: [AtomicU64; 2],
    /// The owner, packed by [`crate::program_session`]; 0 for a free ring.
    pub(crate) owner: AtomicU64,
    /// Counts owners. A producer that finds it changed has lost the ring.
    pub(crate) generation: AtomicU64,
    /// The sequence number of its claim in the session; 0 until the owner has set it.
    pub(crate) sequence: AtomicU64,
    /// The end of the last published record.
    head: AtomicU64,
    /// The number of the first chunk.
    first: AtomicU32,
    /// Set by an owner that has ended.
    pub(crate) released: AtomicU32,
    other: OtherCounts,
}

/// Apart from what the producer uses for each record.
#[repr(C, align(64))]
#[derive(Debug, Default)]
struct OtherCounts {
    /// Up to where the consumer has come.
    tail: AtomicU64,
    lost_events: AtomicU64,
    lost_bytes: AtomicU64,
    nested: AtomicU64,
}

const _: () = assert!(PAGE_BYTES_MIN.is_multiple_of(size_of::<Control>()));

impl Control {
    /// Accesses that found the ring at its limit or the pool empty, and the bytes that they moved.
    pub(crate) fn lost(&self) -> [&AtomicU64; 2] {
        [&self.other.lost_events, &self.other.lost_bytes]
    }

    /// Calls made by a signal handler that interrupted the recorder.
    pub(crate) fn nested(&self) -> &AtomicU64 {
        &self.other.nested
    }
}

/// A view of one ring: its control part and the pool of its chunks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring<'a> {
    pub(crate) index: usize,
    pub(crate) control: &'a Control,
    pub(crate) chunks: Chunks<'a>,
    /// How many chunks may be queued.
    pub(crate) chunks_max: &'a AtomicU32,
}

/// The producer's place in its ring. Each store leaves it usable, since a signal handler may leave
/// the producer by a jump.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    /// The chunk's position in the ring, and its number.
    current: AtomicU64,
    /// Words below this position have memory behind them; 0 where that has to be asked.
    limit: AtomicU64,
}

impl Writer {
    #[inline]
    fn chunk(&self) -> Chunk {
        Chunk::of(self.current.load(Ordering::Relaxed) & 0xffff)
    }

    /// Counted from 1; 0 before the first.
    fn chunk_position(&self) -> u64 {
        self.current.load(Ordering::Relaxed) >> 16
    }
}

/// The consumer's place in a ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader {
    tail: u64,
    chunk: Chunk,
}

impl Default for Reader {
    fn default() -> Self {
        Reader {
            tail: 0,
            chunk: Chunk::NONE,
        }
    }
}

/// What [`Ring::pop`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Popped {
    /// A record of this many words.
    Record(usize),
    /// Lengths that no producer writes. What was queued is discarded.
    Damaged,
    /// Positions or links that no producer writes. The ring is of no more use.
    Broken,
}

/// Why a record was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// As much is queued as may be, or the pool is empty: the agent is late.
    Full,
    /// The kernel has no memory.
    NoMemory,
    /// The ring is written over.
    Broken,
}

impl<'a> Ring<'a> {
    /// How many words may be queued.
    fn queued_max(&self) -> u64 {
        let chunks = self.chunks_max.load(Ordering::Relaxed) as usize;
        chunks.min(CHUNKS_MAX) as u64 * CHUNK_WORDS
    }

    /// The producer's position.
    #[inline]
    pub(crate) fn head(&self) -> u64 {
        self.control.head.load(Ordering::Relaxed)
    }

    /// Appends a record, or refuses it. Only the ring's owner may call this.
    #[inline]
    pub(crate) fn push(&self, writer: &mut Writer, record: &[u64]) -> Result<(), Refused> {
        let head = self.head();
        let room = writer.limit.load(Ordering::Relaxed).wrapping_sub(head);
        if room > CHUNK_WORDS || (record.len() as u64) > room {
            return self.push_beyond(writer, record);
        }
        self.publish(writer.chunk(), head, record)
    }

    /// Writes a record at a position, which is in this chunk and has memory.
    #[inline]
    fn publish(&self, chunk: Chunk, at: u64, record: &[u64]) -> Result<(), Refused> {
        let slots = self.chunks.slots(chunk, at, record.len());
        let slots = slots.ok_or(Refused::Broken)?;
        for (slot, &word) in slots.iter().zip(record) {
            slot.store(word, Ordering::Relaxed);
        }
        step();
        let end = at.wrapping_add(record.len() as u64);
        self.control.head.store(end, Ordering::Release);
        Ok(())
    }

    /// [`Ring::push`] where the record does not fit into the memory that is known to be there.
    #[cold]
    #[inline(never)]
    fn push_beyond(&self, writer: &mut Writer, record: &[u64]) -> Result<(), Refused> {
        // Until the record is published, `head` may be in another chunk than the writer.
        writer.limit.store(0, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        let words = record.len() as u64;
        if words > CHUNK_WORDS - HEADER_WORDS {
            return Err(Refused::Full);
        }
        let head = self.head();
        let end = writer.chunk_position() * CHUNK_WORDS;
        let start = end.wrapping_sub(CHUNK_WORDS);
        let at = if end.wrapping_sub(head) > 2 * CHUNK_WORDS {
            return Err(Refused::Broken);
        } else if end - head < words {
            self.link_another(writer, head)?;
            end + HEADER_WORDS
        } else {
            // Below the start if the last chunk was linked, and nothing was published in it.
            head.max(start.wrapping_add(HEADER_WORDS))
        };
        let (chunk, end) = (writer.chunk(), writer.chunk_position() * CHUNK_WORDS);
        let backed = |chunk| end - CHUNK_WORDS + self.chunks.backed_words(chunk);
        if at + words > backed(chunk) && !self.chunks.back_whole(chunk) {
            return Err(Refused::NoMemory);
        }
        self.publish(chunk, at, record)?;
        compiler_fence(Ordering::SeqCst);
        step();
        writer.limit.store(backed(chunk), Ordering::Relaxed);
        Ok(())
    }

    /// Takes a chunk from the pool and goes on there. `head` is in the last chunk.
    fn link_another(&self, writer: &mut Writer, head: u64) -> Result<(), Refused> {
        let queued = head.wrapping_sub(self.control.other.tail.load(Ordering::Relaxed));
        if queued.saturating_add(CHUNK_WORDS) > self.queued_max() {
            return Err(Refused::Full);
        }
        let (last, position) = (writer.chunk(), writer.chunk_position());
        // Most processes and many threads read little.
        let bytes = if position == 0 {
            page_bytes() as usize
        } else {
            CHUNK_BYTES
        };
        let chunk = self.chunks.take(bytes).map_err(|none| match none {
            NoChunk::Empty => Refused::Full,
            NoChunk::NoMemory => Refused::NoMemory,
        })?;
        step();
        self.chunks.prepare(chunk, self.identity(position + 1));
        step();
        if position == 0 {
            let first = chunk.number() as u32;
            self.control.first.store(first, Ordering::Relaxed);
        } else {
            // Nothing fits any more, and the consumer is to see it.
            if !head.is_multiple_of(CHUNK_WORDS)
                && let Some(slot) = self.chunks.slots(last, head, 1)
            {
                slot[0].store(IN_NEXT_CHUNK, Ordering::Relaxed);
            }
            step();
            let link = self.chunks.link(last).ok_or(Refused::Broken)?;
            link.store(chunk.number(), Ordering::Relaxed);
        }
        compiler_fence(Ordering::SeqCst);
        step();
        let current = (position + 1) << 16 | chunk.number();
        writer.current.store(current, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        step();
        Ok(())
    }

    /// What the header of this ring's chunk at a position says.
    fn identity(&self, position: u64) -> u64 {
        position << 16 | self.index as u64
    }

    /// Takes the oldest record out. Only the one consumer may call this.
    pub(crate) fn pop(&self, reader: &mut Reader, into: &mut Words) -> Option<Popped> {
        // Acquire pairs with the producer's release.
        let head = self.control.head.load(Ordering::Acquire);
        if head == reader.tail {
            return None;
        }
        let queued = head.wrapping_sub(reader.tail);
        if queued > self.queued_max() + CHUNK_WORDS {
            return Some(Popped::Broken);
        }
        // Once more after the last record of a chunk.
        for _ in 0..2 {
            if reader.tail.is_multiple_of(CHUNK_WORDS) && !self.follow(reader) {
                return Some(Popped::Broken);
            }
            let (tail, chunk) = (reader.tail, reader.chunk);
            let word = self.chunks.slots(chunk, tail, 1);
            let word = word.map_or(0, |slot| slot[0].load(Ordering::Relaxed));
            let words = words_of(word);
            let end = tail.next_multiple_of(CHUNK_WORDS);
            if word == IN_NEXT_CHUNK && head > end {
                reader.tail = end;
                continue;
            }
            let slots = match words {
                1..=WORDS_MAX if tail + words as u64 <= head => {
                    self.chunks.slots(chunk, tail, words)
                }
                _ => None,
            };
            let Some(slots) = slots else { break };
            for (word, slot) in into.iter_mut().zip(slots) {
                *word = slot.load(Ordering::Relaxed);
            }
            reader.tail += words as u64;
            // Somebody may have written over the length between the two loads.
            if words_of(into[0]) == words {
                return Some(Popped::Record(words));
            }
            break;
        }
        Some(if self.skip(reader, head) {
            Popped::Damaged
        } else {
            Popped::Broken
        })
    }

    /// Goes on to the next chunk of the chain, and gives the one before it back. False if there is
    /// none where one must be.
    fn follow(&self, reader: &mut Reader) -> bool {
        let next = self.next_of(reader);
        if next == Chunk::NONE {
            return false;
        }
        self.chunks.give(reader.chunk);
        reader.chunk = next;
        reader.tail += HEADER_WORDS;
        true
    }

    /// The next chunk of the chain, where the consumer is at the end of its chunk.
    fn next_of(&self, reader: &Reader) -> Chunk {
        let number = match reader.chunk {
            Chunk::NONE => u64::from(self.control.first.load(Ordering::Relaxed)),
            chunk => self
                .chunks
                .link(chunk)
                .map_or(0, |link| link.load(Ordering::Relaxed)),
        };
        let chunk = Chunk::of(number);
        let position = reader.tail / CHUNK_WORDS + 1;
        if self.chunks.is(chunk, self.identity(position)) {
            chunk
        } else {
            Chunk::NONE
        }
    }

    /// Discards what is queued up to `head`.
    fn skip(&self, reader: &mut Reader, head: u64) -> bool {
        while reader.tail < head {
            if reader.tail.is_multiple_of(CHUNK_WORDS) && !self.follow(reader) {
                return false;
            }
            reader.tail = reader.tail.next_multiple_of(CHUNK_WORDS).min(head);
        }
        true
    }

    /// How many words are queued, headers of chunks included.
    pub(crate) fn queued_words(&self, reader: &Reader) -> usize {
        let head = self.control.head.load(Ordering::Acquire);
        let queued = head.wrapping_sub(reader.tail);
        queued.min(self.queued_max() + CHUNK_WORDS) as usize
    }

    /// Whether nothing is queued.
    pub(crate) fn is_empty(&self, reader: &Reader) -> bool {
        self.control.head.load(Ordering::Acquire) == reader.tail
    }

    /// Tells the producer how far the consumer is.
    pub(crate) fn acknowledge(&self, reader: &Reader) {
        let tail = &self.control.other.tail;
        if tail.load(Ordering::Relaxed) != reader.tail {
            tail.store(reader.tail, Ordering::Relaxed);
        }
    }

    /// Makes the ring ready for another owner. Only the consumer may call this. If the old owner
    /// `is_gone`, its chunks go back to the pool; else it may be writing to its last one, which is
    /// lost then.
    pub(crate) fn recycle(&self, reader: &mut Reader, is_gone: bool) {
        let mut chunk = std::mem::take(reader);
        // No more than may be queued, whatever the links say.
        for _ in 0..=self.queued_max() / CHUNK_WORDS + 1 {
            chunk.tail = chunk.tail.next_multiple_of(CHUNK_WORDS);
            let next = self.next_of(&chunk);
            if is_gone || next != Chunk::NONE {
                self.chunks.give(chunk.chunk);
            }
            if next == Chunk::NONE {
                break;
            }
            chunk.chunk = next;
            chunk.tail += HEADER_WORDS;
        }
        let control = self.control;
        for counter in [
            &control.other.lost_events,
            &control.other.lost_bytes,
            &control.other.nested,
            &control.other.tail,
            &control.sequence,
            &control.head,
        ] {
            counter.store(0, Ordering::Relaxed);
        }
        control.first.store(0, Ordering::Relaxed);
        control.released.store(0, Ordering::Relaxed);
        control.generation.fetch_add(1, Ordering::Relaxed);
        // Release: the next owner's claim sees all of the above.
        control.owner.store(0, Ordering::Release);
    }
}

/// Where a test lets a producer stop.
#[inline]
fn step() {
    #[cfg(test)]
    tests::step();
}

#[cfg(test)]
mod tests;
