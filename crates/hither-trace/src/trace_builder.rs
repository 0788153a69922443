//! From rows of a trace to references to blocks.
//!
//! What blocks a request refers to is the rule of [`references`]; `keep_repeats` has each request
//! refer to all that it touches.
//!
//! Accesses to memory are not requests. A row is a number of accesses to a page by one thread. It
//! becomes one reference to each block that it touches, with the row's count, and is never merged
//! with the row before.
//!
//! [`references`]: hither_core::references

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use hither_core::placement::Mark;
use hither_core::references::{BlockSize, LastRequest, LastRequests, Request};
use hither_core::{Op, Process};

use crate::clock::ReferenceTimes;
use crate::counts::{RequestCounts, TraceCounts};
use crate::error::{Error, Result};
use crate::intern::Interner;
use crate::load_options::LoadOptions;
use crate::object_columns::{ObjectColumns, ObjectRequest};
use crate::row_range::checked_range;
use crate::sample::{Sample, Sampler};
use crate::schema::{AccessRow, Meta, ObjectRow, ProcessRow, RowOp, SiteRow, ThreadRow};
use crate::sink::Sink;
use crate::store::{Run, Store};
use crate::trace::Trace;

/// The largest number of references of a row. A larger one is a corrupt row, which would fill the
/// disk.
const ROW_REFERENCES_MAX: u64 = 1 << 28;

/// Upper limit of node numbers, so that the number of nodes also has 16 bits.
const NODES_MAX: u32 = u16::MAX as u32;

/// References whose blocks are numbered together. The look-ups are mostly cache misses, which
/// overlap in a tight loop, and do not if the work for a row of a table lies between them.
const BATCH_REFERENCES: usize = 1024;

/// The blocks of a row that are referenced. The number is how many are not.
#[derive(Clone, Copy, Debug)]
enum Blocks {
    All = 0,
    /// The first block is merged with the reference before it, the first time.
    AllButFirst = 1,
}

/// Builds a [`Trace`] from requests or from bare blocks. Format readers and generators use it.
#[derive(Debug)]
pub struct TraceBuilder {
    trace: Trace,
    file: PathBuf,
    interner: Interner,
    sampler: Option<Sampler>,
    block_size: BlockSize,
    /// References whose blocks are not yet numbered: their keys, and where each run begins.
    keys: Vec<u64>,
    runs: Vec<(usize, Run)>,
    /// In a trace of objects, what each of these references says of its object.
    objects: Vec<ObjectRequest>,
    /// How large each object is when it is first referenced.
    first_bytes: Vec<u64>,
    /// The numbers of the blocks of a run.
    numbers: Vec<u32>,
    last: LastRequests<Op>,
    /// See [`Trace::blocks_left`].
    keeps_lengths: bool,
    /// References to bare blocks, how many of them are writes and how many sequential, and the
    /// block after the last one.
    bare: u64,
    bare_written: u64,
    bare_sequential: u64,
    bare_next: Option<u64>,
    rows: u64,
}

impl TraceBuilder {
    /// Starts a trace without objects, with the unknown call site and one thread. `path` is for
    /// errors to name.
    pub fn new(path: impl Into<PathBuf>, options: &LoadOptions) -> Result<TraceBuilder> {
        let path = path.into();
        if options.block_bytes == 0 {
            return Err(Error::Inconsistent {
                path,
                problem: "blocks of 0 bytes".to_owned(),
            });
        }
        let file = path.clone();
        let trace = Trace {
            path,
            format: "none".to_owned(),
            sha256: String::new(),
            options: *options,
            rows: None,
            store: Store::new(options.memory_bytes),
            blocks_left: Vec::new(),
            sampled: None,
            says_sizes: false,
            columns: options
                .keep_sizes
                .then(|| ObjectColumns::new(options.memory_bytes)),
            distinct_bytes: 0,
            bytes_of_all: 0,
            deletes_of_all: 0,
            keys: Vec::new(),
            processes: vec![0],
            objects: Vec::new(),
            sites: vec![SiteRow::unknown()],
            meta: Meta::default(),
            marks: Vec::new(),
            nodes: 0,
            counts: TraceCounts::default(),
            times: ReferenceTimes::default(),
            object_counts: Vec::new(),
            site_counts: vec![RequestCounts::default()],
            future: OnceLock::new(),
        };
        Ok(TraceBuilder {
            trace,
            file,
            interner: Interner::new(),
            sampler: Sampler::new(options.sample),
            block_size: BlockSize::new(options.block_bytes),
            keys: Vec::with_capacity(BATCH_REFERENCES),
            runs: Vec::new(),
            objects: Vec::new(),
            first_bytes: Vec::new(),
            numbers: Vec::with_capacity(BATCH_REFERENCES),
            last: LastRequests::default(),
            keeps_lengths: options.keep_lengths && options.sample == Sample::All,
            bare: 0,
            bare_written: 0,
            bare_sequential: 0,
            bare_next: None,
            rows: 0,
        })
    }

