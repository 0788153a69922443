//! CSV with a line of column names, as in libCacheSim's samples (`# time, object, size,
//! next_access_vtime` or `version,time,op,size,lbn`). libCacheSim gets the columns from its command
//! line; here the names define them. Fields are separated by commas, semicolons, tabs or bars, as
//! in the first line.
//!
//! Each line is one reference to its object, or as many as CacheLib's `op_count` says. Times and
//! times to live (`ttl`) are in seconds, sizes in bytes; `cost` is what the object costs to get.
//! A column of ops separates reads from writes. `id` is the object only where no other column names
//! one: beside a `key` it numbers the lines. Unknown columns are ignored, and so is
//! `next_access_vtime`: next uses are computed from the references.

use super::reader::{Format, RecordKind};
use crate::delimited::{Columns, SEPARATORS};
use crate::error::Result;
use crate::sink::Sink;
use crate::source::Input;
use crate::text::{Lines, Parsed};

/// The entry in the registry.
pub(super) const FORMAT: Format = Format {
    name: "libcachesim-csv",
    doc: "CSV with a line of column names, one of them object, obj_id, key, lbn or id \
          (libCacheSim csv)",
    records: RecordKind::Keys,
    matches: Some(|head| {
        // Where the names contradict each other, the reader says so.
        let header = head.lines().next().map(columns_of);
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
const TTL: &[&str] = &["ttl"];
const COST: &[&str] = &["cost"];
const OP: &[&str] = &["op", "opcode", "operation", "cmd"];

const NO_OBJECT: &str =
    "the first line names no column of objects (object, obj_id, obj, object_id, key, lbn, id)";

/// Parses the line of column names, or says why it is none.
fn columns_of(header: &[u8]) -> Parsed<Columns> {
    let header = str::from_utf8(header).map_err(|_| NO_OBJECT)?;
    let header = header.trim_start_matches([' ', '#']);
    let header = header.to_ascii_lowercase().replace('-', "_");
    let mut separators = SEPARATORS.iter();
    let separator = separators.find(|byte| header.as_bytes().contains(byte));
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
        hexadecimal: false,
        time: first(TIME),
        size: first(SIZE),
        ttl: first(TTL),
        cost: first(COST),
        op: only(OP)?,
        repeats: only(REPEATS)?,
    })
}

fn read(input: &mut Input<'_>, sink: &mut dyn Sink) -> Result<Option<String>> {
    let mut lines = Lines::of(input);
    let Some(header) = lines.next()? else {
        return Ok(None);
    };
    let columns = columns_of(header.untrimmed()).map_err(header.wrong())?;
    columns.read(lines, sink)?;
    Ok(None)
}
