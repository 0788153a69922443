//! Decides which blocks of a program's files move to which node. The controller is pure: equal
//! inputs give equal decisions.
//!
//! The policy is one for pages of memory, and its page is a block of a file. It gets the access
//! counts of each block by node, and asks for moves.
//!
//! **Counts.** A program copies a file's bytes a cache line at a time, and its processor fetches
//! about eight lines at once. So a request counts as one access for each eight lines of a block, at
//! the cost of a load that waits. Counts are cleared every ten seconds: a block whose move has not
//! paid by then is not worth moving.
//!
//! **Locations.** Only the kernel knows on which node a block is, since the first reader need not
//! be the one that brought it in. The controller asks for blocks whose reads would pay for a move
//! if all of them were remote. It asks again after ten seconds, since pages leave the cache and
//! come back elsewhere.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use hither_core::placement::{
    Action, ActionOutcome, Counters, Epoch, EpochKind, PageTouch, PlacementHost,
};
use hither_core::references::Request;
use hither_core::{Block, Node, Object, Op, Process, Thread};
use hither_ids::FileKey;
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::config::FileMigrationConfig;
use super::event::{Decision, FilePages, Input, Order, TimedInput};
use crate::controller::{Controller, NoNote};
use crate::error::{Error, Result};
use crate::numa::ranges::{LocatedRun, MoveResult, RefusalReason};
use crate::references::{BlockPosition, References};

/// Pages of a block. Smaller blocks would mean more counters, and moving a single page costs as
/// much as moving four.
pub(super) const BLOCK_PAGES: u32 = 4;

/// Bytes of a request that count as one access: the cache lines that a processor fetches at once.
const ACCESS_BYTES: u64 = 8 * 64;

/// Counts and locations are cleared this often.
const HISTORY_NS: u64 = 10_000_000_000;

/// The assumed cost of moving a block, until it was measured.
const BLOCK_MIGRATION_NS: u64 = 2_000 * BLOCK_PAGES as u64;

/// Moves of fewer pages do not count for the measured cost: the call itself dominates it.
const MEASURED_PAGES_MIN: u32 = 64;

/// The most blocks of a job (64 MiB): its pages are mapped meanwhile, so that the kernel cannot
/// reclaim them.
const JOB_BLOCKS_MAX: usize = 4096;

/// The process of all accesses: programs share files, so that blocks belong to no process.
const ALL_PROCESSES: Process = Process(0);

/// What the controller counted in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FileMigrationSummary {
    /// Files that programs used.
    pub files: u64,
    /// Accesses to blocks whose node was known, in units of 512 bytes.
    #[serde(rename = "file_accesses")]
    pub accesses: u64,
    /// Of these, accesses from that node.
    #[serde(rename = "file_local_accesses")]
    pub local: u64,
    /// Blocks that the policy wanted to move.
    #[serde(rename = "file_blocks_wanted")]
    pub wanted: u64,
    /// Pages that were moved.
    #[serde(rename = "file_pages_moved")]
    pub moved: u64,
    /// Processor time that moving them took.
    #[serde(rename = "moving_ns")]
    pub took_ns: u64,
}

/// Whether the node of a block is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum BlockLocation {
    #[default]
    Unknown,
    /// A job looks it up.
    Asked,
    /// The host has it.
    Known,
}

