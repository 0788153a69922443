//! `prctl`, and `syscall`: calls that change what this library may do in the process.
//!
//! - *seccomp*. A program that confines itself allows the system calls that it makes, not ours: at
//!   the first of ours the kernel would kill it. So recording ends in the process before it is
//!   confined.
//! - *userfaultfd*. The program's memory is not sampled any more, since a range can be registered
//!   with one userfaultfd only.
//! - *mbind* (libnuma calls it by number). The program has chosen a policy for that memory, which
//!   is left alone.
//! - *fadvise*, *readahead*, *close*, *dup*, *fcntl* by number count like the functions of that
//!   name. What *read* and its kin do by number is not recorded; that they move positions is taken
//!   note of.
//! - *clone*, *unshare*, *io_uring* by number: no read at a file's own offset is served from
//!   replicas any more, and readahead is left alone. Where a thread gets descriptors of its own,
//!   each access looks its file up.
//! - *setrlimit*, *prlimit*, *mlockall* by number count like the functions of that name (`limits`).
//!
//! Calls that only ask what the kernel supports change nothing here: they fail for their null
//! filter, or set none.

use std::ffi::{c_int, c_long, c_uint, c_void};

use super::process::unshares;
use super::{io_uring, limits};
use crate::arch::{SYS_DUP2, SYS_FORK, SYS_VFORK};
use crate::{lifecycle, readahead, real};

/// Stands in for libc's function.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn prctl(
    option: c_int,
    second: usize,
    third: usize,
    fourth: usize,
    fifth: usize,
) -> c_int {
    let mode = second as c_uint;
    if option == libc::PR_SET_SECCOMP && (mode != libc::SECCOMP_MODE_FILTER || third != 0) {
        lifecycle::stop();
    }
    // SAFETY: the program's own call, passed on.
    unsafe { real::prctl(option, second, third, fourth, fifth) }
}

// Whatever `syscall` is asked, the real one gets the call as it came. These come to `prepare`
// first.
by_number! {
    syscall => prepare, real::SYSCALL;
    read: libc::SYS_read;
    write: libc::SYS_write;
    close: libc::SYS_close;
    lseek: libc::SYS_lseek;
    readv: libc::SYS_readv;
    writev: libc::SYS_writev;
    dup: libc::SYS_dup;
    dup2: SYS_DUP2;
    sendfile: libc::SYS_sendfile;
    clone: libc::SYS_clone;
    fork: SYS_FORK;
    vfork: SYS_VFORK;
    seccomp: libc::SYS_seccomp;
    userfaultfd: libc::SYS_userfaultfd;
    mbind: libc::SYS_mbind;
    close_range: libc::SYS_close_range;
    dup3: libc::SYS_dup3;
    fadvise: libc::SYS_fadvise64;
    readahead: libc::SYS_readahead;
    clone3: libc::SYS_clone3;
    unshare: libc::SYS_unshare;
    io_uring_setup: libc::SYS_io_uring_setup;
    setrlimit: libc::SYS_setrlimit;
    prlimit: libc::SYS_prlimit64;
    mlockall: libc::SYS_mlockall;
    fcntl: libc::SYS_fcntl;
    splice: libc::SYS_splice;
    copy_file_range: libc::SYS_copy_file_range;
    preadv2: libc::SYS_preadv2;
    pwritev2: libc::SYS_pwritev2;
}

/// Ends the recording if the call about to be made confines the process, or the sampling of its
/// memory if it is to watch that itself, and returns the function that makes it.
extern "C" fn prepare(number: c_long, first: usize, second: usize, third: usize) -> *const c_void {
    let confines = match first as c_uint {
        libc::SECCOMP_SET_MODE_STRICT => true,
        libc::SECCOMP_SET_MODE_FILTER => third != 0,
        _ => false,
    };
    if number == libc::SYS_seccomp && confines {
        lifecycle::stop();
    }
    #[cfg(feature = "pages")]
    if number == libc::SYS_userfaultfd {
        crate::pages::offer::refuse();
    }
    #[cfg(feature = "pages")]
    if number == libc::SYS_mbind {
        crate::pages::binds_itself(first as u64, second as u64, third as c_int);
    }
    if matches!(number, libc::SYS_clone | libc::SYS_clone3 | SYS_VFORK) {
        lifecycle::makes_child_in_this_memory();
    }
    match number {
        libc::SYS_close => lifecycle::closed(first as i32),
        libc::SYS_close_range => {
            lifecycle::closed_range(first as u32, second as u32);
            if third as c_uint & libc::CLOSE_RANGE_UNSHARE != 0 {
                lifecycle::descriptors_unshared();
            }
        }
        libc::SYS_dup => lifecycle::shared(first as i32),
        SYS_DUP2 | libc::SYS_dup3 => {
            lifecycle::shared(first as i32);
            lifecycle::closed(second as i32);
        }
        libc::SYS_fadvise64 | libc::SYS_readahead => readahead::leave(first as i32),
        // Whose descriptors and memory are whose, and what a ring closes and opens, is not
        // followed.
        libc::SYS_unshare if first as c_int & libc::CLONE_FILES != 0 => {
            lifecycle::descriptors_unshared();
        }
        libc::SYS_read
        | libc::SYS_write
        | libc::SYS_lseek
        | libc::SYS_readv
        | libc::SYS_writev
        | libc::SYS_preadv2
        | libc::SYS_pwritev2 => lifecycle::position_unfollowed(first as i32),
        libc::SYS_fcntl => match second as c_int {
            libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => lifecycle::shared(first as i32),
            libc::F_SETFL => lifecycle::flags_changed(first as i32),
            _ => {}
        },
        libc::SYS_sendfile => {
            lifecycle::position_unfollowed(first as i32);
            lifecycle::position_unfollowed(second as i32);
        }
        libc::SYS_splice | libc::SYS_copy_file_range => {
            lifecycle::position_unfollowed(first as i32);
            lifecycle::position_unfollowed(third as i32);
        }
        libc::SYS_clone if unshares(first) => lifecycle::descriptors_unshared(),
        libc::SYS_clone
        | libc::SYS_clone3
        | SYS_FORK
        | SYS_VFORK
        | libc::SYS_unshare
        | libc::SYS_io_uring_setup => lifecycle::descriptors_untraceable(),
        libc::SYS_mlockall => lifecycle::memory_will_be_locked(),
        _ => {}
    }
    let real = real::SYSCALL.get();
    match number {
        _ if real.is_null() => missing as *const c_void,
        libc::SYS_io_uring_setup => set_up_io_uring as *const c_void,
        libc::SYS_setrlimit | libc::SYS_prlimit64 => limits::set_by_number as *const c_void,
        _ => real,
    }
}

/// Makes the call, and reports it if it succeeds.
unsafe extern "C-unwind" fn set_up_io_uring(
    number: c_long,
    entries: usize,
    parameters: usize,
) -> c_long {
    type Call = unsafe extern "C-unwind" fn(c_long, usize, usize) -> c_long;
    // SAFETY: `prepare` has found `syscall`, which takes these words in these registers.
    let real = unsafe { std::mem::transmute::<*mut c_void, Call>(real::SYSCALL.get()) };
    // SAFETY: the program's own call, passed on.
    let ring = unsafe { real(number, entries, parameters) };
    if ring >= 0 {
        io_uring::is_set_up();
    }
    ring
}

/// Stands in where there is no `syscall` to pass the call on to.
extern "C" fn missing() -> c_long {
    c_long::from(real::missing())
}
