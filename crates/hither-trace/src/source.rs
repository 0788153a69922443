//! The bytes of a trace: from a file, a folder, standard input or memory; plain, compressed, or in
//! a tar archive.
//!
//! Compression is recognised by the first bytes, and never by the name, and so is an archive, whose
//! file may be compressed itself. `ARCHIVE:FILE` is a file of an archive, where no file has that
//! whole name. The SHA-256 of the bytes on disk is computed during the read, so a large file is
//! read once. Bytes that a format does not read are read at the end for it.
//!
//! Formats see one large buffer: [`Input::records`] returns slices of whole binary records, and
//! [`Lines`](crate::text::Lines) finds lines in it. So a record costs neither a call of the decoder
//! nor an allocation. A small file that unpacks to terabytes costs time, but no memory.

mod compression;
mod tar;

use std::cell::RefCell;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Cursor, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use sha2::{Digest, Sha256};

use crate::error::{Error, Result};

/// Bytes decompressed at a time. A line or a record must fit, and system calls should cost little.
const BUFFER_BYTES: usize = 1 << 18;
/// Bytes of the content that formats see to recognise it.
const HEAD_BYTES: usize = 4096;
/// Bytes that show whether the content is an archive.
const ARCHIVE_BYTES: u64 = 512;

/// The input that a trace is read from.
pub struct Input<'a> {
    path: PathBuf,
    content: Content<'a>,
    /// The decompressed bytes between `start` and `end` are not yet taken.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes taken so far, after decompression.
    taken: u64,
    /// The content has ended. The rest is in the buffer.
    ended: bool,
}

enum Content<'a> {
    /// A folder. Its format opens its files.
    Folder,
    Stream {
        decoder: Box<dyn Read + 'a>,
        /// The bytes on disk.
        raw: Raw<'a>,
        /// The input is the file at its path.
        is_file: bool,
        /// It is the first file of an archive.
        is_first: bool,
    },
}

/// A file, or a file of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location<'p> {
    /// The file on disk.
    pub file: &'p Path,
    /// The name of the file in the archive that this is.
    pub member: Option<&'p OsStr>,
}

impl Location<'_> {
    /// What `path` is: itself if that exists. Otherwise `ARCHIVE:FILE`, if there is a file ARCHIVE.
    pub fn of(path: &Path) -> Location<'_> {
        let whole = Location {
            file: path,
            member: None,
        };
        if path.symlink_metadata().is_ok() {
            return whole;
        }
        let bytes = path.as_os_str().as_bytes();
        let mut parts = memchr::memchr_iter(b':', bytes).map(|at| Location {
            file: Path::new(OsStr::from_bytes(&bytes[..at])),
            member: Some(OsStr::from_bytes(&bytes[at + 1..])),
        });
        parts.find(|parts| parts.file.is_file()).unwrap_or(whole)
    }
}

/// The beginning of a trace.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Head<'a> {
    /// The path is a folder.
    Folder,
    /// The first bytes, after decompression.
    Content {
        bytes: &'a [u8],
        /// Whether these are all bytes.
        whole: bool,
    },
}

impl<'a> Head<'a> {
    /// The first bytes. None for a folder.
    pub(crate) fn bytes(self) -> &'a [u8] {
        match self {
            Head::Folder => &[],
            Head::Content { bytes, .. } => bytes,
        }
    }

    /// Whether these bytes can be the beginning of a text: UTF-8 without control characters other
    /// than white space. Records of numbers hardly ever look so, as small numbers have zero bytes.
    pub(crate) fn is_text(self) -> bool {
        let bytes = self.bytes();
        let text = match str::from_utf8(bytes) {
            Ok(text) => text,
            // The end may be within a character.
            Err(error) if error.error_len().is_none() => {
                str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default()
            }
            Err(_) => return false,
        };
        let is_control = |found: char| found.is_control() && !found.is_ascii_whitespace();
        !text.is_empty() && !text.chars().any(is_control)
    }

    /// The complete lines at the beginning, without line ends.
    pub(crate) fn lines(self) -> impl Iterator<Item = &'a [u8]> {
        let bytes = self.bytes();
        let whole = matches!(self, Head::Content { whole: true, .. });
        let end = if whole {
            bytes.len()
        } else {
            memchr::memrchr(b'\n', bytes).unwrap_or(0)
        };
        bytes[..end]
            .split(|byte| *byte == b'\n')
            .map(<[u8]>::trim_ascii)
    }
}

