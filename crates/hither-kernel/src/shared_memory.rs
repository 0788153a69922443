//! Memory that several processes share, without a file: a System V segment that is marked for
//! removal as soon as it is made.
//!
//! Nothing can change its size, so that no access to it ends in a SIGBUS. The kernel frees it when
//! the last process that has attached it ends, however that ends. Linux lets a process attach a
//! segment that is marked by its number. That works in every mount, pid and user namespace and
//! needs neither /proc nor a descriptor; it does not work in another IPC namespace.
//!
//! Turned down: a file in /dev/shm, which a program can truncate and a killed agent leaves behind;
//! and a sealed memfd under `/proc/AGENT/fd`, which the kernel opens only for processes that might
//! trace the agent. In another user or pid namespace, with another group or with fewer
//! capabilities, a process may not.

use std::io;

use hither_ids::Pid;

use crate::{page_bytes, syscalls};

/// The number of a segment.
pub type Id = i32;

/// Makes a segment of zeroes that only this user may attach, and attaches it.
pub fn create(bytes: usize) -> io::Result<(Id, *mut u8)> {
    // Without the flag the whole size would count as used memory. With `vm.overcommit_memory=2` it
    // does anyway.
    let flags = libc::IPC_CREAT | libc::SHM_NORESERVE | 0o600;
    let private = libc::IPC_PRIVATE as usize;
    let arguments = [private, bytes, flags as usize, 0, 0, 0];
    // SAFETY: the call takes no memory.
    let id = unsafe { syscalls::syscall(libc::SYS_shmget, arguments) };
    let id = Id::try_from(id).unwrap_or(-libc::EINVAL);
    if id < 0 {
        return Err(explain(-id, bytes));
    }
    let attached = attach(id);
    // Also if that failed: nobody else knows of it.
    let arguments = [id as usize, libc::IPC_RMID as usize, 0, 0, 0, 0];
    // SAFETY: the command takes no memory, and what is attached stays.
    unsafe { syscalls::syscall(libc::SYS_shmctl, arguments) };
    attached
        .map(|at| (id, at))
        .map_err(|error| explain(error, bytes))
}

/// What the kernel rounds a size up to.
fn whole_pages(bytes: usize) -> usize {
    bytes.next_multiple_of(page_bytes() as usize)
}

/// Names the limit that keeps a segment from being made.
fn explain(error: i32, bytes: usize) -> io::Error {
    let limit = match error {
        libc::EINVAL => "more than kernel.shmmax allows",
        libc::ENOSPC => "more than kernel.shmall or kernel.shmmni allows",
        libc::ENOMEM => "more than there is room for (vm.overcommit_memory, ulimit -v)",
        libc::ENOSYS => "not to be had: this kernel has no System V shared memory",
        _ => return io::Error::from_raw_os_error(error),
    };
    let kind = io::Error::from_raw_os_error(error).kind();
    let problem = format!("shared memory of {} MiB is {limit}", bytes >> 20);
    io::Error::new(kind, problem)
}

/// What the kernel says of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Its size, rounded up to whole pages.
    pub bytes: usize,
    /// The process that made it, by its number in this process's pid namespace; 0 if it has none
    /// there. (Before Linux 4.17 it is the number in that process's own namespace.)
    pub maker: Pid,
    /// How often processes have attached it. Forked children have what their parents have.
    pub attached: u64,
}

/// Asks about a segment. An error if there is none of this number in this IPC namespace, or this
/// process may not read it.
pub fn status(id: Id) -> Result<Status, i32> {
    let mut about = std::mem::MaybeUninit::<libc::shmid_ds>::zeroed();
    let arguments = [
        id as usize,
        libc::IPC_STAT as usize,
        about.as_mut_ptr() as usize,
        0,
        0,
        0,
    ];
    // SAFETY: the kernel writes one shmid_ds.
    let result = unsafe { syscalls::syscall(libc::SYS_shmctl, arguments) };
    if result < 0 {
        return Err(-result as i32);
    }
    // SAFETY: zeroed memory is a valid shmid_ds, and the kernel has filled it.
    let about = unsafe { about.assume_init() };
    Ok(Status {
        bytes: about.shm_segsz,
        maker: Pid(about.shm_cpid as u32),
        attached: about.shm_nattch,
    })
}

