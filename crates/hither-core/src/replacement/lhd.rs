//! Least hit density: evicts, of a sample, the object with the fewest hits to expect for each byte
//! and moment that it takes up. Objects are classified by the ages at their last two hits. For each
//! class and age it counts hits and evictions; from these follow how many hits an object of that
//! class and age still has to expect, and for how long it will stay.
//!
//! Source: Beckmann, Chen and Cidon, "LHD: improving cache hit rate by maximizing hit density",
//! NSDI 2018, and its authors' program as libCacheSim has it, with its constants: 32 candidates are
//! drawn, 8 in the first 50 periods, and the last 8 newcomers with less than the victims' density
//! are candidates, too. One object in 32 is an *explorer* that is kept, as long as these take up
//! less than 1 % of the cache. Counts are updated each 2^20 references (`period`). The unit of age
//! is chosen after 5 and 25 periods.
//!
//! Departures:
//! - There is one application. The paper's classes by application need to know it.
//! - Of equal candidates the first goes, and newcomers that have left are no candidates if they
//!   come back. An object without bytes counts as one of one byte. An explorer that is removed
//!   gives back its part of the 1 %.
//! - Explorers are evicted only where all candidates are. In the program they count as denser by 1,
//!   whatever the bytes. Their bytes may exceed the 1 % by one object; in the program, in caches of
//!   a hundred objects and more.
//!
//! The counts take 4 MB (`ages`).
//!
//! Miss counts differ from libCacheSim's by its random numbers. Traces of less than a million
//! references are over before anything is learnt: then a smaller `period` helps.

mod model;

use super::Replacement;
use crate::access::Access;
use crate::cache::ReplacementPolicy;
use crate::entry::{
    Compared, Mechanism, Needs, Param, ReplacementEntry, ReplacementSettings, Values,
};
use crate::ids::Slot;
use crate::random::Random;
use crate::weight::{self, Bytes, Unit, Weight};
use model::{DECAY, Model};

/// The line in the registry.
pub(crate) const ENTRY: ReplacementEntry = ReplacementEntry {
    name: "lhd",
    summary: "evicts, of a sample, what has the fewest hits to expect for its bytes and its stay",
    source: "Beckmann, Chen and Cidon, NSDI 2018",
    params: PARAMS,
    needs: Needs::NOTHING,
    takes_sizes: true,
    live: &[Mechanism::PageCache],
    compared: Compared::ByName,
    build: &build,
};

const PARAMS: &[Param] = &[
    Param::count(
        "samples",
        "how many objects are drawn for each eviction",
        32,
        1..=1 << 20,
    ),
    Param::count(
        "period",
        "how many references there are between two updates of the densities",
        1 << 20,
        1..=u64::MAX,
    ),
    Param::count(
        "ages",
        "how many ages are distinguished",
        20_000,
        2..=1 << 20,
    ),
    Param::count("seed", "the seed of the random numbers", 1, 0..=u64::MAX),
];

fn build(settings: &ReplacementSettings<'_>, values: &Values) -> Box<dyn ReplacementPolicy> {
    let config = LhdConfig {
        samples: values.count(0),
        period: values.count(1),
        ages: values.count(2) as usize,
        seed: values.count(3),
    };
    match settings.bytes {
        None => Box::new(Lhd::<Unit>::new(settings.capacity.into(), config)),
        Some(bytes) => Box::new(Lhd::<Bytes>::new(bytes, config)),
    }
}

/// The parameters of LHD.
#[derive(Clone, Copy, Debug)]
pub struct LhdConfig {
    /// How many objects are drawn for each eviction.
    pub samples: u64,
    /// The references between two updates.
    pub period: u64,
    /// How many ages there are, at least two.
    pub ages: usize,
    /// The seed of the random numbers.
    pub seed: u64,
}

