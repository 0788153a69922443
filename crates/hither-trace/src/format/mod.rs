//! The formats of traces that can be read. To add one, write a file here and put its line into
//! [`FORMATS`]: help, recognition, errors, and the tests of damaged input come from the slice.
//!
//! A format is told by its content where that is certain: at most one entry takes any beginning
//! (`tests/formats.rs` holds every sample against every entry), so the order decides nothing. Rows
//! of bare numbers in binary say nothing about themselves; those formats have to be named.

mod address;
mod arc;
mod hither;
mod libcachesim_csv;
mod libcachesim_txt;
mod lirs;
mod msr;
mod oracle_general;
mod raw;
mod spc;
mod strace;
mod twitter;
mod vscsi;

use crate::error::{Error, Result};
use crate::sink::Sink;
use crate::source::{Head, Input};

/// A format of traces.
#[derive(Debug)]
pub struct Format {
    /// Its name, for `--format`.
    pub name: &'static str,
    /// What it is, in a line.
    pub doc: &'static str,
    /// What its records are.
    pub records: Records,
    /// Whether content that begins so is of this format, if content can tell.
    matches: Option<fn(Head<'_>) -> bool>,
    /// Reads a trace into the sink. A format that reads more than its input returns the SHA-256 of
    /// all that it read.
    read: fn(&mut Input<'_>, &mut dyn Sink) -> Result<Option<String>>,
}

/// What the records of a format are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Records {
    /// Keys: each record is one reference to the block of that number, whatever its size.
    Keys,
    /// Requests for a range of bytes of an object, which become the blocks that they cover.
    Requests,
}

/// The formats, sorted by name.
pub const FORMATS: &[Format] = &[
    address::FORMAT,
    arc::FORMAT,
    hither::FORMAT,
    libcachesim_csv::FORMAT,
    libcachesim_txt::FORMAT,
    lirs::FORMAT,
    msr::FORMAT,
    oracle_general::FORMAT,
    spc::FORMAT,
    strace::FORMAT,
    twitter::FORMAT,
    raw::U32BE,
    raw::U32LE,
    raw::U64BE,
    raw::U64LE,
    vscsi::FORMAT,
];

impl Format {
    /// Reads a trace into `sink` and returns the SHA-256 of the input.
    pub fn read_whole(&self, mut input: Input<'_>, sink: &mut dyn Sink) -> Result<String> {
        let of_more = (self.read)(&mut input, sink)?;
        let of_input = match of_more {
            Some(_) => None,
            None => input.sha256()?,
        };
        Ok(of_more.or(of_input).unwrap_or_default())
    }

    /// Whether the format is told by content.
    pub fn is_recognised(&self) -> bool {
        self.matches.is_some()
    }

    /// Whether this input is of this format, as far as its beginning can tell.
    pub fn recognises(&self, input: &mut Input<'_>) -> Result<bool> {
        let head = input.head()?;
        Ok(self.matches.is_some_and(|matches| matches(head)))
    }
}

/// The format of that name.
pub fn find(name: &str) -> Result<&'static Format> {
    let found = FORMATS.iter().find(|format| format.name == name);
    found.ok_or_else(|| Error::UnknownFormat {
        name: name.to_owned(),
        known: known(|_| true),
    })
}

/// The format that the content of an input tells. A file's name decides nothing.
pub fn recognise(input: &mut Input<'_>) -> Result<&'static Format> {
    for format in FORMATS {
        if format.recognises(input)? {
            return Ok(format);
        }
    }
    if let Head::Content {
        bytes: [],
        whole: true,
    } = input.head()?
    {
        return Err(Error::Empty {
            path: input.path().to_owned(),
        });
    }
    Err(Error::Unrecognised {
        path: input.path().to_owned(),
        known: known(Format::is_recognised),
    })
}

/// The format of that name, or the one that the content tells.
pub fn choose(name: Option<&str>, input: &mut Input<'_>) -> Result<&'static Format> {
    match name {
        Some(name) => find(name),
        None => recognise(input),
    }
}

/// The names of some formats.
fn known(which: impl Fn(&Format) -> bool) -> String {
    let names: Vec<&str> = FORMATS
        .iter()
        .filter(|format| which(format))
        .map(|format| format.name)
        .collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn every_file_of_this_folder_is_registered() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/format");
        let files = std::fs::read_dir(folder).unwrap();
        let files = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        // A folder holds the parts of the file beside it.
        let file = |name: &String| name != "mod.rs" && name.ends_with(".rs");
        let mut files: Vec<String> = files.filter(file).collect();
        files.sort();
        // The four widths and orders of raw keys share a file.
        let raw = |name: &str| ["u32be", "u32le", "u64be", "u64le"].contains(&name);
        let mut named: Vec<String> = FORMATS
            .iter()
            .filter(|format| !raw(format.name))
            .map(|format| format!("{}.rs", format.name.replace('-', "_")))
            .chain(["raw.rs".to_owned()])
            .collect();
        named.sort();
        assert_eq!(files, named);
    }

    #[test]
    fn the_registry_is_sorted_unique_and_documented() {
        assert!(FORMATS.is_sorted_by(|a, b| a.name < b.name));
        for format in FORMATS {
            assert!(!format.doc.is_empty(), "{}", format.name);
            assert_eq!(find(format.name).unwrap().name, format.name);
        }
        assert!(
            find("nonsense")
                .unwrap_err()
                .to_string()
                .contains("known: address, arc")
        );
    }
}
