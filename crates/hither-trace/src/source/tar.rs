//! A file of a tar archive, as a stream.
//!
//! Without a name, an archive is its only file. Whether it has one alone is known only at its end,
//! so the error of an archive of several files comes there, before anything of it is used.

use std::io::{self, Read};

const BLOCK_BYTES: u64 = 512;
/// The most bytes of the name of a file, and of the records about it.
const RECORDS_BYTES_MAX: u64 = 1 << 16;
/// Files that an error lists.
const LISTED_MAX: usize = 20;

type Block = [u8; BLOCK_BYTES as usize];

/// Whether `begin` is the header of a tar archive.
pub(super) fn is_archive(begin: &[u8]) -> bool {
    begin.first_chunk().is_some_and(|block: &Block| {
        block[257..].starts_with(b"ustar") && octal(&block[148..156]) == Some(checksum(block))
    })
}

/// A file of an archive.
pub(super) struct Member<'a> {
    reader: Box<dyn Read + 'a>,
    pub(super) path: Vec<u8>,
    is_named: bool,
    bytes: u64,
    /// Bytes that have not been read yet.
    left: u64,
    /// What is behind it has been read.
    ended: bool,
}

/// What a header describes.
struct Entry {
    path: Vec<u8>,
    bytes: u64,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    File,
    /// A file whose holes are left out.
    Sparse,
    /// A folder, a link, a device.
    Other,
}

impl<'a> Member<'a> {
    /// Goes to the file of that name, or to the first one.
    pub(super) fn open(reader: Box<dyn Read + 'a>, name: Option<&[u8]>) -> io::Result<Member<'a>> {
        let mut member = Member {
            reader,
            path: Vec::new(),
            is_named: name.is_some(),
            bytes: 0,
            left: 0,
            ended: false,
        };
        let mut others = Names::default();
        while let Some(entry) = member.entry()? {
            if entry.kind == Kind::Other {
                continue;
            }
            if name.is_some_and(|name| simple(name) != simple(&entry.path)) {
                member.skip(padded(entry.bytes))?;
                others.add(entry.path);
                continue;
            }
            if entry.kind == Kind::Sparse {
                let path = String::from_utf8_lossy(&entry.path).into_owned();
                return Err(invalid(format!(
                    "{path} is a sparse file, which is not supported"
                )));
            }
            (member.path, member.bytes, member.left) = (entry.path, entry.bytes, entry.bytes);
            return Ok(member);
        }
        Err(invalid(match name {
            Some(_) if others.count > 0 => {
                format!(
                    "a tar archive without that file; it has {}",
                    others.listed()
                )
            }
            _ => "a tar archive without a file".to_owned(),
        }))
    }

    /// Reads what is behind the file: there is no other that could be meant.
    fn read_rest(&mut self) -> io::Result<()> {
        self.skip(padded(self.bytes) - self.bytes)?;
        let mut files = Names::default();
        files.add(self.path.clone());
        while let Some(entry) = self.entry()? {
            if entry.kind != Kind::Other {
                self.skip(padded(entry.bytes))?;
                if self.is_named && simple(&entry.path) == simple(&self.path) {
                    return Err(invalid(
                        "a tar archive with two files of that name".to_owned(),
                    ));
                }
                files.add(entry.path);
            }
        }
        if files.count > 1 && !self.is_named {
            let files = files.listed();
            let problem =
                format!("a tar archive of several files: ARCHIVE:FILE names one of {files}");
            return Err(invalid(problem));
        }
        // So that the end of a compressed archive is checked.
        io::copy(&mut self.reader, &mut io::sink()).map(|_| ())
    }

    /// The next header; none at the end.
    fn entry(&mut self) -> io::Result<Option<Entry>> {
        let (mut path, mut bytes, mut is_sparse) = (None, None, false);
        loop {
            let mut block: Block = [0; BLOCK_BYTES as usize];
            self.reader.read_exact(&mut block).map_err(ended_early)?;
            if block.iter().all(|byte| *byte == 0) {
                return Ok(None);
            }
            if octal(&block[148..156]) != Some(checksum(&block)) {
                return Err(invalid("a damaged header in a tar archive".to_owned()));
            }
            let size = number(&block[124..136]);
            let size = size.ok_or_else(|| invalid("a tar header without a size".to_owned()))?;
            match block[156] {
                b'L' => {
                    let name = self.records(size)?;
                    path = Some(until_zero(&name).to_owned());
                }
                b'x' => {
                    let records = self.records(size)?;
                    let damaged = || invalid("damaged records in a tar archive".to_owned());
                    for (key, value) in extended(&records).ok_or_else(damaged)? {
                        match key {
                            b"path" => path = Some(value.to_owned()),
                            b"size" => bytes = Some(decimal(value).ok_or_else(damaged)?),
                            _ => is_sparse |= key.starts_with(b"GNU.sparse."),
                        }
                    }
                }
                // Names of links, and records of all files.
                b'K' | b'g' => self.skip(padded(size))?,
                kind => {
                    let has_content = !(b'1'..=b'6').contains(&kind);
                    let path = path.unwrap_or_else(|| path_of(&block));
                    let is_file = [0, b'0', b'7'].contains(&kind) && !path.ends_with(b"/");
                    let bytes = if has_content {
                        bytes.unwrap_or(size)
                    } else {
                        0
                    };
                    let kind = match kind {
                        _ if is_file && !is_sparse => Kind::File,
                        _ if is_file || kind == b'S' => Kind::Sparse,
                        _ => Kind::Other,
                    };
                    if kind == Kind::Other {
                        self.skip(padded(bytes))?;
                    }
                    return Ok(Some(Entry { path, bytes, kind }));
                }
            }
        }
    }

    /// The content of a header that describes the next one.
    fn records(&mut self, bytes: u64) -> io::Result<Vec<u8>> {
        if bytes > RECORDS_BYTES_MAX {
            return Err(invalid("a tar header of more than 64 KiB".to_owned()));
        }
        let mut records = vec![0; bytes as usize];
        self.reader.read_exact(&mut records).map_err(ended_early)?;
        self.skip(padded(bytes) - bytes)?;
        Ok(records)
    }

    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        let skipped = io::copy(&mut (&mut self.reader).take(bytes), &mut io::sink())?;
        if skipped < bytes {
            return Err(ended_early(io::ErrorKind::UnexpectedEof.into()));
        }
        Ok(())
    }
}

