//! Keeps calibrations in the user's cache folder: a file for each machine, since machines may share
//! a home folder.

use std::fs::{self, DirBuilder};
use std::hash::Hasher;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use hither_ids::Pid;
use hither_kernel::machine::{Machine, NodeMemory};
use rustc_hash::FxHasher;

use super::measurement::{Calibration, FORMAT_VERSION, MachineKey};

/// The folder `hither` in `$XDG_CACHE_HOME`, or in `~/.cache`. `None` without a home folder.
pub fn cache_folder() -> Option<PathBuf> {
    let absolute = |name| {
        let path = std::env::var_os(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    let caches = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    Some(caches?.join("hither"))
}

/// A folder of calibrations.
#[derive(Clone, Debug)]
pub struct CalibrationCache {
    folder: PathBuf,
}

impl CalibrationCache {
    /// The folder need not exist.
    pub fn new(folder: &Path) -> CalibrationCache {
        CalibrationCache {
            folder: folder.to_owned(),
        }
    }

    fn path(&self, key: &MachineKey) -> PathBuf {
        let mut hasher = FxHasher::default();
        hasher.write(&serde_json::to_vec(key).unwrap_or_default());
        self.folder
            .join(format!("memory-{:016x}.json", hasher.finish()))
    }

    /// The calibration of this machine, if there is one.
    ///
    /// # Errors
    /// The file cannot be read, or is of another version or machine.
    pub fn read(
        &self,
        machine: &dyn Machine,
        nodes: &[NodeMemory],
    ) -> Result<Option<Calibration>, String> {
        let Some(key) = MachineKey::of(machine, nodes) else {
            return Ok(None);
        };
        let path = self.path(&key);
        let describe = |problem: &str| format!("{}: {problem}", path.display());
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(describe(&error.to_string())),
        };
        let read: Calibration =
            serde_json::from_slice(&bytes).map_err(|error| describe(&error.to_string()))?;
        if read.hither_calibration != FORMAT_VERSION {
            return Err(describe("of another version"));
        }
        if read.machine != key || !read.is_of(nodes.len()) {
            return Err(describe("of another machine"));
        }
        Ok(Some(read))
    }

    /// Replaces the file of the calibration's machine, all of it or nothing. Returns its path.
    ///
    /// # Errors
    /// The folder cannot be created, or the file not be written.
    pub fn keep(&self, calibration: &Calibration) -> Result<PathBuf, String> {
        let path = self.path(&calibration.machine);
        let partial = path.with_extension(format!("partial-{}", Pid::own()));
        let mut folders = DirBuilder::new();
        folders.recursive(true).mode(0o700);
        let written = serde_json::to_vec_pretty(calibration)
            .map_err(io::Error::from)
            .and_then(|text| {
                folders.create(&self.folder)?;
                fs::write(&partial, text)?;
                fs::rename(&partial, &path)
            });
        written.map(|()| path.clone()).map_err(|error| {
            let _ = fs::remove_file(&partial);
            format!("{}: {error}", path.display())
        })
    }
}
