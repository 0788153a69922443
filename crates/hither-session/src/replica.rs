//! Replicas of files' blocks in shared memory: an agent fills them, programs copy them, and neither
//! waits for the other.
//!
//! There are two kinds of nameless files (memfd), which only the agent can write. The *control*
//! says where everything is. An *arena* for each node, bound to that node, has slots of one block
//! each. A program maps all of them read-only when it starts, through `/proc/AGENT/fd`, which the
//! kernel shows to programs of the same user only. Nothing has a name, so nothing is left behind.
//!
//! **What a program checks** (`view`). Once it has found the slots of the blocks that it needs,
//! with their versions, and before it copies them:
//!
//! - the *lease process* ([`crate::lease_process`]) is *alive*: that word is a robust futex (robust
//!   futex ABI, Documentation/locking/robust-futex-ABI.rst). The kernel marks it when the thread
//!   that holds it ends, and does so (`exit_mm`) before it closes the process's files
//!   (`exit_files`), which releases the leases. The process has no other thread;
//! - the time is before `fresh_until_ns`: a frozen process releases nothing, and the kernel takes
//!   its leases away after `fs.lease-break-time`. The lease process advances it each time it has
//!   checked every lease;
//! - the file's *epoch* is the one that the descriptor was matched with: no lease on it was broken
//!   since. The lease process makes it odd before it releases the lease, and so before any writer
//!   is let in. After the end of one lease process the agent ends every epoch before it starts the
//!   next.
//!
//! After the kernel has copied them for it ([`view::View::read`]):
//!
//! - each slot's *version* is the odd one that was found: the slot was not given to another block
//!   meanwhile.
//!
//! When the first three were checked, no writer had been let in since the blocks were filled. So
//! the slots then held what a read at that moment would have returned, and the fourth check proves
//! that this is what was copied. A writer that comes during the copy comes after that moment.
//! Repeating the first three checks after the copy would prove nothing more, and would discard
//! valid copies; a copy in vain has already written to the program's buffer.
//!
//! **Order.** A filler makes the version even, writes the slot, makes the version odd (release),
//! and enters the slot into the directory (release). A reader loads directory and version, then
//! futex, time and epoch (each with acquire, so in that order), copies, fences (acquire), and loads
//! the version again. Whatever is filled into a slot after a lease was released comes after the odd
//! epoch, through the kernel's own locks: a reader that finds it in the directory also finds that
//! epoch.
//!
//! **Lending** ([`view::View::lend`]): a program may have the kernel refer to a slot's pages rather
//! than copy them, to send them. They are then on their way through sockets for as long as the
//! peers take. So from the first such request on, a slot's memory is given back to the kernel
//! before the slot is used again: then whatever refers to the old pages has them to itself, with
//! their content. They are single pages: of a large page the kernel could give back no part that is
//! referred to, and would clear it.

pub mod agent;
pub mod view;

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

use hither_kernel::page_bytes;
use hither_kernel::syscalls;

use hither_kernel::file_id::FileId;

/// The size of a block. The same as for steering the page cache: with blocks of a page there would
/// be four times the checks.
pub const BLOCK_BYTES: u64 = 1 << BLOCK_SHIFT;
const BLOCK_SHIFT: u32 = 14;

/// Reads that get fewer bytes are left to the kernel. What proves that a read may be served, and
/// has the kernel copy, takes four system calls. A read of 64 KiB from near memory then takes 1.3
/// times as long as the page cache's, one of 32 KiB 1.4 and of 16 KiB 1.9 times: far memory has to
/// cost more than that (2026-11; the table is in docs/results/replication.md).
pub const READ_BYTES_MIN: usize = 64 << 10;

/// Flag of a recorded access, beside [`crate::record::IN_KERNEL`]: a replica served it and the
/// accesses that it stands for. Of a thread's served accesses one in [`SERVED_EACH`] is recorded,
/// since recording takes as long as serving.
pub const SERVED: u16 = 2;

/// See [`SERVED`].
pub const SERVED_EACH: u32 = 16;

