//! Writes below a directory.
//!
//! A new version is written to a file beside the old one, `.hither-….partial`, synced, and put in
//! its place ([`placing`](super::placing)). Listings leave these files out. What a crash leaves
//! behind of them stays there.
//!
//! What is made, moved, removed or given other attributes is so by the user who asks, as far as
//! this process may act as others: the kernel checks each call as it would at the source.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use rustix::fd::OwnedFd;
use rustix::fs::{
    AtFlags, Dir, Gid, Mode, OFlags, RenameFlags, Uid, chmod, chownat, fchmod, ftruncate, mkdirat,
    openat, renameat_with, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;

use super::super::write::{Acting, Changes, Replace, Upload};
use super::super::{AccessList, Entry, FileVersion, SourceError, SourcePath, Version};
use super::attributes::{access_list, ask, is_file};
use super::beneath::by_descriptor;
use super::caller::Caller;
use super::copying::copy_all;
use super::open_file::{in_the_way, set_open, timestamps, write_whole};
use super::partial::{is_partial, partial_name};
use super::placing::{Finished, Partial, may_write, move_to};
use super::tree::{Tree, failure, read_whole};

/// A file that is being written.
pub(super) struct DirectoryUpload {
    caller: Caller,
    path: SourcePath,
    replace: Replace,
    /// The length so far.
    bytes: u64,
    /// It is a copy of the version before up to here.
    unchanged: u64,
    /// Nothing of that copy was changed.
    is_append: bool,
    /// The attributes that were set.
    changes: Changes,
    /// `None` once it is finished or given up.
    partial: Option<Arc<Partial>>,
}

impl DirectoryUpload {
    fn new(caller: Caller, path: &SourcePath, replace: Replace, partial: Partial) -> Self {
        DirectoryUpload {
            caller,
            path: path.clone(),
            replace,
            bytes: 0,
            unchanged: 0,
            is_append: false,
            changes: Changes::default(),
            partial: Some(Arc::new(partial)),
        }
    }

    /// Begins a file at `path`.
    pub(super) async fn begin(
        caller: Caller,
        path: &SourcePath,
        replace: Replace,
        mode: u32,
    ) -> Result<DirectoryUpload, SourceError> {
        let (asked, wanted) = (path.clone(), replace.clone());
        let acting = Arc::clone(&caller.acting);
        let begin = move |tree: &Tree| tree.begin(&asked, &wanted, None, mode, &acting);
        let partial = caller.call(path, begin).await?;
        Ok(DirectoryUpload::new(caller, path, replace, partial))
    }

    /// Begins an empty version in place of `file`, or of what has replaced it.
    pub(super) async fn empty(
        caller: Caller,
        file: &FileVersion,
    ) -> Result<DirectoryUpload, SourceError> {
        let (asked, acting) = (file.clone(), Arc::clone(&caller.acting));
        let begin = move |tree: &Tree| {
            let opened = Some(&asked.version);
            tree.begin(&asked.path, &Replace::Existing, opened, 0, &acting)
        };
        let partial = caller.call(&file.path, begin).await?;
        let replace = Replace::Existing;
        Ok(DirectoryUpload::new(caller, &file.path, replace, partial))
    }

    /// Begins a copy of `file`.
    pub(super) async fn copy(
        caller: Caller,
        file: &FileVersion,
    ) -> Result<DirectoryUpload, SourceError> {
        let replace = Replace::Version(file.version.clone());
        let (asked, wanted) = (file.clone(), replace.clone());
        let acting = Arc::clone(&caller.acting);
        let begin = move |tree: &Tree| {
            let opened = Some(&asked.version);
            let partial = tree.begin(&asked.path, &wanted, opened, 0, &acting)?;
            tree.copy(&asked, &partial)?;
            Ok(partial)
        };
        let partial = caller.long_call(&file.path, file.bytes, begin).await?;
        Ok(DirectoryUpload {
            bytes: file.bytes,
            unchanged: file.bytes,
            is_append: true,
            ..DirectoryUpload::new(caller, &file.path, replace, partial)
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
        self.is_append &= offset >= self.unchanged;
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
        self.is_append &= bytes >= self.unchanged;
        self.bytes = bytes;
        Ok(())
    }

    async fn set_attributes(&mut self, changes: Changes) -> Result<(), SourceError> {
        let (partial, path) = (self.partial()?, self.path.clone());
        let set = move |_: &Tree| {
            set_open(&partial.file, &changes).map_err(|error| failure(&path, error))
        };
        self.caller.call(&self.path, set).await?;
        self.changes = Changes {
            mode: changes.mode.or(self.changes.mode),
            uid: changes.uid.or(self.changes.uid),
            gid: changes.gid.or(self.changes.gid),
            accessed: changes.accessed.or(self.changes.accessed),
            modified: changes.modified.or(self.changes.modified),
        };
        Ok(())
    }

    async fn access_list(&mut self, list: AccessList) -> Result<Option<Vec<u8>>, SourceError> {
        let (partial, path) = (self.partial()?, self.path.clone());
        let get =
            move |_: &Tree| access_list(&partial.file, list).map_err(|error| failure(&path, error));
        self.caller.call(&self.path, get).await
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
        let path = self.path.clone();
        let finished = Finished {
            partial,
            replace: self.replace.clone(),
            acting: Arc::clone(&self.caller.acting),
            changes: self.changes,
            bytes: self.bytes,
            appended_from: Some(self.unchanged).filter(|_| self.is_append),
        };
        let waits = Waits::default();
        let is_abandoned = Arc::clone(&waits.0);
        let finish = move |tree: &Tree| tree.finish(&path, &finished, &is_abandoned);
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
    pub(super) fn place<'a>(&self, path: &'a SourcePath) -> Result<Place<'a>, SourceError> {
        let Some((directory, name)) = path.split() else {
            return Err(in_the_way(path, "it is the root of the source"));
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let opened = self.root.open_beneath(directory.as_bytes(), flags);
        Ok((opened.map_err(|error| failure(path, error))?, name))
    }

    /// Begins a file that is to take the place of what is at `path`: the version that `acting` has
    /// opened to write, or one that it may write as well.
    fn begin(
        &self,
        path: &SourcePath,
        replace: &Replace,
        opened: Option<&Version>,
        mode: u32,
        acting: &Acting,
    ) -> Result<Partial, SourceError> {
        let failed = |error| failure(path, error);
        let (directory, _) = self.place(path)?;
        let base = self.check(path, replace)?;
        if let Some(base) = &base
            && opened != Some(&self.attributes.version(&base.stat))
        {
            may_write(base, acting).map_err(failed)?;
        }
        let name = partial_name();
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW;
        let own = Mode::RUSR | Mode::WUSR;
        let file = openat(&directory, &name[..], flags | OFlags::CLOEXEC, own).map_err(failed)?;
        self.written.lock().insert(name.clone());
        let partial = Partial {
            directory: Mutex::new(directory),
            name,
            file,
            base,
            written: Arc::clone(&self.written),
        };
        let set = match &partial.base {
            Some(base) => partial.take_attributes(base),
            None => fchmod(&partial.file, Mode::from_raw_mode(mode & 0o7777)),
        };
        set.map_err(failed)?;
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
        if is_file(&stat) && self.attributes.version(&stat) == file.version {
            Ok(())
        } else {
            Err(SourceError::Changed(file.path.clone()))
        }
    }

    /// Makes an empty file.
    pub(super) fn make_file(&self, path: &SourcePath, mode: u32) -> Result<Entry, SourceError> {
        let (directory, name) = self.place(path)?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW;
        let mode = Mode::from_raw_mode(mode & 0o7777);
        let file = openat(&directory, name, flags | OFlags::CLOEXEC, mode);
        let file = file.map_err(|error| made(path, error))?;
        let stat = ask(&file, c"");
        let entry = stat.and_then(|stat| self.attributes.entry(&file, c"", &stat));
        entry.map_err(|error| failure(path, error))
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
        let made_it = mkdirat(&directory, name, Mode::from_raw_mode(mode & 0o7777));
        made_it.map_err(|error| made(path, error))
    }

    /// Makes a link.
    pub(super) fn make_link(&self, path: &SourcePath, target: &[u8]) -> Result<(), SourceError> {
        let (directory, name) = self.place(path)?;
        symlinkat(target, &directory, name).map_err(|error| made(path, error))
    }

    /// Sets attributes of what is at `path`, if that is `version`, or no file. The owner first:
    /// changing it takes away permission bits.
    pub(super) fn set_attributes(
        &self,
        path: &SourcePath,
        version: Option<&Version>,
        changes: &Changes,
    ) -> Result<Entry, SourceError> {
        let set = || {
            let file = self.root.open_beneath(path.as_bytes(), OFlags::PATH)?;
            if self.file_version(&file)?.as_ref() != version {
                return Err(Errno::STALE);
            }
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

fn made(path: &SourcePath, error: Errno) -> SourceError {
    match error {
        Errno::EXIST => in_the_way(path, "it exists"),
        error => failure(path, error),
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
            let acting = Arc::new(Acting::default());
            let replace = Replace::Existing;
            let partial = tree.begin(&path, &replace, None, 0o600, &acting).unwrap();
            write_whole(&partial.file, b"late", 0).unwrap();
            let finished = Finished {
                partial: Arc::new(partial),
                replace,
                acting,
                changes: Changes::default(),
                bytes: 4,
                appended_from: None,
            };
            tree.finish(&path, &finished, &waits.0)
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
