//! The memory tier: blocks in an [`Arena`] of frames, ranked by a replacement policy of the core.
//!
//! A frame holds one block, or many small ones: blocks of at most half a frame, the ends of files
//! and small files, share a frame in the order in which they come in, and leave together. The
//! policy ranks frames. So its slots are all alike, nothing fragments, and a tree of small files
//! takes the memory that it is long.
//!
//! All memory is the arena's, whatever it is used for: blocks that are being filled, blocks that
//! readers still hold after their eviction, and resident ones. The last may be 7/8 of it
//! (`SPARE`); without a free frame nothing is filled ([`MemoryStore::fill`] says so).
//!
//! Files can be held ([`MemoryStore::hold`]): the policy does not know of the frames of their
//! blocks, so nothing evicts them. A sixteenth of each shard stays with the policy. Small blocks of
//! held files share frames among themselves.
//!
//! The store is cut into shards by block, each with a lock and a policy of its own. A lock is held
//! for a look-up, or for the copy of a small block: never while a frame is filled or read.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use hither_core::registry::ReplacementSettings;
use hither_core::{Access, Block, NEVER, Object, Op, ReplacementPolicy, Slot, Spec};
use hither_kernel::arena::{Arena, Frame};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use super::ids::BlockIds;
use crate::key::{BlockKey, FileKey};
use crate::protocol::Frames;

/// The part of the arena that is kept for what is being filled, and for what is still read after
/// its eviction: one in so many frames.
const SPARE: u32 = 8;

/// The part of a shard's frames that the policy keeps whatever is held: one in so many.
const UNHELD: u32 = 16;

/// Frames of a shard, at least: below, a policy's queues have too few slots to mean much.
const SHARD_FRAMES_MIN: u32 = 256;

/// Blocks of a shard whose reads are counted between two calls of
/// [`take_reads`](MemoryStore::take_reads), at most.
const READ_BLOCKS_MAX: usize = 1 << 16;

/// Shards, at most: beyond, they rarely meet on one lock.
const SHARDS_MAX: u32 = 16;

/// Why there is no such store.
#[derive(Debug, thiserror::Error)]
pub enum MemoryStoreError {
    /// Too little memory.
    #[error("a memory of {bytes} bytes is too small: blocks of {block_bytes} need {least}")]
    TooSmall {
        /// What was asked for.
        bytes: u64,
        /// Length of a block.
        block_bytes: u32,
        /// What is needed at least.
        least: u64,
    },
    /// The system does not have so much.
    #[error("cannot reserve {bytes} bytes of memory: {error}")]
    NoMemory {
        /// What was asked for.
        bytes: u64,
        /// What the system says.
        error: io::Error,
    },
    /// A policy that needs to know what a node does not see.
    #[error("policy {policy} needs {needs}, which a node does not see")]
    Policy {
        /// The policy's name.
        policy: &'static str,
        /// What it needs.
        needs: &'static str,
    },
}

/// See the module.
pub struct MemoryStore {
    arena: Arena,
    shards: Box<[Mutex<Shard>]>,
    /// Frames that fills may take at the same time and that prefetches leave to others.
    spare: usize,
    counts_reads: AtomicBool,
}

/// What a block was evicted for, or removed: its key and its bytes, as long as somebody holds them.
pub type Evicted = Vec<(BlockKey, Bytes)>;

impl MemoryStore {
    /// A store of `bytes` in all, for blocks of at most `block_bytes`.
    ///
    /// # Errors
    /// See [`MemoryStoreError`].
    pub fn new(bytes: u64, block_bytes: u32, policy: &Spec) -> Result<Self, MemoryStoreError> {
        let needs = policy.entry().needs;
        let unseen = [
            (needs.future, "the future"),
            (needs.sites, "call sites"),
            (needs.processes, "processes"),
        ];
        if let Some(&(_, needs)) = unseen.iter().find(|(needed, _)| *needed) {
            let policy = policy.entry().name;
            return Err(MemoryStoreError::Policy { policy, needs });
        }
        let frames = u32::try_from(bytes / u64::from(block_bytes)).unwrap_or(u32::MAX);
        if frames < 2 * SPARE {
            return Err(MemoryStoreError::TooSmall {
                bytes,
                block_bytes,
                least: u64::from(2 * SPARE) * u64::from(block_bytes),
            });
        }
        let arena = Arena::new(frames, block_bytes as usize)
            .map_err(|error| MemoryStoreError::NoMemory { bytes, error })?;
        let spare = frames / SPARE;
        let shards = ((frames - spare) / SHARD_FRAMES_MIN).clamp(1, SHARDS_MAX);
        let capacity = (frames - spare) / shards;
        Ok(MemoryStore {
            arena,
            shards: (0..shards)
                .map(|_| Mutex::new(Shard::new(capacity, policy)))
                .collect(),
            spare: spare as usize,
            counts_reads: AtomicBool::new(false),
        })
    }

