//! A program's side of replicas. Nothing here takes a lock, allocates or panics.
//!
//! The kernel copies (`process_vm_writev` to this process), as it does for a read: where memory of
//! the program's may not be written to it says so, even if another thread unmaps it meanwhile. A
//! copy by the processor would end the program there.

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence};

use hither_ids::{Pid, Tid};
use libc::iovec;

use super::{
    Area, BLOCK_BYTES, BLOCK_SHIFT, Control, FUTEX_TID_MASK, FileId, Layout, MAGIC, NODES_MAX,
    places,
};
use hither_kernel::file_id::Inode;
use hither_kernel::process::tick_ns;
use hither_kernel::syscalls;

/// Replicas, as a program sees them.
#[derive(Debug)]
pub struct View {
    pub(super) control: Control,
    pub(super) arenas: [Arena; NODES_MAX],
    /// No arena is to be mapped any more.
    is_closed: AtomicBool,
}

/// How much of an arena is mapped at first. It is mapped as far as slots are in use, since a
/// program may want its address space for itself.
pub(super) const MAPPED_BYTES_MIN: usize = 4 << 20;

/// What is mapped of an arena: its first bytes.
#[derive(Debug)]
pub(super) struct Arena {
    /// Null while it moves, and where nothing is mapped.
    at: AtomicPtr<u8>,
    pub(super) bytes: AtomicUsize,
    /// How often it has moved: who sees the same number before and after has looked at the arena,
    /// and not at what may have come to lie where it was.
    moves: AtomicU64,
}

/// Blocks that are looked up at once: their places lie on the program's stack.
const LOOKUP_BLOCKS_MAX: usize = 8;

/// Where a few blocks' worth of a file lies.
struct Found {
    node: usize,
    arena: *mut u8,
    moves: u64,
    /// Where it begins in the first block, and how long it is.
    within: usize,
    count: usize,
    blocks: usize,
    /// Each block's slot, and the version that it had.
    places: [(usize, u64); LOOKUP_BLOCKS_MAX],
}

impl Found {
    /// Where its pieces are, and how long: of [`Found::blocks`] blocks.
    fn vector(&self) -> [iovec; LOOKUP_BLOCKS_MAX] {
        let nothing = iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        };
        let mut pieces = [nothing; LOOKUP_BLOCKS_MAX];
        let mut done = 0;
        let places = self.places.iter().take(self.blocks);
        for (piece, &(slot, _)) in pieces.iter_mut().zip(places) {
            let at = (self.within + done) % BLOCK_BYTES as usize;
            piece.iov_base = self.arena.wrapping_add((slot << BLOCK_SHIFT) + at).cast();
            piece.iov_len = (BLOCK_BYTES as usize - at).min(self.count - done);
            done += piece.iov_len;
        }
        pieces
    }
}

/// A file's replicas while no lease on it is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match {
    /// Which file.
    pub file: u32,
    /// Its epoch.
    pub epoch: u64,
}

impl View {
    /// Maps what process `agent` has made, by its descriptor of the control. `None` if it is not
    /// ours to see, or is something else.
    pub fn open(agent: Pid, control: u32, nonce: u64) -> Option<View> {
        let fd = open(agent, control)?;
        let control = View::map_control(fd, nonce);
        syscalls::close(fd);
        let control = control?;
        let nothing = || Arena {
            at: AtomicPtr::new(std::ptr::null_mut()),
            bytes: AtomicUsize::new(0),
            moves: AtomicU64::new(0),
        };
        let view = View {
            control,
            arenas: std::array::from_fn(|_| nothing()),
            is_closed: AtomicBool::new(false),
        };
        let layout = view.control.layout;
        let bytes = layout.arena_bytes().min(MAPPED_BYTES_MIN);
        for (node, arena) in view.arenas.iter().enumerate().take(layout.nodes) {
            let fd = view.control.header().arenas.get(node)?;
            let fd = open(agent, fd.load(Ordering::Relaxed))?;
            let size = syscalls::status(fd).map_or(0, |status| status.size);
            let mapped = if size >= layout.arena_bytes() as u64 {
                syscalls::map_read_only(bytes, fd)
            } else {
                Err(libc::EINVAL)
            };
            syscalls::close(fd);
            let arena_at = mapped.ok()?;
            arena.bytes.store(bytes, Ordering::Relaxed);
            arena.at.store(arena_at, Ordering::Relaxed);
            // A crash of the program should not write everybody's blocks into its core file, and
            // what is lent is single pages, also where the kernel joins pages by itself. It refuses
            // either only where there is nothing to forbid.
            for advice in [libc::MADV_DONTDUMP, libc::MADV_NOHUGEPAGE] {
                // SAFETY: the mapping was just made, and the advice keeps its contents.
                let _ = unsafe { syscalls::advise(arena_at, bytes, advice) };
            }
        }
        Some(view)
    }

