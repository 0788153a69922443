//! The requests of web caches as webcachesim, LRB and AdaptSize read them: `time id size`, and in
//! webcachesim's second version more numbers, the features of an object. Each line is one
//! reference, of any size.
//!
//! Three numbers show nothing, so the format must be named.

use hither_core::Op;

use super::reader::{Format, RecordKind};
use crate::error::Result;
use crate::per_line;
use crate::sink::Sink;
use crate::source::Input;
use crate::text::{Parsed, decimal, fractional};

/// The entry in the registry.
pub(super) const FORMAT: Format = Format {
    name: "webcachesim",
    doc: "text, `time id size [feature ...]` (webcachesim, LRB, AdaptSize)",
    records: RecordKind::Keys,
    matches: None,
    read,
};

fn read(input: &mut Input<'_>, sink: &mut dyn Sink) -> Result<Option<String>> {
    per_line::keys(input, sink, |line| Ok((parse(line)?, Op::Read)))
}

fn parse(line: &[u8]) -> Parsed<u64> {
    let words = line.split(u8::is_ascii_whitespace);
    let mut words = words.filter(|word| !word.is_empty());
    let mut word = || words.next().ok_or("not `time id size`");
    let (time, object, size) = (word()?, word()?, word()?);
    fractional(time)?;
    decimal(size)?;
    words.try_for_each(|feature| fractional(feature).map(|_| ()))?;
    decimal(object)
}