/// A job under way.
#[derive(Debug)]
struct BlockJob {
    file: u32,
    blocks: Vec<Block>,
    /// The node that the blocks move to; `None` for a look-up.
    to: Option<Node>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct FileMigrationController {
    host: PlacementHost,
    dry_run: bool,
    page_bytes: u64,
    references: References,
    /// By file: it cannot be opened.
    unreachable: Vec<bool>,
    /// By block.
    locations: Vec<BlockLocation>,
    /// Accesses since the counts were last cleared.
    counts: Counters,
    /// The counts that the policy gets.
    shown: Counters,
    /// Blocks that were accessed since the policy was last asked.
    recent: Vec<Block>,
    is_recent: Vec<bool>,
    jobs: BTreeMap<u64, BlockJob>,
    job_count: u64,
    /// The policy's last actions, until all their outcomes are known.
    outcomes: Vec<ActionOutcome>,
    /// The index of a block's outcome.
    outcome_of_block: FxHashMap<Block, usize>,
    /// The cost of moving a block, as far as it is known.
    migration_ns: u64,
    /// Pages whose moves were measured.
    measured_pages: u64,
    cleared_ns: u64,
    now_ns: u64,
    summary: FileMigrationSummary,
}

impl Controller for FileMigrationController {
    const NAME: &'static str = "file_migration";
    const FORMAT: (&'static str, u32) = ("hither_file_migration", 3);
    type Config = FileMigrationConfig;
    type Input = Input;
    type Order = Order;
    type Note = NoNote;

    fn new(config: &FileMigrationConfig) -> Result<FileMigrationController> {
        let block_bytes = u32::try_from(config.page_bytes)
            .ok()
            .filter(|&bytes| bytes > 0);
        let block_bytes = block_bytes
            .ok_or_else(|| Error::Log(format!("blocks of {} bytes", config.page_bytes)))?;
        let mut host = config.host()?;
        let migration_ns = config.measured.migration_ns;
        let migration_ns =
            migration_ns.map_or(BLOCK_MIGRATION_NS, |page| page * u64::from(BLOCK_PAGES));
        host.set_migration_ns(migration_ns);
        Ok(FileMigrationController {
            counts: Counters::new(host.node_count(), 0),
            shown: Counters::new(host.node_count(), 0),
            host,
            dry_run: config.dry_run,
            page_bytes: config.page_bytes / u64::from(BLOCK_PAGES),
            references: References::new(block_bytes),
            unreachable: Vec::new(),
            locations: Vec::new(),
            recent: Vec::new(),
            is_recent: Vec::new(),
            jobs: BTreeMap::new(),
            job_count: 0,
            outcomes: Vec::new(),
            outcome_of_block: FxHashMap::default(),
            migration_ns,
            measured_pages: 0,
            cleared_ns: 0,
            now_ns: 0,
            summary: FileMigrationSummary::default(),
        })
    }

    fn step(&mut self, at: &TimedInput, out: &mut Vec<Decision>) {
        self.now_ns = self.now_ns.max(at.time_ns);
        self.host.set_now_ns(self.now_ns);
        match &at.input {
            &Input::Access {
                file,
                offset,
                length,
                thread,
                cpu,
                write,
            } => {
                let node = self.host.node_of_cpu(cpu);
                let request = Request {
                    op: if write { Op::Write } else { Op::Read },
                    offset,
                    length,
                };
                self.access(file, request, thread, node);
            }
            Input::Located { job, found } => self.located(*job, found),
            Input::Moved(moved) => self.moved(moved),
            &Input::Unreachable { job, for_good } => self.unreachable(job, for_good),
            Input::Usage { used } => self.host.set_used_frames(used),
            Input::Tick => {
                // The policy is asked again once it knows the outcomes of its last actions.
                if self.jobs.is_empty() {
                    self.locate(out);
                    self.judge(out);
                }
                if self.now_ns - self.cleared_ns >= HISTORY_NS {
                    self.cleared_ns = self.now_ns;
                    self.clear_counts();
                }
            }
        }
    }
}

impl FileMigrationController {
    /// Counts an access by a thread on a node.
    fn access(&mut self, key: FileKey, request: Request<Op>, thread: u32, node: Node) {
        let file = self.references.file(key);
        self.unreachable.resize(self.references.files(), false);
        if self.unreachable[file as usize] {
            return;
        }
        let block_bytes = self.page_bytes * u64::from(BLOCK_PAGES);
        let (offset, end) = (
            request.offset,
            request.offset.saturating_add(request.length),
        );
        for index in self.references.of_request(file, thread, request) {
            let block = self.references.block(file, index);
            self.grow();
            let start = u64::from(index) * block_bytes;
            let bytes = end.min(start.saturating_add(block_bytes)) - offset.max(start).min(end);
            let count = bytes.div_ceil(ACCESS_BYTES) as u32;
            self.counts.add(block, node, count);
            if !std::mem::replace(&mut self.is_recent[block.index()], true) {
                self.recent.push(block);
            }
            if self.locations[block.index()] == BlockLocation::Known
                && let Some(home) = self.host.home(block)
            {
                self.summary.accesses += u64::from(count);
                self.summary.local += u64::from(count) * u64::from(home == node);
            }
        }
    }

    /// Grows the tables to the number of blocks.
    fn grow(&mut self) {
        let blocks = self.references.blocks();
        self.host.grow(blocks);
        self.counts.grow(self.host.blocks());
        self.shown.grow(self.host.blocks());
        self.locations
            .resize(self.host.blocks() as usize, BlockLocation::Unknown);
        self.is_recent.resize(self.host.blocks() as usize, false);
    }