    /// Sets the table that the requests are read from. Errors about them name it.
    pub(crate) fn rows_of(&mut self, table: &Path) {
        self.file = table.to_owned();
        self.trace.rows = Some(table.to_owned());
    }

    /// Sets the tables that requests point into; before the first request.
    pub fn describe(&mut self, objects: Vec<ObjectRow>, sites: Vec<SiteRow>, meta: Meta) {
        self.trace.object_counts = vec![RequestCounts::default(); objects.len()];
        self.trace.site_counts = vec![RequestCounts::default(); sites.len()];
        self.trace.processes = meta.threads.iter().map(|thread| thread.process).collect();
        self.trace.objects = objects;
        self.trace.sites = sites;
        self.trace.meta = meta;
    }

    /// Adds a read of a block that has only a number, by the only thread and the unknown site.
    #[inline]
    pub fn block(&mut self, id: u64) -> Result<()> {
        self.key(id, Op::Read)
    }

    /// Adds a reference to a block that has only a number, by the only thread and the unknown site.
    #[inline]
    pub fn key(&mut self, id: u64, op: Op) -> Result<()> {
        // One that has no size makes all others useless.
        self.trace.columns = None;
        self.number(id, op)
    }

    /// Adds a reference to an object that has a number and a size, in the way of
    /// [`TraceBuilder::key`].
    #[inline]
    pub fn object(&mut self, request: &ObjectRequest) -> Result<()> {
        self.trace.says_sizes = true;
        if self.trace.columns.is_some() {
            self.objects.push(*request);
            if request.op == Op::Delete {
                self.trace.deletes_of_all += 1;
            } else {
                let bytes = &mut self.trace.bytes_of_all;
                *bytes = bytes.saturating_add(request.bytes);
            }
        }
        self.number(request.id, request.op)
    }

    #[inline]
    fn number(&mut self, id: u64, op: Op) -> Result<()> {
        let op = match op {
            Op::Delete if self.trace.columns.is_none() => Op::Write,
            op => op,
        };
        self.bare += 1;
        self.bare_written += u64::from(op == Op::Write);
        self.bare_sequential += u64::from(self.bare_next == Some(id));
        self.bare_next = id.checked_add(1);
        if self.keeps_lengths {
            self.trace.blocks_left.push(0);
        }
        self.push(id, Run::bare(op))
    }

    /// The size of a block, for formats of byte addresses.
    pub fn block_bytes(&self) -> u32 {
        self.trace.options.block_bytes
    }

    /// Adds an object and returns its number.
    pub fn add_object(&mut self, row: ObjectRow) -> u32 {
        self.trace.objects.push(row);
        self.trace.object_counts.push(RequestCounts::default());
        self.trace.objects.len() as u32 - 1
    }

    /// Adds a call site, and returns its number.
    pub fn add_site(&mut self, row: SiteRow) -> u32 {
        self.trace.sites.push(row);
        self.trace.site_counts.push(RequestCounts::default());
        self.trace.sites.len() as u32 - 1
    }

    /// Adds a process and returns its number, which is also set in its row.
    pub fn add_process(&mut self, row: ProcessRow) -> u32 {
        self.trace.meta.add_process(row)
    }