impl Read for Member<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.left > 0 {
            let most = out
                .len()
                .min(usize::try_from(self.left).unwrap_or(usize::MAX));
            let read = self.reader.read(&mut out[..most])?;
            if read == 0 && most > 0 {
                return Err(ended_early(io::ErrorKind::UnexpectedEof.into()));
            }
            self.left -= read as u64;
            return Ok(read);
        }
        if !self.ended {
            self.ended = true;
            self.read_rest()?;
        }
        Ok(0)
    }
}

fn invalid(problem: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem)
}

fn ended_early(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            io::Error::new(io::ErrorKind::UnexpectedEof, "the tar archive ends early")
        }
        _ => error,
    }
}

/// `bytes` in whole blocks.
fn padded(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK_BYTES).saturating_mul(BLOCK_BYTES)
}

/// A name without `./` before it.
fn simple(name: &[u8]) -> &[u8] {
    name.strip_prefix(b"./").unwrap_or(name)
}

/// The files of an archive, for an error. There may be millions of them, so few are kept.
#[derive(Default)]
struct Names {
    first: Vec<Vec<u8>>,
    count: usize,
}

impl Names {
    fn add(&mut self, path: Vec<u8>) {
        self.count += 1;
        if self.first.len() < LISTED_MAX {
            self.first.push(path);
        }
    }

    fn listed(&self) -> String {
        let shown = self.first.iter().map(|path| {
            let path = String::from_utf8_lossy(path);
            path.escape_debug().to_string()
        });
        let shown: Vec<String> = shown.collect();
        let more = match self.count - shown.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        shown.join(", ") + &more
    }
}

fn until_zero(text: &[u8]) -> &[u8] {
    let end = memchr::memchr(0, text).unwrap_or(text.len());
    &text[..end]
}

/// The name in a header. POSIX has a prefix for long ones, where GNU has times.
fn path_of(block: &Block) -> Vec<u8> {
    let (name, prefix) = (until_zero(&block[..100]), until_zero(&block[345..500]));
    if block[257..].starts_with(b"ustar\0") && !prefix.is_empty() {
        [prefix, b"/", name].concat()
    } else {
        name.to_owned()
    }
}

/// The sum of the bytes of a header, with spaces in place of the sum itself.
fn checksum(block: &Block) -> u64 {
    let sum = |bytes: &[u8]| bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>();
    sum(&block[..148]) + 8 * u64::from(b' ') + sum(&block[156..])
}

/// An octal number, with spaces and zeros around it.
fn octal(field: &[u8]) -> Option<u64> {
    let is_padding = |byte: &u8| [0, b' '].contains(byte);
    let begin = field.iter().position(|byte| !is_padding(byte));
    let digits = &field[begin.unwrap_or(field.len())..];
    let digits = digits.split(is_padding).next().unwrap_or_default();
    digits.iter().try_fold(0u64, |value, digit| match digit {
        b'0'..=b'7' => value.checked_mul(8)?.checked_add(u64::from(digit - b'0')),
        _ => None,
    })
}

/// A number in a header: octal, or binary behind a set bit.
fn number(field: &[u8]) -> Option<u64> {
    if field.first()? & 0x80 == 0 {
        return octal(field);
    }
    let (begin, value) = field.split_last_chunk::<8>()?;
    let is_small = begin[0] == 0x80 && begin[1..].iter().all(|byte| *byte == 0);
    is_small.then(|| u64::from_be_bytes(*value))
}

fn decimal(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// The records of an extended header: `LENGTH KEY=VALUE\n`.
fn extended(mut records: &[u8]) -> Option<Vec<(&[u8], &[u8])>> {
    let mut found = Vec::new();
    while !records.is_empty() {
        let space = memchr::memchr(b' ', records)?;
        let length = usize::try_from(decimal(&records[..space])?).ok()?;
        let (record, rest) = records.split_at_checked(length)?;
        let record = record.get(space + 1..)?.strip_suffix(b"\n")?;
        let equals = memchr::memchr(b'=', record)?;
        found.push((&record[..equals], &record[equals + 1..]));
        records = rest;
    }
    Some(found)
}
