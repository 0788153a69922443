//! Segmented LRU: the cache is a stack of LRU lists of equal size. A new block enters the lowest. A
//! hit moves its block to the recent end of the next higher list, and a list that grows too large
//! moves its least recent block to the recent end of the next lower one. The victim is the least
//! recent block of the lowest list. So each further list asks for one more hit.
//!
//! Source: Karedla, Love and Wherry, "Caching strategies to improve disk system performance", IEEE
//! Computer 27(3), 1994, with two segments; Huang, Birman, van Renesse, Lloyd, Kumar and Li, "An
//! analysis of Facebook photo caching", SOSP 2013, section 6.1, with four of equal size (S4LRU);
//! and libCacheSim's `SLRU`, which this follows: while the cache fills, a new block enters the
//! lowest segment that has room. `newcomers=lowest` is S4LRU, where each enters the lowest segment.
//! The two differ in nothing else, and once all segments are full they are one.
//!
//! Departures:
//! - Nothing is evicted while the cache has room. S4LRU evicts from its lowest segment before the
//!   others are full.
//! - The lowest segment has no bound of its own but what the others leave: nothing is evicted on a
//!   hit. libCacheSim evicts on a hit where the capacity is no multiple of the segments, or where
//!   objects differ in size. Where neither is so, miss counts are equal.
//! - A cache of fewer blocks than segments is LRU. libCacheSim admits nothing there.
//!
//! As in libCacheSim, an object larger than a segment is not brought in.

use super::Replacement;
use crate::access::Access;
use crate::entry::{Compared, Mechanism, Needs, Param, ReplacementEntry};
use crate::ids::Slot;
use crate::list::Links;
use crate::weight::{self, Bytes, Part, Unit, Weight, Weights};

/// The line in the registry.
pub(crate) const ENTRY: ReplacementEntry = ReplacementEntry {
    name: "slru",
    summary: "a stack of LRU lists: each hit takes a block one list higher, and victims are lowest",
    source: "Karedla, Love and Wherry, IEEE Computer 27(3), 1994; Huang et al., SOSP 2013",
    params: PARAMS,
    needs: Needs::NOTHING,
    takes_sizes: true,
    live: &[Mechanism::PageCache],
    compared: Compared::ByName,
    build: &|settings, values| {
        let (segments, lowest) = (values.count(0) as usize, values.name(1) == "lowest");
        match settings.bytes {
            None => Box::new(Slru::<Unit>::new(
                settings.capacity.into(),
                segments,
                lowest,
            )),
            Some(bytes) => Box::new(Slru::<Bytes>::new(bytes, segments, lowest)),
        }
    },
};

const PARAMS: &[Param] = &[
    Param::count("segments", "how many lists", 4, 1..=64),
    Param::name(
        "newcomers",
        "where new blocks enter: the lowest list that has room (as in libCacheSim), or the lowest \
         one always (S4LRU)",
        "room",
        &["room", "lowest"],
    ),
];

/// See the module.
#[derive(Clone, Debug)]
pub struct Slru<W = Unit> {
    lowest: bool,
    segment_max: u64,
    /// The lowest first.
    segments: Vec<Part<W>>,
    links: Links,
    /// By slot, its segment.
    segment: Vec<u8>,
    weight: Weights<W>,
}

impl<W: Weight> Slru<W> {
    /// For a cache of `capacity` blocks or bytes in so many `segments`, from 1 to 255. If `lowest`,
    /// new blocks enter the lowest segment even where it is full and another is not.
    pub fn new(capacity: u64, segments: usize, lowest: bool) -> Self {
        Slru {
            lowest,
            segment_max: capacity / segments as u64,
            segments: vec![Part::default(); segments],
            links: Links::default(),
            segment: Vec::new(),
            weight: Weights::default(),
        }
    }

    fn enter(&mut self, slot: u32, segment: usize) {
        self.segment[slot as usize] = segment as u8;
        self.segments[segment].push_front(&mut self.links, slot, &self.weight);
    }

    fn leave(&mut self, slot: u32) -> usize {
        let segment = usize::from(self.segment[slot as usize]);
        self.segments[segment].remove(&mut self.links, slot, &self.weight);
        segment
    }

    /// Moves the least recent blocks of each segment from `highest` down that is too large to the
    /// one below it.
    fn cool(&mut self, highest: usize) {
        for segment in (1..=highest).rev() {
            while self.segments[segment].weight() > self.segment_max {
                let slot = self.segments[segment].pop_back(&mut self.links, &self.weight);
                self.enter(slot.expect("it is too large"), segment - 1);
            }
        }
    }
}

impl<W: Weight> Replacement for Slru<W> {
    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        let segment = usize::from(self.segment[slot.index()]);
        if segment + 1 == self.segments.len() {
            self.segments[segment].touch(&mut self.links, slot.0);
        } else {
            self.leave(slot.0);
            self.enter(slot.0, segment + 1);
            self.cool(segment + 1);
        }
    }

    fn admits(&mut self, incoming: &Access) -> bool {
        incoming.bytes <= self.segment_max
    }

    #[inline]
    fn victim(&mut self, _incoming: &Access) -> Slot {
        let mut segments = self.segments.iter_mut();
        let slot = segments.find_map(|segment| segment.pop_back(&mut self.links, &self.weight));
        Slot(slot.expect("a full cache has blocks"))
    }

    #[inline]
    fn inserted(&mut self, slot: Slot, access: &Access) {
        self.weight.set(slot, access);
        weight::set(&mut self.segment, slot, 0);
        let weight = W::of(access).get();
        let has_room = |segment: &Part<W>| segment.weight() + weight <= self.segment_max;
        let mut segments = self.segments.iter();
        let segment = segments.position(has_room).filter(|_| !self.lowest);
        self.enter(slot.0, segment.unwrap_or(0));
    }

    fn removed(&mut self, slot: Slot) {
        self.leave(slot.0);
    }

    fn resized(&mut self, capacity: u32) {
        self.segment_max = u64::from(capacity) / self.segments.len() as u64;
        self.cool(self.segments.len() - 1);
    }

    fn check(&self, resident: usize) {
        let mut blocks = 0;
        for (number, segment) in self.segments.iter().enumerate() {
            segment.check(&self.links, &self.weight);
            let mut slots = segment.list().iter(&self.links);
            assert!(slots.all(|slot| usize::from(self.segment[slot as usize]) == number));
            assert!(number == 0 || segment.weight() <= self.segment_max);
            blocks += segment.list().len();
        }
        assert_eq!(blocks, resident);
    }
}