    fn map_control(fd: i32, nonce: u64) -> Option<Control> {
        let size = syscalls::status(fd).ok()?.size as usize;
        let layout = Layout::new(1, 1)?;
        if size < layout.bytes() {
            return None;
        }
        // All of it is sealed against being cut, so what is mapped is there.
        let area = Area {
            base: syscalls::map_read_only(size, fd).ok()?,
            bytes: size,
        };
        // As with the arenas.
        // SAFETY: as there.
        let _ = unsafe { syscalls::advise(area.base, size, libc::MADV_DONTDUMP) };
        let mut control = Control { area, layout };
        let header = control.header();
        if header.magic.load(Ordering::Acquire) != MAGIC
            || header.nonce.load(Ordering::Relaxed) != nonce
        {
            return None;
        }
        let nodes = header.nodes.load(Ordering::Relaxed) as usize;
        let layout = Layout::new(nodes, header.slots.load(Ordering::Relaxed) as usize)?;
        if layout.bytes() > size {
            return None;
        }
        control.layout = layout;
        Some(control)
    }

    /// Unmaps the replicas: nothing is served from them any more. Other threads may be at it. Only
    /// the kernel looks at replicas for them, and what it finds in their place is not used
    /// (`View::are_unchanged`).
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        for arena in &self.arenas {
            // Who finds it null unmaps what comes of that.
            let at = arena.at.swap(std::ptr::null_mut(), Ordering::SeqCst);
            if !at.is_null() {
                arena.moves.fetch_add(1, Ordering::SeqCst);
                let bytes = arena.bytes.load(Ordering::SeqCst);
                // SAFETY: so much is mapped there, and nothing refers to it.
                unsafe { syscalls::unmap(at, bytes) };
            }
        }
    }

    /// Maps an arena on, so that so many bytes of it are.
    #[cold]
    fn lengthen(&self, node: usize, wanted: usize) {
        let Some(arena) = self.arenas.get(node) else {
            return;
        };
        let at = arena.at.swap(std::ptr::null_mut(), Ordering::SeqCst);
        if at.is_null() {
            return;
        }
        arena.moves.fetch_add(1, Ordering::SeqCst);
        let before = arena.bytes.load(Ordering::SeqCst);
        let all = self.control.layout.arena_bytes();
        let bytes = wanted.next_power_of_two().clamp(before, all);
        // SAFETY: so much is mapped there; who looks at it there does not use what it finds.
        let moved = unsafe { syscalls::lengthen(at, before, bytes) };
        if moved.is_ok() {
            arena.bytes.store(bytes, Ordering::SeqCst);
        }
        arena.at.store(moved.unwrap_or(at), Ordering::SeqCst);
        if self.is_closed.load(Ordering::SeqCst) {
            self.close();
        }
    }

    /// Unmaps all that there is.
    ///
    /// # Safety
    /// Nothing uses the view any more, nor this itself.
    pub unsafe fn unmap(&self) {
        self.close();
        let Area { base, bytes } = self.control.area;
        // SAFETY: as the caller says.
        unsafe { syscalls::unmap(base, bytes) };
    }

    /// Changes whenever a file may have got replicas.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.control
            .header()
            .pulse
            .published
            .load(Ordering::Acquire)
    }

    /// The replicas of a file, if it has any.
    pub fn find(&self, id: FileId) -> Option<Match> {
        for place in places(id) {
            let file = self.control.file(place)?;
            let epoch = file.epoch.load(Ordering::Acquire);
            if epoch == 0 || epoch % 2 == 1 {
                continue;
            }
            let found = FileId {
                device: file.device.load(Ordering::Relaxed),
                inode: file.inode.load(Ordering::Relaxed),
                birth_ns: file.birth_ns.load(Ordering::Relaxed),
            };
            fence(Ordering::Acquire);
            if found == id && file.epoch.load(Ordering::Relaxed) == epoch {
                return Some(Match {
                    file: place as u32,
                    epoch,
                });
            }
        }
        None
    }

    /// Where a file lies, as of a match that may be over by now.
    #[inline]
    pub fn inode(&self, of: Match) -> Option<Inode> {
        let file = self.control.file(of.file as usize)?;
        Some(Inode {
            device: file.device.load(Ordering::Relaxed),
            number: file.inode.load(Ordering::Relaxed),
        })
    }

    /// The size of a file as of a match that may be over by now, to see beforehand where a read
    /// would end.
    #[inline]
    pub fn bytes(&self, of: Match) -> u64 {
        let file = self.control.file(of.file as usize);
        file.map_or(0, |file| file.bytes.load(Ordering::Relaxed))
    }

    /// Whether what was read of a match until now is what a read at this moment would return.
    pub fn is_current(&self, of: Match) -> bool {
        let file = self.control.file(of.file as usize);
        self.is_kept() && file.is_some_and(|file| file.epoch.load(Ordering::Acquire) == of.epoch)
    }

    /// Whether a match is over: the file has no replicas, or others.
    #[inline]
    pub fn is_over(&self, of: Match) -> bool {
        let file = self.control.file(of.file as usize);
        file.is_none_or(|file| file.epoch.load(Ordering::Relaxed) != of.epoch)
    }

    /// Whether there will be no replicas any more: the process that held the leases has ended, and
    /// its agent starts no other one. An agent does that long before the promised time is over.
    pub fn is_ended(&self) -> bool {
        let pulse = &self.control.header().pulse;
        pulse.alive.load(Ordering::Relaxed).wrapping_sub(1) >= FUTEX_TID_MASK
            && tick_ns() >= pulse.fresh_until_ns.load(Ordering::Relaxed)
    }

    /// Whether all of a range, which ends before the file does, is thought to have replicas on this
    /// node.
    #[inline]
    pub fn holds(&self, of: Match, offset: u64, count: usize) -> bool {
        let (directory, node) = (self.directory(of), self.node());
        let end = (offset + count as u64).div_ceil(BLOCK_BYTES);
        (offset >> BLOCK_SHIFT..end).all(|block| self.slot(directory, block, node).is_some())
    }

    #[inline]
    fn directory(&self, of: Match) -> u64 {
        let file = self.control.file(of.file as usize);
        file.map_or(0, |file| file.directory.load(Ordering::Relaxed))
    }

    /// The slot of a block, if it has one.
    #[inline]
    fn slot(&self, directory: u64, block: u64, node: usize) -> Option<usize> {
        let nodes = self.control.layout.nodes as u64;
        let at = directory.wrapping_add(block.wrapping_mul(nodes)) + node as u64;
        let entry = self.control.entry(usize::try_from(at).ok()?)?;
        (entry.load(Ordering::Acquire) as usize).checked_sub(1)
    }

    /// Has the kernel copy what a read of `count` bytes at `offset` would return to `to`: less than
    /// `count` bytes only where the file ends. `None` if it cannot, or where memory at `to` may not
    /// be written to; what lies at `to` is then as it was, or wiped where something was copied in
    /// vain: a program may have zeroed its buffer to see where a shorter read ends.
    ///
    /// # Safety
    /// What lies at `to` is nobody's but whoever asked for these bytes there. It need not be
    /// mapped.
    pub unsafe fn read(&self, of: Match, offset: u64, to: *mut u8, count: usize) -> Option<usize> {
        let left = self.bytes(of).saturating_sub(offset);
        let count = count.min(usize::try_from(left).unwrap_or(usize::MAX));
        // Asked for each time: a child of a fork that nobody saw would write to its parent.
        let thread = syscalls::tid();
        let mut done = 0;
        loop {
            let at = offset + done as u64;
            // SAFETY: as the caller says; `done` bytes are behind.
            let part =
                unsafe { self.read_part(thread, of, at, to.wrapping_add(done), count - done) };
            done += match part {
                Ok(part) => part,
                Err(copied) => {
                    // SAFETY: so many bytes were copied there.
                    unsafe { wipe(thread, to, done + copied) };
                    return None;
                }
            };
            if done >= count {
                return Some(count);
            }
        }
    }

    /// Copies a few blocks' worth: how much, or how much in vain.
    ///
    /// # Safety
    /// As [`View::read`].
    unsafe fn read_part(
        &self,
        thread: Tid,
        of: Match,
        offset: u64,
        to: *mut u8,
        count: usize,
    ) -> Result<usize, usize> {
        let found = self.find_blocks(of, offset, count).ok_or(0_usize)?;
        let pieces = found.vector();
        // SAFETY: as the caller says.
        let copied =
            unsafe { syscalls::copy_to(thread, pieces.get(..found.blocks).unwrap_or(&[]), to) };
        if copied == found.count && self.are_unchanged(&found) {
            Ok(copied)
        } else {
            Err(copied)
        }
    }

    /// Whether slots may be lent.
    pub fn lends(&self) -> bool {
        self.control.header().lends.load(Ordering::Acquire) != 0
    }

    /// Has `take` refer to the memory of what a read of a few blocks, `count` bytes at most, would
    /// return at `offset`: it is given where that lies, and says to how many bytes of it it refers
    /// by now. They stay what they are for as long as it does. `None` if they are not what was
    /// asked for after all, and are to be forgotten.
    pub fn lend(
        &self,
        of: Match,
        offset: u64,
        count: usize,
        take: impl FnOnce(&[iovec]) -> usize,
    ) -> Option<usize> {
        let left = self.bytes(of).saturating_sub(offset);
        let count = count.min(usize::try_from(left).unwrap_or(usize::MAX));
        let found = self.find_blocks(of, offset, count)?;
        let pieces = found.vector();
        let lent = pieces.get(..found.blocks).filter(|_| self.lends())?;
        let taken = take(lent);
        self.are_unchanged(&found).then_some(taken)
    }

    /// Where a few blocks' worth of a range, which ends before the file does, lies on this node.
    /// `None` if not all of it does, or may not be of use by now.
    #[inline]
    fn find_blocks(&self, of: Match, offset: u64, count: usize) -> Option<Found> {
        let (directory, node) = (self.directory(of), self.node());
        let mapped = self.arenas.get(node)?;
        let moves = mapped.moves.load(Ordering::Acquire);
        let arena = mapped.at.load(Ordering::Acquire);
        if arena.is_null() {
            return None;
        }
        let bytes = mapped.bytes.load(Ordering::Relaxed);
        let within = (offset % BLOCK_BYTES) as usize;
        let count = count.min(LOOKUP_BLOCKS_MAX * BLOCK_BYTES as usize - within);
        let first = offset >> BLOCK_SHIFT;
        let blocks = match count {
            0 => 0,
            _ => (within + count).div_ceil(BLOCK_BYTES as usize),
        };
        let mut places = [(0_usize, 0_u64); LOOKUP_BLOCKS_MAX];
        for (place, block) in places.iter_mut().take(blocks).zip(first..) {
            let slot = self.slot(directory, block, node)?;
            let version = self.control.version(node, slot)?;
            let version = version.load(Ordering::Acquire);
            // The entry once more: the version may be of what came into the slot after.
            if version % 2 == 0 || self.slot(directory, block, node) != Some(slot) {
                return None;
            }
            let end = (slot + 1) << BLOCK_SHIFT;
            if end > bytes {
                // For the next time.
                self.lengthen(node, end);
                return None;
            }
            *place = (slot, version);
        }
        // All that was found until here was filled under the lease of this epoch, which is still
        // held.
        self.is_current(of).then_some(Found {
            node,
            arena,
            moves,
            within,
            count,
            blocks,
            places,
        })
    }

    /// Whether no slot was given to another block since, and the arena is still mapped where it
    /// was, to be asked after it was looked at.
    #[inline]
    fn are_unchanged(&self, found: &Found) -> bool {
        fence(Ordering::Acquire);
        let arena = self.arenas.get(found.node);
        if arena.is_none_or(|arena| arena.moves.load(Ordering::Relaxed) != found.moves) {
            return false;
        }
        found
            .places
            .iter()
            .take(found.blocks)
            .all(|&(slot, before)| {
                let version = self.control.version(found.node, slot);
                version.is_some_and(|version| version.load(Ordering::Relaxed) == before)
            })
    }

    /// Whether somebody is there who would have said it if a lease had been broken.
    #[inline]
    fn is_kept(&self) -> bool {
        let pulse = &self.control.header().pulse;
        let alive = pulse.alive.load(Ordering::Acquire);
        let fresh_until_ns = pulse.fresh_until_ns.load(Ordering::Acquire);
        alive.wrapping_sub(1) < FUTEX_TID_MASK && tick_ns() < fresh_until_ns
    }

    /// The node that this runs on.
    #[inline]
    fn node(&self) -> usize {
        if self.control.layout.nodes == 1 {
            return 0;
        }
        // SAFETY: no arguments; it reads a word that the kernel keeps for the thread.
        let cpu = unsafe { libc::sched_getcpu() };
        let node = usize::try_from(cpu)
            .ok()
            .and_then(|cpu| self.control.node_of_cpu(cpu));
        let node = node.map_or(0, |node| node.load(Ordering::Relaxed) as usize);
        node.min(self.control.layout.nodes - 1)
    }
}

