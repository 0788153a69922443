//! The twin of LHD, over objects of one byte.

use crate::Twin;
use hither_core::{Access, Block, Random};

/// A block in the cache.
#[derive(Clone, Copy)]
struct Tag {
    block: Block,
    entered: u64,
    last: u64,
    ages: [usize; 2],
    explorer: bool,
}

pub(crate) struct NaiveLhd {
    capacity: usize,
    samples: u64,
    period: u64,
    random: Random,
    tags: Vec<Tag>,
    /// By class and age.
    hits: Vec<Vec<f32>>,
    evictions: Vec<Vec<f32>>,
    densities: Vec<Vec<f32>>,
    /// The last eight, with when they came in, and how many there were.
    newcomers: [Option<(Block, u64)>; 8],
    noted: usize,
    victim_density: f32,
    now: u64,
    shift: i32,
    objects: [f32; 2],
}

/// Where blocks are counted together.
struct Cell {
    class: usize,
    age: usize,
}

impl NaiveLhd {
    pub(crate) fn new(capacity: usize, samples: u64, period: u64, ages: usize, seed: u64) -> Self {
        let first = |class: usize| (1..=ages).map(move |age| (class + 17) as f32 / age as f32);
        NaiveLhd {
            capacity,
            samples,
            period,
            random: Random::new(seed),
            tags: Vec::new(),
            hits: vec![vec![0.0; ages]; 16],
            evictions: vec![vec![0.0; ages]; 16],
            densities: (0..16).map(|class| first(class).collect()).collect(),
            newcomers: [None; 8],
            noted: 0,
            victim_density: 0.0,
            now: 0,
            shift: 10,
            objects: [0.0, 0.0],
        }
    }

    fn ages(&self) -> usize {
        self.hits[0].len()
    }

    /// The class and the age of a block.
    fn cell(&self, tag: &Tag) -> Cell {
        let age = ((self.now - tag.last) >> self.shift) as usize;
        let sum = tag.ages[0] + tag.ages[1];
        let halvings = (0..15).take_while(|class| sum << class < self.ages());
        let class = if sum == 0 { 15 } else { halvings.count() };
        let age = age.min(self.ages() - 1);
        Cell { class, age }
    }

    fn density(&self, tag: &Tag) -> f32 {
        let Cell { class, age } = self.cell(tag);
        if age == self.ages() - 1 {
            return f32::MIN;
        }
        self.densities[class][age]
    }

    fn evict(&mut self) -> Block {
        let early = self.now / self.period <= 50;
        let samples = if early {
            self.samples.min(8)
        } else {
            self.samples
        };
        let resident = self.tags.len() as u64;
        let drawn = (0..samples).map(|_| self.tags[self.random.below(resident) as usize]);
        let mut candidates: Vec<Tag> = drawn.collect();
        for (block, entered) in self.newcomers.into_iter().flatten() {
            let same = |tag: &&Tag| (tag.block, tag.entered) == (block, entered);
            candidates.extend(self.tags.iter().find(same));
        }
        let rank = |tag: &Tag| {
            let density = self.density(tag);
            (tag.explorer && density > f32::MIN, density)
        };
        let lower = |least: Tag, tag: Tag| {
            if rank(&tag) < rank(&least) {
                tag
            } else {
                least
            }
        };
        let victim = candidates
            .into_iter()
            .reduce(lower)
            .expect("some are drawn");
        self.victim_density = 0.9 * self.victim_density + (1.0 - 0.9) * self.density(&victim);
        let Cell { class, age } = self.cell(&victim);
        self.evictions[class][age] += 1.0;
        self.remove(victim.block);
        victim.block
    }

    /// Whether it was drawn.
    fn explore(&mut self, at: usize) -> bool {
        let drawn = self.random.below(32) == 0;
        self.tags[at].explorer = false;
        let explorers = self.tags.iter().filter(|tag| tag.explorer).count();
        self.tags[at].explorer =
            drawn && explorers * 100 < self.capacity && self.now / self.period < 50;
        drawn
    }

    fn reconfigure(&mut self) {
        for counts in self.hits.iter_mut().chain(&mut self.evictions) {
            counts.iter_mut().for_each(|count| *count *= 0.9);
        }
        let ages = self.ages();
        self.objects[0] = self.objects[0] * 0.9 + self.tags.len() as f32;
        self.objects[1] = self.objects[1] * 0.9 + 1.0;
        if [5, 25].contains(&(self.now / self.period - 1)) {
            let unit = self.objects[0] / self.objects[1] / (0.01 * ages as f32);
            let shift = (1..60).find(|&shift| (1u64 << shift) as f32 >= unit);
            let coarser = shift.expect("a unit") - self.shift;
            self.shift += coarser;
            for counts in self.hits.iter_mut().chain(&mut self.evictions) {
                *counts = rescaled(counts, coarser);
            }
            self.objects = self.objects.map(|sum| sum * 8.0);
        }
        for class in 0..16 {
            let (hits, evictions) = (&self.hits[class], &self.evictions[class]);
            let [mut later_hits, mut later, mut lifetime] = [0.0; 3];
            for age in (0..ages).rev() {
                later_hits += hits[age];
                later += hits[age] + evictions[age];
                lifetime += later;
                let density = if later > 1e-5 {
                    later_hits / lifetime
                } else {
                    0.0
                };
                self.densities[class][age] = density;
            }
        }
    }

    fn pass_time(&mut self) {
        self.now += 1;
        if self.now.is_multiple_of(self.period) {
            self.reconfigure();
        }
    }
}

fn rescaled(counts: &[f32], coarser: i32) -> Vec<f32> {
    let last = counts.len() - 1;
    let factor = 1usize << coarser.abs();
    let mut new = vec![0.0; counts.len()];
    new[last] = counts[last];
    for age in 0..last {
        if coarser < 0 {
            new[age] = counts[age / factor] / factor as f32;
        } else if (age + 1) * factor <= counts.len() {
            new[age] = counts[age * factor..(age + 1) * factor].iter().sum();
        }
    }
    if coarser < 0 {
        new[last] += counts[counts.len() / factor..last].iter().sum::<f32>();
    }
    new
}

impl Twin for NaiveLhd {
    fn access(&mut self, access: &Access) -> (bool, Option<Block>) {
        let at = self.tags.iter().position(|tag| tag.block == access.block);
        if let Some(at) = at {
            let Cell { class, age } = self.cell(&self.tags[at]);
            self.hits[class][age] += 1.0;
            let tag = &mut self.tags[at];
            tag.last = self.now;
            tag.ages = [age, tag.ages[0]];
            self.explore(at);
            self.pass_time();
            return (true, None);
        }
        let evicted = (self.tags.len() == self.capacity).then(|| self.evict());
        self.tags.push(Tag {
            block: access.block,
            entered: self.now,
            last: self.now,
            ages: [0, self.ages()],
            explorer: false,
        });
        let at = self.tags.len() - 1;
        if !self.explore(at) && self.density(&self.tags[at]) < self.victim_density {
            self.newcomers[self.noted % 8] = Some((access.block, self.now));
            self.noted += 1;
        }
        self.pass_time();
        (false, evicted)
    }

    fn remove(&mut self, block: Block) {
        if let Some(at) = self.tags.iter().position(|tag| tag.block == block) {
            self.tags.swap_remove(at);
        }
    }
}
