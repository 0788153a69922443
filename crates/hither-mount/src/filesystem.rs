//! What the kernel asks, answered from a volume.
//!
//! A request that needs the source is answered later, by the node's runtime: the threads that read
//! requests never wait. Reads of what is in memory are answered by these threads at once.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use fuser::{
    AccessFlags, BsdFileFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs,
    ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use hither_node::announcements::ChangeListener;
use hither_node::source::{self, Access, AccessList, Entry, Kind, Space};
use hither_node::volume::Volume;
use tokio::sync::Mutex as AsyncMutex;

use crate::attributes::{FOREVER, attributes, errno, file_type};
use crate::callers::Caller;
use crate::inodes::Inode;
use crate::invalidation::Told;
use crate::listing::Listing;
use crate::reads::{PendingRead, Unanswered, reply_data};
use crate::shared::{Handle, Listed, Shared, View, as_name, nothing};
use crate::writes::{Wanted, is_for_writing, time};

/// The longest request that the kernel sends, in bytes: more than 1 MiB it does not do.
const REQUEST_BYTES_MAX: u32 = 1 << 20;

/// Requests that the kernel sends without waiting for their answers, such as for reading ahead.
const BACKGROUND_MAX: u16 = 64;

/// The attribute by which a command finds the node that serves a path: the path of its socket.
const XATTR_SOCKET: &str = "user.hither.socket";

/// Attributes by which a program asks where a file is cached.
const XATTR_VERSION: &str = "user.hither.version";
const XATTR_MEMORY: &str = "user.hither.memory";
const XATTR_DISK: &str = "user.hither.disk";

/// Attributes by which the kernel asks for access lists.
const XATTR_ACCESS_LIST: &str = "system.posix_acl_access";
const XATTR_DEFAULT_LIST: &str = "system.posix_acl_default";

/// See the module.
#[derive(Clone)]
pub(crate) struct CachedFiles(Arc<Shared>);

impl CachedFiles {
    /// The files of `volume`, below what its source says of its root.
    pub(crate) fn new(
        volume: Arc<Volume>,
        root: Entry,
        view: View,
        invalidations: SyncSender<Told>,
    ) -> CachedFiles {
        CachedFiles(Arc::new(Shared::new(volume, root, view, invalidations)))
    }

    /// Changes by other nodes of which the kernel was not told.
    pub(crate) fn lost_invalidations(&self) -> usize {
        self.0.lost_invalidations.load(Ordering::Relaxed)
    }

    /// From now on the kernel is told of what other nodes announce.
    pub(crate) fn listen(&self) {
        let shared: Arc<dyn ChangeListener> = Arc::clone(&self.0) as _;
        self.0.volume.listen(Arc::downgrade(&shared));
    }

    /// Answers a request with a new inode.
    fn make<F>(
        &self,
        parent: INodeNo,
        reply: ReplyEntry,
        make: impl FnOnce(Arc<Shared>, Arc<Inode>) -> F,
    ) where
        F: Future<Output = Result<Arc<Inode>, Errno>> + Send + 'static,
    {
        let parent = match self.inode(parent) {
            Ok(parent) => parent,
            Err(error) => return reply.error(error),
        };
        let made = make(Arc::clone(&self.0), parent);
        self.later(async move |shared| match made.await {
            Ok(inode) => shared.reply_entry(&inode, Instant::now(), reply),
            Err(error) => reply.error(error),
        });
    }

    /// Answers a request that changes something in a directory.
    fn change<F>(
        &self,
        parent: INodeNo,
        reply: ReplyEmpty,
        change: impl FnOnce(Arc<Shared>, Arc<Inode>) -> F,
    ) where
        F: Future<Output = Result<(), Errno>> + Send + 'static,
    {
        let parent = match self.inode(parent) {
            Ok(parent) => parent,
            Err(error) => return reply.error(error),
        };
        let changed = change(Arc::clone(&self.0), parent);
        self.later(async move |_| match changed.await {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        });
    }

    /// Answers flush and fsync.
    fn finish(&self, handle: FileHandle, reply: ReplyEmpty) {
        match self.0.files.read().get(&handle.0).cloned() {
            Some(Handle::Writing(writing)) => {
                self.later(async move |shared| match shared.finish(&writing).await {
                    Ok(()) => reply.ok(),
                    Err(error) => reply.error(error),
                });
            }
            Some(Handle::Version(_)) => reply.ok(),
            None => reply.error(Errno::EBADF),
        }
    }

