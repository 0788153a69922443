//! The part for looping blocks: evicts from the longest period first, and there the most recently
//! used block.
//!
//! Source: PCC paper, section 5.1, after UBM, section 3.2. The paper compares the periods of blocks
//! and breaks ties by MRU. A period belongs to a stream (a site, a file, a process), and is an
//! average, so the ties of the paper are between blocks of one stream. Here blocks are grouped by
//! stream.
//!
//! Departure (`period_of`): a block's period is its stream's current one. In figure 4 of the PCC
//! paper each reference returns the class and the period, and a block keeps both until its next
//! reference.
//!
//! Departure (`periods`): periods with the same power of two count as equal, and MRU decides among
//! their streams. The streams of one loop (the call sites that alternate in it) have periods that
//! differ by a percent and change places from round to round; with exact periods each change evicts
//! what the last one kept. On cscope recorded here (2026-11), with caches of 5 / 10 / 25 / 50 / 75
//! % of its blocks, pcc's hit ratio is .038 / .083 / .217 / .438 / .658, and .026 / .059 / .177 /
//! .394 / .601 with exact periods; opt's is .046 / .090 / .221 / .441 / .661. Finer steps (a
//! quarter or an eighth of a power of two) give the same within a point.
//!
//! Departure (`expire`): loops end, which the paper ignores. The blocks of a short loop that has
//! ended would keep their high gain, and stay for ever. A stream whose least recent block is
//! overdue, older than `expire` periods, does not loop as predicted; its blocks are worth nothing,
//! and the least recent one goes first. `expire=0` is the paper's behaviour. With each LIRS trace
//! as one call site and a cache of 10 % of its blocks (2026-11), pcc's hit ratio at expire 0 / 2 /
//! 4 / 10 is .27 / .45 / .47 / .36 on ps and .30 / .77 / .76 / .69 on cpp; on cs, loop and scan,
//! whose loops do not end, it varies by less than .001.
//!
//! Departure (`steady`): for this, the period of a steady stream is at least its
//! [`Stream::steady_period`]. The latest period is half of it or less at the start of a shuffled
//! epoch, and most blocks would be overdue. Together with what [`partition`](super) does for such
//! streams this brings pcc to within a percent of the optimum for epochs over 1000 blocks and more.

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

/// How looping blocks are ordered.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoopingRules {
    /// A loop that has not returned for so many periods has ended; 0: never.
    pub(super) expire: f64,
    /// Periods are compared exactly, not by their powers of two.
    pub(super) exact: bool,
    /// A block has the period of its last reference, not its stream's present one.
    pub(super) by_block: bool,
}

/// What is evicted first: the longest period, then the latest reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// The rank of the period.
    period: u64,
    latest: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Looping {
    rules: LoopingRules,
    slots: Links,
    streams: Vec<StreamBlocks>,
    /// Streams with blocks, by the rank of the period, then by the latest reference; slots in place
    /// of streams where each block has its own period.
    longest: IndexedHeap<Rank>,
    /// The streams with blocks, by the tick at which their least recent block is overdue.
    due: IndexedHeap<Reverse<Tick>>,
    len: usize,
    stream: Vec<u32>,
    tick: Vec<Tick>,
    /// By slot, the period at its last reference.
    period: Vec<u64>,
    /// How many blocks were inserted so far.
    insertions: u64,
}

/// The block that this part would evict, and its value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offer {
    pub(super) slot: Slot,
    /// Expected hits a reference.
    pub(super) gain: f64,
}

impl Looping {
    pub(super) fn new(capacity: u32, rules: LoopingRules) -> Self {
        Looping {
            rules,
            slots: Links::new(capacity as usize),
            streams: Vec::new(),
            longest: IndexedHeap::new(),
            due: IndexedHeap::new(),
            len: 0,
            stream: vec![0; capacity as usize],
            tick: vec![0; capacity as usize],
            period: vec![0; capacity as usize],
            insertions: 0,
        }
    }

    /// Blocks of the highest rank are evicted first.
    fn rank_of(&self, period: u64) -> u64 {
        if self.rules.exact {
            period
        } else {
            u64::from(period.max(1).ilog2())
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
        self.period[slot.index()] = stream.period;
        self.len += 1;
        self.insertions += 1;
        if self.rules.by_block {
            let rank = self.rank_of(stream.period);
            let latest = self.insertions;
            self.longest.set(
                slot.0,
                Rank {
                    period: rank,
                    latest,
                },
            );
        }
        self.rank(stream.id);
    }

    pub(super) fn remove(&mut self, slot: Slot) {
        let stream = self.stream[slot.index()];
        self.streams[stream as usize]
            .recency
            .remove(&mut self.slots, slot.0);
        self.len -= 1;
        if self.rules.by_block {
            self.longest.remove(slot.0);
        }
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
        let by_stream = !self.rules.by_block;
        let (Some(oldest), Some(latest)) = (recency.back(), recency.front()) else {
            if by_stream {
                self.longest.remove(stream);
            }
            self.due.remove(stream);
            return;
        };
        if by_stream {
            let rank = self.rank_of(period);
            let latest = self.tick[latest as usize];
            self.longest.set(
                stream,
                Rank {
                    period: rank,
                    latest,
                },
            );
        }
        if self.rules.expire > 0.0 {
            let lease = (self.rules.expire * lease_period as f64) as u64;
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
        let (_, top) = self.longest.top()?;
        let (slot, period) = if self.rules.by_block {
            (top, self.period[top as usize])
        } else {
            let blocks = &self.streams[top as usize];
            (blocks.recency.front()?, blocks.period)
        };
        Some(Offer {
            slot: Slot(slot),
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
        let ranked = if self.rules.by_block { len } else { filled };
        assert_eq!(self.longest.len(), ranked);
        let leased = if self.rules.expire > 0.0 { filled } else { 0 };
        assert_eq!(self.due.len(), leased);
    }
}
