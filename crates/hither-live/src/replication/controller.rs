//! Decides which blocks of a program's files are copied to which node: pure, so that the same
//! inputs give the same decisions.
//!
//! The placement is the simulator's, unchanged. The controller owns what it reads, [`Nodes`], and
//! tells it what came of what it asked for.
//!
//! **Where originals are.** The kernel puts a page into the memory of the node that reads it first,
//! so that is a block's home. Where all of the page cache is to count as far ([`Config::all`]),
//! originals are on a node of their own, which nobody runs on.
//!
//! **What is not the placement's.** A file's first replica needs a lease, which takes a moment, or
//! is not to be had; until then what is asked for is refused, and asked for again with the next
//! access. A file that writers came to is left alone for a while, twice as long each time. So many
//! replicas a node are the most; beyond that one is given up for each new one, as the placement
//! says whose turn it is, but an original's turn is the kernel's to take. Where programs wait for
//! memory, an eighth of the replicas goes each time that is said.

use std::collections::BTreeSet;
use std::sync::Arc;

use hither_core::placement::{
    Action, ActionOutcome, Counters, Epoch, EpochKind, FilePlacement, Nodes, PlacementEntry,
    PlacementSettings,
};
use hither_core::registry::Mechanism;
use hither_core::topology::Topology;
use hither_core::{Access, Block, NEVER, Node, Object, Op, Process, Site, Slot, Spec, Thread};
use hither_sys::replica::BLOCK_BYTES;
use serde::{Deserialize, Serialize};

use super::event::{Decision, Input, TimedInput};
use crate::controller::Controller;
use crate::error::{Error, Result};
use crate::references::References;

/// The part of the replicas that is given up at a time: where programs wait for memory, and where
/// it is nearly all used.
const WAITING: u64 = 8;
const SHORT: u64 = 2;

/// Frames of a node as the placement has them: what it asks is which part of them is free.
const FRAMES: u32 = 1 << 28;

/// Files that leases are held on at a time: a descriptor each, of which a process has 1024 as a
/// rule.
const HELD_MAX: usize = 512;

/// A file without replicas keeps its lease so long.
const UNUSED_NS: u64 = 10_000_000_000;

/// A file that a writer came to is left alone so long, twice as long if another one comes soon
/// after, and so on, up to two thirds of a second. To take a lease and copy a few blocks again
/// takes less than a millisecond, and the writer has waited for a tenth of one.
const WRITTEN_NS: u64 = 20_000_000;
const WRITTEN_MAX: u32 = 5;
/// So long without a writer, and it counts as one that has none.
const UNWRITTEN_NS: u64 = 500_000_000;

/// Replicas that are made at a time while programs are idle.
const IDLE_MAX: usize = 256;

/// What the controller starts from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Config {
    /// The placement with its parameters.
    pub(crate) policy: String,
    /// Nodes that programs run on.
    pub(crate) nodes: u8,
    /// All of the page cache counts as far.
    pub(crate) all: bool,
    /// The most replicas of a node.
    pub(crate) replicas_max: u32,
    /// Of blocks; a log of another size does not replay.
    pub(crate) block_bytes: u64,
    /// Decisions are not carried out.
    pub(crate) dry_run: bool,
}

/// What a run of the controller comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Files that the program used.
    pub files: u64,
    /// Leases that were taken.
    pub leases: u64,
    /// Files whose replicas ended because a writer came, or they had changed or gone.
    pub ended: u64,
    /// References to blocks.
    pub references: u64,
    /// Of these, to a block with a replica on the node.
    pub local: u64,
    /// Replicas that were made.
    pub made: u64,
    /// Replicas that were to be made and could not be.
    pub failed: u64,
    /// Replicas that were given up to make room, or where programs waited for memory.
    pub reclaimed: u64,
    /// Replicas now, by node.
    pub replicas: Vec<u64>,
    /// Memory is tight: no replicas are made.
    pub tight: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Hold {
    #[default]
    No,
    Asked,
    Yes,
    Never,
}

#[derive(Clone, Debug, Default)]
struct File {
    hold: Hold,
    /// Writers that came soon after one another.
    writers: u32,
    held_since_ns: u64,
    /// No lease is asked for before.
    alone_until_ns: u64,
    replicas: u32,
    used_ns: u64,
}

/// See the module.
pub(crate) struct ReplicationController {
    placement: Box<dyn FilePlacement>,
    nodes: Nodes,
    counts: Counters,
    config: Config,
    references: References,
    /// By number.
    files: Vec<File>,
    /// Replicas that were asked for and not yet heard of.
    asked: BTreeSet<(Block, Node)>,
    held: usize,
    now_ns: u64,
    summary: Summary,
}

