//! Opens the files that programs use: by path, by a descriptor of a program, or by the name that a
//! file was given since in its folder.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirEntryExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hither_ids::{FileKey, Pid, Tid};
use hither_kernel::file_id::FileId;
use hither_kernel::page_bytes;
use hither_kernel::page_cache::{CachedFile, OpenError, PageCache};
use hither_kernel::process::monotonic_ns;
use hither_session::record::Record;
use hither_session::session::RingInfo;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

/// The most descriptors of a program that are tried.
const DESCRIPTORS_MAX: usize = 256;

/// The most files of a folder that are listed, and how long the listing is used.
const LISTED_MAX: usize = 1 << 16;
const LISTING_NS: u64 = 100_000_000;

/// A file that a program uses.
#[derive(Clone, Debug)]
struct KnownFile {
    id: FileId,
    /// The path by which the last program opened it, or where it was found since.
    path: PathBuf,
    /// Its last path that is no program's descriptor.
    name: PathBuf,
    /// That program's process and thread, if they are in our PID namespace.
    thread: Option<(Pid, Tid)>,
    /// When it was first found to have that name no more.
    missing_ns: Option<u64>,
}

impl KnownFile {
    /// The folder that it was last found in.
    fn folder(&self) -> Option<&Path> {
        self.name.parent()
    }
}

/// The paths of the descriptors of a thread, some of them.
fn descriptors(thread: Option<(Pid, Tid)>) -> impl Iterator<Item = PathBuf> {
    let found = thread.and_then(|(pid, tid)| {
        // A thread may have descriptors of its own; it may have ended, too.
        fs::read_dir(format!("/proc/{pid}/task/{tid}/fd"))
            .or_else(|_| fs::read_dir(format!("/proc/{pid}/fd")))
            .ok()
    });
    let descriptors = found.into_iter().flatten().flatten();
    let paths = descriptors.map(|descriptor| descriptor.path());
    paths.take(DESCRIPTORS_MAX)
}

/// More ranges of a file than the library asks questions.
const CACHED_RANGES_MAX: usize = 4096;

/// What was cached of a file when a program opened it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CachedBefore {
    /// Of so much of its front that is known.
    pub(crate) known_bytes: u64,
    pub(crate) ranges: Vec<Range<u64>>,
}

/// A file when a program has opened it.
#[derive(Clone, Debug)]
pub(crate) struct OpenedFile {
    /// Its size.
    pub(crate) bytes: u64,
    /// No program had used it before.
    pub(crate) is_first: bool,
    /// What was cached then, if anybody asked.
    pub(crate) cached_before: Option<CachedBefore>,
}

/// See the module.
pub(crate) struct ProgramFiles {
    cache: Arc<dyn PageCache>,
    known: FxHashMap<FileKey, KnownFile>,
    /// What was cached of files whose records follow.
    cached: FxHashMap<FileKey, Vec<Range<u64>>>,
    /// How far the kernel reads ahead, by device.
    readahead_bytes: FxHashMap<u64, u64>,
    /// Where renamed files are looked for, if they are.
    renamed: Option<FolderListing>,
}

/// The files of the folder that was last listed, by inode number.
///
/// A file that is written beside its place and then renamed, as rsync, restic and editors do, stays
/// in its folder.
#[derive(Debug, Default)]
struct FolderListing {
    folder: PathBuf,
    names: FxHashMap<u64, OsString>,
    listed_ns: u64,
}

impl FolderListing {
    /// The path by which a file of that inode number is in a folder now. It may be busy: the folder
    /// was listed not long ago, and the file was not there.
    fn find(&mut self, folder: &Path, inode: u64, missing_ns: u64) -> Result<PathBuf, OpenError> {
        let now_ns = monotonic_ns();
        let is_fresh = self.folder == folder && now_ns < self.listed_ns + LISTING_NS;
        if !is_fresh {
            let entries = fs::read_dir(folder).map_err(|_| OpenError::NoFile)?;
            let entries = entries.flatten().take(LISTED_MAX);
            let names = entries.map(|entry| (entry.ino(), entry.file_name()));
            self.names = names.collect();
            self.folder = folder.to_owned();
            self.listed_ns = now_ns;
        }
        match self.names.get(&inode) {
            Some(name) => Ok(folder.join(name)),
            None if self.listed_ns < missing_ns => Err(OpenError::Busy),
            None => Err(OpenError::NoFile),
        }
    }
}

impl ProgramFiles {
    /// `follow_renamed`: files that were renamed in their folder are looked for.
    pub(crate) fn new(cache: Arc<dyn PageCache>, follow_renamed: bool) -> ProgramFiles {
        ProgramFiles {
            cache,
            known: FxHashMap::default(),
            cached: FxHashMap::default(),
            readahead_bytes: FxHashMap::default(),
            renamed: follow_renamed.then(FolderListing::default),
        }
    }

