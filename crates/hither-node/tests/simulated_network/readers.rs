//! What the readers and the prefetch of the simulated cluster ask for.

use std::collections::BTreeSet;

use hither_node::key::{BlockKey, ChunkKey};
use hither_node::protocol::{Blocks, Input, Token, Urgency};

use crate::node::Read;
use crate::scenario::MS;
use crate::world::{Event, World};

impl World {
    /// A reader or the prefetch of a node wants something.
    pub(crate) fn start_reading(&mut self, node: usize) {
        let after = self.around(self.scenario.read_ns);
        if self.now < self.scenario.disturbed_ns + 200 * MS {
            self.schedule(after, node, Event::Read);
        } else {
            return;
        }
        if self.percent(30) {
            self.report_usage(node);
        }
        let chunk = self.any_chunk();
        let start = self.random.below(64);
        let length = 1 + self.random.below(64 - start).min(self.random.below(64));
        let mask = (u64::MAX >> (64 - length)) << start;
        let blocks = Blocks::new(chunk, mask);
        if !self.may_have(node, chunk) {
            return;
        }
        if self.percent(self.scenario.prefetch_percent) {
            if self.percent(30) {
                self.cancel_some(node);
            } else {
                self.want(node, blocks, Urgency::Prefetch);
            }
        } else if self.percent(10) {
            for node in 0..self.nodes.len() {
                if self.may_have(node, chunk) {
                    self.read(node, blocks);
                }
            }
        } else {
            self.read(node, blocks);
        }
    }

    /// A chunk of one of the files.
    pub(crate) fn any_chunk(&mut self) -> ChunkKey {
        let number = self.random.below(self.scenario.chunks);
        ChunkKey {
            file: self.files[number as usize % self.files.len()],
            number: number as u32 / 3,
        }
    }

    /// The prefetch of a node gives up a chunk that it waits for.
    fn cancel_some(&mut self, node: usize) {
        let wanted = &self.nodes[node].wanted;
        let chunks: BTreeSet<ChunkKey> = wanted.iter().map(|block| block.in_chunk().0).collect();
        if !chunks.is_empty() {
            let at = self.random.below(chunks.len() as u64) as usize;
            let chunk = *chunks.iter().nth(at).unwrap();
            let mask = self.random.bits() | self.random.bits();
            self.cancel(node, Blocks::new(chunk, mask));
        }
    }

    /// A reader reads.
    pub(crate) fn read(&mut self, number: usize, blocks: Blocks) {
        let node = &mut self.nodes[number];
        if node.protocol.is_none() {
            return;
        }
        self.reads += 1;
        let present = node.store.present(blocks);
        if present != 0 {
            *node.local_reads.entry(blocks.chunk).or_default() |= present;
        }
        let mask = blocks.mask & !present;
        if mask == 0 {
            self.answered += 1;
            return;
        }
        node.reads.push(Read {
            chunk: blocks.chunk,
            mask,
            started: self.now,
            stopped_ns: node.stopped_ns,
        });
        self.want(number, blocks, Urgency::Demand);
    }

    fn want(&mut self, number: usize, blocks: Blocks, urgency: Urgency) {
        let node = &mut self.nodes[number];
        let blocks = blocks.with_mask(blocks.mask & !node.store.present(blocks));
        if blocks.mask == 0 || node.protocol.is_none() {
            return;
        }
        for block in blocks.chunk.blocks(blocks.mask) {
            if node.wanted.insert(block) && !node.fetching.contains(&block) {
                *self.wants.entry(block).or_default() += 1;
            }
            node.cancelled.remove(&block);
            let waiters = node.waiters.entry(block).or_default();
            waiters.owed.insert(self.waiters);
        }
        let want = Input::Want {
            blocks,
            urgency,
            file: Token::new(blocks.chunk),
            waiter: Some(Token::new(self.waiters)),
            on_disk: 0,
        };
        self.waiters += 1;
        self.step(number, want);
    }

    fn cancel(&mut self, number: usize, blocks: Blocks) {
        let node = &mut self.nodes[number];
        let awaited: BTreeSet<BlockKey> = node
            .reads
            .iter()
            .flat_map(|read| read.chunk.blocks(read.mask))
            .collect();
        for block in blocks.chunk.blocks(blocks.mask) {
            if !awaited.contains(&block) && node.wanted.remove(&block) {
                node.cancelled.insert(block);
                let waiters = node.waiters.entry(block).or_default();
                waiters.cancelled.append(&mut waiters.owed);
            }
        }
        self.step(number, Input::Cancel(blocks));
    }
}
