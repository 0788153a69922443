//! Producer and consumer of one ring, in a segment of their own.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use crate::segment::{Layout, Segment};

thread_local! {
    /// How many steps the producer of this thread makes before it stops.
    static STEPS: Cell<u32> = const { Cell::new(u32::MAX) };
}

pub(super) fn step() {
    let left = STEPS.get();
    if left == 0 {
        // A panic that prints nothing.
        std::panic::resume_unwind(Box::new("stopped"));
    }
    STEPS.set(left.saturating_sub(1));
}

/// A segment with one ring, in which at most so many chunks may be queued.
fn segment(chunks: usize, ring_chunks: u32) -> Segment {
    let layout = Layout::new(1, chunks).expect("a layout");
    let segment = Segment::create(layout, 0, false).expect("a segment").1;
    let header = segment.header();
    header.ring_chunks.store(ring_chunks, Ordering::Relaxed);
    assert!(segment.back_control(0));
    segment
}

/// A record of `words` words whose payload is derived from `value`.
fn record(value: u64, words: usize) -> Vec<u64> {
    let mut record = vec![value; words];
    record[0] = (words as u64) << 8;
    record
}

/// The values and lengths of what is queued.
fn drain(ring: &Ring<'_>, reader: &mut Reader) -> Vec<(u64, usize)> {
    let mut buffer = [0; WORDS_MAX];
    let mut found = Vec::new();
    while let Some(popped) = ring.pop(reader, &mut buffer) {
        let Popped::Record(words) = popped else {
            panic!("{popped:?} after {found:?}")
        };
        assert!(buffer[1..words].iter().all(|&word| word == buffer[1]));
        found.push((buffer[1], words));
    }
    ring.acknowledge(reader);
    found
}

/// How many chunks of a pool are free.
fn free_chunks(ring: &Ring<'_>) -> usize {
    let taken = std::iter::from_fn(|| ring.chunks.take(page_bytes() as usize).ok());
    let taken: Vec<Chunk> = taken.collect();
    taken.iter().for_each(|&chunk| ring.chunks.give(chunk));
    taken.len()
}

#[test]
fn what_is_queued_takes_chunks_and_what_is_read_gives_them_back() {
    let segment = segment(8, 4);
    let ring = segment.ring(0).expect("a ring");
    let (mut writer, mut reader) = (Writer::default(), Reader::default());
    for round in 0..100 {
        let mut expected = Vec::new();
        for value in 0.. {
            let words = [6, 7, WORDS_MAX, 9][value as usize % 4];
            match ring.push(&mut writer, &record(value, words)) {
                Ok(()) => expected.push((value, words)),
                Err(refused) => {
                    assert_eq!(refused, Refused::Full);
                    break;
                }
            }
        }
        // In the first round 3 times 9 and up to 12 more; a chunk holds 3 large records at most.
        assert!(expected.len() > 30, "{round}: {}", expected.len());
        assert!((8 - 5..=8 - 4).contains(&free_chunks(&ring)));
        assert_eq!(drain(&ring, &mut reader), expected);
        assert_eq!(free_chunks(&ring), 7, "one stays with the thread");
    }
    ring.recycle(&mut reader, true);
    assert_eq!(free_chunks(&ring), 8);
}

#[test]
fn one_chunk_is_enough() {
    let segment = segment(2, 1);
    let ring = segment.ring(0).expect("a ring");
    let (mut writer, mut reader) = (Writer::default(), Reader::default());
    for _ in 0..10 {
        let record = record(1, 600);
        let taken = (0..10).filter(|_| ring.push(&mut writer, &record).is_ok());
        assert_eq!(taken.count(), 3);
        assert_eq!(drain(&ring, &mut reader), [(1, 600); 3]);
    }
    let large = record(1, CHUNK_WORDS as usize);
    assert_eq!(ring.push(&mut writer, &large), Err(Refused::Full));
}

#[test]
fn an_empty_pool_refuses_and_recovers() {
    let segment = segment(2, 100);
    let ring = segment.ring(0).expect("a ring");
    let (mut writer, mut reader) = (Writer::default(), Reader::default());
    let record = record(1, 6);
    let fill = |writer: &mut Writer| {
        let taken = (0..1000).filter(|_| ring.push(writer, &record).is_ok());
        taken.count()
    };
    assert_eq!(fill(&mut writer), 2 * 340);
    assert_eq!(drain(&ring, &mut reader).len(), 2 * 340);
    assert_eq!(
        fill(&mut writer),
        340,
        "the last chunk is still the producer's"
    );
}

#[test]
fn two_threads_lose_nothing_that_was_accepted() {
    let segment = segment(3, 2);
    let ring = segment.ring(0).expect("a ring");
    const COUNT: u64 = 200_000;
    let words_of = |value: u64| match value % 50 {
        49 => WORDS_MAX,
        other => 2 + other as usize % 9,
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = Writer::default();
            for value in 0..COUNT {
                let record = record(value, words_of(value));
                while ring.push(&mut writer, &record).is_err() {
                    std::thread::yield_now();
                }
            }
        });
        let mut reader = Reader::default();
        let mut next = 0;
        while next < COUNT {
            for (value, words) in drain(&ring, &mut reader) {
                assert_eq!((value, words), (next, words_of(next)));
                next += 1;
            }
            std::thread::yield_now();
        }
    });
}

