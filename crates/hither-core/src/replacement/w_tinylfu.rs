//! W-TinyLFU: new blocks enter a small LRU window. A block that leaves the window is admitted to
//! the main part only if it was recently referenced more often than the block that would be evicted
//! for it. The main part is a segmented LRU: blocks that are used again there are protected, up to
//! 80 % of it.
//!
//! Source: Einziger, Friedman and Manes, "TinyLFU: a highly efficient cache admission policy", ACM
//! Transactions on Storage 13(4), 2017, sections 3 and 4; for the sketch of frequencies see
//! `sketch.rs`.
//!
//! With `climb=1` the window's share follows the hit ratio, as in Caffeine: Einziger, Eytan,
//! Friedman and Manes, "Adaptive software cache management", Middleware 2018. After each sample of
//! references it takes a step of a sixteenth of the cache, in the same direction if there were more
//! hits than in the sample before, otherwise in the other one. Steps become shorter by 2 % each,
//! until the hit ratio changes by 5 %. The room comes from the protected part, and goes back there;
//! the window that grows gets the least recent blocks of the main part. In Caffeine it grows by no
//! more than there are such blocks.
//!
//! Readings and departures:
//! - All references are counted, hits and misses, as in the paper (libCacheSim counts hits in the
//!   main part, insertions and evictions from the window). A missing reference is counted after its
//!   victim was chosen.
//! - There is no doorkeeper, as in Caffeine by default.
//! - The window has at least one block, so a cache of one block is all window: LRU. libCacheSim
//!   admits nothing where the window's share is below one block.

use super::{Replacement, share};
use crate::access::Access;
use crate::entry::{Compared, Mechanism, Needs, Param, ReplacementEntry};
use crate::ids::{Block, Slot};
use crate::list::{Links, List};
use crate::sketch::Sketch;

/// The line in the registry.
pub(crate) const ENTRY: ReplacementEntry = ReplacementEntry {
    name: "w-tinylfu",
    summary: "admits from a small LRU window only blocks that were used more often than the victim",
    source: "Einziger, Friedman and Manes, TOS 13(4), 2017",
    params: PARAMS,
    needs: Needs::NOTHING,
    takes_sizes: false,
    live: &[Mechanism::PageCache],
    compared: Compared::ByName,
    build: &|settings, values| {
        let config = TinyLfuConfig {
            window: values.real(0),
            protected: values.real(1),
            sample: values.count(2),
            climb: values.switched(3),
        };
        Box::new(WTinyLfu::new(settings.capacity, config))
    },
};

/// The defaults are those of section 4 of the paper; that of the sample is Caffeine's.
const PARAMS: &[Param] = &[
    Param::real("window", "the window's share of the cache", 0.01, 0.0..=1.0),
    Param::real(
        "protected",
        "the protected blocks' share of the main part, at most",
        0.8,
        0.0..=1.0,
    ),
    Param::count(
        "sample",
        "the references after which frequencies are halved, in multiples of the cache size",
        10,
        1..=1 << 20,
    ),
    Param::switch(
        "climb",
        "1: the window grows or shrinks after each sample, towards more hits (as in Caffeine)",
        false,
    ),
];

/// The first step of the window's size, as a share of the cache, and the one after a large change.
const STEP: f64 = 0.0625;
/// What is left of a step for the next one.
const STEP_DECAY: f64 = 0.98;
/// The change of the hit ratio after which steps are long again.
const LARGE_CHANGE: f64 = 0.05;

/// The climb of the window's size.
#[derive(Clone, Debug)]
struct Climber {
    capacity: f64,
    sample: u64,
    hits: u64,
    references: u64,
    ratio_before: f64,
    step: f64,
}

impl Climber {
    fn new(capacity: u32, sample: u64) -> Self {
        let capacity = f64::from(capacity);
        Climber {
            capacity,
            sample,
            hits: 0,
            references: 0,
            ratio_before: 0.0,
            step: -STEP * capacity,
        }
    }

    /// Counts a reference. At the end of a sample, says by how much the window shall grow.
    fn count(&mut self, hit: bool) -> i64 {
        self.references += 1;
        self.hits += u64::from(hit);
        if self.references < self.sample {
            return 0;
        }
        let ratio = self.hits as f64 / self.references as f64;
        let change = ratio - self.ratio_before;
        let step = if change >= 0.0 { self.step } else { -self.step };
        self.step = if change.abs() >= LARGE_CHANGE {
            (STEP * self.capacity).copysign(step)
        } else {
            STEP_DECAY * step
        };
        self.ratio_before = ratio;
        (self.hits, self.references) = (0, 0);
        step as i64
    }
}

/// The parameters of W-TinyLFU.
#[derive(Clone, Copy, Debug)]
pub struct TinyLfuConfig {
    /// The window's share of the capacity.
    pub window: f64,
    /// The protected blocks' share of the rest, at most.
    pub protected: f64,
    /// The references after which frequencies are halved, in multiples of the capacity.
    pub sample: u64,
    /// Whether the window's share changes.
    pub climb: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Window,
    Probation,
    Protected,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct WTinyLfu {
    config: TinyLfuConfig,
    window_max: usize,
    protected_max: usize,
    links: Links,
    window: List,
    probation: List,
    protected: List,
    part: Vec<Part>,
    block: Vec<Block>,
    sketch: Sketch,
    climber: Option<Climber>,
}

impl WTinyLfu {
    /// For a cache of `capacity` blocks.
    pub fn new(capacity: u32, config: TinyLfuConfig) -> Self {
        let mut policy = WTinyLfu {
            config,
            window_max: 0,
            protected_max: 0,
            links: Links::new(capacity as usize),
            window: List::default(),
            probation: List::default(),
            protected: List::default(),
            part: vec![Part::Window; capacity as usize],
            block: vec![Block(0); capacity as usize],
            sketch: Sketch::new(capacity, 0),
            climber: None,
        };
        policy.resized(capacity);
        policy
    }

