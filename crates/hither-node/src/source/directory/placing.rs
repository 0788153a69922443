//! Puts a finished version in its place, so that nothing is lost that somebody else has stored.
//!
//! No call replaces one version only. So whoever does this locks the file that is there, by
//! flock(2), which all mounts do, on all machines whose file system knows of each other's locks.
//! Then it exchanges the two names, and looks at what has come out: if a program at the source has
//! changed or replaced that in the last moment, the names are exchanged back, and the version is
//! refused. Where names cannot be exchanged (NFS), that last look is missing.
//!
//! Two kinds of versions are written into the file that is there instead. What was only appended is
//! appended: a program that appends to that file at the same time loses nothing, and who has it
//! open goes on with it. And a file with several links keeps them: it is overwritten, which is no
//! change as a whole.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{
    Access, AtFlags, CWD, FlockOperation, Gid, Mode, OFlags, RenameFlags, Statx, Uid, accessat,
    fchmod, fchown, flock, fsync, ftruncate, futimens, linkat, openat, renameat, renameat_with,
    unlinkat,
};
use rustix::io::{Errno, write};

use super::super::write::{Acting, Changes, Replace};
use super::super::{Entry, SourceError, SourcePath};
use super::attributes::{ask, is_file, same_contents};
use super::beneath::by_descriptor;
use super::copying::{copy_extended_attributes, copy_range};
use super::open_file::{in_the_way, now, set_open};
use super::tree::{Tree, failure, read_whole};

/// How often a version that may take the place of others is tried anew if one comes in between.
const ATTEMPTS_MAX: usize = 1000;

/// How long a lock of another program is waited for. After that, the version takes its place
/// without one: a program that may only read the file could keep it from being written.
const LOCK_TIME_MAX: Duration = Duration::from_secs(5);

/// A version that is complete.
pub(super) struct Finished {
    pub partial: Arc<Partial>,
    pub replace: Replace,
    pub acting: Arc<Acting>,
    /// Its attributes that differ from those of the version before.
    pub changes: Changes,
    pub bytes: u64,
    /// It is the version before up to here, and new from here on.
    pub appended_from: Option<u64>,
}

/// A file that is there.
pub(super) struct There {
    pub stat: Statx,
    /// Opened by O_PATH.
    pub file: OwnedFd,
}

impl There {
    /// Whether it is the same file, whatever is in it.
    pub(super) fn is(&self, other: &Statx) -> bool {
        is_same(&self.stat, other)
    }
}

fn is_same(one: &Statx, other: &Statx) -> bool {
    let number = |stat: &Statx| (stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino);
    number(one) == number(other)
}

impl Tree {
    /// What is at `path` now, if `replace` allows it.
    pub(super) fn check(
        &self,
        path: &SourcePath,
        replace: &Replace,
    ) -> Result<Option<There>, SourceError> {
        let current = match self.root.open_beneath(path.as_bytes(), OFlags::PATH) {
            Ok(file) => {
                let stat = ask(&file, c"").map_err(|error| failure(path, error))?;
                Some(There { stat, file })
            }
            Err(Errno::NOENT) => None,
            Err(error) => return Err(failure(path, error)),
        };
        if current.as_ref().is_some_and(|it| !is_file(&it.stat)) {
            return Err(in_the_way(path, "it is no file"));
        }
        match (replace, &current) {
            (Replace::Any, _) | (Replace::Existing, Some(_)) | (Replace::Nothing, None) => {
                Ok(current)
            }
            (Replace::Nothing, Some(_)) => Err(in_the_way(path, "it exists")),
            (Replace::Version(wanted), Some(it))
                if self.attributes.version(&it.stat) == *wanted =>
            {
                Ok(current)
            }
            (Replace::Existing | Replace::Version(_), _) => Err(SourceError::Changed(path.clone())),
        }
    }

