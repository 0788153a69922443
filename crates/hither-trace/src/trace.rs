//! A trace in memory: the stream of block references that the simulator runs, in columns.
//!
//! Memory: 4 bytes a reference (its block), 8 bytes a block (its object and index), and 12 bytes for every *run* of
//! references that share call site, thread and op. A request of 128 KiB is one run of 32 references, and a trace of
//! bare block numbers is one run altogether, so a column that does not vary costs nothing; a trace of single-block
//! requests by ever-changing sites costs 16 bytes a reference at worst. Object and index follow from the block, the
//! process from the thread, and the next use is worked out, at 4 bytes a reference, only for who asks for it.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use hither_core::{Access, Block, NEVER, Object, Op, Process, Site, Thread};

use crate::counts::{Counts, Tally};
use crate::load::LoadOptions;
use crate::schema::{Meta, ObjectRow, SiteRow};

/// References that have the call site, the thread and the op in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The first reference of the run; it ends where the next one starts.
    pub(crate) start: u32,
    pub(crate) site: u32,
    /// Twice the thread, plus one for a write.
    thread_op: u32,
}

impl Run {
    pub(crate) fn new(start: u32, site: u32, thread: u32, op: Op) -> Run {
        Run {
            start,
            site,
            thread_op: thread << 1 | u32::from(op == Op::Write),
        }
    }

    pub(crate) fn thread(&self) -> u32 {
        self.thread_op >> 1
    }

    pub(crate) fn op(&self) -> Op {
        if self.thread_op & 1 == 1 {
            Op::Write
        } else {
            Op::Read
        }
    }

    pub(crate) fn continues(&self, other: &Run) -> bool {
        (self.site, self.thread_op) == (other.site, other.thread_op)
    }
}

/// Whether accesses carry the tick at which their block is referenced next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Future {
    /// They do not: [`Access::next`] is [`NEVER`].
    Hidden,
    /// They do, for policies that know the future.
    Known,
}

/// A trace in memory. Made by [`Trace::load`], or with a [`Builder`](crate::load::Builder).
#[derive(Debug)]
pub struct Trace {
    pub(crate) path: PathBuf,
    pub(crate) format: &'static str,
    pub(crate) sha256: String,
    pub(crate) options: LoadOptions,
    /// The block of each reference.
    pub(crate) stream: Vec<u32>,
    pub(crate) runs: Vec<Run>,
    /// Object and index of each block, in the upper and the lower half.
    pub(crate) keys: Vec<u64>,
    /// The process of each thread.
    pub(crate) processes: Vec<u32>,
    pub(crate) objects: Vec<ObjectRow>,
    pub(crate) sites: Vec<SiteRow>,
    pub(crate) meta: Meta,
    pub(crate) counts: Counts,
    pub(crate) object_tallies: Vec<Tally>,
    pub(crate) site_tallies: Vec<Tally>,
    pub(crate) next_use: OnceLock<Vec<u32>>,
}

/// In [`Trace::next_use`]: the block is not referenced again.
pub const NO_NEXT_USE: u32 = u32::MAX;

impl Trace {
    /// The number of references.
    pub fn references(&self) -> usize {
        self.stream.len()
    }

    /// The number of distinct blocks; blocks are numbered below it.
    pub fn blocks(&self) -> usize {
        self.keys.len()
    }

    /// The number of threads; threads are numbered below it.
    pub fn threads(&self) -> usize {
        self.processes.len()
    }

    /// The number of processes; processes are numbered below it.
    pub fn processes(&self) -> usize {
        self.processes
            .iter()
            .max()
            .map_or(0, |&highest| highest as usize + 1)
    }

    /// The objects, by number; empty where the format knows none (all blocks are then of object 0).
    pub fn objects(&self) -> &[ObjectRow] {
        &self.objects
    }

    /// The call sites, by number; at least the unknown one.
    pub fn sites(&self) -> &[SiteRow] {
        &self.sites
    }

    /// What the trace says about its making; the default where the format says nothing.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// What was requested, and what was left out of the references and why.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The requests on each object, by number; empty where the format knows no objects.
    pub fn object_tallies(&self) -> &[Tally] {
        &self.object_tallies
    }

    /// The requests of each call site, by number.
    pub fn site_tallies(&self) -> &[Tally] {
        &self.site_tallies
    }

