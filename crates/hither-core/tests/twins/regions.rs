//! Twins of EELRU and SEQ, with one list of blocks, searched for everything.

use crate::traces::Random;
use crate::{Twin, spec};
use hither_core::{Access, Block, Spec};

/// Each with its defaults and with drawn parameters.
pub(crate) fn contestants(size: usize, random: &mut Random) -> Vec<(Spec, Option<Box<dyn Twin>>)> {
    let (early, late) = (1 + random.below(5) as usize, 1 + random.below(5) as usize);
    let reach = [1.0, 1.5, 3.0][random.below(3) as usize];
    let (length, behind) = (1 + random.below(8), random.below(6) as i64);
    let (nth, sequences) = (1 + random.below(4) as usize, 1 + random.below(8) as usize);
    let mut list: Vec<(Spec, Option<Box<dyn Twin>>)> = Vec::new();
    let mut add = |text: String, twin: Box<dyn Twin>| list.push((spec(&text), Some(twin)));
    add(
        "eelru".into(),
        Box::new(NaiveEelru::new(size, 4, 8, 4.0, 4)),
    );
    add(
        format!("eelru{{early={early},late={late},reach={reach},memory=1}}"),
        Box::new(NaiveEelru::new(size, early, late, reach, 1)),
    );
    add("seq".into(), Box::new(NaiveSeq::new(size, 20, 20, 5, 200)));
    add(
        format!("seq{{length={length},behind={behind},nth={nth},sequences={sequences}}}"),
        Box::new(NaiveSeq::new(size, length, behind, nth, sequences)),
    );
    list
}

struct NaiveEelru {
    capacity: usize,
    points: Vec<usize>,
    /// The most recent first, with whether it is resident.
    order: Vec<(Block, bool)>,
    /// References by recency.
    hits: Vec<u64>,
    /// The chosen points.
    pair: Option<(usize, usize)>,
    references: u64,
    halve_every: u64,
    halve_at: u64,
}

impl NaiveEelru {
    fn new(capacity: usize, early: usize, late: usize, reach: f64, memory: u64) -> Self {
        let size = capacity as f64;
        let mut points: Vec<usize> = (1..=early)
            .map(|step| capacity * step / (early + 1))
            .collect();
        points.push(capacity);
        points.extend((1..=late).map(|step| {
            let part = step as f64 / late as f64;
            (size * (1.0 + (reach - 1.0) * part * (1.0 + part) / 2.0)) as usize
        }));
        let halve_every = (memory * capacity as u64).max(64);
        NaiveEelru {
            capacity,
            hits: vec![0; points.len() + 1],
            points,
            order: Vec::new(),
            pair: None,
            references: 0,
            halve_every,
            halve_at: halve_every,
        }
    }

    /// References that went to recencies from one point up to another.
    fn between(&self, from: usize, to: usize) -> f64 {
        let ends = self.points.iter().zip(&self.hits);
        ends.filter(|&(&end, _)| end > from && end <= to)
            .map(|(_, &hits)| hits as f64)
            .sum()
    }

    fn compare(&mut self) {
        let mut best = self.between(0, self.capacity);
        self.pair = None;
        for &early in &self.points {
            for &late in &self.points {
                if early == 0 || early >= self.capacity || late <= self.capacity {
                    continue;
                }
                let kept = (self.capacity - early) as f64 / (late - early) as f64;
                let hits = self.between(0, early) + kept * self.between(early, late);
                if hits > best {
                    best = hits;
                    self.pair = Some((early, late));
                }
            }
        }
    }
}

impl Twin for NaiveEelru {
    fn access(&mut self, access: &Access) -> (bool, Option<Block>) {
        let at = self
            .order
            .iter()
            .position(|(block, _)| *block == access.block);
        let hit = at.is_some_and(|at| self.order[at].1);
        let mut evicted = None;
        if !hit && self.order.iter().filter(|(_, inside)| *inside).count() == self.capacity {
            let oldest = self.order.iter().rposition(|(_, inside)| *inside);
            let mut victim = oldest.expect("it is full");
            if let Some((early, _)) = self.pair.filter(|&(_, late)| victim < late) {
                let beyond = (early..self.order.len()).find(|&at| self.order[at].1);
                victim = beyond.unwrap_or(victim);
            }
            self.order[victim].1 = false;
            evicted = Some(self.order[victim].0);
        }
        let last = *self.points.last().expect("some");
        let at = self
            .order
            .iter()
            .position(|(block, _)| *block == access.block);
        if let Some(at) = at.filter(|&at| at < last || self.order[at].1) {
            self.hits[self.points.iter().filter(|&&end| end <= at).count()] += 1;
        }
        self.order.retain(|(block, _)| *block != access.block);
        self.order.insert(0, (access.block, true));
        let mut at = 0;
        self.order.retain(|(_, inside)| {
            at += 1;
            at <= last || *inside
        });
        self.references += 1;
        self.compare();
        if self.references >= self.halve_at {
            self.hits.iter_mut().for_each(|hits| *hits /= 2);
            self.halve_at = self.references + self.halve_every;
        }
        (hit, evicted)
    }

