//! Lines of delimited text, of which some columns make a reference.
//!
//! Fields are separated by one character, or by white space. A field in quotation marks may have
//! separators in it, and a mark as two (RFC 4180), but no end of a line.

use hither_core::Op;

use crate::error::Result;
use crate::object_columns::ObjectRequest;
use crate::sink::Sink;
use crate::text::{Line, Lines, Parsed, decimal, fractional, hexadecimal, key, seconds};

/// The separators that are looked for where none is named, in this order.
pub(crate) const SEPARATORS: &[u8] = b",;\t|";

/// The separator that stands for any white space.
pub(crate) const WHITE_SPACE: u8 = b' ';

/// The most references of a line. CacheLib counts those of a second. A line that claims 2^60 is
/// damaged, and would fill the memory.
const REPEATS_MAX: u64 = 1 << 24;

/// The columns that matter, counted from 0.
#[derive(Debug)]
pub(crate) struct Columns {
    pub(crate) separator: u8,
    /// How many there are. Each line has as many.
    pub(crate) count: usize,
    pub(crate) object: usize,
    /// Whether an object is a hexadecimal number. Otherwise it is any text.
    pub(crate) hexadecimal: bool,
    pub(crate) time: Option<usize>,
    pub(crate) size: Option<usize>,
    pub(crate) ttl: Option<usize>,
    pub(crate) cost: Option<usize>,
    pub(crate) op: Option<usize>,
    /// How many references a line stands for.
    pub(crate) repeats: Option<usize>,
}

/// A line: so many references to an object.
struct Record {
    /// Whether the field of the object is not empty.
    is_named: bool,
    request: ObjectRequest,
    repeats: u64,
}

impl Columns {
    /// Reads all further lines.
    pub(crate) fn read(&self, mut lines: Lines<'_, '_>, sink: &mut dyn Sink) -> Result<()> {
        while let Some(line) = lines.next()? {
            self.line(line, sink)?;
        }
        Ok(())
    }

    /// Reads a line.
    pub(crate) fn line(&self, line: Line<'_>, sink: &mut dyn Sink) -> Result<()> {
        if line.bytes.is_empty() {
            sink.separator();
            return Ok(());
        }
        let record = self.record(line)?;
        if !record.is_named {
            return Err(line.error("no object"));
        }
        let request = &record.request;
        for _ in 0..record.repeats {
            match self.size {
                Some(_) => sink.object(request)?,
                None => sink.key(request.id, request.op)?,
            }
        }
        Ok(())
    }

    fn record(&self, line: Line<'_>) -> Result<Record> {
        let mut record = Record {
            is_named: false,
            request: ObjectRequest::read(0, 0),
            repeats: 1,
        };
        let mut count = 0;
        let take = |field: &[u8]| {
            self.take(count, field, &mut record)?;
            count += 1;
            Ok(())
        };
        for_each_field(line, self.separator, take).map_err(line.wrong())?;
        if count != self.count {
            return Err(line.error(format!("{count} fields, not {}", self.count)));
        }
        if record.repeats > REPEATS_MAX {
            return Err(line.error(format!("more than {REPEATS_MAX} references")));
        }
        Ok(record)
    }

    /// Takes in the field in this place.
    fn take(&self, place: usize, field: &[u8], record: &mut Record) -> Parsed<()> {
        let at = Some(place);
        if place == self.object {
            if !field.is_empty() {
                record.is_named = true;
                record.request.id = if self.hexadecimal {
                    hexadecimal(field)?
                } else {
                    key(field)
                };
            }
        } else if at == self.op {
            record.request.op = parse_op(field)?;
        } else if at == self.repeats {
            record.repeats = decimal(field)?;
        } else if at == self.time {
            // If this column is not a number, all columns are wrong, also where no time is needed.
            record.request.time_ns = seconds(field)?;
        } else if at == self.size {
            record.request.bytes = fractional(field)?.0;
        } else if at == self.ttl {
            record.request.ttl_ns = seconds(field)?;
        } else if at == self.cost {
            let cost = str::from_utf8(field)
                .ok()
                .and_then(|text| text.parse().ok());
            let cost = cost.filter(|cost: &f32| cost.is_finite() && *cost >= 0.0);
            record.request.cost = cost.ok_or("a cost that is no number of at least 0")?;
        }
        Ok(())
    }
}

