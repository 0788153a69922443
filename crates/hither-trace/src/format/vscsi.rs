//! VMware's vscsiStats, as libCacheSim reads it: binary little-endian records of SCSI commands. A
//! record of version 1 has 32 bytes, `u32 serial, u32 length, u32 segments, u16 command, u16
//! version, u64 lbn, u64 time`; one of version 2 has 40, `u16 command, u16 version, u32 serial, u32
//! length, u32 segments, u64 lbn, u64 time, u64 response`. The first record has the version of all.
//!
//! As in libCacheSim, and in the reference counts of the CloudPhysics traces, each record is one
//! reference to its block number, of any length.

use hither_core::Op;

use super::reader::{Format, RecordKind};
use crate::error::Result;
use crate::sink::Sink;
use crate::source::{Head, Input};

/// The entry in the registry.
pub(super) const FORMAT: Format = Format {
    name: "vscsi",
    doc: "binary, a SCSI command a record, versions 1 and 2 (VMware vscsiStats, CloudPhysics)",
    records: RecordKind::Keys,
    matches: Some(|head| version_of(head).is_some()),
    read,
};

const BYTES_1: usize = 32;
const BYTES_2: usize = 40;

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
        parse: impl Fn(&[u8; N]) -> Result<(u64, Op), String>,
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
    let head = input.head()?.bytes();
    // Later damage does not change the version, so only the first record is checked.
    let two = head
        .first_chunk()
        .is_some_and(|record| version_2(record).is_ok())
        && head
            .first_chunk()
            .is_none_or(|record| version_1(record).is_err());
    if two {
        records(input, sink, version_2)?;
    } else {
        records(input, sink, version_1)?;
    }
    Ok(None)
}

fn records<const N: usize>(
    input: &mut Input<'_>,
    sink: &mut dyn Sink,
    parse: impl Fn(&[u8; N]) -> Result<(u64, Op), String>,
) -> Result<()> {
    while let Some(found) = input.records::<N>()? {
        for (at, record) in found.records.iter().enumerate() {
            let (lbn, op) = parse(record).map_err(|problem| found.error(at, problem))?;
            sink.key(lbn, op)?;
        }
    }
    Ok(())
}

fn version_1(record: &[u8; BYTES_1]) -> Result<(u64, Op), String> {
    parse(record, 12, 14, 16, 1)
}

fn version_2(record: &[u8; BYTES_2]) -> Result<(u64, Op), String> {
    parse(record, 0, 2, 16, 2)
}

/// Block number and op of a record with its fields at these places.
fn parse(
    record: &[u8],
    command: usize,
    version: usize,
    lbn: usize,
    expected: u16,
) -> Result<(u64, Op), String> {
    let word = |at: usize| u16::from_le_bytes([record[at], record[at + 1]]);
    let version = word(version);
    if version >> 8 != expected {
        return Err(format!("version {version:#06x}, not {expected}"));
    }
    let op = match word(command) {
        // READ and WRITE of 6, 10, 12, 16 bytes, and WRITE AND VERIFY.
        0x08 | 0x28 | 0xa8 | 0x88 => Op::Read,
        0x0a | 0x2a | 0xaa | 0x8a | 0x2e | 0xae | 0x8e => Op::Write,
        other => {
            return Err(format!(
                "SCSI command {other:#04x} neither reads nor writes"
            ));
        }
    };
    let lbn = record[lbn..]
        .first_chunk()
        .expect("a record has a block number");
    Ok((u64::from_le_bytes(*lbn), op))
}
