//! Programs that set up an io_uring: the kernel reads and writes for them without a call that this
//! library sees, and does not count it either. The agent is told, so that it can say so.
//!
//! liburing makes its system calls itself, so that its own functions are hooked; who makes them by
//! number goes through `syscall` (`seccomp`). A program with a liburing of its own, linked
//! statically, is not noticed.

use std::ffi::{c_int, c_void};

use hither_session::record::Record;

use super::trampoline;
use crate::real::{self, Real};
use crate::{lifecycle, thread};

trampoline! {
    io_uring_setup => setup_hook, 2;
}
trampoline! {
    io_uring_queue_init => queue_init_hook, 3;
    io_uring_queue_init_params => queue_init_params_hook, 3;
}
trampoline! {
    io_uring_queue_init_mem => queue_init_mem_hook, 5;
}

/// The process has got an io_uring, which opens and closes descriptors, too.
pub(super) fn is_set_up() {
    lifecycle::descriptors_untraceable();
    if let Some(session) = lifecycle::session() {
        thread::push_apart(session, &Record::IoUring);
    }
}

/// Defines hooks of functions that return a negated error number, or a ring.
macro_rules! setting_up {
    ($($hook:ident => $symbol:literal ($($argument:ident),*);)*) => {
        $(
            unsafe extern "C-unwind" fn $hook(
                $($argument: usize,)*
                sp: *const u64,
                _fp: u64,
            ) -> c_int {
                static REAL: Real = Real::new($symbol);
                // SAFETY: the trampoline was called, so that its return address is on top of the
                // stack.
                let caller = unsafe { sp.read() } as *const c_void;
                let Some(real) = real::found_by(&REAL, caller) else {
                    return -libc::ENOSYS;
                };
                // SAFETY: the function of that name takes so many words and returns an int.
                let real = unsafe {
                    std::mem::transmute::<
                        *mut c_void,
                        unsafe extern "C-unwind" fn($(setting_up!(@word $argument)),*) -> c_int,
                    >(real)
                };
                // SAFETY: the program's own call, passed on.
                let result = unsafe { real($($argument),*) };
                if result >= 0 {
                    is_set_up();
                }
                result
            }
        )*
    };
    (@word $argument:ident) => { usize };
}

setting_up! {
    setup_hook => c"io_uring_setup" (entries, parameters);
    queue_init_hook => c"io_uring_queue_init" (entries, ring, flags);
    queue_init_params_hook => c"io_uring_queue_init_params" (entries, ring, parameters);
    queue_init_mem_hook => c"io_uring_queue_init_mem" (entries, ring, parameters, memory, bytes);
}
