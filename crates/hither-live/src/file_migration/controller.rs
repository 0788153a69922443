//! Decides which blocks of a program's files are moved to which node: pure, so that the same inputs
//! give the same decisions.
//!
//! The policy is driven as by the pages of memory ([`crate::memory`]), a block of a file being its
//! page: it is shown who used which block how often, and asks for moves.
//!
//! **What is counted.** A program copies a file's bytes a line at a time, and its processor has
//! some eight lines on their way at once; so a request counts as one access for each eight lines of
//! a block, at the price of a load that waits. Counts go back ten seconds at most: what has not
//! paid for its move by then is not worth one.
//!
//! **Where blocks are** is the kernel's to say: who reads a block first need not be who brought it
//! in. It is asked of blocks whose reads would pay for a move if they all came from afar, and once
//! more where ten seconds have passed, since pages leave the cache and come back elsewhere.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use hither_core::placement::{Action, ActionOutcome, Counters, Epoch, EpochKind};
use hither_core::{Block, Node, Object, Process, Thread};
use rustc_hash::FxHashMap;

use super::event::{Decision, Input, TimedInput};
use crate::controller::Controller;
use crate::error::Result;
use crate::memory::controller::{PlacementHost, Touch};
use crate::numa::ranges::{LocatedRun, MoveResult, PageRange, RefusalReason};
use crate::references::References;

pub(crate) use crate::memory::controller::Config;

/// Pages of a block. Fewer would mean more to count, and to move one costs as much as to move four
/// alone.
pub(super) const BLOCK_PAGES: u32 = 4;

/// Bytes for which a request counts as one access: the lines that are on their way at once.
const ACCESS_BYTES: u64 = 8 * 64;

/// What was counted is forgotten after so long.
const HISTORY_NS: u64 = 10_000_000_000;

/// What moving a block costs until it was measured.
const MIGRATION_NS: u64 = 2_000 * BLOCK_PAGES as u64;

/// The cost is measured by moves of so many pages and more.
const MEASURED_MIN: u32 = 64;

/// Blocks of a job, 64 MiB: their pages are mapped meanwhile, and cannot be given up.
const JOB_BLOCKS: usize = 4096;

/// Programs share files, and nobody is asked whose process it was.
const EVERYBODY: Process = Process(0);

/// What a run of the controller comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Files that programs used.
    pub files: u64,
    /// Accesses to blocks whose node was known, in units of 512 bytes, and those of them from that
    /// node.
    pub accesses: u64,
    /// See `accesses`.
    pub local: u64,
    /// Blocks that were to be moved.
    pub wanted: u64,
    /// Pages that were moved.
    pub moved: u64,
    /// What moving them took, in processor time.
    pub took_ns: u64,
}

/// What is known of where a block is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum BlockLocation {
    #[default]
    Unknown,
    /// The kernel is being asked.
    Asked,
    /// The model has it.
    Known,
}

