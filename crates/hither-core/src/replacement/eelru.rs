//! Early eviction LRU: LRU, until many references go to recently evicted blocks. Then it evicts
//! blocks early, at a point *e* of the recency axis, so that others stay until a later point *l*
//! beyond the size of the cache.
//!
//! Source: Smaragdakis, Kaplan and Wilson, "EELRU: simple and effective adaptive page replacement",
//! SIGMETRICS 1999, section 2, with the general form of several points e and l. All blocks, evicted
//! ones too, are kept in order of recency down to the last point l, and references are counted by
//! the stretch between two points where they fall. With M blocks in the cache and H(x, y) the
//! references to recencies x to y, LRU hits H(0, M), and early eviction hits
//! H(0, e) + (M - e) / (l - e) H(e, l), because M - e of the l - e blocks between the points can be
//! in the cache. The best pair of points is used if it is better than LRU: the least recent block
//! is evicted if it is beyond l, otherwise the most recent one beyond e.
//!
//! Readings where the paper leaves the choice to the implementer: `early` points are spaced evenly
//! between 0 and M; `late` points have growing distances up to `reach` times M. Counts are halved
//! every `memory` times M references, so that old ones fade. The pairs are compared every M/64
//! references. Departures: a block removed from outside keeps its place in the order, as one that
//! is not resident. Where no resident block is beyond e, the least recent one is evicted.

use super::Replacement;
use crate::access::Access;
use crate::cache::ReplacementPolicy;
use crate::entry::{
    Compared, Mechanism, Needs, Param, ReplacementEntry, ReplacementSettings, Values,
};
use crate::ids::Slot;
use crate::list::{Links, List, NIL};

/// The line in the registry.
pub(crate) const ENTRY: ReplacementEntry = ReplacementEntry {
    name: "eelru",
    summary: "LRU that evicts early while loops are larger than the cache",
    source: "Smaragdakis, Kaplan and Wilson, SIGMETRICS 1999",
    params: PARAMS,
    needs: Needs::NOTHING,
    takes_sizes: false,
    live: &[Mechanism::PageCache],
    compared: Compared::ByName,
    build: &build,
};

const PARAMS: &[Param] = &[
    Param::count(
        "early",
        "the number of points at which blocks may be evicted early",
        4,
        1..=32,
    ),
    Param::count(
        "late",
        "the number of points beyond the cache up to which the others may be kept",
        8,
        1..=32,
    ),
    Param::real(
        "reach",
        "the last of the late points, in multiples of the cache",
        4.0,
        1.0..=1000.0,
    ),
    Param::real(
        "memory",
        "the references after which counts are halved, in multiples of the cache",
        4.0,
        0.0..=1e6,
    ),
];

fn build(settings: &ReplacementSettings<'_>, values: &Values) -> Box<dyn ReplacementPolicy> {
    let config = EelruConfig {
        early: values.count(0) as u32,
        late: values.count(1) as u32,
        reach: values.real(2),
        memory: values.real(3),
    };
    Box::new(Eelru::new(settings.capacity, config))
}

/// The parameters of EELRU.
#[derive(Clone, Copy, Debug)]
pub struct EelruConfig {
    /// The number of points within the cache.
    pub early: u32,
    /// The number of points beyond it.
    pub late: u32,
    /// The last point, in multiples of the cache.
    pub reach: f64,
    /// The references after which counts are halved, in multiples of the cache.
    pub memory: f64,
}

impl EelruConfig {
    /// The recency of a point. Points ascend: the early ones, the size of the cache, the late ones.
    fn point(&self, capacity: u32, at: usize) -> u64 {
        let early = self.early as usize;
        if at < early {
            u64::from(capacity) * (at as u64 + 1) / (u64::from(self.early) + 1)
        } else {
            // 0 at the size of the cache, 1 at the last point.
            let part = (at - early) as f64 / f64::from(self.late);
            let times = 1.0 + (self.reach - 1.0) * part * (1.0 + part) / 2.0;
            (f64::from(capacity) * times) as u64
        }
    }

    fn halved_after(&self, capacity: u32) -> u64 {
        ((self.memory * f64::from(capacity)) as u64).max(64)
    }
}

/// A point on the recency axis. Stretch i of the axis ends at point i.
#[derive(Clone, Copy, Debug)]
struct Point {
    recency: u64,
    /// The block at this recency; [`NIL`] where the order is shorter, or the recency is 0.
    block: u32,
    /// For early points, the slot of the most recent resident block beyond.
    beyond: u32,
    /// Recent references to the blocks of the stretch that ends here.
    hits: u64,
}

/// An early and a late point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pair {
    early: usize,
    late: usize,
}

/// What is kept of a block.
#[derive(Clone, Copy, Debug)]
struct TrackedBlock {
    /// How many points it is beyond, or [`NOWHERE`].
    stretch: u8,
    /// Its slot; [`NIL`] where it is not resident.
    slot: u32,
}

/// In place of the number of points, for a block that is not in the order.
const NOWHERE: u8 = u8::MAX;

