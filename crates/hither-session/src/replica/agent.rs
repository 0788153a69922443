//! The agent's side of replicas: it alone writes them. Which file is leased and which block worth a
//! copy is for others to say.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File as OpenFile;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::Duration;

use super::{
    Area, BLOCK_BYTES, BLOCK_SHIFT, CPUS_MAX, Control, FileId, Layout, MAGIC, NODES_MAX, places,
};
use crate::segment;
use hither_ids::{Address, KernelNode, Pid};
use hither_kernel::memory_policy::{Bind, BindMode};
use hither_kernel::process::tick_ns;
use hither_kernel::syscalls;

/// The memory of a freed slot is given back to the kernel no sooner than this. A program that is
/// still copying from it would have the kernel make a page of zeros, which the program then would
/// discard.
const FREED_KEPT: Duration = Duration::from_secs(2);

/// The shape of it all.
#[derive(Clone, Debug)]
pub struct ReplicaOptions {
    /// The kernel's number of each node, where memory can be had of it.
    pub nodes: Vec<KernelNode>,
    /// By CPU, the index of its node in `nodes`.
    pub node_of_cpu: Vec<u8>,
    /// The most memory of each node.
    pub node_bytes: u64,
}

/// Why a block has no replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FillError {
    /// The node's memory for replicas is used up, or the machine's.
    NoMemory,
    /// The file cannot be read there, or ends before.
    Unread,
}

/// Replicas, as their agent has them.
#[derive(Debug)]
pub struct Replicas {
    shared: Arc<Shared>,
    arenas: Vec<Arena>,
    files: Vec<Option<Held>>,
    directory: Directory,
}

/// What the process that holds the leases shares with the agent.
#[derive(Debug)]
pub struct Shared {
    control: Control,
    fd: OwnedFd,
}

#[derive(Debug)]
struct Arena {
    area: Area,
    /// What programs open; it cannot be written through.
    _fd: OwnedFd,
    /// Slots without a block whose memory is there.
    free: Vec<u32>,
    /// Slots whose memory was given back.
    bare: Vec<u32>,
    /// The first slot that never had one.
    next: u32,
    slots: u32,
    /// Since when the free ones are.
    freed_ns: u64,
}

#[derive(Clone, Debug)]
struct Held {
    bytes: u64,
    directory: Range,
    /// Blocks that have a replica, with its node.
    filled: BTreeSet<(u32, u8)>,
}

/// A part of the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    at: usize,
    /// 2 to the power of it is its length.
    class: u32,
}

/// Gives out parts of the directory, whose lengths are powers of two; what was given back goes to
/// others of its length.
#[derive(Debug)]
struct Directory {
    entries: usize,
    next: usize,
    /// By the class of their length.
    free: BTreeMap<u32, Vec<usize>>,
}

impl Directory {
    fn new(entries: usize) -> Directory {
        Directory {
            entries,
            next: 0,
            free: BTreeMap::new(),
        }
    }

    fn take(&mut self, entries: u64) -> Option<Range> {
        let entries = usize::try_from(entries)
            .ok()?
            .max(16)
            .checked_next_power_of_two()?;
        let class = entries.trailing_zeros();
        if let Some(at) = self.free.get_mut(&class).and_then(Vec::pop) {
            return Some(Range { at, class });
        }
        let at = self.next;
        if entries > self.entries - at {
            return None;
        }
        self.next += entries;
        Some(Range { at, class })
    }

    fn give_back(&mut self, range: Range) {
        self.free.entry(range.class).or_default().push(range.at);
    }
}

