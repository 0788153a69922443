//! What the kernel asks, answered from a volume.
//!
//! A request that needs the source is answered later, by the node's runtime: the threads that read
//! requests never wait. Reads of what is in memory are answered by these threads at once.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use fuser::{
    AccessFlags, Errno, FileAttr, FileHandle, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenAccMode, OpenFlags, ReplyAttr, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs,
    ReplyXattr, Request,
};
use hither_node::source::{Entry, Kind, SourceError, SourcePath};
use hither_node::volume::{Data, OpenFile, Volume};
use parking_lot::RwLock;
use rustc_hash::FxHashMap;
use tokio::sync::Mutex as AsyncMutex;

use crate::attributes::{Consistency, FOREVER, Owner, attributes, errno, file_type};
use crate::inodes::{Inode, Inodes};
use crate::listing::Listing;

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

/// How a volume appears.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) consistency: Consistency,
    pub(crate) owner: Owner,
    /// Reads go past the kernel's page cache.
    pub(crate) direct_io: bool,
    /// The socket of the node.
    pub(crate) socket: Option<PathBuf>,
}

/// See the module.
#[derive(Clone)]
pub(crate) struct CachedFiles(Arc<Shared>);

struct Shared {
    volume: Arc<Volume>,
    view: View,
    inodes: Inodes,
    files: RwLock<FxHashMap<u64, Arc<OpenFile>>>,
    directories: RwLock<FxHashMap<u64, Arc<AsyncMutex<Listing>>>>,
    next_handle: AtomicU64,
    unanswered: AtomicUsize,
}

/// A request that is not answered yet, while this lives.
struct Unanswered(Arc<Shared>);

impl Unanswered {
    fn new(shared: &Arc<Shared>) -> Unanswered {
        shared.unanswered.fetch_add(1, Ordering::Relaxed);
        Unanswered(Arc::clone(shared))
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        self.0.unanswered.fetch_sub(1, Ordering::Relaxed);
    }
}

