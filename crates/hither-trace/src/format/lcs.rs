//! libCacheSim's own format, lcs: a header with the statistics of the trace, and packed
//! little-endian records. Three headers have been in use, which begin and end with the same number:
//!
//! - of 8192 bytes, with records of versions 1 to 8;
//! - of 1024 bytes, with records of versions 1 and 2;
//! - of 1024 bytes, with a format string of Python's struct, which describes the records (2024).
//!
//! Each record is one reference to an object of that size. Times and times to live are in
//! seconds. That the header tells the truth is checked where that
//! takes no memory: there are as many records as it says, and each next access is among them.

use hither_core::Op;

use super::reader::{Format, RecordKind};
use crate::error::{Error, Result};
use crate::object_columns::ObjectRequest;
use crate::sink::Sink;
use crate::source::{Head, Input};

/// The entry in the registry.
pub(super) const FORMAT: Format = Format {
    name: "lcs",
    doc: "binary, a header with statistics, then records of versions 1 to 8 (libCacheSim lcs)",
    records: RecordKind::Keys,
    matches: Some(|head: Head<'_>| head.bytes().starts_with(&MAGIC)),
    read,
};

const MAGIC: [u8; 8] = 0x1234_5678_9abc_def0u64.to_le_bytes();
const SHORT_HEADER_BYTES: usize = 1024;
const LONG_HEADER_BYTES: usize = 8192;

/// A little-endian number in a record.
#[derive(Clone, Copy, Debug)]
struct Field {
    at: usize,
    bytes: usize,
    is_signed: bool,
}

/// Where the fields of a record are.
#[derive(Debug)]
struct Layout {
    bytes: usize,
    time: Option<Field>,
    ttl: Option<Field>,
    object: Field,
    size: Option<Field>,
    op: Option<Field>,
    next: Option<Field>,
}

/// What a header says.
struct Header {
    layout: Layout,
    records: u64,
}

fn read(input: &mut Input<'_>, sink: &mut dyn Sink) -> Result<Option<String>> {
    let header = header(input)?;
    let mut count = 0;
    while let Some(found) = input.chunks(header.layout.bytes)? {
        for (at, bytes) in found.records().enumerate() {
            count += 1;
            let record = record(&header, count, bytes);
            let request = record.map_err(|problem| found.error(at, problem))?;
            if header.layout.size.is_some() {
                sink.object(&request)?;
            } else {
                sink.key(request.id, request.op)?;
            }
        }
    }
    if count != header.records {
        let problem = format!("{} records, and {count} follow", header.records);
        return Err(Error::offset(input.path(), 24, problem));
    }
    Ok(None)
}

/// Takes the header from the input.
fn header(input: &mut Input<'_>) -> Result<Header> {
    let short = input.peek(SHORT_HEADER_BYTES)?;
    let is_short = short.ends_with(&MAGIC) && short.len() == SHORT_HEADER_BYTES;
    let bytes = if is_short {
        SHORT_HEADER_BYTES
    } else {
        LONG_HEADER_BYTES
    };
    let found = input.peek(bytes)?;
    let is_whole = found.len() == bytes && found.starts_with(&MAGIC) && found.ends_with(&MAGIC);
    let parsed = if !is_whole {
        Err("not a header of lcs with both of its magic numbers".to_owned())
    } else if is_short && found[8] == b'<' {
        described(found)
    } else {
        versioned(found, if is_short { 2 } else { 8 })
    };
    let header = parsed.map_err(|problem| Error::offset(input.path(), 0, problem))?;
    input.take(bytes);
    Ok(header)
}

/// A header that names the version of the records.
fn versioned(header: &[u8], version_max: u64) -> Result<Header, String> {
    let version = unsigned(header, 8);
    if !(1..=version_max).contains(&version) {
        return Err(format!(
            "records of version {version}, not 1 to {version_max}"
        ));
    }
    let field = |at, bytes, is_signed| Field {
        at,
        bytes,
        is_signed,
    };
    // The features of objects that follow, 4 bytes each.
    let features = match version {
        0..=3 => 0,
        version => 1 << (version - 4),
    };
    let time = Some(field(0, 4, false));
    let layout = match version {
        1 => Layout {
            bytes: 24,
            time,
            ttl: None,
            object: field(4, 8, false),
            size: Some(field(12, 4, false)),
            op: None,
            next: Some(field(16, 8, true)),
        },
        2 => Layout {
            bytes: 28,
            time,
            ttl: None,
            object: field(4, 8, false),
            size: Some(field(12, 4, false)),
            op: Some(field(16, 1, false)),
            next: Some(field(20, 8, true)),
        },
        _ => Layout {
            bytes: 36 + 4 * features,
            time,
            ttl: Some(field(24, 4, true)),
            object: field(4, 8, false),
            size: Some(field(12, 8, true)),
            op: Some(field(20, 1, false)),
            next: Some(field(28, 8, true)),
        },
    };
    Ok(Header {
        layout,
        records: records(header, 24)?,
    })
}

/// A header with a format string.
fn described(header: &[u8]) -> Result<Header, String> {
    let text = &header[9..248];
    let length = text.iter().position(|byte| *byte == 0);
    let text = &text[..length.unwrap_or(text.len())];
    let (mut fields, mut at) = (Vec::new(), 0);
    for kind in text {
        let (bytes, is_signed) = match kind {
            b'c' | b'b' => (1, true),
            b'B' => (1, false),
            b'h' => (2, true),
            b'H' => (2, false),
            b'i' => (4, true),
            b'I' => (4, false),
            b'q' => (8, true),
            b'Q' => (8, false),
            b'f' => (4, false),
            b'd' => (8, false),
            _ => return Err("a format string with another letter than cbBhHiIqQfd".to_owned()),
        };
        fields.push(Field {
            at,
            bytes,
            is_signed,
        });
        at += bytes;
    }
    // Fields are counted from 1.
    let field = |place: usize| match (
        header[place],
        fields.get(usize::from(header[place]).wrapping_sub(1)),
    ) {
        (0, _) => Ok(None),
        (number, None) => Err(format!("field {number} of {}", fields.len())),
        (number, Some(_)) if b"fd".contains(&text[usize::from(number) - 1]) => {
            Err(format!("field {number} is a fraction"))
        }
        (_, Some(field)) => Ok(Some(*field)),
    };
    let word = |at: usize| u64::from(unsigned(header, at) as u32);
    if word(1000) != fields.len() as u64 || word(1004) != at as u64 {
        return Err("a format string of other fields than the header says".to_owned());
    }
    Ok(Header {
        layout: Layout {
            bytes: at,
            time: field(250)?,
            ttl: field(254)?,
            object: field(248)?.ok_or("no field is the object")?,
            size: field(249)?,
            op: field(253)?,
            next: field(252)?,
        },
        records: records(header, 488)?,
    })
}

/// The number of records, which with that of objects begins the statistics.
fn records(header: &[u8], at: usize) -> Result<u64, String> {
    let (records, objects) = (unsigned(header, at), unsigned(header, at + 8));
    if records > i64::MAX as u64 || objects > records {
        return Err(format!("{objects} objects in {records} records"));
    }
    Ok(records)
}

/// What a record says, which is the one of this number, from 1.
fn record(header: &Header, number: u64, bytes: &[u8]) -> Result<ObjectRequest, String> {
    let layout = &header.layout;
    if let Some(size) = layout.size
        && size.is_signed
        && size.signed(bytes) < 0
    {
        return Err(format!("a size of {}", size.signed(bytes)));
    }
    if let Some(field) = layout.next {
        let next = field.signed(bytes);
        let is_none = next == -1 || next == i64::MAX;
        let is_ahead =
            u64::try_from(next).is_ok_and(|next| next > number && next <= header.records);
        if !is_none && !is_ahead {
            return Err(format!("a next access of {next}"));
        }
    }
    let op = match layout.op.map(|op| op.signed(bytes)) {
        // None is known; get, gets, read.
        None | Some(0 | 1 | 2 | 12) => Op::Read,
        Some(9) => Op::Delete,
        // From set to decr, write, update.
        Some(3..=11 | 13 | 14) => Op::Write,
        Some(other) => return Err(format!("an op of {other}")),
    };
    let unsigned = |field: Field| field.signed(bytes).cast_unsigned();
    let time = layout.time.map_or(0, unsigned);
    let ttl = layout
        .ttl
        .map_or(0, |ttl| ttl.signed(bytes).max(0).cast_unsigned());
    Ok(ObjectRequest {
        op,
        time_ns: time.saturating_mul(1_000_000_000),
        ttl_ns: ttl.saturating_mul(1_000_000_000),
        ..ObjectRequest::read(unsigned(layout.object), layout.size.map_or(0, unsigned))
    })
}

impl Field {
    /// Its value, extended to 64 bits.
    fn signed(self, record: &[u8]) -> i64 {
        let mut wide = [0; 8];
        wide[..self.bytes].copy_from_slice(&record[self.at..self.at + self.bytes]);
        let unused = 64 - 8 * self.bytes;
        let value = u64::from_le_bytes(wide) << unused;
        if self.is_signed {
            value.cast_signed() >> unused
        } else {
            (value >> unused).cast_signed()
        }
    }
}

/// The number of 64 bits there.
fn unsigned(bytes: &[u8], at: usize) -> u64 {
    let number = bytes[at..].first_chunk();
    u64::from_le_bytes(*number.expect("a header has it"))
}
