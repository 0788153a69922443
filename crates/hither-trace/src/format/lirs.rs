//! The text traces of the LIRS authors (Jiang and Zhang, SIGMETRICS 2002): one decimal block number a line. Blank
//! lines and lines with a lone `*` separate. Line ends may be CRLF, and the file may be gzipped.
//!
//! Each line is a reference as it stands: whatever merging there was to do happened when the trace was recorded.

use std::io::{BufRead, Read};
use std::path::Path;

use crate::error::{Error, Result};
use crate::format::Format;
use crate::load::Builder;
use crate::source::{self, Head};

/// The entry in the registry.
pub(super) const FORMAT: Format = Format {
    name: "lirs",
    doc: "text, one decimal block number a line, plain or gzip (LIRS authors)",
    matches,
    read,
};

/// The longest line that is looked at. No valid line has more than 20 digits; without a bound, a binary file
/// without line ends would be one line of the whole file.
const LINE_BYTES_MAX: u64 = 256;
/// How much of a bad line an error shows.
const SHOWN_CHARS: usize = 40;

/// What a line says.
enum Line {
    Block(u64),
    Separator,
}

fn matches(head: &Head) -> bool {
    let Head::File(bytes) = head else {
        return false;
    };
    // The first line with a block number decides; if junk follows, the reader names its line.
    let mut lines = bytes.split(|byte| *byte == b'\n').map(parse);
    lines
        .find(|line| !matches!(line, Ok(Line::Separator)))
        .is_some_and(|line| line.is_ok())
}

fn read(path: &Path, builder: &mut Builder) -> Result<String> {
    let mut input = source::open(path)?;
    let mut bytes = Vec::new();
    for number in 1.. {
        bytes.clear();
        let length = input
            .by_ref()
            .take(LINE_BYTES_MAX)
            .read_until(b'\n', &mut bytes)
            .map_err(Error::io(path))?;
        if length == 0 {
            break;
        }
        match parse(&bytes) {
            Ok(Line::Block(id)) => builder.block(id)?,
            Ok(Line::Separator) => builder.separator(),
            Err(problem) => {
                let text = String::from_utf8_lossy(bytes.trim_ascii_end())
                    .chars()
                    .take(SHOWN_CHARS)
                    .collect();
                return Err(Error::Line {
                    path: path.to_owned(),
                    line: number,
                    problem,
                    text,
                });
            }
        }
    }
    source::sha256_of_file(path)
}

fn parse(line: &[u8]) -> Result<Line, &'static str> {
    let line = line.trim_ascii();
    if line.is_empty() || line == b"*" {
        return Ok(Line::Separator);
    }
    let mut id = 0u64;
    for byte in line {
        if !byte.is_ascii_digit() {
            return Err("not a block number");
        }
        let digit = u64::from(byte - b'0');
        id = id
            .checked_mul(10)
            .and_then(|id| id.checked_add(digit))
            .ok_or("block number above 2^64 - 1")?;
    }
    Ok(Line::Block(id))
}
