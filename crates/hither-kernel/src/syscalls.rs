//! System calls that bypass libc.
//!
//! Inside a recorded program libc's `open` or `mmap` is the preload library's own hook, and a
//! failing call would change the program's `errno`. These go straight to the kernel and return the
//! negated error number.

use std::ffi::CStr;

pub use crate::arch::syscall;
use hither_ids::{Address, Pid, Tid};

use crate::file_id::{FileId, Inode};
use crate::memory_policy::{Bind, BindMode};

/// Paths are relative to the working folder: newer architectures have calls that say so alone.
const HERE: usize = libc::AT_FDCWD as isize as usize;

fn checked(result: isize) -> Result<usize, i32> {
    usize::try_from(result).map_err(|_| -result as i32)
}

/// `mmap` of `length` bytes, of `fd` if there is one and anonymous otherwise; readable and
/// writable. Only pages that are touched take memory: `MAP_STACK` has the kernel use no huge pages
/// (Linux 6.7; the kernels before it seldom did at this size). Where they are on for all programs,
/// as in Debian, the library took 4 MiB in each process and 2 MiB in each further thread.
pub fn map(length: usize, fd: Option<i32>) -> Result<*mut u8, i32> {
    const ANONYMOUS: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK;
    let flags = libc::MAP_NORESERVE | fd.map_or(ANONYMOUS, |_| libc::MAP_SHARED);
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let fd = fd.unwrap_or(-1) as isize as usize;
    // SAFETY: without MAP_FIXED a mapping is placed where nothing else is, so no memory in use
    // changes.
    let result = unsafe {
        syscall(
            libc::SYS_mmap,
            [0, length, protection as usize, flags as usize, fd, 0],
        )
    };
    checked(result).map(|address| address as *mut u8)
}

/// `mmap` of the first `length` bytes of `fd`, shared and for reading alone.
pub fn map_read_only(length: usize, fd: i32) -> Result<*mut u8, i32> {
    let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
    let arguments = [
        0,
        length,
        libc::PROT_READ as usize,
        flags as usize,
        fd as usize,
        0,
    ];
    // SAFETY: without MAP_FIXED a mapping is placed where nothing else is, so no memory in use
    // changes.
    checked(unsafe { syscall(libc::SYS_mmap, arguments) }).map(|address| address as *mut u8)
}

/// `mremap`: makes a mapping longer, wherever there is room, and returns where it is.
///
/// # Safety
/// The range must be a whole mapping of the caller's, whose address nobody relies on.
pub unsafe fn lengthen(address: *mut u8, length: usize, to: usize) -> Result<*mut u8, i32> {
    let may_move = libc::MREMAP_MAYMOVE as usize;
    let arguments = [address as usize, length, to, may_move, 0, 0];
    // SAFETY: as the caller says.
    checked(unsafe { syscall(libc::SYS_mremap, arguments) }).map(|address| address as *mut u8)
}

/// `munmap`.
///
/// # Safety
/// The range must be a mapping of the caller's that nothing refers to any more.
pub unsafe fn unmap(address: *mut u8, length: usize) {
    // SAFETY: the caller vouches that the range is its own and unused.
    unsafe { syscall(libc::SYS_munmap, [address as usize, length, 0, 0, 0, 0]) };
}

/// `madvise` of one's own memory.
///
/// # Safety
/// `advice` may discard the range's contents; the caller must own it and not depend on them.
pub unsafe fn advise(address: *mut u8, length: usize, advice: i32) -> Result<(), i32> {
    // SAFETY: the caller owns the range and accepts what the advice does to it.
    let result = unsafe {
        syscall(
            libc::SYS_madvise,
            [address as usize, length, advice as usize, 0, 0, 0],
        )
    };
    checked(result).map(drop)
}

/// A policy's mode, mask and number of bits, as the kernel takes them.
fn policy(bind: &Bind) -> [usize; 3] {
    // The kernel takes one bit off the number of bits that it is told of (get_nodes in
    // mm/mempolicy.c).
    let (mask, bits) = match bind.mode {
        BindMode::Default => (0, 0),
        _ => ((&raw const bind.nodes) as usize, u64::BITS as usize + 1),
    };
    [bind.mode as usize, mask, bits]
}

