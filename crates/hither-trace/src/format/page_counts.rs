//! Counts of memory accesses by page, thread and loop, as a program that counts itself writes them
//! (`lab trace`): text, one record a line.
//!
//! The first line may come again: it begins another program, so that the files of two programs, one
//! after the other, are a trace of both.
//!
//! Most iterations of a program cost the same, so a record says how many times one happened, and
//! the rows of an iteration are kept until it ends.

use super::reader::{Format, RecordKind};
use crate::error::Result;
use crate::schema::{AccessRow, ObjectKind, ObjectRow, ProcessRow, RowOp, SiteRow, ThreadRow};
use crate::sink::Sink;
use crate::source::Input;
use crate::text::{Line, Lines, Parsed, decimal, fields};
use hither_core::placement::EpochKind;
use rustc_hash::FxHashMap;

/// The entry in the registry.
pub(super) const FORMAT: Format = Format {
    name: "page-counts",
    doc: "text, accesses to pages of memory by thread and loop (lab trace)",
    records: RecordKind::Requests,
    matches: Some(|head| head.lines().next().is_some_and(|line| line == FIRST)),
    read,
};

/// The first line of a file, and of each program.
const FIRST: &[u8] = b"page-counts 1";
/// Iterations that one record may stand for.
const TIMES_MAX: u64 = 1000;
/// Rows of an iteration, which are kept until it ends.
const ROWS_MAX: usize = 1 << 22;
/// References that an iteration stands for, all times together. As many as a row of a trace folder
/// may stand for.
const REFERENCES_MAX: u64 = 1 << 28;
/// Accesses that one reference stands for at most.
const COUNT_MAX: u64 = u16::MAX as u64;
/// As the trace folder has it.
const NODES_MAX: u64 = 65_534;

/// An object of the program.
struct Object {
    /// Its number in the trace.
    number: u32,
    bytes: u64,
}

/// A thread of the program.
struct Thread {
    /// Its number in the trace.
    number: u32,
    node: u32,
}

/// What was read so far.
#[derive(Default)]
struct Reader {
    process: u32,
    /// The objects and threads of the program, by its own numbers.
    objects: Vec<Object>,
    threads: Vec<Thread>,
    sites: FxHashMap<Vec<u8>, u32>,
    /// The loop.
    site: u32,
    /// The rows since the last end of an iteration, each with its line for errors.
    rows: Vec<AccessRow>,
    /// The references that these rows stand for.
    references: u64,
    time_ns: u64,
}

fn read(input: &mut Input<'_>, sink: &mut dyn Sink) -> Result<Option<String>> {
    let mut lines = Lines::of(input);
    let mut reader = Reader::default();
    let mut first = true;
    while let Some(line) = lines.next()? {
        if line.bytes.is_empty() {
            sink.separator();
        } else if std::mem::take(&mut first) {
            if line.bytes != FIRST {
                return Err(line.error("not `page-counts 1`"));
            }
            reader.process = sink.add_process(ProcessRow::default());
        } else if line.bytes == FIRST {
            reader.emit(1, sink).map_err(line.place())?;
            reader.begin_program(sink);
        } else {
            reader.line(line, sink)?;
        }
    }
    // The program ended within an iteration.
    reader.emit(1, sink)?;
    Ok(None)
}

impl Reader {
    fn line(&mut self, line: Line<'_>, sink: &mut dyn Sink) -> Result<()> {
        let kind = line.bytes.split(u8::is_ascii_whitespace).next();
        match kind.unwrap_or_default() {
            b"l" => self.row(RowOp::Load, line.bytes).map_err(line.wrong()),
            b"s" => self.row(RowOp::Store, line.bytes).map_err(line.wrong()),
            b"object" => self.object(line.bytes, sink).map_err(line.wrong()),
            b"thread" => self.thread(line.bytes, sink).map_err(line.wrong()),
            b"loop" => self.begin_loop(line.bytes, sink).map_err(line.wrong()),
            b"end" => self.end_loop(line.bytes).map_err(line.wrong()),
            b"iteration" => {
                let times = self.iteration(line.bytes).map_err(line.wrong())?;
                self.emit(times, sink).map_err(line.place())
            }
            _ => Err(line.error("none of l, s, object, thread, loop, end, iteration")),
        }
    }

    fn row(&mut self, op: RowOp, line: &[u8]) -> Parsed<()> {
        let [_, thread, object, offset, count] =
            fields(line, b' ').ok_or("not `l|s THREAD OBJECT OFFSET COUNT`")?;
        let (thread, object) = (decimal(thread)?, decimal(object)?);
        let (offset, count) = (decimal(offset)?, decimal(count)?);
        let index = |number: u64, of: usize| usize::try_from(number).ok().filter(|&at| at < of);
        let at = index(thread, self.threads.len()).ok_or("a thread without a line `thread`")?;
        let Thread {
            number: thread,
            node,
        } = self.threads[at];
        let at = index(object, self.objects.len()).ok_or("an object without a line `object`")?;
        let Object {
            number: object,
            bytes,
        } = self.objects[at];
        if offset >= bytes {
            return Err("an offset at or beyond the object's end");
        }
        let count = u32::try_from(count).ok().filter(|&count| count > 0);
        let count = count.ok_or("a count of 0, or above 2^32 - 1")?;
        self.references += u64::from(count).div_ceil(COUNT_MAX);
        self.keep(AccessRow {
            process: self.process,
            thread,
            object,
            node,
            site: self.site,
            op,
            offset,
            length: 1,
            count,
            ..AccessRow::default()
        })
    }

