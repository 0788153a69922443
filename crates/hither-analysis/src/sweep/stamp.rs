//! Detects whether a trace may have changed without reading it.
//!
//! A resumed sweep does not read finished traces again. The stamp of a trace has the size and the
//! modification time of each of its files. Only if the stamp differs is the trace read and its hash
//! compared.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use hither_trace::Location;

use crate::{Error, Result};

/// The stamp of a trace.
pub(super) fn of(path: &Path) -> Result<String> {
    let files = files(path).map_err(Error::of_file(path))?;
    let stamps: Vec<String> = files
        .iter()
        .map(|(name, file)| {
            let name = name.display();
            format!(
                "{name} {} {}.{:09}",
                file.len(),
                file.mtime(),
                file.mtime_nsec()
            )
        })
        .collect();
    Ok(stamps.join("; "))
}

/// The size of a trace on the disk; 0 if it cannot be read.
pub(super) fn bytes(path: &Path) -> u64 {
    let files = files(path).unwrap_or_default();
    files.iter().map(|(_, file)| file.len()).sum()
}

/// The files of a trace, sorted by name: the trace itself, or the files of its folder.
fn files(path: &Path) -> io::Result<Vec<(PathBuf, Metadata)>> {
    let path = Location::of(path).file;
    let own = fs::metadata(path)?;
    if !own.is_dir() {
        return Ok(vec![(PathBuf::new(), own)]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        files.push((PathBuf::from(entry.file_name()), entry.metadata()?));
    }
    files.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(files)
}
