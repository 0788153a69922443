//! Bare binary keys, one per reference: 32 or 64 bits, big- or little-endian. The cache2k traces
//! are `u32be`, the corda traces `u64be`. The content cannot be recognised, so these formats must
//! be named.

use hither_core::Op;

use super::reader::{Format, RecordKind};
use crate::error::Result;
use crate::sink::Sink;
use crate::source::Input;

/// 32 bits, big-endian.
pub(super) const U32BE: Format = format(
    "u32be",
    "binary, one 32-bit big-endian key a reference (cache2k)",
    |input, sink| read(input, sink, |key| u32::from_be_bytes(key).into()),
);

/// 32 bits, little-endian.
pub(super) const U32LE: Format = format(
    "u32le",
    "binary, one 32-bit little-endian key a reference",
    |input, sink| read(input, sink, |key| u32::from_le_bytes(key).into()),
);

/// 64 bits, big-endian.
pub(super) const U64BE: Format = format(
    "u64be",
    "binary, one 64-bit big-endian key a reference (corda)",
    |input, sink| read(input, sink, u64::from_be_bytes),
);

/// 64 bits, little-endian.
pub(super) const U64LE: Format = format(
    "u64le",
    "binary, one 64-bit little-endian key a reference",
    |input, sink| read(input, sink, u64::from_le_bytes),
);

const fn format(
    name: &'static str,
    doc: &'static str,
    read: fn(&mut Input<'_>, &mut dyn Sink) -> Result<Option<String>>,
) -> Format {
    Format {
        name,
        doc,
        records: RecordKind::Keys,
        matches: None,
        read,
    }
}

fn read<const N: usize>(
    input: &mut Input<'_>,
    sink: &mut dyn Sink,
    number: impl Fn([u8; N]) -> u64,
) -> Result<Option<String>> {
    while let Some(found) = input.records::<N>()? {
        for &key in found.records {
            sink.key(number(key), Op::Read)?;
        }
    }
    Ok(None)
}
