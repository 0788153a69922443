//! The thread that changes the files of a disk tier, and makes room in it.
//!
//! All errors end here: a block that cannot be written is given up, a full disk lowers the limit,
//! and a disk that fails again and again is written no more. Readers never wait for this thread.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustix::io::Errno;
use twox_hash::XxHash3_64;

use super::index::{Located, allocated};
use super::journal::{Journal, RECORD_BYTES, Record};
use super::settings::{Change, Listener};
use super::shared::{Job, Shared};
use crate::key::{BlockKey, CHUNK_BLOCKS, FileKey, bits};
use crate::protocol::Blocks;

/// Failed writes in a row after which the disk is written no more.
const FAILURES_MAX: u32 = 16;

/// How long what is known of the free space holds: so long, or until so much was written.
const SPACE_AGE_MAX: Duration = Duration::from_secs(1);
const SPACE_BYTES_MAX: u64 = 64 << 20;

/// A journal is rewritten when it is more than twice as long as needed, and this much.
const JOURNAL_SLACK_BYTES: u64 = 64 << 10;

/// How often a chunk to evict is looked for among many that are held, before a block is given up.
/// In between, readers have the index.
const SEARCHES_MAX: u32 = 256;

/// What a file system may take for a file beside its blocks, such as for a map of its extents: one
/// in so many bytes, and this much.
const OVERHEAD: u64 = 64;
const OVERHEAD_BYTES: u64 = 64 << 10;

/// See the module.
pub(super) struct Writer {
    shared: Arc<Shared>,
    journal: Journal,
    listener: Listener,
    /// What was asked for.
    bytes_max: u64,
    /// The file that was written last.
    open: Option<(FileKey, File)>,
    /// When the free space was looked up, and how much was written since.
    space_at: Option<Instant>,
    space_bytes: u64,
    /// Failed writes in a row.
    failures: u32,
    has_warned_full: bool,
}

impl Writer {
    pub(super) fn new(
        shared: Arc<Shared>,
        journal: Journal,
        bytes_max: u64,
        listener: Listener,
    ) -> Writer {
        let writer = Writer {
            shared,
            journal,
            listener,
            bytes_max,
            open: None,
            space_at: None,
            space_bytes: 0,
            failures: 0,
            has_warned_full: false,
        };
        writer.note_journal();
        writer
    }

    /// Does the jobs of the queue until it is closed. `is_clean`: nothing is on the disk but what
    /// the journal lists.
    pub(super) fn run(mut self, is_clean: bool) {
        if !is_clean {
            self.remove_strays();
        }
        self.make_room(0);
        let shared = Arc::clone(&self.shared);
        while let Some(job) = shared.queue.next() {
            match job {
                Job::Write { key, data } => self.write(key, &data),
                Job::Release(blocks) => self.release(blocks),
                Job::Remove(blocks, _done) => self.remove(blocks),
            }
            self.rewrite_if_long();
        }
        if let Err(error) = self.rewrite(true) {
            self.warn(format_args!("closing it: {error}"));
        }
    }

    fn warn(&self, what: std::fmt::Arguments<'_>) {
        tracing::warn!("disk cache {}: {what}", self.shared.folder.path().display());
    }

    /// Removes what a crash has left in the folder: files and blocks that the journal does not
    /// list.
    fn remove_strays(&mut self) {
        for (file, bytes) in self.shared.folder.files() {
            let listed = self.shared.index.lock().file_bytes(file);
            match listed {
                None => drop(self.shared.folder.remove(file)),
                Some(listed) if bytes > listed + listed / OVERHEAD + OVERHEAD_BYTES => {
                    self.drop_file(file);
                }
                Some(_) => {}
            }
        }
    }

    fn write(&mut self, key: BlockKey, data: &Bytes) {
        if self.failures >= FAILURES_MAX {
            return self.shared.counters.failed_blocks.add(1);
        }
        if self.shared.index.lock().get(&key).is_some() {
            return;
        }
        let bytes = data.len() as u32;
        if !self.make_room(allocated(bytes) + 2 * RECORD_BYTES as u64) {
            return self.shared.counters.full_blocks.add(1);
        }
        let checksum = XxHash3_64::oneshot(data);
        let record = Record::Stored {
            key,
            bytes,
            checksum,
        };
        let (chunk, bit) = key.in_chunk();
        let blocks = Blocks::new(chunk, bit);
        let written = self.journal.append(&record).and_then(|()| {
            let written = self.write_to_file(key, data);
            if written.is_err() {
                self.give_back_bad(blocks);
            }
            written
        });
        match written {
            Ok(()) => {
                self.failures = 0;
                self.space_bytes += allocated(bytes);
                self.shared.index.lock().insert(key, bytes, checksum);
                self.shared.counters.written_blocks.add(1);
                (self.listener)(Change::Stored(blocks));
            }
            Err(error) => self.on_failed(&error),
        }
        self.note_journal();
    }

