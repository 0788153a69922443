//! CSV with a line of column names, as in libCacheSim's samples (`# time, object, size,
//! next_access_vtime` or `version,time,op,size,lbn`). libCacheSim gets the columns from its command
//! line; here the names define them. Fields are separated by commas, semicolons, tabs or bars, as
//! in the first line, and have no quotes.
//!
//! Each line is one reference to its object, of any size, or as many as CacheLib's `op_count` says.
//! A column of ops separates reads from writes. `id` is the object only where no other column names
//! one: beside a `key` it numbers the lines. Unknown columns are ignored, and so is
//! `next_access_vtime`: next uses are computed from the references.

use hither_core::Op;

use super::reader::{Format, RecordKind};
use crate::error::Result;
use crate::sink::Sink;
use crate::source::Input;
use crate::text::{Line, Lines, Parsed, decimal, fractional, key};

/// The entry in the registry.
pub(super) const FORMAT: Format = Format {
    name: "libcachesim-csv",
    doc: "CSV with a line of column names, one of them object, obj_id, key, lbn or id \
          (libCacheSim csv)",
    records: RecordKind::Keys,
    matches: Some(|head| {
        // Where the names contradict each other, the reader says so.
        let header = head.lines().next().map(Columns::of);
        header.is_some_and(|columns| match columns {
            Ok(columns) => columns.time.is_some() || columns.size.is_some(),
            Err(problem) => problem != NO_OBJECT,
        })
    }),
    read,
};

const OBJECT: &[&str] = &["object", "obj_id", "obj", "object_id", "key", "lbn"];
/// The object where there is no column of [`OBJECT`].
const ROW_OR_OBJECT: &[&str] = &["id"];
/// How many references a line stands for (CacheLib).
const REPEATS: &[&str] = &["op_count"];
const TIME: &[&str] = &["time", "timestamp", "clock_time", "ts"];
const SIZE: &[&str] = &["size", "obj_size", "object_size", "length", "bytes"];
const OP: &[&str] = &["op", "opcode", "operation", "cmd"];

const NO_OBJECT: &str =
    "the first line names no column of objects (object, obj_id, obj, object_id, key, lbn, id)";

/// The most references of a line. CacheLib counts those of a second. A line that claims 2^60 is
/// damaged, and would fill the memory.
const REPEATS_MAX: u64 = 1 << 24;

/// The positions of the columns.
struct Columns {
    separator: u8,
    count: usize,
    object: usize,
    time: Option<usize>,
    size: Option<usize>,
    op: Option<usize>,
    repeats: Option<usize>,
}

/// A line: so many references to an object.
struct Record {
    object: u64,
    op: Op,
    repeats: u64,
}

impl Columns {
    /// Parses the line of column names, or says why it is none.
    fn of(header: &[u8]) -> Parsed<Columns> {
        let header = str::from_utf8(header).map_err(|_| NO_OBJECT)?;
        let header = header.trim_start_matches('#');
        let header = header.to_ascii_lowercase().replace('-', "_");
        let separator = b",;\t|"
            .iter()
            .find(|byte| header.as_bytes().contains(byte));
        let separator = *separator.ok_or(NO_OBJECT)?;
        let names: Vec<&str> = header.split(char::from(separator)).map(str::trim).collect();
        let first = |known: &[&str]| names.iter().position(|name| known.contains(name));
        let only = |known: &[&str]| match first(known) {
            one if one == names.iter().rposition(|name| known.contains(name)) => Ok(one),
            _ => Err("the first line names two columns of one meaning"),
        };
        let object = match only(OBJECT)? {
            Some(object) => object,
            None => only(ROW_OR_OBJECT)?.ok_or(NO_OBJECT)?,
        };
        Ok(Columns {
            separator,
            count: names.len(),
            object,
            time: first(TIME),
            size: first(SIZE),
            op: only(OP)?,
            repeats: only(REPEATS)?,
        })
    }

    fn record(&self, line: Line<'_>) -> Result<Record> {
        let (mut object, mut op, mut repeats, mut count) = (None, Op::Read, 1, 0);
        for field in line.bytes.split(|byte| *byte == self.separator) {
            let field = field.trim_ascii();
            let place = Some(count);
            if count == self.object {
                object = Some(field).filter(|field| !field.is_empty());
            } else if place == self.op {
                op = parse_op(field).map_err(line.wrong())?;
            } else if place == self.repeats {
                repeats = decimal(field).map_err(line.wrong())?;
            } else if place == self.time || place == self.size {
                // It is parsed as a check: if this column is not a number, all columns are wrong.
                fractional(field).map_err(line.wrong())?;
            }
            count += 1;
        }
        if count != self.count {
            return Err(line.error(format!("{count} fields, not {}", self.count)));
        }
        if repeats > REPEATS_MAX {
            return Err(line.error(format!("more than {REPEATS_MAX} references")));
        }
        let object = object.ok_or_else(|| line.error("no object"))?;
        Ok(Record {
            object: key(object),
            op,
            repeats,
        })
    }
}

fn read(input: &mut Input<'_>, sink: &mut dyn Sink) -> Result<Option<String>> {
    let mut lines = Lines::of(input);
    let Some(header) = lines.next()? else {
        return Ok(None);
    };
    let columns = Columns::of(header.bytes).map_err(header.wrong())?;
    while let Some(line) = lines.next()? {
        if line.bytes.is_empty() {
            sink.separator();
            continue;
        }
        let record = columns.record(line)?;
        for _ in 0..record.repeats {
            sink.key(record.object, record.op)?;
        }
    }
    Ok(None)
}

fn parse_op(field: &[u8]) -> Parsed<Op> {
    const READS: &[&str] = &[
        "r", "read", "rs", "get", "gets", "28", "8", "08", "88", "a8",
    ];
    const WRITES: &[&str] = &[
        "w", "write", "ws", "set", "put", "2a", "a", "0a", "8a", "aa",
    ];
    let among = |known: &[&str]| {
        let mut known = known.iter().map(|name| name.as_bytes());
        known.any(|name| name.eq_ignore_ascii_case(field))
    };
    if among(READS) {
        Ok(Op::Read)
    } else if among(WRITES) {
        Ok(Op::Write)
    } else {
        Err("an op that is neither a read nor a write")
    }
}
