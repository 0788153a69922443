//! Decides which blocks of a program's files are copied to which node. Pure: equal inputs give
//! equal decisions.
//!
//! The placement is the simulator's, unchanged. The controller owns the state that it reads,
//! [`Nodes`], and reports to it what became of its actions.
//!
//! **Where originals are.** The kernel puts a page into the memory of the node that reads it first,
//! so that node is a block's home. Where all of the page cache counts as remote
//! ([`ReplicationConfig::all`]), originals are on a node of their own, on which no program runs.
//!
//! **What the placement does not know.** A file's first replica needs a lease, which takes a moment
//! or cannot be had. Until then the placement's requests are refused, and it repeats them with the
//! next access. A file that is written is left alone for a while, each time twice as long. Each
//! node has a maximum of replicas. Beyond it, one is dropped for each new one: the placement names
//! the victim, but only replicas can be victims, since the kernel decides about originals. Where
//! programs wait for memory, an eighth of the replicas is dropped each time.

use std::collections::BTreeSet;
use std::sync::Arc;

use hither_core::placement::{
    Action, ActionOutcome, Counters, Epoch, EpochKind, FilePlacement, Nodes, PlacementEntry,
    PlacementSettings,
};
use hither_core::references::Request;
use hither_core::registry::Mechanism;
use hither_core::topology::Topology;
use hither_core::{Access, Block, NEVER, Node, Object, Op, Process, Site, Slot, Spec, Thread};
use hither_ids::FileKey;
use hither_session::replica::BLOCK_BYTES;
use serde::{Deserialize, Serialize};

use super::event::{Decision, Input, Order, TimedInput};
use crate::controller::{Controller, NoNote};
use crate::error::{Error, Result};
use crate::references::{BlockPosition, References};

/// Where programs wait for memory, 1/8 of the replicas is dropped at a time.
const RECLAIM_DIVISOR_WAITING: u64 = 8;

/// Where memory is nearly used up, 1/2.
const RECLAIM_DIVISOR_SHORT: u64 = 2;

/// The size of a node in the placement's model, in frames: the placement asks only which share of
/// them is free.
const MODEL_FRAMES_PER_NODE: u32 = 1 << 28;

/// The most leases that are held at a time. Each needs a file descriptor; a process usually has
/// 1024.
const LEASES_MAX: usize = 512;

/// How long a file without replicas keeps its lease.
const UNUSED_LEASE_NS_MAX: u64 = 10_000_000_000;

/// How long a file is left alone after a write; twice as long if another write comes soon after,
/// and so on, up to two thirds of a second. Taking a lease and copying a few blocks again takes
/// less than a millisecond, and the writer has waited for a tenth of that.
const WRITE_PAUSE_NS: u64 = 20_000_000;

/// How often the pause is doubled at most.
const WRITE_PAUSE_DOUBLINGS_MAX: u32 = 5;

/// After this long without a write the pause is back at its shortest.
const WRITE_FREE_NS_MIN: u64 = 500_000_000;

/// How many replicas are made in a tick while programs are idle.
const IDLE_REPLICAS_PER_TICK: usize = 256;

/// The blocks of one check whether originals are still cached.
const CHECKED_BLOCKS_MAX: usize = 64;

/// The controller's configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ReplicationConfig {
    /// The placement with its parameters.
    pub(crate) policy: Spec<PlacementEntry>,
    /// Nodes that programs run on.
    pub(crate) nodes: u8,
    /// All of the page cache counts as remote.
    pub(crate) all: bool,
    /// The most replicas of a node.
    pub(crate) replicas_max: u32,
    /// The size of a block; a log of another size does not replay.
    pub(crate) block_bytes: u64,
    /// Decisions are not carried out.
    pub(crate) dry_run: bool,
}

/// The controller's figures of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReplicationSummary {
    /// Files that the program used.
    pub files: u64,
    /// Leases that were taken.
    pub leases: u64,
    /// Files whose replicas ended because the file was opened for writing, changed or removed.
    #[serde(rename = "files_ended")]
    pub ended: u64,
    /// References to blocks.
    pub references: u64,
    /// Of these, to a block with a replica on the node.
    #[serde(rename = "local_references")]
    pub local: u64,
    /// Replicas that were made.
    #[serde(rename = "replicas_made")]
    pub made: u64,
    /// Replicas that could not be made.
    #[serde(rename = "replicas_failed")]
    pub failed: u64,
    /// Replicas that were dropped to make room, or because programs waited for memory.
    #[serde(rename = "replicas_reclaimed")]
    pub reclaimed: u64,
    /// Replicas now, by node.
    #[serde(skip)]
    pub replicas: Vec<u64>,
    /// Memory is short: no replicas are made.
    #[serde(rename = "memory_is_tight")]
    pub tight: bool,
}