impl<'a> Input<'a> {
    /// Opens a file, a folder, or a file of an archive (see [`Location`]).
    pub fn open(path: impl Into<PathBuf>) -> Result<Input<'a>> {
        let path = path.into();
        let file = Location::of(&path).file;
        if file.metadata().map_err(Error::io(&path))?.is_dir() {
            return Ok(Input::of(path, Content::Folder));
        }
        let file = File::open(file).map_err(Error::io(&path))?;
        Input::file(path, file)
    }

    /// Reads from any reader. Errors call it `name`.
    pub fn new(name: impl Into<PathBuf>, reader: impl Read + 'a) -> Result<Input<'a>> {
        Input::stream(name.into(), Box::new(reader), None, false)
    }

    /// Reads the file of the [`Location`] `path` through `reader`, which may report progress. The
    /// path may be opened again.
    pub fn file(path: impl Into<PathBuf>, reader: impl Read + 'a) -> Result<Input<'a>> {
        let path = path.into();
        let member = Location::of(&path).member.map(OsStr::to_owned);
        Input::stream(path, Box::new(reader), member.as_deref(), true)
    }

    fn stream(
        mut path: PathBuf,
        reader: Box<dyn Read + 'a>,
        member: Option<&OsStr>,
        is_file: bool,
    ) -> Result<Input<'a>> {
        let raw = Raw::of(reader);
        let content = content(&raw, member).map_err(Error::io(&path))?;
        let is_first = member.is_none() && content.member.is_some();
        let is_file = is_file && content.member.is_none();
        if let Some(found) = content.member.filter(|_| is_first) {
            let whole = [path.into_os_string().into_vec(), b":".to_vec(), found].concat();
            path = PathBuf::from(std::ffi::OsString::from_vec(whole));
        }
        let content = Content::Stream {
            decoder: content.decoder,
            raw,
            is_file,
            is_first,
        };
        Ok(Input::of(path, content))
    }

    fn of(path: PathBuf, content: Content<'a>) -> Input<'a> {
        let ended = matches!(content, Content::Folder);
        Input {
            path,
            content,
            buffer: vec![0; if ended { 0 } else { BUFFER_BYTES }],
            start: 0,
            end: 0,
            taken: 0,
            ended,
        }
    }

    /// Its path or name, for errors.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it lies in the file system at its path.
    pub(crate) fn is_on_disk(&self) -> bool {
        match &self.content {
            Content::Folder => true,
            Content::Stream { is_file, .. } => *is_file,
        }
    }

    /// The beginning of the content. Takes nothing from the buffer.
    pub(crate) fn head(&mut self) -> Result<Head<'_>> {
        if let Content::Folder = self.content {
            return Ok(Head::Folder);
        }
        while self.end - self.start < HEAD_BYTES && self.fill()? {}
        let found = &self.buffer[self.start..self.end];
        Ok(Head::Content {
            bytes: &found[..found.len().min(HEAD_BYTES)],
            whole: self.ended && found.len() <= HEAD_BYTES,
        })
    }

    /// The next bytes, which stay in the buffer: so many, or all that are left.
    pub(crate) fn peek(&mut self, bytes: usize) -> Result<&[u8]> {
        while self.end - self.start < bytes && self.fill()? {}
        let found = &self.buffer[self.start..self.end];
        Ok(&found[..found.len().min(bytes)])
    }

    /// The decompressed bytes that are not yet taken.
    pub(crate) fn buffered(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Takes `bytes` from the buffer. Returns them, and the path for errors about them.
    pub(crate) fn take(&mut self, bytes: usize) -> (&[u8], &Path) {
        let taken = self.start..self.start + bytes;
        self.start = taken.end;
        self.taken += bytes as u64;
        (&self.buffer[taken], &self.path)
    }

    /// Decompresses more bytes into the buffer. False at the end, or if the buffer is full.
    pub(crate) fn fill(&mut self) -> Result<bool> {
        let Content::Stream { decoder, .. } = &mut self.content else {
            return Ok(false);
        };
        if self.ended {
            return Ok(false);
        }
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.buffer.len() {
            return Ok(false);
        }
        let read = loop {
            match decoder.read(&mut self.buffer[self.end..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => break result.map_err(Error::io(&self.path))?,
            }
        };
        self.end += read;
        self.ended = read == 0;
        Ok(read > 0)
    }

    /// The next whole records of `N` bytes in the buffer. `None` at the end. A truncated record is
    /// an error.
    pub(crate) fn records<const N: usize>(&mut self) -> Result<Option<RecordBatch<'_, N>>> {
        let found = self.chunks(N)?;
        Ok(found.map(|found| RecordBatch {
            records: found.bytes.as_chunks().0,
            chunks: found,
        }))
    }

    /// The same for records of a size that the content says.
    pub(crate) fn chunks(&mut self, each: usize) -> Result<Option<Chunks<'_>>> {
        while self.end - self.start < each {
            if !self.fill()? {
                let left = self.end - self.start;
                if left == 0 {
                    return Ok(None);
                }
                let problem = format!("{left} bytes of a record of {each}, and then the end");
                return Err(Error::offset(&self.path, self.taken, problem));
            }
        }
        let offset = self.taken;
        let whole = (self.end - self.start) / each * each;
        let (bytes, path) = self.take(whole);
        Ok(Some(Chunks {
            bytes,
            each,
            offset,
            path,
        }))
    }

    /// Reads to the end if this is the first file of an archive: an error if it is not the only
    /// one, in place of what is wrong with its content.
    pub(crate) fn check_only_file(&mut self) -> Result<()> {
        match &mut self.content {
            Content::Stream {
                decoder,
                is_first: true,
                ..
            } => read_to_end(decoder).map_err(Error::io(&self.path)),
            _ => Ok(()),
        }
    }

    /// The SHA-256 of the bytes on disk, in hexadecimal. Reads to the end for it. `None` for a
    /// folder.
    pub(crate) fn sha256(self) -> Result<Option<String>> {
        let Content::Stream {
            mut decoder,
            mut raw,
            ..
        } = self.content
        else {
            return Ok(None);
        };
        // Its end may show that it is damaged, or one of several files.
        read_to_end(&mut decoder)
            .and_then(|()| read_to_end(&mut raw))
            .map_err(Error::io(&self.path))?;
        drop(decoder);
        Ok(Some(raw.sum()))
    }
}

