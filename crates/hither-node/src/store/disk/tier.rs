//! The disk tier as the node uses it. See [`store::disk`](super).

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread::{self, JoinHandle};

use bytes::Bytes;
use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use rustix::io::Errno;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{Semaphore, SemaphorePermit};
use twox_hash::XxHash3_64;

use super::folder::Folder;
use super::index::{DiskIndex, Located};
use super::journal::{Journal, Record};
use super::settings::{DiskCounts, DiskError, DiskSettings, DiskUsage, Listener};
use super::shared::{Counters, Queue, Shared};
use super::writer::Writer;
use crate::key::{BlockKey, CHUNK_BLOCKS, ChunkKey, FileKey};
use crate::protocol::Blocks;

/// Reads at the same time, at most: enough for any disk, and few of the runtime's threads.
const READS_MAX: usize = 32;

/// Files whose bad blocks are reported, until this many are forgotten again.
const REPORTED_MAX: usize = 1024;

/// See the module.
pub struct DiskTier {
    pub(super) shared: Arc<Shared>,
    reads: Semaphore,
    /// Room for blocks that wait to be written, for who cannot have them left out.
    room: Semaphore,
    writes_max: u32,
    /// What starts to write, until it does.
    opened: Mutex<Option<Opened>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Files with bad blocks that were reported.
    reported: Mutex<FxHashSet<FileKey>>,
}

/// Keeps the blocks of a file on the disk while it lives: none is evicted, and the file gets no
/// holes. A disk that fails may still lose it, by removing the whole file.
#[must_use]
pub struct Hold {
    shared: Arc<Shared>,
    file: FileKey,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.shared.index.lock().release(self.file);
    }
}

struct Opened {
    journal: Journal,
    is_clean: bool,
    bytes_max: u64,
}

impl DiskTier {
    /// Opens the tier, or makes it, for blocks of `block_bytes`. At most `writes_max` blocks wait
    /// to be written. Nothing is written before [`start`](Self::start).
    ///
    /// # Errors
    /// See [`DiskError`].
    pub fn open(
        settings: &DiskSettings,
        block_bytes: u32,
        writes_max: usize,
    ) -> Result<DiskTier, DiskError> {
        let bytes_max = settings.bytes_max;
        let least = 2 * u64::from(CHUNK_BLOCKS) * u64::from(block_bytes);
        if bytes_max < least {
            return Err(DiskError::TooSmall { bytes_max, least });
        }
        let folder = Folder::open(&settings.folder, block_bytes)?;
        let mut index = DiskIndex::default();
        let mut damaged = 0;
        let path = folder.journal();
        let opened = Journal::open(&path, |record| match record {
            Record::Stored {
                key,
                bytes,
                checksum,
            } if (1..=block_bytes).contains(&bytes) => index.insert(key, bytes, checksum),
            Record::Stored { .. } => damaged += 1,
            Record::Removed(blocks) => drop(index.remove(blocks)),
            Record::Closed => {}
        });
        let (journal, replayed) = opened.map_err(|error| DiskError::Io { path, error })?;
        damaged += replayed.damaged;
        if damaged > 0 {
            let place = folder.path().display();
            tracing::warn!("disk cache {place}: {damaged} records of the journal are damaged");
        }
        let shared = Shared {
            folder,
            block_bytes,
            index: Mutex::new(index),
            queue: Queue::new(writes_max),
            counters: Counters::default(),
            limit_bytes: AtomicU64::new(bytes_max),
            journal_bytes: AtomicU64::new(journal.bytes()),
        };
        Ok(DiskTier {
            shared: Arc::new(shared),
            reads: Semaphore::new(READS_MAX),
            room: Semaphore::new(writes_max),
            writes_max: writes_max as u32,
            opened: Mutex::new(Some(Opened {
                journal,
                is_clean: replayed.is_closed && damaged == 0,
                bytes_max,
            })),
            thread: Mutex::new(None),
            reported: Mutex::default(),
        })
    }

