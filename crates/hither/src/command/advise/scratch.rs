//! The temporary folder of a command that records without keeping the trace: `advise -- CMD`.
//!
//! It is removed at the end. A command that is killed leaves it. The next one removes it, unless it
//! holds a trace or what can be recovered: that is named, since a recording may have taken hours.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use hither_kernel::private_folder;
use tempfile::TempDir;

use crate::command::options::recording::left;
use crate::command::options::trace_output::DEFAULT_OUTPUT;
use crate::ui::Ui;

/// The folders are called this and some letters.
const PREFIX: &str = "hither-advise-";

/// A file in each that its owner has locked.
const LOCK: &str = "lock";

/// A temporary folder for a trace.
pub(super) struct Scratch {
    folder: TempDir,
    _lock: File,
}

impl Scratch {
    /// Creates one, and looks at what killed commands have left.
    pub(super) fn create(ui: &Ui) -> anyhow::Result<Scratch> {
        let parent = std::env::temp_dir();
        for found in clear(&parent) {
            ui.note(match found {
                Left::Trace(trace) => format!(
                    "`{0}` is the trace of a command that was killed; `hither advise {0}`",
                    trace.display()
                ),
                Left::Partial(partial) => left(&partial),
            });
        }
        Scratch::create_in(&parent)
            .context("cannot create a folder for the recording (TMPDIR names another place)")
    }

    fn create_in(parent: &Path) -> std::io::Result<Scratch> {
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
        let lock =
            hither_trace::create_locked(&folder.path().join(LOCK), hither_trace::PRIVATE_MODE)?;
        Ok(Scratch {
            folder,
            _lock: lock,
        })
    }

    /// Where to put the trace.
    pub(super) fn trace(&self) -> PathBuf {
        self.folder.path().join(DEFAULT_OUTPUT)
    }
}

/// What a killed command has left that is worth keeping.
#[derive(Debug, PartialEq, Eq)]
enum Left {
    Trace(PathBuf),
    Partial(PathBuf),
}

/// Removes the folders of killed commands of this user that hold nothing.
fn clear(parent: &Path) -> Vec<Left> {
    let user = private_folder::user().ok();
    let mut left = Vec::new();
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let folder = entry.path();
        let is_ours = entry.file_name().to_string_lossy().starts_with(PREFIX)
            && entry
                .metadata()
                .is_ok_and(|found| Some(found.uid()) == user);
        // A folder without the file is one that is being created.
        let lock = File::options().write(true).open(folder.join(LOCK));
        if !is_ours || !lock.is_ok_and(|lock| lock.try_lock().is_ok()) {
            continue;
        }
        let trace = folder.join(DEFAULT_OUTPUT);
        let partial = hither_trace::recoverable(&trace);
        if trace.exists() {
            left.push(Left::Trace(trace));
        } else if partial.is_empty() && !has_partial(&folder) {
            // What cannot be removed is in nobody's way.
            let _ = fs::remove_dir_all(&folder);
        }
        left.extend(partial.into_iter().map(Left::Partial));
    }
    left
}

/// Whether a recording is being made or recovered in a folder.
fn has_partial(folder: &Path) -> bool {
    let mut entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.any(|entry| entry.file_name().to_string_lossy().contains(".partial-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_killed_commands_leave_is_removed_or_named() {
        let parent = tempfile::tempdir().unwrap();
        let scratch = || Scratch::create_in(parent.path()).unwrap();
        let lives = scratch();
        let killed = || {
            let Scratch { folder, .. } = scratch();
            folder.keep()
        };
        let (empty, whole) = (killed(), killed());
        let starting = parent.path().join(format!("{PREFIX}starts"));
        let others = parent.path().join("others");
        let trace = whole.join(DEFAULT_OUTPUT);
        for folder in [&starting, &others, &trace] {
            fs::create_dir(folder).unwrap();
        }
        assert_eq!(clear(parent.path()), [Left::Trace(trace)]);
        assert!(!empty.exists());
        assert!(lives.folder.path().exists() && starting.exists() && others.exists());
    }
}