/// A job that has not ended.
#[derive(Debug)]
struct Batch {
    file: u32,
    blocks: Vec<Block>,
    to: Option<Node>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct FileMigrationController {
    model: PlacementHost,
    dry_run: bool,
    page_bytes: u64,
    references: References,
    /// Files that cannot be got at.
    left: Vec<bool>,
    places: Vec<BlockLocation>,
    /// Since they were last forgotten.
    counts: Counters,
    /// What the policy is shown of them.
    shown: Counters,
    /// Blocks that were used since the policy was last asked.
    recent: Vec<Block>,
    is_recent: Vec<bool>,
    jobs: BTreeMap<u64, Batch>,
    job_count: u64,
    /// What the policy asked for and has not heard of.
    outcomes: Vec<ActionOutcome>,
    of_block: FxHashMap<Block, usize>,
    migration_ns: u64,
    /// Pages that the cost was measured by.
    measured: u64,
    forgot_ns: u64,
    now_ns: u64,
    summary: Summary,
}

impl Controller for FileMigrationController {
    const NAME: &'static str = "file_migration";
    const FORMAT: (&'static str, u32) = ("hither_following", 1);
    type Config = Config;
    type Input = Input;
    type Decision = Decision;

    /// The page of `config` is a block.
    fn new(config: &Config) -> Result<FileMigrationController> {
        let mut model = PlacementHost::new(config)?;
        let migration_ns = config.measured.migration_ns;
        let migration_ns = migration_ns.map_or(MIGRATION_NS, |page| page * u64::from(BLOCK_PAGES));
        model.set_migration_ns(migration_ns);
        Ok(FileMigrationController {
            counts: Counters::new(model.nodes(), 0),
            shown: Counters::new(model.nodes(), 0),
            model,
            dry_run: config.dry_run,
            page_bytes: config.page_bytes / u64::from(BLOCK_PAGES),
            references: References::new(config.page_bytes),
            left: Vec::new(),
            places: Vec::new(),
            recent: Vec::new(),
            is_recent: Vec::new(),
            jobs: BTreeMap::new(),
            job_count: 0,
            outcomes: Vec::new(),
            of_block: FxHashMap::default(),
            migration_ns,
            measured: 0,
            forgot_ns: 0,
            now_ns: 0,
            summary: Summary::default(),
        })
    }

    fn step(&mut self, at: &TimedInput, out: &mut Vec<Decision>) {
        self.now_ns = self.now_ns.max(at.time_ns);
        self.model.set_now_ns(self.now_ns);
        match &at.input {
            &Input::Access {
                file,
                offset,
                length,
                thread,
                cpu,
            } => {
                let node = self.model.node_of_cpu(cpu);
                self.access(file, offset, length, thread, node);
            }
            Input::Located { job, found } => self.located(*job, found),
            Input::Moved(moved) => self.moved(moved),
            &Input::Unreachable { job, for_good } => self.unreachable(job, for_good),
            Input::Usage { used } => self.model.set_usage(used),
            Input::Tick => {
                // What the policy asks for is heard of before it is asked again.
                if self.jobs.is_empty() {
                    self.locate(out);
                    self.judge(out);
                }
                if self.now_ns - self.forgot_ns >= HISTORY_NS {
                    self.forgot_ns = self.now_ns;
                    self.forget();
                }
            }
        }
    }
}

impl FileMigrationController {
    fn access(&mut self, key: u64, offset: u64, length: u64, thread: u32, node: Node) {
        let file = self.references.file(key);
        self.left.resize(self.references.files(), false);
        if length == 0 || self.left[file as usize] {
            return;
        }
        let block_bytes = self.page_bytes * u64::from(BLOCK_PAGES);
        let end = offset.saturating_add(length);
        for index in self.references.of_request(file, thread, offset, length) {
            let block = self.references.block(file, index);
            self.grow();
            let start = u64::from(index) * block_bytes;
            let bytes = end.min(start.saturating_add(block_bytes)) - offset.max(start).min(end);
            let count = bytes.div_ceil(ACCESS_BYTES) as u32;
            self.counts.add(block, node, count);
            if !std::mem::replace(&mut self.is_recent[block.index()], true) {
                self.recent.push(block);
            }
            if self.places[block.index()] == BlockLocation::Known
                && let Some(home) = self.model.home(block)
            {
                self.summary.accesses += u64::from(count);
                self.summary.local += u64::from(count) * u64::from(home == node);
            }
        }
    }

    /// Has tables as large as there are blocks.
    fn grow(&mut self) {
        let blocks = self.references.blocks();
        self.model.grow(blocks);
        self.counts.grow(self.model.blocks());
        self.shown.grow(self.model.blocks());
        self.places
            .resize(self.model.blocks() as usize, BlockLocation::Unknown);
        self.is_recent.resize(self.model.blocks() as usize, false);
    }

    /// Asks after blocks that may be worth moving.
    fn locate(&mut self, out: &mut Vec<Decision>) {
        let recent = self.recent.iter().copied();
        let unknown: Vec<Block> = recent
            .filter(|&block| self.places[block.index()] == BlockLocation::Unknown)
            .filter(|&block| self.is_worth_a_move(block))
            .collect();
        for &block in &unknown {
            self.places[block.index()] = BlockLocation::Asked;
        }
        for (file, blocks) in self.by_file(unknown) {
            let (job, ranges) = self.job(file, blocks, None);
            let file = self.references.key(file);
            out.push(Decision::Locate { job, file, ranges });
        }
    }

    /// Whether its reads would have paid for a move if all of them had come from the farthest node.
    fn is_worth_a_move(&self, block: Block) -> bool {
        let nodes = (0..self.model.nodes() as u16).map(Node);
        let lost_ns = nodes.zip(self.counts.of(block)).map(|(from, &count)| {
            let others = (0..self.model.nodes() as u16).map(Node);
            let farthest_ns = others.map(|to| self.model.latency_ns(from, to)).max();
            u64::from(count) * u64::from(farthest_ns.unwrap_or(0))
        });
        lost_ns.sum::<u64>() > self.migration_ns
    }