    /// The path that it was loaded from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The name of its format.
    pub fn format(&self) -> &'static str {
        self.format
    }

    /// SHA-256 of the input in hexadecimal: for a file, what `sha256sum` prints; for a trace folder, what
    /// `sha256sum accesses.parquet meta.json objects.parquet sites.parquet | sha256sum` prints in it. Empty for a
    /// trace that was not loaded from a file.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// How it was loaded.
    pub fn options(&self) -> &LoadOptions {
        &self.options
    }

    /// Whether references say which file they are of.
    pub fn has_objects(&self) -> bool {
        !self.objects.is_empty()
    }

    /// Whether any reference says which call site made it.
    pub fn has_sites(&self) -> bool {
        self.runs.iter().any(|run| run.site != 0)
    }

    /// Whether any reference is a write.
    pub fn has_writes(&self) -> bool {
        self.runs.iter().any(|run| run.op() == Op::Write)
    }

    /// The object of a block.
    pub fn object_of(&self, block: Block) -> Object {
        Object((self.keys[block.index()] >> 32) as u32)
    }

    /// The position of a block within its object, in blocks.
    pub fn index_of(&self, block: Block) -> u32 {
        self.keys[block.index()] as u32
    }

    /// The process of a thread.
    pub fn process_of(&self, thread: Thread) -> Process {
        Process(self.processes[thread.index()])
    }

    /// The block of each reference, as a bare number: all that a policy without classification looks at.
    pub fn block_stream(&self) -> &[u32] {
        &self.stream
    }

    /// For each reference, the tick at which its block is referenced next, or [`NO_NEXT_USE`]. Worked out in one
    /// pass from the end the first time that it is asked for.
    pub fn next_use(&self) -> &[u32] {
        self.next_use.get_or_init(|| {
            let mut upcoming = vec![NO_NEXT_USE; self.blocks()];
            let mut next = vec![NO_NEXT_USE; self.stream.len()];
            for (tick, &block) in self.stream.iter().enumerate().rev() {
                next[tick] = std::mem::replace(&mut upcoming[block as usize], tick as u32);
            }
            next
        })
    }

    /// Replaces what is in `out` by up to `count` accesses from tick `start` on, fewer at the end of the trace.
    pub fn fill(&self, start: usize, count: usize, future: Future, out: &mut Vec<Access>) {
        out.clear();
        let start = start.min(self.stream.len());
        let end = start.saturating_add(count).min(self.stream.len());
        out.reserve(end - start);
        let next_use = match future {
            Future::Hidden => None,
            Future::Known => Some(self.next_use()),
        };
        for (run, range) in self.runs_in(start, end) {
            let (site, thread, op) = (Site(run.site), Thread(run.thread()), run.op());
            let process = self.process_of(thread);
            out.extend(range.map(|tick| {
                let block = Block(self.stream[tick]);
                let key = self.keys[block.index()];
                let next = next_use.map_or(NO_NEXT_USE, |next_use| next_use[tick]);
                Access {
                    tick: tick as u64,
                    next: if next == NO_NEXT_USE {
                        NEVER
                    } else {
                        u64::from(next)
                    },
                    block,
                    object: Object((key >> 32) as u32),
                    index: key as u32,
                    site,
                    thread,
                    process,
                    op,
                }
            }));
        }
    }

    /// Hands the whole trace to `each` in order, in batches of `count` accesses (the last may be shorter) that lie
    /// in one buffer, used again and again.
    ///
    /// # Panics
    /// If `count` is 0.
    pub fn for_each_batch(&self, count: usize, future: Future, mut each: impl FnMut(&[Access])) {
        assert!(count > 0, "a batch holds at least one access");
        let mut batch = Vec::new();
        for start in (0..self.stream.len()).step_by(count) {
            self.fill(start, count, future, &mut batch);
            each(&batch);
        }
    }

    /// The runs that touch the references from `start` to `end`, each with its part of that range.
    pub(crate) fn runs_in(
        &self,
        start: usize,
        end: usize,
    ) -> impl Iterator<Item = (&Run, std::ops::Range<usize>)> {
        let first = self
            .runs
            .partition_point(|run| run.start as usize <= start)
            .saturating_sub(1);
        let starts = self.runs[first..].iter().map(|run| run.start as usize);
        let ends = starts.skip(1).chain(std::iter::once(self.stream.len()));
        self.runs[first..]
            .iter()
            .zip(ends)
            .take_while(move |(run, _)| (run.start as usize) < end)
            .map(move |(run, run_end)| (run, start.max(run.start as usize)..end.min(run_end)))
    }
}