/// Lets a producer stop at each step of a push into another chunk, and passes the ring on. Records
/// of 6 words with the values from 0 were pushed, then the one of 1000 at which it stopped.
fn stopped_at_each_step(before: usize, mut check: impl FnMut(&Ring<'_>, &mut Writer, u64)) {
    for steps in 0.. {
        let segment = segment(4, 3);
        let ring = segment.ring(0).expect("a ring");
        let mut writer = Writer::default();
        for value in 0..before {
            assert_eq!(ring.push(&mut writer, &record(value as u64, 6)), Ok(()));
        }
        let head = ring.head();
        STEPS.set(steps);
        let push = || ring.push(&mut writer, &record(1000, 600));
        let stopped = catch_unwind(AssertUnwindSafe(push));
        STEPS.set(u32::MAX);
        check(&ring, &mut writer, u64::from(ring.head() != head));
        if stopped.is_ok() {
            // As many steps as there are.
            assert!(steps >= 5, "{steps}");
            return;
        }
    }
}

#[test]
fn a_producer_may_leave_by_a_jump_at_any_step() {
    // At the first chunk, and where the second one begins.
    for before in [0, 330, 340] {
        stopped_at_each_step(before, |ring, writer, published| {
            for value in 2000..2400 {
                assert_eq!(ring.push(writer, &record(value, 6)), Ok(()));
            }
            let mut reader = Reader::default();
            let found: Vec<u64> = drain(ring, &mut reader).iter().map(|of| of.0).collect();
            let stopped_at = (0..published).map(|_| 1000);
            let expected = (0..before as u64).chain(stopped_at).chain(2000..2400);
            assert_eq!(found, expected.collect::<Vec<_>>());
            ring.recycle(&mut reader, true);
            assert!(free_chunks(ring) >= 3, "more than one was lost");
        });
    }
}

#[test]
fn a_producer_may_die_at_any_step() {
    for before in [0, 330, 340] {
        let mut lost = 0;
        stopped_at_each_step(before, |ring, _, published| {
            let mut reader = Reader::default();
            let found = drain(ring, &mut reader);
            assert_eq!(found.len() as u64, before as u64 + published);
            ring.recycle(&mut reader, true);
            lost += 4 - free_chunks(ring);
            // The ring serves another one.
            let mut writer = Writer::default();
            assert_eq!(ring.push(&mut writer, &record(7, 6)), Ok(()));
            assert_eq!(drain(ring, &mut reader), [(7, 6)]);
        });
        assert!(lost <= 4, "{lost}: only before it is linked");
    }
}

#[test]
fn damage_is_noticed_and_survived() {
    let segment = segment(8, 4);
    let ring = segment.ring(0).expect("a ring");
    let (mut writer, mut reader) = (Writer::default(), Reader::default());
    let mut buffer = [0; WORDS_MAX];
    let mut push = |count, words| {
        for value in 0..count {
            assert_eq!(ring.push(&mut writer, &record(value, words)), Ok(()));
        }
    };
    // Longer than what is queued; or than the chunk, with more queued in the next one.
    for (count, words, length) in [
        (1, 4, 9),
        (1, 4, WORDS_MAX + 1),
        (9, 600, 3000),
        (9, 600, 0),
    ] {
        let at = ring.head().max(HEADER_WORDS);
        push(count, words);
        let chunk = match reader.chunk {
            Chunk::NONE => Chunk::of(1),
            chunk => chunk,
        };
        let slot = &ring.chunks.slots(chunk, at, 1).expect("a slot")[0];
        slot.store((length as u64) << 8, Ordering::Relaxed);
        let popped = ring.pop(&mut reader, &mut buffer);
        assert_eq!(popped, Some(Popped::Damaged), "{count} {words} {length}");
        assert_eq!(ring.pop(&mut reader, &mut buffer), None);
        ring.acknowledge(&reader);
        push(1, 4);
        assert_eq!(ring.pop(&mut reader, &mut buffer), Some(Popped::Record(4)));
    }
}

#[test]
fn a_broken_chain_is_noticed_and_leads_nowhere() {
    let broken = |damage: &dyn Fn(&Ring<'_>)| {
        let segment = segment(8, 4);
        let ring = segment.ring(0).expect("a ring");
        let (mut writer, mut reader) = (Writer::default(), Reader::default());
        for value in 0..1000 {
            assert_eq!(ring.push(&mut writer, &record(value, 6)), Ok(()));
        }
        damage(&ring);
        let mut buffer = [0; WORDS_MAX];
        let popped = std::iter::from_fn(|| ring.pop(&mut reader, &mut buffer));
        let last = popped.take(1001).find(|popped| *popped == Popped::Broken);
        assert_eq!(last, Some(Popped::Broken));
        ring.recycle(&mut reader, false);
        let mut writer = Writer::default();
        assert_eq!(ring.push(&mut writer, &record(7, 6)), Ok(()));
        assert_eq!(drain(&ring, &mut reader), [(7, 6)]);
    };
    broken(&|ring| ring.control.head.store(1 << 60, Ordering::Relaxed));
    broken(&|ring| ring.control.first.store(0, Ordering::Relaxed));
    // Back to itself, on to a later one, and to none.
    for number in [1, 3, 0, 77, u64::MAX] {
        let link = move |ring: &Ring<'_>| {
            let link = ring.chunks.link(Chunk::of(1)).expect("a link");
            link.store(number, Ordering::Relaxed);
        };
        broken(&link);
    }
}

#[test]
fn a_producer_notices_that_its_position_is_written_over() {
    let segment = segment(8, 4);
    let ring = segment.ring(0).expect("a ring");
    let mut writer = Writer::default();
    for position in [1 << 60, u64::MAX, 3 * CHUNK_WORDS] {
        assert_eq!(ring.push(&mut writer, &record(1, 6)), Ok(()));
        let head = ring.control.head.swap(position, Ordering::Relaxed);
        let refused = ring.push(&mut writer, &record(1, 6));
        assert_eq!(refused, Err(Refused::Broken), "{position}");
        ring.control.head.store(head, Ordering::Relaxed);
    }
}
