//! Reads of files that are open, and what they read from.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bytes::Bytes;
use fuser::{Errno, ReplyData};
use hither_node::source::write::Hold;
use hither_node::source::{SourceError, SourcePath};
use hither_node::volume::OpenFile;

use crate::attributes::errno;
use crate::shared::{Handle, Shared};

/// A read that is not answered yet.
pub(crate) struct PendingRead {
    pub(crate) inode: u64,
    pub(crate) handle: u64,
    pub(crate) offset: u64,
    pub(crate) bytes: usize,
    pub(crate) reply: ReplyData,
    pub(crate) _unanswered: Unanswered,
}

/// A request that is not answered yet, while this lives.
pub(crate) struct Unanswered(Arc<Shared>);

impl Unanswered {
    pub(crate) fn new(shared: &Arc<Shared>) -> Unanswered {
        shared.unanswered.fetch_add(1, Ordering::Relaxed);
        Unanswered(Arc::clone(shared))
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        self.0.unanswered.fetch_sub(1, Ordering::Relaxed);
    }
}

thread_local! {
    /// Where a read of several blocks is put together: the kernel takes one piece.
    static ONE_PIECE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

pub(crate) fn reply_data(reply: ReplyData, pieces: &[Bytes]) {
    match pieces {
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

impl Shared {
    /// Answers a read of an open file.
    pub(crate) fn read(self: &Arc<Self>, file: Arc<OpenFile>, read: PendingRead) {
        let (shared, same) = (Arc::clone(self), Arc::clone(&file));
        file.read(read.offset, read.bytes, move |result| match result {
            Ok(data) => reply_data(read.reply, data.pieces()),
            Err(SourceError::NotFound(_) | SourceError::Changed(_)) => {
                let runtime = shared.volume.node().runtime().clone();
                runtime.spawn(async move { shared.read_again(&same, read).await });
            }
            Err(error) => read.reply.error(errno(&error)),
        });
    }

    /// Runs `change`, upon which the file at `path` loses its name, under the lock of its version.
    /// Who reads it goes on.
    pub(crate) async fn keeping_readers<T, E>(
        &self,
        path: &SourcePath,
        change: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let mut kept = Vec::new();
        if let Some(writes) = self.volume.writes() {
            for file in self.inodes.read_at(path) {
                // Of another version than that of the source there is nothing to be kept.
                if let Ok(held) = writes.hold(&file).await {
                    kept.push((file.version, Arc::<dyn Hold>::from(held)));
                }
            }
        }
        let changed = change.await?;
        for (version, held) in kept {
            // One that was written into has other contents by now: its readers may find them out.
            if let Ok(entry) = held.unname().await
                && let (Some(writes), Some(now)) = (self.volume.writes(), entry.version())
                && writes.same_contents(&version, now)
            {
                self.inodes.on_unname(path, &version, &entry, &held);
            }
        }
        Ok(changed)
    }

    /// `before` is no longer there: reads from what a change of name or attributes on this mount
    /// has made of it, if that is why.
    async fn read_again(self: &Arc<Self>, before: &Arc<OpenFile>, read: PendingRead) {
        // That change may not have ended here.
        drop(self.names.read().await);
        if let Some(inode) = self.inodes.get(read.inode) {
            drop(self.version_locks.lock(&inode.path).await);
        }
        let mut now = self.follow(before, &read);
        if now.is_none()
            && let Some(inode) = self.inodes.get(read.inode)
        {
            let asked = Instant::now();
            if let Ok(entry) = self.volume.source().stat(&inode.path).await
                && self.read_live(&inode, entry, asked).await.is_some()
            {
                now = self.follow(before, &read);
            }
        }
        match now {
            Some(now) => self.read(now, read),
            // Of this version there is no more to be had.
            None => read.reply.error(Errno::ESTALE),
        }
    }

    /// The open file that is read now, if it is another one than `before`.
    fn follow(&self, before: &Arc<OpenFile>, read: &PendingRead) -> Option<Arc<OpenFile>> {
        let now = self.inodes.get(read.inode)?.now()?;
        let mut files = self.files.write();
        let Some(Handle::Version(file)) = files.get_mut(&read.handle) else {
            return None;
        };
        if Arc::ptr_eq(file, before) {
            if *before.version() == now {
                return None;
            }
            // Its time of change is that of a moment ago.
            *file = self.volume.open(now, false);
        }
        Some(Arc::clone(file))
    }
}