fn read_to_end(reader: &mut impl Read) -> io::Result<()> {
    io::copy(reader, &mut io::sink()).map(|_| ())
}

/// Whole records of one size.
pub(crate) struct Chunks<'r> {
    bytes: &'r [u8],
    each: usize,
    offset: u64,
    path: &'r Path,
}

impl<'r> Chunks<'r> {
    pub(crate) fn records(&self) -> impl Iterator<Item = &'r [u8]> + use<'r> {
        self.bytes.chunks_exact(self.each)
    }

    /// An error about one of these records.
    pub(crate) fn error(&self, record: usize, problem: impl Into<String>) -> Error {
        let offset = self.offset + (record * self.each) as u64;
        Error::offset(self.path, offset, problem)
    }
}

/// Whole records of `N` bytes.
pub(crate) struct RecordBatch<'r, const N: usize> {
    pub(crate) records: &'r [[u8; N]],
    chunks: Chunks<'r>,
}

impl<const N: usize> RecordBatch<'_, N> {
    /// An error about one of these records.
    pub(crate) fn error(&self, record: usize, problem: impl Into<String>) -> Error {
        self.chunks.error(record, problem)
    }
}

/// Decoded content.
struct Decoded<'a> {
    decoder: Box<dyn Read + 'a>,
    /// The name of the file in an archive that it is.
    member: Option<Vec<u8>>,
}

/// The content of `raw`, or that of its file `member`.
fn content<'a>(raw: &Raw<'a>, member: Option<&OsStr>) -> io::Result<Decoded<'a>> {
    let mut decoder = compression::decoded(Box::new(raw.clone()))?;
    let mut begin = Vec::new();
    (&mut decoder).take(ARCHIVE_BYTES).read_to_end(&mut begin)?;
    let is_archive = tar::is_archive(&begin);
    let decoder = Box::new(Cursor::new(begin).chain(decoder));
    if !is_archive {
        return match member {
            None => Ok(Decoded {
                decoder,
                member: None,
            }),
            Some(_) => {
                let problem = "not a tar archive, and no file has the whole name";
                Err(io::Error::new(io::ErrorKind::InvalidData, problem))
            }
        };
    }
    let file = tar::Member::open(decoder, member.map(OsStr::as_bytes))?;
    let member = Some(file.path.clone());
    let decoder = compression::decoded(Box::new(file))?;
    Ok(Decoded { decoder, member })
}

/// The bytes on disk, and their hash so far. All clones read the same bytes.
#[derive(Clone)]
struct Raw<'a>(Rc<RefCell<Hashed<Box<dyn Read + 'a>>>>);

impl<'a> Raw<'a> {
    fn of(reader: Box<dyn Read + 'a>) -> Raw<'a> {
        let sum = Sha256::new();
        Raw(Rc::new(RefCell::new(Hashed { reader, sum })))
    }

    fn sum(&self) -> String {
        hex(&self.0.borrow().sum.clone().finalize())
    }
}

impl Read for Raw<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.0.borrow_mut().read(out)
    }
}

/// A reader that hashes the bytes it reads.
struct Hashed<R> {
    reader: R,
    sum: Sha256,
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(out)?;
        self.sum.update(&out[..read]);
        Ok(read)
    }
}

/// SHA-256 of a file as it lies on disk, in hexadecimal.
pub(crate) fn sha256_of_file(path: &Path) -> Result<String> {
    let reader = File::open(path).map_err(Error::io(path))?;
    let sum = Sha256::new();
    let mut hashed = Hashed { reader, sum };
    io::copy(&mut hashed, &mut io::sink()).map_err(Error::io(path))?;
    Ok(hex(&hashed.sum.finalize()))
}

/// SHA-256 of a text, in hexadecimal.
pub(crate) fn sha256_of_text(text: &str) -> String {
    hex(&Sha256::digest(text))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
