//! What is on the disk, and what goes next.
//!
//! Pure: no I/O, no clock. Chunks are evicted by SIEVE (Zhang et al., NSDI '24), sized in bytes: a
//! queue from the newest to the oldest chunk, a bit for each that was read since the hand passed,
//! and a hand that goes from old to new, clears bits, and evicts the first chunk without one.
//! SIEVE needs no move at a hit, so readers hold the lock for a look-up only, and one scan evicts
//! little that is read again.

use rustc_hash::FxHashMap;

use crate::key::{BlockKey, CHUNK_BLOCKS, ChunkKey, FileKey};
use crate::protocol::Blocks;

/// What the file system allocates at once.
const PAGE_BYTES: u64 = 4096;

/// Chunks of held files that one eviction passes over, at most: the lock is held meanwhile.
const HELD_PASSES_MAX: usize = 1024;

/// What a block of `bytes` takes on the disk.
pub fn allocated(bytes: u32) -> u64 {
    u64::from(bytes).next_multiple_of(PAGE_BYTES)
}

/// A block on the disk, as it was when the index was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Located {
    /// The block.
    pub key: BlockKey,
    /// Its length.
    pub bytes: u32,
    /// What its bytes hash to.
    pub checksum: u64,
    /// Which chunk of this key it lies in: one that was evicted and written again is another one.
    pub generation: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub struct DiskIndex {
    chunks: FxHashMap<ChunkKey, u32>,
    files: FxHashMap<FileKey, FileUse>,
    /// How often each file is held that is held.
    holds: FxHashMap<FileKey, u32>,
    /// Chunks of these files.
    held_chunks: u64,
    slots: Vec<Slot>,
    free: Vec<u32>,
    newest: Option<u32>,
    oldest: Option<u32>,
    /// The next candidate; none: the oldest chunk.
    hand: Option<u32>,
    bytes: u64,
    blocks: u64,
    generations: u64,
}

/// What a file has on the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct FileUse {
    chunks: u32,
    blocks: u64,
    bytes: u64,
    verification: Verification,
}

/// Whether all blocks of a file were read and had their checksums since the start. Losing a block
/// takes it back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verification {
    /// They were not.
    #[default]
    None,
    /// They are being read.
    Running,
    /// They were.
    Done,
}

#[derive(Debug)]
struct Slot {
    key: ChunkKey,
    mask: u64,
    /// One for each bit of `mask`, in order.
    entries: Vec<Entry>,
    generation: u64,
    visited: bool,
    newer: Option<u32>,
    older: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    checksum: u64,
    bytes: u32,
}

impl Slot {
    /// Where the entry of `bit` is, or would be.
    fn position(&self, bit: u64) -> usize {
        (self.mask & (bit - 1)).count_ones() as usize
    }
}

impl DiskIndex {
    fn slot(&self, chunk: &ChunkKey) -> Option<&Slot> {
        let slot = *self.chunks.get(chunk)?;
        Some(&self.slots[slot as usize])
    }

    /// The blocks of a chunk that are here.
    pub fn held(&self, chunk: &ChunkKey) -> u64 {
        self.slot(chunk).map_or(0, |slot| slot.mask)
    }

    /// Where a block is.
    pub fn get(&self, key: &BlockKey) -> Option<Located> {
        let (chunk, bit) = key.in_chunk();
        let slot = self.slot(&chunk)?;
        if slot.mask & bit == 0 {
            return None;
        }
        let Entry { checksum, bytes } = slot.entries[slot.position(bit)];
        Some(Located {
            key: *key,
            bytes,
            checksum,
            generation: slot.generation,
        })
    }

    /// A chunk is read.
    pub fn touch(&mut self, chunk: &ChunkKey) {
        if let Some(&slot) = self.chunks.get(chunk) {
            self.slots[slot as usize].visited = true;
        }
    }

