//! What a mount knows, and how it answers what is only read.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant, SystemTime};

use fuser::{
    Errno, FileAttr, FileHandle, FopenFlags, Generation, OpenFlags, ReplyEntry, ReplyOpen,
};
use hither_node::announcements::ChangeListener;
use hither_node::source::write::{Acting, User, WritableSource};
use hither_node::source::{Access, AccessList, Entry, Kind, SourceError, SourcePath, Version};
use hither_node::volume::{OpenFile, Volume};
use parking_lot::RwLock;
use rustc_hash::FxHashMap;
use tokio::sync::{Mutex as AsyncMutex, RwLock as AsyncRwLock};

use crate::attributes::{Consistency, FOREVER, Owner, attributes, errno};
use crate::callers::Caller;
use crate::changes::{Changes, VersionLocks};
use crate::inodes::{Inode, Inodes};
use crate::invalidation::Told;
use crate::listing::Listing;
use crate::passthrough::{Backing, OpenModes};
use crate::writing::Writing;
use crate::writings::Writings;

/// How long the kernel believes the attributes of an open file at least: it asks at each read
/// across the end.
const SETTLED_TTL: Duration = Duration::from_secs(1);

/// How long it believes those of a file that changes all the time at most.
const LIVE_TTL: Duration = Duration::from_millis(100);

/// How a volume appears.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) consistency: Consistency,
    pub(crate) owner: Owner,
    /// Reads go past the kernel's page cache.
    pub(crate) direct_io: bool,
    /// The kernel reads by itself what the disk has whole.
    pub(crate) passthrough: bool,
    /// Programs may change what they see.
    pub(crate) write: bool,
    /// A name that is looked up costs a request of its own, as in a bucket: listings give the
    /// kernel all that they say of a name.
    pub(crate) names_cost_requests: bool,
    /// The socket of the node.
    pub(crate) socket: Option<PathBuf>,
    /// The source can be asked as another user.
    pub(crate) may_act: bool,
    /// Others than this process's user see the files.
    pub(crate) allow_other: bool,
}

impl View {
    /// Whether the source's files have owners, modes and access lists.
    pub(crate) fn has_owners(&self) -> bool {
        !self.names_cost_requests
    }
}

/// See the module.
pub(crate) struct Shared {
    pub(crate) volume: Arc<Volume>,
    pub(crate) view: View,
    pub(crate) inodes: Inodes,
    pub(crate) files: RwLock<FxHashMap<u64, Handle>>,
    pub(crate) directories: RwLock<FxHashMap<u64, Arc<AsyncMutex<Listing>>>>,
    next_handle: AtomicU64,
    pub(crate) unanswered: AtomicUsize,
    pub(crate) writings: Writings,
    pub(crate) open_modes: OpenModes,
    pub(crate) changes: Changes,
    /// Taken after the lock of a [`Writing`], and before `names`: they are held for as long as a
    /// file takes to be stored.
    pub(crate) version_locks: VersionLocks,
    /// Held alone while something is renamed: what is opened for writing then would be finished
    /// at the old name. Who holds it never waits for the lock of a [`Writing`], which may be held
    /// for as long as a file takes to be copied or stored: that one is taken first.
    pub(crate) names: AsyncRwLock<()>,
    /// What the kernel is to ask for anew.
    invalidations: SyncSender<Told>,
    /// Changes by other nodes of which the kernel was not told.
    pub(crate) lost_invalidations: AtomicUsize,
}

/// An open file.
#[derive(Clone)]
pub(crate) enum Handle {
    /// Of a finished version.
    Version(Arc<OpenFile>),
    /// Of one that is being written.
    Writing(Arc<Writing>),
}

impl Shared {
    /// The files of `volume`, below what its source says of its root.
    pub(crate) fn new(
        volume: Arc<Volume>,
        root: Entry,
        view: View,
        invalidations: SyncSender<Told>,
    ) -> Shared {
        Shared {
            volume,
            view,
            inodes: Inodes::new(root),
            files: RwLock::default(),
            directories: RwLock::default(),
            next_handle: AtomicU64::new(1),
            unanswered: AtomicUsize::new(0),
            writings: Writings::default(),
            open_modes: OpenModes::default(),
            changes: Changes::new(),
            version_locks: VersionLocks::new(),
            names: AsyncRwLock::default(),
            invalidations,
            lost_invalidations: AtomicUsize::new(0),
        }
    }

