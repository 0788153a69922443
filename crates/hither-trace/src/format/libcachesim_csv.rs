//! CSV with a line of column names, as in libCacheSim's samples (`# time, object, size,
//! next_access_vtime` or `version,time,op,size,lbn`). libCacheSim gets the columns from its command
//! line; here the names define them. Fields are separated by commas, semicolons, tabs or bars, as
//! in the first line. A field in quotation marks may have separators in it, and a mark as two
//! (RFC 4180), but no end of a line.
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

const OBJECT: &[&str] = &[
    "object",
    "obj_id",
    "obj",
    "object_id",
    "key",
    "lbn",
    "cachekey",
    "cache_key",
    "hashed_path_query",
    "hashed_host_path_query",
];
/// The object where there is no column of [`OBJECT`].
const ROW_OR_OBJECT: &[&str] = &["id"];
/// How many references a line stands for (CacheLib).
const REPEATS: &[&str] = &["op_count"];
const TIME: &[&str] = &[
    "time",
    "timestamp",
    "clock_time",
    "ts",
    "op_time",
    "relative_unix",
];
const SIZE: &[&str] = &[
    "size",
    "obj_size",
    "object_size",
    "objectsize",
    "length",
    "bytes",
    "response_size",
];
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
    /// None where the field is empty.
    object: Option<u64>,
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
        let names = header.split(char::from(separator)).map(str::trim);
        let names: Vec<&str> = names.map(|name| name.trim_matches('"')).collect();
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
        let mut record = Record {
            object: None,
            op: Op::Read,
            repeats: 1,
        };
        let mut count = 0;
        let mut take = |field: &[u8]| {
            self.take(count, field, &mut record).map_err(line.wrong())?;
            count += 1;
            Ok(())
        };
        if memchr::memchr(b'"', line.bytes).is_some() {
            quoted_fields(line.bytes, self.separator)
                .map_err(line.wrong())?
                .iter()
                .try_for_each(|field| take(field))?;
        } else {
            let fields = line.bytes.split(|byte| *byte == self.separator);
            fields.map(<[u8]>::trim_ascii).try_for_each(take)?;
        }
        if count != self.count {
            return Err(line.error(format!("{count} fields, not {}", self.count)));
        }
        if record.repeats > REPEATS_MAX {
            return Err(line.error(format!("more than {REPEATS_MAX} references")));
        }
        Ok(record)
    }

    /// Takes in the field in this place.
    fn take(&self, place: usize, field: &[u8], record: &mut Record) -> Parsed<()> {
        let at = Some(place);
        if place == self.object {
            record.object = Some(field).filter(|field| !field.is_empty()).map(key);
        } else if at == self.op {
            record.op = parse_op(field)?;
        } else if at == self.repeats {
            record.repeats = decimal(field)?;
        } else if at == self.time || at == self.size {
            // It is parsed as a check: if this column is not a number, all columns are wrong.
            fractional(field)?;
        }
        Ok(())
    }
}

/// The fields of a line of which some are in quotation marks.
fn quoted_fields(line: &[u8], separator: u8) -> Parsed<Vec<Vec<u8>>> {
    let mut fields = Vec::new();
    let mut rest = Some(line);
    while let Some(field) = rest {
        let begin = field.trim_ascii_start();
        let (content, after) = match begin.strip_prefix(b"\"") {
            Some(quoted) => unquoted(quoted)?,
            None => {
                let end = memchr::memchr(separator, begin).unwrap_or(begin.len());
                (begin[..end].trim_ascii_end().to_owned(), &begin[end..])
            }
        };
        fields.push(content);
        rest = match after.trim_ascii_start().split_first() {
            _ if after.first() == Some(&separator) => Some(&after[1..]),
            None => None,
            Some((first, rest)) if *first == separator => Some(rest),
            Some(_) => return Err("text behind a quotation mark"),
        };
    }
    Ok(fields)
}

/// The text up to the closing mark, and what follows that.
fn unquoted(mut rest: &[u8]) -> Parsed<(Vec<u8>, &[u8])> {
    let mut content = Vec::new();
    loop {
        let mark = memchr::memchr(b'"', rest).ok_or("a quotation mark without its other")?;
        content.extend_from_slice(&rest[..mark]);
        rest = &rest[mark + 1..];
        match rest.strip_prefix(b"\"") {
            Some(after) => {
                content.push(b'"');
                rest = after;
            }
            None => return Ok((content, rest)),
        }
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
        let object = record.object.ok_or_else(|| line.error("no object"))?;
        for _ in 0..record.repeats {
            sink.key(object, record.op)?;
        }
    }
    Ok(None)
}

fn parse_op(field: &[u8]) -> Parsed<Op> {
    const READS: &[&str] = &[
        "r",
        "read",
        "rs",
        "get",
        "gets",
        "28",
        "8",
        "08",
        "88",
        "a8",
        "get_lease",
    ];
    const WRITES: &[&str] = &[
        "w",
        "write",
        "ws",
        "set",
        "put",
        "2a",
        "a",
        "0a",
        "8a",
        "aa",
        "add",
        "replace",
        "cas",
        "append",
        "prepend",
        "incr",
        "decr",
        "delete",
        "remove",
        "set_lease",
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
