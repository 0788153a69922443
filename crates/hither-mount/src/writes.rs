//! What changes files, passed on to the source.
//!
//! A program that opens a file for writing is told once to look it up again, and then finds the
//! inode that is for writing (`writing.rs`).

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Instant, SystemTime};

use bytes::Bytes;
use fuser::{Errno, FileAttr, FopenFlags, OpenAccMode, OpenFlags, RenameFlags, TimeOrNow};
use hither_node::source::write::{Changes, Replace, WritableSource};
use hither_node::source::{Access, Entry, Kind, SourceError, SourcePath, Version};
use tokio::sync::{MutexGuard, OwnedMutexGuard, RwLockReadGuard, RwLockWriteGuard};

use crate::attributes::{attributes, errno};
use crate::callers::Caller;
use crate::changes::BothVersions;
use crate::inodes::Inode;
use crate::shared::{Handle, Shared};
use crate::writing::{State, Writing};
use crate::writings::moved_path;

/// See [`Shared::hold`].
struct Held<'a> {
    writing: Option<Opened>,
    _version: MutexGuard<'a, ()>,
    names: RwLockReadGuard<'a, ()>,
}

/// A file that is written, and the lock of it.
type Opened = (Arc<Writing>, OwnedMutexGuard<State>);

/// What a rename affects, by where it is, and that no other name moves meanwhile.
type HeldBelow<'a> = (
    Vec<(SourcePath, Arc<Writing>, OwnedMutexGuard<State>)>,
    (BothVersions<'a>, RwLockWriteGuard<'a, ()>),
);

/// What is at a path already.
fn exists(error: &SourceError) -> Errno {
    match error {
        SourceError::InTheWay { .. } => Errno::EEXIST,
        error => errno(error),
    }
}

/// Whether a program that opens a file so may change it.
pub(crate) fn is_for_writing(flags: OpenFlags) -> bool {
    flags.acc_mode() != OpenAccMode::O_RDONLY || has(flags, rustix::fs::OFlags::TRUNC)
}

fn has(flags: OpenFlags, flag: rustix::fs::OFlags) -> bool {
    flags.0 as u32 & flag.bits() != 0
}

/// The attributes that the kernel asks to be set.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) changes: Changes,
    pub(crate) bytes: Option<u64>,
}

/// The time that a program means.
pub(crate) fn time(wanted: Option<TimeOrNow>) -> Option<SystemTime> {
    Some(match wanted? {
        TimeOrNow::SpecificTime(time) => time,
        TimeOrNow::Now => SystemTime::now(),
    })
}

impl Shared {
    /// The source, if this mount may change it.
    pub(crate) fn writes(&self) -> Result<&Arc<dyn WritableSource>, Errno> {
        let writes = self.volume.writes().filter(|_| self.view.write);
        writes.ok_or(Errno::EROFS)
    }

    /// What is at `path` has changed, and is in its place.
    fn on_own_change(&self, path: &SourcePath) {
        self.inodes.on_change(path);
        if let Some((directory, _)) = path.split() {
            self.inodes.on_directory_change(&directory);
        }
        self.volume.announce(path);
    }

    /// The path of a name that is to be made or removed.
    fn named(parent: &Inode, name: &OsStr) -> Result<SourcePath, Errno> {
        parent.child(name).ok_or(Errno::EINVAL)
    }

