//! Mapped files: mappings and their removal are recorded; the touches in between are not seen.
//!
//! `munmap` is given addresses, so a small table of atomics, without a lock, holds what was mapped
//! where. A mapping that finds the table full, or is removed in pieces that do not start where it
//! did, is never reported as removed: one line of the trace is lost, and nothing else.
//!
//! With the feature `pages`, large private mappings without a file are regions. Not so stacks
//! (`MAP_STACK`, `MAP_GROWSDOWN`), reservations that cannot be written to yet (a collector's heap
//! is mapped over in pieces, each of which is seen), and huge pages of the pool (`MAP_HUGETLB`),
//! which the program has placed itself. `mprotect` and `madvise` are not tracked: they change
//! neither what is a region nor its policy.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use hither_session::record::Op;
use libc::{off_t, size_t};

use super::{after_call, explicit, trampoline};
use crate::signature::Caller;
use crate::{access, lifecycle, real};

#[cfg(feature = "pages")]
use {crate::pages, hither_session::record::RegionKind};

trampoline! {
    munmap => munmap_hook, 2;
}
#[cfg(feature = "pages")]
trampoline! {
    mremap => mremap_hook, 5;
}
trampoline! {
    mmap => mmap_hook, 6;
    mmap64 => mmap64_hook, 6;
}

/// Mappings of files that are remembered at a time. Programs that map more (a mail store, a
/// database) map for good.
const MAPPINGS_MAX: usize = 1024;

static MAPPED: [Mapped; MAPPINGS_MAX] = [const { Mapped::new() }; MAPPINGS_MAX];
/// No entry from here on was ever used.
static USED: AtomicUsize = AtomicUsize::new(0);

/// A mapping of a file.
struct Mapped {
    /// Where it starts; 0 in a free entry, [`TAKEN`] in one that is being filled.
    start: AtomicU64,
    object: AtomicU64,
    offset: AtomicU64,
}

const TAKEN: u64 = 1;

impl Mapped {
    const fn new() -> Self {
        Mapped {
            start: AtomicU64::new(0),
            object: AtomicU64::new(0),
            offset: AtomicU64::new(0),
        }
    }
}

fn remember(start: u64, object: u64, offset: u64) {
    for (at, entry) in MAPPED.iter().enumerate() {
        if entry.start.load(Ordering::Relaxed) == 0
            && entry
                .start
                .compare_exchange(0, TAKEN, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        {
            entry.object.store(object, Ordering::Relaxed);
            entry.offset.store(offset, Ordering::Relaxed);
            entry.start.store(start, Ordering::Release);
            USED.fetch_max(at + 1, Ordering::Relaxed);
            return;
        }
    }
}

/// The file and the offset that were mapped at `start`; forgotten by this.
fn recall(start: u64) -> Option<(u64, u64)> {
    let entry = MAPPED
        .iter()
        .take(USED.load(Ordering::Relaxed))
        .find(|entry| {
            entry.start.load(Ordering::Relaxed) == start
                && entry
                    .start
                    .compare_exchange(start, TAKEN, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
        })?;
    let found = (
        entry.object.load(Ordering::Relaxed),
        entry.offset.load(Ordering::Relaxed),
    );
    entry.start.store(0, Ordering::Release);
    Some(found)
}

/// Defines the hooks of the forms of `mmap`.
macro_rules! mapping {
    ($($hook:ident => $real:ident;)*) => {
        $(
            unsafe extern "C-unwind" fn $hook(
                address: *mut c_void,
                length: size_t,
                protection: c_int,
                flags: c_int,
                fd: c_int,
                offset: off_t,
                sp: *const u64,
                fp: u64,
            ) -> *mut c_void {
                #[cfg(feature = "pages")]
                mapping(address, length, flags);
                // SAFETY: the program's own call, passed on.
                let result = unsafe { real::$real(address, length, protection, flags, fd, offset) };
                #[cfg(feature = "pages")]
                if result != libc::MAP_FAILED && is_data(protection, flags) {
                    pages::began(result as u64, length, RegionKind::Map, Caller { sp, fp });
                }
                if result != libc::MAP_FAILED && flags & libc::MAP_ANONYMOUS == 0 && fd >= 0 {
                    let caller = Caller { sp, fp };
                    if let Some(object) =
                        after_call::record(Op::Map, 0, fd, explicit(offset), length as u64, caller)
                    {
                        remember(result as u64, object, offset as u64);
                    }
                }
                result
            }
        )*
    };
}

mapping! {
    mmap_hook => mmap;
    mmap64_hook => mmap64;
}

unsafe extern "C-unwind" fn munmap_hook(
    address: *mut c_void,
    length: size_t,
    sp: *const u64,
    fp: u64,
) -> c_int {
    #[cfg(feature = "pages")]
    {
        pages::apply_bind_requests();
        pages::ending(address as u64, length);
    }
    // Before the call: once the range is free, another thread's mapping may get the same address.
    let mapped = recall(address as u64);
    // SAFETY: the program's own call, passed on.
    let result = unsafe { real::munmap(address, length) };
    if let (0, Some((object, offset))) = (result, mapped)
        && let Some(session) = lifecycle::files_session()
    {
        let (range, caller) = ((offset, length as u64), Caller { sp, fp });
        access::record_by_key(session, Op::Unmap, object, range, caller);
    }
    result
}

/// Before a mapping: it replaces what lies at a fixed address.
#[cfg(feature = "pages")]
fn mapping(address: *mut c_void, length: size_t, flags: c_int) {
    pages::apply_bind_requests();
    if flags & libc::MAP_FIXED != 0 {
        pages::ending(address as u64, length);
    }
}

/// Whether a mapping is memory for a program's data.
#[cfg(feature = "pages")]
fn is_data(protection: c_int, flags: c_int) -> bool {
    let other = libc::MAP_STACK | libc::MAP_GROWSDOWN | libc::MAP_HUGETLB;
    flags & libc::MAP_ANONYMOUS != 0
        && flags & libc::MAP_TYPE == libc::MAP_PRIVATE
        && flags & other == 0
        && protection & libc::PROT_WRITE != 0
}

/// What was a region is one afterwards, of the site that it had; what was none stays none, since it
/// may be a file.
#[cfg(feature = "pages")]
unsafe extern "C-unwind" fn mremap_hook(
    address: *mut c_void,
    length: size_t,
    to: size_t,
    flags: c_int,
    at: *mut c_void,
    _sp: *const u64,
    _fp: u64,
) -> *mut c_void {
    pages::apply_bind_requests();
    // First: a call that would move a range onto itself fails, and leaves it as it was.
    let moved = pages::moving(address as u64, length);
    if flags & libc::MREMAP_FIXED != 0 {
        pages::ending(at as u64, to);
    }
    let may_be_split = moved.as_ref().is_some_and(|&(_, split)| split);
    let in_pieces = if may_be_split {
        // SAFETY: the program's own call.
        unsafe { pages::pieces::remap(address as u64, length, to, flags, at as u64) }
    } else {
        None
    };
    let result = match in_pieces {
        Some(Ok(result)) => result as *mut c_void,
        Some(Err(error)) => {
            real::fail(error);
            libc::MAP_FAILED
        }
        // SAFETY: the program's own call, passed on.
        None => unsafe { real::mremap(address, length, to, flags, at) },
    };
    if let Some((region, _)) = moved {
        if result == libc::MAP_FAILED {
            pages::again(&region, address as u64, length);
        } else {
            pages::again(&region, result as u64, to);
        }
    }
    result
}
