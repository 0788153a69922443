//! Twins of the policies that keep blocks in queues: nothing moves on a hit. Lists have the oldest
//! block first.

use crate::plain::take;
use crate::{Twin, share};
use hither_core::{Access, Block, Random};

/// CLOCK: the hand is at the front of the list.
pub(crate) struct NaiveClock {
    capacity: usize,
    bits: u64,
    circle: Vec<(Block, u64)>,
}

impl NaiveClock {
    pub(crate) fn new(capacity: usize, bits: u64) -> Self {
        NaiveClock {
            capacity,
            bits,
            circle: Vec::new(),
        }
    }
}

impl Twin for NaiveClock {
    fn access(&mut self, access: &Access) -> (bool, Option<Block>) {
        for (block, rounds) in &mut self.circle {
            if *block == access.block {
                *rounds = self.bits;
                return (true, None);
            }
        }
        let mut evicted = None;
        while self.circle.len() == self.capacity {
            match self.circle.remove(0) {
                (block, 0) => evicted = Some(block),
                (block, rounds) => self.circle.push((block, rounds - 1)),
            }
        }
        self.circle.push((access.block, 0));
        (false, evicted)
    }

    fn remove(&mut self, block: Block) {
        self.circle.retain(|&(other, _)| other != block);
    }
}

/// RAND with the policy's own generator.
pub(crate) struct NaiveRandom {
    capacity: usize,
    generator: Random,
    blocks: Vec<Block>,
}

impl NaiveRandom {
    pub(crate) fn new(capacity: usize, seed: u64) -> Self {
        NaiveRandom {
            capacity,
            generator: Random::new(seed),
            blocks: Vec::new(),
        }
    }
}

impl Twin for NaiveRandom {
    fn access(&mut self, access: &Access) -> (bool, Option<Block>) {
        if self.blocks.contains(&access.block) {
            return (true, None);
        }
        let mut evicted = None;
        if self.blocks.len() == self.capacity {
            let at = self.generator.below(self.capacity as u64) as usize;
            evicted = Some(self.blocks.swap_remove(at));
        }
        self.blocks.push(access.block);
        (false, evicted)
    }

    fn remove(&mut self, block: Block) {
        if let Some(at) = self.blocks.iter().position(|&other| other == block) {
            self.blocks.swap_remove(at);
        }
    }
}

/// S3-FIFO as in libCacheSim, and its variants. What is in the queues has its uses and when it came
/// in.
pub(crate) struct NaiveS3Fifo {
    capacity: usize,
    small_max: usize,
    ghost_max: usize,
    rules: S3FifoRules,
    /// What came into the small queue.
    entered: usize,
    small: Vec<(Block, u64, usize)>,
    main: Vec<(Block, u64, usize)>,
    ghost: Vec<Block>,
    evicting: bool,
    /// What the small and the main queue evicted last, and how many of these came back.
    history: [Vec<Block>; 2],
    returned: [usize; 2],
}

/// The rules of its variants.
#[derive(Clone, Copy)]
pub(crate) struct S3FifoRules {
    pub(crate) threshold: u64,
    pub(crate) rounds: u64,
    pub(crate) window: f64,
    pub(crate) history: f64,
}

pub(crate) const S3_FIFO: S3FifoRules = S3FifoRules {
    threshold: 2,
    rounds: 3,
    window: 0.0,
    history: 0.0,
};

impl NaiveS3Fifo {
    pub(crate) fn new(capacity: usize, small: f64, ghost: f64, rules: S3FifoRules) -> Self {
        NaiveS3Fifo {
            capacity,
            small_max: share(capacity, small),
            ghost_max: share(capacity, ghost),
            rules: S3FifoRules {
                window: (share(capacity, small) as f64 * rules.window).floor(),
                ..rules
            },
            entered: 0,
            small: Vec::new(),
            main: Vec::new(),
            ghost: Vec::new(),
            evicting: false,
            history: [Vec::new(), Vec::new()],
            returned: [0, 0],
        }
    }