    /// Shows the policy what was used lately, and has moved what it wants elsewhere.
    fn judge(&mut self, out: &mut Vec<Decision>) {
        self.shown.clear();
        let (known, rest): (Vec<Block>, Vec<Block>) = std::mem::take(&mut self.recent)
            .into_iter()
            .partition(|block| self.places[block.index()] == BlockLocation::Known);
        for &block in &known {
            self.shown.add_row(block, self.counts.of(block));
            self.is_recent[block.index()] = false;
        }
        // They are looked at again when it is known where they are.
        for block in rest {
            match self.places[block.index()] {
                BlockLocation::Asked => self.recent.push(block),
                _ => self.is_recent[block.index()] = false,
            }
        }
        if self.shown.touched().is_empty() {
            return;
        }
        let epoch = Epoch {
            kind: EpochKind::Iteration,
            process: Some(EVERYBODY),
            counts: &self.shown,
            thread_migrations: &[],
            active_threads: 0,
        };
        let mut actions = Vec::new();
        self.model.epoch(&epoch, &mut actions);
        let mut to: BTreeMap<Node, Vec<Block>> = BTreeMap::new();
        for action in actions {
            let done = false;
            self.outcomes.push(ActionOutcome { action, done });
            // A full node refuses, as in the simulator.
            if let Action::Migrate { block, to: node } = action
                && self.model.free(node) > 0
            {
                self.of_block.insert(block, self.outcomes.len() - 1);
                to.entry(node).or_default().push(block);
            }
        }
        for (node, blocks) in to {
            self.summary.wanted += blocks.len() as u64;
            for (file, blocks) in self.by_file(blocks) {
                self.migrate(file, blocks, node, out);
            }
        }
        if self.dry_run {
            let moves = self.jobs.iter().filter(|(_, batch)| batch.to.is_some());
            for job in moves.map(|(&job, _)| job).collect::<Vec<u64>>() {
                self.moved(&MoveResult {
                    job,
                    ..MoveResult::default()
                });
            }
        }
        self.conclude();
    }

    fn migrate(&mut self, file: u32, blocks: Vec<Block>, to: Node, out: &mut Vec<Decision>) {
        let (mut here, mut there) = (0, 0);
        for &block in &blocks {
            let home = self.model.home(block).unwrap_or(to);
            let counts = self.counts.of(block);
            here += u64::from(counts[home.index()]);
            there += u64::from(counts[to.index()]);
        }
        let cost_ns = self.migration_ns * blocks.len() as u64;
        let (job, ranges) = self.job(file, blocks, Some(to));
        out.push(Decision::Move {
            job,
            file: self.references.key(file),
            to: self.model.kernel_number(to),
            ranges,
            here,
            there,
            cost_ns,
        });
    }

    /// Blocks by file, in order, as many as a job has.
    fn by_file(&self, mut blocks: Vec<Block>) -> Vec<(u32, Vec<Block>)> {
        blocks.sort_unstable_by_key(|&block| self.references.place(block));
        let file = |block: &Block| self.references.place(*block).0;
        let files = blocks.chunk_by(|a, b| file(a) == file(b));
        files
            .flat_map(|of_file| of_file.chunks(JOB_BLOCKS))
            .map(|blocks| (file(&blocks[0]), blocks.to_vec()))
            .collect()
    }

    fn job(&mut self, file: u32, blocks: Vec<Block>, to: Option<Node>) -> (u64, Vec<PageRange>) {
        let job = self.job_count;
        self.job_count += 1;
        let index = |block: &Block| self.references.place(*block).1;
        let block_bytes = self.page_bytes * u64::from(BLOCK_PAGES);
        let runs = blocks.chunk_by(|a, b| index(a) + 1 == index(b));
        let ranges = runs.map(|run| PageRange {
            start: u64::from(index(&run[0])) * block_bytes,
            pages: run.len() as u32 * BLOCK_PAGES,
        });
        let ranges = ranges.collect();
        self.jobs.insert(job, Batch { file, blocks, to });
        (job, ranges)
    }