/// `mbind` without moving anything: what of the range has no page yet gets its pages by this
/// policy.
pub fn bind(address: Address, length: u64, bind: Bind) -> Result<(), i32> {
    let [mode, mask, bits] = policy(&bind);
    let arguments = [address.0 as usize, length as usize, mode, mask, bits, 0];
    // SAFETY: the mask has as many bits as the call is told, and a policy changes where pages come
    // from, not what any memory holds.
    checked(unsafe { syscall(libc::SYS_mbind, arguments) }).map(drop)
}

/// `set_mempolicy`: where the pages come from that the kernel takes for this thread from now on,
/// those of files that it reads among them; but not those of memory that has a policy of its own.
pub fn set_policy(bind: Bind) -> Result<(), i32> {
    let [mode, mask, bits] = policy(&bind);
    // SAFETY: as in `bind`.
    checked(unsafe { syscall(libc::SYS_set_mempolicy, [mode, mask, bits, 0, 0, 0]) }).map(drop)
}

/// `openat` relative to the working folder, close-on-exec.
pub fn open(path: &CStr, flags: i32) -> Result<i32, i32> {
    let flags = (flags | libc::O_CLOEXEC) as usize;
    // SAFETY: the path is NUL-terminated and outlives the call.
    let result = unsafe {
        syscall(
            libc::SYS_openat,
            [HERE, path.as_ptr() as usize, flags, 0, 0, 0],
        )
    };
    checked(result).map(|fd| fd as i32)
}

/// Whether this process may read a file and map it to execute it: it is there, as seen from the
/// process's root, and on no file system that is mounted `noexec`.
pub fn is_loadable(path: &CStr) -> bool {
    let mode = (libc::R_OK | libc::X_OK) as usize;
    let arguments = [HERE, path.as_ptr() as usize, mode, 0, 0, 0];
    // SAFETY: the path is NUL-terminated and outlives the call.
    unsafe { syscall(libc::SYS_faccessat, arguments) == 0 }
}

/// Whether this process, or one that it has come from, has given up all further rights. Only then
/// may an ordinary user's process confine itself (Landlock, seccomp).
pub fn no_new_privileges() -> bool {
    let arguments = [libc::PR_GET_NO_NEW_PRIVS as usize, 0, 0, 0, 0, 0];
    // SAFETY: it takes no memory.
    unsafe { syscall(libc::SYS_prctl, arguments) == 1 }
}

/// `close`, of a descriptor that this code opened itself.
pub fn close(fd: i32) {
    // SAFETY: close takes no memory; the caller owns the descriptor.
    unsafe { syscall(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]) };
}

/// `userfaultfd` of this process's memory, close-on-exec, under a number that no program counts on
/// getting.
///
/// For user mode only, which anybody may have: with write-protection that resolves itself the
/// kernel's own accesses are never refused for that (`do_wp_page` clears the mark without asking;
/// tried on Linux 6.18).
pub fn userfaultfd() -> Result<i32, i32> {
    /// Above what programs reach, below the usual limit of 1024; or below lower limits.
    const LEAST: [usize; 3] = [900, 200, 50];
    const USER_MODE_ONLY: i32 = 1;
    let flags = (libc::O_CLOEXEC | libc::O_NONBLOCK | USER_MODE_ONLY) as usize;
    // SAFETY: the call takes no memory.
    let low = checked(unsafe { syscall(libc::SYS_userfaultfd, [flags, 0, 0, 0, 0, 0]) })?;
    let above = |least: usize| {
        let arguments = [low, libc::F_DUPFD_CLOEXEC as usize, least, 0, 0, 0];
        // SAFETY: duplicating takes no memory.
        checked(unsafe { syscall(libc::SYS_fcntl, arguments) }).ok()
    };
    let high = LEAST.into_iter().find_map(above);
    close(low as i32);
    // What it said is that there is no such number.
    high.map(|fd| fd as i32).ok_or(libc::EMFILE)
}

/// `readlink`: how many bytes of the target went into `buffer`.
pub fn read_link(path: &CStr, buffer: &mut [u8]) -> Result<usize, i32> {
    let arguments = [
        HERE,
        path.as_ptr() as usize,
        buffer.as_mut_ptr() as usize,
        buffer.len(),
        0,
        0,
    ];
    // SAFETY: the path is NUL-terminated, and the kernel writes at most buffer.len() bytes into the
    // buffer.
    checked(unsafe { syscall(libc::SYS_readlinkat, arguments) })
}