    /// What a program sees of an inode.
    pub(crate) fn attributes(&self, inode: &Inode) -> FileAttr {
        attributes(inode.shown, &inode.entry, self.view.owner)
    }

    /// What the kernel is told of an inode that is looked up, and for how long it may believe that.
    pub(crate) fn looked_up(&self, inode: &Inode) -> (FileAttr, Duration) {
        let ttl = if inode.number == inode.shown {
            self.attributes_ttl(inode)
        } else {
            // It takes the number for `st_ino`.
            Duration::ZERO
        };
        let attributes = attributes(inode.number, &inode.entry, self.view.owner);
        (attributes, ttl)
    }

    /// How long the kernel may believe an inode's attributes. Those of a file are its version's,
    /// but for one that grows.
    pub(crate) fn attributes_ttl(&self, inode: &Inode) -> Duration {
        if inode.writing.is_some() {
            return Duration::ZERO;
        }
        let ttl = self.view.consistency.ttl();
        match inode.entry.kind {
            Kind::Link(_) => FOREVER,
            Kind::File { .. } if !self.view.has_owners() => FOREVER,
            Kind::File { settled: true, .. } => ttl.max(SETTLED_TTL),
            Kind::File { settled: false, .. } => ttl.min(LIVE_TTL),
            Kind::Directory | Kind::Special => ttl,
        }
    }

    /// An open file as it is by now: one that has grown, or was cut, is read on. Of another version
    /// there is nothing to be told.
    pub(crate) async fn look_at_file(&self, inode: Arc<Inode>) -> Arc<Inode> {
        let asked = Instant::now();
        match self.stat(&inode.path).await {
            Ok(entry) if entry.version().is_some() && entry.version() == inode.version() => {
                self.inodes.on_same(inode.number, asked)
            }
            // Its attributes are those of its version.
            Ok(entry) if self.has_same_contents(&inode, &entry) => None,
            Ok(entry) => self.read_live(&inode, entry, asked).await,
            Err(_) => None,
        }
        .unwrap_or(inode)
    }

    /// Whether a file differs in attributes at most from what is known of it.
    fn has_same_contents(&self, inode: &Inode, entry: &Entry) -> bool {
        let versions = inode.version().zip(entry.version());
        versions.is_some_and(|(was, now)| self.volume.source().same_file(was, now))
            && (inode.entry.bytes, inode.entry.modified) == (entry.bytes, entry.modified)
    }

    /// Reads an inode live from now on, whose file is `entry` at the source by now, if that is the
    /// same file and what is known of its bytes still holds. `None` if it is not.
    pub(crate) async fn read_live(
        &self,
        inode: &Arc<Inode>,
        entry: Entry,
        asked: Instant,
    ) -> Option<Arc<Inode>> {
        let (was, now) = (inode.version()?, entry.version()?);
        if inode.writing.is_some() || !self.volume.source().same_file(was, now) {
            return None;
        }
        let (file, settled) = inode.file()?;
        let common = entry.bytes.min(inode.entry.bytes);
        if settled {
            // Such a file is no longer read through this process.
            let is_passed = self.view.passthrough;
            let before = self.volume.open(file.clone(), true);
            if is_passed || !before.still_begins(common).await {
                return None;
            }
        }
        let live = self.inodes.on_live(inode.number, entry, asked)?;
        if settled && let Some(now) = live.now() {
            let now = Handle::Version(self.volume.open(now, false));
            for handle in self.files.write().values_mut() {
                let is_it = matches!(handle, Handle::Version(it) if *it.version() == file);
                if is_it {
                    *handle = now.clone();
                }
            }
        }
        // The last page that the kernel has ends where the file ended.
        let (told, done) = tokio::sync::oneshot::channel();
        let pages = Told::Pages {
            number: inode.number,
            from: common,
            told,
        };
        self.invalidations.try_send(pages).ok()?;
        done.await.ok()?;
        Some(live)
    }

    /// The inode as the source has it now, if what is known is older than it may be. `None` if it
    /// is another one by now.
    pub(crate) async fn current(
        &self,
        inode: Arc<Inode>,
    ) -> Result<Option<Arc<Inode>>, SourceError> {
        let settled = !matches!(inode.entry.kind, Kind::File { settled: false, .. });
        // An unsettled file may settle at any time; what this lookup has just said holds.
        let age_max = if settled {
            self.view.consistency.age_max()
        } else {
            Consistency::Strict.age_max()
        };
        if inode.is_newer_than(age_max) {
            return Ok(Some(inode));
        }
        let asked = Instant::now();
        let entry = self.stat(&inode.path).await?;
        Ok(self.inodes.refresh(inode.number, entry, asked))
    }