/// Flag of a recorded access, beside [`crate::record::IN_KERNEL`]: replicas served it, or could
/// have. It is a read of [`READ_BYTES_MIN`] or a send of [`LENT_BYTES_MIN`] bytes at least.
pub const SERVABLE: u16 = 4;

/// The least size of a send that replicas serve. Single pages and a pipe make a send of 128 KiB
/// 5 us slower than the kernel's 8 us, or 14 us slower than its 25 us where the processor's cache
/// holds none of it (compared with ext4 and its large folios, 2026-11). The pipe takes 2 us of
/// that, which smaller sends never earn.
pub const LENT_BYTES_MIN: usize = 128 << 10;

/// The most nodes.
pub const NODES_MAX: usize = 16;

/// The most files with replicas at a time.
pub(crate) const FILES_MAX: usize = 4096;

/// A file is in one of this many places, which follow from its identity.
const FILE_PROBES: usize = 8;

/// CPUs whose node is known; those beyond count as the first.
const CPUS_MAX: usize = 4096;

/// Entries of the directory, of which each block of a file and node has one: so many for each slot,
/// so that files of so many times the memory of their replicas may have some. At 4 bytes each. Only
/// the used ones take memory, but all take address space of each program.
const DIRECTORY_ENTRIES_PER_SLOT: usize = 64;
const DIRECTORY_ENTRIES_MIN: usize = 1 << 20;
const DIRECTORY_ENTRIES_MAX: usize = 1 << 27;

/// Room for the header.
const HEADER_BYTES: usize = 4096;

/// "replica" and the layout's version.
const MAGIC: u64 = u64::from_be_bytes(*b"replica\x04");

/// linux/futex.h.
const FUTEX_TID_MASK: u32 = 0x3fff_ffff;

/// What a program checks with every block.
#[repr(C, align(64))]
#[derive(Debug)]
struct Pulse {
    /// The process that holds the leases; 0 before there is one. The kernel marks it when the
    /// process has ended.
    alive: AtomicU32,
    /// The CLOCK_MONOTONIC_COARSE until which replicas may be relied on.
    fresh_until_ns: AtomicU64,
    /// Counts the files that got an epoch.
    published: AtomicU64,
}

/// linux/futex.h, `struct robust_list_head` and its one entry. In shared memory, since the kernel
/// may give back a killed process's private memory before it looks at this.
#[repr(C)]
#[derive(Debug)]
struct Robust {
    first: AtomicU64,
    futex_offset: AtomicU64,
    pending: AtomicU64,
    entry: AtomicU64,
}

#[repr(C)]
#[derive(Debug)]
struct Header {
    /// Written last.
    magic: AtomicU64,
    /// A random number that the session has, too: a process with the agent's id may be another one
    /// by now.
    nonce: AtomicU64,
    nodes: AtomicU32,
    /// Of each node.
    slots: AtomicU32,
    /// Not 0 once slots may be lent: from then on none is written to that was.
    lends: AtomicU32,
    /// Counts the files whose replicas the holder of the leases has ended, for the agent.
    ended: AtomicU64,
    /// The agent's descriptors of the arenas.
    arenas: [AtomicU32; NODES_MAX],
    robust: Robust,
    pulse: Pulse,
}

const _: () = assert!(size_of::<Header>() <= HEADER_BYTES);
const _: () = assert!(Layout::FILES_AT.is_multiple_of(align_of::<File>()));

/// A file that has replicas, or had.
#[repr(C, align(64))]
#[derive(Debug)]
struct File {
    /// Even while there is a lease, and replicas may be used; 0 where there never was one.
    epoch: AtomicU64,
    /// Its size in bytes; as everything below of this epoch.
    bytes: AtomicU64,
    /// The index of its first block in the directory.
    directory: AtomicU64,
    device: AtomicU64,
    inode: AtomicU64,
    birth_ns: AtomicU64,
}

/// The layout of the control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    nodes: usize,
    slots: usize,
    /// Of the directory.
    entries: usize,
}

