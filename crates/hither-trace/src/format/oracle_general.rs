//! libCacheSim's oracleGeneral: packed little-endian records of 24 bytes, `u32 time, u64 object,
//! u32 size, i64 next`. `next` is the number, from 1, of the next record of the object; -1 (in some
//! tools the largest number) if there is none.
//!
//! Each record is one reference to an object of that size. Times are in seconds. Next uses are
//! computed from the references, so a wrong `next` has no effect.

use super::reader::{Format, RecordKind};
use crate::error::Result;
use crate::object_columns::ObjectRequest;
use crate::sink::Sink;
use crate::source::{Head, Input};

/// The entry in the registry.
pub(super) const FORMAT: Format = Format {
    name: "oracle-general",
    doc: "binary, 24 bytes a record with time, object, size, next access (libCacheSim \
          oracleGeneral)",
    records: RecordKind::Keys,
    matches: Some(matches),
    read,
};

const RECORD_BYTES: usize = 24;

/// More records than any trace has: 2^40 are 24 TiB.
const TRACE_RECORDS_MAX: usize = 1 << 40;

struct Record {
    time: u32,
    object: u64,
    bytes: u32,
    next: i64,
}

impl Record {
    fn of(bytes: &[u8; RECORD_BYTES]) -> Record {
        let [time, low, high, size, next_low, next_high] = *bytes.as_chunks::<4>().0 else {
            unreachable!("24 bytes are six words");
        };
        let [time, low, high, bytes, next_low, next_high] =
            [time, low, high, size, next_low, next_high].map(u32::from_le_bytes);
        let wide = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
        Record {
            time,
            object: wide(low, high),
            bytes,
            next: wide(next_low, next_high).cast_signed(),
        }
    }
}

/// Accepts the beginning if it is no text, times do not decrease, and each next access lies ahead
/// and, where it is visible, is to the same object. Lines of text of 24 bytes, or of 8, meet the
/// rest: as a number, text is a next access far ahead.
fn matches(head: Head<'_>) -> bool {
    let records: Vec<Record> = head.bytes().as_chunks().0.iter().map(Record::of).collect();
    let (whole, records_max) = match head {
        Head::Content { bytes, whole: true } => (bytes.len() % RECORD_BYTES == 0, records.len()),
        _ => (true, TRACE_RECORDS_MAX),
    };
    let sound = |(at, record): (usize, &Record)| match record.next {
        -1 | i64::MAX => true,
        next => usize::try_from(next).is_ok_and(|next| {
            next > at + 1
                && next <= records_max
                && records
                    .get(next - 1)
                    .is_none_or(|later| later.object == record.object)
        }),
    };
    whole
        && !head.is_text()
        && !records.is_empty()
        && records.is_sorted_by_key(|record| record.time)
        && records.iter().enumerate().all(sound)
}

fn read(input: &mut Input<'_>, sink: &mut dyn Sink) -> Result<Option<String>> {
    while let Some(found) = input.records::<RECORD_BYTES>()? {
        for (at, bytes) in found.records.iter().enumerate() {
            let record = Record::of(bytes);
            // This field detects damage first, since few of its values are valid.
            if record.next < -1 || record.next == 0 {
                let problem = format!("a next access of {}", record.next);
                return Err(found.error(at, problem));
            }
            sink.object(&ObjectRequest {
                time_ns: u64::from(record.time) * 1_000_000_000,
                ..ObjectRequest::read(record.object, record.bytes.into())
            })?;
        }
    }
    Ok(None)
}