    /// Gives up what programs have open and have not closed, so that the source keeps nothing of
    /// it, and waits `patience` for that.
    pub(crate) fn give_up_writing(&self, patience: Duration) {
        let files = self.0.files.read();
        let written = files.values().filter_map(|handle| match handle {
            Handle::Writing(writing) => Some(Arc::clone(&writing.state)),
            Handle::Version(_) => None,
        });
        let written: Vec<_> = written.collect();
        drop(files);
        let (done, wait) = std::sync::mpsc::channel::<()>();
        self.later(async move |_| {
            for state in written {
                state.lock().await.give_up().await;
            }
            drop(done);
        });
        // What is left after that is a hidden file, or parts of an object.
        let _ = wait.recv_timeout(patience);
    }

    /// Requests of the kernel that are not answered yet.
    pub(crate) fn unanswered(&self) -> usize {
        self.0.unanswered.load(Ordering::Relaxed)
    }

    /// Answers a request on the runtime.
    fn later<F>(&self, answer: impl FnOnce(Arc<Shared>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let runtime = self.0.volume.node().runtime();
        let unanswered = Unanswered::new(&self.0);
        let answer = answer(Arc::clone(&self.0));
        runtime.spawn(async move {
            answer.await;
            drop(unanswered);
        });
    }

    fn inode(&self, number: INodeNo) -> Result<Arc<Inode>, Errno> {
        self.0.inodes.get(number.0).ok_or(Errno::ESTALE)
    }
}

impl Filesystem for CachedFiles {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = InitFlags::FUSE_ASYNC_READ
            | InitFlags::FUSE_ASYNC_DIO
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_CACHE_SYMLINKS
            | InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP
            | InitFlags::FUSE_EXPLICIT_INVAL_DATA
            | InitFlags::FUSE_BIG_WRITES
            | InitFlags::FUSE_ATOMIC_O_TRUNC;
        for flag in wanted.iter() {
            // What an older kernel does not have, it does without.
            let _ = config.add_capabilities(flag);
        }
        if self.0.view.has_owners() {
            // Without them, the group's bits of a mode would say what a list allows at most.
            let lists = config.add_capabilities(InitFlags::FUSE_POSIX_ACL);
            if lists.is_err() && self.0.view.allow_other {
                let reason = "this kernel knows no access lists of FUSE: it cannot tell what other \
                              users may do";
                return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
            }
            // What a default list gives takes no umask.
            let _ = config.add_capabilities(InitFlags::FUSE_DONT_MASK);
        }
        if !self.0.view.names_cost_requests {
            // After the first names, attributes only for who looks names up: they take memory.
            let _ = config.add_capabilities(InitFlags::FUSE_READDIRPLUS_AUTO);
        }
        if self.0.view.passthrough {
            let _ = config.add_capabilities(InitFlags::FUSE_PASSTHROUGH);
            let _ = config.set_max_stack_depth(1);
        }
        let _ = config.set_max_write(REQUEST_BYTES_MAX);
        let _ = config.set_max_readahead(REQUEST_BYTES_MAX);
        let _ = config.set_max_background(BACKGROUND_MAX);
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let parent = match self.inode(parent) {
            Ok(parent) => parent,
            Err(error) => return reply.error(error),
        };
        let (name, thread) = (name.to_owned(), request.pid());
        self.later(async move |shared| {
            shared.answer_look_up(&parent, &name, thread, reply).await;
        });
    }

    fn forget(&self, _: &Request, number: INodeNo, lookups: u64) {
        let forgotten = self.0.inodes.forget(number.0, lookups);
        if forgotten.as_ref().is_some_and(|inode| inode.held.is_some()) {
            // It closes a file, which may take its time.
            let runtime = self.0.volume.node().runtime();
            runtime.spawn_blocking(move || drop(forgotten));
        }
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let inode = match self.inode(number) {
            Ok(inode) => inode,
            Err(error) => return reply.error(error),
        };
        if let Some(writing) = inode.writing.clone() {
            return self.later(
                async move |shared| match writing.stat(&shared.volume).await {
                    Ok(entry) => {
                        let attributes = attributes(inode.shown, &entry, shared.view.owner);
                        reply.attr(&Duration::ZERO, &attributes);
                    }
                    Err(error) => reply.error(errno(&error)),
                },
            );
        }
        let ttl = self.0.attributes_ttl(&inode);
        if inode.is_newer_than(ttl) {
            return reply.attr(&ttl, &self.0.attributes(&inode));
        }
        if let Kind::File { .. } | Kind::Link(_) = inode.entry.kind {
            return self.later(async move |shared| {
                let inode = match inode.entry.kind {
                    Kind::File { .. } if ttl < FOREVER => shared.look_at_file(inode).await,
                    _ => inode,
                };
                reply.attr(&shared.attributes_ttl(&inode), &shared.attributes(&inode));
            });
        }
        self.later(async move |shared| match shared.current(inode).await {
            Ok(Some(inode)) => {
                let ttl = shared.attributes_ttl(&inode);
                reply.attr(&ttl, &shared.attributes(&inode));
            }
            Ok(None) => reply.error(Errno::ESTALE),
            Err(error) => reply.error(errno(&error)),
        });
    }

