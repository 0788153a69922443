//! The disk traces of the ARC authors (Megiddo and Modha, FAST 2003), `.lis`: a line `first n x
//! line` per request of `n` blocks from `first` on. The third field is 0 or a count, the last one
//! is the number of the line. Both are ignored by the reader.
//!
//! Other tools write four numbers a line too (webcachesim: time, object, size, a feature). So the
//! format is recognised by its last field, which counts the lines.

use hither_core::Op;

use super::reader::{Format, RecordKind};
use crate::error::Result;
use crate::sink::Sink;
use crate::source::{Head, Input};
use crate::text::{Line, Lines, Parsed, decimal, fields};

/// The entry in the registry.
pub(super) const FORMAT: Format = Format {
    name: "arc",
    doc: "text, `first_block blocks x line` a request (ARC authors, .lis)",
    records: RecordKind::Keys,
    matches: Some(matches),
    read,
};

/// The largest number of blocks of a request: 32 MiB of blocks of 512 bytes. The traces of the
/// paper have at most 128. A line that claims 2^60 is damaged, and would fill the memory.
const REQUEST_BLOCKS_MAX: u64 = 1 << 16;

/// Accepts lines that are numbered one after another, from any number on, since a part of a trace
/// is one too; or lines whose last two fields are 0 (OLTP).
fn matches(head: Head<'_>) -> bool {
    let lines = head.lines().filter(|line| !line.is_empty());
    let requests: Option<Vec<Request>> = lines.map(|line| parse(line).ok()).collect();
    requests.is_some_and(|requests| {
        let are_numbered = |pair: &[Request]| pair[0].number.checked_add(1) == Some(pair[1].number);
        let zeros = |request: &Request| request.other == 0 && request.number == 0;
        let numbered = requests.len() > 1 && requests.windows(2).all(are_numbered);
        numbered || (!requests.is_empty() && requests.iter().all(zeros))
    })
}

fn read(input: &mut Input<'_>, sink: &mut dyn Sink) -> Result<Option<String>> {
    let mut lines = Lines::of(input);
    while let Some(line) = lines.next()? {
        if line.bytes.is_empty() {
            sink.separator();
        } else {
            request(line, sink)?;
        }
    }
    Ok(None)
}

fn request(line: Line<'_>, sink: &mut dyn Sink) -> Result<()> {
    let Request { first, blocks, .. } = parse(line.bytes).map_err(line.wrong())?;
    if blocks > REQUEST_BLOCKS_MAX {
        return Err(line.error(format!(
            "a request of more than {REQUEST_BLOCKS_MAX} blocks"
        )));
    }
    let end = first.checked_add(blocks);
    for block in first..end.ok_or_else(|| line.error("blocks above 2^64 - 1"))? {
        sink.key(block, Op::Read)?;
    }
    Ok(())
}

/// A line.
struct Request {
    first: u64,
    blocks: u64,
    other: u64,
    number: u64,
}

fn parse(line: &[u8]) -> Parsed<Request> {
    let [first, blocks, other, number] =
        fields(line, b' ').ok_or("not four numbers: first block, blocks, one more, line")?;
    Ok(Request {
        first: decimal(first)?,
        blocks: decimal(blocks)?,
        other: decimal(other)?,
        number: decimal(number)?,
    })
}
