//! What the formats share: opening plain or compressed input, looking at its beginning, hashing it.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use sha2::{Digest, Sha256};

use crate::error::{Error, Result};

/// As much of a file as formats may look at to recognise it.
const HEAD_BYTES: usize = 4096;
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// The beginning of a possible trace.
#[derive(Debug)]
pub(crate) enum Head {
    /// The path is a folder.
    Folder,
    /// The path is a file that begins so, after decompression.
    File(Vec<u8>),
}

impl Head {
    pub(crate) fn read(path: &Path) -> Result<Head> {
        if path.metadata().map_err(Error::io(path))?.is_dir() {
            return Ok(Head::Folder);
        }
        let mut bytes = Vec::new();
        open(path)?
            .take(HEAD_BYTES as u64)
            .read_to_end(&mut bytes)
            .map_err(Error::io(path))?;
        Ok(Head::File(bytes))
    }
}

/// Opens a file for reading; gzip is recognised by its first bytes and taken off.
pub(crate) fn open(path: &Path) -> Result<Box<dyn BufRead>> {
    let file = File::open(path).map_err(Error::io(path))?;
    let mut raw = BufReader::with_capacity(1 << 16, file);
    let zipped = raw.fill_buf().map_err(Error::io(path))?.starts_with(&GZIP);
    if zipped {
        Ok(Box::new(BufReader::with_capacity(
            1 << 16,
            MultiGzDecoder::new(raw),
        )))
    } else {
        Ok(Box::new(raw))
    }
}

/// SHA-256 of a file as it lies on disk, in hexadecimal.
pub(crate) fn sha256_of_file(path: &Path) -> Result<String> {
    let mut hash = Hash(Sha256::new());
    let mut file = File::open(path).map_err(Error::io(path))?;
    io::copy(&mut file, &mut hash).map_err(Error::io(path))?;
    Ok(hex(&hash.0.finalize()))
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

struct Hash(Sha256);

impl io::Write for Hash {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
