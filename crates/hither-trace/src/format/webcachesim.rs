//! The requests of web caches as webcachesim, LRB and AdaptSize read them: `time id size`, and in
//! webcachesim's second version more numbers, the features of an object. Each line is one
//! reference to an object of that size. Times are in seconds.
//!
//! Three numbers show nothing, so the format must be named.

use super::reader::{Format, RecordKind};
use crate::error::Result;
use crate::object_columns::ObjectRequest;
use crate::per_line;
use crate::sink::Sink;
use crate::source::Input;
use crate::text::{Parsed, decimal, fractional, seconds};

/// The entry in the registry.
pub(super) const FORMAT: Format = Format {
    name: "webcachesim",
    doc: "text, `time id size [feature ...]` (webcachesim, LRB, AdaptSize)",
    records: RecordKind::Keys,
    matches: None,
    read,
};

fn read(input: &mut Input<'_>, sink: &mut dyn Sink) -> Result<Option<String>> {
    per_line::objects(input, sink, parse)
}

fn parse(line: &[u8]) -> Parsed<ObjectRequest> {
    let words = line.split(u8::is_ascii_whitespace);
    let mut words = words.filter(|word| !word.is_empty());
    let mut word = || words.next().ok_or("not `time id size`");
    let (time, object, size) = (word()?, word()?, word()?);
    let time_ns = seconds(time)?;
    let bytes = decimal(size)?;
    words.try_for_each(|feature| fractional(feature).map(|_| ()))?;
    Ok(ObjectRequest {
        time_ns,
        ..ObjectRequest::read(decimal(object)?, bytes)
    })
}
