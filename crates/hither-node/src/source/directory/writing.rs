//! Writes below a directory.
//!
//! A new version is written to a file beside the old one, `.hither-….partial`, synced, and renamed
//! over it. Listings leave these files out. What a crash leaves behind of them stays there. A
//! version of a file with several links takes the place of one link only.

use std::collections::HashSet;
use std::ffi::CStr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use rustix::buffer::spare_capacity;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{
    AtFlags, Dir, Gid, Mode, OFlags, RenameFlags, SeekFrom, Statx, Timespec, Timestamps,
    UTIME_OMIT, Uid, XattrFlags, chmod, chownat, copy_file_range, fchmod, fchown, fremovexattr,
    fsetxattr, fsync, ftruncate, futimens, getxattr, linkat, listxattr, mkdirat, openat,
    renameat_with, seek, symlinkat, unlinkat, utimensat,
};
use rustix::io::{Errno, pwrite};

use super::super::write::{Changes, Replace, Upload};
use super::super::{Entry, FileVersion, SourceError, SourcePath, Version};
use super::attributes::{ask, is_file};
use super::caller::Caller;
use super::partial::{is_partial, partial_name};
use super::tree::{Tree, failure, read_whole};

/// A file that is being written.
pub(super) struct DirectoryUpload {
    caller: Caller,
    path: SourcePath,
    replace: Replace,
    /// The length so far.
    bytes: u64,
    /// `None` once it is finished or given up.
    partial: Option<Arc<Partial>>,
}

/// An unfinished file. Dropped, it is removed.
struct Partial {
    /// Where it lies. It moves with the file whose place it is to take.
    directory: Mutex<OwnedFd>,
    name: Vec<u8>,
    file: OwnedFd,
    /// It is listed there while it is written.
    written: Arc<Mutex<HashSet<Vec<u8>>>>,
}

impl Drop for Partial {
    fn drop(&mut self) {
        // It is not there once it was renamed.
        let _ = unlinkat(&*self.directory.lock(), &self.name[..], AtFlags::empty());
        self.written.lock().remove(&self.name);
    }
}

impl DirectoryUpload {
    /// Begins a file at `path`.
    pub(super) async fn begin(
        caller: Caller,
        path: &SourcePath,
        replace: Replace,
        mode: u32,
    ) -> Result<DirectoryUpload, SourceError> {
        let (asked, wanted) = (path.clone(), replace.clone());
        let begin = move |tree: &Tree| tree.begin(&asked, &wanted, mode);
        let partial = caller.call(path, begin).await?;
        Ok(DirectoryUpload {
            caller,
            path: path.clone(),
            replace,
            bytes: 0,
            partial: Some(Arc::new(partial)),
        })
    }

    /// Begins a copy of `file`.
    pub(super) async fn copy(
        caller: Caller,
        file: &FileVersion,
    ) -> Result<DirectoryUpload, SourceError> {
        let replace = Replace::Version(file.version.clone());
        let (asked, wanted) = (file.clone(), replace.clone());
        let begin = move |tree: &Tree| {
            let partial = tree.begin(&asked.path, &wanted, 0)?;
            tree.copy(&asked, &partial)?;
            Ok(partial)
        };
        let partial = caller.long_call(&file.path, file.bytes, begin).await?;
        Ok(DirectoryUpload {
            caller,
            path: file.path.clone(),
            replace,
            bytes: file.bytes,
            partial: Some(Arc::new(partial)),
        })
    }

    fn partial(&self) -> Result<Arc<Partial>, SourceError> {
        self.partial.clone().ok_or_else(|| SourceError::Failed {
            path: self.path.clone(),
            reason: "an earlier write failed".into(),
        })
    }

    /// Changes the unfinished file. Should that fail, it is gone with the last of those who are at
    /// it.
    async fn change(
        &mut self,
        change: impl FnOnce(&Partial) -> Result<(), Errno> + Send + 'static,
    ) -> Result<(), SourceError> {
        let partial = self.partial()?;
        self.partial = None;
        let (path, kept) = (self.path.clone(), Arc::clone(&partial));
        let change = move |_: &Tree| change(&partial).map_err(|error| failure(&path, error));
        self.caller.call(&self.path, change).await?;
        self.partial = Some(kept);
        Ok(())
    }
}

