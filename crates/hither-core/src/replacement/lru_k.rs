//! LRU-K: evicts the block whose K-th last reference is oldest, so that a single reference (a scan)
//! counts for nothing. Blocks with fewer than K references go first, the least recently used before
//! the others. The reference times of an evicted block are remembered for a while; otherwise a
//! block that returns late could never have a second reference.
//!
//! Source: O'Neil, O'Neil and Weikum, "The LRU-K page replacement algorithm for database disk
//! buffering", SIGMOD 1993, figure 2.1. References within `correlated` ticks of the one before
//! count as one reference. A block within that period is not evicted, unless all are: then the
//! least recently referenced goes. Departures:
//! - What is remembered of evicted blocks is bounded by their number, `history`, not by time: the
//!   earliest evicted is forgotten first. With a bound in time a scan would take any amount of
//!   memory.
//! - When the correlated period is added to earlier times, a missing time stays missing; in the
//!   figure it would turn into a reference at the start.
//!
//! Times only grow, so a hit leaves the heap as it is: a key in the heap is a lower bound, and is
//! updated when it comes to the top. With `correlated` the heap holds only blocks that may be
//! evicted, so there a hit removes its block.

use super::Replacement;
use crate::access::Access;
use crate::cache::ReplacementPolicy;
use crate::entry::{
    Compared, Mechanism, Needs, Param, ReplacementEntry, ReplacementSettings, Values,
};
use crate::heap::IndexedHeap;
use crate::ids::{Slot, Tick};
use crate::list::{Links, List, NIL};
use std::cmp::Reverse;

/// The line in the registry.
pub(crate) const ENTRY: ReplacementEntry = ReplacementEntry {
    name: "lru-k",
    summary: "evicts the block whose k-th last reference is oldest",
    source: "O'Neil, O'Neil and Weikum, SIGMOD 1993",
    params: PARAMS,
    needs: Needs::NOTHING,
    takes_sizes: false,
    live: &[Mechanism::PageCache],
    compared: Compared::ByName,
    build: &build,
};

const PARAMS: &[Param] = &[
    Param::count(
        "k",
        "which reference counts, from the last one back",
        2,
        1..=16,
    ),
    Param::count(
        "correlated",
        "references to a block within so many references of the one before count as one",
        0,
        0..=u64::MAX,
    ),
    Param::real(
        "history",
        "the most evicted blocks whose references are remembered, in multiples of the cache",
        1.0,
        0.0..=1000.0,
    ),
];

fn build(settings: &ReplacementSettings<'_>, values: &Values) -> Box<dyn ReplacementPolicy> {
    let (k, correlated) = (values.count(0) as usize, values.count(1));
    Box::new(LruK::new(settings.capacity, k, correlated, values.real(2)))
}

/// Where a resident block is ranked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ranking {
    /// Referenced within the correlated period, at least when it was last examined.
    Recent,
    /// Fewer than k references.
    Few,
    /// In the heap.
    Ranked,
}

/// See the module.
///
/// The times of a block are a record in `times`: its last reference, then the last uncorrelated
/// one, the one before, and so on to the k-th. A time is the tick plus one; 0 is none. An evicted
/// block keeps its record.
#[derive(Clone, Debug)]
pub struct LruK {
    k: usize,
    correlated: u64,
    history: f64,
    ghosts_max: usize,
    times: Vec<Tick>,
    free: Vec<u32>,
    /// By slot.
    record_of: Vec<u32>,
    block_of: Vec<u32>,
    place: Vec<Ranking>,
    links: Links,
    /// Over slots, by last reference.
    recent: List,
    few: List,
    /// The lowest k-th time on top, then the lowest last time; keys may be out of date, and then
    /// they are too low.
    ranked: IndexedHeap<Reverse<(Tick, Tick)>>,
    /// By block, the record of a ghost.
    ghost: Vec<u32>,
    /// By record, the block of a ghost.
    ghost_block: Vec<u32>,
    ghost_links: Links,
    /// Over records, by eviction.
    ghosts: List,
}

impl LruK {
    /// For a cache of `capacity` blocks.
    pub fn new(capacity: u32, k: usize, correlated: u64, history: f64) -> Self {
        LruK {
            k,
            correlated,
            history,
            ghosts_max: (history * f64::from(capacity)) as usize,
            times: Vec::new(),
            free: Vec::new(),
            record_of: vec![NIL; capacity as usize],
            block_of: vec![NIL; capacity as usize],
            place: vec![Ranking::Few; capacity as usize],
            links: Links::new(capacity as usize),
            recent: List::default(),
            few: List::default(),
            ranked: IndexedHeap::new(),
            ghost: Vec::new(),
            ghost_block: Vec::new(),
            ghost_links: Links::default(),
            ghosts: List::default(),
        }
    }

    #[inline]
    fn record(&mut self, record: u32) -> &mut [Tick] {
        let length = self.k + 1;
        &mut self.times[record as usize * length..][..length]
    }

    /// The time of the k-th last reference and of the last.
    #[inline]
    fn key(&self, slot: u32) -> (Tick, Tick) {
        let start = self.record_of[slot as usize] as usize * (self.k + 1);
        (self.times[start + self.k], self.times[start])
    }

    /// Ranks a block that is not ranked and was referenced later than all that are.
    #[inline]
    fn rank(&mut self, slot: u32) {
        let key = self.key(slot);
        if key.0 == 0 {
            self.place[slot as usize] = Ranking::Few;
            self.few.push_front(&mut self.links, slot);
        } else {
            self.place[slot as usize] = Ranking::Ranked;
            self.ranked.set(slot, Reverse(key));
        }
    }