    fn readlink(&self, _: &Request, number: INodeNo, reply: ReplyData) {
        match self.inode(number).map(|inode| inode.entry.kind.clone()) {
            Ok(Kind::Link(target)) => reply.data(&target),
            Ok(_) => reply.error(Errno::EINVAL),
            Err(error) => reply.error(error),
        }
    }

    fn open(&self, request: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if is_for_writing(flags) && !self.0.view.write {
            return reply.error(Errno::EROFS);
        }
        let inode = match self.inode(number) {
            Ok(inode) => inode,
            Err(error) => return reply.error(error),
        };
        let caller = Caller::of(request, 0);
        self.later(async move |shared| {
            if !is_for_writing(flags) && inode.writing.is_none() {
                if shared.view.write {
                    shared.writings.keep_promise(&inode.path, caller.thread);
                }
                return shared.open(inode, flags, caller, reply).await;
            }
            match shared.open_for_writing(inode, flags, caller).await {
                Ok((handle, flags)) => reply.opened(FileHandle(handle), flags),
                Err(error) => reply.error(error),
            }
        });
    }

    fn read(
        &self,
        request: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        bytes: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let file = self.0.files.read().get(&handle.0).cloned();
        let file = match file {
            Some(Handle::Version(file)) => file,
            Some(Handle::Writing(writing)) => {
                return self.later(async move |shared| {
                    let mut state = writing.state.lock().await;
                    match state.read(&shared.volume, offset, bytes as usize).await {
                        Ok(pieces) => reply_data(reply, &pieces),
                        Err(error) => reply.error(errno(&error)),
                    }
                });
            }
            None => return reply.error(Errno::EBADF),
        };
        file.note_reader(offset, bytes.into(), request.pid());
        let read = PendingRead {
            inode: number.0,
            handle: handle.0,
            offset,
            bytes: bytes as usize,
            reply,
            _unanswered: Unanswered::new(&self.0),
        };
        self.0.read(file, read);
    }

    fn release(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        let file = self.0.files.write().remove(&handle.0);
        match file {
            Some(Handle::Writing(writing)) => self.later(async move |shared| {
                shared.release(writing).await;
                reply.ok();
            }),
            Some(Handle::Version(_)) => {
                self.0.inodes.close(number.0);
                self.0.open_modes.release(number.0);
                reply.ok();
            }
            None => reply.ok(),
        }
    }

    fn flush(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: LockOwner,
        reply: ReplyEmpty,
    ) {
        let file = self.0.files.read().get(&handle.0).cloned();
        match file {
            Some(Handle::Writing(file)) if file.last_writer.is_another(request.pid()) => reply.ok(),
            _ => self.finish(handle, reply),
        }
    }

    fn fsync(&self, _: &Request, _: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        self.finish(handle, reply);
    }

