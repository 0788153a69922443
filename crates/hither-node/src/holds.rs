//! Files that memory and disk hold: how much that may be, and until when.

use std::sync::{Arc, Weak};

use crate::key::{BlockKey, FileKey};
use crate::node::{HeldBytes, Node};
use crate::protocol::Blocks;
use crate::store::disk::tier::{self, DiskTier};
use crate::store::memory::Evicted;

/// What may be held of the memory for resident blocks, in eighths. Less than what each shard can
/// hold, since files do not spread over the shards quite evenly.
const HELD_EIGHTHS: u64 = 7;

/// What may be pinned of it, and of the disk.
const PINNED_EIGHTHS: u64 = 4;

/// How long a file is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldKind {
    /// While others beside it are warmed.
    Warmed,
    /// Until it is unpinned.
    Pinned,
}

/// No block of the file leaves the memory until this is dropped.
#[derive(Debug)]
pub struct Hold {
    node: Weak<Node>,
    file: FileKey,
    blocks: u32,
    bytes: u64,
    kind: HoldKind,
}

impl Hold {
    /// The file.
    pub fn file(&self) -> FileKey {
        self.file
    }

    /// What it may take.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let Some(node) = self.node.upgrade() else {
            return;
        };
        let mut evicted = Evicted::new();
        node.store.release(self.file, self.blocks, &mut evicted);
        node.note_evicted(evicted);
        let mut held = node.held.lock();
        held.all -= self.bytes;
        if self.kind == HoldKind::Pinned {
            held.pinned -= self.bytes;
        }
    }
}

/// No block of a pinned file leaves the disk until this is dropped.
pub struct DiskHold {
    node: Weak<Node>,
    bytes: u64,
    _hold: tier::Hold,
}

impl Drop for DiskHold {
    fn drop(&mut self) {
        if let Some(node) = self.node.upgrade() {
            node.held.lock().pinned_disk -= self.bytes;
        }
    }
}

impl Node {
    /// Holds a file of `bytes`. `None` if there is no room for it: see
    /// [`room_to_hold`](Self::room_to_hold).
    pub fn hold(self: &Arc<Self>, file: FileKey, bytes: u64, kind: HoldKind) -> Option<Hold> {
        let footprint = self.store.footprint(bytes);
        {
            let mut held = self.held.lock();
            if footprint > self.room(&held, kind) {
                return None;
            }
            held.all += footprint;
            if kind == HoldKind::Pinned {
                held.pinned += footprint;
            }
        }
        let blocks = bytes.div_ceil(u64::from(self.settings().block_bytes)) as u32;
        let mut evicted = Evicted::new();
        self.store.hold(file, blocks, &mut evicted);
        self.note_evicted(evicted);
        Some(Hold {
            node: Arc::downgrade(self),
            file,
            blocks,
            bytes: footprint,
            kind,
        })
    }

    /// What more may be held.
    pub fn room_to_hold(&self, kind: HoldKind) -> u64 {
        self.room(&self.held.lock(), kind)
    }

    fn room(&self, held: &HeldBytes, kind: HoldKind) -> u64 {
        let resident = self.store.resident_bytes_max();
        let room = (resident / 8 * HELD_EIGHTHS).saturating_sub(held.all);
        match kind {
            HoldKind::Warmed => room,
            HoldKind::Pinned => room.min(self.pinned_bytes_max().saturating_sub(held.pinned)),
        }
    }

    /// Holds a file of `bytes` on the disk, to be pinned. `None` if there is no disk, or no room
    /// for it: see [`room_to_pin_on_disk`](Self::room_to_pin_on_disk).
    pub fn hold_on_disk(self: &Arc<Self>, file: FileKey, bytes: u64) -> Option<DiskHold> {
        let (disk, bytes) = (self.disk()?, DiskTier::footprint(bytes));
        let max = self.pinned_disk_bytes_max();
        let mut held = self.held.lock();
        if held.pinned_disk + bytes > max {
            return None;
        }
        held.pinned_disk += bytes;
        Some(DiskHold {
            node: Arc::downgrade(self),
            bytes,
            _hold: disk.hold(file),
        })
    }

    /// What more may be pinned on the disk.
    pub fn room_to_pin_on_disk(&self) -> u64 {
        let max = self.pinned_disk_bytes_max();
        max.saturating_sub(self.held.lock().pinned_disk)
    }

    /// What is pinned on the disk.
    pub fn pinned_disk_bytes(&self) -> u64 {
        self.held.lock().pinned_disk
    }

    /// What may be pinned on the disk: half of what it may take.
    pub fn pinned_disk_bytes_max(&self) -> u64 {
        let limit = self.disk().map_or(0, |it| it.usage().limit_bytes);
        limit / 8 * PINNED_EIGHTHS
    }

    /// What is pinned of the memory.
    pub fn pinned_bytes(&self) -> u64 {
        self.held.lock().pinned
    }

    /// What may be pinned of the memory: half of the memory for resident blocks.
    pub fn pinned_bytes_max(&self) -> u64 {
        self.store.resident_bytes_max() / 8 * PINNED_EIGHTHS
    }

    /// Tells the protocol of what the memory has evicted.
    pub(crate) fn note_evicted(self: &Arc<Self>, evicted: Evicted) {
        for (key, _) in evicted {
            self.note_block_dropped(key);
        }
    }

    /// Tells the protocol of a block that memory or disk has dropped.
    pub(crate) fn note_block_dropped(self: &Arc<Self>, key: BlockKey) {
        let (chunk, mask) = key.in_chunk();
        self.note_dropped(Blocks::new(chunk, mask));
    }
}
