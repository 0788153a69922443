//! What the blocking threads work on: an opened directory, and what is open below it.

use std::collections::HashSet;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use rustix::buffer::spare_capacity;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Access, AtFlags, CWD, Dir, OFlags, accessat, fstatvfs};
use rustix::io::{Errno, pread};

use super::super::counters::SourceCounters;
use super::super::{
    AccessList, Entry, FileVersion, ListCursor, Listing, SourceError, SourcePath, Space, Version,
};
use super::attributes::{Attributes, access_list, ask, attributes, is_file, same_file};
use super::beneath::{Root, by_descriptor};
use super::kept::Kept;
use super::partial::is_partial;

/// Entries of one page of a listing.
const PAGE_ENTRIES: usize = 1000;

/// Descriptors of files that stay open between reads. Sequential readers so open a file once.
const FILES_OPEN_MAX: usize = 64;

/// Directories that stay open between the pages of their listings.
const DIRECTORIES_OPEN_MAX: usize = 64;

/// A directory and all below it.
pub(super) struct Tree {
    pub root: Root,
    pub attributes: Attributes,
    pub counters: SourceCounters,
    /// The names of the unfinished files that are written.
    pub written: Arc<Mutex<HashSet<Vec<u8>>>>,
    /// Files whose names are gone, that are read on.
    pub held: Mutex<FxHashMap<Version, Arc<OwnedFd>>>,
    files: Kept<FileVersion, Arc<OwnedFd>>,
    directories: Kept<Position, Dir>,
}

/// Where an open directory stands: what its next page is asked for by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Position {
    path: SourcePath,
    offset: i64,
}

impl Tree {
    /// Opens the directory `path`.
    pub(super) fn open(path: &Path, settling: Duration) -> Result<Tree, Errno> {
        let root = Root::open(path)?;
        let stat = ask(root.open_beneath(b"", OFlags::PATH)?, c"")?;
        Ok(Tree {
            root,
            attributes: Attributes {
                root_device: (stat.stx_dev_major, stat.stx_dev_minor),
                settling,
            },
            counters: SourceCounters::default(),
            written: Arc::default(),
            held: Mutex::default(),
            files: Kept::new(FILES_OPEN_MAX),
            directories: Kept::new(DIRECTORIES_OPEN_MAX),
        })
    }

    /// What `path` leads to.
    pub(super) fn stat(&self, path: &SourcePath) -> Result<Entry, SourceError> {
        let entry = || {
            // O_PATH opens nothing: a pipe or a device does not notice.
            let fd = self.root.open_beneath(path.as_bytes(), OFlags::PATH)?;
            let stat = ask(&fd, c"")?;
            self.attributes.entry(&fd, c"", &stat)
        };
        entry().map_err(|error| failure(path, error))
    }

    /// The version of what is open, if that is a file.
    pub(super) fn file_version(&self, file: impl AsFd) -> Result<Option<Version>, Errno> {
        let stat = ask(file, c"")?;
        Ok(is_file(&stat).then(|| self.attributes.version(&stat)))
    }

    /// Whether this thread's user may use what is at `path`, if that is `version`, or no file.
    pub(super) fn check_access(
        &self,
        path: &SourcePath,
        version: Option<&Version>,
        access: Access,
    ) -> Result<(), SourceError> {
        let check = || {
            let file = self.root.open_beneath(path.as_bytes(), OFlags::PATH)?;
            accessat(CWD, &*by_descriptor(&file), access, AtFlags::EACCESS)?;
            if self.file_version(&file)?.as_ref() == version {
                Ok(())
            } else {
                Err(Errno::STALE)
            }
        };
        check().map_err(|error| failure(path, error))
    }

    /// An access list of what is at `path`, if that is `version`, or no file.
    pub(super) fn access_list(
        &self,
        path: &SourcePath,
        version: Option<&Version>,
        list: AccessList,
    ) -> Result<Option<Vec<u8>>, SourceError> {
        let get = || {
            let file = self.root.open_beneath(path.as_bytes(), OFlags::PATH)?;
            let value = access_list(&file, list)?;
            if self.file_version(&file)?.as_ref() == version {
                Ok(value)
            } else {
                Err(Errno::STALE)
            }
        };
        get().map_err(|error| failure(path, error))
    }

    /// The room of the file system that the root is on.
    pub(super) fn space(&self) -> Result<Space, SourceError> {
        let space = || {
            fstatvfs(
                self.root
                    .open_beneath(b"", OFlags::RDONLY | OFlags::DIRECTORY)?,
            )
        };
        let space = space().map_err(|error| failure(&SourcePath::default(), error))?;
        Ok(Space {
            block_bytes: space.f_frsize,
            blocks: space.f_blocks,
            free_blocks: space.f_bfree,
            available_blocks: space.f_bavail,
            files: space.f_files,
            free_files: space.f_ffree,
        })
    }