    /// Puts a version in its place.
    pub(super) fn finish(
        &self,
        path: &SourcePath,
        finished: &Finished,
        is_abandoned: &AtomicBool,
    ) -> Result<Entry, SourceError> {
        let failed = |error| failure(path, error);
        let (partial, replace) = (&finished.partial, &finished.replace);
        let (directory, name) = self.place(path)?;
        fsync(&partial.file).map_err(failed)?;
        let own = ask(&partial.file, c"").map_err(failed)?;
        for _ in 0..ATTEMPTS_MAX {
            let beside = ask_at(&*partial.directory.lock(), &partial.name);
            if !beside.is_ok_and(|beside| is_same(&beside, &own)) {
                // Who may change the directory has moved or removed it.
                return Err(SourceError::Changed(path.clone()));
            }
            let found = self.check(path, replace)?;
            let locked = match &found {
                Some(found) => lock(&found.file, is_abandoned).map_err(failed)?,
                None => None,
            };
            // Until it was locked, it may have changed, or been replaced.
            let there = self.check(path, replace)?;
            let is_same = match (&found, &there) {
                (Some(found), Some(there)) => there.is(&found.stat),
                (found, there) => found.is_none() && there.is_none(),
            };
            if !is_same {
                continue;
            }
            if is_abandoned.load(Ordering::Acquire) {
                // Its writer was told that it failed: what is there may be newer.
                return Err(failed(Errno::TIMEDOUT));
            }
            let Some(there) = there else {
                let from = partial.directory.lock();
                let only_new = *replace == Replace::Nothing;
                let moved = move_to((&*from, &partial.name), (&directory, name), only_new);
                moved.map_err(|error| in_its_way(path, error))?;
                return self.placed(path, &directory, &partial.file);
            };
            self.check_right(path, partial, &there, &finished.acting)?;
            if let Some(stored) = store_into(finished, &there, locked.as_ref()) {
                stored.map_err(failed)?;
                return self.placed(path, &directory, &there.file);
            }
            if !partial
                .base
                .as_ref()
                .is_some_and(|base| base.is(&there.stat))
            {
                partial.take_attributes(&there).map_err(failed)?;
                set_open(&partial.file, &finished.changes).map_err(failed)?;
            }
            let is_it = |out: &Statx| match replace {
                Replace::Version(_) => {
                    let version = |stat| self.attributes.version(stat);
                    same_contents(&version(out), &version(&there.stat))
                }
                _ => there.is(out),
            };
            let from = partial.directory.lock();
            let from = (&*from, &partial.name[..]);
            let exchanged = exchange(from, (&directory, name), &partial.file, is_it);
            if exchanged.map_err(|error| in_its_way(path, error))? {
                return self.placed(path, &directory, &partial.file);
            }
        }
        Err(SourceError::Changed(path.clone()))
    }

    /// What `file` is, which has taken its place in a directory.
    fn placed(
        &self,
        path: &SourcePath,
        directory: &OwnedFd,
        file: &OwnedFd,
    ) -> Result<Entry, SourceError> {
        let entry = || {
            sync_directory(directory)?;
            // Of this file: another one may have taken its place already.
            let stat = ask(file, c"")?;
            self.attributes.entry(file, c"", &stat)
        };
        entry().map_err(|error| failure(path, error))
    }

    /// Whether what is there may be replaced: it is the file that its user has opened for writing,
    /// or the user may write it as well.
    pub(super) fn check_right(
        &self,
        path: &SourcePath,
        partial: &Partial,
        there: &There,
        acting: &Acting,
    ) -> Result<(), SourceError> {
        match &partial.base {
            Some(base) if base.is(&there.stat) => Ok(()),
            _ => may_write(there, acting).map_err(|error| failure(path, error)),
        }
    }
}

/// Whether a user may write a file.
pub(super) fn may_write(there: &There, acting: &Acting) -> Result<(), Errno> {
    if acting.user.is_none() {
        return Ok(());
    }
    let file = by_descriptor(&there.file);
    let may = || accessat(CWD, &*file, Access::WRITE_OK, AtFlags::EACCESS);
    acting.run(may).unwrap_or(Err(Errno::ACCESS))
}

/// An unfinished file. Dropped, it is removed.
pub(super) struct Partial {
    /// Where it lies. It moves with the file whose place it is to take.
    pub directory: Mutex<OwnedFd>,
    pub name: Vec<u8>,
    pub file: OwnedFd,
    /// The file that it is to replace, open so that its number is no other's meanwhile.
    pub base: Option<There>,
    /// It is listed there while it is written.
    pub written: Arc<Mutex<HashSet<Vec<u8>>>>,
}

