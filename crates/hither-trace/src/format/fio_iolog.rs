//! What fio was told to do, by `write_iolog`: version 2, `file action [offset length]`, and version
//! 3, which has the time before it, in microseconds. A file is an object.
//!
//! Reads and writes are requests. All other actions (add, open, close, wait, sync, datasync, trim)
//! move nothing and are counted as left out.

use super::reader::{Format, RecordKind};
use crate::error::Result;
use crate::objects::Objects;
use crate::schema::{AccessRow, RowOp};
use crate::sink::Sink;
use crate::source::{Head, Input};
use crate::text::{Lines, Parsed, decimal};

/// The entry in the registry.
pub(super) const FORMAT: Format = Format {
    name: "fio-iolog",
    doc: "text, `file action offset length` after a line `fio version 2 iolog`, or 3 (fio)",
    records: RecordKind::Requests,
    matches: Some(|head: Head<'_>| {
        head.lines()
            .next()
            .is_some_and(|line| has_times(line).is_some())
    }),
    read,
};

/// Whether lines begin with a time, by the first one. `None`: it is no iolog.
fn has_times(first: &[u8]) -> Option<bool> {
    match first {
        b"fio version 2 iolog" => Some(false),
        b"fio version 3 iolog" => Some(true),
        _ => None,
    }
}

/// An action on a file.
struct Action<'l> {
    file: &'l [u8],
    /// What it moves.
    row: Option<AccessRow>,
}

fn read(input: &mut Input<'_>, sink: &mut dyn Sink) -> Result<Option<String>> {
    let mut files = Objects::<[u8]>::new();
    let mut timed = None;
    let mut lines = Lines::of(input);
    while let Some(line) = lines.next()? {
        if line.bytes.is_empty() {
            sink.separator();
            continue;
        }
        // Logs of several jobs may be joined.
        if let Some(of_these) = has_times(line.bytes) {
            timed = Some(of_these);
            continue;
        }
        let timed = timed.ok_or_else(|| line.error("not `fio version 2 iolog`, nor version 3"))?;
        let Action { file, row } = parse(line.bytes, timed).map_err(line.wrong())?;
        let Some(row) = row else {
            sink.left_out();
            continue;
        };
        let object = files.number(sink, file, row.time_ns, || file.to_owned());
        sink.request(&AccessRow { object, ..row })
            .map_err(line.place())?;
    }
    Ok(None)
}

fn parse(line: &[u8], timed: bool) -> Parsed<Action<'_>> {
    const SHAPE: &str = "not `file action offset length`";
    let words = line.split(u8::is_ascii_whitespace);
    let mut words = words.filter(|word| !word.is_empty());
    let mut word = || words.next().ok_or(SHAPE);
    let time_us = if timed { decimal(word()?)? } else { 0 };
    let (file, action) = (word()?, word()?);
    let op = match action {
        b"read" => RowOp::Read,
        b"write" => RowOp::Write,
        b"add" | b"open" | b"close" | b"unlink" | b"wait" | b"sync" | b"datasync" | b"trim" => {
            return Ok(Action { file, row: None });
        }
        _ => return Err("an unknown action"),
    };
    let row = AccessRow {
        time_ns: time_us.saturating_mul(1000),
        op,
        offset: decimal(word()?)?,
        length: decimal(word()?)?,
        ..AccessRow::default()
    };
    if words.next().is_some() {
        return Err(SHAPE);
    }
    Ok(Action {
        file,
        row: Some(row),
    })
}
