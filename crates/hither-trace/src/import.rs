//! Converts a trace in any format to a trace folder.
//!
//! Requests are written as they come, with their times, files, threads and call sites, so memory
//! holds only the tables. Keys become references to blocks of one object. Whether keys are
//! positions or hashes is known only after the last one, so a trace of keys is loaded first, as for
//! a simulation.

use std::path::{Path, PathBuf};

use hither_core::Op;
use hither_core::placement::Mark;
use hither_core::references::BlockSize;
use hither_core::registry::Needs;
use serde_json::Value;

use crate::clock::REFERENCE_CLOCK;
use crate::error::{Error, Result};
use crate::format::{self, RecordKind};
use crate::load_options::LoadOptions;
use crate::object_columns::ObjectRequest;
use crate::row_range::checked_range;
use crate::schema::{
    AccessRow, Meta, ObjectKind, ObjectRow, ProcessRow, RowOp, SiteRow, ThreadRow,
};
use crate::sink::Sink;
use crate::source::Input;
use crate::trace::Trace;
use crate::writer::Writer;

/// References decoded at a time.
const BATCH_REFERENCES: usize = 8192;

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// The name of the format that was read, or `columns{...}`.
    pub format: String,
    /// Rows of the new trace: requests, or references to keys.
    pub rows: u64,
}

/// Writes the trace in `input` as a trace folder. `format` is the name of its format; `None`
/// recognises it by content. Of the options, only `block_bytes` and `memory_bytes` matter, and only
/// for keys. `force` is as for [`Writer::create`].
pub fn import(
    mut input: Input<'_>,
    format: Option<&str>,
    options: &LoadOptions,
    folder: impl AsRef<Path>,
    force: bool,
) -> Result<Imported> {
    if options.block_bytes == 0 {
        return Err(Error::Inconsistent {
            path: input.path().to_owned(),
            problem: "blocks of 0 bytes".to_owned(),
        });
    }
    let format = format::choose(format, &mut input)?;
    let writer = Writer::create(folder, force)?;
    let rows = match format.records() {
        RecordKind::Keys => {
            let trace = Trace::read(input, Some(&format.name()), options)?;
            write_references(&trace, writer, |_| ())?
        }
        RecordKind::Requests => {
            let mut importer = Importer::new(input.path(), options.block_bytes, writer);
            format.read_whole(input, &mut importer)?;
            importer.finish()?
        }
    };
    let format = format.name();
    Ok(Imported { format, rows })
}

/// Writes requests to a trace folder as they come.
pub struct Importer {
    file: PathBuf,
    block_bytes: u32,
    writer: Writer,
    /// Objects added one by one. Their sizes and times are taken from the requests.
    objects: Vec<ObjectRow>,
    sites: Vec<SiteRow>,
    meta: Meta,
    described: bool,
    rows: u64,
    last_ns: u64,
    out_of_order: u64,
}

impl Importer {
    /// Of the requests of the file at `path`, to be written by `writer`.
    pub fn new(path: &Path, block_bytes: u32, writer: Writer) -> Importer {
        Importer {
            file: path.to_owned(),
            block_bytes,
            writer,
            objects: Vec::new(),
            sites: vec![SiteRow::unknown()],
            meta: Meta {
                clock: "time of the first request".to_owned(),
                ..Meta::default()
            },
            described: false,
            rows: 0,
            last_ns: 0,
            out_of_order: 0,
        }
    }

    /// Completes the trace folder. Returns how many rows it has.
    pub fn finish(mut self) -> Result<u64> {
        if self.meta.threads.is_empty() {
            self.meta.add_process(ProcessRow::default());
            self.meta.add_thread(ThreadRow::default());
        }
        if self.out_of_order > 0 {
            let count = Value::from(self.out_of_order);
            self.meta.more.insert("out_of_order".to_owned(), count);
        }
        self.writer.finish(&self.objects, &self.sites, &self.meta)?;
        Ok(self.rows)
    }
}

impl Sink for Importer {
    fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    fn key(&mut self, id: u64, _op: Op) -> Result<()> {
        let problem = format!("a bare key, {id}, among requests");
        Err(Error::Inconsistent {
            path: self.file.clone(),
            problem,
        })
    }

    fn object(&mut self, request: &ObjectRequest) -> Result<()> {
        self.key(request.id, request.op)
    }

    fn request(&mut self, row: &AccessRow) -> Result<()> {
        let end =
            checked_range(row, BlockSize::new(self.block_bytes), false).map_err(|problem| {
                Error::Row {
                    path: self.file.clone(),
                    row: self.rows,
                    problem,
                }
            })?;
        if let Some(object) = self.objects.get_mut(row.object as usize)
            && !self.described
            && row.op != RowOp::Mark
        {
            object.size = object.size.max(end);
            object.first_seen_ns = object.first_seen_ns.min(row.time_ns);
            object.last_seen_ns = object.last_seen_ns.max(row.time_ns);
        }
        self.out_of_order += u64::from(row.time_ns < self.last_ns);
        self.last_ns = self.last_ns.max(row.time_ns);
        self.rows += 1;
        self.writer.push(row)
    }

