//! Early eviction LRU: LRU until many references go to blocks evicted a while ago; then it gives up blocks early, at a
//! point *e* of the recency axis, so that others stay until a later point *l* beyond the size of the cache.
//!
//! Source: Smaragdakis, Kaplan and Wilson, "EELRU: simple and effective adaptive page replacement", SIGMETRICS 1999, section
//! 2, with the general form of several points e and l. All blocks, evicted ones too, are kept in order of recency down
//! to the last point l, and references counted by the stretch between two points that they go to. With M blocks in
//! the cache and H(x, y) the references that went to recencies x to y, LRU hits H(0, M), and early eviction
//! H(0, e) + (M - e) / (l - e) H(e, l), since M - e blocks of the l - e between the points can be in. The best pair
//! is used if it is better than LRU: the least recent block goes if it is beyond l, else the most recent one beyond e.
//!
//! The reading chosen where the paper leaves it to the implementer: `early` points lie evenly between 0 and M, `late` ones ever
//! further apart up to `reach` times M. Counts are halved every `memory` times M references, so that old ones fade, and
//! the pairs compared every M/64 references. Departures: a block removed from outside keeps its place in the order, as
//! one that is not resident. Where no resident block is beyond e, the least recent one goes.

use super::{Policy, Replacement};
use crate::access::Access;
use crate::ids::Slot;
use crate::list::{Links, List, NIL};
use crate::registry::{Entry, Kind, Needs, Param, Settings};
use crate::spec::Values;

/// The line in the registry.
pub(crate) const ENTRY: Entry = Entry {
    name: "eelru",
    summary: "LRU that gives up blocks early while loops are larger than the cache",
    source: "Smaragdakis, Kaplan and Wilson, SIGMETRICS 1999",
    params: PARAMS,
    needs: Needs::NOTHING,
    build,
};

const PARAMS: &[Param] = &[
    Param {
        name: "early",
        doc: "the points at which blocks may be given up early",
        kind: Kind::Count {
            default: 4,
            min: 1,
            max: 32,
        },
    },
    Param {
        name: "late",
        doc: "the points beyond the cache up to which the others may be kept",
        kind: Kind::Count {
            default: 8,
            min: 1,
            max: 32,
        },
    },
    Param {
        name: "reach",
        doc: "the last of those points, in multiples of the cache",
        kind: Kind::Real {
            default: 4.0,
            min: 1.0,
            max: 1000.0,
        },
    },
    Param {
        name: "memory",
        doc: "the references after which counts are halved, in multiples of the cache",
        kind: Kind::Real {
            default: 16.0,
            min: 0.0,
            max: 1e6,
        },
    },
];

fn build(settings: &Settings<'_>, values: &Values) -> Box<dyn Policy> {
    let config = Config {
        early: values.count(0) as u32,
        late: values.count(1) as u32,
        reach: values.real(2),
        memory: values.real(3),
    };
    Box::new(Eelru::new(settings.capacity, config))
}

/// The parameters.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Points within the cache.
    pub early: u32,
    /// Points beyond it.
    pub late: u32,
    /// The last of them, in multiples of the cache.
    pub reach: f64,
    /// References after which counts are halved, in multiples of the cache.
    pub memory: f64,
}

impl Config {
    /// The points, in recency: the early ones, the size of the cache, the late ones, and no end.
    fn points(&self, capacity: u32, points: &mut Vec<u64>) {
        let size = u64::from(capacity);
        let (early, late) = (u64::from(self.early), f64::from(self.late));
        points.clear();
        points.extend((1..=early).map(|step| size * step / (early + 1)));
        points.push(size);
        points.extend((1..=self.late).map(|step| {
            let part = f64::from(step) / late;
            let times = 1.0 + (self.reach - 1.0) * part * (1.0 + part) / 2.0;
            (f64::from(capacity) * times) as u64
        }));
        points.push(u64::MAX);
    }

    fn halved_after(&self, capacity: u32) -> u64 {
        ((self.memory * f64::from(capacity)) as u64).max(64)
    }
}

/// A stretch of the order of recency between two points.
#[derive(Clone, Debug, Default)]
struct Stretch {
    /// The recency at which it ends.
    end: u64,
    /// Blocks that fit.
    length: u64,
    /// All its blocks, and the resident ones.
    blocks: List,
    resident: List,
    /// References to its blocks, of late.
    hits: u64,
}

/// An early and a late point, as indices of the stretches that they end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pair {
    early: usize,
    late: usize,
}