/// A nameless file of so many bytes that never changes its size, mapped for us to write, and a
/// descriptor that it can only be read through.
fn nameless(name: &std::ffi::CStr, bytes: usize) -> io::Result<(Area, OwnedFd)> {
    let last = io::Error::last_os_error;
    // SAFETY: the name is a C string.
    let fd =
        unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
    if fd < 0 {
        return Err(last());
    }
    // SAFETY: the call has just made the descriptor, and nobody else has it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    segment::resize(fd.as_fd(), bytes)?;
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: the command takes a number.
    if unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, seals) } != 0 {
        return Err(last());
    }
    // Opened anew, it is for reading only, also for ourselves; a seal against writing would keep us
    // from giving memory back. SAFETY: fchmod takes no memory.
    if unsafe { libc::fchmod(fd.as_raw_fd(), 0o400) } != 0 {
        return Err(last());
    }
    let base = syscalls::map(bytes, Some(fd.as_raw_fd())).map_err(io::Error::from_raw_os_error)?;
    let area = Area { base, bytes };
    let readable = OpenFile::open(format!("/proc/self/fd/{}", fd.as_raw_fd()))?;
    Ok((area, readable.into()))
}

impl Replicas {
    /// Makes them. Fails where there is no memory, or no /proc.
    pub fn create(options: &ReplicaOptions) -> io::Result<Replicas> {
        let slots = (options.node_bytes >> BLOCK_SHIFT).clamp(1, (1 << 30) - 1) as usize;
        let layout = Layout::new(options.nodes.len(), slots).ok_or_else(|| {
            let problem = format!(
                "{} nodes, of which {NODES_MAX} can have replicas",
                options.nodes.len()
            );
            io::Error::new(io::ErrorKind::InvalidInput, problem)
        })?;
        let (area, fd) = nameless(c"hither-control", layout.bytes())?;
        let control = Control { area, layout };
        let header = control.header();
        let mut arenas = Vec::new();
        for (&node, told) in options.nodes.iter().zip(&header.arenas) {
            let (area, fd) = nameless(c"hither-replicas", layout.arena_bytes())?;
            // What is lent is single pages. A kernel without large ones refuses.
            // SAFETY: the area was just made, and the advice keeps its contents.
            let _ = unsafe { syscalls::advise(area.base, area.bytes, libc::MADV_NOHUGEPAGE) };
            // The process that holds leases does not look into replicas.
            // SAFETY: as above.
            let _ = unsafe { syscalls::advise(area.base, area.bytes, libc::MADV_DONTFORK) };
            if options.nodes.len() > 1 {
                let bind = Bind {
                    mode: BindMode::Preferred,
                    nodes: node.mask().unwrap_or(0),
                };
                syscalls::bind(Address(area.base as u64), area.bytes as u64, bind)
                    .map_err(io::Error::from_raw_os_error)?;
            }
            told.store(fd.as_raw_fd() as u32, Ordering::Relaxed);
            arenas.push(Arena {
                area,
                _fd: fd,
                free: Vec::new(),
                bare: Vec::new(),
                next: 0,
                slots: slots as u32,
                freed_ns: 0,
            });
        }
        for (cpu, &node) in options.node_of_cpu.iter().enumerate().take(CPUS_MAX) {
            if let Some(told) = control.node_of_cpu(cpu) {
                told.store(node, Ordering::Relaxed);
            }
        }
        // std seeds these keys from the kernel's random numbers.
        let nonce = std::hash::RandomState::new().build_hasher().finish();
        header.nonce.store(nonce, Ordering::Relaxed);
        header.nodes.store(layout.nodes as u32, Ordering::Relaxed);
        header.slots.store(slots as u32, Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
        Ok(Replicas {
            shared: Arc::new(Shared { control, fd }),
            arenas,
            files: vec![None; super::FILES_MAX],
            directory: Directory::new(layout.entries),
        })
    }

    /// Has programs send from replicas from now on. Slots are given back before they are used again
    /// then, which costs about as much as filling one.
    pub fn lend(&self) {
        let lends = &self.shared.control.header().lends;
        if lends.load(Ordering::Relaxed) == 0 {
            lends.store(1, Ordering::SeqCst);
        }
    }

    fn lends(&self) -> bool {
        self.shared.control.header().lends.load(Ordering::Relaxed) != 0
    }

    /// What the process that holds the leases needs.
    pub fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// A place for a file, without replicas yet, and not to be seen before [`Shared::publish`].
    /// `None` where there is no room.
    pub fn enter(&mut self, id: FileId, bytes: u64) -> Option<u32> {
        let place = places(id).find(|&place| self.files[place].is_none())?;
        let file = self.shared.control.file(place)?;
        let nodes = self.arenas.len() as u64;
        let directory = self.directory.take(bytes.div_ceil(BLOCK_BYTES) * nodes)?;
        file.bytes.store(bytes, Ordering::Relaxed);
        file.directory.store(directory.at as u64, Ordering::Relaxed);
        for (word, value) in [
            (&file.device, id.device),
            (&file.inode, id.inode),
            (&file.birth_ns, id.birth_ns),
        ] {
            word.store(value, Ordering::Relaxed);
        }
        self.files[place] = Some(Held {
            bytes,
            directory,
            filled: BTreeSet::new(),
        });
        Some(place as u32)
    }

    /// Gives up a file's place, whose lease is gone and whose epoch is over.
    pub fn leave(&mut self, file: u32) {
        let Some(held) = self.files[file as usize].take() else {
            return;
        };
        assert!(!self.shared.is_published(file), "it was to be ended before");
        for (block, node) in held.filled {
            self.empty(held.directory, block, node);
        }
        self.directory.give_back(held.directory);
    }

    /// Fills a replica from the file itself, on which a lease is held.
    pub fn fill(
        &mut self,
        from: &OpenFile,
        file: u32,
        block: u32,
        node: u8,
    ) -> Result<(), FillError> {
        self.drop_block(file, block, node);
        let held = self.files[file as usize]
            .as_ref()
            .ok_or(FillError::Unread)?;
        let offset = u64::from(block) << BLOCK_SHIFT;
        let wanted = held.bytes.saturating_sub(offset).min(BLOCK_BYTES) as usize;
        if wanted == 0 {
            return Err(FillError::Unread);
        }
        let directory = held.directory;
        let lends = self.lends();
        let arena = &mut self.arenas[usize::from(node)];
        let slot = arena.take(lends).ok_or(FillError::NoMemory)?;
        // Its version is even: nobody takes it for a block before it is one.
        fence(Ordering::SeqCst);
        if let Err(why) = arena.read(slot, from, offset, wanted) {
            arena.free.push(slot);
            return Err(why);
        }
        self.turn(node, slot, Ordering::Release);
        if let Some(entry) = self.entry(directory, block, node) {
            entry.store(slot + 1, Ordering::Release);
        }
        if let Some(held) = &mut self.files[file as usize] {
            held.filled.insert((block, node));
        }
        Ok(())
    }

    /// Gives up a replica.
    pub fn drop_block(&mut self, file: u32, block: u32, node: u8) {
        if let Some(held) = &mut self.files[file as usize]
            && held.filled.remove(&(block, node))
        {
            let directory = held.directory;
            self.empty(directory, block, node);
        }
    }

    fn entry(&self, directory: Range, block: u32, node: u8) -> Option<&AtomicU32> {
        let at = directory.at + block as usize * self.arenas.len() + usize::from(node);
        self.shared.control.entry(at)
    }

    /// From holding a block to being free, or back.
    fn turn(&self, node: u8, slot: u32, ordering: Ordering) {
        let version = self
            .shared
            .control
            .version(usize::from(node), slot as usize);
        version
            .expect("the slot is one of the arena's")
            .fetch_add(1, ordering);
    }

    fn empty(&mut self, directory: Range, block: u32, node: u8) {
        let entry = self.entry(directory, block, node);
        let slot = entry.map_or(0, |entry| entry.swap(0, Ordering::SeqCst));
        let Some(slot) = slot.checked_sub(1) else {
            return;
        };
        self.turn(node, slot, Ordering::SeqCst);
        let arena = &mut self.arenas[usize::from(node)];
        arena.free.push(slot);
        arena.freed_ns = tick_ns();
    }

    /// Gives the memory of slots without a block back to the kernel: `at_once`, or when they have
    /// not been wanted for a while.
    pub fn trim(&mut self, at_once: bool) {
        let now_ns = tick_ns();
        for arena in &mut self.arenas {
            if !at_once && arena.freed_ns + FREED_KEPT.as_nanos() as u64 > now_ns {
                continue;
            }
            for slot in std::mem::take(&mut arena.free) {
                if arena.strip(slot) {
                    arena.bare.push(slot)
                } else {
                    arena.free.push(slot)
                }
            }
        }
    }
}

impl Arena {
    /// A slot to be filled, with memory that nobody else refers to if some of it may be `lent`.
    fn take(&mut self, lent: bool) -> Option<u32> {
        if let Some(slot) = self.free.pop() {
            if !lent || self.strip(slot) {
                return Some(slot);
            }
            self.free.push(slot);
        }
        if let Some(slot) = self.bare.pop() {
            return Some(slot);
        }
        let slot = self.next;
        (slot < self.slots).then(|| {
            self.next += 1;
            slot
        })
    }

