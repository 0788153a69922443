//! A trace, loaded: references to dense block numbers, in chunks that lie in memory or in a
//! temporary file.
//!
//! Memory: 8 bytes a block (its object and index), and for the references, up to a budget, 4 bytes
//! each (its block) and 16 bytes for every *run* that shares call site, thread, op, node and count.
//! A request of 128 KiB is one run of 32 references, and a trace of bare block numbers is a run
//! every 8192, so a column that does not vary costs nothing; a trace of single-block requests by
//! ever-changing sites, or of single pages of memory with ever-changing counts, costs 20 bytes a
//! reference at worst. Object and index follow from the block, the process from the thread, and the
//! next use is worked out, at 4 bytes a reference, only for who asks for it.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use hither_core::placement::Mark;
use hither_core::registry::Needs;
use hither_core::{Access, Block, NEVER, Node, Object, Process, Site, Thread};

use crate::counts::{Counts, Tally};
use crate::error::Result;
use crate::load::LoadOptions;
use crate::sample::Sampled;
use crate::schema::{Meta, ObjectRow, SiteRow};
use crate::store::{CHUNK, Chunk, Pieces, Store};

/// A trace. Made by [`Trace::load`], or with a [`Builder`](crate::load::Builder).
#[derive(Debug)]
pub struct Trace {
    pub(crate) path: PathBuf,
    pub(crate) format: &'static str,
    pub(crate) sha256: String,
    pub(crate) options: LoadOptions,
    pub(crate) store: Store,
    pub(crate) sampled: Option<Sampled>,
    /// Object and index of each block, in the upper and the lower half.
    pub(crate) keys: Vec<u64>,
    /// The process of each thread.
    pub(crate) processes: Vec<u32>,
    pub(crate) objects: Vec<ObjectRow>,
    pub(crate) sites: Vec<SiteRow>,
    pub(crate) meta: Meta,
    pub(crate) marks: Vec<Mark>,
    /// One more than the highest node of a reference.
    pub(crate) nodes: u16,
    pub(crate) counts: Counts,
    pub(crate) object_tallies: Vec<Tally>,
    pub(crate) site_tallies: Vec<Tally>,
    /// How far ahead each reference's block is referenced next, [`NO_NEXT_USE`] where it is not;
    /// the last chunk first.
    pub(crate) future: OnceLock<Pieces>,
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

    /// The number of nodes that the trace's machine has: those that `meta.json` lists, and at least
    /// those that references were made on; nodes are numbered below it. 1 where nothing is known.
    pub fn nodes(&self) -> usize {
        self.meta.nodes.len().max(self.nodes.into()).max(1)
    }

    /// Where iterations and parallel constructs end, in order.
    pub fn marks(&self) -> &[Mark] {
        &self.marks
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

    /// Whether references say which file they are of.
    pub fn has_objects(&self) -> bool {
        !self.objects.is_empty()
    }

    /// Whether any reference says which call site made it.
    pub fn has_sites(&self) -> bool {
        self.store.has_sites()
    }

    /// Whether any reference is a write.
    pub fn has_writes(&self) -> bool {
        self.store.has_writes()
    }

    /// What this is a sample of, where not all blocks were looked at.
    pub fn sampled(&self) -> Option<Sampled> {
        self.sampled
    }

    /// The references of the whole trace, also where this is a sample of it.
    pub fn references_of_all(&self) -> u64 {
        let own = self.references() as u64;
        self.sampled.map_or(own, |sampled| sampled.references)
    }

    /// The distinct blocks of the whole trace; where this is a sample of it, an estimate.
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

    /// The block of each reference, all in memory: for small traces.
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

    /// Keeps only the blocks that are marked, with new numbers in the same order, and the
    /// references to them.
    pub(crate) fn keep(&mut self, marked: &[bool]) -> Result<()> {
        let mut numbers = vec![0; marked.len()];
        let mut keys = Vec::new();
        for (block, _) in marked.iter().enumerate().filter(|(_, marked)| **marked) {
            numbers[block] = keys.len() as u32;
            keys.push(self.keys[block]);
        }
        let mut store = Store::new(self.options.memory_bytes);
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

    /// Works out the next uses in one pass from the end. A reuse further than 2^32 - 2 references
    /// ahead counts as none: no cache that could tell them apart has been built.
    fn future(&self) -> Result<&Pieces> {
        if let Some(future) = self.future.get() {
            return Ok(future);
        }
        let mut upcoming = vec![NEVER; self.blocks()];
        let mut future = Pieces::new(self.store.memory_left_bytes());
        for number in (0..self.store.chunks()).rev() {
            let chunk = self.store.chunk(number)?;
            let first = (number * CHUNK) as u64;
            let mut ahead = vec![NO_NEXT_USE; chunk.blocks().len()];
            for (at, &block) in chunk.blocks().iter().enumerate().rev() {
                let tick = first + at as u64;
                let next = std::mem::replace(&mut upcoming[block as usize], tick);
                ahead[at] = u32::try_from(next.wrapping_sub(tick)).unwrap_or(NO_NEXT_USE);
            }
            future.push(ahead)?;
        }
        Ok(self.future.get_or_init(|| future))
    }

    /// Replaces what is in `out` by up to `count` accesses from tick `start` on, fewer at the end
    /// of the trace. Whole multiples of 8192 are fastest. What an access costs to make depends on
    /// what the reader `needs`: `next` is [`NEVER`] unless the future is needed, and `object` and
    /// `index` are 0 unless objects are.
    ///
    /// Fails where the references lie in a temporary file that cannot be read, or the next uses in
    /// one that cannot be written.
    pub fn fill(
        &self,
        start: usize,
        count: usize,
        needs: Needs,
        out: &mut Vec<Access>,
    ) -> Result<()> {
        let start = start.min(self.references());
        let end = start.saturating_add(count).min(self.references());
        let future = match needs.future {
            false => None,
            true => Some(self.future()?),
        };
        // Written over in place. Where threads take turns, a run is one or two accesses long, and
        // appending each took 167 instructions an access where this takes 47 (callgrind, 2026-11).
        out.resize(end - start, Access::bare(0, Block(0)));
        let mut tick = start;
        while tick < end {
            let number = tick / CHUNK;
            let first = number * CHUNK;
            let chunk = self.store.chunk(number)?;
            let part = tick - first..(end - first).min(CHUNK);
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

    /// Hands the whole trace to `each` in order, in batches of `count` accesses (the last may be
    /// shorter) that lie in one buffer, used again and again. Fails as [`Trace::fill`] does.
    ///
    /// # Panics
    /// If `count` is 0.
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
