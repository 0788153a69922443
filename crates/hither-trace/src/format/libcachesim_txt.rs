//! libCacheSim's plain text: one key a line, a decimal number or any other text. Blank lines
//! separate.
//!
//! Not recognised by content: `lirs` reads numbers in the same way, and any other text is a valid
//! key.

use hither_core::Op;

use super::reader::{Format, RecordKind};
use crate::error::Result;
use crate::sink::Sink;
use crate::source::Input;
use crate::text::{Lines, key};

/// The entry in the registry.
pub(super) const FORMAT: Format = Format {
    name: "libcachesim-txt",
    doc: "text, one key a line, a number or any text (libCacheSim txt)",
    records: RecordKind::Keys,
    matches: None,
    read,
};

fn read(input: &mut Input<'_>, sink: &mut dyn Sink) -> Result<Option<String>> {
    let mut lines = Lines::of(input);
    while let Some(line) = lines.next()? {
        if line.bytes.is_empty() {
            sink.separator();
        } else {
            sink.key(key(line.bytes), Op::Read)?;
        }
    }
    Ok(None)
}
