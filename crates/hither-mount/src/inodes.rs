//! What the kernel knows by number.
//!
//! A version of a file has a number of its own: a file that is rewritten gets another one at the
//! next lookup. So the pages that the kernel caches under a number are always of one version, they
//! need no invalidation, and a program that still has the old version open keeps it. What is being
//! written has a number of its own too.
//!
//! What programs see as `st_ino` is that number, but for a file that programs on this mount have
//! changed: it keeps the `st_ino` that it had, as on any other file system. The kernel takes the
//! number of an inode that is looked up for its `st_ino`, and asks for the attributes of those that
//! have another one at each stat(2).

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hither_node::source::write::Hold;
use hither_node::source::{Entry, FileVersion, Kind, SourcePath, Version};
use parking_lot::RwLock;
use rustc_hash::FxHashMap;
use twox_hash::XxHash3_64;

use crate::writing::Writing;
use crate::writings::moved_path;

/// The number of the root.
pub(crate) const ROOT: u64 = 1;

/// See the module.
#[derive(Debug)]
pub(crate) struct Inodes {
    table: RwLock<Table>,
    /// The next number of a file that is being written.
    next: AtomicU64,
}

/// The bit that the numbers of all but the root and of what is being written have.
const HASHED: u64 = 1 << 62;

#[derive(Debug, Default)]
struct Table {
    inodes: FxHashMap<u64, Known>,
    /// By path first: a directory's are next to each other.
    numbers: BTreeMap<Identity, u64>,
    kept: Kept,
}

/// The `st_ino` of what programs on this mount have changed last, by the number that it would have
/// otherwise. The kernel may have forgotten those before and after the change.
#[derive(Debug, Default)]
struct Kept {
    shown: FxHashMap<u64, u64>,
    /// Oldest first.
    order: VecDeque<u64>,
}

/// So many are kept: 10 MiB of memory at most.
const KEPT_MAX: usize = 1 << 18;

impl Kept {
    fn insert(&mut self, number: u64, shown: u64) {
        if number == shown || self.shown.insert(number, shown).is_some() {
            return;
        }
        self.order.push_back(number);
        if self.order.len() > KEPT_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.shown.remove(&oldest);
        }
    }
}

#[derive(Debug)]
struct Known {
    inode: Arc<Inode>,
    /// How often the kernel was told of it, less what it has forgotten.
    lookups: u64,
    /// It was opened before its version was settled: the kernel's pages, by mmap(2), may be others
    /// than those of the settled version.
    read_unsettled: AtomicBool,
    /// How often it is open to be read.
    readers: AtomicU32,
}

/// A path, and what makes it another inode.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Identity {
    path: SourcePath,
    contents: Contents,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Contents {
    /// The first of all, by which those of a path are found.
    Directory,
    File(Version),
    Link(Vec<u8>),
    Special,
    /// A file that is being written, or was read before it was settled and is another inode since:
    /// by its number.
    Numbered(u64),
}

/// What the kernel was told of a number.
#[derive(Clone, Debug)]
pub(crate) struct Inode {
    pub(crate) number: u64,
    /// `st_ino`.
    pub(crate) shown: u64,
    pub(crate) path: SourcePath,
    pub(crate) entry: Entry,
    /// The version that a change of name or attributes on this mount has made of that in `entry`.
    became: Option<Version>,
    /// Another inode has taken its place, of the same version once it is settled.
    is_past: bool,
    /// When the source was asked. `None` if it must be asked before this is used.
    pub(crate) checked: Option<Instant>,
    /// It is open for writing: then this has what is current, and not `entry`, nor `path`, which
    /// is where it was looked up.
    pub(crate) writing: Option<Arc<Writing>>,
    /// What its readers keep when its name is gone.
    pub(crate) held: Option<Arc<dyn Hold>>,
}

impl Inode {
    /// The path of `name` in this directory. `None` where no source can have such a name.
    pub(crate) fn child(&self, name: &OsStr) -> Option<SourcePath> {
        self.path.join(name.as_bytes())
    }

