//! A node of the simulated cluster: the machine, and what a runtime would have around it.

use std::collections::{BTreeMap, BTreeSet};

use hither_core::Random;
use hither_core::random::mix;
use hither_node::key::{BlockKey, ChunkKey};
use hither_node::machine::decision::{Access, Decision, Delivery, FirstAndForever};
use hither_node::machine::{Blocks, Machine, MemberId, Settings};

use crate::scenario::Scenario;

/// The bytes of a block, in short.
pub(crate) fn content(block: BlockKey) -> u64 {
    mix(mix(block.file.0 as u64) ^ u64::from(block.index))
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

/// See the module.
pub(crate) struct Node {
    pub(crate) member: MemberId,
    /// `None` while it is down.
    pub(crate) machine: Option<Machine>,
    /// Changes when the node crashes: what was under way for an earlier one is lost.
    pub(crate) generation: u32,
    pub(crate) store: Store,
    /// Blocks that have just come and may be read once.
    pub(crate) buffers: BTreeMap<BlockKey, u64>,
    pub(crate) reads: Vec<Read>,
    /// Blocks that the machine owes an answer for.
    pub(crate) wanted: BTreeSet<BlockKey>,
    /// Blocks that it may still answer for: prefetches that were cancelled.
    pub(crate) cancelled: BTreeSet<BlockKey>,
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
}

impl Node {
    pub(crate) fn new(number: usize, store_blocks: usize) -> Node {
        Node {
            member: MemberId(mix(number as u64 + 1)),
            machine: None,
            generation: 0,
            store: Store {
                blocks: BTreeMap::new(),
                blocks_max: store_blocks,
            },
            buffers: BTreeMap::new(),
            reads: Vec::new(),
            wanted: BTreeSet::new(),
            cancelled: BTreeSet::new(),
            fetching: BTreeSet::new(),
            failures: BTreeMap::new(),
            clock_ahead: mix(number as u64) >> 8,
            stopped: false,
            stopped_at: 0,
            stopped_ns: 0,
            isolated: false,
            timer: 0,
        }
    }

    /// Starts the machine of another generation.
    pub(crate) fn start(&mut self, scenario: &Scenario) {
        let settings = Settings {
            incarnation: self.generation,
            ..scenario.settings.clone()
        };
        let decision: Box<dyn Decision> = match scenario.copies {
            true => Box::new(EveryThird::default()),
            false => Box::new(FirstAndForever),
        };
        self.machine = Some(Machine::with_decision(self.member, settings, decision));
    }

    /// Ends it, with all that waits.
    pub(crate) fn crash(&mut self, keep_store: bool) {
        self.machine = None;
        self.generation += 1;
        self.buffers.clear();
        self.reads.clear();
        self.wanted.clear();
        self.cancelled.clear();
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

    /// Stores a block. Returns the one that had to go.
    pub(crate) fn insert(&mut self, block: BlockKey, random: &mut Random) -> Option<BlockKey> {
        if self.blocks.contains_key(&block) {
            return None;
        }
        let mut victim = None;
        if self.blocks.len() >= self.blocks_max {
            let at = random.below(self.blocks.len() as u64) as usize;
            victim = self.blocks.keys().nth(at).copied();
        }
        if let Some(victim) = victim {
            self.blocks.remove(&victim);
        }
        self.blocks.insert(block, content(block));
        victim
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = BlockKey> {
        self.blocks.keys().copied()
    }
}

/// Every third requester keeps a copy, and holders take turns.
#[derive(Default)]
struct EveryThird(usize);

impl Decision for EveryThird {
    fn deliver(&mut self, access: &Access<'_>) -> Delivery {
        self.0 += 1;
        Delivery {
            holder: self.0 % access.holders.len(),
            keep: self.0.is_multiple_of(3),
        }
    }
}
