//! Twitter's cache traces (Yang, Yue, Rashmi, OSDI 2020), one request per line: `timestamp,key,key
//! size,value size,client,op,TTL`. Each line is one reference to its key, of any size. get and gets
//! are reads. All other ops change the key and are writes, including delete.

use hither_core::Op;

use super::reader::{Format, RecordKind};
use crate::error::Result;
use crate::per_line;
use crate::sink::Sink;
use crate::source::Input;
use crate::text::{Parsed, decimal, key};

/// The entry in the registry.
pub(super) const FORMAT: Format = Format {
    name: "twitter",
    doc: "CSV, `timestamp,key,key size,value size,client,op,TTL` (Twitter cache traces, OSDI 2020)",
    records: RecordKind::Keys,
    matches: Some(|head| head.lines().next().is_some_and(|line| parse(line).is_ok())),
    read,
};

fn read(input: &mut Input<'_>, sink: &mut dyn Sink) -> Result<Option<String>> {
    per_line::keys(input, sink, parse)
}

fn parse(line: &[u8]) -> Parsed<(u64, Op)> {
    const SHAPE: &str = "not `timestamp,key,key size,value size,client,op,TTL`";
    // A key may contain commas, so the fields after it are counted from the end.
    let (time, rest) = split(line, memchr::memchr).ok_or(SHAPE)?;
    let (rest, ttl) = split(rest, memchr::memrchr).ok_or(SHAPE)?;
    let (rest, op) = split(rest, memchr::memrchr).ok_or(SHAPE)?;
    let (rest, client) = split(rest, memchr::memrchr).ok_or(SHAPE)?;
    let (rest, value_bytes) = split(rest, memchr::memrchr).ok_or(SHAPE)?;
    let (name, key_bytes) = split(rest, memchr::memrchr).ok_or(SHAPE)?;
    for number in [time, key_bytes, value_bytes, client, ttl] {
        decimal(number.trim_ascii())?;
    }
    let op = match op.trim_ascii() {
        b"get" | b"gets" => Op::Read,
        b"set" | b"add" | b"replace" | b"cas" | b"append" | b"prepend" | b"delete" | b"incr"
        | b"decr" => Op::Write,
        _ => return Err("an unknown op"),
    };
    match name.trim_ascii() {
        b"" => Err("no key"),
        name => Ok((key(name), op)),
    }
}

/// The text before and after the comma that `find` finds.
fn split(line: &[u8], find: fn(u8, &[u8]) -> Option<usize>) -> Option<(&[u8], &[u8])> {
    let comma = find(b',', line)?;
    Some((&line[..comma], &line[comma + 1..]))
}