impl CachedFiles {
    /// The files of `volume`, below what its source says of its root.
    pub(crate) fn new(volume: Arc<Volume>, root: Entry, view: View) -> CachedFiles {
        CachedFiles(Arc::new(Shared {
            volume,
            view,
            inodes: Inodes::new(root),
            files: RwLock::default(),
            directories: RwLock::default(),
            next_handle: AtomicU64::new(1),
            unanswered: AtomicUsize::new(0),
        }))
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

impl Shared {
    fn attributes(&self, inode: &Inode) -> FileAttr {
        attributes(inode.number, &inode.entry, self.view.owner)
    }

    /// How long the kernel may believe an inode's attributes. Those of a file are its version's,
    /// and do not change.
    fn attributes_ttl(&self, entry: &Entry) -> Duration {
        match entry.kind {
            Kind::File { .. } | Kind::Link(_) => FOREVER,
            Kind::Directory | Kind::Special => self.view.consistency.ttl(),
        }
    }

    /// The inode as the source has it now, if what is known is older than it may be. `None` if it
    /// is another one by now.
    async fn current(&self, inode: Arc<Inode>) -> Result<Option<Arc<Inode>>, SourceError> {
        let settled = !matches!(inode.entry.kind, Kind::File { settled: false, .. });
        // An unsettled file may settle at any time; what this lookup has just said holds.
        let age_max = match settled {
            true => self.view.consistency.age_max(),
            false => Consistency::Strict.age_max(),
        };
        if inode.checked.elapsed() <= age_max {
            return Ok(Some(inode));
        }
        let asked = Instant::now();
        let entry = self.volume.source().stat(&inode.path).await;
        self.volume.note_answer(&entry);
        let entry = entry?;
        let entry = self.settled_if_immutable(entry);
        Ok(self.inodes.refresh(inode.number, entry, asked))
    }

    /// The source's answer, in which every file is settled if nothing ever changes.
    fn settled_if_immutable(&self, mut entry: Entry) -> Entry {
        if let Kind::File { settled, .. } = &mut entry.kind
            && self.view.consistency == Consistency::Immutable
        {
            *settled = true;
        }
        entry
    }

    fn handle(&self) -> u64 {
        self.next_handle.fetch_add(1, Ordering::Relaxed)
    }

    async fn look_up(&self, parent: &Inode, name: &OsStr) -> Result<Arc<Inode>, SourceError> {
        let not_found = || SourceError::NotFound(parent.path.clone());
        let path = parent.child(name).ok_or_else(not_found)?;
        let asked = Instant::now();
        let entry = self.volume.source().stat(&path).await;
        self.volume.note_answer(&entry);
        let entry = entry?;
        Ok(self
            .inodes
            .look_up(path, self.settled_if_immutable(entry), asked))
    }

    fn reply_to_look_up(&self, result: Result<Arc<Inode>, SourceError>, reply: ReplyEntry) {
        let ttl = self.view.consistency.ttl();
        match result {
            Ok(inode) => reply.entry_with_ttls(
                &self.attributes_ttl(&inode.entry),
                &ttl,
                &self.attributes(&inode),
                Generation(0),
            ),
            // Number 0 tells the kernel that there is nothing, and that it may believe that.
            Err(SourceError::NotFound(_)) if !ttl.is_zero() => {
                reply.entry(&ttl, &nothing(), Generation(0));
            }
            Err(error) => reply.error(errno(&error)),
        }
    }

    async fn open(&self, inode: Arc<Inode>) -> Result<(u64, FopenFlags), Errno> {
        let current = self.current(inode).await;
        // To a path that the kernel had looked up before, ESTALE is to look again.
        let current = current.map_err(|error| match error {
            SourceError::NotFound(_) => Errno::ESTALE,
            error => errno(&error),
        })?;
        let inode = current.ok_or(Errno::ESTALE)?;
        let (version, settled) = inode.file().ok_or(Errno::EISDIR)?;
        if !self.volume.can_number(&version) {
            return Err(Errno::EFBIG);
        }
        let mut flags = FopenFlags::empty();
        flags.set(FopenFlags::FOPEN_KEEP_CACHE, settled);
        flags.set(FopenFlags::FOPEN_DIRECT_IO, self.view.direct_io || !settled);
        let handle = self.handle();
        let file = self.volume.open(version, settled);
        self.files.write().insert(handle, file);
        Ok((handle, flags))
    }

    async fn list(
        &self,
        handle: FileHandle,
        offset: u64,
        mut add: impl FnMut(&Self, u64, &[u8], Listed<'_>) -> bool,
    ) -> Result<(), SourceError> {
        let mut has_added = false;
        let listing = self.directories.read().get(&handle.0).cloned();
        let Some(listing) = listing else {
            return Ok(());
        };
        let mut listing = listing.lock().await;
        for (position, name) in (0..).zip([&b"."[..], b".."]).skip(offset as usize) {
            if add(self, position + 1, name, Listed::Dots) {
                return Ok(());
            }
            has_added = true;
        }
        let mut position = offset.max(2) - 2;
        loop {
            let page = match listing.page(&self.volume, position).await {
                Ok(Some(page)) => page,
                Ok(None) => return Ok(()),
                // The kernel gets what is there, and asks again for the rest.
                Err(_) if has_added => return Ok(()),
                Err(error) => return Err(error),
            };
            let skipped = (position - page.first) as usize;
            for (name, entry) in &page.entries[skipped..] {
                let Some(path) = listing.path().join(name) else {
                    position += 1;
                    continue;
                };
                if add(
                    self,
                    position + 3,
                    name,
                    Listed::Entry(path, entry, page.asked),
                ) {
                    return Ok(());
                }
                has_added = true;
                position += 1;
            }
        }
    }
}

/// What stands in a listing.
enum Listed<'a> {
    Dots,
    /// The path, what the source says of it, and when it was asked.
    Entry(SourcePath, &'a Entry, Instant),
}

/// The attributes of no file.
fn nothing() -> FileAttr {
    let entry = Entry {
        kind: Kind::Special,
        bytes: 0,
        modified: SystemTime::UNIX_EPOCH,
        unix: None,
    };
    attributes(0, &entry, Owner { uid: 0, gid: 0 })
}

thread_local! {
    /// Where a read of several blocks is put together: the kernel takes one piece.
    static ONE_PIECE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

fn reply_data(reply: ReplyData, data: &Data) {
    match data.pieces() {
        [] => reply.data(&[]),
        [piece] => reply.data(piece),
        pieces => ONE_PIECE.with_borrow_mut(|one| {
            one.clear();
            for piece in pieces {
                one.extend_from_slice(piece);
            }
            reply.data(one);
        }),
    }
}

impl Filesystem for CachedFiles {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = InitFlags::FUSE_ASYNC_READ
            | InitFlags::FUSE_ASYNC_DIO
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO
            | InitFlags::FUSE_CACHE_SYMLINKS
            | InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP
            | InitFlags::FUSE_EXPLICIT_INVAL_DATA;
        for flag in wanted.iter() {
            // What an older kernel does not have, it does without.
            let _ = config.add_capabilities(flag);
        }
        let _ = config.set_max_write(REQUEST_BYTES_MAX);
        let _ = config.set_max_readahead(REQUEST_BYTES_MAX);
        let _ = config.set_max_background(BACKGROUND_MAX);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let parent = match self.inode(parent) {
            Ok(parent) => parent,
            Err(error) => return reply.error(error),
        };
        let name = name.to_owned();
        self.later(async move |shared| {
            let result = shared.look_up(&parent, &name).await;
            shared.reply_to_look_up(result, reply);
        });
    }

    fn forget(&self, _: &Request, number: INodeNo, lookups: u64) {
        self.0.inodes.forget(number.0, lookups);
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let inode = match self.inode(number) {
            Ok(inode) => inode,
            Err(error) => return reply.error(error),
        };
        let is_fixed = self.0.attributes_ttl(&inode.entry) == FOREVER;
        if is_fixed || inode.checked.elapsed() <= self.0.view.consistency.ttl() {
            let ttl = self.0.attributes_ttl(&inode.entry);
            return reply.attr(&ttl, &self.0.attributes(&inode));
        }
        self.later(async move |shared| match shared.current(inode).await {
            Ok(Some(inode)) => {
                let ttl = shared.attributes_ttl(&inode.entry);
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

    fn open(&self, _: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if flags.acc_mode() != OpenAccMode::O_RDONLY {
            return reply.error(Errno::EROFS);
        }
        let inode = match self.inode(number) {
            Ok(inode) => inode,
            Err(error) => return reply.error(error),
        };
        self.later(async move |shared| match shared.open(inode).await {
            Ok((handle, flags)) => reply.opened(FileHandle(handle), flags),
            Err(error) => reply.error(error),
        });
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        bytes: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let file = self.0.files.read().get(&handle.0).cloned();
        let Some(file) = file else {
            return reply.error(Errno::EBADF);
        };
        let unanswered = Unanswered::new(&self.0);
        file.read(offset, bytes as usize, move |result| {
            match result {
                Ok(data) => reply_data(reply, &data),
                // The file is gone at the source: of this version there is no more to be had.
                Err(SourceError::NotFound(_)) => reply.error(Errno::ESTALE),
                Err(error) => reply.error(errno(&error)),
            }
            drop(unanswered);
        });
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.0.files.write().remove(&handle.0);
        reply.ok();
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn access(&self, _: &Request, _: INodeNo, _: AccessFlags, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn lseek(&self, _: &Request, _: INodeNo, _: FileHandle, _: i64, _: i32, reply: ReplyLseek) {
        reply.error(Errno::ENOSYS);
    }

    fn opendir(&self, _: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let inode = match self.inode(number) {
            Ok(inode) => inode,
            Err(error) => return reply.error(error),
        };
        let handle = self.0.handle();
        let listing = Arc::new(AsyncMutex::new(Listing::new(inode.path.clone())));
        self.0.directories.write().insert(handle, listing);
        reply.opened(FileHandle(handle), FopenFlags::empty());
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
                let entry = shared.settled_if_immutable(entry.clone());
                let inode = shared.inodes.look_up(path, entry, asked);
                let ttl = shared.view.consistency.ttl();
                let full = reply.add(
                    INodeNo(inode.number),
                    next,
                    name,
                    &ttl.saturating_sub(asked.elapsed()),
                    &shared.attributes(&inode),
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
        let files = self.0.inodes.len() as u64;
        reply.statfs(0, 0, 0, files, 0, 4096, 255, 4096);
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

fn as_name(name: &[u8]) -> &OsStr {
    OsStr::from_bytes(name)
}
