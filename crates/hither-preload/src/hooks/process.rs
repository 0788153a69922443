//! Calls that share a process's descriptors or memory with another one, or make them a thread's
//! own: replicas and readahead depend on both.

use std::ffi::{c_char, c_int, c_uint, c_void};

use libc::{FILE, cmsghdr, mmsghdr, msghdr, ssize_t};

use crate::session::owns_descriptors;
use crate::{lifecycle, real};

announced!(vfork => about_to_vfork);
announced!(clone => about_to_clone);
announced!(_Fork => about_to_fork);

fn or_missing(real: *mut c_void) -> *const c_void {
    extern "C" fn missing() -> c_int {
        real::missing()
    }
    if real.is_null() {
        missing as *const c_void
    } else {
        real
    }
}

/// The child has descriptors of its own and its parent's memory.
extern "C" fn about_to_vfork() -> *const c_void {
    lifecycle::makes_child_in_this_memory();
    lifecycle::all_shared();
    or_missing(real::VFORK.get())
}

/// Unlike `fork`, it calls no handlers.
extern "C" fn about_to_fork() -> *const c_void {
    lifecycle::all_shared();
    or_missing(real::FORK.get())
}

/// A child may share the one and not the other, in any way.
extern "C" fn about_to_clone(
    _function: *const c_void,
    _stack: *const c_void,
    flags: c_int,
) -> *const c_void {
    lifecycle::makes_child_in_this_memory();
    if unshares(flags as usize) {
        lifecycle::descriptors_unshared()
    } else {
        lifecycle::descriptors_untraceable()
    }
    or_missing(real::CLONE.get())
}

/// Whether what `clone` makes with these flags has this process's memory and descriptors of its
/// own. (For a child that is soon to run another program, which the caller waits for, that does not
/// matter.)
pub(super) fn unshares(flags: usize) -> bool {
    let flags = flags as c_int;
    flags & libc::CLONE_VM != 0 && flags & (libc::CLONE_FILES | libc::CLONE_VFORK) == 0
}

/// Stands in for libc's function.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn unshare(flags: c_int) -> c_int {
    if flags & libc::CLONE_FILES != 0 {
        lifecycle::descriptors_unshared();
    }
    // SAFETY: the program's own call, passed on.
    unsafe { real::unshare(flags) }
}

/// Stands in for libc's function, which does not call what it starts the shell with by its name.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn system(command: *const c_char) -> c_int {
    lifecycle::all_shared();
    // SAFETY: the program's own call, passed on.
    unsafe { real::system(command) }
}

/// Stands in for libc's function, as [`system`].
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn popen(command: *const c_char, mode: *const c_char) -> *mut FILE {
    lifecycle::all_shared();
    // SAFETY: the program's own call, passed on.
    unsafe { real::popen(command, mode) }
}

/// Stands in for libc's function.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sendmsg(to: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the program's own call, passed on.
    let result = unsafe { real::sendmsg(to, message, flags) };
    if result >= 0 {
        // SAFETY: the call took the message.
        unsafe { sent(message) };
    }
    result
}

/// Stands in for libc's function.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sendmmsg(
    to: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    // SAFETY: the program's own call, passed on.
    let result = unsafe { real::sendmmsg(to, messages, count, flags) };
    for at in 0..result.max(0) as usize {
        // Each begins with its message.
        let message = messages.wrapping_add(at).cast::<msghdr>();
        // SAFETY: the call took so many of them.
        unsafe { sent(message) };
    }
    result
}

/// Descriptors that a message took along are another process's, too. Told after the call, which has
/// found the message to be there; the other process may have read by then.
///
/// # Safety
/// `message` is a message, and its control messages are there.
unsafe fn sent(message: *const msghdr) {
    // SAFETY: as the caller says.
    let message = unsafe { &*message };
    // SAFETY: the message is there.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    // SAFETY: it is null or a control message within the length that the message gives.
    while let Some(control) = unsafe { header.as_ref() } {
        if (control.cmsg_level, control.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS)
            && owns_descriptors()
        {
            // SAFETY: it only computes where the bytes after the header begin.
            let descriptors = unsafe { libc::CMSG_DATA(header) }.cast::<c_int>();
            let length = control.cmsg_len.min(message.msg_controllen);
            let bytes = length.saturating_sub(size_of::<cmsghdr>());
            for at in 0..bytes / size_of::<c_int>() {
                // SAFETY: the kernel has read so many there.
                lifecycle::shared(unsafe { descriptors.wrapping_add(at).read_unaligned() });
            }
        }
        // SAFETY: as above.
        header = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
}
