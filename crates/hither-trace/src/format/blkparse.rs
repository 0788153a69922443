//! What blkparse(1) prints by default of a block trace: `major,minor cpu number time pid action
//! rwbs sector + sectors [command]`. A device is an object, and sectors have 512 bytes.
//!
//! A request is where it enters the queue (`Q`): what becomes of it later is counted as left out,
//! and so are discards, flushes and messages. The lines of the summary at the end are separators.

use super::reader::{Format, RecordKind};
use crate::error::Result;
use crate::objects::Objects;
use crate::schema::{AccessRow, RowOp};
use crate::sink::Sink;
use crate::source::{Head, Input};
use crate::text::{Lines, Parsed, decimal, seconds, sectors};

/// The entry in the registry.
pub(super) const FORMAT: Format = Format {
    name: "blkparse",
    doc: "text, `8,0 3 1 0.000664000 697 Q W 21333 + 8 [kjournald]` an event (blkparse)",
    records: RecordKind::Requests,
    matches: Some(|head: Head<'_>| {
        let mut lines = head.lines().filter(|line| !line.is_empty());
        lines.next().is_some_and(|line| parse(line).is_ok())
    }),
    read,
};

/// An event of a device.
struct Event<'l> {
    device: &'l [u8],
    /// The request, if it is one that enters the queue.
    row: Option<AccessRow>,
}

fn read(input: &mut Input<'_>, sink: &mut dyn Sink) -> Result<Option<String>> {
    let (mut devices, mut in_summary) = (Objects::<[u8]>::new(), false);
    let mut lines = Lines::of(input);
    while let Some(line) = lines.next()? {
        // It begins with `CPU0 (8,0):`, or `Total (8,0):`.
        in_summary |= line.bytes.ends_with(b"):");
        if line.bytes.is_empty() || in_summary {
            sink.separator();
            continue;
        }
        let Event { device, row } = parse(line.bytes).map_err(line.wrong())?;
        let Some(row) = row else {
            sink.left_out();
            continue;
        };
        let object = devices.number(sink, device, row.time_ns, || device.to_owned());
        sink.request(&AccessRow { object, ..row })
            .map_err(line.place())?;
    }
    Ok(None)
}

fn parse(line: &[u8]) -> Parsed<Event<'_>> {
    const SHAPE: &str = "not `major,minor cpu number time pid action rwbs sector + sectors`";
    let words = line.split(u8::is_ascii_whitespace);
    let mut words = words.filter(|word| !word.is_empty());
    let mut word = || words.next().ok_or(SHAPE);
    let device = word()?;
    let mut numbers = device.split(|byte| *byte == b',').map(decimal);
    let (Some(Ok(_)), Some(Ok(_)), None) = (numbers.next(), numbers.next(), numbers.next()) else {
        return Err(SHAPE);
    };
    let (_cpu, _number) = (decimal(word()?)?, decimal(word()?)?);
    let time_ns = seconds(word()?)?;
    let (_pid, action) = (decimal(word()?)?, word()?);
    let ignored = Ok(Event { device, row: None });
    if action != b"Q" {
        return ignored;
    }
    let kind = word()?;
    let op = match () {
        () if kind.contains(&b'D') => return ignored,
        () if kind.contains(&b'W') => RowOp::Write,
        () if kind.contains(&b'R') => RowOp::Read,
        () => return ignored,
    };
    // A flush without data has no sectors: `Q FWS [command]`.
    let Some(sector) = words.next().filter(|word| !word.starts_with(b"[")) else {
        return ignored;
    };
    let (Some(b"+"), Some(count)) = (words.next(), words.next()) else {
        return Err(SHAPE);
    };
    let row = AccessRow {
        time_ns,
        op,
        offset: sectors(sector)?,
        length: sectors(count)?,
        ..AccessRow::default()
    };
    Ok(Event {
        device,
        row: Some(row),
    })
}