    /// Who writes the file at `path`, under the lock, and that neither its version changes nor a
    /// name moves meanwhile.
    async fn hold(&self, path: &SourcePath) -> Held<'_> {
        loop {
            let writing = match self.writings.find(path) {
                Some(writing) => {
                    let state = Arc::clone(&writing.state).lock_owned().await;
                    Some((writing, state))
                }
                None => None,
            };
            let version = self.version_locks.lock(path).await;
            let names = self.names.read().await;
            let still = self.writings.find(path).map(|it| it.number);
            if writing.as_ref().map(|(it, _)| it.number) == still {
                return Held {
                    writing,
                    _version: version,
                    names,
                };
            }
        }
    }

    /// Where `thread` is to write the file at `path`: with those who do so already, if it is their
    /// version that is at the source. It is promised to it.
    async fn writing_at(&self, path: &SourcePath, thread: u32) -> Result<Arc<Writing>, Errno> {
        let held = self.hold(path).await;
        let mut entry = None;
        if let Some((writing, state)) = &held.writing {
            let mut is_current = state.is_written();
            if let Some(version) = state.version() {
                let there = self.volume.source().stat(path).await;
                let there = there.map_err(|error| errno(&error))?;
                is_current = there.version() == Some(version);
                entry = Some(there);
            }
            if is_current {
                let writing = Some(Arc::clone(writing));
                let promised = self.writings.promise(path.clone(), thread, writing);
                return promised.ok_or(Errno::EIO);
            }
            self.writings.forget(writing);
        }
        let entry = match entry {
            Some(entry) => entry,
            None => {
                let there = self.volume.source().stat(path).await;
                there.map_err(|error| errno(&error))?
            }
        };
        match entry.kind {
            Kind::File { .. } => {}
            Kind::Directory => return Err(Errno::EISDIR),
            Kind::Link(_) => return Err(Errno::ELOOP),
            Kind::Special => return Err(Errno::EOPNOTSUPP),
        }
        // Answers to look-ups that are on their way must not be believed from now on.
        drop(self.changes.begin(path));
        let numbers = (self.inodes.new_number(), self.inodes.shown(path, &entry));
        let writing = Writing::of(numbers, path.clone(), entry, false);
        let promised = self.writings.promise(path.clone(), thread, Some(writing));
        drop(held.names);
        promised.ok_or(Errno::EIO)
    }

    /// Opens the file at `path` for `thread` to write it.
    async fn open_at(&self, path: &SourcePath, thread: u32) -> Result<Opened, Errno> {
        loop {
            let writing = self.writing_at(path, thread).await?;
            let state = Arc::clone(&writing.state).lock_owned().await;
            if self.writings.open(state.path.as_ref(), thread, &writing) {
                return Ok((writing, state));
            }
        }
    }

    /// What `caller` finds when it looks `path` up, if that is a file for writing.
    pub(crate) async fn look_up_writing(
        &self,
        path: &SourcePath,
        thread: u32,
    ) -> Option<Result<Arc<Inode>, SourceError>> {
        let writing = self.writings.shown(path, thread)?;
        let entry = writing.stat(&self.volume).await;
        Some(entry.map(|entry| self.inodes.look_up_writing(path, &writing, entry)))
    }

    /// Has the program look the file at `path` up again, upon which it finds the one for writing.
    async fn look_again(
        &self,
        path: &SourcePath,
        caller: Caller,
        empties: bool,
    ) -> Result<Errno, Errno> {
        let writes = self.writes()?;
        let writing = self.writing_at(path, caller.thread).await;
        let writing = writing.map_err(|error| match error {
            Errno::ENOENT => Errno::ESTALE,
            error => error,
        })?;
        if !writes.writes_anywhere() && !empties {
            let entry = writing.stat(&self.volume).await;
            if entry.map_err(|error| errno(&error))?.bytes > 0 {
                self.writings.keep_promise(path, caller.thread);
                return Err(Errno::EOPNOTSUPP);
            }
        }
        Ok(Errno::ESTALE)
    }

    /// Opens a file that changes, or is to be changed.
    pub(crate) async fn open_for_writing(
        &self,
        inode: Arc<Inode>,
        flags: OpenFlags,
        caller: Caller,
    ) -> Result<(u64, FopenFlags), Errno> {
        let empties = has(flags, rustix::fs::OFlags::TRUNC);
        let Some(writing) = &inode.writing else {
            inode.file().ok_or(Errno::EISDIR)?;
            return Err(self.look_again(&inode.path, caller, empties).await?);
        };
        let mut state = writing.state.lock().await;
        // Its readers get the version before, but for a file that has none.
        let is_read = !is_for_writing(flags) && !writing.is_fresh.load(Ordering::Relaxed);
        if let Some(path) = state.path.as_ref().filter(|_| is_read) {
            self.writings.promise(path.clone(), caller.thread, None);
            return Err(Errno::ESTALE);
        }
        if !self
            .writings
            .open(state.path.as_ref(), caller.thread, writing)
        {
            drop(state);
            if is_for_writing(flags) {
                return Err(self.look_again(&inode.path, caller, empties).await?);
            }
            let path = inode.path.clone();
            self.writings.promise(path, caller.thread, None);
            return Err(Errno::ESTALE);
        }
        let prepared = self.prepare(&mut state, flags, caller).await;
        if let Err(error) = prepared {
            self.writings.close(writing);
            return Err(error);
        }
        if empties && let Err(error) = state.set_len(&self.volume, 0).await {
            self.settle(writing, &state);
            self.writings.close(writing);
            return Err(errno(&error));
        }
        Ok(self.opened(writing, flags))
    }

    /// Has what is written next be written for `caller`, if the source lets it. What others have
    /// written already is at no path: of that, the kernel knows who may.
    async fn prepare(
        &self,
        state: &mut State,
        flags: OpenFlags,
        caller: Caller,
    ) -> Result<(), Errno> {
        if !is_for_writing(flags) {
            return Ok(());
        }
        if let (Some(path), Some(version)) = (&state.path, state.version()) {
            let access = access(flags);
            self.check_access(path, Some(version), access, caller)
                .await?;
        }
        state.write_as(self.writes_for(caller)?);
        Ok(())
    }

    fn opened(&self, writing: &Arc<Writing>, flags: OpenFlags) -> (u64, FopenFlags) {
        let handle = self.handle();
        let writes = is_for_writing(flags);
        let file = Handle::Writing(Arc::clone(writing));
        self.files.write().insert(handle, file);
        // The kernel's pages of this inode are what was written: it alone writes it.
        let mut open = FopenFlags::FOPEN_KEEP_CACHE;
        open.set(FopenFlags::FOPEN_DIRECT_IO, self.view.direct_io);
        open.set(FopenFlags::FOPEN_NOFLUSH, !writes);
        (handle, open)
    }

    /// Makes a file, or opens the one that somebody else has just made.
    pub(crate) async fn create(
        &self,
        parent: &Inode,
        name: &OsStr,
        mode: u32,
        flags: OpenFlags,
        caller: Caller,
    ) -> Result<(Arc<Inode>, u64, FopenFlags), Errno> {
        let writes = self.writes()?;
        let path = Shared::named(parent, name)?;
        let only_new = has(flags, rustix::fs::OFlags::EXCL);
        let names = self.names.read().await;
        let _change = self.changes.begin(&path);
        let number = self.inodes.new_number();
        let there = self.writings.find(&path).is_some();
        let made = if writes.writes_anywhere() {
            let made = self.make_file(&path, mode, caller).await;
            made.map(|entry| {
                let numbers = (number, self.inodes.shown(&path, &entry));
                Writing::of(numbers, path.clone(), entry, true)
            })
        } else if there || self.volume.source().stat(&path).await.is_ok() {
            Err(Errno::EEXIST)
        } else {
            let replace = if only_new {
                Replace::Nothing
            } else {
                Replace::Any
            };
            let upload = writes.create(&path, replace, mode).await;
            let upload = upload.map_err(|error| exists(&error));
            upload.map(|upload| Writing::unborn(number, path.clone(), upload))
        };
        let (writing, mut state, existed) = match made {
            Err(Errno::EEXIST) if !only_new => {
                drop(names);
                let (writing, state) = self.open_at(&path, caller.thread).await?;
                (writing, state, true)
            }
            made => {
                let writing = made?;
                self.writings.made(&path, &writing);
                drop(names);
                let state = Arc::clone(&writing.state).lock_owned().await;
                (writing, state, false)
            }
        };
        let begun = async {
            let failed = |error| errno(&error);
            if existed {
                // The kernel took it to be new, and has not asked whether this user may open it.
                let entry = state.stat(&self.volume).await.map_err(failed)?;
                let attributes = attributes(number, &entry, self.view.owner);
                if !may_open(&attributes, caller, flags) {
                    return Err(Errno::EACCES);
                }
                self.prepare(&mut state, flags, caller).await?;
            } else {
                state.write_as(self.writes_for(caller)?);
            }
            if has(flags, rustix::fs::OFlags::TRUNC) {
                state.set_len(&self.volume, 0).await.map_err(failed)?;
            }
            state.stat(&self.volume).await.map_err(failed)
        };
        let begun = begun.await.and_then(|entry| {
            let can = writes.writes_anywhere() || state.is_written() || entry.bytes == 0;
            can.then_some(entry).ok_or(Errno::EOPNOTSUPP)
        });
        let entry = begun.inspect_err(|_| {
            self.settle(&writing, &state);
            self.writings.close(&writing);
        })?;
        let (handle, open) = self.opened(&writing, flags);
        let inode = self.inodes.look_up_writing(&path, &writing, entry);
        Ok((inode, handle, open))
    }

    /// Makes an empty file of `caller`'s at the source.
    async fn make_file(
        &self,
        path: &SourcePath,
        mode: u32,
        caller: Caller,
    ) -> Result<Entry, Errno> {
        let made = self.writes_for(caller)?.make_file(path, mode).await;
        let made = made.map_err(|error| exists(&error))?;
        self.on_own_change(path);
        Ok(made)
    }

    /// Makes an empty file that is not opened.
    pub(crate) async fn make_node(
        &self,
        parent: &Inode,
        name: &OsStr,
        mode: u32,
        caller: Caller,
    ) -> Result<Arc<Inode>, Errno> {
        const TYPE: u32 = 0o170_000;
        const REGULAR: u32 = 0o100_000;
        let path = Shared::named(parent, name)?;
        if !matches!(mode & TYPE, 0 | REGULAR) {
            self.writes()?;
            return Err(Errno::EOPNOTSUPP);
        }
        let _names = self.names.read().await;
        let _change = self.changes.begin(&path);
        let entry = self.make_file(&path, mode & 0o7777, caller).await?;
        Ok(self.inodes.look_up(path, entry, Instant::now()))
    }

    /// Makes a directory.
    pub(crate) async fn make_dir(
        &self,
        parent: &Inode,
        name: &OsStr,
        mode: u32,
        caller: Caller,
    ) -> Result<Arc<Inode>, Errno> {
        let path = Shared::named(parent, name)?;
        let _names = self.names.read().await;
        let _change = self.changes.begin(&path);
        let writes = self.writes_for(caller)?;
        let made = writes.make_dir(&path, mode & 0o7777).await;
        made.map_err(|error| exists(&error))?;
        self.made(path).await
    }

    /// Makes a symbolic link.
    pub(crate) async fn make_link(
        &self,
        parent: &Inode,
        name: &OsStr,
        target: &[u8],
        caller: Caller,
    ) -> Result<Arc<Inode>, Errno> {
        let path = Shared::named(parent, name)?;
        let _names = self.names.read().await;
        let _change = self.changes.begin(&path);
        let made = self.writes_for(caller)?.make_link(&path, target).await;
        made.map_err(|error| exists(&error))?;
        self.made(path).await
    }

    async fn made(&self, path: SourcePath) -> Result<Arc<Inode>, Errno> {
        self.on_own_change(&path);
        let asked = Instant::now();
        let entry = self.volume.source().stat(&path).await;
        let entry = entry.map_err(|error| errno(&error))?;
        Ok(self.inodes.look_up(path, entry, asked))
    }

    /// Removes an empty directory.
    pub(crate) async fn remove_dir(
        &self,
        parent: &Inode,
        name: &OsStr,
        caller: Caller,
    ) -> Result<(), Errno> {
        let path = Shared::named(parent, name)?;
        let _names = self.names.read().await;
        let _change = self.changes.begin(&path);
        let removed = self.writes_for(caller)?.remove_dir(&path).await;
        removed.map_err(|error| errno(&error))?;
        self.on_own_change(&path);
        self.inodes.remove_directory(&path);
        Ok(())
    }

    /// Removes a file. Who has it open for writing keeps what is in it.
    pub(crate) async fn remove(
        &self,
        parent: &Inode,
        name: &OsStr,
        caller: Caller,
    ) -> Result<(), Errno> {
        let path = Shared::named(parent, name)?;
        let writes = self.writes_for(caller)?;
        let held = self.hold(&path).await;
        let _change = self.changes.begin(&path);
        let failed = |error: SourceError| match error {
            SourceError::InTheWay { .. } => Errno::EISDIR,
            error => errno(&error),
        };
        let remove = self.keeping_readers(&path, writes.remove(&path));
        let Some((writing, mut state)) = held.writing else {
            remove.await.map_err(failed)?;
            self.on_own_change(&path);
            return Ok(());
        };
        if writes.writes_anywhere() && self.writings.users(&writing) > 0 {
            state.keep(&self.volume).await;
        }
        let is_unborn = !writes.writes_anywhere() && state.is_written();
        match remove.await {
            Err(SourceError::NotFound(_)) if is_unborn => {}
            removed => removed.map_err(failed)?,
        }
        state.remove(&self.volume).await;
        self.writings.remove(&writing);
        self.on_own_change(&path);
        Ok(())
    }

    /// What is written at `from`, below it, and at `to`. Nothing of it takes its place, and nothing
    /// else is opened, while names move.
    async fn hold_below(&self, from: &SourcePath, to: &SourcePath, replace: bool) -> HeldBelow<'_> {
        let affected = || {
            let mut affected = self.writings.below(from);
            let mut there = self.writings.below(to);
            there.retain(|_, (path, _)| replace && path == to);
            affected.append(&mut there);
            affected
        };
        let paths = |all: &BTreeMap<u64, (SourcePath, Arc<Writing>)>| -> Vec<_> {
            let all = all.iter();
            all.map(|(number, (path, _))| (*number, path.clone()))
                .collect()
        };
        loop {
            let wanted = affected();
            let before = paths(&wanted);
            let mut locked = Vec::with_capacity(wanted.len());
            // By number: two who lock several do so in one order.
            for (path, writing) in wanted.into_values() {
                let state = Arc::clone(&writing.state).lock_owned().await;
                locked.push((path, writing, state));
            }
            let versions = self.version_locks.lock_both(from, to).await;
            let names = self.names.write().await;
            if paths(&affected()) == before {
                return (locked, (versions, names));
            }
        }
    }

    /// Moves a name, with all that is written below it.
    pub(crate) async fn rename(
        &self,
        from: SourcePath,
        to: SourcePath,
        flags: RenameFlags,
        caller: Caller,
    ) -> Result<(), Errno> {
        let writes = self.writes_for(caller)?;
        if !(flags - RenameFlags::RENAME_NOREPLACE).is_empty() {
            return Err(Errno::EINVAL);
        }
        let replace = !flags.contains(RenameFlags::RENAME_NOREPLACE);
        if from == to {
            return Ok(());
        }
        let (mut locked, _locks) = self.hold_below(&from, &to, replace).await;
        let _changes = (self.changes.begin(&from), self.changes.begin(&to));
        let mut replaced = Vec::new();
        for (path, writing, state) in &mut locked {
            if !writes.writes_anywhere() && state.is_written() {
                return Err(Errno::EOPNOTSUPP);
            }
            if *path != to {
                let there = self.volume.source().stat(path).await.ok();
                let there = there.as_ref().and_then(|entry| entry.version());
                if there != state.base() {
                    replaced.push(writing.number);
                }
            } else if writes.writes_anywhere() {
                state.keep(&self.volume).await;
            }
        }
        self.keeping_readers(&to, writes.rename(&from, &to, replace))
            .await
            .map_err(|error| match error {
                SourceError::InTheWay { .. } if !replace => Errno::EEXIST,
                SourceError::Unsupported(_) if writes.writes_anywhere() => Errno::EXDEV,
                error => errno(&error),
            })?;
        for (path, writing, mut state) in locked {
            if path == to {
                state.remove(&self.volume).await;
                self.writings.remove(&writing);
                continue;
            }
            let path = moved_path(&path, &from, &to);
            let entry = if replaced.contains(&writing.number) {
                None
            } else {
                self.volume.source().stat(&path).await.ok()
            };
            // What fails is to move what is unfinished: it takes its place from where it is.
            let _ = state.follow(&self.volume, &path, entry).await;
            self.keep_number(&writing, &state);
            self.writings.moved(&writing, &path);
        }
        self.follow_rename(&from, &to).await;
        self.on_own_change(&from);
        self.on_own_change(&to);
        Ok(())
    }

    /// What was at `from` is at `to`: who reads it goes on. The name of a file is one of its
    /// attributes to many file systems.
    async fn follow_rename(&self, from: &SourcePath, to: &SourcePath) {
        self.inodes.rename(from, to);
        if let Some(writes) = self.volume.writes()
            && let Ok(entry) = writes.stat(to).await
            && let Some(now) = entry.version()
        {
            let was = |version: &Version| writes.same_contents(version, now);
            self.inodes.on_become(to, &entry, was);
        }
    }

    /// Writes to an open file.
    pub(crate) async fn write(
        &self,
        writing: &Arc<Writing>,
        offset: u64,
        data: Bytes,
        flags: OpenFlags,
    ) -> Result<(), Errno> {
        let mut state = writing.state.lock().await;
        let is_append = has(flags, rustix::fs::OFlags::APPEND);
        let written = state.write(&self.volume, offset, data, is_append).await;
        self.settle(writing, &state);
        written.map_err(|error| errno(&error))
    }

    /// Puts what was written in its place.
    pub(crate) async fn finish(&self, writing: &Arc<Writing>) -> Result<(), Errno> {
        let mut state = writing.state.lock().await;
        self.finish_locked(writing, &mut state).await
    }

    async fn finish_locked(&self, writing: &Arc<Writing>, state: &mut State) -> Result<(), Errno> {
        let path = state.path.clone();
        let _change = path.as_ref().map(|path| self.changes.begin(path));
        let finished = match &path {
            Some(path) if state.is_written() => {
                let _alone = self.version_locks.lock(path).await;
                self.keeping_readers(path, state.finish()).await
            }
            _ => state.finish().await,
        };
        writing.is_fresh.store(false, Ordering::Relaxed);
        self.settle(writing, state);
        // To close(2) ENOENT says nothing.
        let finished = finished.map_err(|error| match error {
            SourceError::NotFound(_) => Errno::ESTALE,
            error => exists(&error),
        })?;
        if let Some(path) = path.filter(|_| finished) {
            self.keep_number(writing, state);
            self.on_own_change(&path);
        }
        Ok(())
    }

    /// What has become of a file at the source keeps its `st_ino`.
    fn keep_number(&self, writing: &Writing, state: &State) {
        if let (Some(path), Some(now)) = (&state.path, state.finished()) {
            self.inodes.keep(path, now, writing.shown_number);
        }
    }

    /// Others must not find a file of which a write has failed.
    fn settle(&self, writing: &Arc<Writing>, state: &State) {
        if state.has_failed() {
            writing.is_fresh.store(false, Ordering::Relaxed);
            self.writings.forget(writing);
        }
    }

    /// A program has closed a file. What was written since the last close(2), by way of a mapping,
    /// is put in its place by the last one.
    pub(crate) async fn release(&self, writing: Arc<Writing>) {
        // Until then, who opens it writes the same version.
        let mut state = writing.state.lock().await;
        if writing.handles.load(Ordering::Relaxed) == 1 {
            match state.path.clone() {
                None if self.writings.users(&writing) == 1 => state.give_up().await,
                Some(path) if state.is_written() => {
                    if let Err(error) = self.finish_locked(&writing, &mut state).await {
                        tracing::warn!("{path}: what a mapping has written is lost: {error:?}");
                    }
                }
                _ => {}
            }
        }
        self.writings.close(&writing);
    }

    /// Sets attributes of a file that is written, and finishes it if nobody else would.
    async fn set_written(
        &self,
        writing: &Arc<Writing>,
        state: &mut State,
        wanted: Wanted,
        is_alone: bool,
        caller: &Arc<dyn WritableSource>,
    ) -> Result<Entry, Errno> {
        let failed = |error: SourceError| errno(&error);
        if is_alone {
            state.write_as(Arc::clone(caller));
        }
        if let Some(bytes) = wanted.bytes {
            let set = state.set_len(&self.volume, bytes).await;
            self.settle(writing, state);
            set.map_err(failed)?;
        }
        if wanted.changes != Changes::default() {
            let before = state.version().cloned();
            let set = state
                .set_attributes(&self.volume, wanted.changes, caller)
                .await;
            self.settle(writing, state);
            set.map_err(failed)?;
            if let (Some(path), Some(now)) = (&state.path, state.finished()) {
                self.inodes.keep(path, now, writing.shown_number);
                let was = |version: &Version| Some(version) == before.as_ref();
                self.inodes.on_become(path, now, was);
            }
        }
        if is_alone {
            self.finish_locked(writing, state).await?;
        }
        if let (Some(path), false) = (&state.path, state.is_written()) {
            self.on_own_change(path);
        }
        state.stat(&self.volume).await.map_err(failed)
    }

    /// Sets attributes, and says what they are then. Those of a file that changes are for now only.
    pub(crate) async fn set_attributes(
        &self,
        inode: Arc<Inode>,
        wanted: Wanted,
        caller: Caller,
    ) -> Result<FileAttr, Errno> {
        let failed = |error: SourceError| errno(&error);
        let writes = self.writes_for(caller)?;
        let volume = &self.volume;
        if let Some(writing) = &inode.writing {
            let mut state = writing.state.lock().await;
            // It is open for as long as this takes, so that a rename finds it.
            let is_alone = writing.handles.load(Ordering::Relaxed) == 0;
            let path = state.path.as_ref();
            if is_alone && !self.writings.open(path, caller.thread, writing) {
                drop(state);
                let empties = wanted.bytes == Some(0);
                return Err(self.look_again(&inode.path, caller, empties).await?);
            }
            let set = self
                .set_written(writing, &mut state, wanted, is_alone, &writes)
                .await;
            if is_alone {
                self.writings.close(writing);
            }
            return Ok(attributes(inode.shown, &set?, self.view.owner));
        }
        if let Some(bytes) = wanted.bytes {
            return Err(self.look_again(&inode.path, caller, bytes == 0).await?);
        }
        let path = inode.path.clone();
        let held = self.hold(&path).await;
        let _change = self.changes.begin(&path);
        let mut state = held.writing.map(|(_, state)| state);
        let inode = self.inodes.get(inode.number).ok_or(Errno::ESTALE)?;
        let entry = writes.set_attributes(&path, inode.version(), wanted.changes);
        let entry = entry.await.map_err(failed)?;
        if let Some(state) = &mut state {
            if state.is_written() {
                let set = state.set_attributes(volume, wanted.changes, &writes).await;
                set.map_err(failed)?;
            }
            let entry = Some(entry.clone());
            state.follow(volume, &path, entry).await.map_err(failed)?;
        }
        match inode.version() {
            Some(before) => self
                .inodes
                .on_become(&path, &entry, |version| version == before),
            None => drop(self.inodes.refresh(inode.number, entry, Instant::now())),
        }
        self.on_own_change(&path);
        let changed = self.inodes.get(inode.number).ok_or(Errno::ESTALE)?;
        Ok(self.attributes(&changed))
    }
}

/// What a program that opens a file so wants of it.
fn access(flags: OpenFlags) -> Access {
    let mode = flags.acc_mode();
    Access {
        read: mode != OpenAccMode::O_WRONLY,
        write: is_for_writing(flags),
        execute: false,
    }
}

/// Whether a file's mode lets a user open it. Of the user's groups only the first is known here:
/// who has the right by another one is refused, and may open it once the kernel knows of it.
fn may_open(attributes: &FileAttr, caller: Caller, flags: OpenFlags) -> bool {
    let wanted = access(flags);
    let needed = u16::from(wanted.read) * 4 + u16::from(wanted.write) * 2;
    let shift = match caller {
        Caller { uid: 0, .. } => return true,
        Caller { uid, .. } if uid == attributes.uid => 6,
        Caller { gid, .. } if gid == attributes.gid => 3,
        _ => 0,
    };
    attributes.perm >> shift & needed == needed
}
