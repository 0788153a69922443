//! Multi-queue: LRU queues by frequency; a block that was referenced f times is in queue log2(f).
//! The least recent block of the lowest queue is evicted. A block that is not referenced for a
//! `lifetime` moves down a queue, and the frequency of an evicted block is remembered for a while
//! (Qout). Made for caches below another cache, where a block returns late or not at all.
//!
//! Source: Zhou, Philbin and Li, "The multi-queue replacement algorithm for second level buffer
//! caches", USENIX ATC 2001, section 5, with 8 queues and a Qout of 4 times the cache. Time is
//! counted in references. At each reference one block of each queue is checked and, if due, moved
//! down.
//!
//! The paper sets the lifetime to the *peak temporal distance* of the workload (sections 4 and 5),
//! the time after which blocks most often return, and leaves open how to find it at run time. Here
//! the temporal distances of hits, in the cache and in Qout, are counted in bins of a quarter of an
//! octave. After as many hits as the cache has blocks, at least 64, the upper end of the fullest
//! bin becomes the lifetime, and the counts are halved. The lifetime is at least the size of the
//! cache: blocks that return sooner need no queues. Departure: the expiry time of a block is not
//! fixed when it is referenced but follows the lifetime.

use super::Replacement;
use crate::access::Access;
use crate::cache::ReplacementPolicy;
use crate::entry::{
    Compared, Mechanism, Needs, Param, ReplacementEntry, ReplacementSettings, Values,
};
use crate::ids::{Slot, Tick};
use crate::list::{Links, List};

/// The line in the registry.
pub(crate) const ENTRY: ReplacementEntry = ReplacementEntry {
    name: "mq",
    summary: "LRU queues by frequency; a block that is not used for a lifetime moves down",
    source: "Zhou, Philbin and Li, USENIX ATC 2001",
    params: PARAMS,
    needs: Needs::NOTHING,
    takes_sizes: false,
    live: &[Mechanism::PageCache],
    compared: Compared::ByName,
    build: &build,
};

const PARAMS: &[Param] = &[
    Param::count("queues", "the number of queues", 8, 1..=32),
    Param::count(
        "lifetime",
        "references after which an unused block moves down; 0: the peak temporal distance, \
              as measured",
        0,
        0..=u64::MAX,
    ),
    Param::real(
        "history",
        "the most evicted blocks whose frequency is remembered, in multiples of the cache",
        4.0,
        0.0..=1000.0,
    ),
];

fn build(settings: &ReplacementSettings<'_>, values: &Values) -> Box<dyn ReplacementPolicy> {
    let config = MqConfig {
        queues: values.count(0) as u8,
        lifetime: match values.count(1) {
            0 => None,
            lifetime => Some(lifetime),
        },
        history: values.real(2),
    };
    Box::new(Mq::new(settings.capacity, config))
}

/// The parameters of MQ.
#[derive(Clone, Copy, Debug)]
pub struct MqConfig {
    /// The number of queues.
    pub queues: u8,
    /// References after which an unused block moves down; `None` where that is measured.
    pub lifetime: Option<u64>,
    /// The most evicted blocks whose frequency is remembered, in multiples of the cache.
    pub history: f64,
}

/// LRU queues over slots, by frequency.
#[derive(Clone, Debug)]
pub(crate) struct Queues {
    links: Links,
    lists: Vec<List>,
    /// By slot.
    level: Vec<u8>,
}

impl Queues {
    pub(crate) fn new(capacity: u32, queues: u8) -> Self {
        Queues {
            links: Links::new(capacity as usize),
            lists: vec![List::default(); usize::from(queues)],
            level: vec![0; capacity as usize],
        }
    }

    /// Grows the tables so that `slot` has a place.
    pub(crate) fn cover(&mut self, slot: u32) {
        self.links.cover(slot);
        self.level
            .resize(self.level.len().max(slot as usize + 1), 0);
    }

    /// Gives each slot above the lowest queue a new frequency, not higher than it had: from the
    /// lowest queue up, and in each queue from the least recent on. A slot that falls to another
    /// queue goes to its recent end.
    pub(crate) fn refile(&mut self, mut frequency: impl FnMut(u32) -> u32) {
        for level in 1..self.lists.len() {
            let mut next = self.lists[level].back();
            while let Some(slot) = next {
                next = self.lists[level].before(&self.links, slot);
                let frequency = frequency(slot);
                if (frequency.ilog2() as usize) < level {
                    self.touch(slot, frequency);
                }
            }
        }
    }