/// `read`.
pub fn read(fd: i32, buffer: &mut [u8]) -> Result<usize, i32> {
    // SAFETY: the kernel writes at most buffer.len() bytes into the buffer.
    checked(unsafe {
        syscall(
            libc::SYS_read,
            [
                fd as usize,
                buffer.as_mut_ptr() as usize,
                buffer.len(),
                0,
                0,
                0,
            ],
        )
    })
}

/// `lseek`.
pub fn seek(fd: i32, offset: i64, whence: i32) -> Result<u64, i32> {
    // SAFETY: lseek takes no memory.
    checked(unsafe {
        syscall(
            libc::SYS_lseek,
            [fd as usize, offset as usize, whence as usize, 0, 0, 0],
        )
    })
    .map(|position| position as u64)
}

/// `posix_fadvise` on the whole of a file: whether the kernel is to read more of it, through this
/// open file description, than it is asked for.
pub fn set_readahead(fd: i32, on: bool) -> Result<(), i32> {
    let advice = if on {
        libc::POSIX_FADV_NORMAL
    } else {
        libc::POSIX_FADV_RANDOM
    };
    let arguments = [fd as usize, 0, 0, advice as usize, 0, 0];
    // SAFETY: the call takes no memory.
    checked(unsafe { syscall(libc::SYS_fadvise64, arguments) }).map(drop)
}

/// `fcntl(F_GETFL)`: how a descriptor was opened.
pub fn status_flags(fd: i32) -> Result<i32, i32> {
    let arguments = [fd as usize, libc::F_GETFL as usize, 0, 0, 0, 0];
    // SAFETY: the command takes no memory.
    checked(unsafe { syscall(libc::SYS_fcntl, arguments) }).map(|flags| flags as i32)
}

/// `ioctl(FS_IOC_GETVERSION)`: the generation of a file's inode. None where the file system has
/// none.
pub fn generation(fd: i32) -> Option<u32> {
    const FS_IOC_GETVERSION: usize = 0x8008_7601;
    // File systems write an int, though the request is one of a long.
    let mut generation = [0_u32; 2];
    let buffer = generation.as_mut_ptr() as usize;
    let arguments = [fd as usize, FS_IOC_GETVERSION, buffer, 0, 0, 0];
    // SAFETY: the kernel writes an int, or a long at most, for which there is room.
    checked(unsafe { syscall(libc::SYS_ioctl, arguments) }).ok()?;
    Some(generation[0])
}

/// This process's limit of a kind (`RLIMIT_AS` and others), if it has one; `None` too where the
/// kernel is kept from answering.
pub fn limit(resource: i32) -> Option<u64> {
    let mut limit = libc::rlimit64 {
        rlim_cur: 0,
        rlim_max: 0,
    };
    let arguments = [0, resource as usize, 0, (&raw mut limit) as usize, 0, 0];
    // SAFETY: the kernel writes one rlimit64.
    let result = unsafe { syscall(libc::SYS_prlimit64, arguments) };
    (result == 0 && limit.rlim_cur != libc::RLIM64_INFINITY).then_some(limit.rlim_cur)
}

/// Whether this process has one thread only. False where /proc does not say.
pub fn is_single_threaded() -> bool {
    let mut buffer = std::mem::MaybeUninit::<libc::stat>::zeroed();
    let path = c"/proc/self/task";
    let arguments = [
        HERE,
        path.as_ptr() as usize,
        buffer.as_mut_ptr() as usize,
        0,
        0,
        0,
    ];
    // SAFETY: the path is NUL-terminated, and the buffer is one stat long.
    let result = unsafe { syscall(libc::SYS_newfstatat, arguments) };
    // SAFETY: zeroed memory is a valid stat, and the kernel filled it or left it.
    let links = unsafe { buffer.assume_init() }.st_nlink;
    // The folder itself, its own name for itself, and one of each thread.
    result == 0 && links == 3
}

/// `getpid`, not libc's, so that a child made by a bare `clone` or `vfork` is seen.
pub fn pid() -> Pid {
    // SAFETY: getpid takes nothing and cannot fail.
    Pid(unsafe { syscall(libc::SYS_getpid, [0; 6]) } as u32)
}

