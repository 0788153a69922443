//! A node of the simulated cluster: the protocol, and what a runtime would have around it.

use std::collections::{BTreeMap, BTreeSet};

use hither_core::Random;
use hither_core::random::mix;
use hither_node::key::{BlockKey, ChunkKey};
use hither_node::protocol::{Blocks, Frames, MemberId, Protocol, RequestId, Settings};
use hither_node::readers::Readers;

use crate::scenario::Scenario;

/// The bytes of a block, in short.
pub(crate) fn content(block: BlockKey) -> u64 {
    mix(mix(block.file.0 as u64) ^ u64::from(block.index))
}

/// What a node is called.
pub(crate) fn name(number: usize) -> String {
    format!("n{number}")
}

/// A reader that waits.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) chunk: ChunkKey,
    /// The blocks that it still waits for.
    pub(crate) mask: u64,
    pub(crate) started: u64,
    /// For how long its node had been stopped in all when it started.
    pub(crate) stopped_ns: u64,
}

/// Who waits for a block.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    pub(crate) owed: BTreeSet<u64>,
    pub(crate) cancelled: BTreeSet<u64>,
}

/// See the module.
pub(crate) struct Node {
    pub(crate) member: MemberId,
    /// `None` while it is down.
    pub(crate) protocol: Option<Protocol>,
    /// Changes when the node crashes: what was under way for an earlier one is lost.
    pub(crate) generation: u32,
    pub(crate) store: Store,
    /// Blocks that have just come and may be read once.
    pub(crate) buffers: BTreeMap<BlockKey, u64>,
    /// Blocks that were evicted and may still go to another node.
    pub(crate) victims: BTreeMap<BlockKey, u64>,
    pub(crate) reads: Vec<Read>,
    /// What was read from the store since this was last reported.
    pub(crate) local_reads: BTreeMap<ChunkKey, u64>,
    /// Blocks that the protocol owes an answer for.
    pub(crate) wanted: BTreeSet<BlockKey>,
    /// Blocks that it may still answer for: prefetches that were cancelled.
    pub(crate) cancelled: BTreeSet<BlockKey>,
    /// Who waits for each block, by number, and who did before it was cancelled.
    pub(crate) waiters: BTreeMap<BlockKey, Waiters>,
    pub(crate) fetching: BTreeSet<BlockKey>,
    /// When the source last failed to give a block to this node.
    pub(crate) failures: BTreeMap<BlockKey, u64>,
    /// What its clock is ahead of the world's.
    pub(crate) clock_ahead: u64,
    pub(crate) stopped: bool,
    pub(crate) stopped_at: u64,
    pub(crate) stopped_ns: u64,
    pub(crate) isolated: bool,
    pub(crate) timer: u64,
    /// Who may have the blocks of which volume, by its own file.
    pub(crate) readers: Readers,
    /// It says what is not so.
    pub(crate) lies: bool,
    /// Requests that it has heard of.
    pub(crate) overheard: Vec<(RequestId, ChunkKey)>,
}

impl Node {
    pub(crate) fn new(number: usize, store_blocks: usize) -> Node {
        Node {
            member: MemberId::of(&name(number)),
            protocol: None,
            generation: 0,
            store: Store {
                blocks: BTreeMap::new(),
                blocks_max: store_blocks,
            },
            buffers: BTreeMap::new(),
            victims: BTreeMap::new(),
            reads: Vec::new(),
            local_reads: BTreeMap::new(),
            wanted: BTreeSet::new(),
            cancelled: BTreeSet::new(),
            waiters: BTreeMap::new(),
            fetching: BTreeSet::new(),
            failures: BTreeMap::new(),
            clock_ahead: mix(number as u64) >> 8,
            stopped: false,
            stopped_at: 0,
            stopped_ns: 0,
            isolated: false,
            timer: 0,
            readers: Readers::default(),
            lies: false,
            overheard: Vec::new(),
        }
    }

    /// Starts the protocol of another generation.
    pub(crate) fn start(&mut self, scenario: &Scenario) {
        let settings = Settings {
            incarnation: self.generation,
            secret: u128::from(mix(self.member.0 ^ u64::from(self.generation))),
            readers: self.readers.clone(),
            ..scenario.settings.clone()
        };
        self.protocol = Some(Protocol::new(self.member, settings));
    }

    /// Ends it, with all that waits.
    pub(crate) fn crash(&mut self, keep_store: bool) {
        self.protocol = None;
        self.generation += 1;
        self.buffers.clear();
        self.victims.clear();
        self.reads.clear();
        self.wanted.clear();
        self.cancelled.clear();
        self.waiters.clear();
        self.fetching.clear();
        self.isolated = false;
        if !keep_store {
            self.store.blocks.clear();
        }
    }
}

/// A store of few blocks.
pub(crate) struct Store {
    blocks: BTreeMap<BlockKey, u64>,
    blocks_max: usize,
}

impl Store {
    pub(crate) fn get(&self, block: BlockKey) -> Option<u64> {
        self.blocks.get(&block).copied()
    }

    /// The blocks of `blocks` that it has.
    pub(crate) fn present(&self, blocks: Blocks) -> u64 {
        let held = blocks.chunk.blocks(blocks.mask);
        let held = held.filter(|block| self.blocks.contains_key(block));
        held.fold(0, |mask, block| mask | block.in_chunk().1)
    }

    /// Stores a block. Returns the one that had to go, with its bytes.
    pub(crate) fn insert(
        &mut self,
        block: BlockKey,
        content: u64,
        random: &mut Random,
    ) -> Option<(BlockKey, u64)> {
        if self.blocks.contains_key(&block) {
            return None;
        }
        let mut victim = None;
        if self.blocks.len() >= self.blocks_max {
            let at = random.below(self.blocks.len() as u64) as usize;
            victim = self
                .blocks
                .iter()
                .nth(at)
                .map(|(&block, &bytes)| (block, bytes));
        }
        if let Some((victim, _)) = victim {
            self.blocks.remove(&victim);
        }
        self.blocks.insert(block, content);
        victim
    }

    pub(crate) fn remove(&mut self, block: BlockKey) -> Option<u64> {
        self.blocks.remove(&block)
    }

    pub(crate) fn frames(&self) -> Frames {
        let all = self.blocks_max as u32;
        let free = all - self.blocks.len() as u32;
        Frames { all, free }
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = BlockKey> {
        self.blocks.keys().copied()
    }
}
