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

use crate::syscalls;

pub(crate) const PAGE: usize = 4096;

/// The number of a segment.
pub(crate) type Id = i32;

/// Makes a segment of zeroes that only this user may attach, and attaches it.
pub(crate) fn create(bytes: usize) -> io::Result<(Id, *mut u8)> {
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

/// The size of a segment, rounded up to whole pages. An error if there is none of this number in
/// this IPC namespace, or this process may not read it.
pub(crate) fn bytes(id: Id) -> Result<usize, i32> {
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
    Ok(unsafe { about.assume_init() }.shm_segsz)
}

/// Attaches all of a segment.
pub(crate) fn attach(id: Id) -> Result<*mut u8, i32> {
    // SAFETY: without an address the segment is placed where nothing else is.
    let at = unsafe { syscalls::syscall(libc::SYS_shmat, [id as usize, 0, 0, 0, 0, 0]) };
    // Addresses of programs are positive.
    match at {
        1.. => Ok(at as *mut u8),
        _ => Err(-at as i32),
    }
}

/// Detaches a segment.
///
/// # Safety
/// It was attached there, and nothing refers to it any more.
pub(crate) unsafe fn detach(at: *mut u8) {
    // SAFETY: as the caller says.
    unsafe { syscalls::syscall(libc::SYS_shmdt, [at as usize, 0, 0, 0, 0, 0]) };
}

/// Frees what lies in a range of whole pages, which then holds zeroes.
///
/// # Safety
/// The range is part of an attached segment, and nobody depends on what it holds.
pub(crate) unsafe fn clear(at: *mut u8, bytes: usize) {
    // A refusal only means that the memory stays. SAFETY: as the caller says.
    let _ = unsafe { syscalls::advise(at, bytes, libc::MADV_REMOVE) };
}

/// Asks for memory behind a range of whole pages of the segment, without the signal that a store
/// would end in when there is none.
pub(crate) fn populate(start: *mut u8, length: usize) -> bool {
    // SAFETY: the range is part of the segment; populating keeps its contents.
    match unsafe { syscalls::advise(start, length, libc::MADV_POPULATE_WRITE) } {
        Ok(()) => true,
        // Before Linux 5.14. A system call that writes to each page asks too, and fails with
        // EFAULT.
        Err(libc::EINVAL) => (0..length).step_by(PAGE).all(|page| {
            let arguments = [
                libc::CLOCK_MONOTONIC as usize,
                start.wrapping_add(page) as usize,
                0,
                0,
                0,
                0,
            ];
            // SAFETY: the kernel writes 16 bytes to the start of a page that holds nothing yet.
            let result = unsafe { syscalls::syscall(libc::SYS_clock_gettime, arguments) };
            result == 0
        }),
        Err(_) => false,
    }
}

/// Whether the kernel counts every segment as a whole against what it may promise to programs.
pub(crate) fn counts_as_a_whole() -> bool {
    std::fs::read("/proc/sys/vm/overcommit_memory").is_ok_and(|mode| mode.starts_with(b"2"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_gone_with_its_last_user() {
        let (id, first) = create(10_000).expect("made");
        assert_eq!(bytes(id), Ok(10_000));
        // Marked for removal, and to be had all the same.
        let second = attach(id).expect("attached");
        // SAFETY: the segment is longer than that, and zeroed.
        unsafe { first.wrapping_add(9_999).write_volatile(7) };
        // SAFETY: as above.
        assert_eq!(unsafe { second.wrapping_add(9_999).read_volatile() }, 7);
        // SAFETY: its pages, which nobody depends on.
        unsafe { clear(second, 12_288) };
        // SAFETY: as above.
        assert_eq!(unsafe { first.wrapping_add(9_999).read_volatile() }, 0);
        // SAFETY: attached there.
        unsafe { detach(first) };
        assert!(bytes(id).is_ok(), "one is left");
        // SAFETY: as above.
        unsafe { detach(second) };
        assert_eq!(bytes(id), Err(libc::EINVAL));
        assert_eq!(attach(id), Err(libc::EINVAL));
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
