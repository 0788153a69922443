//! Files that are written whole or not at all.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// Writes a file under a hidden name in the same folder and renames it. So no reader sees a part of
/// it, and the old file stays until the new one is on the disk. What a killed process has left of
/// an earlier attempt is removed.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    write_with_mode(path, bytes, 0o666)
}

/// As [`write_whole`], for what its owner alone may read.
pub fn write_private(path: &Path, bytes: &[u8]) -> Result<()> {
    write_with_mode(path, bytes, hither_trace::PRIVATE_MODE)
}

fn write_with_mode(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    let number = std::process::id();
    let partial = hither_trace::partial_path(path)
        .unwrap_or_else(|| beside(path, &format!(".partial-{number}")));
    hither_trace::clear_leftovers(path);
    // Where it cannot be created, it may be another process's, as in a container with equal ids.
    let file = hither_trace::create_locked(&partial, mode).map_err(Error::of_writing(path))?;
    publish(Ok(file), &partial, path, bytes)
}

/// As [`write_whole`], with the name `partial` until the file is complete. A file of that name is
/// replaced.
pub fn write_by(partial: &Path, path: &Path, bytes: &[u8]) -> Result<()> {
    publish(File::create(partial), partial, path, bytes)
}

fn publish(file: std::io::Result<File>, partial: &Path, path: &Path, bytes: &[u8]) -> Result<()> {
    let written = file
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(partial, path))
        // The name must be on the disk too before a caller removes what the file was made from.
        .and_then(|()| File::open(folder_of(path))?.sync_all());
    if written.is_err() {
        let _ = fs::remove_file(partial);
    }
    written.map_err(Error::of_writing(path))
}

/// The folder that a file is in.
pub fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// The last part of a path, for titles.
pub fn name_of(path: &Path) -> String {
    let name = path.file_name();
    name.map_or_else(
        || path.to_string_lossy().into(),
        |name| name.to_string_lossy().into(),
    )
}

/// The path with `ending` added to its name.
pub fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}