impl Drop for Partial {
    fn drop(&mut self) {
        // It is not there once it was renamed.
        let _ = unlinkat(&*self.directory.lock(), &self.name[..], AtFlags::empty());
        self.written.lock().remove(&self.name);
    }
}

impl Partial {
    /// Takes the attributes of the file that it is to replace.
    pub(super) fn take_attributes(&self, of: &There) -> Result<(), Errno> {
        copy_extended_attributes(&of.file, &self.file)?;
        let owner = Uid::from_raw(of.stat.stx_uid);
        let group = Gid::from_raw(of.stat.stx_gid);
        // Only root may give a file away: then it stays ours.
        let _ = fchown(&self.file, Some(owner), Some(group));
        let mode = u32::from(of.stat.stx_mode) & 0o7777;
        fchmod(&self.file, Mode::from_raw_mode(mode))
    }
}

/// A file that is opened to be written, if it can be, and locked if its file system has locks.
struct Locked {
    file: OwnedFd,
    is_writable: bool,
}

/// Locks a file, by a descriptor of its own: closed, it is unlocked. `None` if it cannot be opened.
fn lock(file: &OwnedFd, is_abandoned: &AtomicBool) -> Result<Option<Locked>, Errno> {
    let path = by_descriptor(file);
    let open = |flags| {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY;
        openat(CWD, &*path, flags, Mode::empty())
    };
    // To be written: NFS locks nothing else, and who has a lease on the file is told.
    let opened = match open(OFlags::WRONLY | OFlags::APPEND) {
        Err(Errno::ACCESS | Errno::PERM | Errno::TXTBSY) => (open(OFlags::RDONLY), false),
        opened => (opened, true),
    };
    let locked = match opened {
        (Err(Errno::ACCESS | Errno::PERM), _) => return Ok(None),
        (opened, is_writable) => Locked {
            file: opened?,
            is_writable,
        },
    };
    let end = Instant::now() + LOCK_TIME_MAX;
    loop {
        match flock(&locked.file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if Instant::now() >= end => {
                tracing::warn!("a program at the source has locked a file that is written here");
                return Ok(Some(locked));
            }
            Err(Errno::WOULDBLOCK) if !is_abandoned.load(Ordering::Relaxed) => {
                thread::sleep(Duration::from_millis(1));
            }
            Err(Errno::INTR) => {}
            // Or it has none.
            _ => return Ok(Some(locked)),
        }
    }
}

/// Writes a version into the file that is there, if it is one of those. Its file must have been
/// found to be of the version before since it was locked.
fn store_into(
    finished: &Finished,
    there: &There,
    locked: Option<&Locked>,
) -> Option<Result<(), Errno>> {
    let partial = &finished.partial.file;
    let writable = locked.filter(|it| it.is_writable);
    if there.stat.stx_nlink > 1 {
        return Some(match writable {
            Some(_) => overwrite(partial, there, finished),
            None => Err(Errno::MLINK),
        });
    }
    let is_version = matches!(finished.replace, Replace::Version(_));
    let is_append = is_version && finished.changes == Changes::default();
    let from = finished
        .appended_from
        .filter(|from| is_append && *from > 0)?;
    Some(append(partial, &writable?.file, from))
}