    /// Whether the source was asked no longer than `age` ago.
    pub(crate) fn is_newer_than(&self, age: Duration) -> bool {
        self.checked.is_some_and(|checked| checked.elapsed() <= age)
    }

    /// The version of a file, and whether it is settled.
    pub(crate) fn file(&self) -> Option<(FileVersion, bool)> {
        self.entry.file(&self.path)
    }

    /// What a reader of the finished version in `entry` reads by now.
    pub(crate) fn now(&self) -> Option<FileVersion> {
        let version = self.version().filter(|_| self.writing.is_none());
        Some(FileVersion {
            path: self.path.clone(),
            version: version?.clone(),
            bytes: self.entry.bytes,
        })
    }

    /// The version that a file has at the source by what is known here, if it is a finished one.
    pub(crate) fn version(&self) -> Option<&Version> {
        self.became.as_ref().or(self.entry.version())
    }

    /// It is `entry` at the source by now, of the same contents. Here it keeps the version whose
    /// pages the kernel has; the next open finds the other one.
    fn become_also(&mut self, entry: Entry) {
        self.became = entry.version().cloned();
        self.entry = Entry {
            kind: self.entry.kind.clone(),
            bytes: self.entry.bytes,
            ..entry
        };
        self.checked = None;
    }

    fn identity(&self) -> Identity {
        if self.writing.is_none() && !self.is_past {
            return identity(&self.path, &self.entry.kind);
        }
        Identity {
            path: self.path.clone(),
            contents: Contents::Numbered(self.number),
        }
    }
}

fn identity(path: &SourcePath, kind: &Kind) -> Identity {
    Identity {
        path: path.clone(),
        contents: match kind {
            Kind::File { version, .. } => Contents::File(version.clone()),
            Kind::Directory => Contents::Directory,
            Kind::Link(target) => Contents::Link(target.clone()),
            Kind::Special => Contents::Special,
        },
    }
}

fn is_settled(entry: &Entry) -> bool {
    !matches!(entry.kind, Kind::File { settled: false, .. })
}

/// The number that something has by default: the same whenever it is looked up.
fn hashed(identity: &Identity) -> u64 {
    let (kind, contents) = match &identity.contents {
        Contents::Directory if identity.path.is_root() => return ROOT,
        Contents::Directory => (0, &[][..]),
        Contents::File(version) => (1, version.as_bytes()),
        Contents::Link(target) => (2, &target[..]),
        Contents::Special => (3, &[][..]),
        Contents::Numbered(number) => return *number,
    };
    // No path has a zero in it.
    let all = [identity.path.as_bytes(), &[0, kind], contents].concat();
    XxHash3_64::oneshot(&all) >> 2 | HASHED
}

impl Table {
    /// Whether what is known as `number` cannot be what the source says now, of the same version.
    fn is_other(&self, number: u64, now: &Entry) -> bool {
        let before = &self.inodes[&number];
        before.read_unsettled.load(Ordering::Relaxed) && is_settled(now)
    }

    /// A number for something that has none.
    fn vacant(&self, identity: &Identity) -> u64 {
        let mut number = hashed(identity);
        while self.inodes.contains_key(&number) {
            number += 1;
        }
        number
    }

    /// The `st_ino` that something has already.
    fn shown(&self, identity: &Identity) -> Option<u64> {
        match self.numbers.get(identity) {
            Some(number) => Some(self.inodes[number].inode.shown),
            None => self.kept.shown.get(&hashed(identity)).copied(),
        }
    }

    /// The `st_ino` of the same file at the source, of which `entry` is another version.
    fn shown_as(&self, path: &SourcePath, entry: &Entry) -> Option<u64> {
        entry.version()?;
        let file = |entry: &Entry| entry.unix.map(|unix| (unix.device, unix.inode));
        let file_now = file(entry)?;
        let inodes = self.at(path).into_iter();
        let mut inodes = inodes.map(|number| &self.inodes[&number].inode);
        let is_it = |it: &&Arc<Inode>| {
            it.version().is_some() && it.writing.is_none() && file(&it.entry) == Some(file_now)
        };
        inodes.find(is_it).map(|it| it.shown)
    }