    /// Gives the memory of a slot without a block back to the kernel, if it takes it.
    fn strip(&self, slot: u32) -> bool {
        // SAFETY: the slot is a block of the area, and nobody relies on what is in it.
        unsafe { syscalls::advise(self.at(slot), BLOCK_BYTES as usize, libc::MADV_REMOVE) }.is_ok()
    }

    fn at(&self, slot: u32) -> *mut u8 {
        self.area.base.wrapping_add((slot as usize) << BLOCK_SHIFT)
    }

    /// Has the kernel write a part of a file into a slot: where there is no memory for that, it
    /// fails and nothing faults.
    fn read(
        &self,
        slot: u32,
        from: &OpenFile,
        offset: u64,
        wanted: usize,
    ) -> Result<(), FillError> {
        let mut done = 0;
        while done < wanted {
            let to = self.at(slot).wrapping_add(done);
            let at = (offset + done as u64) as i64;
            // SAFETY: the kernel writes at most as many bytes as are left of the slot.
            match unsafe { libc::pread(from.as_raw_fd(), to.cast(), wanted - done, at) } {
                0 => return Err(FillError::Unread),
                -1 => match io::Error::last_os_error().raw_os_error() {
                    Some(libc::EINTR) => {}
                    Some(libc::EFAULT | libc::ENOMEM | libc::ENOSPC) => {
                        return Err(FillError::NoMemory);
                    }
                    _ => return Err(FillError::Unread),
                },
                read => done += read as usize,
            }
        }
        Ok(())
    }
}

impl Shared {
    /// The agent's descriptor of the control, and what it is known by: what programs are told.
    pub fn control(&self) -> (u32, u64) {
        let nonce = &self.control.header().nonce;
        (self.fd.as_raw_fd() as u32, nonce.load(Ordering::Relaxed))
    }

