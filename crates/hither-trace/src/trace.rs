//! A loaded trace: references to dense block numbers, in chunks in memory or in a temporary file.
//!
//! Memory: 8 bytes per block for its object and index. References take, up to a budget, 4 bytes
//! each for the block, and 16 bytes per *run* of references with the same call site, thread, op,
//! node and count. A request of 128 KiB is one run of 32 references, and a trace of bare block
//! numbers is one run per 8192, so columns that do not vary cost nothing. The worst case is 20
//! bytes per reference, where every reference has another site or count. Object and index follow
//! from the block, and the process from the thread. The next use is computed only when needed, at 4
//! bytes per reference.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use hither_core::placement::Mark;
use hither_core::registry::Needs;
use hither_core::{Access, Block, Life, NEVER, Node, Object, Op, Process, Site, Thread};

use crate::clock::{REFERENCE_CLOCK, ReferenceTime, ReferenceTimes};
use crate::counts::{RequestCounts, TraceCounts};
use crate::error::Result;
use crate::load_options::LoadOptions;
use crate::object_columns::ObjectColumns;
use crate::sample::Sampled;
use crate::schema::{Meta, ObjectRow, SiteRow};
use crate::store::{CHUNK_REFERENCES, Chunk, SpillList, Store};

/// A trace. Made by [`Trace::load`], or with a
/// [`TraceBuilder`](crate::TraceBuilder).
#[derive(Debug)]
pub struct Trace {
    pub(crate) path: PathBuf,
    pub(crate) format: String,
    pub(crate) sha256: String,
    pub(crate) options: LoadOptions,
    /// The table of its rows, where it is a trace folder.
    pub(crate) rows: Option<PathBuf>,
    pub(crate) store: Store,
    /// See [`Trace::blocks_left`].
    pub(crate) blocks_left: Vec<u8>,
    pub(crate) sampled: Option<Sampled>,
    /// See [`Trace::says_sizes`].
    pub(crate) says_sizes: bool,
    /// See [`Trace::has_sizes`].
    pub(crate) columns: Option<ObjectColumns>,
    /// See [`Trace::distinct_bytes`].
    pub(crate) distinct_bytes: u64,
    /// See [`Trace::bytes_of_all`].
    pub(crate) bytes_of_all: u64,
    /// See [`Trace::deletes_of_all`].
    pub(crate) deletes_of_all: u64,
    /// Object and index of each block, in the upper and the lower half of the number.
    pub(crate) keys: Vec<u64>,
    /// The process of each thread.
    pub(crate) processes: Vec<u32>,
    pub(crate) objects: Vec<ObjectRow>,
    pub(crate) sites: Vec<SiteRow>,
    pub(crate) meta: Meta,
    pub(crate) marks: Vec<Mark>,
    /// One more than the highest node of a reference.
    pub(crate) nodes: u16,
    pub(crate) counts: TraceCounts,
    pub(crate) times: ReferenceTimes,
    pub(crate) object_counts: Vec<RequestCounts>,
    pub(crate) site_counts: Vec<RequestCounts>,
    /// Distance to the next reference to the same block, or [`NO_NEXT_USE`]. The last chunk comes
    /// first.
    pub(crate) future: OnceLock<SpillList>,
}

const NO_NEXT_USE: u32 = u32::MAX;

impl Trace {
    /// The number of references.
    pub fn references(&self) -> usize {
        self.store.references()
    }

    /// The number of distinct blocks; blocks are numbered below it.
    pub fn blocks(&self) -> usize {
        self.keys.len()
    }

    /// Of each reference, how many blocks of its request come after its own, 255 at most. Empty
    /// unless [`LoadOptions::keep_lengths`] asked for it, and for a sample.
    pub fn blocks_left(&self) -> &[u8] {
        &self.blocks_left
    }

    /// Whether each reference is to an object of a known size. Only asked for by
    /// [`LoadOptions::keep_sizes`].
    pub fn has_sizes(&self) -> bool {
        self.columns.is_some()
    }

    /// Whether it says how large objects are, be it kept or not.
    pub fn says_sizes(&self) -> bool {
        self.says_sizes
    }

