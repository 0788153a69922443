//! Twins of the policies that remember more of a block than its last reference: CAR, LRU-K, LRFU
//! and MQ. Lists have the most recent block last.

use crate::lirs::NaiveLirs;
use crate::plain::take;
use crate::traces::Random;
use crate::{Twin, spec};
use hither_core::{Access, Block, Spec};
use std::collections::BTreeMap;

/// Each with its defaults and with drawn parameters.
pub(crate) fn contestants(size: usize, random: &mut Random) -> Vec<(Spec, Option<Box<dyn Twin>>)> {
    let (queue, stack) = (random.below(101) as usize, random.below(4) as usize);
    let (k, correlated) = (1 + random.below(4) as usize, random.below(12));
    let history = [0.0, 0.3, 1.0, 4.0][random.below(4) as usize];
    let lambda = [0.0, 0.01, 0.1, 0.4, 1.0][random.below(5) as usize];
    let (queues, lifetime) = (1 + random.below(8) as usize, 1 + random.below(60));
    let mut list: Vec<(Spec, Option<Box<dyn Twin>>)> = Vec::new();
    let mut add = |text: String, twin: Box<dyn Twin>| list.push((spec(&text), Some(twin)));
    add("lirs".into(), Box::new(NaiveLirs::new(size, 1, 0)));
    add(
        format!("lirs{{queue={queue},stack={stack}}}"),
        Box::new(NaiveLirs::new(size, queue, stack)),
    );
    add("car".into(), Box::new(NaiveCar::new(size)));
    add("lru-k".into(), Box::new(NaiveLruK::new(size, 2, 0, 1.0)));
    add(
        format!("lru-k{{k={k},correlated={correlated},history={history}}}"),
        Box::new(NaiveLruK::new(size, k, correlated, history)),
    );
    add("lrfu".into(), Box::new(NaiveLrfu::new(size, 0.001)));
    add(
        format!("lrfu{{lambda={lambda}}}"),
        Box::new(NaiveLrfu::new(size, lambda)),
    );
    add("mq".into(), Box::new(NaiveMq::new(size, 8, 0, 4.0)));
    add(
        format!("mq{{queues={queues},lifetime={lifetime},history={history}}}"),
        Box::new(NaiveMq::new(size, queues, lifetime, history)),
    );
    list
}

/// Figure 2 of the CAR paper, in its own names and order.
struct NaiveCar {
    c: usize,
    p: f64,
    t1: Vec<(Block, bool)>,
    t2: Vec<(Block, bool)>,
    b1: Vec<Block>,
    b2: Vec<Block>,
}

impl NaiveCar {
    fn new(c: usize) -> Self {
        NaiveCar {
            c,
            p: 0.0,
            t1: Vec::new(),
            t2: Vec::new(),
            b1: Vec::new(),
            b2: Vec::new(),
        }
    }

    fn replace(&mut self) -> Block {
        loop {
            if self.t1.len() as f64 >= self.p.max(1.0) {
                match self.t1.remove(0) {
                    (block, false) => {
                        self.b1.push(block);
                        return block;
                    }
                    (block, true) => self.t2.push((block, false)),
                }
            } else {
                match self.t2.remove(0) {
                    (block, false) => {
                        self.b2.push(block);
                        return block;
                    }
                    (block, true) => self.t2.push((block, false)),
                }
            }
        }
    }
}

impl Twin for NaiveCar {
    fn access(&mut self, access: &Access) -> (bool, Option<Block>) {
        let x = access.block;
        let resident = self.t1.iter_mut().chain(&mut self.t2);
        if let Some((_, bit)) = resident.into_iter().find(|(block, _)| *block == x) {
            *bit = true;
            return (true, None);
        }
        let full = self.t1.len() + self.t2.len() == self.c;
        let evicted = full.then(|| self.replace());
        let (b1, b2) = (self.b1.len() as f64, self.b2.len() as f64);
        if take(&mut self.b1, x) {
            self.p = (self.p + (b2 / b1).max(1.0)).min(self.c as f64);
            self.t2.push((x, false));
        } else if take(&mut self.b2, x) {
            self.p = (self.p - (b1 / b2).max(1.0)).max(0.0);
            self.t2.push((x, false));
        } else {
            let one = self.t1.len() + self.b1.len();
            if one == self.c && !self.b1.is_empty() {
                self.b1.remove(0);
            } else if one + self.t2.len() + self.b2.len() == 2 * self.c {
                self.b2.remove(0);
            }
            self.t1.push((x, false));
        }
        (false, evicted)
    }

