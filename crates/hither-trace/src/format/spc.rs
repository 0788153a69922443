//! The traces of the Storage Performance Council (WebSearch, Financial; the UMass repository), one
//! request per line: `ASU,LBA,size,opcode,timestamp`. An application storage unit is an object, the
//! LBA counts sectors of 512 bytes, the size is in bytes and the timestamp in seconds. Further
//! fields are allowed and ignored.

use super::reader::{Format, RecordKind};
use crate::error::Result;
use crate::objects::Objects;
use crate::schema::{AccessRow, RowOp};
use crate::sink::Sink;
use crate::source::Input;
use crate::text::{Lines, Parsed, decimal, seconds, sectors};

/// The entry in the registry.
pub(super) const FORMAT: Format = Format {
    name: "spc",
    doc: "CSV, `ASU,LBA,size,opcode,timestamp` a request, sectors of 512 bytes (SPC: WebSearch, \
          Financial)",
    records: RecordKind::Requests,
    matches: Some(|head| {
        // SPC's times have a fraction. Other tools write such lines with whole numbers.
        let first = head.lines().next();
        first.is_some_and(|line| parse(line).is_ok() && line.contains(&b'.'))
    }),
    read,
};

fn read(input: &mut Input<'_>, sink: &mut dyn Sink) -> Result<Option<String>> {
    let mut units = Objects::<u64>::new();
    let mut lines = Lines::of(input);
    while let Some(line) = lines.next()? {
        if line.bytes.is_empty() {
            sink.separator();
            continue;
        }
        let (unit, row) = parse(line.bytes).map_err(line.wrong())?;
        let path = || format!("ASU {unit}").into_bytes();
        let object = units.number(sink, &unit, row.time_ns, path);
        sink.request(&AccessRow { object, ..row })
            .map_err(line.place())?;
    }
    Ok(None)
}

/// The unit and the request on it.
fn parse(line: &[u8]) -> Parsed<(u64, AccessRow)> {
    const SHAPE: &str = "not `ASU,LBA,size,opcode,timestamp`";
    let mut fields = line.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    let mut field = || fields.next().ok_or(SHAPE);
    let (unit, offset, length) = (decimal(field()?)?, sectors(field()?)?, decimal(field()?)?);
    let op = match field()? {
        b"r" | b"R" => RowOp::Read,
        b"w" | b"W" => RowOp::Write,
        _ => return Err("an opcode other than r and w"),
    };
    let time_ns = seconds(field()?)?;
    let row = AccessRow {
        time_ns,
        op,
        offset,
        length,
        ..AccessRow::default()
    };
    Ok((unit, row))
}
