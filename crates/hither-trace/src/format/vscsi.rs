//! VMware's vscsiStats, as libCacheSim reads it: binary little-endian records of SCSI commands. A
//! record of version 1 has 32 bytes, `u32 serial, u32 length, u32 segments, u16 command, u16
//! version, u64 lbn, u64 time`; one of version 2 has 40, `u16 command, u16 version, u32 serial, u32
//! length, u32 segments, u64 lbn, u64 time, u64 response`. The first record has the version of all.
//!
//! There are two ways to read them. As in libCacheSim, and in the reference counts of the
//! CloudPhysics traces, each record of `vscsi` is one reference to its block number, of any length:
//! its content is recognised as that, so that counts are those of other tools. Of `vscsi-requests`
//! each is a request for `length` bytes of a disk at sector `lbn` of 512 bytes, at its time in
//! microseconds: what the disk was asked for.

use hither_core::Op;

use super::reader::{Format, RecordKind};
use crate::error::{Error, Result};
use crate::schema::{AccessRow, ObjectRow, RowOp};
use crate::sink::Sink;
use crate::source::{Head, Input};
use crate::text::SinceFirst;

/// The entry in the registry.
pub(super) const FORMAT: Format = Format {
    name: "vscsi",
    doc: "binary, a SCSI command a record, versions 1 and 2 (VMware vscsiStats, CloudPhysics)",
    records: RecordKind::Keys,
    matches: Some(|head| version_of(head).is_some()),
    read,
};

/// The same records, as requests.
pub(super) const REQUESTS: Format = Format {
    name: "vscsi-requests",
    doc: "the same, as requests for bytes of a disk",
    records: RecordKind::Requests,
    matches: None,
    read: read_requests,
};

const BYTES_1: usize = 32;
const BYTES_2: usize = 40;

/// A command that reads or writes.
struct Command {
    op: Op,
    lbn: u64,
    bytes: u32,
    time_us: u64,
}

#[derive(Clone, Copy)]
enum Version {
    One,
    Two,
}

/// The version, if the beginning is no text and every record there has the version and is a command
/// that moves data.
fn version_of(head: Head<'_>) -> Option<Version> {
    fn all<const N: usize>(
        head: Head<'_>,
        parse: impl Fn(&[u8; N]) -> Result<Command, String>,
    ) -> bool {
        let (records, rest) = head.bytes().as_chunks::<N>();
        let whole = matches!(head, Head::Content { whole: true, .. });
        !records.is_empty()
            && (!whole || rest.is_empty())
            && records.iter().all(|record| parse(record).is_ok())
    }
    if head.is_text() {
        None
    } else if all(head, version_1) {
        Some(Version::One)
    } else {
        all(head, version_2).then_some(Version::Two)
    }
}

fn read(input: &mut Input<'_>, sink: &mut dyn Sink) -> Result<Option<String>> {
    each_command(input, &mut |command| sink.key(command.lbn, command.op))
}

fn read_requests(input: &mut Input<'_>, sink: &mut dyn Sink) -> Result<Option<String>> {
    let (mut disk, mut since) = (None, SinceFirst::default());
    each_command(input, &mut |command| {
        let object = *disk.get_or_insert_with(|| {
            sink.add_object(ObjectRow {
                path: b"disk".to_vec(),
                ..ObjectRow::default()
            })
        });
        sink.request(&AccessRow {
            time_ns: since.ns(command.time_us.saturating_mul(1000)),
            object,
            op: if command.op == Op::Write {
                RowOp::Write
            } else {
                RowOp::Read
            },
            // What is too large for this is refused as a range that no trace can have.
            offset: command.lbn.saturating_mul(512),
            length: command.bytes.into(),
            ..AccessRow::default()
        })
    })
}

/// Hands all commands to `take`. Its errors about a row become ones about a record.
fn each_command(
    input: &mut Input<'_>,
    take: &mut dyn FnMut(Command) -> Result<()>,
) -> Result<Option<String>> {
    let head = input.head()?.bytes();
    // Later damage does not change the version, so only the first record is checked.
    let two = head
        .first_chunk()
        .is_some_and(|record| version_2(record).is_ok())
        && head
            .first_chunk()
            .is_none_or(|record| version_1(record).is_err());
    if two {
        records(input, take, version_2)?;
    } else {
        records(input, take, version_1)?;
    }
    Ok(None)
}

fn records<const N: usize>(
    input: &mut Input<'_>,
    take: &mut dyn FnMut(Command) -> Result<()>,
    parse: impl Fn(&[u8; N]) -> Result<Command, String>,
) -> Result<()> {
    while let Some(found) = input.records::<N>()? {
        for (at, record) in found.records.iter().enumerate() {
            let command = parse(record).map_err(|problem| found.error(at, problem))?;
            take(command).map_err(|error| match error {
                Error::Row { problem, .. } => found.error(at, problem),
                other => other,
            })?;
        }
    }
    Ok(())
}

fn version_1(record: &[u8; BYTES_1]) -> Result<Command, String> {
    let at = Places {
        command: 12,
        version: 14,
        bytes: 4,
    };
    parse(record, at, 1)
}

fn version_2(record: &[u8; BYTES_2]) -> Result<Command, String> {
    let at = Places {
        command: 0,
        version: 2,
        bytes: 8,
    };
    parse(record, at, 2)
}

/// Where the fields of a record are, but for those that are at one place in both versions.
struct Places {
    command: usize,
    version: usize,
    bytes: usize,
}

fn parse(record: &[u8], at: Places, expected: u16) -> Result<Command, String> {
    let word = |at: usize| u16::from_le_bytes([record[at], record[at + 1]]);
    let long = |at: usize| {
        let bytes = record[at..].first_chunk();
        u64::from_le_bytes(*bytes.expect("a record has it"))
    };
    let version = word(at.version);
    if version >> 8 != expected {
        return Err(format!("version {version:#06x}, not {expected}"));
    }
    let op = match word(at.command) {
        // READ and WRITE of 6, 10, 12, 16 bytes, and WRITE AND VERIFY.
        0x08 | 0x28 | 0xa8 | 0x88 => Op::Read,
        0x0a | 0x2a | 0xaa | 0x8a | 0x2e | 0xae | 0x8e => Op::Write,
        other => {
            return Err(format!(
                "SCSI command {other:#04x} neither reads nor writes"
            ));
        }
    };
    Ok(Command {
        op,
        lbn: long(16),
        bytes: long(at.bytes) as u32,
        time_us: long(24),
    })
}
