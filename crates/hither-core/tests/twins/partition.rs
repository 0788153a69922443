//! The twin of the partitioned cache with LRU for other references: one list of blocks, searched
//! for everything. Its rules are read from the policy's parameters.

use crate::Twin;
use crate::traces::Random;
use hither_core::classify::{Class, Classification, Classifier, Stream};
use hither_core::spec::Value;
use hither_core::{Access, Block, Op, Spec, Tick};
use std::collections::BTreeMap;

/// Values, drawn one by one, for the parameters of the partitioned cache.
pub(crate) fn rules(random: &mut Random) -> String {
    let mut one = |names: &[&str]| names[random.below(names.len() as u64) as usize].to_owned();
    format!(
        "expire={},steady={},periods={},period_of={},gain={},sequential={},mapped={}",
        one(&["0", "0.5", "2"]),
        one(&["0", "1"]),
        one(&["power", "exact"]),
        one(&["stream", "block"]),
        one(&["segments", "fitted"]),
        one(&["keep", "discard"]),
        one(&["classified", "other"]),
    )
}

struct Resident {
    block: Block,
    class: Class,
    stream: u32,
    thread: u32,
    tick: Tick,
    /// Its stream's period when it was last referenced.
    period: u64,
}

pub(crate) struct NaivePartition {
    capacity: usize,
    classifier: Box<dyn Classifier>,
    expire: f64,
    steady: bool,
    exact: bool,
    by_block: bool,
    fitted: bool,
    discard: bool,
    mapped_are_other: bool,
    resident: Vec<Resident>,
    streams: BTreeMap<u32, Stream>,
    /// The stack of other references, the latest first, and hits in its segments.
    stack: Vec<Block>,
    hits: [f64; 4],
    references: f64,
    others: f64,
}

impl NaivePartition {
    pub(crate) fn new(capacity: usize, classifier: Box<dyn Classifier>, spec: &Spec) -> Self {
        let is = |param: &str, name: &'static str| spec.value(param) == Some(Value::Name(name));
        NaivePartition {
            capacity,
            classifier,
            expire: match spec.value("expire") {
                Some(Value::Real(expire)) => expire,
                other => panic!("expire is {other:?}"),
            },
            steady: spec.value("steady") == Some(Value::Count(1)),
            exact: is("periods", "exact"),
            by_block: is("period_of", "block"),
            fitted: is("gain", "fitted"),
            discard: is("sequential", "discard"),
            mapped_are_other: is("mapped", "other"),
            resident: Vec::new(),
            streams: BTreeMap::new(),
            stack: Vec::new(),
            hits: [0.0; 4],
            references: 0.0,
            others: 0.0,
        }
    }

    fn of(&self, class: Class) -> Vec<&Resident> {
        let mut list: Vec<&Resident> = self
            .resident
            .iter()
            .filter(|block| block.class == class)
            .collect();
        list.sort_by_key(|block| block.tick);
        list
    }

    /// Lengths of the segments top, tail, near and far.
    fn segments(&self) -> [usize; 4] {
        let size = self.of(Class::Other).len();
        let tail = (size / 8).max(8).min(size);
        let ghosts = self.capacity - size;
        let near = (size / 8).max(self.capacity / 16).max(8).min(ghosts);
        [size - tail, tail, near, ghosts - near]
    }

    fn measure(&mut self, block: Block, other: bool) {
        self.references += 1.0;
        if self.references > (self.capacity.max(512) * 2) as f64 {
            self.references /= 2.0;
            self.others /= 2.0;
            self.hits.iter_mut().for_each(|hits| *hits /= 2.0);
        }
        if let Some(at) = self.stack.iter().position(|&other| other == block) {
            self.stack.remove(at);
            let [top, tail, near, _] = self.segments();
            let segment = [top, top + tail, top + tail + near]
                .iter()
                .filter(|&&end| at >= end)
                .count();
            if other {
                self.hits[segment] += 1.0;
            }
        }
        if other {
            self.others += 1.0;
            self.stack.insert(0, block);
            self.stack.truncate(self.capacity);
        }
    }

    /// By the lifetime function through the misses at the ends of the four segments.
    fn fitted_gain(&self) -> f64 {
        let mut points: Vec<(usize, f64)> = (0..4)
            .map(|at| {
                let hits: f64 = self.hits[..=at].iter().sum();
                let size = self.segments()[..=at].iter().sum();
                (size, (self.others - hits) / self.others)
            })
            .filter(|&(size, misses)| size > 0 && misses > 0.0)
            .collect();
        points.dedup_by_key(|&mut (size, _)| size);
        if points.len() < 2 || self.others == 0.0 {
            return 0.0;
        }
        let n = points.len() as f64;
        let logs = points.iter().map(|(x, y)| ((*x as f64).ln(), y.ln()));
        let sum = |of: fn((f64, f64)) -> f64| logs.clone().map(of).sum::<f64>();
        let (x, y) = (sum(|log| log.0), sum(|log| log.1));
        let (xx, xy) = (sum(|log| log.0 * log.0), sum(|log| log.0 * log.1));
        let slope = (n * xy - x * y) / (n * xx - x * x);
        let constant = ((y - slope * x) / n).exp();
        let size = self.of(Class::Other).len() as f64;
        let gain = constant * size.powf(slope) - constant * (size + 1.0).powf(slope);
        self.others * gain / self.references.max(1.0)
    }

