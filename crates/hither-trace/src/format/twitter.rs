//! Twitter's cache traces (Yang, Yue, Rashmi, OSDI 2020), one request per line: `timestamp,key,key
//! size,value size,client,op,TTL`. Each line is one reference to an object, of the bytes of the key
//! and of the value. Times are in seconds. get and gets are reads; delete is a delete; all other
//! ops are writes, and have a TTL where it is not 0.

use hither_core::Op;

use super::reader::{Format, RecordKind};
use crate::error::Result;
use crate::object_columns::ObjectRequest;
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
    per_line::objects(input, sink, parse)
}

fn parse(line: &[u8]) -> Parsed<ObjectRequest> {
    const SHAPE: &str = "not `timestamp,key,key size,value size,client,op,TTL`";
    // A key may contain commas, so the fields after it are counted from the end.
    let (time, rest) = split(line, memchr::memchr).ok_or(SHAPE)?;
    let (rest, ttl) = split(rest, memchr::memrchr).ok_or(SHAPE)?;
    let (rest, op) = split(rest, memchr::memrchr).ok_or(SHAPE)?;
    let (rest, client) = split(rest, memchr::memrchr).ok_or(SHAPE)?;
    let (rest, value_bytes) = split(rest, memchr::memrchr).ok_or(SHAPE)?;
    let (name, key_bytes) = split(rest, memchr::memrchr).ok_or(SHAPE)?;
    let number = |text: &[u8]| decimal(text.trim_ascii());
    number(client)?;
    let seconds = |text: &[u8]| number(text).map(|s| s.saturating_mul(1_000_000_000));
    let op = match op.trim_ascii() {
        b"get" | b"gets" => Op::Read,
        b"set" | b"add" | b"replace" | b"cas" | b"append" | b"prepend" | b"incr" | b"decr" => {
            Op::Write
        }
        b"delete" => Op::Delete,
        _ => return Err("an unknown op"),
    };
    match name.trim_ascii() {
        b"" => Err("no key"),
        name => Ok(ObjectRequest {
            op,
            time_ns: seconds(time)?,
            ttl_ns: seconds(ttl)?,
            ..ObjectRequest::read(
                key(name),
                number(key_bytes)?.saturating_add(number(value_bytes)?),
            )
        }),
    }
}

/// The text before and after the comma that `find` finds.
fn split(line: &[u8], find: fn(u8, &[u8]) -> Option<usize>) -> Option<(&[u8], &[u8])> {
    let comma = find(b',', line)?;
    Some((&line[..comma], &line[comma + 1..]))
}