    /// Adds a thread and returns its number, which is also set in its row.
    pub fn add_thread(&mut self, row: ThreadRow) -> u32 {
        if self.trace.meta.threads.is_empty() {
            // Not the one of a trace without threads.
            self.trace.processes.clear();
        }
        self.trace.processes.push(row.process);
        self.trace.meta.add_thread(row)
    }

    /// The trace's metadata.
    pub fn meta(&mut self) -> &mut Meta {
        &mut self.trace.meta
    }

    /// Counts a line that only separates records.
    pub fn separator(&mut self) {
        self.trace.counts.skipped.separators += 1;
    }

    /// Adds a request, accesses to memory, or a mark. The blocks of requests and accesses become
    /// references, unless the options exclude them.
    pub fn request(&mut self, row: &AccessRow) -> Result<()> {
        let end = self.checked_end(row)?;
        if self.rows == 0 {
            self.trace.counts.first_ns = row.time_ns;
        }
        self.trace.counts.last_ns = row.time_ns;
        // In a sample this may be too large. Times are then of no use.
        let before = self.trace.store.references() + self.keys.len();
        self.trace.times.push(before as u64, row.time_ns);
        self.rows += 1;
        let (sequential, referenced) = match row.op {
            RowOp::Read | RowOp::Write => self.transfer(row),
            RowOp::Map => {
                self.trace.counts.maps += u64::from(row.count);
                let referenced = self.trace.options.include_maps && row.length > 0;
                if !referenced {
                    self.trace.counts.skipped.maps += u64::from(row.count);
                }
                (false, referenced.then_some(Blocks::All))
            }
            RowOp::Unmap => {
                self.trace.counts.unmaps += u64::from(row.count);
                (false, None)
            }
            RowOp::Truncate => {
                self.trace.counts.truncates += u64::from(row.count);
                (false, None)
            }
            RowOp::Load | RowOp::Store | RowOp::Fault => {
                if row.length == 0 {
                    self.trace.counts.skipped.empty += u64::from(row.count);
                }
                (false, (row.length > 0).then_some(Blocks::All))
            }
            RowOp::Mark => {
                let kind = row.marked().expect("checked above");
                self.number_batch()?;
                let reference = self.trace.store.references() as u64;
                let process = Process(row.process);
                self.trace.marks.push(Mark {
                    reference,
                    kind,
                    process,
                });
                return Ok(());
            }
        };
        self.tally(row, sequential);
        match referenced {
            Some(blocks) => self.reference(row, end, blocks),
            None => Ok(()),
        }
    }

    /// Completes the trace.
    pub fn finish(mut self) -> Result<Trace> {
        self.number_batch()?;
        let mut trace = self.trace;
        let bytes = |blocks: u64| blocks.saturating_mul(u64::from(trace.options.block_bytes));
        let tally = RequestCounts {
            requests: self.bare,
            sequential: self.bare_sequential,
            read_bytes: bytes(self.bare - self.bare_written),
            written_bytes: bytes(self.bare_written),
            ..RequestCounts::default()
        };
        trace.site_counts[0].merge(&tally);
        for of_site in &trace.site_counts {
            trace.counts.total.merge(of_site);
        }
        trace.keys = self.interner.into_keys();
        let references = trace.references();
        let of_all = |columns: &ObjectColumns| columns.len() == references && references > 0;
        trace.columns = trace.columns.take().filter(of_all);
        if let Some(sampler) = self.sampler {
            let sampled = sampler.sampled();
            trace.sampled = Some(sampled);
            if let Some(inside) = sampler.inside(trace.keys.len()) {
                trace.keep(&inside)?;
                let mut is_inside = inside.iter();
                self.first_bytes.retain(|_| is_inside.next() == Some(&true));
            }
            // With no reference there is no miss either, and scaling up would give a hit ratio of
            // 100 %.
            if trace.keys.is_empty() && sampled.references > 0 {
                return Err(Error::EmptySample {
                    path: trace.path,
                    references: sampled.references,
                });
            }
        }
        // Without objects, a key is the block's number in its format. Positions fit the index, so
        // neighbours stay neighbours. Hashes do not fit and have no neighbours, so their order of
        // appearance is used.
        if trace.objects.is_empty() && trace.keys.iter().any(|key| *key > u64::from(u32::MAX)) {
            trace.keys = (0..trace.keys.len() as u64).collect();
        }
        // As it was loaded, not as it was to be.
        trace.options.keep_sizes = trace.columns.is_some();
        if trace.columns.is_none() {
            (trace.bytes_of_all, trace.deletes_of_all) = (0, 0);
        } else {
            let bytes = self.first_bytes.iter();
            trace.distinct_bytes = bytes.fold(0, |sum, &bytes| sum.saturating_add(bytes));
        }
        Ok(trace)
    }

