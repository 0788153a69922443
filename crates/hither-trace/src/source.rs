//! The bytes of a trace: from a file, a folder, standard input or memory; plain or compressed.
//!
//! Compression is recognised by the first bytes, and never by the name. Concatenated members
//! (gzip), frames (zstd) and streams (xz) are read one after the other, as their own tools do. The
//! SHA-256 of the bytes on disk is computed during the read, so a large file is read once. Bytes
//! that a format does not read are read at the end for it.
//!
//! Formats see one large buffer: [`Input::records`] returns slices of whole binary records, and
//! [`Lines`](crate::text::Lines) finds lines in it. So a record costs neither a call of the decoder
//! nor an allocation. A small file that unpacks to terabytes costs time, but no memory.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufReader, Chain, Cursor, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;
use liblzma::bufread::XzDecoder;
use sha2::{Digest, Sha256};

use crate::error::{Error, Result};

/// Bytes decompressed at a time. A line or a record must fit, and system calls should cost little.
const BUFFER_BYTES: usize = 1 << 18;
/// Bytes of the content that formats see to recognise it.
const HEAD_BYTES: usize = 4096;
/// The memory limit of xz streams. `xz -9` needs 65 MiB; a forged header may ask for 4 GiB.
const XZ_MEMORY_BYTES_MAX: u64 = 256 << 20;

/// The length of the longest magic number below.
const MAGIC_BYTES: u64 = 6;
const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];
const XZ_MAGIC: &[u8] = &[0xfd, b'7', b'z', b'X', b'Z', 0];
const ZSTD_MAGIC: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
/// A zstd file may begin with a skippable frame. The low half of its first byte is arbitrary.
const ZSTD_SKIPPABLE_MAGIC: &[u8] = &[0x2a, 0x4d, 0x18];

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
        decoder: Box<Decoder<'a>>,
        /// The input is the file at its path.
        is_file: bool,
    },
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
    /// Opens a file or a folder.
    pub fn open(path: impl Into<PathBuf>) -> Result<Input<'a>> {
        let path = path.into();
        if path.metadata().map_err(Error::io(&path))?.is_dir() {
            return Ok(Input::of(path, Content::Folder));
        }
        let file = File::open(&path).map_err(Error::io(&path))?;
        Input::stream(path, Box::new(file), true)
    }

    /// Reads from any reader. Errors call it `name`.
    pub fn new(name: impl Into<PathBuf>, reader: impl Read + 'a) -> Result<Input<'a>> {
        Input::stream(name.into(), Box::new(reader), false)
    }

    /// Reads the file at `path` through `reader`, which may report progress. The path may be opened
    /// again.
    pub fn file(path: impl Into<PathBuf>, reader: impl Read + 'a) -> Result<Input<'a>> {
        Input::stream(path.into(), Box::new(reader), true)
    }

    fn stream(path: PathBuf, reader: Box<dyn Read + 'a>, is_file: bool) -> Result<Input<'a>> {
        let decoder = Box::new(Decoder::new(reader).map_err(Error::io(&path))?);
        Ok(Input::of(path, Content::Stream { decoder, is_file }))
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
        while self.end - self.start < N {
            if !self.fill()? {
                let left = self.end - self.start;
                if left == 0 {
                    return Ok(None);
                }
                let problem = format!("{left} bytes of a record of {N}, and then the end");
                return Err(Error::offset(&self.path, self.taken, problem));
            }
        }
        let offset = self.taken;
        let whole = (self.end - self.start) / N * N;
        let (bytes, path) = self.take(whole);
        Ok(Some(RecordBatch {
            records: bytes.as_chunks().0,
            offset,
            path,
        }))
    }

    /// The SHA-256 of the bytes on disk, in hexadecimal. Reads to the end for it. `None` for a
    /// folder.
    pub(crate) fn sha256(self) -> Result<Option<String>> {
        let Content::Stream { decoder, .. } = self.content else {
            return Ok(None);
        };
        let (_, mut raw) = decoder.into_raw().into_inner().into_inner();
        io::copy(&mut raw, &mut io::sink()).map_err(Error::io(&self.path))?;
        Ok(Some(hex(&raw.sum.finalize())))
    }
}

/// Whole records of `N` bytes.
pub(crate) struct RecordBatch<'r, const N: usize> {
    pub(crate) records: &'r [[u8; N]],
    offset: u64,
    path: &'r Path,
}

impl<const N: usize> RecordBatch<'_, N> {
    /// An error about one of these records.
    pub(crate) fn error(&self, record: usize, problem: impl Into<String>) -> Error {
        Error::offset(self.path, self.offset + (record * N) as u64, problem)
    }
}

/// The bytes on disk: those read to recognise the compression, and the rest.
type Raw<'a> = BufReader<Chain<Cursor<Vec<u8>>, Hashed<Box<dyn Read + 'a>>>>;

enum Decoder<'a> {
    Plain(Raw<'a>),
    Gzip(MultiGzDecoder<Raw<'a>>),
    Xz(XzDecoder<Raw<'a>>),
    Zstd(zstd::Decoder<'static, Raw<'a>>),
}

impl<'a> Decoder<'a> {
    fn new(reader: Box<dyn Read + 'a>) -> io::Result<Decoder<'a>> {
        let sum = Sha256::new();
        let mut hashed = Hashed { reader, sum };
        let mut begins = Vec::new();
        (&mut hashed).take(MAGIC_BYTES).read_to_end(&mut begins)?;
        let magic = begins.clone();
        // It is smaller than the buffer of decompressed bytes, so plain input bypasses it.
        let raw = BufReader::with_capacity(BUFFER_BYTES / 4, Cursor::new(begins).chain(hashed));
        Ok(if magic.starts_with(GZIP_MAGIC) {
            Decoder::Gzip(MultiGzDecoder::new(raw))
        } else if magic.starts_with(XZ_MAGIC) {
            let flags = liblzma::stream::CONCATENATED;
            let stream = liblzma::stream::Stream::new_stream_decoder(XZ_MEMORY_BYTES_MAX, flags)?;
            Decoder::Xz(XzDecoder::new_stream(raw, stream))
        } else if magic.starts_with(ZSTD_MAGIC)
            || (magic.len() >= 4
                && magic[0] >> 4 == 5
                && magic[1..].starts_with(ZSTD_SKIPPABLE_MAGIC))
        {
            Decoder::Zstd(zstd::Decoder::with_buffer(raw)?)
        } else {
            Decoder::Plain(raw)
        })
    }

    fn into_raw(self) -> Raw<'a> {
        match self {
            Decoder::Plain(raw) => raw,
            Decoder::Gzip(decoder) => decoder.into_inner(),
            Decoder::Xz(decoder) => decoder.into_inner(),
            Decoder::Zstd(decoder) => decoder.finish(),
        }
    }
}

impl Read for Decoder<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            Decoder::Plain(raw) => raw.read(out),
            Decoder::Gzip(decoder) => decoder.read(out),
            Decoder::Xz(decoder) => decoder.read(out),
            Decoder::Zstd(decoder) => decoder.read(out),
        }
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
