//! Files that a command writes: whole or not at all.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::interrupt;

/// Writes a file under another name beside it, and then renames it, so that nobody ever sees a part
/// of it and what was there before stays until the new one is on the disk.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let partial = beside(path, &format!(".partial-{}", std::process::id()));
    write_by(&partial, path, bytes)
}

/// As [`write_whole`], by a name that is the same in every process: one that was killed leaves
/// nothing behind for good. For who knows that nobody else writes that file.
pub(crate) fn write_alone(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    write_by(&beside(path, ".partial"), path, bytes)
}

/// As [`write_whole`], and an interrupt leaves no part of it behind either.
pub(crate) fn write_interruptibly(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let Some(partial) = hither_trace::partial_path(path) else {
        return write_whole(path, bytes);
    };
    interrupt::leaves_nothing_of(path)?;
    write_by(&partial, path, bytes)
}

fn write_by(partial: &Path, path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let written = File::create(partial)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(partial, path))
        // The name has to be on the disk as well before anybody removes what the file was made
        // from.
        .and_then(|()| File::open(folder_of(path))?.sync_all());
    if written.is_err() {
        let _ = fs::remove_file(partial);
    }
    written.with_context(|| path.display().to_string())
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

/// The folder that a file is in.
pub(crate) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// The path with something added to its name.
pub(crate) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}
