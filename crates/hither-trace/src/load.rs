//! From requests to block references.
//!
//! A request for bytes becomes the blocks that it covers, in ascending order. One refinement: where a request begins
//! in the very block in which the same thread's last request on the same object ended, with the same op, that block
//! is not referenced again. A program that reads a file 100 bytes at a time does not use each block forty times;
//! Linux's page cache sees it so too (`filemap_read` compares with `prev_pos` before it marks a page accessed), and a
//! policy that counts references would otherwise mistake small buffers for popularity. `keep_repeats` turns it off.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use hither_core::Op;
use rustc_hash::FxHashMap;

use crate::counts::{Counts, Tally};
use crate::error::{Error, Result};
use crate::format;
use crate::intern::Interner;
use crate::schema::{AccessRow, Meta, ObjectRow, RowOp, SiteRow};
use crate::trace::{Run, Trace};

/// References are numbered with 32 bits, and the last number means "never".
const REFERENCES_MAX: usize = u32::MAX as usize - 1;

/// More than one call can move (Linux stops at `INT_MAX` less a page): a longer request is a corrupt row.
const REQUEST_BYTES_MAX: u64 = i32::MAX as u64;

/// How requests become references.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct LoadOptions {
    /// The size of a block.
    pub block_bytes: u32,
    /// Whether a request that begins in the block where the last one ended counts that block again.
    pub keep_repeats: bool,
    /// Whether requests that the kernel served by itself (sendfile and the like) are references.
    pub include_in_kernel: bool,
    /// Whether mapping a range counts as reading it once. What is touched later is not seen either way.
    pub include_maps: bool,
}

impl Default for LoadOptions {
    fn default() -> Self {
        LoadOptions {
            block_bytes: 4096,
            keep_repeats: false,
            include_in_kernel: true,
            include_maps: false,
        }
    }
}

impl Trace {
    /// Loads a trace in the format of that name, or in the one that its content tells.
    pub fn load(
        path: impl AsRef<Path>,
        format: Option<&str>,
        options: &LoadOptions,
    ) -> Result<Trace> {
        let path = path.as_ref();
        let format = match format {
            Some(name) => format::find(name)?,
            None => format::recognise(path)?,
        };
        let mut builder = Builder::new(path, options)?;
        let sha256 = (format.read)(path, &mut builder)?;
        let mut trace = builder.finish();
        trace.format = format.name;
        trace.sha256 = sha256;
        Ok(trace)
    }
}

/// Where a thread's last request on an object ended.
#[derive(Clone, Copy, Debug)]
struct Last {
    end: u64,
    op: RowOp,
}

/// Takes in requests or bare blocks and makes a [`Trace`] of them. Readers of formats use it, and so does whoever
/// makes up a trace.
#[derive(Debug)]
pub struct Builder {
    trace: Trace,
    file: PathBuf,
    interner: Interner,
    last: FxHashMap<u64, Last>,
    last_block: Option<u64>,
    rows: u64,
}