    /// A trace folder has only accesses and marks.
    fn separator(&mut self) {}

    fn left_out(&mut self) {}

    fn describe(&mut self, objects: Vec<ObjectRow>, sites: Vec<SiteRow>, meta: Meta) {
        self.described = !objects.is_empty();
        (self.objects, self.sites, self.meta) = (objects, sites, meta);
    }

    fn add_object(&mut self, row: ObjectRow) -> u32 {
        self.objects.push(row);
        self.objects.len() as u32 - 1
    }

    fn add_site(&mut self, row: SiteRow) -> u32 {
        self.sites.push(row);
        self.sites.len() as u32 - 1
    }

    fn add_process(&mut self, row: ProcessRow) -> u32 {
        self.meta.add_process(row)
    }

    fn add_thread(&mut self, row: ThreadRow) -> u32 {
        self.meta.add_thread(row)
    }

    fn meta(&mut self) -> &mut Meta {
        &mut self.meta
    }

    fn rows_of(&mut self, table: &Path) {
        self.file = table.to_owned();
    }
}

/// Writes the references of a trace and the marks between them. A reference is a read or write of
/// one block, or accesses to one page of memory. Its time in nanoseconds is its number. Returns the
/// number of references.
pub(crate) fn write_references(
    trace: &Trace,
    mut writer: Writer,
    mut progress: impl FnMut(u64),
) -> Result<u64> {
    let block_bytes = u64::from(trace.options().block_bytes);
    let mut objects = trace.objects().to_vec();
    if objects.is_empty() {
        // A trace of bare block numbers has one object, named after its file.
        objects.push(ObjectRow {
            path: trace.path().as_os_str().as_encoded_bytes().to_vec(),
            ..ObjectRow::default()
        });
    }
    for object in &mut objects {
        (object.first_seen_ns, object.last_seen_ns) = (u64::MAX, 0);
    }
    let needs = Needs {
        sites: true,
        objects: true,
        processes: true,
        ..Needs::NOTHING
    };
    let (mut done, mut batch) = (0, Vec::with_capacity(BATCH_REFERENCES));
    let mut marks = trace.marks().iter().peekable();
    loop {
        trace.fill(done, BATCH_REFERENCES, needs, &mut batch)?;
        if batch.is_empty() {
            break;
        }
        for access in &batch {
            while let Some(mark) = marks.next_if(|mark| mark.reference == access.tick) {
                writer.push(&mark_row(trace, mark, access.tick))?;
            }
            // A count above 1 on a file stands for loads through a mapping.
            let kind = objects[access.object.index()].kind;
            let memory = kind == ObjectKind::Memory || access.count > 1;
            let row = AccessRow {
                time_ns: access.tick,
                process: access.process.0,
                thread: access.thread.0,
                node: access.node.0.into(),
                site: access.site.0,
                object: access.object.0,
                op: match access.op {
                    Op::Write if memory => RowOp::Store,
                    Op::Write | Op::Delete => RowOp::Write,
                    _ if memory => RowOp::Load,
                    // A map would be left out when the trace is loaded again.
                    Op::Read | Op::Map => RowOp::Read,
                },
                count: access.count,
                offset: u64::from(access.index) * block_bytes,
                length: block_bytes,
                ..AccessRow::default()
            };
            writer.push(&row)?;
            let object = &mut objects[access.object.index()];
            object.size = object.size.max(row.offset + row.length);
            object.first_seen_ns = object.first_seen_ns.min(row.time_ns);
            object.last_seen_ns = row.time_ns;
        }
        done += batch.len();
        progress(done as u64);
    }
    for mark in marks {
        writer.push(&mark_row(trace, mark, done as u64))?;
    }
    for object in &mut objects {
        object.first_seen_ns = object.first_seen_ns.min(object.last_seen_ns);
    }
    let mut meta = trace.meta().clone();
    meta.clock = REFERENCE_CLOCK.to_owned();
    meta.more
        .insert("block_bytes".to_owned(), block_bytes.into());
    while meta.processes.len() < trace.processes().max(1) {
        meta.add_process(ProcessRow::default());
    }
    for thread in meta.threads.len()..trace.threads() {
        let process = trace.process_of(hither_core::Thread(thread as u32)).0;
        meta.add_thread(ThreadRow {
            process,
            ..ThreadRow::default()
        });
    }
    writer.finish(&objects, trace.sites(), &meta)?;
    Ok(done as u64)
}

/// The row of a mark. The trace does not keep which thread made it, so the process's first one is
/// used.
fn mark_row(trace: &Trace, mark: &Mark, time_ns: u64) -> AccessRow {
    let mut processes = trace.processes.iter();
    let thread = processes.position(|&process| process == mark.process.0);
    AccessRow {
        process: mark.process.0,
        thread: thread.expect("a mark is a thread's") as u32,
        ..AccessRow::mark(mark.kind, time_ns)
    }
}