    fn write(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let file = self.0.files.read().get(&handle.0).cloned();
        let Some(Handle::Writing(writing)) = file else {
            return reply.error(Errno::EBADF);
        };
        writing.last_writer.wrote(request.pid());
        let data = Bytes::copy_from_slice(data);
        self.later(async move |shared| {
            let bytes = data.len() as u32;
            match shared.write(&writing, offset, data, flags).await {
                Ok(()) => reply.written(bytes),
                Err(error) => reply.error(error),
            }
        });
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let parent = match self.inode(parent) {
            Ok(parent) => parent,
            Err(error) => return reply.error(error),
        };
        let caller = Caller::of(request, umask);
        let (name, flags) = (name.to_owned(), OpenFlags(flags));
        self.later(async move |shared| {
            let created = shared.create(&parent, &name, mode & 0o7777, flags, caller);
            match created.await {
                Ok((inode, handle, open)) => {
                    let (attributes, ttl) = shared.looked_up(&inode);
                    let handle = FileHandle(handle);
                    reply.created(&ttl, &attributes, Generation(0), handle, open);
                }
                Err(error) => reply.error(error),
            }
        });
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        let (name, caller) = (name.to_owned(), Caller::of(request, umask));
        self.make(parent, reply, async move |shared: Arc<Shared>, parent| {
            shared.make_node(&parent, &name, mode, caller).await
        });
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let (name, caller) = (name.to_owned(), Caller::of(request, umask));
        self.make(parent, reply, async move |shared: Arc<Shared>, parent| {
            shared.make_dir(&parent, &name, mode, caller).await
        });
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let (name, caller) = (name.to_owned(), Caller::of(request, 0));
        let target = target.as_os_str().as_bytes().to_vec();
        self.make(parent, reply, async move |shared: Arc<Shared>, parent| {
            shared.make_link(&parent, &name, &target, caller).await
        });
    }

    fn link(&self, _: &Request, _: INodeNo, _: INodeNo, _: &OsStr, reply: ReplyEntry) {
        // Two names of one file would be two versions after the first write to one of them.
        reply.error(Errno::EPERM);
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (name, caller) = (name.to_owned(), Caller::of(request, 0));
        self.change(parent, reply, async move |shared: Arc<Shared>, parent| {
            shared.remove(&parent, &name, caller).await
        });
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (name, caller) = (name.to_owned(), Caller::of(request, 0));
        self.change(parent, reply, async move |shared: Arc<Shared>, parent| {
            shared.remove_dir(&parent, &name, caller).await
        });
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let new_parent = match self.inode(new_parent) {
            Ok(parent) => parent,
            Err(error) => return reply.error(error),
        };
        let (name, new_name) = (name.to_owned(), new_name.to_owned());
        let caller = Caller::of(request, 0);
        self.change(parent, reply, async move |shared: Arc<Shared>, parent| {
            let paths = parent.child(&name).zip(new_parent.child(&new_name));
            let (from, to) = paths.ok_or(Errno::EINVAL)?;
            shared.rename(from, to, flags, caller).await
        });
    }

