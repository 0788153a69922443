//! The block traces of MSR Cambridge (Narayanan et al., FAST 2008), one request per line:
//! `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`. A disk of a host is an object.
//! Offset and size are in bytes. Times are Windows file times (units of 100 ns), and the first one
//! is the start of the trace.

use rustc_hash::FxHashMap;

use super::reader::{Format, RecordKind};
use crate::error::Result;
use crate::schema::{AccessRow, ObjectRow, RowOp};
use crate::sink::Sink;
use crate::source::Input;
use crate::text::{Lines, Parsed, decimal, fields};

/// The entry in the registry.
pub(super) const FORMAT: Format = Format {
    name: "msr",
    doc: "CSV, `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime` (MSR Cambridge)",
    records: RecordKind::Requests,
    matches: Some(|head| {
        let mut lines = head.lines().filter(|line| !is_header(line));
        lines.next().is_some_and(|line| parse(line).is_ok())
    }),
    read,
};

const FILE_TIME_UNIT_NS: u64 = 100;

/// A request on a disk of a host.
struct DiskRequest<'l> {
    file_time: u64,
    host: &'l [u8],
    disk: u64,
    row: AccessRow,
}

fn read(input: &mut Input<'_>, sink: &mut dyn Sink) -> Result<Option<String>> {
    let mut hosts: FxHashMap<Vec<u8>, FxHashMap<u64, u32>> = FxHashMap::default();
    let mut start = None;
    let mut lines = Lines::of(input);
    while let Some(line) = lines.next()? {
        if line.bytes.is_empty() || is_header(line.bytes) {
            sink.separator();
            continue;
        }
        let record = parse(line.bytes).map_err(line.wrong())?;
        let DiskRequest { host, disk, .. } = record;
        let start = *start.get_or_insert(record.file_time);
        let time_ns = record.file_time.saturating_sub(start);
        let time_ns = time_ns.saturating_mul(FILE_TIME_UNIT_NS);
        let known = hosts.get(host).and_then(|disks| disks.get(&disk));
        let object = known.copied().unwrap_or_else(|| {
            let object = sink.add_object(ObjectRow {
                path: [host, format!(" disk {disk}").as_bytes()].concat(),
                first_seen_ns: time_ns,
                ..ObjectRow::default()
            });
            hosts
                .entry(host.to_owned())
                .or_default()
                .insert(disk, object);
            object
        });
        let row = AccessRow {
            object,
            time_ns,
            ..record.row
        };
        sink.request(&row).map_err(line.place())?;
    }
    Ok(None)
}

fn is_header(line: &[u8]) -> bool {
    const FIRST: &[u8] = b"timestamp,";
    line.get(..FIRST.len())
        .is_some_and(|begins| begins.eq_ignore_ascii_case(FIRST))
}

fn parse(line: &[u8]) -> Parsed<DiskRequest<'_>> {
    let [time, host, disk, op, offset, length, response] = fields(line, b',')
        .ok_or("not `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`")?;
    decimal(response)?;
    let op = match op {
        _ if op.eq_ignore_ascii_case(b"read") => RowOp::Read,
        _ if op.eq_ignore_ascii_case(b"write") => RowOp::Write,
        _ => return Err("a type other than Read and Write"),
    };
    let row = AccessRow {
        op,
        offset: decimal(offset)?,
        length: decimal(length)?,
        ..AccessRow::default()
    };
    Ok(DiskRequest {
        file_time: decimal(time)?,
        host,
        disk: decimal(disk)?,
        row,
    })
}