    fn remove(&mut self, block: Block) {
        self.t1.retain(|(other, _)| *other != block);
        self.t2.retain(|(other, _)| *other != block);
    }
}

/// Figure 2.1 of the LRU-K paper: each block with LAST and HIST, in which a time is the tick plus
/// one.
struct NaiveLruK {
    capacity: usize,
    k: usize,
    correlated: u64,
    ghosts_max: usize,
    resident: Vec<(Block, u64, Vec<u64>)>,
    ghosts: Vec<(Block, Vec<u64>)>,
}

impl NaiveLruK {
    fn new(capacity: usize, k: usize, correlated: u64, history: f64) -> Self {
        NaiveLruK {
            capacity,
            k,
            correlated,
            ghosts_max: (history * capacity as f64) as usize,
            resident: Vec::new(),
            ghosts: Vec::new(),
        }
    }
}

impl Twin for NaiveLruK {
    fn access(&mut self, access: &Access) -> (bool, Option<Block>) {
        let (block, t) = (access.block, access.tick + 1);
        if let Some((_, last, hist)) = self.resident.iter_mut().find(|entry| entry.0 == block) {
            if t - *last > self.correlated {
                let period = *last - hist[0];
                for time in hist.iter_mut().filter(|time| **time > 0) {
                    *time += period;
                }
                hist.insert(0, t);
                hist.truncate(self.k);
            }
            *last = t;
            return (true, None);
        }
        let mut evicted = None;
        if self.resident.len() == self.capacity {
            let free = self.resident.iter().enumerate();
            let eligible = free.filter(|(_, entry)| t - entry.1 > self.correlated);
            let (at, _) = eligible
                .min_by_key(|(_, entry)| (entry.2[self.k - 1], entry.1))
                .or_else(|| {
                    let all = self.resident.iter().enumerate();
                    all.min_by_key(|(_, entry)| entry.1)
                })
                .expect("it is full");
            let (block, _, hist) = self.resident.remove(at);
            self.ghosts.push((block, hist));
            if self.ghosts.len() > self.ghosts_max {
                self.ghosts.remove(0);
            }
            evicted = Some(block);
        }
        let mut hist = vec![0; self.k];
        if let Some(at) = self.ghosts.iter().position(|(other, _)| *other == block) {
            hist = self.ghosts.remove(at).1;
        }
        hist.insert(0, t);
        hist.truncate(self.k);
        self.resident.push((block, t, hist));
        (false, evicted)
    }

    fn remove(&mut self, block: Block) {
        self.resident.retain(|entry| entry.0 != block);
    }
}

/// Each block with its CRF as of its last reference, and when that was.
struct NaiveLrfu {
    capacity: usize,
    lambda: f64,
    now: f64,
    resident: Vec<(Block, f64, f64)>,
}

impl NaiveLrfu {
    fn new(capacity: usize, lambda: f64) -> Self {
        NaiveLrfu {
            capacity,
            lambda,
            now: 0.0,
            resident: Vec::new(),
        }
    }
}

impl Twin for NaiveLrfu {
    fn access(&mut self, access: &Access) -> (bool, Option<Block>) {
        self.now += 1.0;
        let (now, lambda) = (self.now, self.lambda);
        let worth = |crf: f64, last: f64| crf * 0.5f64.powf(lambda * (now - last));
        let mut resident = self.resident.iter_mut();
        if let Some((_, crf, last)) = resident.find(|entry| entry.0 == access.block) {
            *crf = 1.0 + worth(*crf, *last);
            *last = now;
            return (true, None);
        }
        let mut evicted = None;
        if self.resident.len() == self.capacity {
            // Both ways of computing the same sum round differently; equal within that is equal.
            let least = self
                .resident
                .iter()
                .map(|&(_, crf, last)| worth(crf, last))
                .min_by(f64::total_cmp)
                .expect("it is full");
            let equals = self.resident.iter().enumerate();
            let (at, _) = equals
                .filter(|(_, entry)| worth(entry.1, entry.2) <= least * (1.0 + 1e-12))
                .min_by(|a, b| a.1.2.total_cmp(&b.1.2))
                .expect("one is the least");
            evicted = Some(self.resident.remove(at).0);
        }
        self.resident.push((access.block, 1.0, now));
        (false, evicted)
    }

