//! The text traces of the LIRS authors (Jiang and Zhang, SIGMETRICS 2002): one decimal block number
//! per line. Blank lines and lines with a lone `*` are separators. Line ends may be CRLF.
//!
//! Each line is one reference. Repeats were merged, if at all, when the trace was recorded.

use hither_core::Op;

use super::reader::{Format, RecordKind};
use crate::error::Result;
use crate::sink::Sink;
use crate::source::{Head, Input};
use crate::text::{Lines, Parsed, decimal};

/// The entry in the registry.
pub(super) const FORMAT: Format = Format {
    name: "lirs",
    doc: "text, one decimal block number a line, `*` separates (LIRS authors)",
    records: RecordKind::Keys,
    matches: Some(matches),
    read,
};

/// The first two lines with a block number decide, since one may be what is left of a line of
/// another format. If later lines are invalid, the reader names them.
fn matches(head: Head<'_>) -> bool {
    let lines = head.lines().map(parse);
    let mut blocks = lines.filter(|line| !matches!(line, Ok(None)));
    matches!((blocks.next(), blocks.next()), (Some(Ok(_)), Some(Ok(_))))
}

fn read(input: &mut Input<'_>, sink: &mut dyn Sink) -> Result<Option<String>> {
    let mut lines = Lines::of(input);
    while let Some(line) = lines.next()? {
        match parse(line.bytes).map_err(line.wrong())? {
            Some(id) => sink.key(id, Op::Read)?,
            None => sink.separator(),
        }
    }
    Ok(None)
}

/// The block of a line. `None` for a separator.
fn parse(line: &[u8]) -> Parsed<Option<u64>> {
    if line.is_empty() || line == b"*" {
        return Ok(None);
    }
    decimal(line).map(Some)
}
