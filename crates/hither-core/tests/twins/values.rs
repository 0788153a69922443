//! Twins of the policies that give each block a value, and evict the lowest of all or of a sample.

use crate::Twin;
use hither_core::{Access, Block, Random, Tick};

/// GDSF and LFU-DA: value, last reference, block, references.
pub(crate) struct NaiveAging {
    capacity: usize,
    /// What a reference is worth.
    worth: fn(&Access) -> f64,
    age: f64,
    blocks: Vec<(f64, Tick, Block, f64)>,
}

impl NaiveAging {
    pub(crate) fn new(capacity: usize, worth: fn(&Access) -> f64) -> Self {
        NaiveAging {
            capacity,
            worth,
            age: 0.0,
            blocks: Vec::new(),
        }
    }
}

impl Twin for NaiveAging {
    fn access(&mut self, access: &Access) -> (bool, Option<Block>) {
        let worth = (self.worth)(access);
        for (value, last, block, uses) in &mut self.blocks {
            if *block == access.block {
                *uses += 1.0;
                *value = self.age + *uses * worth;
                *last = access.tick;
                return (true, None);
            }
        }
        let mut evicted = None;
        if self.blocks.len() == self.capacity {
            let lowest = self.blocks.iter().copied();
            let order = |a: &(f64, Tick, Block, f64), b: &(f64, Tick, Block, f64)| {
                a.partial_cmp(b).expect("values are numbers")
            };
            let (value, _, block, _) = lowest.min_by(order).expect("it is full");
            self.age = value;
            self.remove(block);
            evicted = Some(block);
        }
        let value = self.age + worth;
        self.blocks.push((value, access.tick, access.block, 1.0));
        (false, evicted)
    }

    fn remove(&mut self, block: Block) {
        self.blocks.retain(|entry| entry.2 != block);
    }
}

/// LFU-DA as in libCacheSim: a hit adds the lowest key of all to that of its block.
pub(crate) struct NaiveLfuDaByAge {
    capacity: usize,
    evicted_one: bool,
    blocks: Vec<(u64, Tick, Block)>,
}

impl NaiveLfuDaByAge {
    pub(crate) fn new(capacity: usize) -> Self {
        NaiveLfuDaByAge {
            capacity,
            evicted_one: false,
            blocks: Vec::new(),
        }
    }
}

impl Twin for NaiveLfuDaByAge {
    fn access(&mut self, access: &Access) -> (bool, Option<Block>) {
        let lowest = |blocks: &[(u64, Tick, Block)]| blocks.iter().min().copied();
        let mut age = 0;
        if self.evicted_one {
            age = lowest(&self.blocks).map_or(0, |(key, ..)| key);
        }
        for (key, last, block) in &mut self.blocks {
            if *block == access.block {
                *key = key.saturating_add(age);
                *last = access.tick;
                return (true, None);
            }
        }
        let mut evicted = None;
        if self.blocks.len() == self.capacity {
            let (key, _, block) = lowest(&self.blocks).expect("it is full");
            self.evicted_one = true;
            self.remove(block);
            evicted = Some(block);
            age = lowest(&self.blocks).map_or(key, |(key, ..)| key);
        }
        self.blocks
            .push((age.saturating_add(1), access.tick, access.block));
        (false, evicted)
    }

    fn remove(&mut self, block: Block) {
        self.blocks.retain(|entry| entry.2 != block);
    }
}

/// Hyperbolic caching with the policy's own generator: block, references, when it came in.
pub(crate) struct NaiveHyperbolic {
    capacity: usize,
    samples: u64,
    random: Random,
    blocks: Vec<(Block, f64, Tick)>,
}

impl NaiveHyperbolic {
    pub(crate) fn new(capacity: usize, samples: u64, seed: u64) -> Self {
        NaiveHyperbolic {
            capacity,
            samples,
            random: Random::new(seed),
            blocks: Vec::new(),
        }
    }
}

impl Twin for NaiveHyperbolic {
    fn access(&mut self, access: &Access) -> (bool, Option<Block>) {
        for (block, uses, _) in &mut self.blocks {
            if *block == access.block {
                *uses += 1.0;
                return (true, None);
            }
        }
        let mut evicted = None;
        if self.blocks.len() == self.capacity {
            let mut drawn: Vec<(f64, Block)> = Vec::new();
            for _ in 0..self.samples {
                let at = self.random.below(self.capacity as u64) as usize;
                let (block, uses, entered) = self.blocks[at];
                drawn.push((uses / (access.tick - entered) as f64, block));
            }
            let (_, block) = drawn
                .into_iter()
                .reduce(|least, one| if one.0 < least.0 { one } else { least })
                .expect("some are drawn");
            self.remove(block);
            evicted = Some(block);
        }
        self.blocks.push((access.block, 1.0, access.tick));
        (false, evicted)
    }

    fn remove(&mut self, block: Block) {
        if let Some(at) = self.blocks.iter().position(|entry| entry.0 == block) {
            self.blocks.swap_remove(at);
        }
    }
}