    /// What is `identity` at the source by now has the `st_ino` that it had before.
    fn keep(&mut self, identity: &Identity, shown: u64) {
        self.kept.insert(hashed(identity), shown);
        if let Some(number) = self.numbers.get(identity).copied() {
            self.update(number, |inode| inode.shown = shown);
        }
    }

    /// The numbers of what is at `path`.
    fn at(&self, path: &SourcePath) -> Vec<u64> {
        let at = self.numbers.range(identity(path, &Kind::Directory)..);
        let at = at.take_while(|(identity, _)| identity.path == *path);
        at.map(|(_, number)| *number).collect()
    }

    /// The kernel is told of `inode` once more.
    fn tell(&mut self, inode: Inode) -> Arc<Inode> {
        let inode = Arc::new(inode);
        let known = self.inodes.entry(inode.number).or_insert_with(|| Known {
            inode: Arc::clone(&inode),
            lookups: 0,
            read_unsettled: AtomicBool::new(false),
            readers: AtomicU32::new(0),
        });
        known.inode = Arc::clone(&inode);
        known.lookups += 1;
        inode
    }

    /// Changes what is known of an inode, if the kernel may know it.
    fn update(&mut self, number: u64, change: impl FnOnce(&mut Inode)) -> Option<Arc<Inode>> {
        let known = self.inodes.get_mut(&number)?;
        change(Arc::make_mut(&mut known.inode));
        Some(Arc::clone(&known.inode))
    }

    /// What is at `path` and below.
    fn below(&self, path: &SourcePath) -> Vec<(Identity, u64)> {
        // Between a path and those below it are others, such as `a-b` between `a` and `a/b`.
        let start =
            |bytes: &[u8]| SourcePath::new(bytes).map(|path| identity(&path, &Kind::Directory));
        let at = self.numbers.range(identity(path, &Kind::Directory)..);
        let at = at.take_while(|(identity, _)| identity.path == *path);
        // Of all names below it, the first.
        let first = [path.as_bytes(), b"/\x01"].concat();
        let first = start(if path.is_root() { b"\x01" } else { &first });
        let below = first.map(|first| self.numbers.range(first..));
        let below = below.into_iter().flatten();
        let below = below.take_while(|(identity, _)| identity.path.is_at_or_below(path));
        at.chain(below)
            .map(|(it, number)| (it.clone(), *number))
            .collect()
    }
}

impl Inodes {
    /// The root alone.
    pub(crate) fn new(root: Entry) -> Inodes {
        let inodes = Inodes {
            table: RwLock::default(),
            next: AtomicU64::new(ROOT + 1),
        };
        inodes.look_up(SourcePath::default(), root, Instant::now());
        inodes
    }

    /// The inode of number `number`, if the kernel may know it.
    pub(crate) fn get(&self, number: u64) -> Option<Arc<Inode>> {
        let table = self.table.read();
        table
            .inodes
            .get(&number)
            .map(|known| Arc::clone(&known.inode))
    }

    /// The inode of what the source says of `path`; the kernel is told of it once more.
    pub(crate) fn look_up(&self, path: SourcePath, entry: Entry, checked: Instant) -> Arc<Inode> {
        let identity = identity(&path, &entry.kind);
        let mut table = self.table.write();
        let known = table.numbers.get(&identity).copied();
        let (number, shown) = match known.filter(|it| !table.is_other(*it, &entry)) {
            Some(number) => {
                let inode = &table.inodes[&number].inode;
                (number, inode.shown)
            }
            None => {
                let number = table.vacant(&identity);
                let shown = table.shown(&identity);
                let shown = shown.or_else(|| table.shown_as(&path, &entry));
                let shown = shown.unwrap_or(number);
                table.kept.insert(hashed(&identity), shown);
                if let Some(past) = table.numbers.insert(identity, number)
                    && let Some(past) = table.update(past, |inode| inode.is_past = true)
                {
                    table.numbers.insert(past.identity(), past.number);
                }
                (number, shown)
            }
        };
        table.tell(Inode {
            number,
            shown,
            path,
            entry,
            became: None,
            is_past: false,
            checked: Some(checked),
            writing: None,
            held: None,
        })
    }