impl Controller for ReplicationController {
    const NAME: &'static str = "replication";
    const FORMAT: (&'static str, u32) = ("hither_replicas", 2);
    type Config = Config;
    type Input = Input;
    type Decision = Decision;

    /// An error where the policy is none for files of a running program.
    fn new(config: &Config) -> Result<ReplicationController> {
        let wrong = |what: String| Err(Error::Log(what));
        if config.block_bytes != BLOCK_BYTES {
            return wrong(format!("blocks of {} bytes", config.block_bytes));
        }
        let spec: Spec<PlacementEntry> = match config.policy.parse() {
            Ok(spec) => spec,
            Err(error) => return wrong(format!("{}: {error}", config.policy)),
        };
        let nodes = usize::from(config.nodes) + usize::from(config.all);
        let topology = Arc::new(Topology::uniform(nodes));
        let capacity = vec![FRAMES; nodes];
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
            references: References::new(BLOCK_BYTES),
            files: Vec::new(),
            asked: BTreeSet::new(),
            held: 0,
            now_ns: 0,
            summary: Summary {
                replicas: vec![0; usize::from(config.nodes)],
                ..Summary::default()
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
                (file.hold, file.held_since_ns) = (Hold::Yes, now_ns);
                self.held += 1;
                self.summary.leases += 1;
            }
            Input::NotHeld { file, later } => {
                let (file, now_ns) = (self.file(file), self.now_ns);
                let file = self.file_mut(file);
                match later {
                    true => {
                        file.hold = Hold::No;
                        file.written(now_ns);
                    }
                    false => file.hold = Hold::Never,
                }
            }
            Input::Ended { file } => self.ended(file),
            Input::Settled {
                file,
                index,
                node,
                done,
            } => {
                let file = self.file(file);
                if let Some(block) = self.references.find(file, index) {
                    self.settle(block, Node(u16::from(node)), done, out);
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
            Input::Memory { free_ppm } => self.memory(free_ppm, WAITING, out),
            Input::Short => self.memory(0, SHORT, out),
            Input::Tick { idle } => self.tick(idle, out),
        }
    }
}

impl ReplicationController {
    fn file(&mut self, key: u64) -> u32 {
        let number = self.references.file(key);
        self.files
            .resize_with(self.references.files(), File::default);
        number
    }

    fn file_mut(&mut self, file: u32) -> &mut File {
        &mut self.files[file as usize]
    }

    fn block(&mut self, file: u32, index: u32) -> Block {
        let block = self.references.block(file, index);
        if block.0 >= self.nodes.blocks() {
            // Tables move when they grow.
            let blocks = (block.0 + 1).max(self.nodes.blocks().saturating_mul(2));
            self.nodes.grow(blocks);
            self.placement.grow(blocks);
            self.counts.grow(blocks);
        }
        block
    }

    fn access(
        &mut self,
        key: u64,
        access: Access,
        offset: u64,
        length: u64,
        out: &mut Vec<Decision>,
    ) {
        if length == 0 {
            return;
        }
        let (number, now_ns) = (self.file(key), self.now_ns);
        self.file_mut(number).used_ns = now_ns;
        let thread = access.thread.0;
        for index in self.references.of_request(number, thread, offset, length) {
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
                let home = match self.config.all {
                    true => Node(u16::from(self.config.nodes)),
                    false => placed,
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
                    if self.asked.contains(&(block, to)) {
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
                // Originals are where the kernel has them.
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

    /// Has a replica made, if that can be.
    fn replicate(&mut self, block: Block, to: Node, out: &mut Vec<Decision>) -> bool {
        let (number, index) = self.references.place(block);
        let (now_ns, held) = (self.now_ns, self.held);
        let key = self.references.key(number);
        let file = self.file_mut(number);
        match file.hold {
            Hold::Yes => {}
            Hold::No if now_ns >= file.alone_until_ns && held < HELD_MAX => {
                file.hold = Hold::Asked;
                out.push(Decision::Hold { file: key });
                return false;
            }
            _ => return false,
        }
        let there = self.summary.replicas[to.index()] as usize;
        let coming = self.asked.iter().filter(|(_, node)| *node == to).count();
        if there + coming >= self.config.replicas_max as usize && !self.reclaim(to, block, out) {
            return false;
        }
        self.asked.insert((block, to));
        out.push(Decision::Replicate {
            file: key,
            index,
            node: to.0 as u8,
        });
        true
    }

    /// Gives up a replica of a node, if there is one.
    fn reclaim(&mut self, at: Node, incoming: Block, out: &mut Vec<Decision>) -> bool {
        // An original's turn comes between: at most once before it is a replica's.
        for _ in 0..2 {
            if let Some(victim) = self.placement.replica_victim(at, incoming, &self.nodes) {
                self.summary.reclaimed += 1;
                return self.drop_replica(victim, at, Some(out));
            }
        }
        false
    }

    /// A replica is no more; it is to be given up, or has been.
    fn drop_replica(&mut self, block: Block, at: Node, out: Option<&mut Vec<Decision>>) -> bool {
        self.asked.remove(&(block, at));
        if !self.nodes.holds(block, at) || self.nodes.home(block) == Some(at) {
            return false;
        }
        self.nodes.remove(block, at);
        self.summary.replicas[at.index()] -= 1;
        let (number, index) = self.references.place(block);
        self.file_mut(number).replicas -= 1;
        self.placement
            .on_removed(block, at, &self.nodes, &mut Vec::new());
        if let Some(out) = out {
            out.push(Decision::Drop {
                file: self.references.key(number),
                index,
                node: at.0 as u8,
            });
        }
        true
    }

    fn settle(&mut self, block: Block, node: Node, done: bool, out: &mut Vec<Decision>) {
        if !self.asked.remove(&(block, node)) || self.nodes.home(block).is_none() {
            // The block was written, or left, meanwhile.
            if done {
                let (number, index) = self.references.place(block);
                let file = self.references.key(number);
                out.push(Decision::Drop {
                    file,
                    index,
                    node: node.0 as u8,
                });
            }
            return;
        }
        match done {
            true => {
                self.insert(block, node);
                self.summary.made += 1;
                self.summary.replicas[node.index()] += 1;
                let (number, _) = self.references.place(block);
                self.file_mut(number).replicas += 1;
            }
            false => self.summary.failed += 1,
        }
        let outcome = ActionOutcome {
            action: Action::Replicate { block, to: node },
            done,
        };
        self.placement.on_outcomes(&[outcome], &self.nodes);
    }

    /// Neither replicas nor a lease: as if all of the file had been written.
    fn ended(&mut self, key: u64) {
        let (number, now_ns) = (self.file(key), self.now_ns);
        let file = self.file_mut(number);
        if file.hold == Hold::Yes {
            file.hold = Hold::No;
            file.written(now_ns);
            self.held -= 1;
            self.summary.ended += 1;
        }
        for block in self.references.blocks_of(number).to_vec() {
            self.asked.retain(|&(asked, _)| asked != block);
            if self.nodes.home(block).is_none() {
                continue;
            }
            let access = Access {
                op: Op::Write,
                object: Object(number),
                index: self.references.place(block).1,
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

    /// The page cache has given a block up: its replicas go with it.
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

    /// Where none is free, this part of the replicas is given up.
    fn memory(&mut self, free_ppm: u32, part: u64, out: &mut Vec<Decision>) {
        self.summary.tight = free_ppm == 0;
        let used = u64::from(FRAMES) * u64::from(1_000_000 - free_ppm.min(1_000_000)) / 1_000_000;
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
            for _ in 0..self.summary.replicas[node.index()].div_ceil(part) {
                self.reclaim(node, Block(0), out);
            }
        }
    }

    fn tick(&mut self, idle: bool, out: &mut Vec<Decision>) {
        // Replicas that were put off are made one at a time.
        for _ in 0..if idle { IDLE_MAX } else { 1 } {
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
            let unused = file.hold == Hold::Yes
                && file.replicas == 0
                && self.now_ns - file.used_ns >= UNUSED_NS;
            if unused {
                file.hold = Hold::No;
                self.held -= 1;
                let file = self.references.key(number);
                out.push(Decision::Release { file });
            }
        }
    }

    /// Blocks with replicas, whose originals are to be asked after: by file and index, so many from
    /// the `from`-th on.
    pub(crate) fn replicated(&self, from: u32, count: usize) -> Vec<(u32, u64, u32)> {
        let blocks = (from..self.references.blocks()).map(Block);
        blocks
            .filter(|&block| self.nodes.home(block).is_some() && self.nodes.replicated(block))
            .take(count)
            .map(|block| {
                let (file, index) = self.references.place(block);
                (block.0, self.references.key(file), index)
            })
            .collect()
    }

    /// What came of it so far.
    pub(crate) fn summary(&self) -> Summary {
        Summary {
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
            assert!(file.replicas == 0 || file.hold == Hold::Yes);
        }
        let held = self.files.iter().filter(|file| file.hold == Hold::Yes);
        assert_eq!(held.count(), self.held);
    }
}

impl File {
    /// A writer has come.
    fn written(&mut self, now_ns: u64) {
        if now_ns - self.held_since_ns > UNWRITTEN_NS {
            self.writers = 0;
        }
        self.alone_until_ns = now_ns + (WRITTEN_NS << self.writers);
        self.writers = (self.writers + 1).min(WRITTEN_MAX);
    }
}

#[cfg(test)]
mod tests;