impl Layout {
    fn new(nodes: usize, slots: usize) -> Option<Layout> {
        let sane = (1..=NODES_MAX).contains(&nodes) && (1..1 << 30).contains(&slots);
        sane.then(|| {
            let wanted = (nodes * slots * DIRECTORY_ENTRIES_PER_SLOT).next_power_of_two();
            Layout {
                nodes,
                slots,
                entries: wanted.clamp(DIRECTORY_ENTRIES_MIN, DIRECTORY_ENTRIES_MAX),
            }
        })
    }

    const CPUS_AT: usize = HEADER_BYTES;
    const FILES_AT: usize = Layout::CPUS_AT + CPUS_MAX;
    const DIRECTORY_AT: usize = Layout::FILES_AT + FILES_MAX * size_of::<File>();

    #[inline]
    fn versions_at(self) -> usize {
        Layout::DIRECTORY_AT + self.entries * 4
    }

    fn bytes(self) -> usize {
        self.versions_at() + (self.nodes * self.slots * 8).next_multiple_of(page_bytes() as usize)
    }

    fn arena_bytes(self) -> usize {
        self.slots << BLOCK_SHIFT
    }
}

/// A mapping that lives as long as the value.
#[derive(Debug)]
struct Area {
    base: *mut u8,
    bytes: usize,
}

// SAFETY: the mapping is not tied to a thread; what is in it is reached through atomics, or by
// copies that are checked.
unsafe impl Send for Area {}
// SAFETY: as above.
unsafe impl Sync for Area {}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: whoever made the value made the mapping, and every reference into it borrows from
        // the value.
        unsafe { syscalls::unmap(self.base, self.bytes) };
    }
}

/// The control, mapped.
#[derive(Debug)]
struct Control {
    area: Area,
    layout: Layout,
}

impl Control {
    /// The `index`-th of so many values at `at`.
    ///
    /// # Safety
    /// `T` is made of atomics, and the layout places `count` of them there.
    #[inline]
    unsafe fn get<T>(&self, at: usize, index: usize, count: usize) -> Option<&T> {
        if index >= count {
            return None;
        }
        let value = self
            .area
            .base
            .wrapping_add(at + index * size_of::<T>())
            .cast::<T>();
        // SAFETY: it lies inside the mapping, aligned since all parts begin on cache lines; any
        // bytes are valid for atomics, and it lives as long as `self`.
        Some(unsafe { &*value })
    }

    #[inline]
    fn header(&self) -> &Header {
        // SAFETY: the mapping begins with room for a header, made of atomics for which any bytes
        // are valid.
        unsafe { &*self.area.base.cast::<Header>() }
    }

    #[inline]
    fn file(&self, index: usize) -> Option<&File> {
        // SAFETY: the layout places so many files there.
        unsafe { self.get(Layout::FILES_AT, index, FILES_MAX) }
    }

    /// The slot of a block on a node, counted from 1.
    #[inline]
    fn entry(&self, at: usize) -> Option<&AtomicU32> {
        // SAFETY: the layout places so many entries there.
        unsafe { self.get(Layout::DIRECTORY_AT, at, self.layout.entries) }
    }

    #[inline]
    fn version(&self, node: usize, slot: usize) -> Option<&AtomicU64> {
        let Layout { nodes, slots, .. } = self.layout;
        if slot >= slots {
            return None;
        }
        // SAFETY: the layout places a version for each slot there.
        unsafe {
            self.get(
                self.layout.versions_at(),
                node * slots + slot,
                nodes * slots,
            )
        }
    }

    #[inline]
    fn node_of_cpu(&self, cpu: usize) -> Option<&AtomicU8> {
        // SAFETY: the layout places so many bytes there.
        unsafe { self.get(Layout::CPUS_AT, cpu, CPUS_MAX) }
    }
}

/// The places that a file may have.
fn places(id: FileId) -> impl Iterator<Item = usize> {
    let mut hash = id.device ^ id.inode.rotate_left(32) ^ id.birth_ns.rotate_left(17);
    // The finaliser of MurmurHash3.
    for multiplier in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53] {
        hash = (hash ^ hash >> 33).wrapping_mul(multiplier);
    }
    let first = (hash ^ hash >> 33) as usize;
    (0..FILE_PROBES).map(move |step| first.wrapping_add(step) % FILES_MAX)
}

#[cfg(test)]
mod tests;