    /// A block was written. One that is here already is replaced.
    pub fn insert(&mut self, key: BlockKey, bytes: u32, checksum: u64) {
        let (chunk, bit) = key.in_chunk();
        self.remove(Blocks::new(chunk, bit));
        let number = match self.chunks.get(&chunk) {
            Some(&number) => number,
            None => self.add_chunk(chunk),
        };
        let slot = &mut self.slots[number as usize];
        slot.entries
            .insert(slot.position(bit), Entry { checksum, bytes });
        slot.mask |= bit;
        self.bytes += allocated(bytes);
        self.blocks += 1;
        let file = self.files.entry(key.file).or_default();
        file.blocks += 1;
        file.bytes += allocated(bytes);
    }

    fn add_chunk(&mut self, chunk: ChunkKey) -> u32 {
        self.generations += 1;
        let slot = Slot {
            key: chunk,
            mask: 0,
            entries: Vec::new(),
            generation: self.generations,
            visited: false,
            newer: None,
            older: self.newest,
        };
        let number = match self.free.pop() {
            Some(number) => {
                self.slots[number as usize] = slot;
                number
            }
            None => {
                self.slots.push(slot);
                self.slots.len() as u32 - 1
            }
        };
        match self.newest {
            Some(newest) => self.slots[newest as usize].newer = Some(number),
            None => self.oldest = Some(number),
        }
        self.newest = Some(number);
        self.chunks.insert(chunk, number);
        self.files.entry(chunk.file).or_default().chunks += 1;
        self.held_chunks += u64::from(self.is_held(chunk.file));
        number
    }

    /// Removes blocks. Returns those that were here.
    pub fn remove(&mut self, blocks: Blocks) -> u64 {
        let Some(&number) = self.chunks.get(&blocks.chunk) else {
            return 0;
        };
        let slot = &mut self.slots[number as usize];
        let removed = slot.mask & blocks.mask;
        let mut bytes = 0;
        for bit in (0..CHUNK_BLOCKS).map(|bit| 1 << bit) {
            if removed & bit != 0 {
                let entry = slot.entries.remove(slot.position(bit));
                slot.mask &= !bit;
                bytes += allocated(entry.bytes);
            }
        }
        self.bytes -= bytes;
        self.blocks -= u64::from(removed.count_ones());
        if let Some(file) = self.files.get_mut(&blocks.chunk.file) {
            file.blocks -= u64::from(removed.count_ones());
            file.bytes -= bytes;
            if removed != 0 {
                file.verification = Verification::None;
            }
        }
        if self.slots[number as usize].mask == 0 {
            self.remove_chunk(number);
        }
        removed
    }

    fn remove_chunk(&mut self, number: u32) {
        let Slot {
            key, newer, older, ..
        } = self.slots[number as usize];
        match newer {
            Some(newer) => self.slots[newer as usize].older = older,
            None => self.newest = older,
        }
        match older {
            Some(older) => self.slots[older as usize].newer = newer,
            None => self.oldest = newer,
        }
        if self.hand == Some(number) {
            self.hand = newer;
        }
        self.chunks.remove(&key);
        self.free.push(number);
        self.held_chunks -= u64::from(self.is_held(key.file));
        if let Some(file) = self.files.get_mut(&key.file) {
            file.chunks -= 1;
            if file.chunks == 0 {
                self.files.remove(&key.file);
            }
        }
    }

    /// Keeps a file's blocks from eviction, until [`release`](Self::release) was called as often.
    pub fn hold(&mut self, file: FileKey) {
        let count = self.holds.entry(file).or_default();
        *count += 1;
        if *count == 1 {
            self.held_chunks += self.file_chunks(file);
        }
    }

    /// Ends one [`hold`](Self::hold) of a file.
    pub fn release(&mut self, file: FileKey) {
        if let Some(count) = self.holds.get_mut(&file) {
            *count -= 1;
            if *count == 0 {
                self.holds.remove(&file);
                self.held_chunks -= self.file_chunks(file);
            }
        }
    }

    fn file_chunks(&self, file: FileKey) -> u64 {
        self.files.get(&file).map_or(0, |it| it.chunks.into())
    }

    /// Whether a file is held.
    pub fn is_held(&self, file: FileKey) -> bool {
        self.holds.contains_key(&file)
    }

    /// Whether there is a chunk whose file is not held.
    pub fn can_evict(&self) -> bool {
        self.held_chunks < self.chunks()
    }