    fn shard(&self, key: &BlockKey) -> &Mutex<Shard> {
        // The file's key is a cryptographic hash. Successive blocks go to successive shards.
        let at = (key.file.0 as u64).wrapping_add(u64::from(key.index)) % self.shards.len() as u64;
        &self.shards[at as usize]
    }

    /// The block, if it is here. The policy hears of it.
    pub fn get(&self, key: &BlockKey) -> Option<Bytes> {
        self.shard(key).lock().get(key, false)
    }

    /// The same for a reader of this node, which is counted if reads are.
    pub fn read(&self, key: &BlockKey) -> Option<Bytes> {
        let counts = self.counts_reads.load(Ordering::Relaxed);
        self.shard(key).lock().get(key, counts)
    }

    /// Counts reads from now on, or no longer.
    pub fn count_reads(&self, counts: bool) {
        self.counts_reads.store(counts, Ordering::Relaxed);
    }

    /// The blocks that were read since the last call, and how often. Those that have left are not
    /// among them.
    pub fn take_reads(&self) -> Vec<(BlockKey, u8)> {
        let mut reads = Vec::new();
        for shard in &self.shards {
            shard.lock().take_reads(&mut reads);
        }
        reads
    }

    /// All frames that may be resident, and those of them that are free.
    pub fn frames(&self) -> Frames {
        let mut frames = Frames::default();
        for shard in &self.shards {
            let shard = shard.lock();
            frames.all += shard.capacity;
            frames.free += shard.capacity - (shard.slots.len() - shard.free.len()) as u32;
        }
        frames
    }

    /// The block, if it is here. The policy does not hear of it: for a reader that goes on within a
    /// block, and for what serves no reader.
    pub fn peek(&self, key: &BlockKey) -> Option<Bytes> {
        let shard = self.shard(key).lock();
        shard.places.get(key).map(|place| place.data.clone())
    }

    /// Whether the block is here.
    pub fn contains(&self, key: &BlockKey) -> bool {
        self.shard(key).lock().places.contains_key(key)
    }

    /// Memory for a block of `bytes` that is about to arrive. `None` if all frames are in use, or
    /// if few are left and the block is only a prefetch.
    ///
    /// # Panics
    /// If `bytes` is more than a block.
    pub fn fill(&self, key: BlockKey, bytes: usize, prefetch: bool) -> Option<Filling> {
        assert!(bytes <= self.arena.frame_bytes(), "longer than a block");
        if prefetch && self.arena.free() <= self.spare / 2 {
            return None;
        }
        let memory = if self.is_small(bytes) {
            Memory::Small(Vec::with_capacity(bytes))
        } else {
            Memory::Frame(self.arena.take()?.split_to(bytes))
        };
        Some(Filling {
            key,
            memory,
            filled: 0,
            bytes,
        })
    }

    /// Frames that are never resident: for what arrives, and for what is read after its eviction.
    pub fn spare_frames(&self) -> usize {
        self.spare
    }

    fn is_small(&self, bytes: usize) -> bool {
        bytes <= self.arena.frame_bytes() / 2
    }

    /// Takes in a block that is filled, evicting what must go for it. Returns the block's bytes,
    /// and adds what was evicted to `evicted`. A block that has `moved` here from another member's
    /// memory is no newcomer to the policy.
    ///
    /// # Panics
    /// If the block is not filled.
    pub fn insert(&self, filling: Filling, moved: bool, evicted: &mut Evicted) -> Bytes {
        assert_eq!(filling.filled, filling.bytes, "a block that is not filled");
        let key = filling.key;
        let mut shard = self.shard(&key).lock();
        if let Some(place) = shard.places.get(&key) {
            return place.data.clone();
        }
        match filling.memory {
            Memory::Frame(frame) => {
                let data = Bytes::from_owner(frame);
                shard.insert_whole(key, data.clone(), moved, evicted);
                data
            }
            Memory::Small(data) => shard.insert_small(key, data, &self.arena, evicted),
        }
    }