    fn keep(&mut self, row: AccessRow) -> Parsed<()> {
        if self.objects.is_empty() {
            return Err("before the first line `object`");
        }
        if self.rows.len() == ROWS_MAX {
            return Err("the 4194305th row of an iteration");
        }
        if self.references > REFERENCES_MAX {
            return Err("an iteration of more than 2^28 references");
        }
        self.rows.push(row);
        Ok(())
    }

    fn begin_program(&mut self, sink: &mut dyn Sink) {
        self.process = sink.add_process(ProcessRow::default());
        self.site = 0;
        self.objects.clear();
        self.threads.clear();
    }

    fn object(&mut self, line: &[u8], sink: &mut dyn Sink) -> Parsed<()> {
        let [_, name, bytes] = fields(line, b' ').ok_or("not `object NAME BYTES`")?;
        let bytes = decimal(bytes)?;
        let number = sink.add_object(ObjectRow {
            kind: ObjectKind::Memory,
            path: name.to_vec(),
            device: self.process.into(),
            inode: self.objects.len() as u64,
            size: bytes,
            ..ObjectRow::default()
        });
        self.objects.push(Object { number, bytes });
        Ok(())
    }

    /// A new thread, or another node of a known one.
    fn thread(&mut self, line: &[u8], sink: &mut dyn Sink) -> Parsed<()> {
        let [_, number, node] = fields(line, b' ').ok_or("not `thread NUMBER NODE`")?;
        let (number, node) = (decimal(number)?, decimal(node)?);
        if node > NODES_MAX {
            return Err("a node above 65534");
        }
        let known = self.threads.len() as u64;
        if number > known {
            return Err("threads are numbered from 0 without gaps");
        }
        if number == known {
            let number = sink.add_thread(ThreadRow {
                process: self.process,
                tid: number as u32,
                ..ThreadRow::default()
            });
            self.threads.push(Thread { number, node: 0 });
        }
        self.threads[number as usize].node = node as u32;
        Ok(())
    }

    fn begin_loop(&mut self, line: &[u8], sink: &mut dyn Sink) -> Parsed<()> {
        let [_, name] = fields(line, b' ').ok_or("not `loop NAME`")?;
        self.site = match self.sites.get(name) {
            Some(&site) => site,
            None => {
                let site = sink.add_site(SiteRow {
                    signature: twox_hash::XxHash3_64::oneshot(name).max(1),
                    function: Some(String::from_utf8_lossy(name).into_owned()),
                    ..SiteRow::default()
                });
                self.sites.insert(name.to_vec(), site);
                site
            }
        };
        Ok(())
    }

    fn end_loop(&mut self, line: &[u8]) -> Parsed<()> {
        let [_] = fields(line, b' ').ok_or("not `end`")?;
        let site = std::mem::take(&mut self.site);
        self.mark(site, EpochKind::Construct)
    }

    fn mark(&mut self, site: u32, kind: EpochKind) -> Parsed<()> {
        let first = self
            .threads
            .first()
            .ok_or("an end before a line `thread`")?;
        self.keep(AccessRow {
            process: self.process,
            thread: first.number,
            site,
            ..AccessRow::mark(kind, 0)
        })
    }

    /// The end of an iteration. Returns how many times it happened.
    fn iteration(&mut self, line: &[u8]) -> Parsed<u64> {
        let [_, times] = fields(line, b' ').ok_or("not `iteration TIMES`")?;
        let times = decimal(times)?;
        if times == 0 || times > TIMES_MAX {
            return Err("not 1 to 1000 times");
        }
        if self.references.saturating_mul(times) > REFERENCES_MAX {
            return Err("stands for more than 2^28 references");
        }
        self.mark(0, EpochKind::Iteration)?;
        Ok(times)
    }

    /// Emits the rows so many times and forgets them. The time of a row is the number of accesses
    /// before it.
    fn emit(&mut self, times: u64, sink: &mut dyn Sink) -> Result<()> {
        for _ in 0..times {
            for row in &self.rows {
                let time_ns = self.time_ns;
                sink.request(&AccessRow { time_ns, ..*row })?;
                if row.op != RowOp::Mark {
                    self.time_ns = self.time_ns.saturating_add(row.count.into());
                }
            }
        }
        self.rows.clear();
        self.references = 0;
        Ok(())
    }
}
