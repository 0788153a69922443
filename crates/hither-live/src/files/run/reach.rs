//! Getting at the files that programs use: by their path, or by a descriptor that a program has of them.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use hither_sys::page_cache::{CachedFile, FileId, PageCache, Unreachable};
use rustc_hash::FxHashMap;

/// Of a program's descriptors, those that are looked at.
const DESCRIPTORS_MAX: usize = 256;

/// A file that a program uses.
#[derive(Clone, Debug)]
struct Known {
    id: FileId,
    path: PathBuf,
    /// Who used it first, if that process can be looked at.
    pid: Option<u32>,
}

/// See the module.
pub(super) struct Reach {
    cache: Arc<dyn PageCache>,
    known: FxHashMap<u64, Known>,
}

impl Reach {
    pub(super) fn new(cache: Arc<dyn PageCache>) -> Reach {
        Reach {
            cache,
            known: FxHashMap::default(),
        }
    }

    /// A program uses a file, by the path that it sees.
    pub(super) fn learn(&mut self, file: u64, id: FileId, path: &[u8], pid: Option<u32>) {
        let path = PathBuf::from(OsStr::from_bytes(path));
        self.known.insert(file, Known { id, path, pid });
    }

    /// How far the kernel reads ahead in that file.
    pub(super) fn read_ahead_bytes(&self, file: u64) -> u64 {
        let known = self.known.get(&file);
        known.map_or(0, |known| self.cache.read_ahead_bytes(known.id.device))
    }

    /// The file itself, to be let go of soon.
    pub(super) fn open(&mut self, file: u64) -> Result<Box<dyn CachedFile>, Unreachable> {
        let known = self.known.get_mut(&file).ok_or(Unreachable::NoFile)?;
        let reason = match self.cache.open(&known.path, known.id) {
            Err(reason @ (Unreachable::NoFile | Unreachable::Another)) => reason,
            other => return other,
        };
        // Renamed, unlinked, or seen from another root: whoever has it open has it under a number.
        let pid = known.pid.ok_or(reason)?;
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).map_err(|_| reason)?;
        let paths = descriptors.flatten().map(|descriptor| descriptor.path());
        for path in paths.take(DESCRIPTORS_MAX) {
            if let Ok(opened) = self.cache.open(&path, known.id) {
                known.path = path;
                return Ok(opened);
            }
        }
        Err(reason)
    }
}