/// The most candidates in the first periods.
const EARLY_SAMPLES: u64 = 8;
/// How many periods that holds for, and new explorers are chosen.
const EARLY_PERIODS: u64 = 50;
/// How many newcomers are candidates.
const NEWCOMERS: usize = 8;
/// One object in so many is an explorer.
const EXPLORERS: u64 = 32;
/// The part of the cache that explorers may take up: one in so many bytes.
const EXPLORED: u64 = 100;
/// The unit of age before one is chosen, as a power of two.
const FIRST_SHIFT: u32 = 10;
/// The periods after which the unit of age is chosen.
const SHIFT_PERIODS: [u64; 2] = [5, 25];
/// An object is to be counted at ages of this part of its expected stay.
const AGE_ERROR: f32 = 0.01;
/// By how much the mean number of objects is held after the unit of age was chosen.
const HOLD: f32 = 8.0;

/// An object in the cache.
#[derive(Clone, Copy, Debug)]
struct Member<W> {
    slot: u32,
    weight: W,
    /// When it came in, and when it was referenced last.
    entered: u64,
    last: u64,
    /// The ages at its last hit and the one before.
    hit_age: usize,
    hit_age_before: usize,
    explorer: bool,
}

/// The lower, the sooner it is evicted.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
struct Rank {
    spared: bool,
    density: f32,
}

/// A newcomer that is a candidate while it is the one in its slot.
#[derive(Clone, Copy, Debug)]
struct Newcomer {
    slot: u32,
    entered: u64,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Lhd<W = Unit> {
    config: LhdConfig,
    random: Random,
    model: Model,
    /// The filled slots, in any order; one that leaves is replaced by the last.
    members: Vec<Member<W>>,
    /// By slot, its index in `members`.
    place: Vec<u32>,
    newcomers: Vec<Newcomer>,
    /// The index in `newcomers` of the next one.
    next_newcomer: usize,
    victim_density: f32,
    /// References so far.
    now: u64,
    periods: u64,
    shift: u32,
    objects_sum: f32,
    objects_mass: f32,
    capacity: u64,
    explored: u64,
}

impl<W: Weight> Lhd<W> {
    /// For a cache of `capacity` blocks or bytes.
    pub fn new(capacity: u64, config: LhdConfig) -> Self {
        Lhd {
            config,
            random: Random::new(config.seed),
            model: Model::new(config.ages),
            members: Vec::new(),
            place: Vec::new(),
            newcomers: Vec::new(),
            next_newcomer: 0,
            victim_density: 0.0,
            now: 0,
            periods: 0,
            shift: FIRST_SHIFT,
            objects_sum: 0.0,
            objects_mass: 0.0,
            capacity,
            explored: 0,
        }
    }

    fn age(&self, member: &Member<W>) -> usize {
        let age = (self.now - member.last) >> self.shift;
        (age as usize).min(self.config.ages - 1)
    }

    fn class(&self, member: &Member<W>) -> usize {
        self.model.class(member.hit_age + member.hit_age_before)
    }

    fn density(&self, member: &Member<W>) -> f32 {
        let age = self.age(member);
        if age == self.config.ages - 1 {
            return f32::MIN;
        }
        let bytes = member.weight.get().max(1) as f32;
        self.model.density(self.class(member), age) / bytes
    }

    fn rank(&self, member: &Member<W>) -> Rank {
        let density = self.density(member);
        Rank {
            spared: member.explorer && density > f32::MIN,
            density,
        }
    }

    /// Makes an object that is referenced an explorer, or not. Returns whether it was drawn.
    fn explore(&mut self, at: usize) -> bool {
        let drawn = self.random.below(EXPLORERS) == 0;
        let member = &mut self.members[at];
        let bytes = member.weight.get();
        if std::mem::take(&mut member.explorer) {
            self.explored -= bytes;
        }
        if drawn && self.explored * EXPLORED < self.capacity && self.periods < EARLY_PERIODS {
            member.explorer = true;
            self.explored += bytes;
        }
        drawn
    }

    fn pass_time(&mut self) {
        self.now += 1;
        if self.now.is_multiple_of(self.config.period) {
            self.model.decay();
            self.choose_unit();
            self.model.update_densities();
            self.periods += 1;
        }
    }

