//! The trace formats that can be read. To add one, write a file here and a line in [`FORMATS`].
//! Help, recognition, errors, and the tests with damaged input use this slice.
//!
//! A format is recognised by content where that is certain. At most one format accepts any given
//! beginning (`tests/formats.rs` tests every sample against every format), so the order does not
//! matter. Formats of bare binary numbers have nothing to recognise and must be named.

mod address;
mod alibaba;
mod arc;
mod blkparse;
mod columns;
mod darshan_dxt;
mod fio_iolog;
pub(crate) mod hither;
mod ibm_cos;
mod lcs;
mod libcachesim_csv;
mod libcachesim_txt;
mod lirs;
mod mooncake;
mod msr;
mod oracle_general;
mod page_counts;
mod perf_trace;
mod raw;
mod reader;
mod spc;
mod strace;
mod systor;
mod tencent;
mod twitter;
mod vscsi;
mod webcachesim;

pub use columns::NamedColumns;
pub use reader::{Format, RecordKind};

use crate::error::{Error, Result};
use crate::sink::Sink;
use crate::source::{Head, Input};

/// The formats, sorted by name.
pub const FORMATS: &[Format] = &[
    address::FORMAT,
    alibaba::FORMAT,
    arc::FORMAT,
    blkparse::FORMAT,
    darshan_dxt::FORMAT,
    fio_iolog::FORMAT,
    hither::FORMAT,
    ibm_cos::FORMAT,
    lcs::FORMAT,
    libcachesim_csv::FORMAT,
    libcachesim_txt::FORMAT,
    lirs::FORMAT,
    mooncake::FORMAT,
    msr::FORMAT,
    oracle_general::FORMAT,
    page_counts::FORMAT,
    perf_trace::FORMAT,
    spc::FORMAT,
    strace::FORMAT,
    systor::FORMAT,
    tencent::FORMAT,
    twitter::FORMAT,
    raw::U32BE,
    raw::U32LE,
    raw::U64BE,
    raw::U64LE,
    vscsi::FORMAT,
    vscsi::REQUESTS,
    webcachesim::FORMAT,
];

/// The format of that name.
pub fn find(name: &str) -> Result<&'static Format> {
    let found = FORMATS.iter().find(|format| format.name == name);
    found.ok_or_else(|| Error::UnknownFormat {
        name: name.to_owned(),
        known: known(|_| true) + ", columns{key=N,...}",
    })
}

/// Recognises the format of an input by its content. The name of the file does not matter.
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
    input.check_only_file()?;
    Err(Error::Unrecognised {
        path: input.path().to_owned(),
        known: known(Format::is_recognised),
    })
}

/// What a trace is read as.
#[derive(Clone, Debug)]
pub enum Choice {
    /// A format of the registry.
    Known(&'static Format),
    /// Delimited text, of which these columns matter.
    Columns(NamedColumns),
}

impl Choice {
    /// A format of the registry by its name, or `columns{...}`.
    pub fn parse(text: &str) -> Result<Choice> {
        match NamedColumns::parse(text) {
            Some(columns) => columns.map(Choice::Columns),
            None => find(text).map(Choice::Known),
        }
    }

    /// The text that this was, or could have been, chosen by.
    pub fn name(&self) -> String {
        match self {
            Choice::Known(format) => format.name.to_owned(),
            Choice::Columns(columns) => columns.to_string(),
        }
    }

    /// The kind of its records.
    pub fn records(&self) -> RecordKind {
        match self {
            Choice::Known(format) => format.records,
            Choice::Columns(_) => RecordKind::Keys,
        }
    }

    /// Reads a trace into `sink` and returns the SHA-256 of the input.
    pub fn read_whole(&self, mut input: Input<'_>, sink: &mut dyn Sink) -> Result<String> {
        match self {
            Choice::Known(format) => format.read_whole(input, sink),
            Choice::Columns(columns) => {
                columns.read(&mut input, sink)?;
                Ok(input.sha256()?.unwrap_or_default())
            }
        }
    }
}

/// The format of that name. `None` recognises it by content.
pub fn choose(name: Option<&str>, input: &mut Input<'_>) -> Result<Choice> {
    match name {
        Some(name) => Choice::parse(name),
        None => recognise(input).map(Choice::Known),
    }
}

/// The names of the formats that `which` accepts.
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
        // A folder has the submodules of the file beside it.
        let file = |name: &String| name.ends_with(".rs");
        let mut files: Vec<String> = files
            .filter(file)
            .filter(|name| !["columns.rs", "reader.rs"].contains(&name.as_str()))
            .collect();
        files.sort();
        // The four formats of raw keys share a file, and so do the two of vscsi.
        let sharing = ["u32be", "u32le", "u64be", "u64le", "vscsi-requests"];
        let shares = |name: &str| sharing.contains(&name);
        let mut named: Vec<String> = FORMATS
            .iter()
            .filter(|format| !shares(format.name))
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
                .contains("known: address, alibaba")
        );
    }
}
