//! The twin of the partitioned cache with LRU for other references: one list of blocks, searched
//! for everything.

use crate::Twin;
use hither_core::classify::{Class, Classifier, Stream};
use hither_core::{Access, Block, Tick};
use std::collections::BTreeMap;

struct Resident {
    block: Block,
    class: Class,
    stream: u32,
    thread: u32,
    tick: Tick,
}

pub(crate) struct NaivePartition {
    capacity: usize,
    classifier: Box<dyn Classifier>,
    expire: f64,
    resident: Vec<Resident>,
    streams: BTreeMap<u32, Stream>,
    /// The stack of other references, the latest first, and hits in its segments.
    stack: Vec<Block>,
    hits: [f64; 4],
    references: f64,
}

impl NaivePartition {
    pub(crate) fn new(capacity: usize, classifier: Box<dyn Classifier>, expire: f64) -> Self {
        NaivePartition {
            capacity,
            classifier,
            expire,
            resident: Vec::new(),
            streams: BTreeMap::new(),
            stack: Vec::new(),
            hits: [0.0; 4],
            references: 0.0,
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
            self.stack.insert(0, block);
            self.stack.truncate(self.capacity);
        }
    }

    fn other_gain(&self) -> f64 {
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
            .max_by_key(|block| (period(block.stream).max(1).ilog2(), block.tick));
        match (longest, other.first()) {
            (None, None) => sequential.first().expect("the cache is full").block,
            (Some(latest), None) => latest.block,
            (None, Some(oldest)) => oldest.block,
            (Some(latest), Some(oldest)) => {
                let gain = 1.0 / period(latest.stream).max(1) as f64;
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
        let verdict = self.classifier.classify(access);
        for stream in std::iter::once(verdict.stream).chain(verdict.revised) {
            self.streams.insert(stream.id, stream);
        }
        if verdict.class == Class::Looping && verdict.stream.steady_period > 0 {
            for block in &mut self.resident {
                if block.class == Class::Sequential && block.stream == verdict.stream.id {
                    block.class = Class::Looping;
                    block.tick = access.tick;
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
        }
        self.remove(access.block);
        self.resident.push(Resident {
            block: access.block,
            class: verdict.class,
            stream: verdict.stream.id,
            thread: access.thread.0,
            tick: access.tick,
        });
        (hit, evicted)
    }

    fn remove(&mut self, block: Block) {
        self.resident.retain(|other| other.block != block);
    }
}
