//! Twins of the policies that count references.

use crate::plain::take;
use crate::{Twin, share};
use hither_core::random::mix;
use hither_core::{Access, Block, Tick};
use std::collections::BTreeMap;

/// LFU: looks at the count and the last reference of every block.
pub(crate) struct NaiveLfu {
    capacity: usize,
    blocks: Vec<(u64, Tick, Block)>,
}

impl NaiveLfu {
    pub(crate) fn new(capacity: usize) -> Self {
        NaiveLfu {
            capacity,
            blocks: Vec::new(),
        }
    }
}

impl Twin for NaiveLfu {
    fn access(&mut self, access: &Access) -> (bool, Option<Block>) {
        for (count, last, block) in &mut self.blocks {
            if *block == access.block {
                *count += 1;
                *last = access.tick;
                return (true, None);
            }
        }
        let mut evicted = None;
        if self.blocks.len() == self.capacity {
            let least = *self.blocks.iter().min().expect("it is full");
            self.remove(least.2);
            evicted = Some(least.2);
        }
        self.blocks.push((1, access.tick, access.block));
        (false, evicted)
    }

    fn remove(&mut self, block: Block) {
        self.blocks.retain(|&(_, _, other)| other != block);
    }
}

/// W-TinyLFU. Lists have the most recent block last.
pub(crate) struct NaiveTinyLfu {
    capacity: usize,
    window_max: usize,
    protected_max: usize,
    window: Vec<Block>,
    probation: Vec<Block>,
    protected: Vec<Block>,
    /// By row, line and counter.
    counters: BTreeMap<(u64, u64, u64), u64>,
    counted: u64,
    sample: u64,
    /// Whether the window's size changes; the hits and references of the present sample, the hit
    /// ratio of the last one, and the next step.
    climbs: bool,
    hits: f64,
    references: u64,
    ratio: f64,
    step: f64,
}

impl NaiveTinyLfu {
    pub(crate) fn climbing(self) -> Self {
        NaiveTinyLfu {
            climbs: true,
            step: -0.0625 * self.capacity as f64,
            ..self
        }
    }

    pub(crate) fn new(capacity: usize, window: f64, protected: f64, sample: u64) -> Self {
        let window_max = share(capacity, window);
        NaiveTinyLfu {
            capacity,
            window_max,
            protected_max: ((capacity - window_max) as f64 * protected) as usize,
            window: Vec::new(),
            probation: Vec::new(),
            protected: Vec::new(),
            counters: BTreeMap::new(),
            counted: 0,
            sample: sample * capacity as u64,
            climbs: false,
            hits: 0.0,
            references: 0,
            ratio: 0.0,
            step: 0.0,
        }
    }

    /// A reference has been served.
    fn climb(&mut self, hit: bool) {
        self.references += 1;
        self.hits += f64::from(u8::from(hit));
        if !self.climbs || self.references < self.sample {
            return;
        }
        let ratio = self.hits / self.references as f64;
        let change = ratio - self.ratio;
        let step = if change < 0.0 { -self.step } else { self.step };
        self.step = step * 0.98;
        if change.abs() >= 0.05 {
            self.step = 0.0625 * self.capacity as f64 * step.signum();
        }
        (self.hits, self.references, self.ratio) = (0.0, 0, ratio);
        let room = (step.abs() as usize).min(if step > 0.0 {
            self.protected_max
        } else {
            self.window_max - 1
        });
        if step < 0.0 {
            self.window_max -= room;
            self.protected_max += room;
            while self.window.len() > self.window_max {
                self.probation.push(self.window.remove(0));
            }
            return;
        }
        self.window_max += room;
        self.protected_max -= room;
        while self.protected.len() > self.protected_max {
            self.probation.push(self.protected.remove(0));
        }
        for _ in 0..room.min(self.window_max - self.window.len()) {
            if !self.probation.is_empty() {
                self.window.push(self.probation.remove(0));
            } else if !self.protected.is_empty() {
                self.window.push(self.protected.remove(0));
            }
        }
    }

    /// The policy's rule: a line for eight blocks, the next power of two; 32 counters a row in
    /// each.
    fn places(&self, block: Block) -> [(u64, u64, u64); 4] {
        let hash = mix(u64::from(block.0) + 1);
        let lines = (self.capacity as u64).next_power_of_two().max(8) / 8;
        [0, 1, 2, 3].map(|row| (row, (hash >> 32) % lines, (hash >> (5 * row)) % 32))
    }

    fn count(&mut self, block: Block) {
        for place in self.places(block) {
            let counter = self.counters.entry(place).or_default();
            *counter = (*counter + 1).min(15);
        }
        self.counted += 1;
        if self.counted == self.sample {
            self.counters.values_mut().for_each(|counter| *counter /= 2);
            self.counted /= 2;
        }
    }

    fn estimate(&self, block: Block) -> u64 {
        let counters = self.places(block).map(|place| self.counters.get(&place));
        counters.into_iter().min().flatten().copied().unwrap_or(0)
    }

    fn evict(&mut self) -> Block {
        let main = if self.probation.is_empty() {
            &self.protected
        } else {
            &self.probation
        };
        let main = main.first().copied();
        if self.window.len() == self.window_max {
            let candidate = self.window[0];
            if main.is_none_or(|main| self.estimate(candidate) <= self.estimate(main)) {
                return candidate;
            }
            self.window.remove(0);
            self.probation.push(candidate);
        }
        main.expect("the window has less than its share, so the rest has some")
    }
}

impl Twin for NaiveTinyLfu {
    fn access(&mut self, access: &Access) -> (bool, Option<Block>) {
        let x = access.block;
        let mut evicted = None;
        let hit = [&self.window, &self.probation, &self.protected]
            .iter()
            .any(|list| list.contains(&x));
        if take(&mut self.probation, x) || take(&mut self.protected, x) {
            self.protected.push(x);
            if self.protected.len() > self.protected_max {
                self.probation.push(self.protected.remove(0));
            }
        } else {
            let resident = self.window.len() + self.probation.len() + self.protected.len();
            if !hit && resident == self.capacity {
                let victim = self.evict();
                self.remove(victim);
                evicted = Some(victim);
            }
            take(&mut self.window, x);
            self.window.push(x);
            if self.window.len() > self.window_max {
                self.probation.push(self.window.remove(0));
            }
        }
        self.count(x);
        self.climb(hit);
        (hit, evicted)
    }

    fn remove(&mut self, block: Block) {
        take(&mut self.window, block);
        take(&mut self.probation, block);
        take(&mut self.protected, block);
    }
}
