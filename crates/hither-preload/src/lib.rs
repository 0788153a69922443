//! The library that is preloaded into recorded programs.
//!
//! It stands in front of libc's file calls (`hooks`), makes the real call, and tells the agent
//! through shared memory what it did and from which call site ([`signature`]). Without the
//! environment variable `HITHER_SESSION` every hook is a plain pass-through.
//!
//! It lives inside programs that know nothing of it, so: no panic, no lock, no allocation from the
//! program's heap, no descriptor left open, `errno` as the real call left it.
//!
//! The exported symbols exist only with the feature `interpose`, with which the packages in
//! `libraries/` build a `cdylib` each: a test or bench that links this crate must not interpose
//! itself.
//! With the feature `pages` it also stands in front of the malloc family, tracks large allocations,
//! and carries out the agent's orders on where they belong. Recording works on x86-64 with glibc;
//! elsewhere this library is empty.
#![allow(unsafe_code)]
#![cfg(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64"))]

pub mod signature;

#[cfg(feature = "interpose")]
mod arena;
#[cfg(any(feature = "interpose", test))]
mod buffers;
#[cfg(any(feature = "interpose", test))]
mod descriptors;
#[cfg(any(feature = "interpose", test))]
mod files;
#[cfg(feature = "interpose")]
mod hooks;
#[cfg(any(feature = "pages", test))]
mod pages;
#[cfg(feature = "interpose")]
mod read_placement;
#[cfg(any(feature = "interpose", test))]
#[cfg_attr(
    not(feature = "interpose"),
    expect(dead_code, reason = "hooks alone tell the kernel anything")
)]
mod readahead;
#[cfg(feature = "interpose")]
mod real;
#[cfg(feature = "interpose")]
mod recorder;
#[cfg(feature = "interpose")]
mod replicas;
#[cfg(any(feature = "interpose", test))]
mod resident_filter;

#[cfg(feature = "interpose")]
#[global_allocator]
static ALLOCATOR: arena::Arena = arena::Arena;

/// Runs when the library is loaded, before the program's own code.
#[cfg(feature = "interpose")]
#[used]
#[unsafe(link_section = ".init_array")]
static ON_LOAD: extern "C" fn() = {
    extern "C" fn on_load() {
        if recorder::start() {
            // Streams whose closing is not seen would leave descriptors behind that stand for other
            // files by then.
            if recorder::follows_files() && hooks::stdio::patch() {
                replicas::start();
                read_placement::start();
                recorder::follow_read_ahead();
            }
            #[cfg(feature = "pages")]
            hooks::openmp::prepare();
            recorder::announce();
        }
    }
    on_load
};