    /// Removes a block, if it is here.
    pub fn remove(&self, key: &BlockKey) -> Option<Bytes> {
        self.shard(key).lock().remove(key)
    }

    /// The same, unless its file is held.
    pub fn remove_unless_held(&self, key: &BlockKey) -> Option<Bytes> {
        let mut shard = self.shard(key).lock();
        if shard.held.contains_key(&key.file) {
            None
        } else {
            shard.remove(key)
        }
    }

    /// Holds a file of so many blocks: those that are here, and those that come, are not evicted
    /// until it has been [released](Self::release) as often. Blocks beyond what a shard may hold
    /// are as those of other files. Adds what was evicted to `evicted`.
    pub fn hold(&self, file: FileKey, blocks: u32, evicted: &mut Evicted) {
        for shard in &self.shards {
            *shard.lock().held.entry(file).or_default() += 1;
        }
        self.regroup_all(file, blocks, evicted);
    }

    /// Takes back one [`hold`](Self::hold) of a file.
    ///
    /// # Panics
    /// If the file is not held.
    pub fn release(&self, file: FileKey, blocks: u32, evicted: &mut Evicted) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            let holds = shard.held.get_mut(&file).expect("a file that is held");
            *holds -= 1;
            if *holds == 0 {
                shard.held.remove(&file);
            }
        }
        self.regroup_all(file, blocks, evicted);
    }

    fn regroup_all(&self, file: FileKey, blocks: u32, evicted: &mut Evicted) {
        for index in 0..blocks {
            let key = BlockKey { file, index };
            self.shard(&key).lock().regroup(key, &self.arena, evicted);
        }
    }

    /// What resident blocks may take in all: whole frames.
    pub fn resident_bytes_max(&self) -> u64 {
        let frames = self.shards.len() as u64 * u64::from(self.shards[0].lock().capacity);
        frames * self.arena.frame_bytes() as u64
    }

    /// What the blocks of a file of `bytes` take: a small one at its end shares a frame.
    pub fn footprint(&self, bytes: u64) -> u64 {
        let frame = self.arena.frame_bytes() as u64;
        let rest = bytes % frame;
        if self.is_small(rest as usize) {
            bytes
        } else {
            bytes - rest + frame
        }
    }

    /// Blocks in the store, and their length in all.
    pub fn usage(&self) -> MemoryUsage {
        let mut usage = MemoryUsage {
            frames_free: self.arena.free(),
            ..MemoryUsage::default()
        };
        for shard in &self.shards {
            let shard = shard.lock();
            usage.blocks += shard.places.len();
            usage.bytes += shard.bytes;
            usage.held_bytes += shard.held_bytes;
        }
        usage
    }

    /// The keys of all blocks: a snapshot of one shard after the other.
    pub fn keys(&self) -> Vec<BlockKey> {
        let mut keys = Vec::new();
        for shard in &self.shards {
            keys.extend(shard.lock().places.keys());
        }
        keys
    }

    /// Panics on a broken invariant.
    pub fn check(&self) {
        for shard in &self.shards {
            shard.lock().check();
        }
    }
}

/// How much is in a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUsage {
    /// Blocks.
    pub blocks: usize,
    /// Their length in all.
    pub bytes: u64,
    /// Of these, bytes that are not evicted: their files are held.
    pub held_bytes: u64,
    /// Frames of the arena that nobody has.
    pub frames_free: usize,
}

/// A block that is arriving: see [`MemoryStore::fill`]. Dropped, its memory comes back.
#[derive(Debug)]
pub struct Filling {
    key: BlockKey,
    memory: Memory,
    filled: usize,
    bytes: usize,
}

#[derive(Debug)]
enum Memory {
    Frame(Frame),
    /// A block that will share a frame: it is copied there when it is complete, since nobody may
    /// read a part of a frame that is written.
    Small(Vec<u8>),
}

impl Filling {
    /// The block.
    pub fn key(&self) -> BlockKey {
        self.key
    }

    /// Bytes that are still missing.
    pub fn missing(&self) -> usize {
        self.bytes - self.filled
    }

