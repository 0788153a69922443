//! Which file a descriptor means, and where in it the next read begins: what the kernel knows and
//! the log does not say.
//!
//! A descriptor belongs to a table, and points to an open file with a position. `dup` and `fork`
//! make two descriptors point to one open file, whose position they share; threads share the table
//! itself.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use rustc_hash::FxHashMap;

/// A file that was opened.
#[derive(Debug)]
pub(super) struct OpenFile {
    /// As `open` had it, behind the folder that it is relative to where that is known.
    pub(super) path: Vec<u8>,
    pub(super) position: Cell<u64>,
    /// Writes go to the end.
    pub(super) append: bool,
    /// Its number in the trace, once it was asked for.
    pub(super) object: Cell<Option<u32>>,
}

impl OpenFile {
    pub(super) fn new(path: Vec<u8>, append: bool) -> OpenFile {
        OpenFile {
            path,
            position: Cell::new(0),
            append,
            object: Cell::new(None),
        }
    }

    /// Whether the path may be that of a regular file. `-y` writes `pipe:[1]` and the like for what
    /// has no path.
    pub(super) fn is_regular(&self) -> bool {
        let path = &self.path;
        let nameless = [
            b"pipe:".as_slice(),
            b"socket:",
            b"anon_inode:",
            b"TCP",
            b"UDP",
            b"UNIX",
            b"NETLINK",
        ];
        let device = path.starts_with(b"/dev/") && !path.starts_with(b"/dev/shm/");
        !device && !nameless.iter().any(|begins| path.starts_with(begins))
    }
}

/// The descriptors of a process, and the folder that its paths start from.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    files: FxHashMap<u32, Descriptor>,
    /// Empty where it is not known.
    folder: Vec<u8>,
}

#[derive(Clone, Debug)]
struct Descriptor {
    file: Rc<OpenFile>,
    close_on_exec: bool,
}

/// A table as threads share it.
pub(super) type SharedTable = Rc<RefCell<Table>>;

impl Table {
    pub(super) fn get(&self, descriptor: u32) -> Option<Rc<OpenFile>> {
        self.files.get(&descriptor).map(|entry| entry.file.clone())
    }

    pub(super) fn put(&mut self, descriptor: u32, file: Rc<OpenFile>, close_on_exec: bool) {
        let entry = Descriptor {
            file,
            close_on_exec,
        };
        self.files.insert(descriptor, entry);
    }

    pub(super) fn close(&mut self, descriptor: u32) {
        self.files.remove(&descriptor);
    }

    pub(super) fn close_range(&mut self, first: u64, last: u64) {
        self.files
            .retain(|&descriptor, _| !(first..=last).contains(&u64::from(descriptor)));
    }

    pub(super) fn exec(&mut self) {
        self.files.retain(|_, entry| !entry.close_on_exec);
    }

    pub(super) fn enter(&mut self, folder: Vec<u8>) {
        self.folder = folder;
    }

    /// A path seen from `folder`, or from the current one.
    pub(super) fn resolve(&self, folder: Option<&[u8]>, path: Vec<u8>) -> Vec<u8> {
        let folder = folder.unwrap_or(&self.folder);
        if path.starts_with(b"/") || folder.is_empty() {
            return path;
        }
        let slash: &[u8] = if folder.ends_with(b"/") { b"" } else { b"/" };
        let path = path.strip_prefix(b"./").unwrap_or(&path);
        [folder, slash, path].concat()
    }
}
