//! Files that the kernel reads straight from the disk tier.
//!
//! The kernel reads all open handles of an inode through itself (FOPEN_PASSTHROUGH), by the same
//! backing file, or none: another open fails (fs/fuse/iomode.c). So who opens an inode that is open
//! gets what the others have. The kernel counts a handle out before it sends the release, and in
//! after the answer to the open; it is counted here from before that answer to that release, so
//! what is none here is none there.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fuser::{FileHandle, FopenFlags, ReplyOpen};
use hither_node::store::disk::lending::Lent;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

/// The open files of finished versions, by inode.
#[derive(Default)]
pub(crate) struct OpenModes {
    inodes: Mutex<FxHashMap<u64, Mode>>,
    has_warned: AtomicBool,
}

struct Mode {
    handles: u64,
    /// `None`: they are read through this process.
    backing: Option<Arc<Backing>>,
}

/// What the kernel reads an inode from.
pub(crate) struct Backing {
    id: fuser::BackingId,
    _file: Lent,
}

impl Backing {
    /// Answers an open. The kernel takes no flag about its own page cache here.
    pub(crate) fn reply(&self, reply: ReplyOpen, handle: u64) {
        reply.opened_passthrough(FileHandle(handle), FopenFlags::FOPEN_NOFLUSH, &self.id);
    }
}

impl OpenModes {
    /// Counts a handle of an inode in. If it is the first, `lend` may name a file to read it from.
    pub(crate) fn open(
        &self,
        inode: u64,
        reply: &ReplyOpen,
        lend: impl FnOnce() -> Option<Lent>,
    ) -> Option<Arc<Backing>> {
        let is_open = self.inodes.lock().contains_key(&inode);
        // Opens a file, which takes its time; another open may come first.
        let lent = if is_open { None } else { lend() };
        let mut inodes = self.inodes.lock();
        let mode = inodes.entry(inode).or_insert_with(|| Mode {
            handles: 0,
            backing: lent.and_then(|file| self.register(file, reply)),
        });
        mode.handles += 1;
        mode.backing.clone()
    }

    fn register(&self, file: Lent, reply: &ReplyOpen) -> Option<Arc<Backing>> {
        match reply.open_backing(&file) {
            Ok(id) => Some(Arc::new(Backing { id, _file: file })),
            Err(error) => {
                self.warn(&error);
                None
            }
        }
    }

    fn warn(&self, error: &io::Error) {
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "the kernel does not read from the disk cache by itself: {error} \
                 (it needs Linux 6.9, and a folder on a file system that is not stacked)"
            );
        }
    }

    /// Counts a handle out.
    pub(crate) fn release(&self, inode: u64) {
        let mut inodes = self.inodes.lock();
        if let Some(mode) = inodes.get_mut(&inode) {
            mode.handles -= 1;
            if mode.handles == 0 {
                inodes.remove(&inode);
            }
        }
    }
}
