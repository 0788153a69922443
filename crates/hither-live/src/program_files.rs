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
    /// That program's process and thread, if they are in our PID namespace.
    thread: Option<(u32, u32)>,
}

/// See the module.
pub(crate) struct ProgramFiles {
    cache: Arc<dyn PageCache>,
    known: FxHashMap<u64, KnownFile>,
}

impl ProgramFiles {
    pub(crate) fn new(cache: Arc<dyn PageCache>) -> ProgramFiles {
        ProgramFiles {
            cache,
            known: FxHashMap::default(),
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
            thread: ring.namespace.is_own().then_some((ring.pid, ring.tid)),
        };
        let before = self.known.insert(file, known);
        Some((file, before.is_none().then_some(size)))
    }

    /// Adds a file that a program uses without a record of it.
    pub(crate) fn add(&mut self, file: u64, id: FileId, path: PathBuf, pid: u32) {
        let thread = Some((pid, pid));
        let known = self.known.entry(file);
        known.or_insert(KnownFile { id, path, thread });
    }

    /// The identity of a file.
    pub(crate) fn id(&self, file: u64) -> Option<FileId> {
        self.known.get(&file).map(|known| known.id)
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
        let (pid, tid) = known.thread.ok_or(reason)?;
        // A thread may have descriptors of its own; it may have ended, too.
        let descriptors = fs::read_dir(format!("/proc/{pid}/task/{tid}/fd"))
            .or_else(|_| fs::read_dir(format!("/proc/{pid}/fd")))
            .map_err(|_| reason)?;
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