/// What is known of a block.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// The stretch that it is in, or [`NOWHERE`].
    stretch: u8,
    /// [`NIL`] where it is not resident.
    slot: u32,
}

/// Not in the order.
const NOWHERE: u8 = u8::MAX;

/// See the module.
#[derive(Clone, Debug)]
pub struct Eelru {
    config: Config,
    capacity: u32,
    points: Vec<u64>,
    /// The last one, beyond the last point, has resident blocks only.
    stretches: Vec<Stretch>,
    /// By block.
    known: Vec<Known>,
    block_links: Links,
    resident_links: Links,
    /// By slot.
    block_of: Vec<u32>,
    /// What is done at present: early eviction, or LRU.
    pair: Option<Pair>,
    references: u64,
    compare_at: u64,
    halve_at: u64,
}

impl Eelru {
    /// For a cache of `capacity` blocks.
    pub fn new(capacity: u32, config: Config) -> Self {
        let mut eelru = Eelru {
            config,
            capacity,
            points: Vec::new(),
            stretches: vec![Stretch::default(); (config.early + config.late + 2) as usize],
            known: Vec::new(),
            block_links: Links::default(),
            resident_links: Links::default(),
            block_of: vec![NIL; capacity as usize],
            pair: None,
            references: 0,
            compare_at: 0,
            halve_at: config.halved_after(capacity),
        };
        eelru.resized(capacity);
        eelru
    }

    /// A reference to `block`, which is in `slot`: counts it and moves it to the front of the order.
    #[inline]
    fn reference(&mut self, block: u32, slot: u32) {
        let Known {
            stretch,
            slot: before,
        } = self.known[block as usize];
        if stretch != NOWHERE {
            let from = &mut self.stretches[usize::from(stretch)];
            from.hits += 1;
            from.blocks.remove(&mut self.block_links, block);
            if before != NIL {
                from.resident.remove(&mut self.resident_links, block);
            }
        }
        self.known[block as usize] = Known { stretch: 0, slot };
        let first = &mut self.stretches[0];
        first.blocks.push_front(&mut self.block_links, block);
        first.resident.push_front(&mut self.resident_links, block);
        self.overflow();

        self.references += 1;
        if self.references >= self.compare_at {
            self.compare();
        }
    }

    /// Moves the last block of each stretch that is too long on to the next one.
    #[inline]
    fn overflow(&mut self) {
        for at in 0..self.stretches.len() {
            if self.stretches[at].blocks.len() as u64 <= self.stretches[at].length {
                break;
            }
            self.pass_on(at);
        }
    }

    /// Moves the last block of a stretch, which has one, to the next. One that is not resident goes no further than the
    /// last point.
    fn pass_on(&mut self, at: usize) {
        let stretch = &mut self.stretches[at];
        let block = stretch
            .blocks
            .pop_back(&mut self.block_links)
            .expect("the stretch is too long");
        let known = &mut self.known[block as usize];
        let resident = known.slot != NIL;
        if resident {
            stretch.resident.pop_back(&mut self.resident_links);
        } else if at + 2 == self.stretches.len() {
            known.stretch = NOWHERE;
            return;
        }
        known.stretch = at as u8 + 1;
        let next = &mut self.stretches[at + 1];
        next.blocks.push_front(&mut self.block_links, block);
        if resident {
            next.resident.push_front(&mut self.resident_links, block);
        }
    }

    /// Takes the first block of the next stretch that has one to the end of stretch `at`; false if there is none.
    fn draw(&mut self, at: usize) -> bool {
        let Some(from) =
            (at + 1..self.stretches.len()).find(|&from| !self.stretches[from].blocks.is_empty())
        else {
            return false;
        };
        let stretch = &mut self.stretches[from];
        let block = stretch
            .blocks
            .pop_front(&mut self.block_links)
            .expect("it is not empty");
        let known = &mut self.known[block as usize];
        known.stretch = at as u8;
        let resident = known.slot != NIL;
        if resident {
            stretch.resident.pop_front(&mut self.resident_links);
        }
        let stretch = &mut self.stretches[at];
        stretch.blocks.push_back(&mut self.block_links, block);
        if resident {
            stretch.resident.push_back(&mut self.resident_links, block);
        }
        true
    }