    /// Adds a reference.
    #[inline]
    fn push(&mut self, key: u64, run: Run) -> Result<()> {
        if self.runs.last().is_none_or(|(_, last)| *last != run) {
            self.runs.push((self.keys.len(), run));
        }
        self.keys.push(key);
        match self.keys.len() {
            BATCH_REFERENCES => self.number_batch(),
            _ => Ok(()),
        }
    }

    /// Numbers the blocks of the references so far, and stores those that are in the sample.
    #[inline(never)]
    fn number_batch(&mut self) -> Result<()> {
        let mut runs = self.runs.drain(..).peekable();
        while let Some((start, run)) = runs.next() {
            let end = runs.peek().map_or(self.keys.len(), |(start, _)| *start);
            self.numbers.clear();
            for (at, &key) in (start..).zip(&self.keys[start..end]) {
                if let Some(sampler) = &mut self.sampler
                    && !sampler.admits(key)
                {
                    continue;
                }
                let known = self.interner.len();
                let Some(number) = self.interner.number(key) else {
                    return Err(Error::TooMany {
                        path: self.file.clone(),
                        problem: "distinct blocks, 2^32 - 1 at most".to_owned(),
                    });
                };
                if let Some(sampler) = &mut self.sampler
                    && number as usize == known
                {
                    sampler.added(key, number);
                }
                if let (Some(columns), Some(request)) =
                    (&mut self.trace.columns, self.objects.get(at))
                {
                    columns.push(request)?;
                    if number as usize == known {
                        self.first_bytes.push(request.bytes);
                    }
                }
                self.numbers.push(number);
            }
            self.trace.store.append(&self.numbers, run)?;
        }
        self.keys.clear();
        self.objects.clear();
        Ok(())
    }

    /// A read or a write. Returns whether it is sequential, and what becomes references.
    #[inline]
    fn transfer(&mut self, row: &AccessRow) -> (bool, Option<Blocks>) {
        if row.length == 0 {
            self.trace.counts.skipped.empty += u64::from(row.count);
            return (false, None);
        }
        let request = Request {
            op: if row.op == RowOp::Write {
                Op::Write
            } else {
                Op::Read
            },
            offset: row.offset,
            length: row.length,
        };
        let after = LastRequest::of(request);
        let last = self.last.replace(row.object, row.thread, after);
        let sequential = last.is_some_and(|last| last.end() == row.offset);
        if row.in_kernel && !self.trace.options.include_in_kernel {
            self.trace.counts.skipped.in_kernel += u64::from(row.count);
            return (sequential, None);
        }
        let merge = !self.trace.options.keep_repeats
            && last.is_some_and(|last| last.goes_on(request, self.block_size));
        let blocks = if merge {
            Blocks::AllButFirst
        } else {
            Blocks::All
        };
        (sequential, Some(blocks))
    }