    fn remove(&mut self, block: Block) {
        let entry = self.order.iter_mut().find(|(other, _)| *other == block);
        if let Some((_, inside)) = entry {
            *inside = false;
        }
        let last = *self.points.last().expect("some");
        let mut at = 0;
        self.order.retain(|(_, inside)| {
            at += 1;
            at <= last || *inside
        });
    }
}

struct Sequence {
    object: u32,
    low: i64,
    high: i64,
    /// 1 up, -1 down, 0 not yet known.
    step: i64,
    misses: Vec<u64>,
    /// Resident pages by miss, the latest last.
    pages: Vec<(i64, Block)>,
}

impl Sequence {
    fn distance(&self, page: i64) -> i64 {
        if self.step < 0 {
            page - self.low
        } else {
            self.high - page
        }
    }
}

struct NaiveSeq {
    capacity: usize,
    length: u64,
    behind: i64,
    nth: usize,
    sequences_max: usize,
    now: u64,
    sequences: Vec<Sequence>,
    /// The least recent first.
    resident: Vec<Block>,
}

impl NaiveSeq {
    fn new(capacity: usize, length: u64, behind: i64, nth: usize, sequences_max: usize) -> Self {
        NaiveSeq {
            capacity,
            length,
            behind,
            nth,
            sequences_max,
            now: 0,
            sequences: Vec::new(),
            resident: Vec::new(),
        }
    }

    fn victim(&self) -> Block {
        let fresh = self
            .sequences
            .iter()
            .filter(|sequence| (sequence.high - sequence.low + 1) as u64 >= self.length)
            .filter_map(|sequence| {
                let far = sequence
                    .pages
                    .iter()
                    .rfind(|(page, _)| sequence.distance(*page) >= self.behind)?;
                let before = sequence.misses.len().checked_sub(self.nth);
                let nth = before.map_or(0, |at| sequence.misses[at]);
                Some((nth, *sequence.misses.last()?, far.1))
            });
        fresh.max().map_or(self.resident[0], |(_, _, block)| block)
    }

    fn find(&self, test: impl Fn(&Sequence) -> bool) -> Option<usize> {
        self.sequences.iter().position(test)
    }

    fn miss(&mut self, object: u32, page: i64, block: Block) {
        self.now += 1;
        let last = |at: usize| *self.sequences[at].misses.last().expect("one at least");
        let up = self.find(|s| s.object == object && s.high == page - 1 && s.step >= 0);
        let down = self.find(|s| s.object == object && s.low == page + 1 && s.step <= 0);
        let grown = match (up, down) {
            (Some(up), Some(down)) if last(up) < last(down) => Some((down, Some(up))),
            (Some(up), down) => Some((up, down)),
            (None, down) => down.map(|down| (down, None)),
        };
        let around = self.find(|s| s.object == object && s.low <= page && page <= s.high);
        let Some((at, loser)) = grown else {
            if let Some(at) = around {
                let sequence = &mut self.sequences[at];
                match sequence.step {
                    1 => sequence.high = page - 1,
                    _ => sequence.low = page + 1,
                }
                if sequence.step == 0 || sequence.low > sequence.high {
                    self.sequences.remove(at);
                } else {
                    let (low, high) = (sequence.low, sequence.high);
                    sequence
                        .pages
                        .retain(|(page, _)| (low..=high).contains(page));
                }
            }
            if self.sequences.len() == self.sequences_max {
                let mut limit = self.length;
                let stale = loop {
                    let short = self.sequences.iter().enumerate().filter(|(_, sequence)| {
                        ((sequence.high - sequence.low + 1) as u64) < limit
                    });
                    if let Some((at, _)) = short.min_by_key(|(_, s)| s.misses.last().copied()) {
                        break at;
                    }
                    limit *= 2;
                };
                self.sequences.remove(stale);
            }
            self.sequences.push(Sequence {
                object,
                low: page,
                high: page,
                step: 0,
                misses: vec![self.now],
                pages: vec![(page, block)],
            });
            return;
        };
        let sequence = &mut self.sequences[at];
        sequence.step = if page > sequence.high { 1 } else { -1 };
        sequence.low = sequence.low.min(page);
        sequence.high = sequence.high.max(page);
        sequence.misses.push(self.now);
        sequence.pages.push((page, block));
        let mut gone: Vec<usize> = loser.into_iter().chain(around).collect();
        gone.sort_unstable();
        gone.dedup();
        for at in gone.into_iter().rev() {
            self.sequences.remove(at);
        }
    }
}

impl Twin for NaiveSeq {
    fn access(&mut self, access: &Access) -> (bool, Option<Block>) {
        let block = access.block;
        if let Some(at) = self.resident.iter().position(|&other| other == block) {
            self.resident.remove(at);
            self.resident.push(block);
            return (true, None);
        }
        let full = self.resident.len() == self.capacity;
        let evicted = full.then(|| self.victim());
        if let Some(block) = evicted {
            self.remove(block);
        }
        self.resident.push(block);
        self.miss(access.object.0, i64::from(access.index), block);
        (false, evicted)
    }

    fn remove(&mut self, block: Block) {
        self.resident.retain(|&other| other != block);
        for sequence in &mut self.sequences {
            sequence.pages.retain(|(_, other)| *other != block);
        }
    }
}
