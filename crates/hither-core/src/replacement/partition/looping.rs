//! The part for looping blocks: evicts from the longest period first, and there the most recently
//! used block.
//!
//! Source: PCC paper, section 5.1, after UBM, section 3.2. The paper compares the periods of blocks
//! and breaks ties by MRU. A period belongs to a stream (a site, a file, a process), and is an
//! average, so the ties of the paper are between blocks of one stream. Here blocks are grouped by
//! stream, and a block's period is its stream's current one, not that at the block's last
//! reference.
//!
//! Departure: periods with the same power of two count as equal, and MRU decides among their
//! streams. The streams of one loop (the call sites that alternate in it) have periods that differ
//! by a percent and change places from round to round; with exact periods each change evicts what
//! the last one kept. On cscope recorded here (2026-11), with caches of 5 / 10 / 25 / 50 / 75 % of
//! its blocks, pcc's hit ratio is .038 / .083 / .217 / .438 / .658, and .026 / .059 / .177 / .394 /
//! .601 with exact periods; opt's is .046 / .090 / .221 / .441 / .661. Finer steps (a quarter or an
//! eighth of a power of two) give the same within a point.
//!
//! Departure: loops end, which the paper ignores. The blocks of a short loop that has ended would
//! keep their high gain, and stay for ever. A stream whose least recent block is overdue, older
//! than `expire` periods, does not loop as predicted; its blocks are worth nothing, and the least
//! recent one goes first. `expire=0` is the paper's behaviour. With each LIRS trace as one call
//! site and a cache of 10 % of its blocks (2026-11), pcc's hit ratio at expire 0 / 2 / 4 / 10 is
//! .27 / .45 / .47 / .36 on ps and .30 / .77 / .76 / .69 on cpp; on cs, loop and scan, whose loops
//! do not end, it varies by less than .001.
//!
//! Departure: for this, the period of a steady stream is at least its [`Stream::steady_period`].
//! The latest period is half of it or less at the start of a shuffled epoch, and most blocks would
//! be overdue. Together with what [`partition`](super) does for such streams this brings pcc to
//! within a percent of the optimum for epochs over 1000 blocks and more.

use crate::classify::{Stream, at};
use crate::heap::IndexedHeap;
use crate::ids::{Slot, Tick};
use crate::list::{Links, List};
use std::cmp::Reverse;

#[derive(Clone, Copy, Debug, Default)]
struct StreamBlocks {
    /// The latest reference in front.
    recency: List,
    period: u64,
    /// The period by which blocks are overdue.
    lease_period: u64,
}

impl StreamBlocks {
    /// Whether this changed anything.
    fn revise(&mut self, stream: Stream) -> bool {
        let lease_period = stream.period.max(stream.steady_period).max(1);
        let before = (self.period, self.lease_period);
        (self.period, self.lease_period) = (stream.period, lease_period);
        before != (stream.period, lease_period)
    }
}

#[derive(Clone, Debug)]
pub(super) struct Looping {
    expire: f64,
    slots: Links,
    streams: Vec<StreamBlocks>,
    /// Streams with blocks, by the magnitude of the period, then by the latest reference.
    longest: IndexedHeap<(u32, Tick)>,
    /// The same streams, by the tick at which their least recent block is overdue.
    due: IndexedHeap<Reverse<Tick>>,
    len: usize,
    stream: Vec<u32>,
    tick: Vec<Tick>,
}

/// The block that this part would evict, and its value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offer {
    pub(super) slot: Slot,
    /// Expected hits a reference.
    pub(super) gain: f64,
}

impl Looping {
    pub(super) fn new(capacity: u32, expire: f64) -> Self {
        Looping {
            expire,
            slots: Links::new(capacity as usize),
            streams: Vec::new(),
            longest: IndexedHeap::new(),
            due: IndexedHeap::new(),
            len: 0,
            stream: vec![0; capacity as usize],
            tick: vec![0; capacity as usize],
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn insert(&mut self, slot: Slot, stream: Stream, tick: Tick) {
        let blocks = at(&mut self.streams, stream.id);
        blocks.revise(stream);
        blocks.recency.push_front(&mut self.slots, slot.0);
        self.stream[slot.index()] = stream.id;
        self.tick[slot.index()] = tick;
        self.len += 1;
        self.rank(stream.id);
    }

    pub(super) fn remove(&mut self, slot: Slot) {
        let stream = self.stream[slot.index()];
        self.streams[stream as usize]
            .recency
            .remove(&mut self.slots, slot.0);
        self.len -= 1;
        self.rank(stream);
    }

    /// Sets a stream's period.
    pub(super) fn revise(&mut self, stream: Stream) {
        if let Some(blocks) = self.streams.get_mut(stream.id as usize)
            && blocks.revise(stream)
        {
            self.rank(stream.id);
        }
    }

    /// Updates a stream's place in both orders.
    fn rank(&mut self, stream: u32) {
        let StreamBlocks {
            recency,
            period,
            lease_period,
        } = self.streams[stream as usize];
        let (Some(oldest), Some(latest)) = (recency.back(), recency.front()) else {
            self.longest.remove(stream);
            self.due.remove(stream);
            return;
        };
        self.longest
            .set(stream, (magnitude(period), self.tick[latest as usize]));
        if self.expire > 0.0 {
            let lease = (self.expire * lease_period as f64) as u64;
            self.due.set(
                stream,
                Reverse(self.tick[oldest as usize].saturating_add(lease)),
            );
        }
    }

    /// A block of a loop that has ended, if there is one: the least recent block of the loop that
    /// was overdue first.
    pub(super) fn overdue(&self, now: Tick) -> Option<Slot> {
        let (Reverse(due), stream) = self.due.top()?;
        let oldest = self.streams[stream as usize].recency.back()?;
        (due < now).then_some(Slot(oldest))
    }

    /// The next block to evict of the loops that have not ended; none if there is no block.
    pub(super) fn offer(&self) -> Option<Offer> {
        let (_, stream) = self.longest.top()?;
        let StreamBlocks {
            recency, period, ..
        } = self.streams[stream as usize];
        let latest = recency.front()?;
        Some(Offer {
            slot: Slot(latest),
            gain: 1.0 / period.max(1) as f64,
        })
    }

    pub(super) fn check(&self) {
        self.longest.check();
        self.due.check();
        let mut len = 0;
        for (stream, blocks) in self.streams.iter().enumerate() {
            blocks.recency.check(&self.slots);
            len += blocks.recency.len();
            for slot in blocks.recency.iter(&self.slots) {
                assert_eq!(self.stream[slot as usize] as usize, stream);
            }
        }
        assert_eq!(len, self.len);
        let filled = self
            .streams
            .iter()
            .filter(|blocks| !blocks.recency.is_empty())
            .count();
        assert_eq!(self.longest.len(), filled);
        assert_eq!(self.due.len(), if self.expire > 0.0 { filled } else { 0 });
    }
}

/// Periods with the same power of two count as equal.
fn magnitude(period: u64) -> u32 {
    period.max(1).ilog2()
}