    /// An access list, as the kernel asks for it.
    pub(crate) async fn access_list(
        &self,
        inode: &Inode,
        list: AccessList,
    ) -> Result<Option<Vec<u8>>, Errno> {
        if !self.view.has_owners() {
            return Ok(None);
        }
        let value = match &inode.writing {
            Some(writing) => {
                let mut state = writing.state.lock().await;
                state.access_list(&self.volume, list).await
            }
            None => {
                let source = self.volume.source();
                source.access_list(&inode.path, inode.version(), list).await
            }
        };
        value.map_err(|error| errno(&error))
    }

    /// What the source says of `path` now.
    async fn stat(&self, path: &SourcePath) -> Result<Entry, SourceError> {
        let entry = self.volume.source().stat(path).await;
        self.volume.note_answer(&entry);
        entry.map(|entry| self.view.consistency.settled(entry))
    }

    pub(crate) fn handle(&self) -> u64 {
        self.next_handle.fetch_add(1, Ordering::Relaxed)
    }

    /// How long the kernel may believe what the source said of `path` at `asked`.
    pub(crate) fn name_ttl(&self, path: &SourcePath, asked: Instant) -> Duration {
        let ttl = self.view.consistency.ttl();
        // Once it is closed, it is another one.
        if self.view.write && self.writings.find(path).is_some() {
            Duration::ZERO
        } else {
            self.changes.ttl(path, asked, ttl)
        }
    }

    async fn look_up(&self, path: &SourcePath, asked: Instant) -> Result<Arc<Inode>, SourceError> {
        let entry = self.stat(path).await?;
        Ok(self.inodes.look_up(path.clone(), entry, asked))
    }

    pub(crate) fn reply_entry(&self, inode: &Inode, asked: Instant, reply: ReplyEntry) {
        let ttl = match inode.writing {
            Some(_) => Duration::ZERO,
            None => self.name_ttl(&inode.path, asked),
        };
        let (attributes, attributes_ttl) = self.looked_up(inode);
        reply.entry_with_ttls(&attributes_ttl, &ttl, &attributes, Generation(0));
    }

    pub(crate) async fn answer_look_up(
        &self,
        parent: &Inode,
        name: &OsStr,
        thread: u32,
        reply: ReplyEntry,
    ) {
        let Some(path) = parent.child(name) else {
            return reply.error(Errno::ENOENT);
        };
        let asked = Instant::now();
        let writing = if self.view.write {
            self.look_up_writing(&path, thread).await
        } else {
            None
        };
        let found = match writing {
            Some(writing) => writing,
            None => self.look_up(&path, asked).await,
        };
        match found {
            Ok(inode) => self.reply_entry(&inode, asked, reply),
            Err(SourceError::NotFound(_)) => match self.name_ttl(&path, asked) {
                Duration::ZERO => reply.error(Errno::ENOENT),
                // Number 0 tells the kernel that there is nothing, and that it may believe that.
                ttl => reply.entry(&ttl, &nothing(), Generation(0)),
            },
            Err(error) => reply.error(errno(&error)),
        }
    }

    /// Opens a finished version, and answers.
    pub(crate) async fn open(
        &self,
        inode: Arc<Inode>,
        flags: OpenFlags,
        caller: Caller,
        reply: ReplyOpen,
    ) {
        match self.open_version(inode, flags, caller, &reply).await {
            Ok((handle, _, Some(backing))) => backing.reply(reply, handle),
            Ok((handle, flags, None)) => reply.opened(FileHandle(handle), flags),
            Err(error) => reply.error(error),
        }
    }