/// See the module.
#[derive(Clone, Debug)]
pub struct Eelru {
    config: EelruConfig,
    capacity: u32,
    points: Vec<Point>,
    /// By block.
    known: Vec<TrackedBlock>,
    order_links: Links,
    /// All blocks down to the last point, and the resident ones beyond it, by recency.
    order: List,
    /// By slot.
    block_of: Vec<u32>,
    resident_links: Links,
    /// The resident blocks by recency, over slots.
    resident: List,
    /// The pair of points for early eviction; none for LRU.
    pair: Option<Pair>,
    references: u64,
    compare_at: u64,
    halve_at: u64,
}

impl Eelru {
    /// For a cache of `capacity` blocks.
    pub fn new(capacity: u32, config: EelruConfig) -> Self {
        let point = |at| Point {
            recency: config.point(capacity, at),
            block: NIL,
            beyond: NIL,
            hits: 0,
        };
        Eelru {
            config,
            capacity,
            points: (0..(config.early + 1 + config.late) as usize)
                .map(point)
                .collect(),
            known: Vec::new(),
            order_links: Links::default(),
            order: List::default(),
            block_of: vec![NIL; capacity as usize],
            resident_links: Links::new(capacity as usize),
            resident: List::default(),
            pair: None,
            references: 0,
            compare_at: 0,
            halve_at: config.halved_after(capacity),
        }
    }

    /// A reference to `block`, which is in the order and in `slot`. `resident`: it is among the
    /// resident blocks.
    #[inline]
    fn reference(&mut self, block: u32, slot: u32, resident: bool) {
        let stretch = usize::from(self.known[block as usize].stretch);
        if let Some(point) = self.points.get_mut(stretch) {
            point.hits += 1;
        }
        if resident {
            self.leave_residents(slot, stretch);
        }
        if self.order.front() != Some(block) {
            // Where the block is at a point, the block before it will be.
            let before = self.order.before(&self.order_links, block).unwrap_or(NIL);
            for point in &mut self.points[stretch..] {
                if point.block != block {
                    break;
                }
                point.block = before;
            }
            self.order.remove(&mut self.order_links, block);
            self.push(block, stretch);
        }
        self.enter_residents(block, slot);
    }

    /// Puts a block at the front of the order; before, it was beyond `passed` points.
    fn push(&mut self, block: u32, passed: usize) {
        self.order.push_front(&mut self.order_links, block);
        let length = self.order.len() as u64;
        let mut stretch = 0;
        for at in 0..passed {
            let recency = self.points[at].recency;
            if recency == 0 {
                stretch += 1;
            } else if length > recency {
                self.cross(at);
            } else if length == recency {
                self.points[at].block = self.order.back().expect("the block itself at least");
            } else {
                break;
            }
        }
        self.known[block as usize].stretch = stretch;
    }

    /// Moves the block at a point beyond it. At the last point, blocks that are not resident leave.
    #[inline]
    fn cross(&mut self, at: usize) {
        let point = &mut self.points[at];
        let block = point.block;
        point.block = self.order.before(&self.order_links, block).unwrap_or(NIL);
        let known = &mut self.known[block as usize];
        known.stretch = at as u8 + 1;
        if known.slot != NIL {
            point.beyond = known.slot;
        } else if at + 1 == self.points.len() {
            known.stretch = NOWHERE;
            self.order.remove(&mut self.order_links, block);
        }
    }

    fn enter_residents(&mut self, block: u32, slot: u32) {
        self.resident.push_front(&mut self.resident_links, slot);
        let stretch = usize::from(self.known[block as usize].stretch);
        for point in &mut self.points[..stretch] {
            point.beyond = slot;
        }
    }

    /// Removes a slot from the resident blocks; its block is beyond `stretch` points.
    #[inline]
    fn leave_residents(&mut self, slot: u32, stretch: usize) {
        for point in &mut self.points[..stretch] {
            if point.beyond == slot {
                let next = self.resident.after(&self.resident_links, slot);
                point.beyond = next.unwrap_or(NIL);
            }
        }
        self.resident.remove(&mut self.resident_links, slot);
    }

    /// Counts a reference, and compares the pairs when that is due.
    #[inline]
    fn count(&mut self) {
        self.references += 1;
        if self.references >= self.compare_at {
            self.compare();
        }
    }

    /// Chooses the pair that would have hit most often, or LRU.
    #[cold]
    fn compare(&mut self) {
        let size = self.config.early as usize;
        let cached = f64::from(self.capacity);
        let hits = self.points[..=size].iter().map(|point| point.hits as f64);
        let mut best = hits.sum::<f64>();
        self.pair = None;
        let mut before = 0.0;
        for early in 0..size {
            before += self.points[early].hits as f64;
            let start = self.points[early].recency as f64;
            if start < 1.0 || start >= cached {
                continue;
            }
            let mut between = 0.0;
            for late in early + 1..self.points.len() {
                between += self.points[late].hits as f64;
                let end = self.points[late].recency as f64;
                if end <= cached {
                    continue;
                }
                let hits = before + (cached - start) / (end - start) * between;
                if hits > best {
                    best = hits;
                    self.pair = Some(Pair { early, late });
                }
            }
        }
        if self.references >= self.halve_at {
            for point in &mut self.points {
                point.hits /= 2;
            }
            self.halve_at = self.references + self.config.halved_after(self.capacity);
        }
        self.compare_at = self.references + u64::from(self.capacity / 64).max(1);
    }

