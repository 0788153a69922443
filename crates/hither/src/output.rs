//! Writes files completely or not at all.

use std::fs;
use std::path::Path;

use anyhow::Context;

pub(crate) use hither_analysis::file::{beside, folder_of, write_whole};
use hither_analysis::file::{write_by, write_private};

use crate::interrupt;

/// As [`write_whole`], for a file that only one process writes at a time. The partial file has a
/// fixed name, so the next process replaces what a killed one has left.
pub(crate) fn write_by_one_writer(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    Ok(write_by(&beside(path, ".partial"), path, bytes)?)
}

/// As [`write_whole`], for what its owner alone may read. An interrupt removes the partial file.
pub(crate) fn write_private_interruptibly(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    interrupt::remove_partial_on_interrupt(path)?;
    Ok(write_private(path, bytes)?)
}

/// Fails if a file cannot be written because its folder is missing, so that the error comes before
/// a long simulation and not after it.
pub(crate) fn check_folder(path: &Path) -> anyhow::Result<()> {
    let folder = folder_of(path);
    fs::metadata(folder)
        .with_context(|| format!("cannot write {}: {}", path.display(), folder.display()))?;
    anyhow::ensure!(!path.is_dir(), "{}: is a folder", path.display());
    // The new file would replace a device or a pipe for all users.
    anyhow::ensure!(
        !path.exists() || path.is_file(),
        "{}: not a regular file, and not replaced by one",
        path.display()
    );
    Ok(())
}