/// Whether the agent has a lease on a file. `Refused` is for good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LeaseState {
    #[default]
    None,
    Requested,
    Held,
    Refused,
}

#[derive(Clone, Debug, Default)]
struct FileState {
    lease: LeaseState,
    /// Writers that came in short succession.
    recent_writers: u32,
    held_since_ns: u64,
    /// No lease is requested before.
    paused_until_ns: u64,
    replicas: u32,
    used_ns: u64,
}

/// See the module.
pub(crate) struct ReplicationController {
    placement: Box<dyn FilePlacement>,
    nodes: Nodes,
    counts: Counters,
    config: ReplicationConfig,
    references: References,
    /// By number.
    files: Vec<FileState>,
    /// Replications that were decided and have no result yet.
    requested: BTreeSet<(Block, Node)>,
    leases_held: usize,
    /// The block at which the next check of originals goes on.
    next_checked: u32,
    now_ns: u64,
    summary: ReplicationSummary,
}

impl Controller for ReplicationController {
    const NAME: &'static str = "replication";
    const FORMAT: (&'static str, u32) = ("hither_replicas", 3);
    type Config = ReplicationConfig;
    type Input = Input;
    type Order = Order;
    type Note = NoNote;

    /// An error where the policy cannot place files of a running program.
    fn new(config: &ReplicationConfig) -> Result<ReplicationController> {
        let wrong = |what: String| Err(Error::Log(what));
        if config.block_bytes != BLOCK_BYTES {
            return wrong(format!("blocks of {} bytes", config.block_bytes));
        }
        let spec = config.policy;
        let nodes = usize::from(config.nodes) + usize::from(config.all);
        let topology = Arc::new(Topology::uniform(nodes));
        let capacity = vec![MODEL_FRAMES_PER_NODE; nodes];
        let placement = spec.build_files(&PlacementSettings {
            topology: Arc::clone(&topology),
            capacity: &capacity,
            blocks: 0,
            block_bytes: BLOCK_BYTES as u32,
            totals: None,
            initial: None,
            sampled: false,
        });
        let Some(placement) = placement.filter(|_| spec.runs(Mechanism::Replicas)) else {
            return wrong(format!("{spec}: not for files of a running program"));
        };
        Ok(ReplicationController {
            placement,
            nodes: Nodes::new(topology, capacity, 0),
            counts: Counters::new(nodes, 0),
            config: config.clone(),
            references: References::new(BLOCK_BYTES as u32),
            files: Vec::new(),
            requested: BTreeSet::new(),
            leases_held: 0,
            next_checked: 0,
            now_ns: 0,
            summary: ReplicationSummary {
                replicas: vec![0; usize::from(config.nodes)],
                ..ReplicationSummary::default()
            },
        })
    }

    fn step(&mut self, at: &TimedInput, out: &mut Vec<Decision>) {
        self.now_ns = self.now_ns.max(at.time_ns);
        self.nodes.set_now_ns(self.now_ns);
        match at.input {
            Input::Access {
                file,
                offset,
                length,
                process,
                thread,
                node,
                write,
                count,
            } => {
                let access = Access {
                    site: Site(0),
                    thread: Thread(thread),
                    process: Process(process),
                    op: if write { Op::Write } else { Op::Read },
                    node: Node(u16::from(node.min(self.config.nodes - 1))),
                    count,
                    ..Access::bare(0, Block(0))
                };
                self.access(file, access, offset, length, out);
            }
            Input::Held { file } => {
                let (file, now_ns) = (self.file(file), self.now_ns);
                let file = self.file_mut(file);
                (file.lease, file.held_since_ns) = (LeaseState::Held, now_ns);
                self.leases_held += 1;
                self.summary.leases += 1;
            }
            Input::NotHeld { file, later } => {
                let (file, now_ns) = (self.file(file), self.now_ns);
                let file = self.file_mut(file);
                if later {
                    file.lease = LeaseState::None;
                    file.written(now_ns);
                } else {
                    file.lease = LeaseState::Refused
                }
            }
            Input::Ended { file } => self.ended(file),
            Input::Replicated {
                file,
                index,
                node,
                done,
            } => {
                let file = self.file(file);
                if let Some(block) = self.references.find(file, index) {
                    self.replicated(block, Node(u16::from(node)), done, out);
                }
            }
            Input::Absent {
                file,
                offset,
                length,
            } => {
                let file = self.file(file);
                for index in self.references.indices(offset, length) {
                    if let Some(block) = self.references.find(file, index) {
                        self.original_gone(block, out);
                    }
                }
            }
            Input::Memory { free_ppm } => self.memory(free_ppm, RECLAIM_DIVISOR_WAITING, out),
            Input::CheckResidency => self.check_residency(out),
            Input::Short => self.memory(0, RECLAIM_DIVISOR_SHORT, out),
            Input::Tick { idle } => self.tick(idle, out),
        }
    }
}

impl ReplicationController {
    fn file(&mut self, key: FileKey) -> u32 {
        let number = self.references.file(key);
        self.files
            .resize_with(self.references.files(), FileState::default);
        number
    }