    fn evict(&mut self) -> (Block, usize) {
        if self.main.len() <= self.capacity - self.small_max {
            while !self.small.is_empty() {
                let (block, uses, _) = self.small.remove(0);
                if uses < self.rules.threshold {
                    self.ghost.push(block);
                    return (block, 0);
                }
                self.main.push((block, 0, 0));
            }
        }
        loop {
            match self.main.remove(0) {
                (block, 0, _) => return (block, 1),
                (block, uses, _) => self.main.push((block, uses.min(self.rules.rounds) - 1, 0)),
            }
        }
    }

    /// Changes the size of the small queue by what the histories show, and then looks for `block`.
    fn adapt(&mut self, block: Block) {
        let main_max = self.capacity - self.small_max;
        let [small, main] = self.returned;
        if self.history[1].is_empty() {
            self.returned = [0, 0];
        } else if small + main > 100 {
            let step = (self.small_max.min(main_max) / 1000).max(1);
            let least = step.max(self.capacity / 100);
            if small > 2 * main && main_max > least {
                self.small_max += step;
            } else if main > 2 * small && self.small_max > least {
                self.small_max -= step;
            }
            self.returned = [small * 4 / 5, main * 4 / 5];
        }
        for queue in [0, 1] {
            self.returned[queue] += usize::from(take(&mut self.history[queue], block));
        }
    }
}

impl Twin for NaiveS3Fifo {
    fn access(&mut self, access: &Access) -> (bool, Option<Block>) {
        for (block, uses, entered) in &mut self.small {
            if *block == access.block {
                let counts = (self.entered - *entered) as f64 >= self.rules.window;
                *uses += u64::from(counts);
                return (true, None);
            }
        }
        for (block, uses, _) in &mut self.main {
            if *block == access.block {
                *uses += 1;
                return (true, None);
            }
        }
        let known = take(&mut self.ghost, access.block);
        let mut evicted = None;
        if self.small.len() + self.main.len() == self.capacity {
            self.evicting = true;
            let (block, queue) = self.evict();
            evicted = Some(block);
            if self.rules.history > 0.0 {
                self.history[queue].push(block);
                if self.history[queue].len() > share(self.capacity, self.rules.history) {
                    self.history[queue].remove(0);
                }
            }
        }
        if self.rules.history > 0.0 {
            self.adapt(access.block);
        }
        if self.ghost.len() > self.ghost_max {
            self.ghost.remove(0);
        }
        if known || (!self.evicting && self.small.len() >= self.small_max) {
            self.main.push((access.block, 0, 0));
        } else {
            self.entered += 1;
            self.small.push((access.block, 0, self.entered));
        }
        (false, evicted)
    }

    fn remove(&mut self, block: Block) {
        self.small.retain(|&(other, ..)| other != block);
        self.main.retain(|&(other, ..)| other != block);
    }
}

/// The full version of 2Q, in the paper's names.
pub(crate) struct NaiveTwoQ {
    capacity: usize,
    kin: usize,
    kout: usize,
    a1in: Vec<Block>,
    a1out: Vec<Block>,
    am: Vec<Block>,
}

impl NaiveTwoQ {
    pub(crate) fn new(capacity: usize, kin: f64, kout: f64) -> Self {
        NaiveTwoQ {
            capacity,
            kin: share(capacity, kin),
            kout: share(capacity, kout),
            a1in: Vec::new(),
            a1out: Vec::new(),
            am: Vec::new(),
        }
    }

    fn reclaim(&mut self) -> Block {
        if self.a1in.len() > self.kin || self.am.is_empty() {
            let block = self.a1in.remove(0);
            self.a1out.push(block);
            if self.a1out.len() > self.kout {
                self.a1out.remove(0);
            }
            block
        } else {
            self.am.remove(0)
        }
    }
}

impl Twin for NaiveTwoQ {
    fn access(&mut self, access: &Access) -> (bool, Option<Block>) {
        let x = access.block;
        if take(&mut self.am, x) {
            self.am.push(x);
            return (true, None);
        }
        if self.a1in.contains(&x) {
            return (true, None);
        }
        let full = self.a1in.len() + self.am.len() == self.capacity;
        let known = take(&mut self.a1out, x);
        let evicted = full.then(|| self.reclaim());
        if known {
            self.am.push(x);
        } else {
            self.a1in.push(x);
        }
        (false, evicted)
    }

    fn remove(&mut self, block: Block) {
        take(&mut self.a1in, block);
        take(&mut self.am, block);
    }
}