    fn other_gain(&self) -> f64 {
        if self.fitted {
            return self.fitted_gain();
        }
        let [_, tail, near, far] = self.segments();
        let density = |hits: f64, length: usize| {
            if length == 0 {
                0.0
            } else {
                hits / length as f64
            }
        };
        density(self.hits[1], tail)
            .max(density(self.hits[2], near))
            .max(density(self.hits[2] + self.hits[3], near + far))
            / self.references
    }

    fn victim(&self, incoming: &Access) -> Block {
        let now = incoming.tick;
        let period = |stream: u32| self.streams[&stream].period;
        let period_of = |block: &Resident| {
            if self.by_block {
                block.period
            } else {
                period(block.stream)
            }
        };
        let rank = |period: u64| {
            if self.exact {
                period
            } else {
                u64::from(period.max(1).ilog2())
            }
        };
        // Of a steady stream, that of whole rounds at least.
        let expected = |stream: u32| period(stream).max(self.streams[&stream].steady_period);
        let looping = self.of(Class::Looping);
        let overdue = looping
            .iter()
            .rev()
            .map(|latest| latest.stream)
            .filter_map(|stream| looping.iter().find(|block| block.stream == stream))
            .map(|oldest| {
                let lease = (self.expire * expected(oldest.stream).max(1) as f64) as u64;
                (
                    oldest.tick + lease,
                    std::cmp::Reverse(oldest.stream),
                    oldest,
                )
            })
            .filter(|&(due, ..)| self.expire > 0.0 && due < now)
            .min_by_key(|&(due, stream, _)| (due, stream));
        if let Some((_, _, oldest)) = overdue {
            return oldest.block;
        }

        let sequential = self.of(Class::Sequential);
        if let Some(own) = sequential
            .iter()
            .rev()
            .find(|block| block.thread == incoming.thread.0)
        {
            return own.block;
        }
        let mut owners: Vec<u32> = sequential.iter().map(|block| block.thread).collect();
        owners.sort_unstable();
        owners.dedup();
        if sequential.len() > owners.len() {
            return sequential.last().expect("more than none").block;
        }
        if let Some(oldest) = sequential.first()
            && now - oldest.tick > self.capacity as u64
        {
            return oldest.block;
        }

        let other = self.of(Class::Other);
        let longest = looping
            .iter()
            .max_by_key(|block| (rank(period_of(block)), block.tick));
        match (longest, other.first()) {
            (None, None) => sequential.first().expect("the cache is full").block,
            (Some(latest), None) => latest.block,
            (None, Some(oldest)) => oldest.block,
            (Some(latest), Some(oldest)) => {
                let gain = 1.0 / period_of(latest).max(1) as f64;
                if gain < self.other_gain() {
                    latest.block
                } else {
                    oldest.block
                }
            }
        }
    }
}

impl Twin for NaivePartition {
    fn access(&mut self, access: &Access) -> (bool, Option<Block>) {
        let nobodys = self.mapped_are_other && access.op == Op::Map;
        let mut verdict = if nobodys {
            // Of a stream that there is not.
            let id = u32::MAX;
            let stream = Stream {
                id,
                period: 0,
                steady_period: 0,
            };
            Classification {
                class: Class::Other,
                stream,
                revised: None,
            }
        } else {
            self.classifier.classify(access)
        };
        if !self.steady {
            verdict.stream.steady_period = 0;
            if let Some(revised) = &mut verdict.revised {
                revised.steady_period = 0;
            }
        }
        for stream in std::iter::once(verdict.stream).chain(verdict.revised) {
            self.streams.insert(stream.id, stream);
        }
        if verdict.class == Class::Looping && verdict.stream.steady_period > 0 {
            for block in &mut self.resident {
                if block.class == Class::Sequential && block.stream == verdict.stream.id {
                    block.class = Class::Looping;
                    block.tick = access.tick;
                    block.period = verdict.stream.period;
                }
            }
        }
        self.measure(access.block, verdict.class == Class::Other);
        let before = self.resident.len();
        let mut evicted = None;
        let hit = self
            .resident
            .iter()
            .any(|block| block.block == access.block);
        if !hit && before == self.capacity {
            let victim = self.victim(access);
            self.remove(victim);
            evicted = Some(victim);
        } else if !hit
            && self.discard
            && let Some(own) = self
                .of(Class::Sequential)
                .iter()
                .rev()
                .find(|block| block.thread == access.thread.0)
        {
            evicted = Some(own.block);
            self.remove(own.block);
        }
        self.remove(access.block);
        self.resident.push(Resident {
            block: access.block,
            class: verdict.class,
            stream: verdict.stream.id,
            thread: access.thread.0,
            tick: access.tick,
            period: verdict.stream.period,
        });
        (hit, evicted)
    }

    fn remove(&mut self, block: Block) {
        self.resident.retain(|other| other.block != block);
    }
}
