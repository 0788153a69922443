//! The traces of enterprise virtual desktops of SYSTOR 2017 (Lee and others), one request per line:
//! `Timestamp,Response,IOType,LUN,Offset,Size`, with this header. A LUN is an object. Offset and
//! size are in bytes, times in seconds, and the first one is the start of the trace. The response
//! time is ignored, and may be missing.

use super::reader::{Format, RecordKind};
use crate::error::Result;
use crate::per_line;
use crate::schema::{AccessRow, RowOp};
use crate::sink::Sink;
use crate::source::Input;
use crate::text::{Parsed, decimal, fields, seconds};

/// The entry in the registry.
pub(super) const FORMAT: Format = Format {
    name: "systor",
    doc: "CSV, `Timestamp,Response,IOType,LUN,Offset,Size` a request (SYSTOR 2017)",
    records: RecordKind::Requests,
    matches: Some(|head| {
        let mut lines = head.lines();
        let first = lines.next();
        let requests = if first.is_some_and(is_header) {
            lines.next()
        } else {
            first
        };
        requests.is_some_and(|line| parse(line).is_ok())
    }),
    read,
};

fn read(input: &mut Input<'_>, sink: &mut dyn Sink) -> Result<Option<String>> {
    // Files that were joined have the header more than once.
    per_line::requests(input, sink, "LUN", is_header, parse)
}

fn is_header(line: &[u8]) -> bool {
    line.eq_ignore_ascii_case(b"Timestamp,Response,IOType,LUN,Offset,Size")
}

/// The LUN and the request on it.
fn parse(line: &[u8]) -> Parsed<(u64, AccessRow)> {
    let [time, response, op, unit, offset, length] =
        fields(line, b',').ok_or("not `Timestamp,Response,IOType,LUN,Offset,Size`")?;
    if !response.is_empty() {
        seconds(response)?;
    }
    let op = match op {
        b"R" => RowOp::Read,
        b"W" => RowOp::Write,
        _ => return Err("a type other than R and W"),
    };
    let row = AccessRow {
        time_ns: seconds(time)?,
        op,
        offset: decimal(offset)?,
        length: decimal(length)?,
        ..AccessRow::default()
    };
    Ok((decimal(unit)?, row))
}
