//! Getting at the files that programs use: by their path, or by a descriptor that a program has of
//! them.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hither_sys::page_cache::{CachedFile, FileId, OpenError, PageCache};
use hither_sys::record::Record;
use hither_sys::session::RingInfo;
use rustc_hash::FxHashMap;

/// Of a program's descriptors, those that are looked at.
const DESCRIPTORS_MAX: usize = 256;

/// A file that a program uses.
#[derive(Clone, Debug)]
struct Known {
    id: FileId,
    /// As who opened it last sees it, or where it was found since.
    path: PathBuf,
    /// Who that was, if that process can be looked at.
    pid: Option<u32>,
}

/// See the module.
pub(crate) struct ProgramFiles {
    cache: Arc<dyn PageCache>,
    known: FxHashMap<u64, Known>,
    /// By process, what it had had read from storage.
    stored: FxHashMap<u32, u64>,
}

impl ProgramFiles {
    pub(crate) fn new(cache: Arc<dyn PageCache>) -> ProgramFiles {
        ProgramFiles {
            cache,
            known: FxHashMap::default(),
            stored: FxHashMap::default(),
        }
    }

    /// Takes in a record: the key of the file that a program uses, if it says so of one, and the
    /// file's size if none did before.
    pub(crate) fn on_record(
        &mut self,
        ring: &RingInfo,
        record: &Record<'_>,
    ) -> Option<(u64, Option<u64>)> {
        let &Record::Object {
            object: file,
            device,
            inode,
            birth_ns,
            size,
            path,
        } = record
        else {
            return None;
        };
        let known = Known {
            id: FileId {
                device,
                inode,
                birth_ns,
            },
            path: PathBuf::from(OsStr::from_bytes(path)),
            pid: (!ring.other_pid_namespace).then_some(ring.pid),
        };
        let before = self.known.insert(file, known);
        Some((file, before.is_none().then_some(size)))
    }

    /// Which file it is.
    pub(crate) fn id(&self, file: u64) -> Option<FileId> {
        self.known.get(&file).map(|known| known.id)
    }

    /// What the process that opened a file last has had read from storage since this was last asked
    /// of it, or since its start. Nothing where it is gone, or does not let itself be looked at.
    pub(crate) fn stored_bytes(&mut self, file: u64) -> Option<u64> {
        let pid = self.known.get(&file)?.pid?;
        let io = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
        let mut lines = io.lines();
        let bytes = lines.find_map(|line| line.strip_prefix("read_bytes: "))?;
        let bytes: u64 = bytes.parse().ok()?;
        let before = self.stored.insert(pid, bytes).unwrap_or(0);
        // The process may be another one of the same number.
        Some(bytes.checked_sub(before).unwrap_or(bytes))
    }

    /// Where it was found last.
    pub(crate) fn path(&self, file: u64) -> Option<&Path> {
        self.known.get(&file).map(|known| known.path.as_path())
    }

    /// How far the kernel reads ahead in that file.
    pub(crate) fn readahead_bytes(&self, file: u64) -> u64 {
        let known = self.known.get(&file);
        known.map_or(0, |known| self.cache.readahead_bytes(known.id.device))
    }

    /// The file itself, to be let go of soon.
    pub(crate) fn open(&mut self, file: u64) -> Result<Box<dyn CachedFile>, OpenError> {
        let cache = Arc::clone(&self.cache);
        self.find(file, |path, id| cache.open(path, id))
    }

    /// The file itself, however it is opened.
    pub(crate) fn find<T>(
        &mut self,
        file: u64,
        open: impl Fn(&Path, FileId) -> Result<T, OpenError>,
    ) -> Result<T, OpenError> {
        let known = self.known.get_mut(&file).ok_or(OpenError::NoFile)?;
        let reason = match open(&known.path, known.id) {
            Err(reason @ (OpenError::NoFile | OpenError::Another)) => reason,
            other => return other,
        };
        // Renamed, unlinked, or seen from another root: whoever has it open has it under a number.
        let pid = known.pid.ok_or(reason)?;
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).map_err(|_| reason)?;
        let paths = descriptors.flatten().map(|descriptor| descriptor.path());
        for path in paths.take(DESCRIPTORS_MAX) {
            if let Ok(opened) = open(&path, known.id) {
                known.path = path;
                return Ok(opened);
            }
        }
        Err(reason)
    }
}
