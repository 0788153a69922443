//! Files that a command writes: whole or not at all.

use std::fs;
use std::path::Path;

use anyhow::Context;

use hither_analysis::file::write_by;
pub(crate) use hither_analysis::file::{beside, folder_of, write_whole};

use crate::interrupt;

/// As [`write_whole`], by a name that is the same in every process: one that was killed leaves
/// nothing behind for good. For who knows that nobody else writes that file.
pub(crate) fn write_alone(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    Ok(write_by(&beside(path, ".partial"), path, bytes)?)
}

/// As [`write_whole`], and an interrupt leaves no part of it behind either.
pub(crate) fn write_interruptibly(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let Some(partial) = hither_trace::partial_path(path) else {
        return Ok(write_whole(path, bytes)?);
    };
    interrupt::leaves_nothing_of(path)?;
    Ok(write_by(&partial, path, bytes)?)
}

/// Fails where a file could not be written for want of its folder: better said before a long
/// simulation than after.
pub(crate) fn check_folder(path: &Path) -> anyhow::Result<()> {
    let folder = folder_of(path);
    fs::metadata(folder).with_context(|| folder.display().to_string())?;
    anyhow::ensure!(!path.is_dir(), "{}: is a folder", path.display());
    // The new file would take the place of a device or a pipe, for everybody.
    anyhow::ensure!(
        !path.exists() || path.is_file(),
        "{}: not a regular file, and not replaced by one",
        path.display()
    );
    Ok(())
}