    /// Adds the beginning of `data`, as much as is missing, and returns the rest.
    pub fn write<'a>(&mut self, data: &'a [u8]) -> &'a [u8] {
        let (now, rest) = data.split_at(data.len().min(self.missing()));
        match &mut self.memory {
            Memory::Frame(frame) => {
                frame.as_mut()[self.filled..self.filled + now.len()].copy_from_slice(now);
            }
            Memory::Small(memory) => memory.extend_from_slice(now),
        }
        self.filled += now.len();
        rest
    }

    /// The memory of an empty block, to be filled at once: what reads straight into it calls
    /// [`set_filled`](Self::set_filled) then.
    ///
    /// # Panics
    /// If a part was written already.
    pub fn memory(&mut self) -> &mut [u8] {
        assert_eq!(self.filled, 0, "a part was written already");
        match &mut self.memory {
            Memory::Frame(frame) => frame.as_mut(),
            Memory::Small(memory) => {
                memory.resize(self.bytes, 0);
                memory
            }
        }
    }

    /// All of [`memory`](Self::memory) has its bytes.
    pub fn set_filled(&mut self) {
        self.filled = self.bytes;
    }
}

struct Shard {
    places: FxHashMap<BlockKey, Place>,
    /// Blocks with reads that were not asked for yet, each once while it stays.
    read: Vec<BlockKey>,
    /// Length of all blocks.
    bytes: u64,
    policy: Box<dyn ReplacementPolicy>,
    ids: BlockIds,
    /// By slot of the policy.
    slots: Vec<Contents>,
    free: Vec<u32>,
    capacity: u32,
    /// The slots whose frames have room for small blocks, and that room: one with the policy, and
    /// one that is held.
    open: [Option<(u32, Frame)>; 2],
    /// Files that are held, and how often.
    held: FxHashMap<FileKey, u32>,
    /// By slot: whether the policy does not know of it, since it is held.
    is_held: Vec<bool>,
    held_frames: u32,
    held_bytes: u64,
    tick: u64,
}

struct Place {
    slot: u32,
    /// Reads that were counted and not asked for yet.
    reads: u8,
    data: Bytes,
}

enum Contents {
    Nothing,
    Whole(BlockKey),
    Shared { id: Block, blocks: Vec<BlockKey> },
}

impl Shard {
    fn new(capacity: u32, policy: &Spec) -> Shard {
        Shard {
            places: FxHashMap::default(),
            read: Vec::new(),
            bytes: 0,
            policy: policy.build(&ReplacementSettings::new(capacity)),
            ids: BlockIds::new(capacity),
            slots: Vec::new(),
            free: Vec::new(),
            capacity,
            open: [None, None],
            held: FxHashMap::default(),
            is_held: Vec::new(),
            held_frames: 0,
            held_bytes: 0,
            tick: 0,
        }
    }

    fn access(&mut self, block: Block, object: Object, index: u32) -> Access {
        self.tick += 1;
        Access {
            object,
            index,
            next: NEVER,
            op: Op::Read,
            ..Access::bare(self.tick, block)
        }
    }

    /// The block. A read of it `counts`, or is none of a reader here.
    fn get(&mut self, key: &BlockKey, counts: bool) -> Option<Bytes> {
        let place = self.places.get_mut(key)?;
        if counts && (place.reads > 0 || self.read.len() < READ_BLOCKS_MAX) {
            if place.reads == 0 {
                self.read.push(*key);
            }
            place.reads = place.reads.saturating_add(1);
        }
        let (slot, data) = (place.slot, place.data.clone());
        if self.is_held[slot as usize] {
            return Some(data);
        }
        let (block, object) = match &self.slots[slot as usize] {
            Contents::Shared { id, .. } => (*id, Object(0)),
            _ => self.ids.get(key),
        };
        let access = self.access(block, object, key.index);
        self.policy.hit(Slot(slot), &access);
        Some(data)
    }

    fn take_reads(&mut self, reads: &mut Vec<(BlockKey, u8)>) {
        for key in self.read.drain(..) {
            if let Some(place) = self.places.get_mut(&key)
                && place.reads > 0
            {
                reads.push((key, std::mem::take(&mut place.reads)));
            }
        }
    }

