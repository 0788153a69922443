//! Architectures that have no file of their own: system calls go through libc, and no caches are
//! flushed.

/// Whether [`flush`] empties caches.
pub(crate) const CAN_FLUSH: bool = false;

/// Makes system call `number`. The result is what the kernel returns: `-errno` on failure.
///
/// # Safety
/// The arguments must satisfy what that system call demands of the memory and descriptors that they
/// name.
pub unsafe fn syscall(number: libc::c_long, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the caller vouches for the arguments.
    let result = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    if result == -1 {
        -(std::io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::EIO) as isize)
    } else {
        result as isize
    }
}

/// Nothing.
pub(crate) fn flush<T>(_of: &T) {}

/// Nothing.
pub(crate) fn fence() {}
