//! Bringing files into the cache before they are read, and dropping them from it.
//!
//! Blocks are asked for as prefetches: readers go first, other nodes send what they have, and each
//! block leaves the source once. A prefetch may be given up, as when memory is short. So the blocks
//! are looked for once their flights have ended, and asked for again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::files::{OpenFile, Volume};
use super::place::Place;
use crate::holds::{Hold, HoldKind};
use crate::key::{BlockKey, CHUNK_BLOCKS, ChunkKey, bits};
use crate::pending::WantedFile;
use crate::protocol::Blocks;
use crate::source::{FileVersion, SourceError};
use crate::store::disk::tier::DiskTier;

/// What is asked for at once: about what a source reads in one piece.
const WINDOW_BYTES: u64 = 8 << 20;

/// How much of one file is asked for at the same time, and in how many windows at most.
const AHEAD_BYTES: u64 = 32 << 20;
const WINDOWS_MAX: u64 = 16;

/// How often a block is asked for, and the first pause in between; each further one is twice as
/// long.
const ATTEMPTS: u32 = 8;
const PAUSE: Duration = Duration::from_millis(10);

/// How often the disk is looked at while it writes, and after how many looks without a change it
/// is given up.
const DISK_LOOK: Duration = Duration::from_millis(10);
const DISK_LOOKS_MAX: u32 = 1000;

/// Blocks of a file that are asked for at once.
type Window = (ChunkKey, u64);

impl Volume {
    /// Holds a version of a file in memory, if there is room for it.
    pub fn hold(&self, file: &FileVersion, kind: HoldKind) -> Option<Hold> {
        self.node.hold(self.file_key(file), file.bytes, kind)
    }

    /// How many bytes of a file are there.
    pub fn cached_bytes(self: &Arc<Self>, file: &FileVersion, place: Place) -> u64 {
        let file = self.open(file.clone(), true);
        let windows = file.windows(CHUNK_BLOCKS);
        let missing = windows.map(|(chunk, mask)| {
            let missing = file.missing(chunk, mask, place);
            file.bytes_of(chunk, missing)
        });
        file.file.bytes - missing.sum::<u64>()
    }

    /// Brings a file there, and adds what has come, or was there, to `done` as it does. Returns how
    /// many bytes could not be kept, though the source gave them. Dropped, it stops.
    ///
    /// # Errors
    /// The source did not give a block.
    pub async fn warm(
        self: &Arc<Self>,
        file: &FileVersion,
        place: Place,
        done: &AtomicU64,
    ) -> Result<u64, SourceError> {
        let warming = Warming::new(self.open(file.clone(), true));
        let file = &warming.0;
        let mut window = (WINDOW_BYTES / u64::from(file.block_bytes)).max(1) as u32;
        if let (Place::Disk | Place::Both, Some(disk)) = (place, self.node.disk()) {
            window = window.min(disk.writes_max());
        }
        let at_once = AHEAD_BYTES / (u64::from(window) * u64::from(file.block_bytes));
        let at_once = at_once.clamp(1, WINDOWS_MAX) as usize;
        let mut lost = 0;
        let windows = stream::iter(file.windows(window).collect::<Vec<Window>>());
        let mut brought = windows
            .map(|(chunk, mask)| {
                let file = Arc::clone(file);
                async move {
                    let lost = file.bring(chunk, mask, place).await?;
                    Ok((lost, file.bytes_of(chunk, mask)))
                }
            })
            .buffer_unordered(at_once);
        while let Some(result) = brought.next().await {
            let (lost_here, bytes) = result?;
            lost += lost_here;
            done.fetch_add(bytes - lost_here, Ordering::Relaxed);
        }
        Ok(lost)
    }

    /// Drops a file from memory and disk. What readers ask for meanwhile may come back. Returns
    /// what each of the two had of it, in bytes.
    pub async fn evict(self: &Arc<Self>, file: &FileVersion) -> (u64, u64) {
        let file = self.open(file.clone(), true);
        let (mut memory_bytes, mut disk_bytes) = (0, 0);
        let (written, mut ended) = mpsc::unbounded_channel();
        for (chunk, mask) in file.windows(CHUNK_BLOCKS) {
            for key in chunk.blocks(mask) {
                if let Some(data) = self.node.store.remove(&key) {
                    memory_bytes += data.len() as u64;
                }
            }
            if let Some(disk) = self.node.disk() {
                disk_bytes += file.bytes_of(chunk, disk.held(&chunk) & mask);
                disk.remove(Blocks::new(chunk, mask), written.clone());
            }
            self.node.note_dropped(Blocks::new(chunk, mask));
        }
        drop(written);
        while ended.recv().await.is_some() {}
        (memory_bytes, disk_bytes)
    }
}

