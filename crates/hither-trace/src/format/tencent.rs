//! The traces of Tencent's cloud block storage (Zhang, Huang and others, ATC 2020), one request per
//! line: `timestamp,offset,size,iotype,volume`. A volume is an object. Offset and size are in
//! sectors of 512 bytes, the type is 0 for a read and 1 for a write, times are in seconds, and the
//! first one is the start of the trace.
//!
//! Five numbers show nothing, so the format must be named.

use super::reader::{Format, RecordKind};
use crate::error::Result;
use crate::per_line;
use crate::schema::{AccessRow, RowOp};
use crate::sink::Sink;
use crate::source::Input;
use crate::text::{Parsed, decimal, fields, sectors};

/// The entry in the registry.
pub(super) const FORMAT: Format = Format {
    name: "tencent",
    doc: "CSV, `timestamp,offset,size,iotype,volume` a request, in sectors of 512 bytes (Tencent \
          block storage)",
    records: RecordKind::Requests,
    matches: None,
    read,
};

fn read(input: &mut Input<'_>, sink: &mut dyn Sink) -> Result<Option<String>> {
    per_line::requests(input, sink, "volume", |_| false, parse)
}

/// The volume and the request on it.
fn parse(line: &[u8]) -> Parsed<(u64, AccessRow)> {
    let [time, offset, length, op, volume] =
        fields(line, b',').ok_or("not `timestamp,offset,size,iotype,volume`")?;
    let op = match op {
        b"0" => RowOp::Read,
        b"1" => RowOp::Write,
        _ => return Err("a type other than 0 and 1"),
    };
    let row = AccessRow {
        time_ns: decimal(time)?.saturating_mul(1_000_000_000),
        op,
        offset: sectors(offset)?,
        length: sectors(length)?,
        ..AccessRow::default()
    };
    Ok((decimal(volume)?, row))
}
