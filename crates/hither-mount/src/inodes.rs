//! What the kernel knows by number.
//!
//! A version of a file has a number of its own: a file that is rewritten gets another one at the
//! next lookup. So the pages that the kernel caches under a number are always of one version, they
//! need no invalidation, and a program that still has the old version open keeps it. What is being
//! written has a number of its own too.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hither_node::source::{Entry, FileVersion, Kind, SourcePath, Version};
use parking_lot::RwLock;
use rustc_hash::FxHashMap;

use crate::writing::Writing;
use crate::writings::{is_below, moved_path};

/// The number of the root.
pub(crate) const ROOT: u64 = 1;

/// See the module. Numbers are never used twice.
#[derive(Debug)]
pub(crate) struct Inodes {
    table: RwLock<Table>,
    next: AtomicU64,
}

#[derive(Debug, Default)]
struct Table {
    inodes: FxHashMap<u64, Known>,
    /// By path first: a directory's are next to each other.
    numbers: BTreeMap<Identity, u64>,
}

#[derive(Debug)]
struct Known {
    inode: Arc<Inode>,
    /// How often the kernel was told of it, less what it has forgotten.
    lookups: u64,
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
    /// Unsettled bytes may not be those of the same version once it is settled.
    File {
        version: Version,
        settled: bool,
    },
    Link(Vec<u8>),
    Special,
}

/// What the kernel was told of a number.
#[derive(Clone, Debug)]
pub(crate) struct Inode {
    pub(crate) number: u64,
    pub(crate) path: SourcePath,
    pub(crate) entry: Entry,
    /// When the source was asked. `None` if it must be asked before this is used.
    pub(crate) checked: Option<Instant>,
    /// It is open for writing: then this has what is current, and not `entry`, nor `path`, which
    /// is where it was looked up.
    pub(crate) writing: Option<Arc<Writing>>,
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
}

fn identity(path: &SourcePath, kind: &Kind) -> Identity {
    Identity {
        path: path.clone(),
        contents: match kind {
            Kind::File { version, settled } => Contents::File {
                version: version.clone(),
                settled: *settled,
            },
            Kind::Directory => Contents::Directory,
            Kind::Link(target) => Contents::Link(target.clone()),
            Kind::Special => Contents::Special,
        },
    }
}

impl Table {
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
        let below = below.take_while(|(identity, _)| is_below(&identity.path, path));
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
            next: AtomicU64::new(ROOT),
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
        let table = &mut *table;
        let number = *table
            .numbers
            .entry(identity)
            .or_insert_with(|| self.next.fetch_add(1, Ordering::Relaxed));
        let inode = Arc::new(Inode {
            number,
            path,
            entry,
            checked: Some(checked),
            writing: None,
        });
        let known = table.inodes.entry(number).or_insert_with(|| Known {
            inode: Arc::clone(&inode),
            lookups: 0,
        });
        known.inode = Arc::clone(&inode);
        known.lookups += 1;
        inode
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
        let known = table.inodes.get_mut(&number)?;
        let path = known.inode.path.clone();
        if identity(&path, &known.inode.entry.kind) != identity(&path, &entry.kind) {
            return None;
        }
        let inode = Arc::new(Inode {
            number,
            path,
            entry,
            checked: Some(checked),
            writing: None,
        });
        known.inode = Arc::clone(&inode);
        Some(inode)
    }

    /// A number that nothing has.
    pub(crate) fn new_number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// The inode of a file that is being written, and is `entry` so far; the kernel is told of it
    /// once more.
    pub(crate) fn look_up_writing(
        &self,
        path: &SourcePath,
        writing: &Arc<Writing>,
        entry: Entry,
    ) -> Arc<Inode> {
        let inode = Arc::new(Inode {
            number: writing.number,
            path: path.clone(),
            entry,
            checked: None,
            writing: Some(Arc::clone(writing)),
        });
        let mut table = self.table.write();
        let known = table.inodes.entry(writing.number).or_insert_with(|| Known {
            inode: Arc::clone(&inode),
            lookups: 0,
        });
        known.inode = Arc::clone(&inode);
        known.lookups += 1;
        inode
    }

    /// Somebody has changed what is at `path`, or below it: the source must be asked again.
    pub(crate) fn on_change(&self, path: &SourcePath) {
        let mut table = self.table.write();
        for (_, number) in table.below(path) {
            if let Some(known) = table.inodes.get_mut(&number) {
                known.inode = Arc::new(Inode {
                    checked: None,
                    ..Inode::clone(&known.inode)
                });
            }
        }
    }

    /// Somebody has added or removed a name in a directory.
    pub(crate) fn on_directory_change(&self, path: &SourcePath) {
        let Some(number) = self.directory(path) else {
            return;
        };
        if let Some(known) = self.table.write().inodes.get_mut(&number) {
            known.inode = Arc::new(Inode {
                checked: None,
                ..Inode::clone(&known.inode)
            });
        }
    }

    /// The attributes of a file were set, by which its version has changed at the source. Here it
    /// keeps the one whose pages the kernel has; the next open finds the other one.
    pub(crate) fn set_attributes(&self, number: u64, entry: Entry) -> Option<Arc<Inode>> {
        let mut table = self.table.write();
        let known = table.inodes.get_mut(&number)?;
        let before = &known.inode;
        let inode = Arc::new(Inode {
            entry: Entry {
                kind: before.entry.kind.clone(),
                bytes: before.entry.bytes,
                ..entry
            },
            checked: None,
            ..Inode::clone(before)
        });
        known.inode = Arc::clone(&inode);
        Some(inode)
    }

    /// What was at `from` and below is at `to` now.
    pub(crate) fn rename(&self, from: &SourcePath, to: &SourcePath) {
        let mut table = self.table.write();
        for (identity, number) in table.below(from) {
            table.numbers.remove(&identity);
            let path = moved_path(&identity.path, from, to);
            if let Some(known) = table.inodes.get_mut(&number) {
                known.inode = Arc::new(Inode {
                    path: path.clone(),
                    checked: None,
                    ..Inode::clone(&known.inode)
                });
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

    /// The kernel forgets `lookups` of those that it was told.
    pub(crate) fn forget(&self, number: u64, lookups: u64) {
        if number == ROOT {
            return;
        }
        let mut table = self.table.write();
        let Some(known) = table.inodes.get_mut(&number) else {
            return;
        };
        known.lookups = known.lookups.saturating_sub(lookups);
        if known.lookups == 0 {
            let identity = identity(&known.inode.path, &known.inode.entry.kind);
            table.inodes.remove(&number);
            // The identity may be another's since something was renamed.
            if table.numbers.get(&identity) == Some(&number) {
                table.numbers.remove(&identity);
            }
        }
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
        assert!(third > second);
        inodes.forget(ROOT, 10);
        assert_eq!(inodes.len(), 3);
    }
}