    /// Moves the least recent block of a part that is too large to the most recent end of the
    /// probation segment.
    fn shrink_parts(&mut self) {
        for (list, max) in [
            (&mut self.window, self.window_max),
            (&mut self.protected, self.protected_max),
        ] {
            while list.len() > max {
                let slot = list.pop_back(&mut self.links).expect("it is too long");
                self.part[slot as usize] = Part::Probation;
                self.probation.push_front(&mut self.links, slot);
            }
        }
    }

    /// Counts a reference for the climb, and takes a step if it is time for one.
    fn climb(&mut self, hit: bool) {
        let Some(climber) = &mut self.climber else {
            return;
        };
        let step = climber.count(hit);
        if step > 0 {
            let room = (step as usize).min(self.protected_max);
            self.protected_max -= room;
            self.window_max += room;
            self.shrink_parts();
            for _ in 0..room.min(self.window_max - self.window.len()) {
                let from_probation = self.probation.pop_back(&mut self.links);
                let slot = from_probation.or_else(|| self.protected.pop_back(&mut self.links));
                let Some(slot) = slot else {
                    break;
                };
                self.part[slot as usize] = Part::Window;
                self.window.push_front(&mut self.links, slot);
            }
        } else if step < 0 {
            let room = (step.unsigned_abs() as usize).min(self.window_max - 1);
            self.window_max -= room;
            self.protected_max += room;
            self.shrink_parts();
        }
    }

    fn list(&mut self, part: Part) -> &mut List {
        match part {
            Part::Window => &mut self.window,
            Part::Probation => &mut self.probation,
            Part::Protected => &mut self.protected,
        }
    }

    fn estimate(&self, slot: u32) -> u64 {
        self.sketch.estimate(self.block[slot as usize])
    }
}

impl Replacement for WTinyLfu {
    #[inline]
    fn hit(&mut self, slot: Slot, access: &Access) {
        self.sketch.count(access.block);
        match self.part[slot.index()] {
            Part::Window => self.window.touch(&mut self.links, slot.0),
            Part::Protected => self.protected.touch(&mut self.links, slot.0),
            Part::Probation => {
                self.probation.remove(&mut self.links, slot.0);
                self.part[slot.index()] = Part::Protected;
                self.protected.push_front(&mut self.links, slot.0);
                self.shrink_parts();
            }
        }
        self.climb(true);
    }

    #[inline]
    fn victim(&mut self, _incoming: &Access) -> Slot {
        // If the incoming block makes the window too large, its least recent block leaves it.
        let candidate = self
            .window
            .back()
            .filter(|_| self.window.len() >= self.window_max);
        let main = self.probation.back().or(self.protected.back());
        let slot = match (candidate, main) {
            (Some(candidate), Some(main)) if self.estimate(candidate) > self.estimate(main) => {
                self.window.remove(&mut self.links, candidate);
                self.part[candidate as usize] = Part::Probation;
                self.probation.push_front(&mut self.links, candidate);
                main
            }
            (Some(slot), _) | (None, Some(slot)) => slot,
            (None, None) => self.window.back().expect("a full cache has blocks"),
        };
        self.removed(Slot(slot));
        Slot(slot)
    }

    #[inline]
    fn inserted(&mut self, slot: Slot, access: &Access) {
        self.sketch.count(access.block);
        self.block[slot.index()] = access.block;
        self.part[slot.index()] = Part::Window;
        self.window.push_front(&mut self.links, slot.0);
        self.shrink_parts();
        self.climb(false);
    }

    #[inline]
    fn removed(&mut self, slot: Slot) {
        let mut list = *self.list(self.part[slot.index()]);
        list.remove(&mut self.links, slot.0);
        *self.list(self.part[slot.index()]) = list;
    }

    fn resized(&mut self, capacity: u32) {
        let window = share(capacity.into(), self.config.window) as u32;
        self.window_max = window as usize;
        self.protected_max = (f64::from(capacity - window) * self.config.protected) as usize;
        let sample = u64::from(capacity) * self.config.sample;
        self.sketch.set_sample(sample);
        self.climber = self.config.climb.then(|| Climber::new(capacity, sample));
        self.shrink_parts();
    }

    fn check(&self, resident: usize) {
        let mut blocks = 0;
        for (list, part) in [
            (&self.window, Part::Window),
            (&self.probation, Part::Probation),
            (&self.protected, Part::Protected),
        ] {
            list.check(&self.links);
            let mut slots = list.iter(&self.links);
            assert!(slots.all(|slot| self.part[slot as usize] == part));
            blocks += list.len();
        }
        assert_eq!(blocks, resident);
        assert!(self.window.len() <= self.window_max);
        assert!(self.protected.len() <= self.protected_max);
    }
}