/// Wipes what was copied in vain.
///
/// # Safety
/// So many bytes at `to` were copied there by the caller.
#[cold]
unsafe fn wipe(thread: Tid, to: *mut u8, bytes: usize) {
    static ZEROES: [u8; BLOCK_BYTES as usize] = [0; BLOCK_BYTES as usize];
    for at in (0..bytes).step_by(ZEROES.len()) {
        let piece = iovec {
            iov_base: ZEROES.as_ptr().cast_mut().cast(),
            iov_len: ZEROES.len().min(bytes - at),
        };
        // SAFETY: as the caller says.
        unsafe { syscalls::copy_to(thread, &[piece], to.wrapping_add(at)) };
    }
}

/// Opens a descriptor of another process for reading.
fn open(pid: Pid, fd: u32) -> Option<i32> {
    let mut path = [0_u8; 48];
    let mut at = 0;
    let mut put = |bytes: &[u8]| {
        for &byte in bytes {
            *path.get_mut(at)? = byte;
            at += 1;
        }
        Some(())
    };
    let mut digits = [0; 10];
    put(b"/proc/")?;
    put(decimal(pid.0, &mut digits))?;
    put(b"/fd/")?;
    put(decimal(fd, &mut digits))?;
    let path = CStr::from_bytes_until_nul(&path).ok()?;
    syscalls::open(path, libc::O_RDONLY).ok()
}

fn decimal(number: u32, to: &mut [u8; 10]) -> &[u8] {
    let mut rest = number;
    let mut at = to.len();
    while at > 0 {
        at -= 1;
        if let Some(digit) = to.get_mut(at) {
            *digit = b'0' + (rest % 10) as u8;
        }
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    to.get(at..).unwrap_or(&[])
}
