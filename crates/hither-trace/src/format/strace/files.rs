//! The file of each descriptor, and the position of the next read in it, which a log does not show.
//!
//! A descriptor belongs to a table and points to an open file with a position. After `dup` and
//! `fork` two descriptors point to one open file and share its position. Threads share the table
//! itself.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;

use rustc_hash::FxHashMap;

/// An open file.
#[derive(Debug)]
pub(super) struct OpenFile {
    /// The path of `open`, appended to the folder that it is relative to, if that is known. Empty
    /// as long as no call has shown it.
    pub(super) path: OnceCell<Vec<u8>>,
    pub(super) position: Cell<u64>,
    /// Writes go to the end.
    pub(super) append: bool,
    /// The file was emptied when it was opened.
    pub(super) truncate: bool,
    /// Its number in the trace, after its first access.
    pub(super) object: Cell<Option<u32>>,
}

impl OpenFile {
    pub(super) fn new(path: Option<Vec<u8>>) -> OpenFile {
        OpenFile {
            path: path.map(OnceCell::from).unwrap_or_default(),
            position: Cell::new(0),
            append: false,
            truncate: false,
            object: Cell::new(None),
        }
    }

    /// The path, if it is known and may be that of a regular file. `-y` writes `pipe:[1]` and the
    /// like for files without a path.
    pub(super) fn regular_path(&self) -> Option<&Vec<u8>> {
        let path = self.path.get()?;
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
        let is_regular = !device && !nameless.iter().any(|begins| path.starts_with(begins));
        is_regular.then_some(path)
    }
}

/// The descriptors of a process, and its working folder.
#[derive(Clone, Debug, Default)]
pub(super) struct DescriptorTable {
    files: FxHashMap<u32, OpenDescriptor>,
    /// Empty if it is not known.
    folder: Vec<u8>,
}

#[derive(Clone, Debug)]
struct OpenDescriptor {
    file: Rc<OpenFile>,
    close_on_exec: bool,
}

/// A table that threads share.
pub(super) type SharedDescriptorTable = Rc<RefCell<DescriptorTable>>;

impl DescriptorTable {
    pub(super) fn get(&self, descriptor: u32) -> Option<Rc<OpenFile>> {
        self.files.get(&descriptor).map(|entry| entry.file.clone())
    }

    pub(super) fn put(&mut self, descriptor: u32, file: Rc<OpenFile>, close_on_exec: bool) {
        let entry = OpenDescriptor {
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

    /// Resolves a path relative to `folder`, or to the working folder.
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