    /// The bytes of all distinct objects, each as large as when it is first referenced. 0 where
    /// sizes are not known.
    pub fn distinct_bytes(&self) -> u64 {
        self.distinct_bytes
    }

    /// The [bytes of all distinct objects](Trace::distinct_bytes) of the whole trace. If this one
    /// is a sample, an estimate.
    pub fn distinct_bytes_of_all(&self) -> u64 {
        let own = self.distinct_bytes as f64;
        self.sampled
            .map_or(own, |sampled| own / sampled.rate)
            .round() as u64
    }

    /// The bytes of all references to objects but deletes; if this is a sample, those of the whole
    /// trace. 0 where sizes are not known.
    pub fn bytes_of_all(&self) -> u64 {
        self.bytes_of_all
    }

    /// How many references are deletes; if this is a sample, those of the whole trace.
    pub fn deletes_of_all(&self) -> u64 {
        self.deletes_of_all
    }

    /// Whether some objects may be kept for some time only.
    pub fn has_lives(&self) -> bool {
        self.columns.as_ref().is_some_and(ObjectColumns::has_lives)
    }

    /// Replaces the contents of `out` by the [lives](Life) of up to `count` references from `start`
    /// on. Empty where [none ends](Trace::has_lives). Fails like [`Trace::fill`].
    pub fn fill_lives(&self, start: usize, count: usize, out: &mut Vec<Life>) -> Result<()> {
        if self.has_lives() {
            self.fill_times(start, count, out)
        } else {
            out.clear();
            Ok(())
        }
    }