    /// Moves a point one block down.
    fn lower(&mut self, at: usize) {
        let point = &mut self.points[at];
        let next = match point.block {
            NIL if point.recency == 0 => self.order.front(),
            // The order is shorter, or becomes so.
            NIL => None,
            block => self.order.after(&self.order_links, block),
        };
        point.recency += 1;
        point.block = next.unwrap_or(NIL);
        if let Some(block) = next {
            let known = &mut self.known[block as usize];
            known.stretch = at as u8;
            if known.slot != NIL {
                let next = self.resident.after(&self.resident_links, known.slot);
                point.beyond = next.unwrap_or(NIL);
            }
        }
    }

    /// Moves a point one block up.
    fn raise(&mut self, at: usize) {
        if self.points[at].block != NIL {
            self.cross(at);
        }
        let point = &mut self.points[at];
        point.recency -= 1;
        if point.block == NIL && point.recency > 0 && point.recency == self.order.len() as u64 {
            point.block = self.order.back().expect("it is not empty");
        }
    }
}

impl Replacement for Eelru {
    #[inline]
    fn hit(&mut self, slot: Slot, access: &Access) {
        self.reference(access.block.0, slot.0, true);
        self.count();
    }

    fn victim(&mut self, _incoming: &Access) -> Slot {
        let oldest = self.resident.back().expect("a full cache has a block");
        let block = self.block_of[oldest as usize];
        let stretch = usize::from(self.known[block as usize].stretch);
        let early = self.pair.filter(|pair| stretch <= pair.late);
        let slot = match early.map(|pair| self.points[pair.early].beyond) {
            Some(slot) if slot != NIL => Slot(slot),
            _ => Slot(oldest),
        };
        self.removed(slot);
        slot
    }

    fn inserted(&mut self, slot: Slot, access: &Access) {
        let block = access.block.0;
        if block as usize >= self.known.len() {
            let unknown = TrackedBlock {
                stretch: NOWHERE,
                slot: NIL,
            };
            self.known.resize(block as usize + 1, unknown);
            self.order_links.cover(block);
        }
        self.block_of[slot.index()] = block;
        if self.known[block as usize].stretch == NOWHERE {
            self.known[block as usize].slot = slot.0;
            self.push(block, self.points.len());
            self.enter_residents(block, slot.0);
        } else {
            self.known[block as usize].slot = slot.0;
            self.reference(block, slot.0, false);
        }
        self.count();
    }

    fn removed(&mut self, slot: Slot) {
        let block = self.block_of[slot.index()];
        let known = &mut self.known[block as usize];
        let stretch = usize::from(known.stretch);
        known.slot = NIL;
        if stretch == self.points.len() {
            known.stretch = NOWHERE;
            self.order.remove(&mut self.order_links, block);
        }
        self.leave_residents(slot.0, stretch);
    }

    fn resized(&mut self, capacity: u32) {
        self.capacity = capacity;
        // Points never pass one another: those that move up go first, in ascending order; then the
        // others, in descending order.
        for at in 0..self.points.len() {
            let recency = self.config.point(capacity, at);
            while self.points[at].recency > recency {
                self.raise(at);
            }
        }
        for at in (0..self.points.len()).rev() {
            let recency = self.config.point(capacity, at);
            while self.points[at].recency < recency {
                self.lower(at);
            }
        }
    }

    fn check(&self, resident: usize) {
        self.order.check(&self.order_links);
        self.resident.check(&self.resident_links);
        assert_eq!(self.resident.len(), resident);
        let mut slots = self.resident.iter(&self.resident_links);
        let mut beyond = vec![NIL; self.points.len()];
        for (recency, block) in (1u64..).zip(self.order.iter(&self.order_links)) {
            let passed = self.points.iter().filter(|point| point.recency < recency);
            let passed = passed.count();
            let known = self.known[block as usize];
            assert_eq!(usize::from(known.stretch), passed, "block {block}");
            for point in self.points.iter().filter(|point| point.recency == recency) {
                assert_eq!(point.block, block, "at the point {recency}");
            }
            if known.slot != NIL {
                assert_eq!(slots.next(), Some(known.slot));
                assert_eq!(self.block_of[known.slot as usize], block);
                for first in beyond[..passed].iter_mut().filter(|slot| **slot == NIL) {
                    *first = known.slot;
                }
            } else {
                assert!(passed < self.points.len(), "block {block} is forgotten");
            }
        }
        assert_eq!(slots.next(), None);
        for (point, beyond) in self.points.iter().zip(beyond) {
            assert_eq!(point.beyond, beyond, "beyond the point {}", point.recency);
            let outside = point.recency == 0 || point.recency > self.order.len() as u64;
            assert_eq!(point.block == NIL, outside);
        }
        let known = self.known.iter().filter(|known| known.stretch != NOWHERE);
        assert_eq!(known.count(), self.order.len());
    }
}
