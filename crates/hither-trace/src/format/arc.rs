//! The disk traces of the ARC authors (Megiddo and Modha, FAST 2003), `.lis`: a line `first n x
//! line` per request of `n` blocks from `first` on. The third field is 0 or a count, the last one
//! is the number of the line. Both are ignored.

use hither_core::Op;

use super::reader::{Format, RecordKind};
use crate::error::Result;
use crate::sink::Sink;
use crate::source::Input;
use crate::text::{Line, Lines, Parsed, decimal, fields};

/// The entry in the registry.
pub(super) const FORMAT: Format = Format {
    name: "arc",
    doc: "text, `first_block blocks x line` a request (ARC authors, .lis)",
    records: RecordKind::Keys,
    matches: Some(|head| {
        let mut lines = head.lines().filter(|line| !line.is_empty()).peekable();
        lines.peek().is_some() && lines.all(|line| parse(line).is_ok())
    }),
    read,
};

/// The largest number of blocks of a request: 32 MiB of blocks of 512 bytes. The traces of the
/// paper have at most 128. A line that claims 2^60 is damaged, and would fill the memory.
const REQUEST_BLOCKS_MAX: u64 = 1 << 16;

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
    let (first, blocks) = parse(line.bytes).map_err(line.wrong())?;
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

fn parse(line: &[u8]) -> Parsed<(u64, u64)> {
    let [first, blocks, other, number] =
        fields(line, b' ').ok_or("not four numbers: first block, blocks, one more, line")?;
    decimal(other)?;
    decimal(number)?;
    Ok((decimal(first)?, decimal(blocks)?))
}
