//! Memory traces of SPEC programs from UCSD, in the format of Caffeine's simulator: `l 0x1fffff58
//! 1`, a load or store, a byte address, and the instructions since the last one. An address becomes
//! the block that contains it.
//!
//! Successive accesses to one block are not merged: they are accesses to memory.

use hither_core::Op;

use super::reader::{Format, RecordKind};
use crate::error::Result;
use crate::sink::Sink;
use crate::source::Input;
use crate::text::{Lines, Parsed, decimal, fields, hexadecimal};

/// The entry in the registry.
pub(super) const FORMAT: Format = Format {
    name: "address",
    doc: "text, `l|s 0xADDRESS gap` a load or store; --block makes blocks of addresses (UCSD)",
    records: RecordKind::Keys,
    matches: Some(|head| {
        let mut lines = head.lines().filter(|line| !line.is_empty());
        lines.next().is_some_and(|line| parse(line).is_ok())
    }),
    read,
};

fn read(input: &mut Input<'_>, sink: &mut dyn Sink) -> Result<Option<String>> {
    let block_bytes = u64::from(sink.block_bytes());
    let mut lines = Lines::of(input);
    while let Some(line) = lines.next()? {
        if line.bytes.is_empty() {
            sink.separator();
            continue;
        }
        let (op, address) = parse(line.bytes).map_err(line.wrong())?;
        sink.key(address / block_bytes, op)?;
    }
    Ok(None)
}

fn parse(line: &[u8]) -> Parsed<(Op, u64)> {
    let [op, address, gap] = fields(line, b' ').ok_or("not `l|s 0xADDRESS gap`")?;
    let op = match op {
        b"l" => Op::Read,
        b"s" => Op::Write,
        _ => return Err("neither a load (l) nor a store (s)"),
    };
    if !address.starts_with(b"0x") {
        return Err("an address begins with 0x");
    }
    decimal(gap)?;
    Ok((op, hexadecimal(address)?))
}