    /// Starts the thread that writes. `listener` hears of each change that it makes.
    ///
    /// # Errors
    /// The system has no thread for it.
    pub fn start(&self, listener: Listener) -> io::Result<()> {
        let Some(opened) = self.opened.lock().take() else {
            return Ok(());
        };
        let Opened {
            journal,
            is_clean,
            bytes_max,
        } = opened;
        let writer = Writer::new(Arc::clone(&self.shared), journal, bytes_max, listener);
        let thread = thread::Builder::new().name("hither-disk".to_owned());
        let thread = thread.spawn(move || writer.run(is_clean))?;
        *self.thread.lock() = Some(thread);
        Ok(())
    }

    /// Writes a block when the disk gets to it, unless too many wait already.
    pub fn offer(&self, key: BlockKey, data: Bytes) {
        if !self.try_offer(key, data) {
            self.shared.counters.skipped_blocks.add(1);
        }
    }

    /// As [`offer`](Self::offer), for who offers it again: whether it is on the disk, or will be
    /// written.
    pub fn try_offer(&self, key: BlockKey, data: Bytes) -> bool {
        self.contains(&key) || self.shared.queue.write(key, data)
    }

    /// Blocks that may wait to be written.
    pub fn writes_max(&self) -> u32 {
        self.writes_max
    }