/// Whether a mapping has a memory policy of its own, by `mbind`. False where the kernel does not
/// say.
pub fn range_has_policy(at: u64) -> bool {
    policy_mode(Some(at)).is_some_and(|mode| mode != libc::MPOL_DEFAULT)
}

/// Whether the calling thread has a memory policy other than the kernel's default, whichever. False
/// where the kernel does not say.
pub fn thread_has_policy() -> bool {
    policy_mode(None).is_some_and(|mode| mode != libc::MPOL_DEFAULT)
}

/// Whether the calling thread asks for some nodes before others, by `set_mempolicy`, which numactl
/// calls. One that takes all of them in turn does not. False where the kernel does not say.
pub fn thread_has_nodes() -> bool {
    /// linux/mempolicy.h; Linux 6.9.
    const MPOL_WEIGHTED_INTERLEAVE: i32 = 6;
    policy_mode(None).is_some_and(|mode| {
        ![
            libc::MPOL_DEFAULT,
            libc::MPOL_LOCAL,
            libc::MPOL_INTERLEAVE,
            MPOL_WEIGHTED_INTERLEAVE,
        ]
        .contains(&mode)
    })
}

/// The mode of the memory policy of the mapping at an address, or else of the calling thread,
/// without its flags.
fn policy_mode(at: Option<u64>) -> Option<i32> {
    /// linux/mempolicy.h: of the mapping at an address.
    const AT_ADDRESS: usize = 1 << 1;
    const FLAGS: i32 =
        libc::MPOL_F_STATIC_NODES | libc::MPOL_F_RELATIVE_NODES | libc::MPOL_F_NUMA_BALANCING;
    let mut mode = 0_i32;
    let flags = at.map_or(0, |_| AT_ADDRESS);
    let address = at.unwrap_or(0) as usize;
    let arguments = [(&raw mut mode) as usize, 0, 0, address, flags, 0];
    // SAFETY: the kernel writes one int; the address is a number that it looks up.
    let result = unsafe { syscall(libc::SYS_get_mempolicy, arguments) };
    (result == 0).then_some(mode & !FLAGS)
}

/// `getcpu`: the CPU that this runs on, and its node. `None` where the kernel is kept from
/// answering.
pub fn cpu_and_node() -> Option<(u32, u32)> {
    let (mut cpu, mut node) = (0_u32, 0_u32);
    let arguments = [
        (&raw mut cpu) as usize,
        (&raw mut node) as usize,
        0,
        0,
        0,
        0,
    ];
    // SAFETY: the kernel writes one unsigned int to each.
    let result = unsafe { syscall(libc::SYS_getcpu, arguments) };
    (result == 0).then_some((cpu, node))
}

/// `nanosleep`, of less than a second; cut short by a signal.
pub fn sleep_ns(ns: u32) {
    let time = libc::timespec {
        tv_sec: 0,
        tv_nsec: i64::from(ns.min(999_999_999)),
    };
    // SAFETY: the kernel reads one timespec, and is given no place for what is left.
    unsafe {
        syscall(
            libc::SYS_nanosleep,
            [(&raw const time) as usize, 0, 0, 0, 0, 0],
        )
    };
}

/// `getppid`.
pub fn parent_pid() -> Pid {
    // SAFETY: getppid takes nothing and cannot fail.
    Pid(unsafe { syscall(libc::SYS_getppid, [0; 6]) } as u32)
}

/// `gettid`.
pub fn tid() -> Tid {
    // SAFETY: gettid takes nothing and cannot fail.
    Tid(unsafe { syscall(libc::SYS_gettid, [0; 6]) } as u32)
}

/// `rt_sigprocmask`: blocks the signals of `mask` and no others, and returns which were blocked
/// before.
pub fn block_signals(mask: u64) -> u64 {
    let mut before = 0_u64;
    let arguments = [
        libc::SIG_SETMASK as usize,
        (&raw const mask) as usize,
        (&raw mut before) as usize,
        size_of::<u64>(),
        0,
        0,
    ];
    // SAFETY: both masks are 8 bytes, as the call is told.
    unsafe { syscall(libc::SYS_rt_sigprocmask, arguments) };
    before
}

