//! The queue between one recorded thread and the agent: single producer, single consumer, in shared
//! memory.
//!
//! Positions count words and only grow; a position's slot is its low bits. The producer owns `head`
//! and the consumer `tail`, on cache lines of their own. Words are stored relaxed and published by
//! a release store of `head`, so a consumer that sees a position also sees the words below it. A
//! full ring refuses the record: the program that is recorded never waits. Neither side trusts the
//! other's numbers, since the memory is open to any stray store of the recorded program.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::record::{WORDS_MAX, Words, words_of};

/// The control part of one ring. All-zero bytes are an unused ring.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Control {
    /// The owner, packed by [`crate::program_session`]; 0 for a free ring.
    pub(crate) owner: AtomicU64,
    /// Counts owners. A producer that finds it changed has lost the ring.
    pub(crate) generation: AtomicU64,
    /// The sequence number of its claim in the session; 0 until the owner has set it.
    pub(crate) sequence: AtomicU64,
    /// Set by an owner that has ended.
    pub(crate) released: AtomicU32,
    head: Line,
    /// Accesses that found the ring full, and the bytes that they moved.
    pub(crate) lost_events: AtomicU64,
    pub(crate) lost_bytes: AtomicU64,
    /// Calls made by a signal handler that interrupted the recorder.
    pub(crate) nested: AtomicU64,
    tail: Line,
}

#[repr(C, align(64))]
#[derive(Debug, Default)]
struct Line(AtomicU64);

/// A view of one ring: its control part and its slots, a power of two of them.
#[derive(Clone, Copy, Debug)]
pub struct Ring<'a> {
    pub(crate) control: &'a Control,
    slots: &'a [AtomicU64],
}

/// What [`Ring::pop`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Popped {
    /// A record of this many words.
    Record(usize),
    /// Positions or lengths that no producer writes; the content of the ring was discarded.
    Damaged,
}

impl<'a> Ring<'a> {
    /// A ring over `slots`. `None` unless their number is a power of two.
    pub fn new(control: &'a Control, slots: &'a [AtomicU64]) -> Option<Self> {
        slots
            .len()
            .is_power_of_two()
            .then_some(Ring { control, slots })
    }

    fn slot(&self, position: u64) -> Option<&AtomicU64> {
        self.slots.get(position as usize & (self.slots.len() - 1))
    }

    /// The producer's position: how many words this owner has pushed.
    #[inline]
    pub fn head(&self) -> u64 {
        self.control.head.0.load(Ordering::Relaxed)
    }

    /// Appends a record, or refuses it if there is no room. Only the ring's owner may call this.
    #[inline]
    pub fn push(&self, record: &[u64]) -> bool {
        let head = self.head();
        // Acquire pairs with the consumer's release: its loads of the slots are done before we
        // overwrite them.
        let queued = head.wrapping_sub(self.control.tail.0.load(Ordering::Acquire));
        if queued.saturating_add(record.len() as u64) > self.slots.len() as u64 {
            return false;
        }
        for (position, &word) in (head..).zip(record) {
            if let Some(slot) = self.slot(position) {
                slot.store(word, Ordering::Relaxed);
            }
        }
        self.control
            .head
            .0
            .store(head.wrapping_add(record.len() as u64), Ordering::Release);
        true
    }

    /// Takes the oldest record out. Only the one consumer may call this.
    pub fn pop(&self, into: &mut Words) -> Option<Popped> {
        let head = self.control.head.0.load(Ordering::Acquire);
        let tail = self.control.tail.0.load(Ordering::Relaxed);
        if head == tail {
            return None;
        }
        let queued = head.wrapping_sub(tail);
        let words = self
            .slot(tail)
            .map_or(0, |slot| words_of(slot.load(Ordering::Relaxed)));
        if words == 0
            || words > WORDS_MAX
            || words as u64 > queued
            || queued > self.slots.len() as u64
        {
            self.control.tail.0.store(head, Ordering::Release);
            return Some(Popped::Damaged);
        }
        for (word, position) in into.iter_mut().zip(tail..tail.wrapping_add(words as u64)) {
            *word = self
                .slot(position)
                .map_or(0, |slot| slot.load(Ordering::Relaxed));
        }
        self.control
            .tail
            .0
            .store(tail.wrapping_add(words as u64), Ordering::Release);
        // The producer may have overwritten the length between the two loads.
        Some(if words_of(into[0]) == words {
            Popped::Record(words)
        } else {
            Popped::Damaged
        })
    }