    fn write_to_file(&mut self, key: BlockKey, data: &[u8]) -> io::Result<()> {
        if self.open.as_ref().is_none_or(|(file, _)| *file != key.file) {
            self.open = None;
            let file = self.shared.folder.open_to_write(key.file)?;
            self.open = Some((key.file, file));
        }
        let offset = u64::from(key.index) * u64::from(self.shared.block_bytes);
        match &self.open {
            Some((_, file)) => file.write_all_at(data, offset),
            None => unreachable!("opened above"),
        }
    }

    /// A block was not written.
    fn on_failed(&mut self, error: &io::Error) {
        if let Some(Errno::NOSPC | Errno::DQUOT) = Errno::from_io_error(error) {
            self.shared.counters.full_blocks.add(1);
            let usage = self.shared.usage();
            self.shared
                .limit_bytes
                .store(usage.bytes, Ordering::Relaxed);
            if !std::mem::replace(&mut self.has_warned_full, true) {
                self.warn(format_args!("{error}: keeping to {} bytes", usage.bytes));
            }
            return;
        }
        self.shared.counters.failed_blocks.add(1);
        self.failures += 1;
        match self.failures {
            1 => self.warn(format_args!("writing a block: {error}")),
            FAILURES_MAX => self.warn(format_args!(
                "{FAILURES_MAX} writes have failed, the last one with {error}: it is only read now"
            )),
            _ => {}
        }
    }

    /// Evicts until there is room for `bytes` more. Whether there is.
    fn make_room(&mut self, bytes: u64) -> bool {
        self.look_up_space();
        let mut searches = 0;
        loop {
            let limit = self.shared.limit_bytes.load(Ordering::Relaxed);
            let journal = self.shared.journal_bytes.load(Ordering::Relaxed);
            let mut index = self.shared.index.lock();
            if index.bytes() + journal + bytes <= limit {
                return true;
            }
            // Evicting all would not help.
            if journal + bytes > limit && bytes > 0 {
                return false;
            }
            if !index.can_evict() {
                return false;
            }
            let evicted = index.evict();
            drop(index);
            let Some(blocks) = evicted else {
                searches += 1;
                if searches == SEARCHES_MAX {
                    return false;
                }
                continue;
            };
            self.give_back(blocks);
            let count = u64::from(blocks.mask.count_ones());
            self.shared.counters.evicted_blocks.add(count);
            (self.listener)(Change::Dropped(blocks));
            self.rewrite_if_long();
        }
    }

    /// Sets the limit by the free space, if that was not looked up of late.
    fn look_up_space(&mut self) {
        let is_current = |at: Instant| at.elapsed() < SPACE_AGE_MAX;
        if self.space_at.is_some_and(is_current) && self.space_bytes < SPACE_BYTES_MAX {
            return;
        }
        self.space_at = Some(Instant::now());
        self.space_bytes = 0;
        let Ok(spare) = self.shared.folder.spare_bytes() else {
            return;
        };
        let used = self.shared.usage().bytes;
        let limit = used.saturating_add_signed(spare).min(self.bytes_max);
        self.shared.limit_bytes.store(limit, Ordering::Relaxed);
    }

    /// Gives back what blocks take that are no longer in the index, and says so in the journal.
    fn give_back(&mut self, blocks: Blocks) {
        let file = blocks.chunk.file;
        let is_last = self.shared.index.lock().file_bytes(file).is_none();
        let result = if is_last {
            self.open = None;
            self.shared.folder.remove(file)
        } else {
            self.punch(blocks)
        };
        match result {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            // A file system without holes gives a file back as a whole.
            Err(_) if !is_last => self.drop_file(file),
            Err(error) => self.warn(format_args!("removing {file:?}: {error}")),
            Ok(()) => {}
        }
        self.append(&Record::Removed(blocks));
    }

