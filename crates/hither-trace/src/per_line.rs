//! Readers of formats in which each line is a record of its own.

use hither_core::Op;

use crate::error::Result;
use crate::object_columns::ObjectRequest;
use crate::objects::Objects;
use crate::schema::AccessRow;
use crate::sink::Sink;
use crate::source::Input;
use crate::text::{Lines, Parsed, SinceFirst};

/// Reads a key a line.
pub(crate) fn keys(
    input: &mut Input<'_>,
    sink: &mut dyn Sink,
    parse: impl Fn(&[u8]) -> Parsed<(u64, Op)>,
) -> Result<Option<String>> {
    let mut lines = Lines::of(input);
    while let Some(line) = lines.next()? {
        if line.bytes.is_empty() {
            sink.separator();
            continue;
        }
        let (key, op) = parse(line.bytes).map_err(line.wrong())?;
        sink.key(key, op)?;
    }
    Ok(None)
}

/// Reads a reference to an object a line.
pub(crate) fn objects(
    input: &mut Input<'_>,
    sink: &mut dyn Sink,
    parse: impl Fn(&[u8]) -> Parsed<ObjectRequest>,
) -> Result<Option<String>> {
    let mut lines = Lines::of(input);
    while let Some(line) = lines.next()? {
        if line.bytes.is_empty() {
            sink.separator();
            continue;
        }
        let request = parse(line.bytes).map_err(line.wrong())?;
        sink.object(&request)?;
    }
    Ok(None)
}

/// Reads a request a line, to a device that has a number: it is the object `KIND NUMBER`. The first
/// time is the start of the trace. `is_header`: whether a line has the names of the fields.
pub(crate) fn requests(
    input: &mut Input<'_>,
    sink: &mut dyn Sink,
    kind: &str,
    is_header: impl Fn(&[u8]) -> bool,
    parse: impl Fn(&[u8]) -> Parsed<(u64, AccessRow)>,
) -> Result<Option<String>> {
    let (mut devices, mut since) = (Objects::<u64>::new(), SinceFirst::default());
    let mut lines = Lines::of(input);
    while let Some(line) = lines.next()? {
        if line.bytes.is_empty() || is_header(line.bytes) {
            sink.separator();
            continue;
        }
        let (device, row) = parse(line.bytes).map_err(line.wrong())?;
        let time_ns = since.ns(row.time_ns);
        let path = || format!("{kind} {device}").into_bytes();
        let object = devices.number(sink, &device, time_ns, path);
        let row = AccessRow {
            object,
            time_ns,
            ..row
        };
        sink.request(&row).map_err(line.place())?;
    }
    Ok(None)
}
