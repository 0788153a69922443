//! CSV with a line of column names, as in libCacheSim's samples (`# time, object, size,
//! next_access_vtime` or `version,time,op,size,lbn`). libCacheSim gets the columns from its command
//! line; here the names define them. Fields are separated by commas, semicolons, tabs or bars, as
//! in the first line, and have no quotes.
//!
//! Each line is one reference to its object, of any size. A column of ops separates reads from
//! writes. Unknown columns are ignored, and so is `next_access_vtime`: next uses are computed from
//! the references.

use hither_core::Op;

use super::reader::{Format, RecordKind};
use crate::error::Result;
use crate::sink::Sink;
use crate::source::Input;
use crate::text::{Line, Lines, Parsed, fractional, key};

/// The entry in the registry.
pub(super) const FORMAT: Format = Format {
    name: "libcachesim-csv",
    doc: "CSV with a line of column names, one of them object, obj_id, id, key or lbn \
          (libCacheSim csv)",
    records: RecordKind::Keys,
    matches: Some(|head| {
        let header = head.lines().next().and_then(Columns::of);
        header.is_some_and(|columns| columns.time.is_some() || columns.size.is_some())
    }),
    read,
};

const OBJECT: &[&str] = &["object", "obj_id", "obj", "object_id", "id", "key", "lbn"];
const TIME: &[&str] = &["time", "timestamp", "clock_time", "ts"];
const SIZE: &[&str] = &["size", "obj_size", "object_size", "length", "bytes"];
const OP: &[&str] = &["op", "opcode", "operation", "cmd"];

/// The positions of the columns.
struct Columns {
    separator: u8,
    count: usize,
    object: usize,
    time: Option<usize>,
    size: Option<usize>,
    op: Option<usize>,
}

impl Columns {
    /// Parses the line of column names. `None` if it is not one.
    fn of(header: &[u8]) -> Option<Columns> {
        let header = str::from_utf8(header).ok()?.trim_start_matches('#');
        let header = header.to_ascii_lowercase().replace('-', "_");
        let separator = b",;\t|"
            .iter()
            .find(|byte| header.as_bytes().contains(byte));
        let separator = *separator?;
        let names: Vec<&str> = header.split(char::from(separator)).map(str::trim).collect();
        let find = |known: &[&str]| names.iter().position(|name| known.contains(name));
        Some(Columns {
            separator,
            count: names.len(),
            object: find(OBJECT)?,
            time: find(TIME),
            size: find(SIZE),
            op: find(OP),
        })
    }

    fn record(&self, line: Line<'_>) -> Result<(u64, Op)> {
        let (mut object, mut op, mut count) = (None, Op::Read, 0);
        for field in line.bytes.split(|byte| *byte == self.separator) {
            let field = field.trim_ascii();
            let place = Some(count);
            if count == self.object {
                object = Some(field).filter(|field| !field.is_empty());
            } else if place == self.op {
                op = parse_op(field).map_err(line.wrong())?;
            } else if place == self.time || place == self.size {
                // It is parsed as a check: if this column is not a number, all columns are wrong.
                fractional(field).map_err(line.wrong())?;
            }
            count += 1;
        }
        if count != self.count {
            return Err(line.error(format!("{count} fields, not {}", self.count)));
        }
        let object = object.ok_or_else(|| line.error("no object"))?;
        Ok((key(object), op))
    }
}

fn read(input: &mut Input<'_>, sink: &mut dyn Sink) -> Result<Option<String>> {
    let mut lines = Lines::of(input);
    let Some(header) = lines.next()? else {
        return Ok(None);
    };
    let columns = Columns::of(header.bytes).ok_or_else(|| {
        let names = OBJECT.join(", ");
        header.error(format!(
            "the first line names no column of objects ({names})"
        ))
    })?;
    while let Some(line) = lines.next()? {
        if line.bytes.is_empty() {
            sink.separator();
            continue;
        }
        let (object, op) = columns.record(line)?;
        sink.key(object, op)?;
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
