//! The block traces of Alibaba's cloud (Li, Wang, Lee and others, IISWC 2020), one request per
//! line: `device_id,opcode,offset,length,timestamp`. A virtual disk is an object. Offset and length
//! are in bytes, times in microseconds, and the first one is the start of the trace.

use super::reader::{Format, RecordKind};
use crate::error::Result;
use crate::per_line;
use crate::schema::{AccessRow, RowOp};
use crate::sink::Sink;
use crate::source::Input;
use crate::text::{Parsed, decimal, fields};

/// The entry in the registry.
pub(super) const FORMAT: Format = Format {
    name: "alibaba",
    doc: "CSV, `device_id,opcode,offset,length,timestamp` a request (Alibaba block traces)",
    records: RecordKind::Requests,
    matches: Some(|head| head.lines().next().is_some_and(|line| parse(line).is_ok())),
    read,
};

fn read(input: &mut Input<'_>, sink: &mut dyn Sink) -> Result<Option<String>> {
    per_line::requests(input, sink, "disk", |_| false, parse)
}

/// The disk and the request on it.
fn parse(line: &[u8]) -> Parsed<(u64, AccessRow)> {
    let [disk, op, offset, length, time] =
        fields(line, b',').ok_or("not `device_id,opcode,offset,length,timestamp`")?;
    let op = match op {
        b"R" => RowOp::Read,
        b"W" => RowOp::Write,
        _ => return Err("an opcode other than R and W"),
    };
    let row = AccessRow {
        time_ns: decimal(time)?.saturating_mul(1000),
        op,
        offset: decimal(offset)?,
        length: decimal(length)?,
        ..AccessRow::default()
    };
    Ok((decimal(disk)?, row))
}