    fn file_mut(&mut self, file: u32) -> &mut FileState {
        &mut self.files[file as usize]
    }

    fn block(&mut self, file: u32, index: u32) -> Block {
        let block = self.references.block(file, index);
        if block.0 >= self.nodes.blocks() {
            // Growing moves the tables, so it is done in large steps.
            let blocks = (block.0 + 1).max(self.nodes.blocks().saturating_mul(2));
            self.nodes.grow(blocks);
            self.placement.grow(blocks);
            self.counts.grow(blocks);
        }
        block
    }

    fn access(
        &mut self,
        key: FileKey,
        access: Access,
        offset: u64,
        length: u64,
        out: &mut Vec<Decision>,
    ) {
        let (number, now_ns) = (self.file(key), self.now_ns);
        self.file_mut(number).used_ns = now_ns;
        let request = Request {
            op: access.op,
            offset,
            length,
        };
        for index in self.references.of_request(number, access.thread.0, request) {
            let access = Access {
                tick: self.summary.references,
                next: NEVER,
                block: self.block(number, index),
                object: Object(number),
                index,
                ..access
            };
            self.summary.references += u64::from(access.count);
            self.reference(access, out);
        }
    }

    fn reference(&mut self, access: Access, out: &mut Vec<Decision>) {
        let block = access.block;
        let mut actions = Vec::new();
        match self.nodes.home(block) {
            None => {
                let placed = self.placement.place(&access, &self.nodes);
                let home = if self.config.all {
                    Node(u16::from(self.config.nodes))
                } else {
                    placed
                };
                self.insert(block, home);
            }
            Some(home) => {
                let local = self.nodes.holds(block, access.node);
                self.summary.local += u64::from(local) * u64::from(access.count);
                let from = if local { access.node } else { home };
                self.placement
                    .on_access(&access, from, &self.nodes, &mut actions);
            }
        }
        if access.op == Op::Write {
            self.placement.on_write(&access, &self.nodes, &mut actions);
        }
        self.act(actions, out);
    }

    fn insert(&mut self, block: Block, node: Node) {
        if self.nodes.free(node) == 0 {
            self.nodes.set_others(node, 0);
        }
        self.nodes.insert(block, node, Slot(0));
    }

    fn act(&mut self, actions: Vec<Action>, out: &mut Vec<Decision>) {
        for action in actions {
            match action {
                Action::Replicate { block, to } => {
                    if self.requested.contains(&(block, to)) {
                        continue;
                    }
                    if !self.replicate(block, to, out) {
                        let refused = ActionOutcome {
                            action,
                            done: false,
                        };
                        self.placement.on_outcomes(&[refused], &self.nodes);
                    }
                }
                Action::Drop { block, at } => {
                    self.drop_replica(block, at, Some(out));
                }
                // The kernel decides where originals are.
                Action::Migrate { .. } | Action::Promote { .. } => {
                    let refused = ActionOutcome {
                        action,
                        done: false,
                    };
                    self.placement.on_outcomes(&[refused], &self.nodes);
                }
            }
        }
    }