/// Appends what `partial` has from `from` on.
fn append(partial: &OwnedFd, to: &OwnedFd, from: u64) -> Result<(), Errno> {
    let mut at = from;
    let mut appended = || loop {
        let piece = read_whole(partial, &(at..at + (1 << 20)))?;
        if piece.is_empty() {
            return fsync(to);
        }
        let mut rest = &piece[..];
        while !rest.is_empty() {
            match write(to, rest) {
                Ok(0) => return Err(Errno::IO),
                Ok(count) => {
                    rest = &rest[count..];
                    at += count as u64;
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
    };
    let result = appended();
    // What could not be appended as a whole is taken back, unless somebody else has appended too.
    if result.is_err() && ask(to, c"").is_ok_and(|stat| stat.stx_size == at) {
        let _ = ftruncate(to, from);
    }
    result
}

/// Makes the file that is there equal to `partial`.
fn overwrite(partial: &OwnedFd, there: &There, finished: &Finished) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
    let to = openat(CWD, &*by_descriptor(&there.file), flags, Mode::empty())?;
    copy_range(partial, &to, 0..finished.bytes)?;
    ftruncate(&to, finished.bytes)?;
    // Two versions of one length must differ in their times, however coarse these are.
    let time = |stat: &Statx| (stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec);
    for _ in 0..100 {
        if time(&ask(&to, c"")?) != time(&there.stat) {
            break;
        }
        thread::sleep(Duration::from_millis(1));
        futimens(&to, &now())?;
    }
    set_open(&to, &finished.changes)?;
    fsync(&to)
}

/// Exchanges two names, if `is_it` says of what comes out at `from` that it is what was to be
/// replaced, and removes that. Whether it did: else all is as it was, and `new` is at `from`.
fn exchange(
    from: (impl AsFd, &[u8]),
    to: (impl AsFd, &[u8]),
    new: &OwnedFd,
    is_it: impl Fn(&Statx) -> bool,
) -> Result<bool, Errno> {
    let exchange = || renameat_with(&from.0, from.1, &to.0, to.1, RenameFlags::EXCHANGE);
    let at = |place: &(_, &[u8])| -> Result<Statx, Errno> { ask_at(place.0, place.1) };
    let (from_at, to_at) = ((from.0.as_fd(), from.1), (to.0.as_fd(), to.1));
    match exchange() {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            return renameat(&from.0, from.1, &to.0, to.1).map(|()| true);
        }
        exchanged => exchanged?,
    }
    let new = ask(new, c"")?;
    let mut out = at(&from_at)?;
    // Who may change the directory may have put another file in place of the new one.
    if is_it(&out) && is_same(&at(&to_at)?, &new) {
        unlinkat(&from.0, from.1, AtFlags::empty())?;
        return Ok(true);
    }
    let mut returned: Option<Statx> = None;
    loop {
        let back = out;
        match exchange() {
            // Its name was removed meanwhile, and it with that.
            Err(Errno::NOENT) => return Ok(false),
            exchanged => exchanged?,
        }
        out = at(&from_at)?;
        // If neither comes out, somebody has replaced the new version in that moment: what is newer
        // goes back as well.
        if is_same(&out, &new) || returned.is_some_and(|it| is_same(&out, &it)) {
            return Ok(false);
        }
        returned = Some(back);
    }
}

/// What `name` in a directory is.
fn ask_at(directory: impl AsFd, name: &[u8]) -> Result<Statx, Errno> {
    let name = std::ffi::CString::new(name).map_err(|_| Errno::INVAL)?;
    ask(directory, &name)
}

fn in_its_way(path: &SourcePath, error: Errno) -> SourceError {
    match error {
        Errno::EXIST => in_the_way(path, "it exists"),
        Errno::ISDIR | Errno::NOTEMPTY => in_the_way(path, "it is a directory"),
        error => failure(path, error),
    }
}

/// Has the names in a directory outlive a power cut, where its file system can.
fn sync_directory(directory: &OwnedFd) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = match openat(directory, ".", flags, Mode::empty()) {
        // Who may not list it may still write.
        Err(Errno::ACCESS | Errno::PERM) => return Ok(()),
        opened => opened?,
    };
    match fsync(opened) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => Ok(()),
        synced => synced,
    }
}

/// Renames. With `only_new`, what is there is the error EEXIST.
pub(super) fn move_to(
    from: (impl AsFd, &[u8]),
    to: (impl AsFd, &[u8]),
    only_new: bool,
) -> Result<(), Errno> {
    let flags = if only_new {
        RenameFlags::NOREPLACE
    } else {
        RenameFlags::empty()
    };
    match renameat_with(&from.0, from.1, &to.0, to.1, flags) {
        // NFS knows no such rename, but links: of files only.
        Err(error @ (Errno::INVAL | Errno::NOSYS)) if only_new => {
            match linkat(&from.0, from.1, &to.0, to.1, AtFlags::empty()) {
                Ok(()) => unlinkat(&from.0, from.1, AtFlags::empty()),
                Err(Errno::PERM) => Err(error),
                Err(error) => Err(error),
            }
        }
        renamed => renamed,
    }
}