    /// The same, also where no object expires. Empty where [no sizes](Trace::has_sizes) are known.
    pub(crate) fn fill_times(&self, start: usize, count: usize, out: &mut Vec<Life>) -> Result<()> {
        out.clear();
        let Some(columns) = &self.columns else {
            return Ok(());
        };
        let start = start.min(self.references());
        let end = start.saturating_add(count).min(self.references());
        columns.lives(start, end, out)
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

    /// The number of nodes of the trace's machine: those in `meta.json`, or more if references were
    /// made on more, and at least 1. Nodes are numbered from 0.
    pub fn nodes(&self) -> usize {
        self.meta.nodes.len().max(self.nodes.into()).max(1)
    }

    /// The ends of iterations and parallel constructs, in order.
    pub fn marks(&self) -> &[Mark] {
        &self.marks
    }

    /// The objects, by number. Empty if the format has none; all blocks then belong to object 0.
    pub fn objects(&self) -> &[ObjectRow] {
        &self.objects
    }

    /// The call sites, by number. There is at least the unknown one.
    pub fn sites(&self) -> &[SiteRow] {
        &self.sites
    }

    /// The metadata of the trace, or the default if the format has none.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// Requests, and what did not become a reference.
    pub fn counts(&self) -> &TraceCounts {
        &self.counts
    }

    /// The times of some of the references, in order, about a thousand at most. Empty where the
    /// trace has no times, or all are the same, and for a sample.
    pub fn reference_times(&self) -> Vec<ReferenceTime> {
        let points = self.times.points();
        let span =
            points.first().map(|first| first.time_ns)..points.last().map(|last| last.time_ns);
        if self.sampled.is_some() || self.meta.clock == REFERENCE_CLOCK || span.is_empty() {
            Vec::new()
        } else {
            points
        }
    }

    /// Requests on each object, by number. Empty if the format has no objects.
    pub fn object_counts(&self) -> &[RequestCounts] {
        &self.object_counts
    }

    /// Requests of each call site, by number.
    pub fn site_counts(&self) -> &[RequestCounts] {
        &self.site_counts
    }

    /// The path that it was loaded from, or the [name](Trace::named) that it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The name of its format, or `columns{...}`.
    pub fn format(&self) -> &str {
        &self.format
    }

    /// SHA-256 of the input in hexadecimal: for a file, what `sha256sum` prints; for a trace
    /// folder, what
    /// `sha256sum accesses.parquet meta.json objects.parquet sites.parquet | sha256sum` prints in
    /// it. Empty for a trace that was not loaded from a file.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// How it was loaded.
    pub fn options(&self) -> &LoadOptions {
        &self.options
    }

    /// Whether references have a file.
    pub fn has_objects(&self) -> bool {
        !self.objects.is_empty()
    }

    /// Whether any reference has a known call site.
    pub fn has_sites(&self) -> bool {
        self.store.has_sites()
    }

    /// Whether any reference is a write.
    pub fn has_writes(&self) -> bool {
        self.store.has_writes()
    }

    /// What this trace is a sample of. `None` if it has all blocks.
    pub fn sampled(&self) -> Option<Sampled> {
        self.sampled
    }

    /// The references of the whole trace, also if this one is a sample.
    pub fn references_of_all(&self) -> u64 {
        let own = self.references() as u64;
        self.sampled.map_or(own, |sampled| sampled.references)
    }

    /// The distinct blocks of the whole trace. If this one is a sample, an estimate.
    pub fn blocks_of_all(&self) -> u64 {
        let own = self.blocks() as f64;
        self.sampled
            .map_or(own, |sampled| own / sampled.rate)
            .round() as u64
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

    /// The block of each reference, as one vector in memory: for small traces.
    pub fn block_stream(&self) -> Result<Vec<u32>> {
        let mut stream = Vec::with_capacity(self.references());
        self.for_each_chunk(|chunk| stream.extend_from_slice(chunk.blocks()))?;
        Ok(stream)
    }

    /// Hands the chunks to `each` in order.
    pub(crate) fn for_each_chunk(&self, mut each: impl FnMut(&Chunk<'_>)) -> Result<()> {
        for number in 0..self.store.chunks() {
            each(&self.store.chunk(number)?);
        }
        Ok(())
    }

    /// Keeps only the marked blocks, renumbered in the same order, and the references to them.
    pub(crate) fn keep(&mut self, marked: &[bool]) -> Result<()> {
        let mut numbers = vec![0; marked.len()];
        let mut keys = Vec::new();
        for (block, _) in marked.iter().enumerate().filter(|(_, marked)| **marked) {
            numbers[block] = keys.len() as u32;
            keys.push(self.keys[block]);
        }
        let mut store = Store::new(self.options.memory_bytes);
        if let Some(columns) = &mut self.columns {
            let mut kept = Vec::with_capacity(self.store.references());
            for number in 0..self.store.chunks() {
                let chunk = self.store.chunk(number)?;
                kept.extend(chunk.blocks().iter().map(|&block| marked[block as usize]));
            }
            columns.retain(&kept)?;
        }
        let mut marks = self.marks.iter_mut().peekable();
        let mut done = 0;
        for number in 0..self.store.chunks() {
            let chunk = self.store.chunk(number)?;
            for (run, range) in chunk.runs() {
                for &block in &chunk.blocks()[range] {
                    while let Some(mark) = marks.next_if(|mark| mark.reference == done) {
                        mark.reference = store.references() as u64;
                    }
                    if marked[block as usize] {
                        store.push(numbers[block as usize], run)?;
                    }
                    done += 1;
                }
            }
        }
        marks.for_each(|mark| mark.reference = store.references() as u64);
        (self.store, self.keys) = (store, keys);
        Ok(())
    }

    /// Computes the next uses in one pass from the end. A reuse more than 2^32 - 2 references ahead
    /// counts as none: no cache is so large that it matters.
    fn future(&self) -> Result<&SpillList> {
        if let Some(future) = self.future.get() {
            return Ok(future);
        }
        let mut upcoming = vec![NEVER; self.blocks()];
        let mut future = SpillList::new(self.store.memory_left_bytes());
        for number in (0..self.store.chunks()).rev() {
            let chunk = self.store.chunk(number)?;
            let first = (number * CHUNK_REFERENCES) as u64;
            let mut ahead = vec![NO_NEXT_USE; chunk.blocks().len()];
            let deletes = self.deletes_in(&chunk);
            for (at, &block) in chunk.blocks().iter().enumerate().rev() {
                let tick = first + at as u64;
                let is_delete = deletes.get(at) == Some(&true);
                // What is deleted is not used again before it comes anew.
                let own = if is_delete { NEVER } else { tick };
                let next = std::mem::replace(&mut upcoming[block as usize], own);
                ahead[at] = u32::try_from(next.wrapping_sub(tick)).unwrap_or(NO_NEXT_USE);
            }
            future.push(ahead)?;
        }
        Ok(self.future.get_or_init(|| future))
    }

    /// Which references of a chunk are deletes; empty where the trace has none.
    fn deletes_in(&self, chunk: &Chunk<'_>) -> Vec<bool> {
        if !self.store.has_deletes() {
            return Vec::new();
        }
        let runs = chunk.runs();
        runs.flat_map(|(run, range)| std::iter::repeat_n(run.op == Op::Delete, range.len()))
            .collect()
    }

    /// Replaces the contents of `out` by up to `count` accesses from tick `start` on, fewer at the
    /// end of the trace. Multiples of 8192 are fastest. The cost depends on `needs`: `next` is
    /// [`NEVER`] unless the future is needed, `object` and `index` are 0 unless objects are, and
    /// `bytes` and `cost` are 1 unless sizes are.
    ///
    /// Fails if references cannot be read from a temporary file, or next uses cannot be written to
    /// one.
    pub fn fill(
        &self,
        start: usize,
        count: usize,
        needs: Needs,
        out: &mut Vec<Access>,
    ) -> Result<()> {
        let start = start.min(self.references());
        let end = start.saturating_add(count).min(self.references());
        let future = if needs.future {
            Some(self.future()?)
        } else {
            None
        };
        // Existing elements are overwritten. Where threads take turns, runs are one or two accesses
        // long, and appending each took 167 instructions per access; this takes 47 (callgrind,
        // 2026-11).
        out.resize(end - start, Access::bare(0, Block(0)));
        let mut tick = start;
        while tick < end {
            let number = tick / CHUNK_REFERENCES;
            let first = number * CHUNK_REFERENCES;
            let chunk = self.store.chunk(number)?;
            let part = tick - first..(end - first).min(CHUNK_REFERENCES);
            let out = &mut out[tick - start..][..part.len()];
            for (run, range) in chunk.runs_in(part.clone()) {
                let process = self.process_of(Thread(run.thread));
                let blocks = &chunk.blocks()[range.clone()];
                let accesses = &mut out[range.start - part.start..][..blocks.len()];
                let ticks = (first + range.start) as u64..;
                for ((access, &block), tick) in accesses.iter_mut().zip(blocks).zip(ticks) {
                    *access = Access {
                        tick,
                        next: NEVER,
                        block: Block(block),
                        object: Object(0),
                        index: 0,
                        site: Site(run.site),
                        thread: Thread(run.thread),
                        process,
                        op: run.op,
                        node: Node(run.node),
                        count: run.count.into(),
                        cost: 1.0,
                        bytes: 1,
                    };
                }
            }
            if needs.objects {
                for access in &mut *out {
                    let key = self.keys[access.block.index()];
                    access.object = Object((key >> 32) as u32);
                    access.index = key as u32;
                }
            }
            if needs.sizes
                && let Some(columns) = &self.columns
            {
                columns.fill(number, part.start, out)?;
            }
            if let Some(future) = future {
                let ahead = future.get(future.len() - 1 - number)?;
                for (access, &ahead) in out.iter_mut().zip(&ahead[part.clone()]) {
                    if ahead != NO_NEXT_USE {
                        access.next = access.tick + u64::from(ahead);
                    }
                }
            }
            tick = first + part.end;
        }
        Ok(())
    }

    /// Calls `each` for the whole trace in order, in batches of `count` accesses; the last may be
    /// shorter. All batches use one buffer. Fails like [`Trace::fill`].
    ///
    /// # Panics
    ///
    /// Panics if `count` is 0.
    pub fn for_each_batch(
        &self,
        count: usize,
        needs: Needs,
        mut each: impl FnMut(&[Access]),
    ) -> Result<()> {
        assert!(count > 0, "a batch holds at least one access");
        let mut batch = Vec::new();
        for start in (0..self.references()).step_by(count) {
            self.fill(start, count, needs, &mut batch)?;
            each(&batch);
        }
        Ok(())
    }
}