    /// Gives back what bad blocks take. In a held file they stay until they are written again:
    /// somebody may read the file as it lies there, and a hole reads as zeros.
    fn give_back_bad(&mut self, blocks: Blocks) {
        let is_held = self.shared.index.lock().is_held(blocks.chunk.file);
        if is_held {
            self.append(&Record::Removed(blocks))
        } else {
            self.give_back(blocks)
        }
    }

    fn punch(&self, blocks: Blocks) -> io::Result<()> {
        let block_bytes = u64::from(self.shared.block_bytes);
        let start = u64::from(blocks.chunk.number * CHUNK_BLOCKS) * block_bytes;
        let file = blocks.chunk.file;
        if blocks.mask.count_ones() == 1 {
            let bit = u64::from(blocks.mask.trailing_zeros());
            let folder = &self.shared.folder;
            return folder.punch(file, start + bit * block_bytes, block_bytes);
        }
        let held = self.shared.index.lock().held(&blocks.chunk);
        if held == 0 {
            let bytes = u64::from(CHUNK_BLOCKS) * block_bytes;
            return self.shared.folder.punch(file, start, bytes);
        }
        for bit in bits(blocks.mask & !held) {
            let offset = start + u64::from(bit) * block_bytes;
            self.shared.folder.punch(file, offset, block_bytes)?;
        }
        Ok(())
    }

    /// Removes all of a file.
    fn drop_file(&mut self, file: FileKey) {
        let chunks = self.shared.index.lock().remove_file(file);
        self.open = None;
        if let Err(error) = self.shared.folder.remove(file) {
            self.warn(format_args!("removing {file:?}: {error}"));
        }
        for blocks in chunks {
            self.append(&Record::Removed(blocks));
            (self.listener)(Change::Dropped(blocks));
        }
    }

    /// Blocks were found to be bad, and are no longer in the index.
    fn release(&mut self, blocks: Blocks) {
        // They may have been written again meanwhile.
        let mask = blocks.mask & !self.shared.index.lock().held(&blocks.chunk);
        if mask != 0 {
            self.give_back_bad(blocks.with_mask(mask));
        }
        self.note_journal();
    }

    /// Somebody wants blocks gone.
    fn remove(&mut self, blocks: Blocks) {
        let removed = self.shared.index.lock().remove(blocks);
        if removed != 0 {
            let blocks = blocks.with_mask(removed);
            self.give_back(blocks);
            (self.listener)(Change::Dropped(blocks));
        }
    }

    /// Adds a record that may be missing: a block that is not there does not have its checksum.
    fn append(&mut self, record: &Record) {
        let _ = self.journal.append(record);
        self.note_journal();
    }

    fn needed_bytes(&self) -> u64 {
        self.shared.index.lock().blocks() * RECORD_BYTES as u64
    }

    fn note_journal(&self) {
        let bytes = self.journal.bytes() + self.needed_bytes();
        self.shared.journal_bytes.store(bytes, Ordering::Relaxed);
    }

    fn rewrite_if_long(&mut self) {
        let needed = self.needed_bytes();
        if self.journal.bytes() > 2 * needed + JOURNAL_SLACK_BYTES
            && let Err(error) = self.rewrite(false)
        {
            self.on_failed(&error);
        }
    }

    /// Writes a journal of what is there now, oldest first, so that the order of eviction survives.
    fn rewrite(&mut self, is_closing: bool) -> io::Result<()> {
        // Only this thread adds blocks, so none is missed between two locks.
        let chunks: Vec<Blocks> = self.shared.index.lock().iter().collect();
        let shared = Arc::clone(&self.shared);
        let stored = chunks.into_iter().flat_map(|blocks| {
            let index = shared.index.lock();
            let keys = blocks.chunk.blocks(blocks.mask);
            let stored = keys.filter_map(|key| index.get(&key)).map(stored);
            stored.collect::<Vec<Record>>()
        });
        let closed = is_closing.then_some(Record::Closed);
        self.journal.rewrite(stored.chain(closed))?;
        self.note_journal();
        Ok(())
    }
}

fn stored(block: Located) -> Record {
    Record::Stored {
        key: block.key,
        bytes: block.bytes,
        checksum: block.checksum,
    }
}
