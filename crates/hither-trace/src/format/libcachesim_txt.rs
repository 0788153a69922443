//! libCacheSim's plain text: one key a line, a decimal number or any other text. Blank lines
//! separate.
//!
//! Not recognised by content: `lirs` reads numbers in the same way, and any other text is a valid
//! key.

use hither_core::Op;

use super::reader::{Format, RecordKind};
use crate::error::Result;
use crate::per_line;
use crate::sink::Sink;
use crate::source::Input;
use crate::text::key;

/// The entry in the registry.
pub(super) const FORMAT: Format = Format {
    name: "libcachesim-txt",
    doc: "text, one key a line, a number or any text (libCacheSim txt)",
    records: RecordKind::Keys,
    matches: None,
    read,
};

fn read(input: &mut Input<'_>, sink: &mut dyn Sink) -> Result<Option<String>> {
    per_line::keys(input, sink, |line| Ok((key(line), Op::Read)))
}