    /// Chooses the pair that would have hit most often, or LRU.
    #[cold]
    fn compare(&mut self) {
        let size = self.config.early as usize;
        let cached = f64::from(self.capacity);
        let mut best = self.stretches[..=size]
            .iter()
            .map(|stretch| stretch.hits as f64)
            .sum::<f64>();
        self.pair = None;
        let mut before = 0.0;
        for early in 0..size {
            before += self.stretches[early].hits as f64;
            let start = self.stretches[early].end as f64;
            if start < 1.0 || start >= cached {
                continue;
            }
            let mut between = 0.0;
            for late in early + 1..self.stretches.len() - 1 {
                between += self.stretches[late].hits as f64;
                let end = self.stretches[late].end as f64;
                if late <= size || end <= cached {
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
            for stretch in &mut self.stretches {
                stretch.hits /= 2;
            }
            self.halve_at = self.references + self.config.halved_after(self.capacity);
        }
        self.compare_at = self.references + u64::from(self.capacity / 64).max(1);
    }

    /// The least recent resident block.
    fn least_recent(&self) -> Option<u32> {
        let mut stretches = self.stretches.iter().rev();
        stretches.find_map(|stretch| stretch.resident.back())
    }
}

impl Replacement for Eelru {
    #[inline]
    fn hit(&mut self, slot: Slot, access: &Access) {
        self.reference(access.block.0, slot.0);
    }

    fn victim(&mut self, _incoming: &Access) -> Slot {
        let oldest = self.least_recent().expect("a full cache has a block");
        let early = self.pair.and_then(|Pair { early, late }| {
            let kept = usize::from(self.known[oldest as usize].stretch) <= late;
            let mut beyond = self.stretches[early + 1..].iter();
            beyond
                .find_map(|stretch| stretch.resident.front())
                .filter(|_| kept)
        });
        let block = early.unwrap_or(oldest);
        let slot = Slot(self.known[block as usize].slot);
        self.removed(slot);
        slot
    }

    fn inserted(&mut self, slot: Slot, access: &Access) {
        let block = access.block.0;
        if block as usize >= self.known.len() {
            let unknown = Known {
                stretch: NOWHERE,
                slot: NIL,
            };
            self.known.resize(block as usize + 1, unknown);
            self.block_links.cover(block);
            self.resident_links.cover(block);
        }
        self.block_of[slot.index()] = block;
        self.reference(block, slot.0);
    }

    fn removed(&mut self, slot: Slot) {
        let block = self.block_of[slot.index()];
        let known = &mut self.known[block as usize];
        known.slot = NIL;
        let stretch = &mut self.stretches[usize::from(known.stretch)];
        stretch.resident.remove(&mut self.resident_links, block);
        if usize::from(known.stretch) == self.stretches.len() - 1 {
            known.stretch = NOWHERE;
            let beyond = self.stretches.last_mut().expect("there are some");
            beyond.blocks.remove(&mut self.block_links, block);
        }
    }

    fn resized(&mut self, capacity: u32) {
        self.capacity = capacity;
        self.config.points(capacity, &mut self.points);
        let mut start = 0;
        for (stretch, &end) in self.stretches.iter_mut().zip(&self.points) {
            stretch.length = end - start;
            stretch.end = end;
            start = end;
        }
        for at in 0..self.stretches.len() {
            while (self.stretches[at].blocks.len() as u64) < self.stretches[at].length {
                if !self.draw(at) {
                    break;
                }
            }
            while self.stretches[at].blocks.len() as u64 > self.stretches[at].length {
                self.pass_on(at);
            }
        }
    }

    fn check(&self, resident: usize) {
        let mut count = 0;
        for (at, stretch) in self.stretches.iter().enumerate() {
            stretch.blocks.check(&self.block_links);
            stretch.resident.check(&self.resident_links);
            count += stretch.resident.len();
            let blocks = stretch.blocks.iter(&self.block_links);
            let inside = |&block: &u32| self.known[block as usize].slot != NIL;
            let mut all = stretch.blocks.iter(&self.block_links);
            assert!(all.all(|block| usize::from(self.known[block as usize].stretch) == at));
            assert!(
                stretch
                    .resident
                    .iter(&self.resident_links)
                    .eq(blocks.filter(inside)),
                "stretch {at} has its resident blocks in another order"
            );
            let length = stretch.blocks.len() as u64;
            assert!(length <= stretch.length);
            let mut later = self.stretches[at + 1..].iter();
            assert!(
                length >= stretch.length || later.all(|stretch| stretch.blocks.is_empty()),
                "stretch {at} has a gap"
            );
        }
        assert_eq!(count, resident);
        for (slot, &block) in self.block_of.iter().enumerate() {
            if block != NIL && self.known[block as usize].slot == slot as u32 {
                assert_ne!(self.known[block as usize].stretch, NOWHERE);
            }
        }
    }
}