    #[inline]
    fn enter(&mut self, slot: u32) {
        if self.correlated == 0 {
            self.rank(slot);
        } else {
            self.place[slot as usize] = Ranking::Recent;
            self.recent.push_front(&mut self.links, slot);
        }
    }

    #[inline]
    fn leave(&mut self, slot: u32) {
        match self.place[slot as usize] {
            Ranking::Recent => self.recent.remove(&mut self.links, slot),
            Ranking::Few => self.few.remove(&mut self.links, slot),
            Ranking::Ranked => self.ranked.remove(slot),
        }
    }

    /// The lowest of the ranked blocks.
    fn lowest(&mut self) -> Option<u32> {
        while let Some((Reverse(key), slot)) = self.ranked.top() {
            let now = self.key(slot);
            if key == now {
                return Some(slot);
            }
            self.ranked.set(slot, Reverse(now));
        }
        None
    }

    fn free_record(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            let record = self.ghost_block.len() as u32;
            self.times.resize(self.times.len() + self.k + 1, 0);
            self.ghost_block.push(NIL);
            self.ghost_links.cover(record);
            record
        })
    }

    fn cut_ghosts(&mut self) {
        while self.ghosts.len() > self.ghosts_max {
            let Some(record) = self.ghosts.pop_back(&mut self.ghost_links) else {
                break;
            };
            self.ghost[self.ghost_block[record as usize] as usize] = NIL;
            self.free.push(record);
        }
    }
}

impl Replacement for LruK {
    #[inline]
    fn hit(&mut self, slot: Slot, access: &Access) {
        let (slot, now) = (slot.0, access.tick + 1);
        let correlated = self.correlated;
        let times = self.record(self.record_of[slot as usize]);
        let last = std::mem::replace(&mut times[0], now);
        if now - last > correlated {
            let period = last - times[1];
            for at in (2..times.len()).rev() {
                times[at] = match times[at - 1] {
                    0 => 0,
                    time => time + period,
                };
            }
            times[1] = now;
        }
        if correlated > 0 || self.place[slot as usize] == Ranking::Few {
            self.leave(slot);
            self.enter(slot);
        }
    }

    fn victim(&mut self, incoming: &Access) -> Slot {
        let now = incoming.tick + 1;
        while let Some(slot) = self.recent.back() {
            if now - self.key(slot).1 <= self.correlated {
                break;
            }
            self.recent.remove(&mut self.links, slot);
            self.rank(slot);
        }
        let slot = self
            .few
            .back()
            .or_else(|| self.lowest())
            .or_else(|| self.recent.back())
            .expect("a full cache has a block");
        self.leave(slot);
        let (record, block) = (self.record_of[slot as usize], self.block_of[slot as usize]);
        if block as usize >= self.ghost.len() {
            self.ghost.resize(block as usize + 1, NIL);
        }
        self.ghost[block as usize] = record;
        self.ghost_block[record as usize] = block;
        self.ghosts.push_front(&mut self.ghost_links, record);
        self.cut_ghosts();
        Slot(slot)
    }

    fn inserted(&mut self, slot: Slot, access: &Access) {
        let (block, now) = (access.block.0, access.tick + 1);
        let ghost = self.ghost.get(block as usize).copied().unwrap_or(NIL);
        let record = if ghost == NIL {
            let record = self.free_record();
            self.record(record).fill(0);
            record
        } else {
            self.ghost[block as usize] = NIL;
            self.ghosts.remove(&mut self.ghost_links, ghost);
            ghost
        };
        let times = self.record(record);
        times[0] = now;
        times[1..].rotate_right(1);
        times[1] = now;
        self.record_of[slot.index()] = record;
        self.block_of[slot.index()] = block;
        self.enter(slot.0);
    }

    fn removed(&mut self, slot: Slot) {
        self.leave(slot.0);
        self.free.push(self.record_of[slot.index()]);
    }

    fn resized(&mut self, capacity: u32) {
        self.ghosts_max = (self.history * f64::from(capacity)) as usize;
        self.cut_ghosts();
    }

    fn check(&self, resident: usize) {
        self.recent.check(&self.links);
        self.few.check(&self.links);
        self.ranked.check();
        self.ghosts.check(&self.ghost_links);
        assert_eq!(
            self.recent.len() + self.few.len() + self.ranked.len(),
            resident
        );
        assert_eq!(
            resident + self.ghosts.len() + self.free.len(),
            self.ghost_block.len(),
            "a record is lost"
        );
        assert!(self.ghosts.len() <= self.ghosts_max);
        for (list, place) in [(&self.recent, Ranking::Recent), (&self.few, Ranking::Few)] {
            let mut before = Tick::MAX;
            for slot in list.iter(&self.links) {
                assert_eq!(self.place[slot as usize], place);
                let (kth, last) = self.key(slot);
                assert!(last < before, "slot {slot} is out of order");
                assert!(place == Ranking::Recent || kth == 0);
                before = last;
            }
        }
        for slot in 0..self.place.len() as u32 {
            if let Some(Reverse(key)) = self.ranked.key(slot) {
                assert_eq!(self.place[slot as usize], Ranking::Ranked);
                assert!(key <= self.key(slot), "slot {slot} is ranked too high");
                assert!(self.correlated == 0 || key == self.key(slot));
            }
        }
        for record in self.ghosts.iter(&self.ghost_links) {
            let block = self.ghost_block[record as usize];
            assert_eq!(self.ghost[block as usize], record);
        }
    }
}