impl Builder {
    /// Starts a trace without objects, with the unknown call site and one thread. `path` is for errors to name.
    pub fn new(path: impl Into<PathBuf>, options: &LoadOptions) -> Result<Builder> {
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
            format: "none",
            sha256: String::new(),
            options: *options,
            stream: Vec::new(),
            runs: Vec::new(),
            keys: Vec::new(),
            processes: vec![0],
            objects: Vec::new(),
            sites: vec![SiteRow::unknown()],
            meta: Meta::default(),
            counts: Counts::default(),
            object_tallies: Vec::new(),
            site_tallies: vec![Tally::default()],
            next_use: OnceLock::new(),
        };
        Ok(Builder {
            trace,
            file,
            interner: Interner::new(),
            last: FxHashMap::default(),
            last_block: None,
            rows: 0,
        })
    }

    /// Sets the file that errors about requests name, where it is not the path of the trace.
    pub(crate) fn at(&mut self, file: &Path) {
        self.file = file.to_owned();
    }

    /// Sets the tables that requests point into; before the first request.
    pub fn describe(&mut self, objects: Vec<ObjectRow>, sites: Vec<SiteRow>, meta: Meta) {
        self.trace.object_tallies = vec![Tally::default(); objects.len()];
        self.trace.site_tallies = vec![Tally::default(); sites.len()];
        self.trace.processes = meta.threads.iter().map(|thread| thread.process).collect();
        self.trace.objects = objects;
        self.trace.sites = sites;
        self.trace.meta = meta;
    }

    /// Adds a reference to a block that is known by a number alone, by the one thread and the unknown site.
    pub fn block(&mut self, id: u64) -> Result<()> {
        let tally = Tally {
            requests: 1,
            sequential: u64::from(
                self.last_block
                    .is_some_and(|last| last.checked_add(1) == Some(id)),
            ),
            read_bytes: u64::from(self.trace.options.block_bytes),
            ..Tally::default()
        };
        self.last_block = Some(id);
        for sum in [
            &mut self.trace.counts.total,
            &mut self.trace.site_tallies[0],
        ] {
            sum.requests += tally.requests;
            sum.sequential += tally.sequential;
            sum.read_bytes += tally.read_bytes;
        }
        self.begin_run(0, 0, Op::Read, 1)?;
        self.trace.stream.push(self.interner.number(id));
        Ok(())
    }

    /// Counts a line that separates and does not refer.
    pub fn separator(&mut self) {
        self.trace.counts.skipped.separators += 1;
    }

    /// Adds a request: its blocks become references, unless the options leave it out.
    pub fn request(&mut self, row: &AccessRow) -> Result<()> {
        let end = self.checked_end(row)?;
        if self.rows == 0 {
            self.trace.counts.first_ns = row.time_ns;
        }
        self.trace.counts.last_ns = row.time_ns;
        self.rows += 1;
        let sequential = match row.op {
            RowOp::Read | RowOp::Write => return self.transfer(row, end),
            RowOp::Map => {
                self.trace.counts.maps += u64::from(row.count);
                if self.trace.options.include_maps && row.length > 0 {
                    self.reference(row, end, false)?;
                } else {
                    self.trace.counts.skipped.maps += u64::from(row.count);
                }
                false
            }
            RowOp::Unmap => {
                self.trace.counts.unmaps += u64::from(row.count);
                false
            }
            RowOp::Truncate => {
                self.trace.counts.truncates += u64::from(row.count);
                false
            }
        };
        self.tally(row, sequential);
        Ok(())
    }

    /// The trace.
    pub fn finish(self) -> Trace {
        let mut trace = self.trace;
        trace.keys = self.interner.into_keys();
        // Without objects a key is the block's number in its format. Where these are positions they fit the index,
        // and neighbours stay neighbours; where they are hashes, position means nothing and order has to do.
        if trace.objects.is_empty() && trace.keys.iter().any(|key| *key > u64::from(u32::MAX)) {
            trace.keys = (0..trace.keys.len() as u64).collect();
        }
        trace.stream.shrink_to_fit();
        trace.runs.shrink_to_fit();
        trace
    }

    /// A read or a write.
    fn transfer(&mut self, row: &AccessRow, end: u64) -> Result<()> {
        if row.length == 0 {
            self.trace.counts.skipped.empty += u64::from(row.count);
            self.tally(row, false);
            return Ok(());
        }
        let key = u64::from(row.thread) << 32 | u64::from(row.object);
        let last = self.last.insert(key, Last { end, op: row.op });
        self.tally(row, last.is_some_and(|last| last.end == row.offset));
        if row.in_kernel && !self.trace.options.include_in_kernel {
            self.trace.counts.skipped.in_kernel += u64::from(row.count);
            return Ok(());
        }
        let first = row.offset / u64::from(self.trace.options.block_bytes);
        let merge = !self.trace.options.keep_repeats
            && last.is_some_and(|last| {
                last.op == row.op && last.end <= row.offset && self.block_before(last.end) == first
            });
        self.reference(row, end, merge)
    }

    /// References the blocks of a request, `count` times over; the first block of the first time is merged with the
    /// reference before it if `merge` says so.
    fn reference(&mut self, row: &AccessRow, end: u64, merge: bool) -> Result<()> {
        let first = row.offset / u64::from(self.trace.options.block_bytes);
        let last = self.block_before(end);
        let (skip, times) = (u64::from(merge), u64::from(row.count));
        self.trace.counts.skipped.merged += skip;
        let references = (last - first + 1).saturating_mul(times) - skip;
        if references == 0 {
            return Ok(());
        }
        let op = if row.op == RowOp::Write {
            Op::Write
        } else {
            Op::Read
        };
        self.begin_run(row.site, row.thread, op, references)?;
        let object = u64::from(row.object) << 32;
        for time in 0..times {
            let from = if time == 0 { first + skip } else { first };
            for index in from..=last {
                self.trace.stream.push(self.interner.number(object | index));
            }
        }
        Ok(())
    }

    /// Makes room for references and continues or begins the run that they belong to.
    fn begin_run(&mut self, site: u32, thread: u32, op: Op, references: u64) -> Result<()> {
        let trace = &mut self.trace;
        let too_many = |problem: &str| Error::TooMany {
            path: self.file.clone(),
            problem: problem.to_owned(),
        };
        if references > (REFERENCES_MAX - trace.stream.len()) as u64 {
            return Err(too_many("2^32 - 2 at most"));
        }
        trace
            .stream
            .try_reserve(references as usize)
            .map_err(|_| too_many("out of memory"))?;
        let run = Run::new(trace.stream.len() as u32, site, thread, op);
        if !trace.runs.last().is_some_and(|last| last.continues(&run)) {
            trace.runs.push(run);
        }
        Ok(())
    }

    fn tally(&mut self, row: &AccessRow, sequential: bool) {
        self.trace.counts.total.add(row, sequential);
        self.trace.object_tallies[row.object as usize].add(row, sequential);
        self.trace.site_tallies[row.site as usize].add(row, sequential);
    }

    /// The block of the last byte before `end`.
    fn block_before(&self, end: u64) -> u64 {
        (end - 1) / u64::from(self.trace.options.block_bytes)
    }

    /// Checks a row against the tables and the limits, and says where its range ends.
    fn checked_end(&self, row: &AccessRow) -> Result<u64> {
        let trace = &self.trace;
        let end = row.offset.checked_add(row.length);
        let transfer = matches!(row.op, RowOp::Read | RowOp::Write);
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
        } else if transfer && row.length > REQUEST_BYTES_MAX {
            format!(
                "a request of {} bytes, more than a call can move",
                row.length
            )
        } else {
            let referenced = transfer || (row.op == RowOp::Map && trace.options.include_maps);
            match end {
                Some(end)
                    if !referenced
                        || row.length == 0
                        || self.block_before(end) <= u64::from(u32::MAX) =>
                {
                    return Ok(end);
                }
                None if !referenced => return Ok(u64::MAX),
                _ => format!(
                    "bytes {} + {} lie beyond 2^32 blocks",
                    row.offset, row.length
                ),
            }
        };
        Err(Error::Row {
            path: self.file.clone(),
            row: self.rows,
            problem,
        })
    }
}