    /// Decides to make a replica, if possible.
    fn replicate(&mut self, block: Block, to: Node, out: &mut Vec<Decision>) -> bool {
        let BlockPosition {
            file: number,
            index,
        } = self.references.position(block);
        let (now_ns, held) = (self.now_ns, self.leases_held);
        let key = self.references.key(number);
        let file = self.file_mut(number);
        match file.lease {
            LeaseState::Held => {}
            LeaseState::None if now_ns >= file.paused_until_ns && held < LEASES_MAX => {
                file.lease = LeaseState::Requested;
                out.push(Decision::Order(Order::Hold { file: key }));
                return false;
            }
            _ => return false,
        }
        let there = self.summary.replicas[to.index()] as usize;
        let coming = self
            .requested
            .iter()
            .filter(|(_, node)| *node == to)
            .count();
        if there + coming >= self.config.replicas_max as usize && !self.reclaim(to, block, out) {
            return false;
        }
        self.requested.insert((block, to));
        out.push(Decision::Order(Order::Replicate {
            file: key,
            index,
            node: to.0 as u8,
        }));
        true
    }

    /// Drops a replica of a node, if there is one that can be.
    fn reclaim(&mut self, at: Node, incoming: Block, out: &mut Vec<Decision>) -> bool {
        // The victim may be an original, but at most once in a row.
        for _ in 0..2 {
            if let Some(victim) = self.placement.replica_victim(at, incoming, &self.nodes) {
                self.summary.reclaimed += 1;
                return self.drop_replica(victim, at, Some(out));
            }
        }
        false
    }

    /// Removes a replica, and decides to drop it where `out` is given.
    fn drop_replica(&mut self, block: Block, at: Node, out: Option<&mut Vec<Decision>>) -> bool {
        self.requested.remove(&(block, at));
        if !self.nodes.holds(block, at) || self.nodes.home(block) == Some(at) {
            return false;
        }
        self.nodes.remove(block, at);
        self.summary.replicas[at.index()] -= 1;
        let BlockPosition {
            file: number,
            index,
        } = self.references.position(block);
        self.file_mut(number).replicas -= 1;
        self.placement
            .on_removed(block, at, &self.nodes, &mut Vec::new());
        if let Some(out) = out {
            out.push(Decision::Order(Order::Drop {
                file: self.references.key(number),
                index,
                node: at.0 as u8,
            }));
        }
        true
    }

    /// An order to replicate a block was carried out, or could not be.
    fn replicated(&mut self, block: Block, node: Node, done: bool, out: &mut Vec<Decision>) {
        if !self.requested.remove(&(block, node)) || self.nodes.home(block).is_none() {
            // The block was written, or lost its lease, meanwhile.
            if done {
                let BlockPosition {
                    file: number,
                    index,
                } = self.references.position(block);
                let file = self.references.key(number);
                out.push(Decision::Order(Order::Drop {
                    file,
                    index,
                    node: node.0 as u8,
                }));
            }
            return;
        }
        if done {
            self.insert(block, node);
            self.summary.made += 1;
            self.summary.replicas[node.index()] += 1;
            let number = self.references.position(block).file;
            self.file_mut(number).replicas += 1;
        } else {
            self.summary.failed += 1
        }
        let outcome = ActionOutcome {
            action: Action::Replicate { block, to: node },
            done,
        };
        self.placement.on_outcomes(&[outcome], &self.nodes);
    }

    /// A file has lost its lease and its replicas: to the placement it is as if all of it had been
    /// written.
    fn ended(&mut self, key: FileKey) {
        let (number, now_ns) = (self.file(key), self.now_ns);
        let file = self.file_mut(number);
        if file.lease == LeaseState::Held {
            file.lease = LeaseState::None;
            file.written(now_ns);
            self.leases_held -= 1;
            self.summary.ended += 1;
        }
        for block in self.references.blocks_of(number).to_vec() {
            self.requested.retain(|&(asked, _)| asked != block);
            if self.nodes.home(block).is_none() {
                continue;
            }
            let access = Access {
                op: Op::Write,
                object: Object(number),
                index: self.references.position(block).index,
                ..Access::bare(self.summary.references, block)
            };
            let mut actions = Vec::new();
            self.placement.on_write(&access, &self.nodes, &mut actions);
            for action in actions {
                if let Action::Drop { block, at } = action {
                    self.drop_replica(block, at, None);
                }
            }
        }
    }

    /// The page cache has reclaimed a block: its replicas are dropped too.
    fn original_gone(&mut self, block: Block, out: &mut Vec<Decision>) {
        let Some(home) = self.nodes.home(block) else {
            return;
        };
        let replicas: Vec<Node> = self
            .nodes
            .copies(block)
            .skip(1)
            .map(|copy| copy.0)
            .collect();
        for at in replicas {
            self.drop_replica(block, at, Some(out));
        }
        self.nodes.remove(block, home);
        let mut actions = Vec::new();
        self.placement
            .on_removed(block, home, &self.nodes, &mut actions);
        self.act(actions, out);
    }