    /// Puts a slot that is in no queue at the recent end of the queue for `frequency`, which is at
    /// least 1.
    #[inline]
    pub(crate) fn insert(&mut self, slot: u32, frequency: u32) {
        let level = (frequency.ilog2() as usize).min(self.lists.len() - 1);
        self.push(slot, level);
    }

    /// Moves a slot to the recent end of the queue for `frequency`.
    #[inline]
    pub(crate) fn touch(&mut self, slot: u32, frequency: u32) {
        self.remove(slot);
        self.insert(slot, frequency);
    }

    #[inline]
    fn push(&mut self, slot: u32, level: usize) {
        self.level[slot as usize] = level as u8;
        self.lists[level].push_front(&mut self.links, slot);
    }

    #[inline]
    pub(crate) fn remove(&mut self, slot: u32) {
        self.lists[usize::from(self.level[slot as usize])].remove(&mut self.links, slot);
    }

    /// The least recent slot of the lowest queue that is not empty.
    #[inline]
    pub(crate) fn lowest(&self) -> Option<u32> {
        self.lists.iter().find_map(List::back)
    }

    /// Moves the least recent slot of queue `level` for which `expired` holds to the recent end of
    /// the queue below.
    #[inline]
    fn demote(&mut self, level: usize, expired: impl Fn(u32) -> bool) -> Option<u32> {
        let slot = self.lists[level].back().filter(|&slot| expired(slot))?;
        self.remove(slot);
        self.push(slot, level - 1);
        Some(slot)
    }

    pub(crate) fn check(&self, resident: usize) {
        for (level, list) in self.lists.iter().enumerate() {
            list.check(&self.links);
            let mut slots = list.iter(&self.links);
            assert!(slots.all(|slot| usize::from(self.level[slot as usize]) == level));
        }
        assert_eq!(self.lists.iter().map(List::len).sum::<usize>(), resident);
    }
}

/// Measures the peak temporal distance.
#[derive(Clone, Debug)]
struct Peak {
    /// Counts, by quarter of an octave.
    counts: [u32; 256],
    counted: u32,
    distance: u64,
}

impl Peak {
    fn new() -> Self {
        Peak {
            counts: [0; 256],
            counted: 0,
            distance: 0,
        }
    }

    /// Counts a distance; finds the peak after every `window` of them.
    #[inline]
    fn count(&mut self, distance: u64, window: u32) {
        // At least 4, so that there are two bits below the highest.
        let distance = distance.saturating_add(3);
        let octave = distance.ilog2();
        let quarter = (distance >> (octave - 2)) & 3;
        self.counts[(octave * 4) as usize + quarter as usize] += 1;
        self.counted += 1;
        if self.counted >= window {
            self.look();
        }
    }

    #[cold]
    fn look(&mut self) {
        let mut peak = 8;
        for bin in 8..self.counts.len() {
            if self.counts[bin] > self.counts[peak] {
                peak = bin;
            }
        }
        let end = (peak as u128 % 4 + 5) << (peak / 4 - 2);
        self.distance = u64::try_from(end - 4).unwrap_or(u64::MAX);
        self.counted = 0;
        self.counts = self.counts.map(|count| count / 2);
    }
}

/// A resident block.
#[derive(Clone, Copy, Debug, Default)]
struct Resident {
    /// When it came to its place in its queue.
    since: Tick,
    last: Tick,
    frequency: u32,
    block: u32,
}

/// What is remembered of an evicted block.
#[derive(Clone, Copy, Debug, Default)]
struct GhostFrequency {
    last: Tick,
    /// 0: not in Qout.
    frequency: u32,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Mq {
    config: MqConfig,
    capacity: u32,
    ghosts_max: usize,
    now: Tick,
    /// No block in a queue above the lowest came to its place before this time.
    earliest: Tick,
    peak: Peak,
    queues: Queues,
    /// By slot.
    resident: Vec<Resident>,
    /// By block.
    ghost: Vec<GhostFrequency>,
    ghost_links: Links,
    /// Qout, by eviction.
    ghosts: List,
}

impl Mq {
    /// For a cache of `capacity` blocks.
    pub fn new(capacity: u32, config: MqConfig) -> Self {
        Mq {
            config,
            capacity,
            ghosts_max: (config.history * f64::from(capacity)) as usize,
            now: 0,
            earliest: Tick::MAX,
            peak: Peak::new(),
            queues: Queues::new(capacity, config.queues),
            resident: vec![Resident::default(); capacity as usize],
            ghost: Vec::new(),
            ghost_links: Links::default(),
            ghosts: List::default(),
        }
    }