    /// Makes the ring ready for another owner. Only the consumer may call this, when the old owner
    /// is gone.
    pub(crate) fn recycle(&self) {
        let control = self.control;
        for counter in [
            &control.lost_events,
            &control.lost_bytes,
            &control.nested,
            &control.sequence,
        ] {
            counter.store(0, Ordering::Relaxed);
        }
        control.head.0.store(0, Ordering::Relaxed);
        control.tail.0.store(0, Ordering::Relaxed);
        control.released.store(0, Ordering::Relaxed);
        control.generation.fetch_add(1, Ordering::Relaxed);
        // Release: the next owner's claim sees all of the above.
        control.owner.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(count: usize) -> Vec<AtomicU64> {
        (0..count).map(|_| AtomicU64::new(0)).collect()
    }

    /// A record of `words` words whose payload is derived from `value`.
    fn record(value: u64, words: usize) -> Vec<u64> {
        let mut record = vec![value; words];
        record[0] = (words as u64) << 8;
        record
    }

    #[test]
    fn wraps_and_refuses_when_full() {
        let (control, slots) = (Control::default(), slots(16));
        let ring = Ring::new(&control, &slots).expect("a power of two");
        let mut buffer = [0; WORDS_MAX];
        for value in 0..100 {
            assert!(ring.push(&record(value, 7)));
            assert!(ring.push(&record(value + 1000, 6)));
            assert!(!ring.push(&record(value, 4)), "13 of 16 words are taken");
            assert_eq!(ring.pop(&mut buffer), Some(Popped::Record(7)));
            assert_eq!(buffer[1..7], [value; 6]);
            assert_eq!(ring.pop(&mut buffer), Some(Popped::Record(6)));
            assert_eq!(buffer[1..6], [value + 1000; 5]);
            assert_eq!(ring.pop(&mut buffer), None);
        }
        assert!(!ring.push(&record(1, 17)), "larger than the ring");
    }

    #[test]
    fn two_threads_lose_nothing_that_was_accepted() {
        let (control, slots) = (Control::default(), slots(64));
        let ring = Ring::new(&control, &slots).expect("a power of two");
        const COUNT: u64 = 200_000;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for value in 0..COUNT {
                    let record = record(value, 2 + (value % 9) as usize);
                    while !ring.push(&record) {
                        std::thread::yield_now();
                    }
                }
            });
            let mut buffer = [0; WORDS_MAX];
            for value in 0..COUNT {
                let words = 2 + (value % 9) as usize;
                let popped = loop {
                    match ring.pop(&mut buffer) {
                        Some(popped) => break popped,
                        None => std::thread::yield_now(),
                    }
                };
                assert_eq!(popped, Popped::Record(words));
                assert!(buffer[1..words].iter().all(|&word| word == value));
            }
        });
    }

    #[test]
    fn damage_is_noticed_and_survived() {
        let (control, slots) = (Control::default(), slots(16));
        let ring = Ring::new(&control, &slots).expect("a power of two");
        let mut buffer = [0; WORDS_MAX];
        ring.push(&record(1, 4));
        slots[0].store(9 << 8, Ordering::Relaxed);
        assert_eq!(
            ring.pop(&mut buffer),
            Some(Popped::Damaged),
            "longer than what is queued"
        );
        control.head.0.store(1 << 60, Ordering::Relaxed);
        assert_eq!(
            ring.pop(&mut buffer),
            Some(Popped::Damaged),
            "a position from nowhere"
        );
        assert_eq!(ring.pop(&mut buffer), None);
        assert!(ring.push(&record(2, 4)));
        assert_eq!(ring.pop(&mut buffer), Some(Popped::Record(4)));
    }
}