    /// References blocks of a row, `count` times.
    #[inline]
    fn reference(&mut self, row: &AccessRow, end: u64, blocks: Blocks) -> Result<()> {
        let first = self.block_size.block_of(row.offset);
        let last = self.block_size.block_of(end - 1);
        // The rest of the count, and the most that a reference takes of it.
        let mut left = row.count;
        let (each, times) = if row.op.is_memory() {
            (u32::from(u16::MAX), left.div_ceil(u16::MAX.into()))
        } else {
            (1, left)
        };
        let (skip, times) = (blocks as u64, u64::from(times));
        self.trace.counts.skipped.merged += skip;
        let references = (last - first + 1).saturating_mul(times) - skip;
        if references > ROW_REFERENCES_MAX {
            let problem = format!("stands for {references} references, more than 2^28");
            return Err(self.row_error(self.rows - 1, problem));
        }
        let mut run = Run {
            site: row.site,
            thread: row.thread,
            op: match row.op {
                RowOp::Write | RowOp::Store => Op::Write,
                RowOp::Map => Op::Map,
                _ => Op::Read,
            },
            node: row.node as u16,
            count: left.min(each) as u16,
        };
        self.trace.nodes = self.trace.nodes.max(run.node + 1);
        let object = u64::from(row.object) << 32;
        for time in 0..times {
            let from = if time == 0 { first + skip } else { first };
            run.count = left.min(each) as u16;
            left -= u32::from(run.count);
            for index in from..=last {
                if self.keeps_lengths {
                    let left = (last - index).min(u8::MAX.into());
                    self.trace.blocks_left.push(left as u8);
                }
                self.push(object | index, run)?;
            }
        }
        Ok(())
    }

    #[inline]
    fn tally(&mut self, row: &AccessRow, sequential: bool) {
        self.trace.object_counts[row.object as usize].add(row, sequential);
        self.trace.site_counts[row.site as usize].add(row, sequential);
    }

    /// Checks a row against the tables and the limits. Returns where its range ends.
    #[inline]
    fn checked_end(&self, row: &AccessRow) -> Result<u64> {
        let trace = &self.trace;
        let problem = if row.object as usize >= trace.objects.len() {
            format!("object {} of {}", row.object, trace.objects.len())
        } else if row.site as usize >= trace.sites.len() {
            format!("site {} of {}", row.site, trace.sites.len())
        } else if row.thread as usize >= trace.processes.len() {
            format!("thread {} of {}", row.thread, trace.processes.len())
        } else if trace.processes[row.thread as usize] != row.process {
            let process = trace.processes[row.thread as usize];
            format!(
                "thread {} is of process {process}, not {}",
                row.thread, row.process
            )
        } else if row.count == 0 {
            "a count of 0".to_owned()
        } else if row.node >= NODES_MAX {
            format!("node {}, not below {NODES_MAX}", row.node)
        } else {
            let referenced = row.op == RowOp::Map && trace.options.include_maps;
            match checked_range(row, self.block_size, referenced) {
                Ok(end) => return Ok(end),
                Err(problem) => problem,
            }
        };
        Err(self.row_error(self.rows, problem))
    }

    #[cold]
    fn row_error(&self, row: u64, problem: String) -> Error {
        Error::Row {
            path: self.file.clone(),
            row,
            problem,
        }
    }
}

impl Sink for TraceBuilder {
    fn block_bytes(&self) -> u32 {
        TraceBuilder::block_bytes(self)
    }

    fn key(&mut self, id: u64, op: Op) -> Result<()> {
        TraceBuilder::key(self, id, op)
    }

    fn object(&mut self, request: &ObjectRequest) -> Result<()> {
        TraceBuilder::object(self, request)
    }

    fn request(&mut self, row: &AccessRow) -> Result<()> {
        TraceBuilder::request(self, row)
    }

    fn separator(&mut self) {
        TraceBuilder::separator(self);
    }

    fn left_out(&mut self) {
        self.trace.counts.skipped.left_out += 1;
    }

    fn describe(&mut self, objects: Vec<ObjectRow>, sites: Vec<SiteRow>, meta: Meta) {
        TraceBuilder::describe(self, objects, sites, meta);
    }

    fn add_object(&mut self, row: ObjectRow) -> u32 {
        TraceBuilder::add_object(self, row)
    }

    fn add_site(&mut self, row: SiteRow) -> u32 {
        TraceBuilder::add_site(self, row)
    }

    fn add_process(&mut self, row: ProcessRow) -> u32 {
        TraceBuilder::add_process(self, row)
    }

    fn add_thread(&mut self, row: ThreadRow) -> u32 {
        TraceBuilder::add_thread(self, row)
    }

    fn meta(&mut self) -> &mut Meta {
        TraceBuilder::meta(self)
    }

    fn rows_of(&mut self, table: &Path) {
        TraceBuilder::rows_of(self, table);
    }
}
