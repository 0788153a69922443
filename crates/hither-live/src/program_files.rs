//! Opens the files that programs use: by path, or by a descriptor of a program.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hither_sys::page_cache::{CachedFile, FileId, OpenError, PageCache};
use hither_sys::record::Record;
use hither_sys::session::RingInfo;
use rustc_hash::FxHashMap;

/// The most descriptors of a program that are tried.
const DESCRIPTORS_MAX: usize = 256;

/// A file that a program uses.
#[derive(Clone, Debug)]
struct KnownFile {
    id: FileId,
    /// The path by which the last program opened it, or where it was found since.
    path: PathBuf,
    /// That program's process, if it is in our PID namespace.
    pid: Option<u32>,
}

/// See the module.
pub(crate) struct ProgramFiles {
    cache: Arc<dyn PageCache>,
    known: FxHashMap<u64, KnownFile>,
    /// Bytes that each process had read from storage.
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

    /// Takes in a record. Returns the key of the file if the record says that a program uses one,
    /// and the file's size if it is the first to do so.
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
        let known = KnownFile {
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

    /// The identity of a file.
    pub(crate) fn id(&self, file: u64) -> Option<FileId> {
        self.known.get(&file).map(|known| known.id)
    }

    /// The bytes that the process that opened a file last has read from storage, since the last
    /// call for that process or since its start. `None` where it has ended or may not be inspected.
    pub(crate) fn stored_bytes(&mut self, file: u64) -> Option<u64> {
        let pid = self.known.get(&file)?.pid?;
        let io = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
        let mut lines = io.lines();
        let bytes = lines.find_map(|line| line.strip_prefix("read_bytes: "))?;
        let bytes: u64 = bytes.parse().ok()?;
        let before = self.stored.insert(pid, bytes).unwrap_or(0);
        // The number may be another process's by now.
        Some(bytes.checked_sub(before).unwrap_or(bytes))
    }

    /// The path where a file was last found.
    pub(crate) fn path(&self, file: u64) -> Option<&Path> {
        self.known.get(&file).map(|known| known.path.as_path())
    }

    /// How far the kernel reads ahead in a file.
    pub(crate) fn readahead_bytes(&self, file: u64) -> u64 {
        let known = self.known.get(&file);
        known.map_or(0, |known| self.cache.readahead_bytes(known.id.device))
    }

    /// Opens a file, to be closed soon.
    pub(crate) fn open(&mut self, file: u64) -> Result<Box<dyn CachedFile>, OpenError> {
        let cache = Arc::clone(&self.cache);
        self.find(file, |path, id| cache.open(path, id))
    }

    /// Opens a file with `open`.
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
        // Renamed, unlinked, or opened under another root: the program may have it open still.
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