#[async_trait]
impl Upload for DirectoryUpload {
    async fn write(&mut self, bytes: Bytes) -> Result<(), SourceError> {
        self.write_at(self.bytes, bytes).await
    }

    async fn write_at(&mut self, offset: u64, bytes: Bytes) -> Result<(), SourceError> {
        let end = offset + bytes.len() as u64;
        let write = move |partial: &Partial| write_whole(&partial.file, &bytes, offset);
        self.change(write).await?;
        self.bytes = self.bytes.max(end);
        Ok(())
    }

    async fn read_at(&mut self, offset: u64, bytes: usize) -> Result<Bytes, SourceError> {
        let (partial, path) = (self.partial()?, self.path.clone());
        let range = offset..offset.saturating_add(bytes as u64);
        let read = move |_: &Tree| {
            read_whole(&partial.file, &range).map_err(|error| failure(&path, error))
        };
        self.caller.call(&self.path, read).await
    }

    async fn set_len(&mut self, bytes: u64) -> Result<(), SourceError> {
        self.change(move |partial| ftruncate(&partial.file, bytes))
            .await?;
        self.bytes = bytes;
        Ok(())
    }

    async fn set_attributes(&mut self, changes: Changes) -> Result<(), SourceError> {
        let (partial, path) = (self.partial()?, self.path.clone());
        let set = move |_: &Tree| {
            set_open(&partial.file, &changes).map_err(|error| failure(&path, error))
        };
        self.caller.call(&self.path, set).await
    }

    async fn stat(&mut self) -> Result<Entry, SourceError> {
        let (partial, path) = (self.partial()?, self.path.clone());
        let stat = move |tree: &Tree| {
            let stat = ask(&partial.file, c"");
            let entry = stat.and_then(|stat| tree.attributes.entry(&partial.file, c"", &stat));
            entry.map_err(|error| failure(&path, error))
        };
        self.caller.call(&self.path, stat).await
    }

    async fn rename(
        &mut self,
        path: &SourcePath,
        current: Option<&Version>,
    ) -> Result<(), SourceError> {
        self.path = path.clone();
        if let (Replace::Version(version), Some(current)) = (&mut self.replace, current) {
            *version = current.clone();
        }
        // Where that fails, it stays where it is, and takes its place from there.
        let (partial, path) = (self.partial()?, path.clone());
        let follow = move |tree: &Tree| {
            let (directory, _) = tree.place(&path)?;
            let mut old = partial.directory.lock();
            let flags = RenameFlags::empty();
            let moved = renameat_with(
                &*old,
                &partial.name[..],
                &directory,
                &partial.name[..],
                flags,
            );
            moved.map_err(|error| failure(&path, error))?;
            *old = directory;
            Ok(())
        };
        self.caller.call(&self.path, follow).await
    }

    async fn hide(&mut self) -> Result<(), SourceError> {
        let (partial, path) = (self.partial()?, self.path.clone());
        let hide = move |_: &Tree| {
            let directory = partial.directory.lock();
            let removed = unlinkat(&*directory, &partial.name[..], AtFlags::empty());
            removed.map_err(|error| failure(&path, error))
        };
        self.caller.call(&self.path, hide).await
    }

    async fn finish(mut self: Box<Self>) -> Result<Entry, SourceError> {
        let partial = self.partial()?;
        self.partial = None;
        let (path, replace) = (self.path.clone(), self.replace.clone());
        let waits = Waits::default();
        let is_abandoned = Arc::clone(&waits.0);
        let finish = move |tree: &Tree| tree.finish(&path, &partial, &replace, &is_abandoned);
        self.caller.long_call(&self.path, self.bytes, finish).await
    }

    async fn abort(mut self: Box<Self>) -> Result<(), SourceError> {
        let partial = self.partial.take();
        let remove = move |_: &Tree| {
            drop(partial);
            Ok(())
        };
        self.caller.call(&self.path, remove).await
    }
}