    /// Removes the chunk that is worth least of those whose files are not held. `None`: there is
    /// none, or none is found within the bound of work; the next call searches on.
    pub fn evict(&mut self) -> Option<Blocks> {
        let mut number = self.hand.or(self.oldest)?;
        let mut passes = 0;
        loop {
            let slot = &mut self.slots[number as usize];
            if self.holds.contains_key(&slot.key.file) {
                if passes == HELD_PASSES_MAX {
                    self.hand = Some(number);
                    return None;
                }
                passes += 1;
            } else if !std::mem::take(&mut slot.visited) {
                break;
            }
            number = slot.newer.or(self.oldest)?;
        }
        self.hand = Some(number);
        let Slot { key, mask, .. } = self.slots[number as usize];
        let blocks = Blocks::new(key, mask);
        self.remove(blocks);
        Some(blocks)
    }

    /// Removes all of a file. Takes as long as a walk through the index.
    pub fn remove_file(&mut self, file: FileKey) -> Vec<Blocks> {
        let chunks: Vec<Blocks> = self.iter().filter(|it| it.chunk.file == file).collect();
        for &blocks in &chunks {
            self.remove(blocks);
        }
        chunks
    }

    /// How far the verification of a file is. `None`: not all of its `blocks` are here.
    pub fn verification(&self, file: FileKey, blocks: u64) -> Option<Verification> {
        let found = self.files.get(&file).filter(|it| it.blocks == blocks)?;
        Some(found.verification)
    }

    /// Takes note of how far the verification of a file is.
    pub fn set_verification(&mut self, file: FileKey, verification: Verification) {
        if let Some(found) = self.files.get_mut(&file) {
            found.verification = verification;
        }
    }

    /// What a file takes on the disk. `None`: it has nothing there.
    pub fn file_bytes(&self, file: FileKey) -> Option<u64> {
        self.files.get(&file).map(|file| file.bytes)
    }

    /// Chunks with their blocks, from the oldest to the newest.
    pub fn iter(&self) -> impl Iterator<Item = Blocks> {
        let mut next = self.oldest;
        std::iter::from_fn(move || {
            let slot = &self.slots[next? as usize];
            next = slot.newer;
            Some(Blocks::new(slot.key, slot.mask))
        })
    }

    /// What all blocks take on the disk.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many blocks there are.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// How many chunks have blocks.
    pub fn chunks(&self) -> u64 {
        self.chunks.len() as u64
    }

    /// Walks every invariant and panics on a broken one.
    pub fn check(&self) {
        let mut files: FxHashMap<FileKey, FileUse> = FxHashMap::default();
        let (mut bytes, mut blocks, mut count) = (0, 0, 0);
        let (mut older, mut next) = (None, self.oldest);
        while let Some(number) = next {
            let slot = &self.slots[number as usize];
            assert_eq!(slot.older, older, "the queue's links agree");
            assert_eq!(self.chunks.get(&slot.key), Some(&number));
            assert_ne!(slot.mask, 0, "no chunk is empty");
            assert_eq!(slot.mask.count_ones() as usize, slot.entries.len());
            let own = slot.entries.iter().map(|it| allocated(it.bytes));
            let own: u64 = own.sum();
            let file = files.entry(slot.key.file).or_default();
            file.chunks += 1;
            file.blocks += slot.entries.len() as u64;
            file.bytes += own;
            bytes += own;
            blocks += slot.entries.len() as u64;
            count += 1;
            (older, next) = (next, slot.newer);
        }
        assert_eq!(self.newest, older);
        assert_eq!(count, self.chunks.len());
        assert_eq!(count + self.free.len(), self.slots.len());
        for (key, file) in &mut files {
            file.verification = self.files[key].verification;
        }
        assert_eq!(self.files, files);
        assert!(self.holds.values().all(|&count| count > 0));
        let held = self.holds.keys().map(|&file| self.file_chunks(file));
        assert_eq!(self.held_chunks, held.sum::<u64>());
        assert_eq!((self.bytes, self.blocks), (bytes, blocks));
        if let Some(hand) = self.hand {
            assert!(!self.free.contains(&hand), "the hand is at a chunk");
        }
    }
}

#[cfg(test)]
mod tests;