/// The other processes that have attached a segment and keep its first `kept_bytes` bytes, as far
/// as this process, which has attached it once, may see what they map. A fork of this process has
/// them where this process has them, and has attached nothing: it is none of them.
pub fn other_users(id: Id, kept_bytes: usize) -> Vec<Pid> {
    if status(id).is_ok_and(|status| status.attached == 1) {
        return Vec::new();
    }
    let starts_in = |pid: Pid| {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        let starts = maps.lines().map(|line| start_of(line, id, kept_bytes));
        starts.flatten().collect::<Vec<usize>>()
    };
    let own = starts_in(Pid::own());
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<Pid>().ok());
    let is_user = |&pid: &Pid| starts_in(pid).iter().any(|start| !own.contains(start));
    pids.filter(is_user).collect()
}

/// Where the first bytes of this segment are, if a line of /proc/PID/maps (proc_pid_maps(5)) is of
/// them. Its number stands for the inode's; in another IPC namespace that may be another one's, of
/// another size.
fn start_of(line: &str, id: Id, bytes: usize) -> Option<usize> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let address = |text| usize::from_str_radix(text, 16).ok();
    let (start, end) = (address(start)?, address(end)?);
    let is_as_long = end.checked_sub(start) == Some(whole_pages(bytes));
    let is_first = words.nth(1)?.bytes().all(|digit| digit == b'0');
    let is_numbered = words.nth(1)?.parse() == Ok(id);
    let is_segment = words.next()?.starts_with("/SYSV");
    (is_as_long && is_first && is_numbered && is_segment).then_some(start)
}

/// Attaches all of a segment.
pub fn attach(id: Id) -> Result<*mut u8, i32> {
    // SAFETY: without an address the segment is placed where nothing else is.
    let at = unsafe { syscalls::syscall(libc::SYS_shmat, [id as usize, 0, 0, 0, 0, 0]) };
    // Addresses of programs are positive.
    match at {
        1.. => Ok(at as *mut u8),
        _ => Err(-at as i32),
    }
}

/// Detaches all of a segment but a range of whole pages.
///
/// # Safety
/// So many bytes of the segment are attached there, and nothing refers to what is detached.
pub unsafe fn keep(base: *mut u8, bytes: usize, kept: std::ops::Range<usize>) {
    let end = whole_pages(bytes);
    for gone in [0..kept.start, whole_pages(kept.end)..end] {
        if !gone.is_empty() {
            // SAFETY: as the caller says.
            unsafe { syscalls::unmap(base.wrapping_add(gone.start), gone.len()) };
        }
    }
}

/// Frees what lies in a range of whole pages, which then holds zeroes.
///
/// # Safety
/// The range is part of an attached segment, and nobody depends on what it holds.
pub unsafe fn clear(at: *mut u8, bytes: usize) {
    // A refusal only means that the memory stays. SAFETY: as the caller says.
    let _ = unsafe { syscalls::advise(at, bytes, libc::MADV_REMOVE) };
}

/// Asks for memory behind a range of whole pages of the segment, without the signal that a store
/// would end in when there is none.
///
/// # Safety
/// The range is part of a segment that is attached, and nobody needs the first 16 bytes of any of
/// its pages: an old kernel writes to them.
pub unsafe fn populate(start: *mut u8, length: usize) -> bool {
    // SAFETY: populating keeps what the range contains.
    match unsafe { syscalls::advise(start, length, libc::MADV_POPULATE_WRITE) } {
        Ok(()) => true,
        // Before Linux 5.14. A system call that writes to each page asks too, and fails with
        // EFAULT.
        Err(libc::EINVAL) => (0..length).step_by(page_bytes() as usize).all(|page| {
            let arguments = [
                libc::CLOCK_MONOTONIC as usize,
                start.wrapping_add(page) as usize,
                0,
                0,
                0,
                0,
            ];
            // SAFETY: the kernel writes 16 bytes to the start of a page, which nobody needs.
            let result = unsafe { syscalls::syscall(libc::SYS_clock_gettime, arguments) };
            result == 0
        }),
        Err(_) => false,
    }
}

