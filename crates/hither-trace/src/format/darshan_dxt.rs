//! The text of darshan-dxt-parser(1): a header for each file and rank, and a line `X_POSIX rank
//! operation segment offset length start end` for each access. A file is an object, a rank is a
//! process, and times are in seconds.
//!
//! The accesses of one rank to one file stand together, so they are put into the order of their
//! starts, which takes memory for all of them. Those of MPI-IO (`X_MPIIO`) are counted as left out:
//! what they move, they move by POSIX.

use super::reader::{Format, RecordKind};
use crate::error::Result;
use crate::objects::Objects;
use crate::schema::{AccessRow, ProcessRow, RowOp, ThreadRow};
use crate::sink::Sink;
use crate::source::Input;
use crate::text::{Lines, Parsed, decimal, seconds};

/// The entry in the registry.
pub(super) const FORMAT: Format = Format {
    name: "darshan-dxt",
    doc: "text, `X_POSIX rank read segment offset length start end` (darshan-dxt-parser)",
    records: RecordKind::Requests,
    matches: Some(|head| {
        let mut lines = head.lines().filter(|line| !line.is_empty()).peekable();
        let first = lines.peek().is_some_and(|line| line.starts_with(b"#"));
        first && lines.any(|line| line.starts_with(FILE))
    }),
    read,
};

/// The line that names the file of the next lines.
const FILE: &[u8] = b"# DXT, file_id:";
const NAME: &[u8] = b"file_name:";

fn read(input: &mut Input<'_>, sink: &mut dyn Sink) -> Result<Option<String>> {
    let mut files = Objects::<[u8]>::new();
    let mut rows: Vec<AccessRow> = Vec::new();
    let mut file = None;
    let mut lines = Lines::of(input);
    while let Some(line) = lines.next()? {
        if line.bytes.is_empty() {
            sink.separator();
            continue;
        }
        if line.bytes.starts_with(FILE) {
            let name = memchr::memmem::find(line.bytes, NAME);
            let name = name.ok_or_else(|| line.error("it names no file"))?;
            let name = line.bytes[name + NAME.len()..].trim_ascii();
            file = Some(files.number(sink, name, 0, || name.to_owned()));
        }
        if line.bytes.starts_with(b"#") {
            sink.separator();
            continue;
        }
        let Some(row) = parse(line.bytes).map_err(line.wrong())? else {
            sink.left_out();
            continue;
        };
        let object = file.ok_or_else(|| line.error("an access before the name of its file"))?;
        rows.push(AccessRow { object, ..row });
    }
    rows.sort_by_key(|row| row.time_ns);
    let mut ranks: Vec<u32> = rows.iter().map(|row| row.process).collect();
    ranks.sort_unstable();
    ranks.dedup();
    for &rank in &ranks {
        let process = sink.add_process(ProcessRow {
            pid: rank,
            ..ProcessRow::default()
        });
        sink.add_thread(ThreadRow {
            process,
            tid: rank,
            ..ThreadRow::default()
        });
    }
    for row in rows {
        let rank = ranks.binary_search(&row.process).expect("it is among them") as u32;
        sink.request(&AccessRow {
            process: rank,
            thread: rank,
            ..row
        })?;
    }
    Ok(None)
}

/// The access of a line, with its rank as the process. `None`: it is MPI-IO's.
fn parse(line: &[u8]) -> Parsed<Option<AccessRow>> {
    const SHAPE: &str = "not `X_POSIX rank operation segment offset length start end`";
    let words = line.split(u8::is_ascii_whitespace);
    let mut words = words.filter(|word| !word.is_empty());
    let mut word = || words.next().ok_or(SHAPE);
    match word()? {
        b"X_POSIX" => {}
        b"X_MPIIO" => return Ok(None),
        _ => return Err(SHAPE),
    }
    let rank = u32::try_from(decimal(word()?)?).map_err(|_| "a rank above 2^32 - 1")?;
    let op = match word()? {
        b"read" => RowOp::Read,
        b"write" => RowOp::Write,
        _ => return Err("an operation other than read and write"),
    };
    let _segment = decimal(word()?)?;
    let (offset, length) = (decimal(word()?)?, decimal(word()?)?);
    let time_ns = seconds(word()?)?;
    // Newer versions add the OSTs of Lustre behind the end.
    let _end = seconds(word()?)?;
    Ok(Some(AccessRow {
        time_ns,
        process: rank,
        op,
        offset,
        length,
        ..AccessRow::default()
    }))
}