    fn epoch(&self, file: u32) -> Option<&AtomicU64> {
        Some(&self.control.file(file as usize)?.epoch)
    }

    /// Whether programs may use a file's replicas.
    pub fn is_published(&self, file: u32) -> bool {
        let epoch = self
            .epoch(file)
            .map_or(0, |epoch| epoch.load(Ordering::Acquire));
        epoch != 0 && epoch.is_multiple_of(2)
    }

    /// Programs may use a file's replicas from now on. A lease on it is held.
    pub fn publish(&self, file: u32) {
        let Some(epoch) = self.epoch(file) else {
            return;
        };
        let before = epoch.load(Ordering::Relaxed);
        // From 0 to 2, and from odd to even.
        epoch.store(before + 2 - before % 2, Ordering::Release);
        let published = &self.control.header().pulse.published;
        published.fetch_add(1, Ordering::Release);
    }

    /// No program uses them any more once this has returned. To be called before the lease is let
    /// go of. Ending what has ended changes nothing.
    pub fn end(&self, file: u32) {
        if let Some(epoch) = self.epoch(file) {
            epoch.fetch_or(1, Ordering::SeqCst);
        }
    }

    /// Ends the replicas of every file. Whoever held the leases is gone: the next holder's word is
    /// not to bring back what is older.
    pub fn end_all(&self) {
        (0..super::FILES_MAX as u32)
            .filter(|&file| self.is_published(file))
            .for_each(|file| self.end(file));
    }