    /// Asks for the locations of blocks that may be worth moving.
    fn locate(&mut self, out: &mut Vec<Decision>) {
        let recent = self.recent.iter().copied();
        let unknown: Vec<Block> = recent
            .filter(|&block| self.locations[block.index()] == BlockLocation::Unknown)
            .filter(|&block| self.is_worth_a_move(block))
            .collect();
        for &block in &unknown {
            self.locations[block.index()] = BlockLocation::Asked;
        }
        for (file, blocks) in self.by_file(unknown) {
            let (job, ranges) = self.job(file, blocks, None);
            let file = self.references.key(file);
            out.push(Decision::Order(Order::Locate { job, file, ranges }));
        }
    }

    /// Whether its accesses would have paid for a move, had each come from the node that is
    /// farthest from the block.
    fn is_worth_a_move(&self, block: Block) -> bool {
        let nodes = (0..self.host.node_count() as u16).map(Node);
        let lost_ns = nodes.zip(self.counts.of(block)).map(|(from, &count)| {
            let homes = (0..self.host.node_count() as u16).map(Node);
            let farthest_ns = homes.map(|to| self.host.latency_ns(from, to)).max();
            u64::from(count) * u64::from(farthest_ns.unwrap_or(0))
        });
        lost_ns.sum::<u64>() > self.migration_ns
    }