/// Whether the kernel counts every segment as a whole against what it may promise to programs.
pub fn counts_as_a_whole() -> bool {
    std::fs::read("/proc/sys/vm/overcommit_memory").is_ok_and(|mode| mode.starts_with(b"2"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_gone_with_its_last_user() {
        let (id, first) = create(10_000).expect("made");
        let maker = Pid::own();
        let first_only = Status {
            bytes: 10_000,
            maker,
            attached: 1,
        };
        assert_eq!(status(id), Ok(first_only));
        // Marked for removal, and to be had all the same.
        let second = attach(id).expect("attached");
        assert_eq!(other_users(id, 10_000), [], "this process is none");
        // SAFETY: the segment is longer than that, and zeroed.
        unsafe { first.wrapping_add(9_999).write_volatile(7) };
        // SAFETY: as above.
        assert_eq!(unsafe { second.wrapping_add(9_999).read_volatile() }, 7);
        // SAFETY: its pages, which nobody depends on.
        unsafe { clear(second, 12_288) };
        // SAFETY: as above.
        assert_eq!(unsafe { first.wrapping_add(9_999).read_volatile() }, 0);
        // SAFETY: attached there.
        unsafe { keep(first, 10_000, 0..0) };
        assert!(status(id).is_ok(), "one is left");
        // SAFETY: as above.
        unsafe { keep(second, 10_000, 8192..10_000) };
        assert!(status(id).is_ok(), "a page of it is left");
        // SAFETY: as above.
        unsafe { keep(second.wrapping_add(8192), 4096, 0..0) };
        assert_eq!(status(id), Err(libc::EINVAL));
        assert_eq!(attach(id), Err(libc::EINVAL));
    }

    #[test]
    fn a_fork_of_the_process_is_no_other_user() {
        let (id, _) = create(10_000).expect("made");
        // SAFETY: the child makes one system call and is killed.
        let child = unsafe { libc::fork() };
        if child == 0 {
            loop {
                // SAFETY: it takes no memory.
                unsafe { libc::pause() };
            }
        }
        assert_eq!(status(id).map(|status| status.attached), Ok(2));
        let users = other_users(id, 10_000);
        // SAFETY: the child is this process's, and not waited for yet.
        let killed = unsafe { libc::kill(child, libc::SIGKILL) };
        assert_eq!(killed, 0);
        // SAFETY: without a place for the status none is written.
        let waited = unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
        assert_eq!(waited, child);
        assert_eq!(users, []);
    }

    #[test]
    fn a_segment_is_known_by_its_number_and_size() {
        let line = "7f0000000000-7f0000003000 rw-s 00000000 00:01 42     /SYSV00000000 (deleted)";
        assert_eq!(start_of(line, 42, 10_000), Some(0x7f00_0000_0000));
        assert_eq!(start_of(line, 41, 10_000), None, "another one");
        assert_eq!(start_of(line, 42, 20_000), None, "in another namespace");
        let part = line.replace("00000000 00:", "00003000 00:");
        assert_eq!(start_of(&part, 42, 10_000), None, "another part");
        assert_eq!(start_of(&line.replace("SYSV", "file"), 42, 10_000), None);
        assert_eq!(start_of("", 42, 10_000), None);
    }

    #[test]
    fn a_limit_is_named() {
        let error = create(1 << 62).expect_err("too large");
        assert!(
            error.to_string().starts_with("shared memory of "),
            "{error}"
        );
    }
}