/// What `cachestat` says of a range of a file; see cachestat(2).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Cachestat {
    /// Pages that are cached.
    pub cached: u64,
    /// Of these, pages that are to be written back.
    pub dirty: u64,
    /// Of these, pages that are being written back.
    pub writeback: u64,
    /// Pages that were cached once.
    pub evicted: u64,
    /// Of these, pages that went not long ago.
    pub recently_evicted: u64,
}

/// The number of `cachestat`, the same on all architectures; the libc crate lacks it.
pub const SYS_CACHESTAT: libc::c_long = 451;

/// `cachestat` of `length` bytes of a file, or of all that follow where that is 0 (Linux 6.5).
pub fn cachestat(fd: i32, offset: u64, length: u64) -> Result<Cachestat, i32> {
    let range = [offset, length];
    let mut found = Cachestat::default();
    let arguments = [
        fd as usize,
        (&raw const range) as usize,
        (&raw mut found) as usize,
        0,
        0,
        0,
    ];
    // SAFETY: the kernel reads two words and writes the structure, which have the layouts that it
    // expects.
    checked(unsafe { syscall(SYS_CACHESTAT, arguments) })?;
    Ok(found)
}

/// What `statx` says of an open file, as far as the recorder needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStatus {
    /// Which file it is.
    pub id: FileId,
    /// Size in bytes.
    pub size: u64,
    /// Type and permissions (`st_mode`).
    pub mode: u32,
}

/// Where the file behind a descriptor lies, as in [`FileStatus`]. By `fstat`, which costs a sixth
/// less than `statx`.
pub fn inode(fd: i32) -> Result<Inode, i32> {
    let mut buffer = std::mem::MaybeUninit::<libc::stat>::zeroed();
    let arguments = [fd as usize, buffer.as_mut_ptr() as usize, 0, 0, 0, 0];
    // SAFETY: the buffer is one stat long.
    checked(unsafe { syscall(libc::SYS_fstat, arguments) })?;
    // SAFETY: zeroed memory is a valid stat, and the kernel filled it.
    let status = unsafe { buffer.assume_init() };
    let (major, minor) = (libc::major(status.st_dev), libc::minor(status.st_dev));
    Ok(Inode::on(major, minor, status.st_ino))
}

/// Has the kernel copy pieces of this process's memory to `to`, one after the other
/// (`process_vm_writev`): how many bytes it has copied, which are less where memory may not be read
/// or written.
///
/// # Safety
/// `thread` is one of this process, any of which stands for it: the first one may have ended. And
/// nobody relies on what lies at `to`. Neither side need be mapped.
pub unsafe fn copy_to(thread: Tid, pieces: &[libc::iovec], to: *mut u8) -> usize {
    let into = libc::iovec {
        iov_base: to.cast(),
        iov_len: pieces.iter().map(|piece| piece.iov_len).sum(),
    };
    let arguments = [
        thread.0 as usize,
        pieces.as_ptr() as usize,
        pieces.len(),
        (&raw const into) as usize,
        1,
        0,
    ];
    // SAFETY: the kernel reads the two vectors, and as the caller says.
    let copied = unsafe { syscall(libc::SYS_process_vm_writev, arguments) };
    usize::try_from(copied).unwrap_or(0)
}

/// Whether the kernel copies memory of this process as [`copy_to`] asks for: it does not where it
/// was built without, and where a seccomp filter refuses. A filter may end this process as well.
pub fn copies() -> bool {
    let (from, mut to) = ([1_u8], [0_u8]);
    let piece = libc::iovec {
        iov_base: from.as_ptr().cast_mut().cast(),
        iov_len: from.len(),
    };
    // SAFETY: it is this process's id, and its own byte.
    let copied = unsafe { copy_to(tid(), &[piece], to.as_mut_ptr()) };
    copied == 1 && to == from
}

/// `pread`: how many bytes, or the negated error number.
///
/// # Safety
/// Nobody relies on what lies at `to`. It need not be mapped.
pub unsafe fn read_at(fd: i32, to: *mut u8, bytes: usize, offset: u64) -> isize {
    let arguments = [fd as usize, to as usize, bytes, offset as usize, 0, 0];
    // SAFETY: as the caller says.
    unsafe { syscall(libc::SYS_pread64, arguments) }
}