    /// Has [`Shared::ended`] change: the replicas of a file have ended, and its lease is released.
    pub(crate) fn count_ended(&self) {
        let ended = &self.control.header().ended;
        ended.fetch_add(1, Ordering::Release);
    }

    /// How often a lease was released since the start.
    pub fn ended(&self) -> u64 {
        self.control.header().ended.load(Ordering::Acquire)
    }

    /// Has the calling thread be the one whose end is the end of all replicas: the kernel marks the
    /// word when the thread ends, before it takes the process's leases away. That order is certain
    /// of a process without other threads alone: each thread ends by itself, and the last one that
    /// does takes the files with it.
    pub fn hold(&self) -> io::Result<()> {
        let header = self.control.header();
        let robust = &header.robust;
        let address = |of: &AtomicU64| std::ptr::from_ref(of) as u64;
        let offset = std::ptr::from_ref(&header.pulse.alive) as u64;
        robust
            .entry
            .store(address(&robust.first), Ordering::Relaxed);
        robust
            .first
            .store(address(&robust.entry), Ordering::Relaxed);
        robust.futex_offset.store(
            offset.wrapping_sub(address(&robust.entry)),
            Ordering::Relaxed,
        );
        robust.pending.store(0, Ordering::Relaxed);
        /// linux/futex.h, `struct robust_list_head`: a pointer, an offset, a pointer.
        const HEAD_BYTES: usize = 24;
        let arguments = [address(&robust.first) as usize, HEAD_BYTES, 0, 0, 0, 0];
        // SAFETY: the list is well formed and lies in a mapping that `self` keeps; this thread has
        // no use for the list that its C library keeps for robust mutexes, since nobody here has
        // any.
        let result = unsafe { syscalls::syscall(libc::SYS_set_robust_list, arguments) };
        if result != 0 {
            return Err(io::Error::from_raw_os_error(-result as i32));
        }
        header
            .pulse
            .alive
            .store(syscalls::tid().0, Ordering::Release);
        Ok(())
    }

    /// Whether that thread is the main one of process `pid`, and has not ended.
    pub fn is_held_by(&self, pid: Pid) -> bool {
        self.control.header().pulse.alive.load(Ordering::Acquire) == pid.0
    }

    /// The end of all replicas for good. Whoever held the leases is gone.
    pub fn close(&self) {
        let pulse = &self.control.header().pulse;
        pulse.alive.store(0, Ordering::SeqCst);
        pulse.fresh_until_ns.store(0, Ordering::SeqCst);
    }

    /// The end of the calling thread, which holds the leases, is not the end of replicas any more:
    /// what tests of that must notice.
    pub fn end_unmarked(&self) {
        // SAFETY: an empty list is well formed as far as the kernel cares: none.
        unsafe { syscalls::syscall(libc::SYS_set_robust_list, [0, 24, 0, 0, 0, 0]) };
    }

    /// The time by the clock that replicas are kept by.
    pub fn now_ns(&self) -> u64 {
        tick_ns()
    }

    /// Replicas may be relied on until then.
    pub fn keep_until(&self, fresh_until_ns: u64) {
        let pulse = &self.control.header().pulse;
        pulse
            .fresh_until_ns
            .store(fresh_until_ns, Ordering::Release);
    }
}