    fn setattr(
        &self,
        request: &Request,
        number: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        bytes: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let inode = match self.inode(number) {
            Ok(inode) => inode,
            Err(error) => return reply.error(error),
        };
        let changes = source::write::Changes {
            mode,
            uid,
            gid,
            accessed: time(accessed),
            modified: time(modified),
        };
        let (wanted, caller) = (Wanted { changes, bytes }, Caller::of(request, 0));
        self.later(
            async move |shared| match shared.set_attributes(inode, wanted, caller).await {
                Ok(attributes) => reply.attr(&Duration::ZERO, &attributes),
                Err(error) => reply.error(error),
            },
        );
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: u64,
        _: i32,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EOPNOTSUPP);
    }

    fn access(&self, _: &Request, _: INodeNo, _: AccessFlags, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn lseek(&self, _: &Request, _: INodeNo, _: FileHandle, _: i64, _: i32, reply: ReplyLseek) {
        reply.error(Errno::ENOSYS);
    }

    fn opendir(&self, request: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let inode = match self.inode(number) {
            Ok(inode) => inode,
            Err(error) => return reply.error(error),
        };
        let caller = Caller::of(request, 0);
        self.later(async move |shared| {
            let access = Access {
                read: true,
                ..Access::default()
            };
            let may = shared.check_access(&inode.path, None, access, caller).await;
            if let Err(error) = may {
                return reply.error(error);
            }
            let handle = shared.handle();
            let listing = Arc::new(AsyncMutex::new(Listing::new(inode.path.clone())));
            shared.directories.write().insert(handle, listing);
            reply.opened(FileHandle(handle), FopenFlags::empty());
        });
    }

    fn readdir(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        self.later(async move |shared| {
            let add = |_: &Shared, next: u64, name: &[u8], listed: Listed<'_>| {
                // A number of its own has only what was looked up; these are never 0 and differ.
                let (number, kind) = match listed {
                    Listed::Dots => (number, fuser::FileType::Directory),
                    Listed::Entry(_, entry, _) => (INodeNo(u64::MAX - next), file_type(entry)),
                };
                reply.add(number, next, kind, as_name(name))
            };
            match shared.list(handle, offset, add).await {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(errno(&error)),
            }
        });
    }

    fn readdirplus(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        self.later(async move |shared| {
            let add = |shared: &Shared, next: u64, name: &[u8], listed: Listed<'_>| {
                let name = as_name(name);
                let Listed::Entry(path, entry, asked) = listed else {
                    let mut attributes = nothing();
                    attributes.ino = number;
                    attributes.kind = fuser::FileType::Directory;
                    return reply.add(
                        number,
                        next,
                        name,
                        &Duration::ZERO,
                        &attributes,
                        Generation(0),
                    );
                };
                let entry = shared.view.consistency.settled(entry.clone());
                let inode = shared.inodes.look_up(path, entry, asked);
                let ttl = shared.name_ttl(&inode.path, asked);
                let (attributes, attributes_ttl) = shared.looked_up(&inode);
                let full = reply.add(
                    INodeNo(inode.number),
                    next,
                    name,
                    &ttl.saturating_sub(asked.elapsed()).min(attributes_ttl),
                    &attributes,
                    Generation(0),
                );
                if full {
                    shared.inodes.forget(inode.number, 1);
                }
                full
            };
            match shared.list(handle, offset, add).await {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(errno(&error)),
            }
        });
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.0.directories.write().remove(&handle.0);
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        self.later(async move |shared| {
            let space = shared.volume.source().space().await;
            match space {
                Ok(space) => reply_space(reply, &space.unwrap_or(BOUNDLESS)),
                Err(error) => reply.error(errno(&error)),
            }
        });
    }

    fn getxattr(&self, _: &Request, number: INodeNo, name: &OsStr, bytes: u32, reply: ReplyXattr) {
        let inode = match self.inode(number) {
            Ok(inode) => inode,
            Err(error) => return reply.error(error),
        };
        if name == XATTR_SOCKET {
            return match &self.0.view.socket {
                Some(socket) => reply_value(reply, bytes, socket.as_os_str().as_bytes()),
                None => reply.error(Errno::ENODATA),
            };
        }
        let list = match name.to_str() {
            Some(XATTR_ACCESS_LIST) => Some(AccessList::Access),
            Some(XATTR_DEFAULT_LIST) => Some(AccessList::Default),
            _ => None,
        };
        if let Some(list) = list {
            return self.later(
                async move |shared| match shared.access_list(&inode, list).await {
                    Ok(Some(value)) => reply_value(reply, bytes, &value),
                    Ok(None) => reply.error(Errno::ENODATA),
                    Err(error) => reply.error(error),
                },
            );
        }
        let known = [XATTR_VERSION, XATTR_MEMORY, XATTR_DISK];
        let name = known.into_iter().find(|known| name == *known);
        let (Some(name), Some((file, _))) = (name, inode.file()) else {
            return reply.error(Errno::ENODATA);
        };
        self.later(async move |shared| {
            let (here, all) = match name {
                XATTR_MEMORY => shared.volume.blocks_in_memory(&file),
                _ => shared.volume.blocks_on_disk(&file),
            };
            let value = match name {
                XATTR_VERSION => format!("{:?}", file.version),
                _ => format!("{here}/{all}"),
            };
            reply_value(reply, bytes, value.as_bytes());
        });
    }

    /// Programs that copy attributes would take ours along: they are there by name alone.
    fn listxattr(&self, _: &Request, _: INodeNo, bytes: u32, reply: ReplyXattr) {
        match bytes {
            0 => reply.size(0),
            _ => reply.data(&[]),
        }
    }
}

/// Answers for an attribute's value, or only for its length if there is no room for any.
fn reply_value(reply: ReplyXattr, room: u32, value: &[u8]) {
    match room as usize {
        0 => reply.size(value.len() as u32),
        room if value.len() > room => reply.error(Errno::ERANGE),
        _ => reply.data(value),
    }
}

fn reply_space(reply: ReplyStatfs, space: &Space) {
    reply.statfs(
        space.blocks,
        space.free_blocks,
        space.available_blocks,
        space.files,
        space.free_files,
        space.block_bytes as u32,
        255,
        space.block_bytes as u32,
    );
}

/// What a source without bounds is said to have, so that programs which look before they write go
/// on: 1 PiB, and as many files as 32 bits count.
const BOUNDLESS: Space = Space {
    block_bytes: 4096,
    blocks: 1 << 38,
    free_blocks: 1 << 38,
    available_blocks: 1 << 38,
    files: u32::MAX as u64,
    free_files: u32::MAX as u64,
};
