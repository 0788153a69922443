//! The traces of Tencent's cloud block storage (Zhang, Huang and others, ATC 2020), one request per
//! line: `timestamp,offset,size,iotype,volume`. A volume is an object. Offset and size are in
//! sectors of 512 bytes, the type is 0 for a read and 1 for a write, times are in seconds, and the
//! first one is the start of the trace.
//!
//! Five numbers show nothing, so the format must be named.

use super::reader::{Format, RecordKind};
use crate::error::Result;
use crate::objects::Objects;
use crate::schema::{AccessRow, RowOp};
use crate::sink::Sink;
use crate::source::Input;
use crate::text::{Lines, Parsed, SinceFirst, decimal, fields, sectors};

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
    let (mut volumes, mut since) = (Objects::<u64>::new(), SinceFirst::default());
    let mut lines = Lines::of(input);
    while let Some(line) = lines.next()? {
        if line.bytes.is_empty() {
            sink.separator();
            continue;
        }
        let (volume, row) = parse(line.bytes).map_err(line.wrong())?;
        let time_ns = since.ns(row.time_ns);
        let path = || format!("volume {volume}").into_bytes();
        let object = volumes.number(sink, &volume, time_ns, path);
        let row = AccessRow {
            object,
            time_ns,
            ..row
        };
        sink.request(&row).map_err(line.place())?;
    }
    Ok(None)
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