    /// The kernel has said where blocks are: a block is where most of its pages are.
    fn located(&mut self, job: u64, found: &[LocatedRun]) {
        let Some(batch) = self.jobs.remove(&job) else {
            return;
        };
        let nodes = self.model.nodes();
        let mut pages = vec![0_u32; batch.blocks.len() * nodes];
        for run in found {
            let Some(node) = self.model.node_of_kernel(run.node) else {
                continue;
            };
            for page in run.first..run.first.saturating_add(run.pages) {
                let at = (page / BLOCK_PAGES) as usize * nodes + node.index();
                if let Some(count) = pages.get_mut(at) {
                    *count += 1;
                }
            }
        }
        for (&block, pages) in batch.blocks.iter().zip(pages.chunks(nodes)) {
            let counted = (0..).map(Node).zip(pages.iter().copied());
            let most = counted.max_by_key(|&(node, pages)| (pages, Reverse(node)));
            let most = most.filter(|&(_, pages)| pages > 0).map(|(node, _)| node);
            let (number, index) = self.references.place(block);
            self.places[block.index()] = match most {
                Some(node) => {
                    self.model.found(Touch {
                        block,
                        object: Object(number),
                        index,
                        process: EVERYBODY,
                        thread: Thread(0),
                        node,
                    });
                    BlockLocation::Known
                }
                // It has left the cache: whoever brings it back begins anew.
                None => {
                    self.counts.reset(block);
                    BlockLocation::Unknown
                }
            };
        }
    }

    /// A move has ended.
    fn moved(&mut self, moved: &MoveResult) {
        let Some(batch) = self.jobs.remove(&moved.job) else {
            return;
        };
        let Some(to) = batch.to else {
            return;
        };
        self.summary.moved += u64::from(moved.moved);
        self.summary.took_ns += moved.took_ns;
        if moved.moved >= MEASURED_MIN && moved.took_ns > 0 {
            let block_ns = moved.took_ns * u64::from(BLOCK_PAGES) / u64::from(moved.moved);
            let weight = u64::from(moved.moved);
            let sum = self.migration_ns * self.measured + block_ns * weight;
            self.measured += weight;
            self.migration_ns = sum / self.measured;
            self.model.set_migration_ns(self.migration_ns);
        }
        let mut stays = vec![false; batch.blocks.len()];
        let mut absent = vec![0; batch.blocks.len()];
        for run in &moved.refused {
            for page in run.first..run.first.saturating_add(run.pages) {
                let at = (page / BLOCK_PAGES) as usize;
                match (run.why, at < stays.len()) {
                    (_, false) => break,
                    // The last block of a file need not be a whole one.
                    (RefusalReason::Absent, _) => absent[at] += 1,
                    _ => stays[at] = true,
                }
            }
        }
        for (at, &block) in batch.blocks.iter().enumerate() {
            let gone = absent[at] == BLOCK_PAGES;
            let done = !stays[at] && !gone && self.model.relocate(block, to);
            if gone {
                self.places[block.index()] = BlockLocation::Unknown;
            }
            // What was read where it was says nothing of where it is now.
            self.counts.reset(block);
            if let Some(&outcome) = self.of_block.get(&block) {
                self.outcomes[outcome].done = done;
            }
        }
        self.conclude();
    }

    fn unreachable(&mut self, job: u64, for_good: bool) {
        let Some(batch) = self.jobs.remove(&job) else {
            return;
        };
        self.left[batch.file as usize] |= for_good;
        for block in batch.blocks {
            self.places[block.index()] = BlockLocation::Unknown;
            self.counts.reset(block);
        }
        self.conclude();
    }

    /// Tells the policy what came of it all, once that is known.
    fn conclude(&mut self) {
        let moving = self.jobs.values().any(|batch| batch.to.is_some());
        if !moving && !self.outcomes.is_empty() {
            self.model.settled(&self.outcomes);
            self.outcomes.clear();
            self.of_block.clear();
        }
    }

    /// Old counts say little of what is used now, and the kernel may have put blocks elsewhere.
    fn forget(&mut self) {
        self.counts.clear();
        for place in &mut self.places {
            if *place == BlockLocation::Known {
                *place = BlockLocation::Unknown;
            }
        }
    }

    /// What came of it so far.
    pub(crate) fn summary(&self) -> Summary {
        Summary {
            files: self.references.files() as u64,
            ..self.summary
        }
    }
}

#[cfg(test)]
mod tests;