    /// Takes in a record. Returns the key of the file and how it was opened, if the record says
    /// that a program uses one.
    pub(crate) fn on_record(
        &mut self,
        ring: &RingInfo,
        record: &Record<'_>,
    ) -> Option<(FileKey, OpenedFile)> {
        let &Record::Object {
            object: file,
            id,
            size: bytes,
            asked_pages,
            path,
        } = record
        else {
            self.on_cached(record);
            return None;
        };
        let known = KnownFile {
            id,
            path: PathBuf::from(OsStr::from_bytes(path)),
            name: PathBuf::from(OsStr::from_bytes(path)),
            thread: ring.namespace.is_own().then_some((ring.pid, ring.tid)),
            missing_ns: None,
        };
        let is_first = self.known.insert(file, known).is_none();
        let ranges = self.cached.remove(&file).unwrap_or_default();
        let cached_before = asked_pages.map(|pages| CachedBefore {
            known_bytes: u64::from(pages) * page_bytes(),
            ranges,
        });
        let opened = OpenedFile {
            bytes,
            is_first,
            cached_before,
        };
        Some((file, opened))
    }

    fn on_cached(&mut self, record: &Record<'_>) {
        let &Record::Cached {
            object,
            offset,
            length,
        } = record
        else {
            return;
        };
        let ranges = self.cached.entry(object).or_default();
        // The library sends no more of a file.
        if ranges.len() < CACHED_RANGES_MAX {
            ranges.push(offset..offset.saturating_add(length));
        }
    }

    /// Adds a file that a program uses without a record of it.
    pub(crate) fn add(&mut self, file: FileKey, id: FileId, path: PathBuf, pid: Pid) {
        let thread = Some((pid, pid.first_thread()));
        let known = self.known.entry(file);
        known.or_insert(KnownFile {
            id,
            name: path.clone(),
            path,
            thread,
            missing_ns: None,
        });
    }

    /// The identity of a file.
    pub(crate) fn id(&self, file: FileKey) -> Option<FileId> {
        self.known.get(&file).map(|known| known.id)
    }

    /// The path where a file was last found.
    pub(crate) fn path(&self, file: FileKey) -> Option<&Path> {
        self.known.get(&file).map(|known| known.path.as_path())
    }

    /// How far the kernel reads ahead in a file. It is asked once of each device.
    pub(crate) fn readahead_bytes(&mut self, file: FileKey) -> u64 {
        let Some(known) = self.known.get(&file) else {
            return 0;
        };
        let device = known.id.device;
        let asked = self.readahead_bytes.entry(device);
        *asked.or_insert_with(|| self.cache.readahead_bytes(device))
    }

    /// Opens a file, to be closed soon.
    pub(crate) fn open(&mut self, file: FileKey) -> Result<Box<dyn CachedFile>, OpenError> {
        let cache = Arc::clone(&self.cache);
        self.find(file, |path, id| cache.open(path, id))
    }

    /// Opens a file with `open`.
    pub(crate) fn find<T>(
        &mut self,
        file: FileKey,
        open: impl Fn(&Path, FileId) -> Result<T, OpenError>,
    ) -> Result<T, OpenError> {
        let known = self.known.get_mut(&file).ok_or(OpenError::NoFile)?;
        let reason = match open(&known.path, known.id) {
            Err(reason @ (OpenError::NoFile | OpenError::Another)) => reason,
            other => return other,
        };
        // Renamed, unlinked, or opened under another root: the program may have it open still.
        for path in descriptors(known.thread) {
            if let Ok(opened) = open(&path, known.id) {
                known.path = path;
                return Ok(opened);
            }
        }
        let missing_ns = *known.missing_ns.get_or_insert_with(monotonic_ns);
        let (Some(renamed), Some(folder)) = (&mut self.renamed, known.folder()) else {
            return Err(reason);
        };
        let path = renamed.find(folder, known.id.inode, missing_ns)?;
        let is_old = renamed.listed_ns < missing_ns;
        let opened = open(&path, known.id).map_err(|reason| match reason {
            // It was listed before it got the name that it has now.
            OpenError::NoFile | OpenError::Another if is_old => OpenError::Busy,
            other => other,
        })?;
        known.name.clone_from(&path);
        known.path = path;
        known.missing_ns = None;
        Ok(opened)
    }
}

#[cfg(test)]
mod tests {
    use hither_kernel::file_id::Inode;
    use hither_kernel::mapped_files::identify;
    use hither_kernel::page_cache::{ThisPageCache, open};

    use super::*;

    /// What was listed may have another name by now: the file is not gone.
    #[test]
    fn a_file_that_is_renamed_again_is_found_later() {
        let folder = tempfile::tempdir().expect("a folder");
        let [first, second] = ["first", "second"].map(|name| folder.path().join(name));
        fs::write(&first, "x").expect("written");
        let inode = Inode::of(&fs::metadata(&first).expect("it is there"));
        let (id, _) = identify(&first, inode).expect("it has an identity");
        let mut files = ProgramFiles::new(Arc::new(ThisPageCache), true);
        files.add(id.key(), id, folder.path().join("before"), Pid(0));
        let mut find = || files.find(id.key(), |path, id| open(path, id).map(drop));
        assert_eq!(find(), Ok(()));
        fs::rename(&first, &second).expect("renamed");
        let mut found = find();
        while found == Err(OpenError::Busy) {
            std::thread::sleep(std::time::Duration::from_millis(10));
            found = find();
        }
        assert_eq!(found, Ok(()));
        fs::remove_file(&second).expect("removed");
        std::thread::sleep(std::time::Duration::from_nanos(LISTING_NS));
        assert_eq!(find(), Err(OpenError::NoFile));
    }
}