    /// A slot for a frame that comes in with `access`.
    fn slot(&mut self, access: &Access, evicted: &mut Evicted) -> u32 {
        if let Some(slot) = self.free.pop() {
            return slot;
        }
        if self.slots.len() < self.capacity as usize {
            self.slots.push(Contents::Nothing);
            self.is_held.push(false);
            return self.slots.len() as u32 - 1;
        }
        let slot = self.policy.victim(access).0;
        self.empty(slot, evicted);
        slot
    }

    /// Whether a frame of this file is to be held, and may be.
    fn may_hold(&self, file: &FileKey) -> bool {
        let held_max = self.capacity - (self.capacity / UNHELD).max(1);
        self.held_frames < held_max && self.held.contains_key(file)
    }

    /// A frame came into `slot`. Policies expect each to be inserted for which they chose a victim,
    /// so one that is held comes and goes.
    fn enter(&mut self, slot: u32, is_held: bool, access: &Access) {
        self.policy.inserted(Slot(slot), access);
        if is_held {
            self.hold(slot);
        }
    }

    /// Takes a frame away from the policy.
    fn hold(&mut self, slot: u32) {
        self.policy.removed(Slot(slot));
        self.is_held[slot as usize] = true;
        self.held_frames += 1;
        self.policy.resized(self.capacity - self.held_frames);
    }

    /// A frame is held no longer. The policy does not know of it yet.
    fn release(&mut self, slot: u32) {
        self.is_held[slot as usize] = false;
        self.held_frames -= 1;
        self.policy.resized(self.capacity - self.held_frames);
    }

    /// Closes the frame in `slot`, if it has room for small blocks.
    fn close(&mut self, slot: u32) {
        for open in &mut self.open {
            if open.as_ref().is_some_and(|(number, _)| *number == slot) {
                *open = None;
            }
        }
    }

    /// Gives a block to the policy, or takes it away from there, as its file is held or not.
    fn regroup(&mut self, key: BlockKey, arena: &Arena, evicted: &mut Evicted) {
        let Some(place) = self.places.get(&key) else {
            return;
        };
        let (slot, bytes) = (place.slot, place.data.len() as u64);
        let is_held = self.is_held[slot as usize];
        let is_wrong = if is_held {
            !self.held.contains_key(&key.file)
        } else {
            self.may_hold(&key.file)
        };
        if !is_wrong {
            return;
        }
        let is_whole = matches!(self.slots[slot as usize], Contents::Whole(_));
        if is_whole && is_held {
            self.release(slot);
            self.held_bytes -= bytes;
            let (block, object) = self.ids.get(&key);
            let access = self.access(block, object, key.index);
            self.policy.inserted(Slot(slot), &access);
        } else if is_whole {
            self.hold(slot);
            self.held_bytes += bytes;
        } else if let Some(data) = self.remove(&key) {
            // The others in its frame stay where they are.
            self.insert_small(key, data.to_vec(), arena, evicted);
            if !self.places.contains_key(&key) {
                evicted.push((key, data));
            }
        }
    }

    /// Takes out what is in a slot that the policy has let go.
    fn empty(&mut self, slot: u32, evicted: &mut Evicted) {
        self.close(slot);
        match std::mem::replace(&mut self.slots[slot as usize], Contents::Nothing) {
            Contents::Nothing => unreachable!("a policy let an empty slot go"),
            Contents::Whole(key) => {
                self.ids.evict(key);
                let place = self.take_place(&key).expect("a slot's block has a place");
                evicted.push((key, place.data));
            }
            Contents::Shared { id, blocks } => {
                self.ids.evict_shared(id);
                for key in blocks {
                    let place = self.take_place(&key).expect("a slot's block has a place");
                    evicted.push((key, place.data));
                }
            }
        }
    }

    fn insert_whole(&mut self, key: BlockKey, data: Bytes, moved: bool, evicted: &mut Evicted) {
        let (block, object) = self.ids.insert(key);
        let access = self.access(block, object, key.index);
        let slot = self.slot(&access, evicted);
        self.slots[slot as usize] = Contents::Whole(key);
        let is_held = self.may_hold(&key.file);
        if moved && !is_held {
            self.policy.moved_in(Slot(slot), &access)
        } else {
            self.enter(slot, is_held, &access)
        }
        self.put_place(
            key,
            Place {
                slot,
                reads: 0,
                data,
            },
        );
    }