    fn lifetime(&self) -> u64 {
        self.config
            .lifetime
            .unwrap_or_else(|| self.peak.distance.max(u64::from(self.capacity)))
    }

    #[inline]
    fn measure(&mut self, last: Tick) {
        if self.config.lifetime.is_none() {
            // A window as large as the cache, so that noise does not move the lifetime of a large
            // cache.
            self.peak.count(self.now - last, self.capacity.max(64));
        }
    }

    /// Completes a reference to a block that was just put at the recent end of its queue.
    #[inline]
    fn adjust(&mut self) {
        self.earliest = self.earliest.min(self.now);
        self.now += 1;
        if self.now - self.earliest > self.lifetime() {
            self.demote();
        }
    }

    /// Moves the first block of each queue down if it was not used for a lifetime.
    fn demote(&mut self) {
        let (now, lifetime) = (self.now, self.lifetime());
        for level in 1..self.queues.lists.len() {
            let resident = &self.resident;
            let expired = |slot: u32| now - resident[slot as usize].since > lifetime;
            if let Some(slot) = self.queues.demote(level, expired) {
                self.resident[slot as usize].since = now;
            }
        }
        let heads = self.queues.lists[1..].iter().filter_map(List::back);
        let since = heads.map(|slot| self.resident[slot as usize].since);
        self.earliest = since.min().unwrap_or(Tick::MAX);
    }

    fn cut_ghosts(&mut self) {
        while self.ghosts.len() > self.ghosts_max {
            let Some(block) = self.ghosts.pop_back(&mut self.ghost_links) else {
                break;
            };
            self.ghost[block as usize].frequency = 0;
        }
    }
}

impl Replacement for Mq {
    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        let resident = &mut self.resident[slot.index()];
        resident.frequency = resident.frequency.saturating_add(1);
        resident.since = self.now;
        let last = std::mem::replace(&mut resident.last, self.now);
        self.queues.touch(slot.0, resident.frequency);
        self.measure(last);
        self.adjust();
    }

    fn victim(&mut self, _incoming: &Access) -> Slot {
        let slot = self.queues.lowest().expect("a full cache has a block");
        self.queues.remove(slot);
        let resident = self.resident[slot as usize];
        if resident.block as usize >= self.ghost.len() {
            self.ghost
                .resize(resident.block as usize + 1, GhostFrequency::default());
            self.ghost_links.cover(resident.block);
        }
        self.ghost[resident.block as usize] = GhostFrequency {
            last: resident.last,
            frequency: resident.frequency,
        };
        self.ghosts
            .push_front(&mut self.ghost_links, resident.block);
        self.cut_ghosts();
        Slot(slot)
    }

    fn inserted(&mut self, slot: Slot, access: &Access) {
        let block = access.block.0;
        let ghost = match self.ghost.get_mut(block as usize) {
            Some(ghost) => std::mem::take(ghost),
            None => GhostFrequency::default(),
        };
        if ghost.frequency > 0 {
            self.ghosts.remove(&mut self.ghost_links, block);
            self.measure(ghost.last);
        }
        let frequency = ghost.frequency.saturating_add(1);
        self.resident[slot.index()] = Resident {
            since: self.now,
            last: self.now,
            frequency,
            block,
        };
        self.queues.insert(slot.0, frequency);
        self.adjust();
    }

    fn removed(&mut self, slot: Slot) {
        self.queues.remove(slot.0);
    }

    fn resized(&mut self, capacity: u32) {
        self.capacity = capacity;
        self.ghosts_max = (self.config.history * f64::from(capacity)) as usize;
        self.cut_ghosts();
    }

    fn check(&self, resident: usize) {
        self.queues.check(resident);
        for list in &self.queues.lists[1..] {
            let mut before = Tick::MAX;
            for slot in list.iter(&self.queues.links) {
                let since = self.resident[slot as usize].since;
                assert!(since <= before, "slot {slot} is out of order");
                assert!(since >= self.earliest, "slot {slot} is overlooked");
                before = since;
            }
        }
        self.ghosts.check(&self.ghost_links);
        let remembered = self.ghost.iter().filter(|ghost| ghost.frequency > 0);
        assert_eq!(remembered.count(), self.ghosts.len());
        assert!(self.ghosts.len() <= self.ghosts_max);
        for list in &self.queues.lists {
            for slot in list.iter(&self.queues.links) {
                let block = self.resident[slot as usize].block as usize;
                let ghost = self.ghost.get(block);
                assert!(ghost.is_none_or(|ghost| ghost.frequency == 0));
            }
        }
    }
}
