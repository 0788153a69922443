//! The traces of IBM's object storage (Eytan, Harnik, Ofer, Friedman, Kat, HotStorage 2020), one
//! request per line: `timestamp operation object [size [first_byte last_byte]]`. Times are in
//! milliseconds from the start of the trace.
//!
//! A GET reads the range, or the object; a PUT or a COPY writes the object. A HEAD moves nothing
//! and a DELETE ends the object: both are counted as left out.

use super::reader::{Format, RecordKind};
use crate::error::Result;
use crate::objects::Objects;
use crate::schema::{AccessRow, RowOp};
use crate::sink::Sink;
use crate::source::Input;
use crate::text::{Lines, Parsed, decimal};

/// The entry in the registry.
pub(super) const FORMAT: Format = Format {
    name: "ibm-cos",
    doc: "text, `timestamp REST.GET.OBJECT object size first last` a request (IBM object storage)",
    records: RecordKind::Requests,
    matches: Some(|head| head.lines().next().is_some_and(|line| parse(line).is_ok())),
    read,
};

/// An operation on an object.
struct Operation<'l> {
    object: &'l [u8],
    /// What it moves.
    row: Option<AccessRow>,
}

fn read(input: &mut Input<'_>, sink: &mut dyn Sink) -> Result<Option<String>> {
    let mut objects = Objects::<[u8]>::new();
    let mut lines = Lines::of(input);
    while let Some(line) = lines.next()? {
        if line.bytes.is_empty() {
            sink.separator();
            continue;
        }
        let Operation { object, row } = parse(line.bytes).map_err(line.wrong())?;
        let Some(row) = row else {
            sink.left_out();
            continue;
        };
        let object = objects.number(sink, object, row.time_ns, || object.to_owned());
        sink.request(&AccessRow { object, ..row })
            .map_err(line.place())?;
    }
    Ok(None)
}

fn parse(line: &[u8]) -> Parsed<Operation<'_>> {
    let words = line.split(u8::is_ascii_whitespace);
    let mut words = words.filter(|word| !word.is_empty());
    let mut word = || words.next().ok_or("not `timestamp operation object ...`");
    let (time, operation, object) = (decimal(word()?)?, word()?, word()?);
    let mut numbers = [None; 3];
    for number in &mut numbers {
        *number = words.next().map(decimal).transpose()?;
    }
    if words.next().is_some() {
        return Err("more than a size, a first and a last byte");
    }
    let op = match operation {
        b"REST.GET.OBJECT" => Some(RowOp::Read),
        b"REST.PUT.OBJECT" | b"REST.COPY.OBJECT" => Some(RowOp::Write),
        b"REST.HEAD.OBJECT" | b"REST.DELETE.OBJECT" => None,
        _ => return Err("an operation other than GET, PUT, COPY, HEAD and DELETE"),
    };
    let (offset, length) = match numbers {
        [_, Some(first), Some(last)] if last < first => return Err("it ends before it begins"),
        [_, Some(first), Some(last)] => (first, (last - first).saturating_add(1)),
        [_, Some(_), None] => return Err("a first byte without a last one"),
        [size, None, _] => (0, size.unwrap_or(0)),
    };
    let row = op.map(|op| AccessRow {
        time_ns: time.saturating_mul(1_000_000),
        op,
        offset,
        length,
        ..AccessRow::default()
    });
    Ok(Operation { object, row })
}