    fn remove(&mut self, block: Block) {
        self.resident.retain(|entry| entry.0 != block);
    }
}

struct MqBlock {
    block: Block,
    frequency: u32,
    since: u64,
    last: u64,
}

/// The figure of section 5 of the MQ paper; lifetime 0 is measured.
struct NaiveMq {
    capacity: usize,
    measure: bool,
    lifetime: u64,
    /// Counts of distances by the upper end of their bin, and their sum in this window.
    distances: BTreeMap<u64, u32>,
    window: usize,
    ghosts_max: usize,
    now: u64,
    queues: Vec<Vec<MqBlock>>,
    ghosts: Vec<MqBlock>,
}

impl NaiveMq {
    fn new(capacity: usize, queues: usize, lifetime: u64, history: f64) -> Self {
        NaiveMq {
            capacity,
            measure: lifetime == 0,
            lifetime: lifetime.max(capacity as u64 * u64::from(lifetime == 0)),
            distances: BTreeMap::new(),
            window: 0,
            ghosts_max: (history * capacity as f64) as usize,
            now: 0,
            queues: (0..queues).map(|_| Vec::new()).collect(),
            ghosts: Vec::new(),
        }
    }

    fn measure(&mut self, distance: u64) {
        let mut bin = 1;
        // Bins are a quarter of an octave long, by the distance plus 3.
        while distance > bin {
            bin += (1 << (bin + 4).ilog2()) / 4;
        }
        *self.distances.entry(bin).or_default() += 1;
        self.window += 1;
        if self.window >= self.capacity.max(64) {
            let most = self.distances.values().max().expect("one at least");
            let peak = self.distances.iter().find(|(_, count)| *count == most);
            self.lifetime = *peak.expect("one of them").0.max(&(self.capacity as u64));
            self.distances.values_mut().for_each(|count| *count /= 2);
            self.window = 0;
        }
    }

    fn take(&mut self, block: Block) -> Option<MqBlock> {
        self.queues.iter_mut().find_map(|queue| {
            let at = queue.iter().position(|other| other.block == block)?;
            Some(queue.remove(at))
        })
    }
}

impl Twin for NaiveMq {
    fn access(&mut self, access: &Access) -> (bool, Option<Block>) {
        let block = access.block;
        let mut found = self.take(block);
        let hit = found.is_some();
        let mut evicted = None;
        if !hit {
            if self.queues.iter().map(Vec::len).sum::<usize>() == self.capacity {
                let lowest = self.queues.iter_mut().find(|queue| !queue.is_empty());
                let victim = lowest.expect("it is full").remove(0);
                evicted = Some(victim.block);
                self.ghosts.push(victim);
                if self.ghosts.len() > self.ghosts_max {
                    self.ghosts.remove(0);
                }
            }
            if let Some(at) = self.ghosts.iter().position(|ghost| ghost.block == block) {
                found = Some(self.ghosts.remove(at));
            }
        }
        let frequency = 1 + found.as_ref().map_or(0, |block| block.frequency);
        if let Some(found) = found.filter(|_| self.measure) {
            self.measure(self.now - found.last);
        }
        let level = (frequency.ilog2() as usize).min(self.queues.len() - 1);
        self.queues[level].push(MqBlock {
            block,
            frequency,
            since: self.now,
            last: self.now,
        });
        self.now += 1;
        for level in 1..self.queues.len() {
            let head = self.queues[level].first();
            if head.is_some_and(|head| head.since + self.lifetime < self.now) {
                let mut head = self.queues[level].remove(0);
                head.since = self.now;
                self.queues[level - 1].push(head);
            }
        }
        (hit, evicted)
    }

    fn remove(&mut self, block: Block) {
        self.take(block);
    }
}