    /// Gives the policy the counts of recently accessed blocks, and decides the moves that it asks
    /// for.
    fn judge(&mut self, out: &mut Vec<Decision>) {
        self.shown.clear();
        let (known, rest): (Vec<Block>, Vec<Block>) = std::mem::take(&mut self.recent)
            .into_iter()
            .partition(|block| self.locations[block.index()] == BlockLocation::Known);
        for &block in &known {
            self.shown.add_row(block, self.counts.of(block));
            self.is_recent[block.index()] = false;
        }
        // Blocks that are being looked up stay recent until their node is known.
        for block in rest {
            match self.locations[block.index()] {
                BlockLocation::Asked => self.recent.push(block),
                _ => self.is_recent[block.index()] = false,
            }
        }
        if self.shown.touched().is_empty() {
            return;
        }
        let epoch = Epoch {
            kind: EpochKind::Iteration,
            process: Some(ALL_PROCESSES),
            counts: &self.shown,
            thread_migrations: &[],
            active_threads: 0,
        };
        let mut actions = Vec::new();
        self.host.end_epoch(&epoch, &mut actions);
        let mut to: BTreeMap<Node, Vec<Block>> = BTreeMap::new();
        for action in actions {
            let done = false;
            self.outcomes.push(ActionOutcome { action, done });
            // A full node refuses, as in the simulator.
            if let Action::Migrate { block, to: node } = action
                && self.host.free_frames(node) > 0
            {
                self.outcome_of_block.insert(block, self.outcomes.len() - 1);
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

    /// Decides to move blocks of a file to a node.
    fn migrate(&mut self, file: u32, blocks: Vec<Block>, to: Node, out: &mut Vec<Decision>) {
        let (mut here, mut there) = (0, 0);
        for &block in &blocks {
            let home = self.host.home(block).unwrap_or(to);
            let counts = self.counts.of(block);
            here += u64::from(counts[home.index()]);
            there += u64::from(counts[to.index()]);
        }
        let cost_ns = self.migration_ns * blocks.len() as u64;
        let (job, ranges) = self.job(file, blocks, Some(to));
        out.push(Decision::Order(Order::Move {
            job,
            file: self.references.key(file),
            to: self.host.kernel_number(to),
            ranges,
            here,
            there,
            cost_ns,
        }));
    }

    /// Blocks in order by file, at most as many together as a job may have.
    fn by_file(&self, mut blocks: Vec<Block>) -> Vec<(u32, Vec<Block>)> {
        blocks.sort_unstable_by_key(|&block| self.references.position(block));
        let file = |block: &Block| self.references.position(*block).file;
        let files = blocks.chunk_by(|a, b| file(a) == file(b));
        files
            .flat_map(|of_file| of_file.chunks(JOB_BLOCKS_MAX))
            .map(|blocks| (file(&blocks[0]), blocks.to_vec()))
            .collect()
    }

    /// Notes a job, and returns its number and its ranges of pages.
    fn job(&mut self, file: u32, blocks: Vec<Block>, to: Option<Node>) -> (u64, Vec<FilePages>) {
        let job = self.job_count;
        self.job_count += 1;
        let index = |block: &Block| self.references.position(*block).index;
        let block_bytes = self.page_bytes * u64::from(BLOCK_PAGES);
        let runs = blocks.chunk_by(|a, b| index(a) + 1 == index(b));
        let ranges = runs.map(|run| FilePages {
            start: u64::from(index(&run[0])) * block_bytes,
            pages: run.len() as u32 * BLOCK_PAGES,
        });
        let ranges = ranges.collect();
        self.jobs.insert(job, BlockJob { file, blocks, to });
        (job, ranges)
    }

    /// Takes in the nodes of a job's pages. A block is where most of its pages are.
    fn located(&mut self, job: u64, found: &[LocatedRun]) {
        let Some(batch) = self.jobs.remove(&job) else {
            return;
        };
        let nodes = self.host.node_count();
        let mut pages = vec![0_u32; batch.blocks.len() * nodes];
        for run in found {
            let Some(node) = self.host.node_of_kernel(run.node) else {
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
            let BlockPosition {
                file: number,
                index,
            } = self.references.position(block);
            self.locations[block.index()] = match most {
                Some(node) => {
                    self.host.set_home(PageTouch {
                        block,
                        object: Object(number),
                        index,
                        process: ALL_PROCESSES,
                        thread: Thread(0),
                        node,
                    });
                    BlockLocation::Known
                }
                // It has left the cache, and may come back on another node.
                None => {
                    self.counts.reset(block);
                    BlockLocation::Unknown
                }
            };
        }
    }

    /// Takes in the outcome of a move.
    fn moved(&mut self, moved: &MoveResult) {
        let Some(batch) = self.jobs.remove(&moved.job) else {
            return;
        };
        let Some(to) = batch.to else {
            return;
        };
        self.summary.moved += u64::from(moved.moved);
        self.summary.took_ns += moved.took_ns;
        if moved.moved >= MEASURED_PAGES_MIN && moved.took_ns > 0 {
            let block_ns = moved.took_ns * u64::from(BLOCK_PAGES) / u64::from(moved.moved);
            let weight = u64::from(moved.moved);
            let sum = self.migration_ns * self.measured_pages + block_ns * weight;
            self.measured_pages += weight;
            self.migration_ns = sum / self.measured_pages;
            self.host.set_migration_ns(self.migration_ns);
        }
        let mut stays = vec![false; batch.blocks.len()];
        let mut absent = vec![0; batch.blocks.len()];
        for run in &moved.refused {
            for page in run.first..run.first.saturating_add(run.pages) {
                let at = (page / BLOCK_PAGES) as usize;
                match (run.why, at < stays.len()) {
                    (_, false) => break,
                    // The last block of a file may be a partial one.
                    (RefusalReason::Absent, _) => absent[at] += 1,
                    _ => stays[at] = true,
                }
            }
        }
        for (at, &block) in batch.blocks.iter().enumerate() {
            let gone = absent[at] == BLOCK_PAGES;
            let done = !stays[at] && !gone && self.host.relocate(block, to);
            if gone {
                self.locations[block.index()] = BlockLocation::Unknown;
            }
            // The counts so far are those of its old node.
            self.counts.reset(block);
            if let Some(&outcome) = self.outcome_of_block.get(&block) {
                self.outcomes[outcome].done = done;
            }
        }
        self.conclude();
    }

    /// A job failed, since its file could not be opened or mapped.
    fn unreachable(&mut self, job: u64, for_good: bool) {
        let Some(batch) = self.jobs.remove(&job) else {
            return;
        };
        self.unreachable[batch.file as usize] |= for_good;
        for block in batch.blocks {
            self.locations[block.index()] = BlockLocation::Unknown;
            self.counts.reset(block);
        }
        self.conclude();
    }

    /// Reports the outcomes to the policy, once all of them are known.
    fn conclude(&mut self) {
        let moving = self.jobs.values().any(|batch| batch.to.is_some());
        if !moving && !self.outcomes.is_empty() {
            self.host.report_outcomes(&self.outcomes);
            self.outcomes.clear();
            self.outcome_of_block.clear();
        }
    }

    /// Clears counts and locations: old counts say little of what is used now, and blocks may have
    /// left the cache and come back on another node.
    fn clear_counts(&mut self) {
        self.counts.clear();
        for place in &mut self.locations {
            if *place == BlockLocation::Known {
                *place = BlockLocation::Unknown;
            }
        }
    }

    /// What was counted so far.
    pub(crate) fn summary(&self) -> FileMigrationSummary {
        FileMigrationSummary {
            files: self.references.files() as u64,
            ..self.summary
        }
    }
}

#[cfg(test)]
mod tests;