    /// The source still says the same of an inode that the kernel knows, or something else that
    /// leaves it the same inode. `None` if it is another one by now.
    pub(crate) fn refresh(
        &self,
        number: u64,
        entry: Entry,
        checked: Instant,
    ) -> Option<Arc<Inode>> {
        let mut table = self.table.write();
        let before = &table.inodes.get(&number)?.inode;
        let is_same = before.identity() == identity(&before.path, &entry.kind);
        if !is_same || table.is_other(number, &entry) {
            return None;
        }
        table.update(number, |inode| {
            inode.entry = entry;
            inode.checked = Some(checked);
        })
    }

    /// The source still has the version that is known.
    pub(crate) fn on_same(&self, number: u64, checked: Instant) -> Option<Arc<Inode>> {
        let mut table = self.table.write();
        table.update(number, |inode| inode.checked = Some(checked))
    }

    /// A file is `entry` at the source by now, and is read from there on. Here it stays the inode
    /// that it is to those who have it open; the next look-up finds another one.
    pub(crate) fn on_live(
        &self,
        number: u64,
        entry: Entry,
        checked: Instant,
    ) -> Option<Arc<Inode>> {
        let mut table = self.table.write();
        table
            .inodes
            .get(&number)?
            .read_unsettled
            .store(true, Ordering::Relaxed);
        table.update(number, |inode| {
            inode.became = entry.version().cloned();
            let mut kind = inode.entry.kind.clone();
            if let Kind::File { settled, .. } = &mut kind {
                *settled = false;
            }
            inode.entry = Entry { kind, ..entry };
            inode.checked = Some(checked);
        })
    }

    /// A file is opened to be read, as what it is known as now.
    pub(crate) fn open(&self, number: u64) -> Option<Arc<Inode>> {
        // Who changes what is known has the lock alone.
        let table = self.table.read();
        let known = table.inodes.get(&number)?;
        known.readers.fetch_add(1, Ordering::Relaxed);
        if !is_settled(&known.inode.entry) {
            known.read_unsettled.store(true, Ordering::Relaxed);
        }
        Some(Arc::clone(&known.inode))
    }