    async fn open_version(
        &self,
        inode: Arc<Inode>,
        open: OpenFlags,
        caller: Caller,
        reply: &ReplyOpen,
    ) -> Result<(u64, FopenFlags, Option<Arc<Backing>>), Errno> {
        let current = self.current(inode).await;
        // To a path that the kernel had looked up before, ESTALE is to look again.
        let current = current.map_err(|error| match error {
            SourceError::NotFound(_) => Errno::ESTALE,
            error => errno(&error),
        })?;
        let inode = current.ok_or(Errno::ESTALE)?;
        let (version, _) = inode.file().ok_or(Errno::EISDIR)?;
        if !self.volume.can_number(&version) {
            return Err(Errno::EFBIG);
        }
        // The flag of the kernel by which it opens a program that is to run (__FMODE_EXEC).
        let execute = open.0 & 0x20 != 0;
        let access = Access {
            read: !execute,
            execute,
            write: false,
        };
        self.check_access(&inode.path, inode.version(), access, caller)
            .await?;
        let inode = self.inodes.open(inode.number).ok_or(Errno::ESTALE)?;
        let (version, settled) = inode.file().ok_or(Errno::EISDIR)?;
        let mut flags = FopenFlags::empty();
        flags.set(FopenFlags::FOPEN_KEEP_CACHE, settled);
        flags.set(FopenFlags::FOPEN_DIRECT_IO, self.view.direct_io || !settled);
        let handle = self.handle();
        let file = self.volume.open(version, settled);
        let mut backing = None;
        if self.view.passthrough {
            backing = self.open_modes.open(inode.number, reply, || file.lend());
            if backing.is_some() {
                self.volume.counters().passthrough_opens.add(1);
            }
        }
        self.files.write().insert(handle, Handle::Version(file));
        flags.set(FopenFlags::FOPEN_NOFLUSH, true);
        Ok((handle, flags, backing))
    }

    pub(crate) async fn list(
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
pub(crate) enum Listed<'a> {
    Dots,
    /// The path, what the source says of it, and when it was asked.
    Entry(SourcePath, &'a Entry, Instant),
}

/// The attributes of no file.
pub(crate) fn nothing() -> FileAttr {
    let entry = Entry {
        kind: Kind::Special,
        bytes: 0,
        modified: SystemTime::UNIX_EPOCH,
        unix: None,
    };
    attributes(
        0,
        &entry,
        Owner {
            uid: 0,
            gid: 0,
            may_write: false,
        },
    )
}

impl ChangeListener for Shared {
    fn on_change(&self, path: &SourcePath) {
        drop(self.changes.begin(path));
        self.inodes.on_change(path);
        let Some((directory, name)) = path.split() else {
            return;
        };
        self.inodes.on_directory_change(&directory);
        if let Some(number) = self.inodes.directory(&directory) {
            let name = Told::Name(number, as_name(name).to_owned());
            if self.invalidations.try_send(name).is_err() {
                self.lost_invalidations.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// The name that the kernel is told.
pub(crate) fn as_name(name: &[u8]) -> &OsStr {
    std::os::unix::ffi::OsStrExt::from_bytes(name)
}

impl Shared {
    /// As whom the source is asked for `caller`. An error where that cannot be: then the caller
    /// may do what it is allowed to by what the kernel knows, and change nothing.
    fn acting(&self, caller: Caller) -> Result<Acting, Errno> {
        let own = self.view.owner;
        let is_own = (caller.uid, caller.gid) == (own.uid, own.gid);
        let user = if self.view.may_act && !is_own {
            Some(User {
                uid: caller.uid,
                gid: caller.gid,
                groups: caller.groups(),
            })
        } else if caller.uid == own.uid || caller.uid == 0 {
            None
        } else {
            return Err(Errno::EACCES);
        };
        Ok(Acting {
            user,
            umask: caller.umask,
        })
    }

    /// The source, to be changed for `caller`, if this mount may change it.
    pub(crate) fn writes_for(&self, caller: Caller) -> Result<Arc<dyn WritableSource>, Errno> {
        let writes = self.writes()?;
        if !self.view.has_owners() {
            return Ok(Arc::clone(writes));
        }
        let acting = writes.acting(self.acting(caller)?);
        Ok(acting.unwrap_or_else(|| Arc::clone(writes)))
    }

    /// Whether the source lets `caller` use what is at `path`.
    pub(crate) async fn check_access(
        &self,
        path: &SourcePath,
        version: Option<&Version>,
        access: Access,
        caller: Caller,
    ) -> Result<(), Errno> {
        if !self.view.has_owners() {
            return Ok(());
        }
        let acting = match self.acting(caller) {
            // This process reads what it may read, and the kernel decides who else may.
            Err(_) if !access.write => return Ok(()),
            acting => acting?,
        };
        if acting.user.is_none() {
            return Ok(());
        }
        let source = self.volume.source();
        let checked = source.check_access(path, version, access, &acting).await;
        checked.map_err(|error| errno(&error))
    }
}