    fn choose_unit(&mut self) {
        self.objects_sum = self.objects_sum * DECAY + self.members.len() as f32;
        self.objects_mass = self.objects_mass * DECAY + 1.0;
        if !SHIFT_PERIODS.contains(&self.periods) {
            return;
        }
        let objects = self.objects_sum / self.objects_mass;
        let unit = objects / (AGE_ERROR * self.config.ages as f32);
        let mut shift = 1;
        while ((1u64 << shift) as f32) < unit {
            shift += 1;
        }
        self.model.coarsen(shift as i32 - self.shift as i32);
        self.shift = shift;
        self.objects_sum *= HOLD;
        self.objects_mass *= HOLD;
    }

    /// The candidate with the lowest rank.
    fn lowest(&mut self) -> (Slot, Rank) {
        let drawn = if self.periods > EARLY_PERIODS {
            self.config.samples
        } else {
            self.config.samples.min(EARLY_SAMPLES)
        };
        let mut lowest = None;
        let mut consider = |slot: u32, rank: Rank| {
            if lowest.is_none_or(|(_, least)| rank < least) {
                lowest = Some((Slot(slot), rank));
            }
        };
        for _ in 0..drawn {
            let at = self.random.below(self.members.len() as u64);
            let member = self.members[at as usize];
            consider(member.slot, self.rank(&member));
        }
        for newcomer in &self.newcomers {
            let at = self.place[newcomer.slot as usize] as usize;
            let member = self.members.get(at).filter(|member| {
                member.slot == newcomer.slot && member.entered == newcomer.entered
            });
            if let Some(member) = member {
                consider(member.slot, self.rank(member));
            }
        }
        lowest.expect("one is drawn at least")
    }

    fn note_newcomer(&mut self, newcomer: Newcomer) {
        if self.newcomers.len() < NEWCOMERS {
            self.newcomers.push(newcomer);
        } else {
            self.newcomers[self.next_newcomer] = newcomer;
        }
        self.next_newcomer = (self.next_newcomer + 1) % NEWCOMERS;
    }
}

impl<W: Weight> Replacement for Lhd<W> {
    fn hit(&mut self, slot: Slot, _access: &Access) {
        let at = self.place[slot.index()] as usize;
        let member = self.members[at];
        let age = self.age(&member);
        self.model.hit(self.class(&member), age);
        self.members[at] = Member {
            last: self.now,
            hit_age: age,
            hit_age_before: member.hit_age,
            ..member
        };
        self.explore(at);
        self.pass_time();
    }

    fn victim(&mut self, _incoming: &Access) -> Slot {
        let (slot, rank) = self.lowest();
        self.victim_density = DECAY * self.victim_density + (1.0 - DECAY) * rank.density;
        let member = self.members[self.place[slot.index()] as usize];
        self.model.evicted(self.class(&member), self.age(&member));
        self.removed(slot);
        slot
    }

    fn inserted(&mut self, slot: Slot, access: &Access) {
        let at = self.members.len();
        weight::set(&mut self.place, slot, at as u32);
        self.members.push(Member {
            slot: slot.0,
            weight: W::of(access),
            entered: self.now,
            last: self.now,
            hit_age: 0,
            hit_age_before: self.config.ages,
            explorer: false,
        });
        let drawn = self.explore(at);
        if !drawn && self.density(&self.members[at]) < self.victim_density {
            let entered = self.now;
            let slot = slot.0;
            self.note_newcomer(Newcomer { slot, entered });
        }
        self.pass_time();
    }

    fn removed(&mut self, slot: Slot) {
        let at = self.place[slot.index()];
        let member = self.members.swap_remove(at as usize);
        if member.explorer {
            self.explored -= member.weight.get();
        }
        if let Some(moved) = self.members.get(at as usize) {
            self.place[moved.slot as usize] = at;
        }
    }

    fn resized(&mut self, capacity: u32) {
        self.capacity = capacity.into();
    }

    fn check(&self, resident: usize) {
        assert_eq!(self.members.len(), resident);
        let mut explored = 0;
        for (at, member) in self.members.iter().enumerate() {
            assert_eq!(self.place[member.slot as usize] as usize, at);
            assert!(member.entered <= member.last);
            assert!(member.last < self.now);
            assert!(member.hit_age < self.config.ages);
            if member.explorer {
                explored += member.weight.get();
            }
        }
        assert_eq!(explored, self.explored);
        assert!(self.newcomers.len() <= NEWCOMERS);
    }
}