    /// Takes how much memory is available. If it is none, `1 / divisor` of the replicas is dropped.
    fn memory(&mut self, free_ppm: u32, divisor: u64, out: &mut Vec<Decision>) {
        self.summary.tight = free_ppm == 0;
        let used = u64::from(MODEL_FRAMES_PER_NODE)
            * u64::from(1_000_000 - free_ppm.min(1_000_000))
            / 1_000_000;
        for node in self.nodes.all() {
            self.nodes.set_others(node, 0);
            let held = u64::from(self.nodes.used(node));
            self.nodes
                .set_others(node, used.saturating_sub(held) as u32);
        }
        if free_ppm > 0 {
            return;
        }
        for node in (0..u16::from(self.config.nodes)).map(Node) {
            for _ in 0..self.summary.replicas[node.index()].div_ceil(divisor) {
                self.reclaim(node, Block(0), out);
            }
        }
    }

    fn tick(&mut self, idle: bool, out: &mut Vec<Decision>) {
        // Replications that the placement has put off: one at a time unless programs are idle.
        for _ in 0..if idle { IDLE_REPLICAS_PER_TICK } else { 1 } {
            let mut actions = Vec::new();
            let epoch = Epoch {
                kind: EpochKind::Period,
                process: None,
                counts: &self.counts,
                thread_migrations: &[],
                active_threads: 0,
            };
            self.placement.on_epoch(&epoch, &self.nodes, &mut actions);
            if actions.is_empty() {
                break;
            }
            self.act(actions, out);
        }
        for (number, file) in (0..).zip(&mut self.files) {
            let unused = file.lease == LeaseState::Held
                && file.replicas == 0
                && self.now_ns - file.used_ns >= UNUSED_LEASE_NS_MAX;
            if unused {
                file.lease = LeaseState::None;
                self.leases_held -= 1;
                let file = self.references.key(number);
                out.push(Decision::Order(Order::Release { file }));
            }
        }
    }

    /// Has the next blocks with replicas checked.
    fn check_residency(&mut self, out: &mut Vec<Decision>) {
        let blocks = (self.next_checked..self.references.blocks()).map(Block);
        let replicated =
            |&block: &Block| self.nodes.home(block).is_some() && self.nodes.replicated(block);
        let blocks: Vec<Block> = blocks.filter(replicated).take(CHECKED_BLOCKS_MAX).collect();
        self.next_checked = match blocks.last() {
            Some(last) if blocks.len() == CHECKED_BLOCKS_MAX => last.0 + 1,
            _ => 0,
        };
        let positions: Vec<BlockPosition> = blocks
            .iter()
            .map(|&block| self.references.position(block))
            .collect();
        for of_file in positions.chunk_by(|a, b| a.file == b.file) {
            out.push(Decision::Order(Order::FindAbsent {
                file: self.references.key(of_file[0].file),
                indices: of_file.iter().map(|position| position.index).collect(),
            }));
        }
    }

    /// The figures so far.
    pub(crate) fn summary(&self) -> ReplicationSummary {
        ReplicationSummary {
            files: self.files.len() as u64,
            ..self.summary.clone()
        }
    }

    /// Walks every invariant and panics on a broken one.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        self.nodes.check();
        self.placement.check(&self.nodes);
        for (number, file) in (0_u32..).zip(&self.files) {
            let blocks = self.references.blocks_of(number).iter();
            let replicas = blocks.map(|&block| self.nodes.copies(block).skip(1).count());
            assert_eq!(
                replicas.sum::<usize>(),
                file.replicas as usize,
                "file {number}"
            );
            assert!(file.replicas == 0 || file.lease == LeaseState::Held);
        }
        let held = self
            .files
            .iter()
            .filter(|file| file.lease == LeaseState::Held);
        assert_eq!(held.count(), self.leases_held);
    }
}

impl FileState {
    /// A writer has opened the file.
    fn written(&mut self, now_ns: u64) {
        if now_ns - self.held_since_ns > WRITE_FREE_NS_MIN {
            self.recent_writers = 0;
        }
        self.paused_until_ns = now_ns + (WRITE_PAUSE_NS << self.recent_writers);
        self.recent_writers = (self.recent_writers + 1).min(WRITE_PAUSE_DOUBLINGS_MAX);
    }
}

#[cfg(test)]
mod tests;