    /// Copies a small block into the frame that is open, or into a new one. Without any frame it
    /// is not kept.
    fn insert_small(
        &mut self,
        key: BlockKey,
        data: Vec<u8>,
        arena: &Arena,
        evicted: &mut Evicted,
    ) -> Bytes {
        let has_room = |open: &Option<(u32, Frame)>| {
            let room = open.as_ref().map(|(_, frame)| frame.as_ref().len());
            room.is_some_and(|room| room >= data.len())
        };
        let is_held = self.held.contains_key(&key.file)
            && (has_room(&self.open[1]) || self.may_hold(&key.file));
        let side = usize::from(is_held);
        if !has_room(&self.open[side]) {
            let Some(frame) = arena.take() else {
                return data.into();
            };
            let id = self.ids.insert_shared();
            let access = self.access(id, Object(0), 0);
            let slot = self.slot(&access, evicted);
            self.slots[slot as usize] = Contents::Shared {
                id,
                blocks: Vec::new(),
            };
            self.enter(slot, is_held, &access);
            self.open[side] = Some((slot, frame));
        }
        let (slot, frame) = self.open[side].as_mut().expect("opened above");
        let mut part = frame.split_to(data.len());
        part.as_mut().copy_from_slice(&data);
        let data = Bytes::from_owner(part);
        let slot = *slot;
        if let Contents::Shared { blocks, .. } = &mut self.slots[slot as usize] {
            blocks.push(key);
        }
        let place = Place {
            slot,
            reads: 0,
            data: data.clone(),
        };
        self.put_place(key, place);
        data
    }

    fn put_place(&mut self, key: BlockKey, place: Place) {
        self.bytes += place.data.len() as u64;
        if self.is_held[place.slot as usize] {
            self.held_bytes += place.data.len() as u64;
        }
        self.places.insert(key, place);
    }

    fn take_place(&mut self, key: &BlockKey) -> Option<Place> {
        let place = self.places.remove(key)?;
        self.bytes -= place.data.len() as u64;
        if self.is_held[place.slot as usize] {
            self.held_bytes -= place.data.len() as u64;
        }
        Some(place)
    }

    fn remove(&mut self, key: &BlockKey) -> Option<Bytes> {
        let Place { slot, data, .. } = self.take_place(key)?;
        match &mut self.slots[slot as usize] {
            Contents::Nothing => unreachable!("a block lies in an empty slot"),
            Contents::Whole(_) => self.ids.evict(*key),
            Contents::Shared { id, blocks } => {
                blocks.retain(|block| block != key);
                if !blocks.is_empty() {
                    return Some(data);
                }
                self.ids.evict_shared(*id);
                self.close(slot);
            }
        }
        self.slots[slot as usize] = Contents::Nothing;
        if self.is_held[slot as usize] {
            self.release(slot)
        } else {
            self.policy.removed(Slot(slot))
        }
        self.free.push(slot);
        Some(data)
    }

    fn check(&self) {
        let mut blocks = 0;
        for (slot, contents) in (0..).zip(&self.slots) {
            let keys: &[BlockKey] = match contents {
                Contents::Nothing => {
                    assert!(self.free.contains(&slot), "slot {slot} is lost");
                    &[]
                }
                Contents::Whole(key) => std::slice::from_ref(key),
                Contents::Shared { blocks, .. } => {
                    assert!(!blocks.is_empty(), "slot {slot} holds nothing");
                    blocks
                }
            };
            blocks += keys.len();
            assert!(keys.iter().all(|key| self.places[key].slot == slot));
        }
        assert_eq!(blocks, self.places.len());
        let lengths = self.places.values().map(|place| place.data.len() as u64);
        assert_eq!(lengths.sum::<u64>(), self.bytes);
        assert!(self.slots.len() <= self.capacity as usize);
        let is_held = |place: &&Place| self.is_held[place.slot as usize];
        let held = self.places.values().filter(is_held);
        let held = held.map(|place| place.data.len() as u64);
        assert_eq!(held.sum::<u64>(), self.held_bytes);
        let held_frames = self.is_held.iter().filter(|&&is_held| is_held).count();
        assert_eq!(held_frames, self.held_frames as usize);
        assert!(self.held_frames < self.capacity, "the policy has no frame");
        let in_use = self.slots.len() - self.free.len();
        self.policy.check(in_use - held_frames);
        self.ids.check();
    }
}

#[cfg(test)]
mod tests;