    /// A reader has closed it.
    pub(crate) fn close(&self, number: u64) {
        if let Some(known) = self.table.read().inodes.get(&number) {
            known.readers.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The finished versions of the file at `path` that are open to be read.
    pub(crate) fn read_at(&self, path: &SourcePath) -> Vec<FileVersion> {
        let table = self.table.read();
        let mut read = Vec::new();
        for number in table.at(path) {
            let known = &table.inodes[&number];
            if known.readers.load(Ordering::Relaxed) > 0
                && let Some(now) = known.inode.now()
                && !read.contains(&now)
            {
                read.push(now);
            }
        }
        read
    }

    /// A number for a file that is to be written.
    pub(crate) fn new_number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// The `st_ino` of what the source says of `path`.
    pub(crate) fn shown(&self, path: &SourcePath, entry: &Entry) -> u64 {
        let identity = identity(path, &entry.kind);
        let shown = self.table.read().shown(&identity);
        shown.unwrap_or_else(|| hashed(&identity))
    }

    /// The inode of a file that is being written, and is `entry` so far; the kernel is told of it
    /// once more.
    pub(crate) fn look_up_writing(
        &self,
        path: &SourcePath,
        writing: &Arc<Writing>,
        entry: Entry,
    ) -> Arc<Inode> {
        let inode = Inode {
            number: writing.number,
            shown: writing.shown_number,
            path: path.clone(),
            entry,
            became: None,
            is_past: false,
            checked: None,
            writing: Some(Arc::clone(writing)),
            held: None,
        };
        let mut table = self.table.write();
        if let Some(before) = table.inodes.get(&writing.number) {
            let before = before.inode.identity();
            table.numbers.remove(&before);
        }
        table.numbers.insert(inode.identity(), writing.number);
        table.tell(inode)
    }

    /// Somebody has changed what is at `path`, or below it: the source must be asked again.
    pub(crate) fn on_change(&self, path: &SourcePath) {
        let mut table = self.table.write();
        for (_, number) in table.below(path) {
            table.update(number, |inode| inode.checked = None);
        }
    }

    /// Somebody has added or removed a name in a directory.
    pub(crate) fn on_directory_change(&self, path: &SourcePath) {
        let Some(number) = self.directory(path) else {
            return;
        };
        let mut table = self.table.write();
        table.update(number, |inode| inode.checked = None);
    }

    /// The version `was` of the file at `path` has lost its name, is `entry` by now, and is read on
    /// by what is `held`.
    pub(crate) fn on_unname(
        &self,
        path: &SourcePath,
        was: &Version,
        entry: &Entry,
        held: &Arc<dyn Hold>,
    ) {
        let mut table = self.table.write();
        for number in table.at(path) {
            table.update(number, |inode| {
                if inode.writing.is_none() && inode.version() == Some(was) {
                    inode.become_also(entry.clone());
                    inode.held = Some(Arc::clone(held));
                }
            });
        }
    }

    /// What programs here have made of a file is `entry` at the source.
    pub(crate) fn keep(&self, path: &SourcePath, entry: &Entry, shown: u64) {
        self.table.write().keep(&identity(path, &entry.kind), shown);
    }

    /// A change of its name or attributes has made `entry` of the file at `path`, if it was a
    /// version that `was` it.
    pub(crate) fn on_become(
        &self,
        path: &SourcePath,
        entry: &Entry,
        was: impl Fn(&Version) -> bool,
    ) {
        let mut table = self.table.write();
        for number in table.at(path) {
            let inode = Arc::clone(&table.inodes[&number].inode);
            let was_it = match &inode.writing {
                Some(writing) => writing.version().is_some_and(|version| was(&version)),
                None => inode.version().is_some_and(&was),
            };
            if was_it {
                if inode.writing.is_none() {
                    table.update(number, |inode| inode.become_also(entry.clone()));
                }
                table.keep(&identity(path, &entry.kind), inode.shown);
            }
        }
    }

    /// What was at `from` and below is at `to` now.
    pub(crate) fn rename(&self, from: &SourcePath, to: &SourcePath) {
        let mut table = self.table.write();
        for (identity, number) in table.below(from) {
            table.numbers.remove(&identity);
            let path = moved_path(&identity.path, from, to);
            let moved = table.update(number, |inode| {
                inode.path = path.clone();
                inode.checked = None;
            });
            if moved.is_some() {
                let contents = identity.contents;
                table.numbers.insert(Identity { path, contents }, number);
            }
        }
    }

    /// The directory at `path` was removed. One that is made there next is another one, also to a
    /// program that still has this one: the kernel takes no new names in it.
    pub(crate) fn remove_directory(&self, path: &SourcePath) {
        let directory = identity(path, &Kind::Directory);
        self.table.write().numbers.remove(&directory);
    }

    /// The number of the directory at `path`, if the kernel may know it.
    pub(crate) fn directory(&self, path: &SourcePath) -> Option<u64> {
        let directory = identity(path, &Kind::Directory);
        self.table.read().numbers.get(&directory).copied()
    }

    /// The kernel forgets `lookups` of those that it was told. The inode, if it is forgotten.
    pub(crate) fn forget(&self, number: u64, lookups: u64) -> Option<Arc<Inode>> {
        if number == ROOT {
            return None;
        }
        let mut table = self.table.write();
        let known = table.inodes.get_mut(&number)?;
        known.lookups = known.lookups.saturating_sub(lookups);
        if known.lookups > 0 {
            return None;
        }
        let forgotten = table.inodes.remove(&number)?.inode;
        // The identity may be another's since something was renamed.
        let identity = forgotten.identity();
        if table.numbers.get(&identity) == Some(&number) {
            table.numbers.remove(&identity);
        }
        Some(forgotten)
    }

    /// How many the kernel knows.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.table.read().inodes.len()
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn entry(kind: Kind) -> Entry {
        Entry {
            kind,
            bytes: 0,
            modified: SystemTime::UNIX_EPOCH,
            unix: None,
        }
    }

    fn file(version: &str) -> Entry {
        entry(Kind::File {
            version: Version::new(version.as_bytes()),
            settled: true,
        })
    }

    fn path(path: &str) -> SourcePath {
        SourcePath::new(path.as_bytes()).unwrap()
    }

    #[test]
    fn each_version_has_its_number_until_it_is_forgotten() {
        let inodes = Inodes::new(entry(Kind::Directory));
        let now = Instant::now();
        let first = inodes.look_up(path("a"), file("1"), now).number;
        assert_eq!(inodes.look_up(path("a"), file("1"), now).number, first);
        let second = inodes.look_up(path("a"), file("2"), now).number;
        assert_ne!(second, first);
        assert!(inodes.refresh(first, file("2"), now).is_none());
        assert!(inodes.refresh(second, file("2"), now).is_some());
        inodes.forget(first, 1);
        assert!(inodes.get(first).is_some());
        inodes.forget(first, 1);
        assert!(inodes.get(first).is_none());
        let third = inodes.look_up(path("a"), file("1"), now).number;
        assert_eq!(third, first);
        inodes.forget(ROOT, 10);
        assert_eq!(inodes.len(), 3);
    }

    #[test]
    fn what_was_read_before_it_settled_is_another_inode_then() {
        let inodes = Inodes::new(entry(Kind::Directory));
        let unsettled = entry(Kind::File {
            version: Version::new(b"1"),
            settled: false,
        });
        let now = Instant::now();
        // Not read: its pages can only be of the settled version.
        let early = inodes.look_up(path("a"), unsettled.clone(), now);
        let late = inodes.look_up(path("a"), file("1"), now);
        assert_eq!(late.number, early.number);
        let early = inodes.look_up(path("b"), unsettled.clone(), now);
        assert!(inodes.open(early.number).is_some());
        let same = inodes.look_up(path("b"), unsettled, now);
        assert_eq!(same.number, early.number);
        assert!(inodes.refresh(early.number, file("1"), now).is_none());
        let late = inodes.look_up(path("b"), file("1"), now);
        assert_ne!(late.number, early.number);
        assert_eq!(late.shown, early.shown);
        // Both move, and both become another version.
        inodes.rename(&path("b"), &path("c"));
        inodes.on_become(&path("c"), &file("2"), |version| version.as_bytes() == b"1");
        for inode in [&early, &late] {
            let inode = inodes.get(inode.number).unwrap();
            assert_eq!(inode.path, path("c"));
            assert_eq!(inode.version(), Some(&Version::new(b"2")));
        }
        inodes.rename(&path("c"), &path("b"));
        inodes.forget(early.number, 2);
        let again = inodes.look_up(path("b"), file("1"), now);
        assert_eq!((again.number, again.shown), (late.number, late.shown));
    }

    #[test]
    fn what_is_changed_here_keeps_its_number_when_the_kernel_has_forgotten_it() {
        let inodes = Inodes::new(entry(Kind::Directory));
        let now = Instant::now();
        let before = inodes.look_up(path("a"), file("1"), now);
        inodes.keep(&path("a"), &file("2"), before.shown);
        inodes.forget(before.number, 1);
        for _ in 0..2 {
            let after = inodes.look_up(path("a"), file("2"), now);
            assert_ne!(after.number, before.number);
            assert_eq!(after.shown, before.shown);
            assert_eq!(inodes.shown(&path("a"), &file("2")), before.shown);
            inodes.forget(after.number, 1);
        }
        let other = inodes.look_up(path("a"), file("3"), now);
        assert_eq!(other.shown, other.number);
    }

    #[test]
    fn of_the_numbers_that_are_kept_the_oldest_go() {
        let mut kept = Kept::default();
        for number in 0..KEPT_MAX as u64 + 10 {
            kept.insert(number, number + 1);
            kept.insert(number, number + 2);
            kept.insert(number, number);
        }
        assert_eq!(kept.shown.len(), KEPT_MAX);
        assert_eq!(kept.order.len(), KEPT_MAX);
        assert_eq!(kept.shown.get(&9), None);
        assert_eq!(kept.shown.get(&10), Some(&12));
    }
}