/// A file all of which is wanted, until this is dropped.
struct Warming(Arc<OpenFile>);

impl Warming {
    fn new(file: Arc<OpenFile>) -> Warming {
        file.is_warming.store(true, Ordering::Relaxed);
        Warming(file)
    }
}

impl Drop for Warming {
    fn drop(&mut self) {
        self.0.is_warming.store(false, Ordering::Relaxed);
    }
}

impl OpenFile {
    /// All blocks, in windows of at most so many.
    fn windows(&self, blocks_max: u32) -> impl Iterator<Item = Window> + use<> {
        let blocks = self.file.bytes.div_ceil(u64::from(self.block_bytes)) as u32;
        // A power of two, so that no window lies in two chunks.
        let window = 1 << blocks_max.clamp(1, CHUNK_BLOCKS).ilog2();
        let file = self.key;
        (0..blocks).step_by(window as usize).map(move |start| {
            let (chunk, first) = BlockKey { file, index: start }.in_chunk();
            let count = (blocks - start).min(window);
            (chunk, (u64::MAX >> (u64::BITS - count)) * first)
        })
    }

    fn bytes_of(&self, chunk: ChunkKey, mask: u64) -> u64 {
        chunk
            .blocks(mask)
            .map(|key| self.block_len(key.index))
            .sum()
    }

    /// Those of the blocks that are not there.
    fn missing(&self, chunk: ChunkKey, mask: u64, place: Place) -> u64 {
        let node = &self.volume.node;
        let on_disk = || mask & node.disk().map_or(0, |disk| disk.held(&chunk));
        let in_memory = |mask: u64| {
            let found = bits(mask).filter(|bit| node.store.contains(&chunk.block(*bit)));
            found.fold(0, |found, bit| found | 1 << bit)
        };
        match place {
            Place::Memory => mask & !in_memory(mask),
            Place::Disk => mask & !on_disk(),
            Place::Both => mask & !(on_disk() & in_memory(mask)),
            Place::Either => {
                let missing = mask & !on_disk();
                missing & !in_memory(missing)
            }
        }
    }

    /// Brings blocks there. Returns how many bytes of them could not be kept.
    async fn bring(
        self: &Arc<Self>,
        chunk: ChunkKey,
        mask: u64,
        place: Place,
    ) -> Result<u64, SourceError> {
        let is_for_disk = matches!(place, Place::Disk | Place::Both);
        let disk = self.volume.node.disk().filter(|_| is_for_disk);
        let _room = match disk {
            Some(disk) => disk.room_for(mask.count_ones()).await,
            None => None,
        };
        let mut pause = PAUSE;
        for attempt in 0..ATTEMPTS {
            let missing = self.missing(chunk, mask, place);
            if missing == 0 {
                return Ok(0);
            }
            if attempt > 0 {
                sleep(pause).await;
                pause *= 2;
            }
            let (watcher, mut errors) = mpsc::unbounded_channel();
            self.prefetch_blocks(chunk, missing, Some(watcher));
            if let Some(error) = errors.recv().await {
                return Err(error);
            }
            if let Some(disk) = disk {
                self.write(disk, chunk, mask).await;
            }
        }
        Ok(self.bytes_of(chunk, self.missing(chunk, mask, place)))
    }

    /// Has the disk write those of the blocks that memory has, and waits until it has them, or
    /// fails.
    async fn write(&self, disk: &DiskTier, chunk: ChunkKey, mask: u64) {
        let store = &self.volume.node.store;
        let start = disk.counts();
        let (mut counts, mut looks) = (start, 0);
        let mut offered = 0_u64;
        loop {
            let mut is_waiting = false;
            for bit in bits(mask & !disk.held(&chunk)) {
                let key = chunk.block(bit);
                if offered & 1 << bit == 0 {
                    let Some(data) = store.peek(&key) else {
                        continue;
                    };
                    if disk.try_offer(key, data) {
                        offered |= 1 << bit;
                    }
                }
                is_waiting = true;
            }
            let has_failed =
                counts.full_blocks + counts.failed_blocks > start.full_blocks + start.failed_blocks;
            if !is_waiting || has_failed || looks == DISK_LOOKS_MAX {
                return;
            }
            sleep(DISK_LOOK).await;
            let now = disk.counts();
            looks = if now == counts { looks + 1 } else { 0 };
            counts = now;
        }
    }
}
