//! Twins of the policies that ask two experts.

use crate::Twin;
use hither_core::{Access, Block, Random, Tick};

/// LeCaR. What is in the cache has its references and the last of them; a mistake has its time.
pub(crate) struct NaiveLeCaR {
    capacity: usize,
    rate: f64,
    random: Random,
    /// Of LRU and of LFU.
    weights: [f64; 2],
    blocks: Vec<(u64, Tick, Block)>,
    mistakes: [Vec<(Block, Tick)>; 2],
}

impl NaiveLeCaR {
    pub(crate) fn new(capacity: usize, rate: f64, seed: u64) -> Self {
        NaiveLeCaR {
            capacity,
            rate,
            random: Random::new(seed),
            weights: [0.5, 0.5],
            blocks: Vec::new(),
            mistakes: [Vec::new(), Vec::new()],
        }
    }

    fn learn(&mut self, x: Block, now: Tick) {
        for expert in [0, 1] {
            let mistakes = &mut self.mistakes[expert];
            if let Some(at) = mistakes.iter().position(|&(block, _)| block == x) {
                let (_, then) = mistakes.remove(at);
                let resident = self.blocks.len().max(1) as f64;
                let reward = 0.005f64.powf((now - then) as f64 / resident);
                self.weights[expert] *= (-self.rate * reward).exp();
                let sum = self.weights[0] + self.weights[1] + 2e-10;
                self.weights[0] = (self.weights[0] + 1e-10) / sum;
                self.weights[1] = 1.0 - self.weights[0];
            }
        }
    }

    fn evict(&mut self, now: Tick) -> Block {
        let recency = self.blocks.iter().min_by_key(|&&(_, last, _)| last);
        let (lru, lfu) = (recency.expect("it is full").2, self.blocks.iter().min());
        let lfu = lfu.expect("it is full").2;
        let mut victim = lru;
        if lru != lfu {
            let expert = usize::from(self.random.unit() >= self.weights[0]);
            victim = [lru, lfu][expert];
            self.mistakes[expert].push((victim, now));
            if self.mistakes[expert].len() > self.capacity / 2 {
                self.mistakes[expert].remove(0);
            }
        }
        self.remove(victim);
        victim
    }
}

impl Twin for NaiveLeCaR {
    fn access(&mut self, access: &Access) -> (bool, Option<Block>) {
        for (uses, last, block) in &mut self.blocks {
            if *block == access.block {
                *uses += 1;
                *last = access.tick;
                return (true, None);
            }
        }
        self.learn(access.block, access.tick);
        let full = self.blocks.len() == self.capacity;
        let evicted = full.then(|| self.evict(access.tick));
        self.blocks.push((1, access.tick, access.block));
        (false, evicted)
    }

    fn remove(&mut self, block: Block) {
        self.blocks.retain(|entry| entry.2 != block);
    }
}
