//! Blocks that are waited for: of what files, by whom, and how they are handed over. The protocol
//! keeps files and waiters with the blocks on their way, as tokens.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::mpsc::UnboundedSender;

use crate::key::ChunkKey;
use crate::protocol::{MemberId, Token, Urgency, Waiters};
use crate::source::SourceError;

/// Where a block came from that a reader waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// This node's memory: it arrived while the reader asked.
    Memory,
    /// This node's disk.
    Disk,
    /// Another member's memory, or its disk.
    Member(MemberId),
    /// The source.
    Source,
}

/// A version of a file, as far as the node needs to know it to get its blocks.
pub(crate) trait WantedFile: Send + Sync {
    /// Length of block `index`.
    fn block_len(&self, index: u32) -> u64;

    /// Starts to read successive blocks of one chunk from the source. Each of them lands in the
    /// node, or is sent to the `keeper`, or the node is told why not.
    fn fetch(self: Arc<Self>, blocks: Range<u32>, urgency: Urgency, keeper: Option<MemberId>);

    /// Blocks of the prefetch were given up.
    fn on_dropped_prefetches(&self, blocks: u64);

    /// A block of it came from another node.
    fn on_peer_block(&self);

    /// Whether the source says that block `index` has other bytes than these, which came from
    /// another node.
    fn contradicts(&self, index: u32, bytes: &[u8]) -> bool;

    /// Readers that waited got so many bytes from there.
    fn on_served(&self, from: Origin, bytes: u64);

    /// A block of it, of so many bytes, was read from the local disk.
    fn on_disk_block(&self, bytes: u64);

    /// A block of it was read past the store: no memory was free for it.
    fn on_overflow(&self);
}

/// The file that the protocol has a token of.
pub(crate) fn file_of(token: &Token) -> &Arc<dyn WantedFile> {
    token.get()
}

/// What a read returned: pieces, one after the other. They are the cache's own memory.
#[derive(Clone, Debug, Default)]
pub struct Data(pub(crate) Vec<Bytes>);

impl Data {
    /// The pieces.
    pub fn pieces(&self) -> &[Bytes] {
        &self.0
    }
}

/// What is called with the result of a read.
pub(crate) type Done = Box<dyn FnOnce(Result<Data, SourceError>) + Send>;

/// A read that waits for blocks.
pub(crate) struct PendingRead {
    /// The first block that it reads.
    first: u32,
    file: Arc<dyn WantedFile>,
    parts: Mutex<Parts>,
}

pub(crate) struct Parts {
    /// One a block: the part of it that was asked for, and the bytes once they are here.
    pub(crate) blocks: Vec<(Range<usize>, Option<Bytes>)>,
    pub(crate) missing: usize,
    /// `None` once the read has ended.
    pub(crate) done: Option<Done>,
}

impl PendingRead {
    /// A read of `file` with parts missing, the first of which is of block `first`.
    pub(crate) fn new(first: u32, file: Arc<dyn WantedFile>, parts: Parts) -> Arc<PendingRead> {
        Arc::new(PendingRead {
            first,
            file,
            parts: Mutex::new(parts),
        })
    }

    /// Gives the read block `index`, which came `from` there, or says why there is none.
    pub(crate) fn supply(&self, index: u32, block: Result<Bytes, SourceError>, from: Origin) {
        let mut guard = self.parts.lock();
        let parts = &mut *guard;
        let result = match block {
            Err(error) => Err(error),
            Ok(block) => {
                let (range, bytes) = &mut parts.blocks[(index - self.first) as usize];
                debug_assert!(bytes.is_none(), "a block was supplied twice");
                *bytes = Some(block.slice(range.clone()));
                self.file.on_served(from, range.len() as u64);
                parts.missing -= 1;
                if parts.missing > 0 {
                    return;
                }
                let blocks = std::mem::take(&mut parts.blocks);
                Ok(Data(blocks.into_iter().filter_map(|it| it.1).collect()))
            }
        };
        let done = parts.done.take();
        drop(guard);
        if let Some(done) = done {
            done(result);
        }
    }
}

/// Who waits for blocks.
pub(crate) enum Waiter {
    Read(Arc<PendingRead>),
    Watcher(Watcher),
}

/// Who watches blocks and reads none, so they are no more urgent for it: hears of the source's
/// errors, and finds the channel closed once none of them is on its way, whatever has become of
/// them.
pub(crate) type Watcher = UnboundedSender<SourceError>;

/// What has come of a block that was on its way.
#[derive(Clone, Copy)]
pub(crate) enum Landing<'a> {
    /// Its bytes came from there.
    Block(&'a Bytes, Origin),
    /// The source did not give it, or those after it.
    Failed(&'a SourceError),
    /// Neither.
    Nothing,
}

/// Hands what came of a block to those who wait for it. Returns whether there was a reader.
pub(crate) fn hand_over(chunk: ChunkKey, waiters: &Waiters, landing: Landing<'_>) -> bool {
    let mut has_readers = false;
    for (waiter, mask) in waiters.iter() {
        match (waiter.get::<Waiter>(), landing) {
            (Waiter::Read(read), Landing::Block(data, from)) => {
                has_readers = true;
                for key in chunk.blocks(mask) {
                    read.supply(key.index, Ok(data.clone()), from);
                }
            }
            (Waiter::Read(read), Landing::Failed(error)) => {
                has_readers = true;
                for key in chunk.blocks(mask) {
                    read.supply(key.index, Err(error.clone()), Origin::Source);
                }
            }
            // It may have gone.
            (Waiter::Watcher(watcher), Landing::Failed(error)) => {
                let _ = watcher.send(error.clone());
            }
            (Waiter::Watcher(_), Landing::Block(..)) => {}
            (_, Landing::Nothing) => debug_assert!(false, "nothing has come of a block"),
        }
    }
    has_readers
}