/// `statx` of an open descriptor.
pub fn status(fd: i32) -> Result<FileStatus, i32> {
    StatusBuffer::zeroed().status(fd)
}

/// `statx` of a file by its path; links are followed.
pub fn status_of(path: &CStr) -> Result<FileStatus, i32> {
    StatusBuffer::zeroed().fill(libc::AT_FDCWD, path, 0)
}

/// Room for what `statx` writes.
#[derive(Clone, Copy, Debug)]
pub struct StatusBuffer(libc::statx);

impl StatusBuffer {
    fn zeroed() -> StatusBuffer {
        // SAFETY: a statx is made of integers, for which zero is a value.
        StatusBuffer(unsafe { std::mem::zeroed() })
    }

    /// `statx` of an open descriptor.
    pub fn status(&mut self, fd: i32) -> Result<FileStatus, i32> {
        self.fill(fd, c"", libc::AT_EMPTY_PATH)
    }

    fn fill(&mut self, at: i32, path: &CStr, flags: i32) -> Result<FileStatus, i32> {
        let mask = (libc::STATX_BASIC_STATS | libc::STATX_BTIME) as usize;
        let arguments = [
            at as usize,
            path.as_ptr() as usize,
            (flags | libc::AT_STATX_DONT_SYNC) as usize,
            mask,
            (&raw mut self.0) as usize,
            0,
        ];
        // SAFETY: the path is NUL-terminated and the buffer is one statx long.
        checked(unsafe { syscall(libc::SYS_statx, arguments) })?;
        let (status, birth) = (&self.0, &self.0.stx_btime);
        let birth_ns = match status.stx_mask & libc::STATX_BTIME {
            0 => 0,
            _ => (birth.tv_sec as u64)
                .wrapping_mul(1_000_000_000)
                .wrapping_add(u64::from(birth.tv_nsec)),
        };
        Ok(FileStatus {
            id: FileId {
                device: u64::from(status.stx_dev_major) << 32 | u64::from(status.stx_dev_minor),
                inode: status.stx_ino,
                birth_ns,
            },
            size: status.stx_size,
            mode: u32::from(status.stx_mode),
        })
    }
}

impl FileStatus {
    /// Whether its device is none: it lies in memory, on a network, or nowhere.
    pub fn is_without_hardware(&self) -> bool {
        self.id.device >> 32 == 0
    }
}

/// `getcwd`: how many bytes of the path of the working folder went to the front of `buffer`. Where
/// it has none below the root, what was written does not begin with "/".
pub fn current_directory(buffer: &mut [u8]) -> Result<usize, i32> {
    let arguments = [buffer.as_mut_ptr() as usize, buffer.len(), 0, 0, 0, 0];
    // SAFETY: the kernel writes at most buffer.len() bytes into the buffer.
    let length = checked(unsafe { syscall(libc::SYS_getcwd, arguments) })?;
    // It counts the NUL.
    Ok(length.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use hither_testing::skip::skip_on_this_machine;

    /// A mapping of 2 MiB must not become one huge page at its first touch.
    #[test]
    fn what_is_mapped_has_no_huge_pages() {
        let text = fs::read_to_string("/proc/sys/kernel/osrelease").expect("a release");
        let mut release = text.split('.').map(|number| number.parse().unwrap_or(0));
        let release: (u32, u32) = (
            release.next().unwrap_or_default(),
            release.next().unwrap_or_default(),
        );
        if release < (6, 7) || !fs::exists("/sys/kernel/mm/transparent_hugepage").unwrap_or(false) {
            skip_on_this_machine("MAP_STACK says nothing of huge pages");
            return;
        }
        let length = 4 << 20;
        let start = super::map(length, None).expect("mapped");
        let maps = fs::read_to_string("/proc/self/smaps").expect("smaps");
        // SAFETY: the mapping was made above, and nothing refers to it.
        unsafe { super::unmap(start, length) };
        let (_, rest) = maps
            .split_once(&format!("{:x}-", start.addr()))
            .expect("the mapping");
        let flags = rest.lines().find(|line| line.starts_with("VmFlags:"));
        let flags = flags.expect("its flags");
        assert!(flags.split(' ').any(|flag| flag == "nh"), "{flags}");
    }
}
