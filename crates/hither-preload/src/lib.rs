//! The library that is preloaded into recorded programs.
//!
//! It stands in front of libc's file calls (`hooks`), makes the real call, and reports to the agent
//! through shared memory what the call did and from which call site ([`signature`]). Without the
//! environment variable `HITHER_SESSION` every hook is a plain pass-through.
//!
//! It lives inside programs that know nothing of it, so: no panic, no lock, no allocation from the
//! program's heap, no descriptor left open, `errno` as the real call left it.
//!
//! The layers, each of which imports those above it only:
//!
//! - `arch`: all that depends on the processor;
//! - `real`, `arena`, `signature`, `descriptor_table`, `files`, `open_buffers`, `streams`: tools
//!   that know no session;
//! - `process`, `session`, `thread`, `access`, `opened`: attaching, forks, rings, and the records
//!   of an access and of a file;
//! - the features: `readahead`, `read_placement` with its `resident_filter`, `replicas`, `pages`;
//! - `lifecycle`, which informs the features of start, stop, open, close, fork and exec;
//! - `hooks`. The path of a read is `hooks::read`, then `hooks::after_call`.
//!
//! The exported symbols exist only with the feature `interpose`, with which the packages in
//! `libraries/` build a `cdylib` each: a test or bench that links this crate must not interpose
//! itself.
//! With the feature `pages` it also stands in front of the malloc family, tracks large allocations,
//! and binds them to the nodes that the agent asks for. Recording works on x86-64 with glibc;
//! elsewhere this library is empty.
#![allow(unsafe_code)]
#![cfg(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64"))]

#[cfg(feature = "interpose")]
use std::ffi::{c_char, c_int};

#[macro_use]
mod arch;

pub mod signature;

#[cfg(feature = "interpose")]
mod access;
#[cfg(feature = "interpose")]
mod arena;
#[cfg(feature = "interpose")]
mod cached_before;
#[cfg(any(feature = "interpose", test))]
mod descriptor_table;
#[cfg(feature = "interpose")]
mod exec_environment;
#[cfg(any(feature = "interpose", test))]
mod files;
#[cfg(feature = "interpose")]
mod hooks;
#[cfg(feature = "interpose")]
mod lifecycle;
#[cfg(feature = "interpose")]
mod open_buffers;
#[cfg(feature = "interpose")]
mod opened;
#[cfg(any(feature = "pages", test))]
mod pages;
#[cfg(feature = "interpose")]
mod process;
#[cfg(feature = "interpose")]
mod read_placement;
#[cfg(any(feature = "interpose", test))]
#[cfg_attr(
    not(feature = "interpose"),
    expect(dead_code, reason = "only hooks advise the kernel")
)]
mod readahead;
#[cfg(feature = "interpose")]
mod real;
#[cfg(feature = "interpose")]
mod replicas;
#[cfg(feature = "interpose")]
mod request;
#[cfg(any(feature = "interpose", test))]
mod resident_filter;
#[cfg(feature = "interpose")]
mod session;
#[cfg(any(feature = "interpose", test))]
mod streams;
#[cfg(feature = "interpose")]
mod thread;

#[cfg(feature = "interpose")]
#[global_allocator]
static ALLOCATOR: arena::Arena = arena::Arena;

/// Runs when the library is loaded, before the program's own code. glibc passes on what `main`
/// gets.
#[cfg(feature = "interpose")]
#[used]
#[unsafe(link_section = ".init_array")]
static ON_LOAD: unsafe extern "C" fn(c_int, *const *const c_char) = {
    unsafe extern "C" fn on_load(_count: c_int, arguments: *const *const c_char) {
        // SAFETY: the dynamic linker's own.
        unsafe { process::given_arguments(arguments) };
        #[cfg(feature = "pages")]
        hooks::allocate::find_all();
        if !lifecycle::start() {
            return;
        }
        // Streams whose closing is not seen would leave descriptors behind that stand for other
        // files by then.
        if session::tracks_descriptors()
            && hooks::stdio::patch()
            && let Some(session) = session::current()
        {
            lifecycle::start_descriptor_features(session);
        }
        #[cfg(feature = "pages")]
        hooks::openmp::prepare();
        if let Some(session) = session::current()
            && session.is_announced()
            && !session.is_paused()
        {
            thread::announce(session);
        }
    }
    on_load
};