    /// Waits until so many blocks more may wait to be written, if all who offer many ask for room.
    pub async fn room_for(&self, blocks: u32) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed.
        self.room
            .acquire_many(blocks.min(self.writes_max))
            .await
            .ok()
    }

    /// Removes blocks, those too that wait to be written by now. Once that is done, `done` is
    /// dropped.
    pub fn remove(&self, blocks: Blocks, done: UnboundedSender<()>) {
        self.shared.queue.remove(blocks, done);
    }

    /// Keeps the blocks of a file that are there now, or will be, until the hold is dropped. Where
    /// all that could go is held, new blocks are not written.
    pub fn hold(&self, file: FileKey) -> Hold {
        self.shared.index.lock().hold(file);
        Hold {
            shared: Arc::clone(&self.shared),
            file,
        }
    }

    /// What a file of `bytes` may take.
    pub fn footprint(bytes: u64) -> u64 {
        // Records of the journal, and the last page.
        bytes + bytes / 32 + (8 << 10)
    }

    /// The blocks of a chunk that are on the disk.
    pub fn held(&self, chunk: &ChunkKey) -> u64 {
        self.shared.index.lock().held(chunk)
    }

    /// Whether a block is on the disk.
    pub fn contains(&self, key: &BlockKey) -> bool {
        let (chunk, bit) = key.in_chunk();
        self.held(&chunk) & bit != 0
    }

    /// Where the blocks of `keys` are that are successive from the first one on, for a reader of
    /// them.
    pub fn locate(&self, keys: impl Iterator<Item = BlockKey>) -> Vec<Located> {
        let mut index = self.shared.index.lock();
        let located: Vec<Located> = keys.map_while(|key| index.get(&key)).collect();
        if let Some(first) = located.first() {
            index.touch(&first.key.in_chunk().0);
        }
        located
    }

    /// All blocks, by chunk.
    pub fn chunks(&self) -> Vec<Blocks> {
        self.shared.index.lock().iter().collect()
    }

    /// Waits for a turn to read.
    pub async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed.
        self.reads.acquire().await.ok()
    }

    /// Reads successive blocks of a file into buffers of their lengths, and says of each whether
    /// its bytes are right. Those that are not are removed. Waits for the disk.
    ///
    /// # Panics
    /// If there are not as many buffers as blocks.
    pub fn read(&self, blocks: &[Located], buffers: &mut [&mut [u8]]) -> Vec<bool> {
        assert_eq!(blocks.len(), buffers.len(), "a buffer for each block");
        let Some(first) = blocks.first() else {
            return Vec::new();
        };
        let block_bytes = u64::from(self.shared.block_bytes);
        let offset = |block: &Located| u64::from(block.key.index) * block_bytes;
        let mut error = None;
        match self.shared.folder.open_to_read(first.key.file) {
            Ok(file) => {
                if read_vectored(&file, offset(first), buffers).is_err() {
                    // One bad sector shall not cost the blocks beside it.
                    for (block, buffer) in blocks.iter().zip(&mut *buffers) {
                        if let Err(failed) = file.read_exact_at(buffer, offset(block)) {
                            error = Some(failed);
                        }
                    }
                }
            }
            Err(failed) => error = Some(failed),
        }
        let pairs = blocks.iter().zip(buffers);
        let verify = |(block, buffer): (&Located, &mut &mut [u8])| {
            let is_right = XxHash3_64::oneshot(buffer) == block.checksum;
            if is_right {
                self.shared.counters.read_blocks.add(1)
            } else {
                self.discard(block, error.as_ref())
            }
            is_right
        };
        pairs.map(verify).collect()
    }

    /// Removes a block whose bytes are not right, unless it was evicted while it was read.
    pub fn discard(&self, block: &Located, error: Option<&io::Error>) {
        let (chunk, bit) = block.key.in_chunk();
        let blocks = Blocks::new(chunk, bit);
        let mut index = self.shared.index.lock();
        if index.get(&block.key) != Some(*block) {
            return;
        }
        index.remove(blocks);
        drop(index);
        self.shared.counters.bad_blocks.add(1);
        self.shared.queue.release(blocks);
        let mut reported = self.reported.lock();
        if reported.len() >= REPORTED_MAX {
            reported.clear();
        }
        if reported.insert(chunk.file) {
            let place = self.shared.folder.path().display();
            let (file, index) = (chunk.file, block.key.index);
            match error {
                Some(error) => {
                    tracing::warn!("disk cache {place}: {file:?}, block {index}: {error}");
                }
                None => tracing::warn!(
                    "disk cache {place}: {file:?}, block {index} does not have its checksum; \
                     it is read from elsewhere"
                ),
            }
        }
    }

    /// What was counted.
    pub fn counts(&self) -> DiskCounts {
        self.shared.counters.counts()
    }

    /// How much is there.
    pub fn usage(&self) -> DiskUsage {
        self.shared.usage()
    }

    /// Waits until what was offered is written, and the room of what was removed given back.
    pub fn flush(&self) {
        if self.thread.lock().is_some() {
            self.shared.queue.wait_until_idle();
        }
    }

    /// Writes what was offered, and ends in order: the next start finds all of it at once. Takes
    /// nothing more from then on. Waits for the disk.
    pub fn close(&self) {
        self.shared.queue.close();
        let thread = self.thread.lock().take();
        // The listener may hold the last handle to this tier, on the thread itself.
        if let Some(thread) = thread.filter(|it| it.thread().id() != thread::current().id()) {
            let _ = thread.join();
        }
    }

    /// Panics on a broken invariant.
    pub fn check(&self) {
        self.shared.index.lock().check();
    }
}

impl Drop for DiskTier {
    fn drop(&mut self) {
        self.close();
    }
}

/// Fills the buffers from `offset` on, as far as the file goes.
fn read_vectored(file: &File, mut offset: u64, buffers: &mut [&mut [u8]]) -> io::Result<()> {
    let mut slices: Vec<IoSliceMut<'_>> =
        buffers.iter_mut().map(|it| IoSliceMut::new(it)).collect();
    let mut slices = &mut slices[..];
    while !slices.is_empty() {
        match rustix::io::preadv(file, slices, offset) {
            Ok(0) => return Ok(()),
            Ok(count) => {
                offset += count as u64;
                IoSliceMut::advance_slices(&mut slices, count);
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
