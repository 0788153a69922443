//! The disk traces of the ARC authors (Megiddo and Modha, FAST 2003), `.lis`: `first n x line`, a
//! line for a request of `n` blocks from `first` on. The third field is 0 in some traces and a
//! count in others; the last numbers the lines. Neither says what was referred to.

use hither_core::Op;

use crate::error::Result;
use crate::format::{Format, Records};
use crate::sink::Sink;
use crate::source::Input;
use crate::text::{Line, Lines, Parsed, decimal, fields};

/// The entry in the registry.
pub(super) const FORMAT: Format = Format {
    name: "arc",
    doc: "text, `first_block blocks x line` a request (ARC authors, .lis)",
    records: Records::Keys,
    matches: Some(|head| {
        let mut lines = head.lines().filter(|line| !line.is_empty()).peekable();
        lines.peek().is_some() && lines.all(|line| parse(line).is_ok())
    }),
    read,
};

/// As many blocks as one request may have: 32 MiB of 512-byte blocks. The traces of the paper stop
/// at 128; a line that claims 2^60 is damaged, and believing it would fill the memory.
const BLOCKS_MAX: u64 = 1 << 16;

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
    if blocks > BLOCKS_MAX {
        return Err(line.error(format!("a request of more than {BLOCKS_MAX} blocks")));
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