/// Hands the fields of a line to `take`.
pub(crate) fn for_each_field(
    line: Line<'_>,
    separator: u8,
    mut take: impl FnMut(&[u8]) -> Parsed<()>,
) -> Parsed<()> {
    // The last fields may be empty between tabs.
    let text = match separator {
        b'\t' => line.untrimmed(),
        _ => line.bytes,
    };
    if memchr::memchr(b'"', text).is_some() {
        let fields = quoted_fields(text, separator)?;
        fields.iter().try_for_each(|field| take(field))
    } else if separator == WHITE_SPACE {
        let mut words = text.split(u8::is_ascii_whitespace);
        words.try_for_each(|word| if word.is_empty() { Ok(()) } else { take(word) })
    } else {
        let mut fields = text.split(|byte| *byte == separator);
        fields.try_for_each(|field| take(field.trim_ascii()))
    }
}

/// The fields of a line of which some are in quotation marks.
fn quoted_fields(line: &[u8], separator: u8) -> Parsed<Vec<Vec<u8>>> {
    let of_space = separator == WHITE_SPACE;
    let separates = |byte: u8| byte == separator || of_space && byte.is_ascii_whitespace();
    // The white space before a field, or behind a quoted one.
    let padding = |text: &[u8]| {
        let is_padding =
            |byte: &&u8| byte.is_ascii_whitespace() && (of_space || !separates(**byte));
        text.iter().take_while(is_padding).count()
    };
    let mut fields = Vec::new();
    let mut rest = line;
    loop {
        let field = &rest[padding(rest)..];
        let (content, after) = match field.strip_prefix(b"\"") {
            Some(quoted) => unquoted(quoted)?,
            None => {
                let end = field.iter().position(|byte| separates(*byte));
                let (content, after) = field.split_at(end.unwrap_or(field.len()));
                (content.trim_ascii_end().to_owned(), after)
            }
        };
        fields.push(content);
        let after = if of_space {
            after
        } else {
            &after[padding(after)..]
        };
        rest = match after.split_first() {
            None => return Ok(fields),
            Some((&first, rest)) if separates(first) => rest,
            Some(_) => return Err("text behind a quotation mark"),
        };
        if of_space && rest.trim_ascii().is_empty() {
            return Ok(fields);
        }
    }
}

/// The text up to the closing mark, and what follows that.
fn unquoted(mut rest: &[u8]) -> Parsed<(Vec<u8>, &[u8])> {
    let mut content = Vec::new();
    loop {
        let mark = memchr::memchr(b'"', rest).ok_or("a quotation mark without its other")?;
        content.extend_from_slice(&rest[..mark]);
        rest = &rest[mark + 1..];
        match rest.strip_prefix(b"\"") {
            Some(after) => {
                content.push(b'"');
                rest = after;
            }
            None => return Ok((content, rest)),
        }
    }
}

fn parse_op(field: &[u8]) -> Parsed<Op> {
    const READS: &[&str] = &[
        "r",
        "read",
        "rs",
        "get",
        "gets",
        "28",
        "8",
        "08",
        "88",
        "a8",
        "get_lease",
    ];
    const WRITES: &[&str] = &[
        "w",
        "write",
        "ws",
        "set",
        "put",
        "2a",
        "a",
        "0a",
        "8a",
        "aa",
        "add",
        "replace",
        "cas",
        "append",
        "prepend",
        "incr",
        "decr",
        "set_lease",
    ];
    const DELETES: &[&str] = &["delete", "remove"];
    let among = |known: &[&str]| {
        let mut known = known.iter().map(|name| name.as_bytes());
        known.any(|name| name.eq_ignore_ascii_case(field))
    };
    if among(DELETES) {
        Ok(Op::Delete)
    } else if among(READS) {
        Ok(Op::Read)
    } else if among(WRITES) {
        Ok(Op::Write)
    } else {
        Err("an op that is neither a read nor a write")
    }
}
