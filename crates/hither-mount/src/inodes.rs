//! What the kernel knows by number.
//!
//! A version of a file has a number of its own: a file that is rewritten gets another one at the
//! next lookup. So the pages that the kernel caches under a number are always of one version, they
//! need no invalidation, and a program that still has the old version open keeps it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use hither_node::source::{Entry, FileVersion, Kind, SourcePath, Version};
use parking_lot::RwLock;
use rustc_hash::FxHashMap;

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
    numbers: FxHashMap<Identity, u64>,
}

#[derive(Debug)]
struct Known {
    inode: Arc<Inode>,
    /// How often the kernel was told of it, less what it has forgotten.
    lookups: u64,
}

/// A path, and what makes it another inode.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Identity {
    path: SourcePath,
    contents: Contents,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Contents {
    /// Unsettled bytes may not be those of the same version once it is settled.
    File {
        version: Version,
        settled: bool,
    },
    Directory,
    Link(Vec<u8>),
    Special,
}

/// What the kernel was told of a number.
#[derive(Clone, Debug)]
pub(crate) struct Inode {
    pub(crate) number: u64,
    pub(crate) path: SourcePath,
    pub(crate) entry: Entry,
    /// When the source was asked.
    pub(crate) checked: Instant,
}

impl Inode {
    /// The path of `name` in this directory. `None` where no source can have such a name.
    pub(crate) fn child(&self, name: &OsStr) -> Option<SourcePath> {
        self.path.join(name.as_bytes())
    }

    /// The version of a file, and whether it is settled.
    pub(crate) fn file(&self) -> Option<(FileVersion, bool)> {
        let Kind::File { version, settled } = &self.entry.kind else {
            return None;
        };
        let file = FileVersion {
            path: self.path.clone(),
            version: version.clone(),
            bytes: self.entry.bytes,
        };
        Some((file, *settled))
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
            checked,
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
            checked,
        });
        known.inode = Arc::clone(&inode);
        Some(inode)
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
            table.numbers.remove(&identity);
        }
    }

    /// How many the kernel knows.
    pub(crate) fn len(&self) -> usize {
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