fn write_whole(file: &OwnedFd, bytes: &[u8], offset: u64) -> Result<(), Errno> {
    let mut done = 0;
    while done < bytes.len() {
        match pwrite(file, &bytes[done..], offset + done as u64) {
            Ok(0) => return Err(Errno::IO),
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Sets attributes of an open file. The owner first: changing it takes away permission bits.
fn set_open(file: &OwnedFd, changes: &Changes) -> Result<(), Errno> {
    if changes.uid.is_some() || changes.gid.is_some() {
        let owner = changes.uid.map(Uid::from_raw);
        fchown(file, owner, changes.gid.map(Gid::from_raw))?;
    }
    if let Some(mode) = changes.mode {
        fchmod(file, Mode::from_raw_mode(mode & 0o7777))?;
    }
    if changes.accessed.is_some() || changes.modified.is_some() {
        futimens(file, &timestamps(changes))?;
    }
    Ok(())
}

fn timestamps(changes: &Changes) -> Timestamps {
    Timestamps {
        last_access: timespec(changes.accessed),
        last_modification: timespec(changes.modified),
    }
}

/// Somebody waits for a job, while this lives. The job asks the flag.
#[derive(Default)]
struct Waits(Arc<AtomicBool>);

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// A directory that is open, and a name in it.
type Place<'a> = (OwnedFd, &'a [u8]);

impl Tree {
    fn place<'a>(&self, path: &'a SourcePath) -> Result<Place<'a>, SourceError> {
        let Some((directory, name)) = path.split() else {
            return Err(in_the_way(path, "it is the root of the source"));
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let opened = self.root.open_beneath(directory.as_bytes(), flags);
        Ok((opened.map_err(|error| failure(path, error))?, name))
    }

    fn begin(
        &self,
        path: &SourcePath,
        replace: &Replace,
        mode: u32,
    ) -> Result<Partial, SourceError> {
        let failed = |error| failure(path, error);
        let (directory, _) = self.place(path)?;
        let current = self.check(path, replace)?;
        let partial = partial_name();
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW;
        let flags = flags | OFlags::CLOEXEC;
        let new_mode = Mode::from_raw_mode(mode & 0o7777);
        let file = openat(&directory, &partial[..], flags, new_mode).map_err(failed)?;
        self.written.lock().insert(partial.clone());
        let partial = Partial {
            directory: Mutex::new(directory),
            name: partial,
            file,
            written: Arc::clone(&self.written),
        };
        let mode = match current {
            Some((current, replaced)) => {
                let copied = copy_extended_attributes(&replaced, &partial.file);
                copied.map_err(failed)?;
                let owner = Uid::from_raw(current.stx_uid);
                // Only root may give a file away: then it stays ours.
                let group = Gid::from_raw(current.stx_gid);
                let _ = fchown(&partial.file, Some(owner), Some(group));
                u32::from(current.stx_mode)
            }
            None => mode,
        };
        // Whatever the umask of this process is: that of the writer is applied already.
        fchmod(&partial.file, Mode::from_raw_mode(mode & 0o7777)).map_err(failed)?;
        Ok(partial)
    }

    /// Copies `file` into `partial`, or fails if the file has another version by then.
    fn copy(&self, file: &FileVersion, partial: &Partial) -> Result<(), SourceError> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let copied = || {
            let from = self.root.open_beneath(file.path.as_bytes(), flags)?;
            copy_all(&from, &partial.file, file.bytes)?;
            ask(&from, c"")
        };
        let stat = copied().map_err(|error| failure(&file.path, error))?;
        match is_file(&stat) && self.attributes.version(&stat) == file.version {
            true => Ok(()),
            false => Err(SourceError::Changed(file.path.clone())),
        }
    }

    /// Makes an empty file.
    pub(super) fn make_file(&self, path: &SourcePath, mode: u32) -> Result<Entry, SourceError> {
        let (directory, name) = self.place(path)?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW;
        let mode = Mode::from_raw_mode(mode & 0o7777);
        let file = openat(&directory, name, flags | OFlags::CLOEXEC, mode);
        let file = file.map_err(|error| made(path, error))?;
        fchmod(&file, mode).map_err(|error| failure(path, error))?;
        self.stat(path)
    }

    /// What is at `path` now, if `replace` allows it.
    fn check(
        &self,
        path: &SourcePath,
        replace: &Replace,
    ) -> Result<Option<(Statx, OwnedFd)>, SourceError> {
        let current = match self.root.open_beneath(path.as_bytes(), OFlags::PATH) {
            Ok(file) => {
                let stat = ask(&file, c"").map_err(|error| failure(path, error))?;
                Some((stat, file))
            }
            Err(Errno::NOENT) => None,
            Err(error) => return Err(failure(path, error)),
        };
        if current.as_ref().is_some_and(|(stat, _)| !is_file(stat)) {
            return Err(in_the_way(path, "it is no file"));
        }
        match (replace, &current) {
            (Replace::Any, _) | (Replace::Existing, Some(_)) | (Replace::Nothing, None) => {
                Ok(current)
            }
            (Replace::Nothing, Some(_)) => Err(in_the_way(path, "it exists")),
            (Replace::Version(wanted), Some((stat, _)))
                if self.attributes.version(stat) == *wanted =>
            {
                Ok(current)
            }
            (Replace::Existing | Replace::Version(_), _) => Err(SourceError::Changed(path.clone())),
        }
    }

    fn finish(
        &self,
        path: &SourcePath,
        partial: &Partial,
        replace: &Replace,
        is_abandoned: &AtomicBool,
    ) -> Result<Entry, SourceError> {
        let failed = |error| failure(path, error);
        let (directory, name) = self.place(path)?;
        fsync(&partial.file).map_err(failed)?;
        // Between this and the rename is a moment in which another writer may come in: no call
        // renames onto one version only.
        self.check(path, replace)?;
        if is_abandoned.load(Ordering::Acquire) {
            // Its writer was told that it failed: what is there may be newer.
            return Err(failed(Errno::TIMEDOUT));
        }
        let from = partial.directory.lock();
        let from = (&*from, &partial.name[..]);
        let only_new = *replace == Replace::Nothing;
        move_to(from, (&directory, name), only_new).map_err(|error| match error {
            Errno::EXIST => in_the_way(path, "it exists"),
            Errno::ISDIR | Errno::NOTEMPTY => in_the_way(path, "it is a directory"),
            error => failure(path, error),
        })?;
        sync_directory(&directory).map_err(failed)?;
        // Of this file: another one may have taken its place already.
        let stat = ask(&partial.file, c"").map_err(failed)?;
        let entry = self.attributes.entry(&partial.file, c"", &stat);
        entry.map_err(failed)
    }

    /// Removes an empty directory. Unfinished files that nobody here writes do not count: they are
    /// what was left by mounts that were killed, or of files that are gone.
    pub(super) fn remove_dir(&self, path: &SourcePath) -> Result<(), SourceError> {
        let removed = self.remove(path, AtFlags::REMOVEDIR);
        if matches!(removed, Err(SourceError::InTheWay { .. }))
            && self.remove_partials(path).unwrap_or(false)
        {
            return self.remove(path, AtFlags::REMOVEDIR);
        }
        removed
    }

    /// Removes the unfinished files of a directory, if it has nothing else. Whether it did.
    fn remove_partials(&self, path: &SourcePath) -> Result<bool, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let directory = self.root.open_beneath(path.as_bytes(), flags)?;
        let mut partials = Vec::new();
        for entry in Dir::read_from(&directory)? {
            let name = entry?.file_name().to_bytes().to_vec();
            match &name[..] {
                b"." | b".." => {}
                name if is_partial(name) => partials.push(name.to_vec()),
                _ => return Ok(false),
            }
        }
        let written = self.written.lock();
        if partials.iter().any(|name| written.contains(name)) {
            return Ok(false);
        }
        for name in &partials {
            unlinkat(&directory, &name[..], AtFlags::empty())?;
        }
        Ok(!partials.is_empty())
    }

    /// Removes a file, or a directory.
    pub(super) fn remove(&self, path: &SourcePath, flags: AtFlags) -> Result<(), SourceError> {
        let (directory, name) = self.place(path)?;
        unlinkat(&directory, name, flags).map_err(|error| match error {
            Errno::NOTEMPTY | Errno::EXIST => in_the_way(path, "it is not empty"),
            Errno::ISDIR => in_the_way(path, "it is a directory"),
            Errno::NOTDIR if flags.contains(AtFlags::REMOVEDIR) => {
                in_the_way(path, "it is no directory")
            }
            error => failure(path, error),
        })
    }

    /// Moves `from` to `to`.
    pub(super) fn rename(
        &self,
        from: &SourcePath,
        to: &SourcePath,
        replace: bool,
    ) -> Result<(), SourceError> {
        let (old_directory, old_name) = self.place(from)?;
        let (new_directory, new_name) = self.place(to)?;
        let moved = move_to(
            (&old_directory, old_name),
            (&new_directory, new_name),
            !replace,
        );
        moved.map_err(|error| match error {
            Errno::EXIST | Errno::NOTEMPTY => in_the_way(to, "it exists"),
            Errno::ISDIR => in_the_way(to, "it is a directory"),
            Errno::NOTDIR => in_the_way(to, "it is no directory"),
            Errno::INVAL => in_the_way(to, "it lies below what is moved"),
            Errno::XDEV => SourceError::Unsupported("the paths are on two file systems"),
            error => failure(from, error),
        })
    }

    /// Makes a directory.
    pub(super) fn make_dir(&self, path: &SourcePath, mode: u32) -> Result<(), SourceError> {
        let (directory, name) = self.place(path)?;
        // Ours, until it can be given the mode whatever the umask of this process is.
        mkdirat(&directory, name, Mode::RWXU).map_err(|error| made(path, error))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let set = || {
            let opened = openat(&directory, name, flags, Mode::empty())?;
            // The group's bit may come from the directory above.
            let inherited = u32::from(ask(&opened, c"")?.stx_mode) & 0o2000;
            fchmod(opened, Mode::from_raw_mode(mode & 0o7777 | inherited))
        };
        set().map_err(|error| failure(path, error))
    }

    /// Makes a link.
    pub(super) fn make_link(&self, path: &SourcePath, target: &[u8]) -> Result<(), SourceError> {
        let (directory, name) = self.place(path)?;
        symlinkat(target, &directory, name).map_err(|error| made(path, error))
    }

    /// Sets attributes. The owner first: changing it takes away permission bits.
    pub(super) fn set_attributes(
        &self,
        path: &SourcePath,
        changes: &Changes,
    ) -> Result<Entry, SourceError> {
        let set = || {
            let file = self.root.open_beneath(path.as_bytes(), OFlags::PATH)?;
            if changes.uid.is_some() || changes.gid.is_some() {
                let owner = changes.uid.map(Uid::from_raw);
                let group = changes.gid.map(Gid::from_raw);
                chownat(&file, c"", owner, group, AtFlags::EMPTY_PATH)?;
            }
            if let Some(mode) = changes.mode {
                // fchmod(2) needs the right to read the file.
                chmod(by_descriptor(&file), Mode::from_raw_mode(mode & 0o7777))?;
            }
            if changes.accessed.is_some() || changes.modified.is_some() {
                let times = timestamps(changes);
                utimensat(&file, c"", &times, AtFlags::EMPTY_PATH)?;
            }
            let stat = ask(&file, c"")?;
            self.attributes.entry(&file, c"", &stat)
        };
        set().map_err(|error| failure(path, error))
    }
}