    /// A page of the directory `path`.
    pub(super) fn list(
        &self,
        path: SourcePath,
        from: Option<ListCursor>,
    ) -> Result<Listing, SourceError> {
        let failed = |error| failure(&path, error);
        let position = |offset| Position {
            path: path.clone(),
            offset,
        };
        let mut directory = match from {
            None => self.open_directory(&path).map_err(failed)?,
            Some(cursor) => {
                let offset = <[u8; 8]>::try_from(&cursor.0[..]);
                let offset = i64::from_le_bytes(offset.map_err(|_| failed(Errno::INVAL))?);
                match self.directories.take(&position(offset)) {
                    Some(directory) => directory,
                    None => {
                        // It was closed meanwhile, or the page is asked for once more.
                        let mut directory = self.open_directory(&path).map_err(failed)?;
                        directory.seek(offset).map_err(failed)?;
                        directory
                    }
                }
            }
        };
        let mut listing = Listing::default();
        let mut offset = None;
        while listing.entries.len() < PAGE_ENTRIES {
            let Some(entry) = directory.read() else {
                return Ok(listing);
            };
            let entry = entry.map_err(failed)?;
            offset = Some(entry.offset());
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") || is_partial(name.to_bytes()) {
                continue;
            }
            let fd = directory.fd().map_err(failed)?;
            let found =
                attributes(fd, name).and_then(|stat| self.attributes.entry(fd, name, &stat));
            match found {
                Ok(found) => listing.entries.push((name.to_bytes().to_vec(), found)),
                // Removed since, or a link that became something else.
                Err(Errno::NOENT | Errno::INVAL) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        if let Some(offset) = offset {
            self.directories.put(position(offset), directory);
            listing.next = Some(ListCursor(offset.to_le_bytes().to_vec()));
        }
        Ok(listing)
    }

    /// Closes what was not used for `idle`.
    pub(super) fn close_idle(&self, idle: Duration) {
        self.files.sweep(idle);
        self.directories.sweep(idle);
    }

    fn open_directory(&self, path: &SourcePath) -> Result<Dir, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        Dir::new(self.root.open_beneath(path.as_bytes(), flags)?)
    }

    /// The bytes `piece` of a file that is still of its version after they were read. Of one that
    /// is read live, what there is of them now, whatever version of that file it is.
    pub(super) fn read(
        &self,
        file: &FileVersion,
        piece: Range<u64>,
        is_live: bool,
    ) -> Result<Bytes, SourceError> {
        let mut read = self.read_once(file, &piece, is_live);
        if matches!(read, Err(Errno::STALE)) {
            // The server of a network file system forgot the open file. The path may still be fine.
            self.files.take(file);
            self.counters.retries.add(1);
            read = self.read_once(file, &piece, is_live);
        }
        match read {
            Ok(Some(bytes)) => {
                self.counters.bytes.add(bytes.len() as u64);
                Ok(bytes)
            }
            Ok(None) => {
                self.files.take(file);
                Err(SourceError::Changed(file.path.clone()))
            }
            Err(error) => {
                self.files.take(file);
                Err(failure(&file.path, error))
            }
        }
    }

    /// `None` if the file is of another version, or is another file if it is read live.
    fn read_once(
        &self,
        file: &FileVersion,
        piece: &Range<u64>,
        is_live: bool,
    ) -> Result<Option<Bytes>, Errno> {
        let same = |fd: &OwnedFd| -> Result<bool, Errno> {
            let stat = attributes(fd, c"")?;
            let now = self.attributes.version(&stat);
            let is_it = now == file.version || is_live && same_file(&now, &file.version);
            Ok(is_file(&stat) && is_it)
        };
        let held = self.held.lock().get(&file.version).cloned();
        let fd = match held.or_else(|| self.files.get(file)) {
            Some(fd) => fd,
            None => {
                // Not blocking, should it be a pipe by now.
                let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
                let opened = self.root.open_beneath(file.path.as_bytes(), flags);
                let fd = match opened {
                    Ok(fd) => Arc::new(fd),
                    // A socket, or a device that is not there: no file any more.
                    Err(Errno::NXIO | Errno::NODEV) => return Ok(None),
                    Err(error) => return Err(error),
                };
                if !same(&fd)? {
                    return Ok(None);
                }
                self.files.put(file.clone(), Arc::clone(&fd));
                fd
            }
        };
        let bytes = read_whole(&*fd, piece)?;
        let complete = is_live || bytes.len() as u64 == piece.end - piece.start;
        Ok((complete && same(&fd)?).then_some(bytes))
    }
}

/// The bytes `range`, or fewer if the file ends before.
pub(super) fn read_whole(fd: impl AsFd, range: &Range<u64>) -> Result<Bytes, Errno> {
    let length = usize::try_from(range.end - range.start).map_err(|_| Errno::INVAL)?;
    let mut bytes: Vec<u8> = Vec::with_capacity(length);
    while bytes.len() < length {
        let at = range.start + bytes.len() as u64;
        match pread(&fd, spare_capacity(&mut bytes), at) {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    // The capacity may exceed what was asked for.
    bytes.truncate(length);
    Ok(bytes.into())
}

/// What an error at `path` means.
pub(super) fn failure(path: &SourcePath, error: Errno) -> SourceError {
    match error {
        // A link on the way is no directory: whoever follows it does so before it asks here.
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV => {
            SourceError::NotFound(path.clone())
        }
        Errno::STALE => SourceError::Changed(path.clone()),
        Errno::ROFS
        | Errno::NAMETOOLONG
        | Errno::FBIG
        | Errno::PERM
        | Errno::MLINK
        | Errno::TXTBSY => SourceError::Refused {
            path: path.clone(),
            code: error.raw_os_error(),
        },
        Errno::ACCESS => SourceError::Denied {
            path: path.clone(),
            reason: error.to_string(),
        },
        Errno::NOSPC | Errno::DQUOT => SourceError::Full {
            path: path.clone(),
            reason: error.to_string(),
        },
        _ => SourceError::Failed {
            path: path.clone(),
            reason: error.to_string(),
        },
    }
}