/// The path of what a descriptor has open, for calls that take no descriptor.
fn by_descriptor(file: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// Gives `to` the extended attributes of users, and the access control list, of `from`. Without the
/// list, the permission bits of its group would mean more.
fn copy_extended_attributes(from: &OwnedFd, to: &OwnedFd) -> Result<(), Errno> {
    const ACCESS_LIST: &CStr = c"system.posix_acl_access";
    let from = by_descriptor(from);
    let ask = |ask: &dyn Fn(&mut Vec<u8>) -> Result<usize, Errno>| {
        let mut value = Vec::with_capacity(64 << 10);
        ask(&mut value).map(|_| value)
    };
    let names = match ask(&|names| listxattr(&from, spare_capacity(names))) {
        Err(Errno::OPNOTSUPP) => return Ok(()),
        names => names?,
    };
    let mut has_list = false;
    for name in names.split_inclusive(|byte| *byte == 0) {
        let name = CStr::from_bytes_with_nul(name).map_err(|_| Errno::INVAL)?;
        has_list |= name == ACCESS_LIST;
        if name == ACCESS_LIST || name.to_bytes().starts_with(b"user.") {
            match ask(&|value| getxattr(&from, name, spare_capacity(value))) {
                // Removed since.
                Err(Errno::NODATA) => {}
                value => fsetxattr(to, name, &value?, XattrFlags::empty())?,
            }
        }
    }
    if has_list {
        return Ok(());
    }
    // It may have one by its directory's default.
    match fremovexattr(to, ACCESS_LIST) {
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
        removed => removed,
    }
}

/// Copies a file of `bytes` into an empty one. What is a hole in one is a hole in the other.
fn copy_all(from: &OwnedFd, to: &OwnedFd, bytes: u64) -> Result<(), Errno> {
    ftruncate(to, bytes)?;
    let mut at = 0;
    while at < bytes {
        let data = match seek(from, SeekFrom::Data(at)) {
            // Nothing but a hole is left.
            Err(Errno::NXIO) => return Ok(()),
            // No file system says where its holes are, that has none.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return copy_range(from, to, at..bytes),
            data => data?,
        };
        let hole = seek(from, SeekFrom::Hole(data))?;
        copy_range(from, to, data..hole.min(bytes))?;
        at = hole;
    }
    Ok(())
}

/// Copies a part of a file: within the file system, or by itself where that cannot.
fn copy_range(from: &OwnedFd, to: &OwnedFd, range: Range<u64>) -> Result<(), Errno> {
    let mut at = range.start;
    while at < range.end {
        let (mut read_at, mut write_at) = (at, at);
        let wanted = (range.end - at).min(8 << 20) as usize;
        let copied = copy_file_range(from, Some(&mut read_at), to, Some(&mut write_at), wanted);
        match copied {
            // Some file systems say 0 where they cannot.
            Ok(0) => break,
            Ok(bytes) => at += bytes as u64,
            Err(Errno::INTR) => {}
            Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => break,
            Err(error) => return Err(error),
        }
    }
    while at < range.end {
        let piece = read_whole(from, &(at..range.end.min(at + (1 << 20))))?;
        if piece.is_empty() {
            // The file is shorter by now: its version says so.
            return Ok(());
        }
        write_whole(to, &piece, at)?;
        at += piece.len() as u64;
    }
    Ok(())
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
fn move_to(from: (impl AsFd, &[u8]), to: (impl AsFd, &[u8]), only_new: bool) -> Result<(), Errno> {
    let flags = match only_new {
        true => RenameFlags::NOREPLACE,
        false => RenameFlags::empty(),
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

fn made(path: &SourcePath, error: Errno) -> SourceError {
    match error {
        Errno::EXIST => in_the_way(path, "it exists"),
        error => failure(path, error),
    }
}

fn in_the_way(path: &SourcePath, reason: &str) -> SourceError {
    SourceError::InTheWay {
        path: path.clone(),
        reason: reason.into(),
    }
}

fn timespec(time: Option<SystemTime>) -> Timespec {
    let Some(time) = time else {
        return Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        };
    };
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => Timespec {
            tv_sec: after.as_secs() as i64,
            tv_nsec: after.subsec_nanos().into(),
        },
        Err(before) => {
            // Whole seconds down, and nanoseconds up from there.
            let before = before.duration();
            let nanoseconds = before.subsec_nanos();
            Timespec {
                tv_sec: -(before.as_secs() as i64) - i64::from(nanoseconds > 0),
                tv_nsec: i64::from((1_000_000_000 - nanoseconds) % 1_000_000_000),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_nobody_waits_for_replaces_nothing() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), "newer").unwrap();
        let tree = Tree::open(folder.path(), Duration::ZERO).unwrap();
        let path = SourcePath::new(b"file").unwrap();
        let finish = |waits: &Waits| {
            let partial = tree.begin(&path, &Replace::Existing, 0o600).unwrap();
            write_whole(&partial.file, b"late", 0).unwrap();
            tree.finish(&path, &partial, &Replace::Existing, &waits.0)
        };
        let waits = Waits::default();
        let flag = Waits(Arc::clone(&waits.0));
        drop(waits);
        assert!(finish(&flag).is_err());
        assert_eq!(fs::read(folder.path().join("file")).unwrap(), b"newer");
        finish(&Waits::default()).unwrap();
        assert_eq!(fs::read(folder.path().join("file")).unwrap(), b"late");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
