//! The malloc family. Allocations of at least the session's `region_min` bytes, and what frees
//! them, come to the hooks; all others take a comparison, or a look into a filter, and a jump to
//! the real function.
//!
//! Measured 2026-11 (`benches/heap.rs`, glibc 2.36, CPU time of a pair of calls on a busy machine):
//! 64 bytes 8.8 ns alone, 9.8 behind the library; 2 MiB of the heap 19 ns alone, 25 behind the
//! library, 225 tracked; 2 MiB mapped, with one page touched, 5 to 6 us either way.
//!
//! The real functions cannot be called before they are found, and finding them may allocate:
//! `dlsym` of older C libraries does, and so does whatever else interposes it. Such blocks come
//! from a small buffer and are never freed.
//!
//! A program may bring its own `malloc`. Linked into it, that stands in front of ours, which is
//! then never called, and its mappings are the regions. As a library it stands behind ours, and
//! both its mappings and the allocations are seen: an allocation ends the part of the mapping that
//! it is in.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use hither_kernel::{page_bytes, syscalls};
use hither_session::record::RegionKind;
use libc::size_t;

use crate::pages::table::{FILTER_SHIFT, Table};
use crate::pages::{self, REGION_MIN, TABLE};
use crate::real::{self, Real};
use crate::signature::Caller;

/// Declares the real functions: where each was found, and a way to call it, which is refused to the
/// thread that is finding them.
macro_rules! heap {
    ($($found:ident $name:ident($($argument:ident: $kind:ty),*) -> $result:ty;)*) => {
        $(static $found: Real = Real::new(
            match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a name without NUL bytes"),
            },
        );)*

        static HEAP: [&Real; [$(stringify!($name)),*].len()] = [$(&$found),*];

        /// The real functions.
        pub(super) mod heap {
            use super::*;
            $(
                /// # Safety
                /// As the C function demands.
                pub(in super::super) unsafe fn $name($($argument: $kind),*) -> Option<$result> {
                    let at = find(&$found)?;
                    // SAFETY: the symbol of this name has this type.
                    let function = unsafe {
                        std::mem::transmute::<
                            *mut c_void,
                            unsafe extern "C-unwind" fn($($kind),*) -> $result,
                        >(at)
                    };
                    // SAFETY: the caller keeps to what the function demands.
                    Some(unsafe { function($($argument),*) })
                }
            )*
        }
    };
}

heap! {
    MALLOC malloc(size: size_t) -> *mut c_void;
    CALLOC calloc(count: size_t, size: size_t) -> *mut c_void;
    REALLOC realloc(block: *mut c_void, size: size_t) -> *mut c_void;
    REALLOCARRAY reallocarray(block: *mut c_void, count: size_t, size: size_t) -> *mut c_void;
    FREE free(block: *mut c_void) -> ();
    MEMALIGN memalign(alignment: size_t, size: size_t) -> *mut c_void;
    ALIGNED_ALLOC aligned_alloc(alignment: size_t, size: size_t) -> *mut c_void;
    POSIX_MEMALIGN posix_memalign(
        block: *mut *mut c_void, alignment: size_t, size: size_t
    ) -> c_int;
    VALLOC valloc(size: size_t) -> *mut c_void;
    PVALLOC pvalloc(size: size_t) -> *mut c_void;
}

/// The most threads that look for the functions at once; more wait for one of them.
const FINDING_MAX: usize = 64;

/// The threads that are finding the functions; 0 is none.
static FINDING: [AtomicU32; FINDING_MAX] = [const { AtomicU32::new(0) }; FINDING_MAX];

/// Finds all functions, before there are threads.
pub(crate) fn find_all() {
    find(&MALLOC);
    // A name that this libc lacks leaves a message behind, which the program would take for its
    // own. SAFETY: it takes nothing; the message, which is this thread's own, is not looked at.
    unsafe { libc::dlerror() };
}

/// A function, found with all the others at the first call of any. `None` to calls that come from
/// within that, and if there is no such function. A thread does not wait for another that finds
/// them: that may wait for the dynamic linker, which the first may hold.
fn find(function: &'static Real) -> Option<*mut c_void> {
    if let Some(found) = function.known() {
        return Some(found);
    }
    let thread = syscalls::tid().0;
    if FINDING
        .iter()
        .any(|finding| finding.load(Ordering::Relaxed) == thread)
    {
        return None;
    }
    let begin = |finding: &&AtomicU32| {
        finding
            .compare_exchange(0, thread, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    };
    let finding = loop {
        match FINDING.iter().find(begin) {
            Some(finding) => break finding,
            None => std::thread::yield_now(),
        }
    };
    for function in HEAP {
        function.get();
    }
    finding.store(0, Ordering::Relaxed);
    function.known()
}

const EARLY_BYTES: usize = 64 << 10;

/// Alignment of early blocks, and room before each for its size.
const EARLY_ALIGNMENT: usize = 16;

#[repr(C, align(65536))]
struct Early(std::cell::UnsafeCell<[u8; EARLY_BYTES]>);

// SAFETY: it is only ever handed out in parts, each once.
unsafe impl Sync for Early {}

/// Memory for what is allocated before the real functions are found; zeroed.
static EARLY: Early = Early(std::cell::UnsafeCell::new([0; EARLY_BYTES]));
static EARLY_USED: AtomicUsize = AtomicUsize::new(0);

/// A zeroed block of the early memory, null if there is not enough.
#[cold]
fn early(size: Option<usize>, alignment: usize) -> *mut c_void {
    let base = EARLY.0.get() as usize;
    let block = |used: usize| {
        let start = (base + used + EARLY_ALIGNMENT).checked_next_multiple_of(alignment)?;
        Some((start, start.checked_add(size?)?.checked_sub(base)?))
    };
    let next = |used| Some(block(used)?.1).filter(|&used| used <= EARLY_BYTES);
    // `free` and `realloc` must not pass these on.
    TABLE.mark(base as u64);
    let used = EARLY_USED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    match (used.ok().and_then(block), size) {
        (Some((start, _)), Some(size)) => {
            let length = (start - size_of::<usize>()) as *mut usize;
            // SAFETY: it lies in the room before this block, which no other has; blocks are aligned
            // to 16 bytes or more.
            unsafe { length.write(size) };
            start as *mut c_void
        }
        _ => {
            real::fail(libc::ENOMEM);
            null_mut()
        }
    }
}

/// The size of an early block; `None` if it is none.
fn early_size(block: *mut c_void) -> Option<usize> {
    let base = EARLY.0.get() as usize;
    let at = (block as usize).checked_sub(base)?;
    if !(EARLY_ALIGNMENT..=EARLY_BYTES).contains(&at) {
        return None;
    }
    let length = (block as usize - size_of::<usize>()) as *const usize;
    // SAFETY: `early` has written it there.
    Some(unsafe { length.read() })
}

allocating!(malloc => malloc_hook, MALLOC, 0 of 1);
allocating!(calloc => calloc_hook, CALLOC, 0 * 1 of 2);
allocating!(memalign => memalign_hook, MEMALIGN, 1 of 2);
allocating!(aligned_alloc => aligned_alloc_hook, ALIGNED_ALLOC, 1 of 2);
allocating!(posix_memalign => posix_memalign_hook, POSIX_MEMALIGN, 2 of 3);
allocating!(valloc => valloc_hook, VALLOC, 0 of 1);
allocating!(pvalloc => pvalloc_hook, PVALLOC, 0 of 1);
resizing!(realloc => realloc_hook, REALLOC, 1 of 2);
resizing!(reallocarray => reallocarray_hook, REALLOCARRAY, 1 * 2 of 3);
freeing!(free => free_hook, FREE);

/// Passes on what a call has allocated, of this size.
fn given(block: *mut c_void, size: Option<usize>, sp: *const u64, fp: u64) -> *mut c_void {
    if let (false, Some(size)) = (block.is_null(), size) {
        pages::began(block as u64, size, RegionKind::Malloc, Caller { sp, fp });
    }
    block
}

unsafe extern "C-unwind" fn malloc_hook(size: size_t, sp: *const u64, fp: u64) -> *mut c_void {
    pages::apply_bind_requests();
    // SAFETY: the program's own call, passed on.
    match unsafe { heap::malloc(size) } {
        Some(block) => given(block, Some(size), sp, fp),
        None => early(Some(size), EARLY_ALIGNMENT),
    }
}

unsafe extern "C-unwind" fn calloc_hook(
    count: size_t,
    size: size_t,
    sp: *const u64,
    fp: u64,
) -> *mut c_void {
    pages::apply_bind_requests();
    let bytes = count.checked_mul(size);
    // SAFETY: the program's own call, passed on.
    match unsafe { heap::calloc(count, size) } {
        Some(block) => given(block, bytes, sp, fp),
        None => early(bytes, EARLY_ALIGNMENT),
    }
}

/// Defines the hooks of functions that take an alignment.
macro_rules! aligning {
    ($($hook:ident => $real:ident;)*) => {
        $(
            unsafe extern "C-unwind" fn $hook(
                alignment: size_t,
                size: size_t,
                sp: *const u64,
                fp: u64,
            ) -> *mut c_void {
                pages::apply_bind_requests();
                // SAFETY: the program's own call, passed on.
                match unsafe { heap::$real(alignment, size) } {
                    Some(block) => given(block, Some(size), sp, fp),
                    None => early(Some(size), alignment.max(EARLY_ALIGNMENT)),
                }
            }
        )*
    };
}

aligning! {
    memalign_hook => memalign;
    aligned_alloc_hook => aligned_alloc;
}

/// Defines the hooks of functions that align to pages.
macro_rules! paging {
    ($($hook:ident => $real:ident;)*) => {
        $(
            unsafe extern "C-unwind" fn $hook(
                size: size_t,
                sp: *const u64,
                fp: u64,
            ) -> *mut c_void {
                pages::apply_bind_requests();
                // SAFETY: the program's own call, passed on.
                match unsafe { heap::$real(size) } {
                    Some(block) => given(block, Some(size), sp, fp),
                    None => early(Some(size), page_bytes() as usize),
                }
            }
        )*
    };
}

paging! {
    valloc_hook => valloc;
    pvalloc_hook => pvalloc;
}

unsafe extern "C-unwind" fn posix_memalign_hook(
    block: *mut *mut c_void,
    alignment: size_t,
    size: size_t,
    sp: *const u64,
    fp: u64,
) -> c_int {
    pages::apply_bind_requests();
    // SAFETY: the program's own call, passed on.
    let result = unsafe { heap::posix_memalign(block, alignment, size) };
    match result {
        Some(0) => {
            // SAFETY: the call has succeeded, so it has written there.
            let block = unsafe { block.read() };
            given(block, Some(size), sp, fp);
            0
        }
        Some(error) => error,
        None => {
            let early = early(Some(size), alignment.max(EARLY_ALIGNMENT));
            if early.is_null() {
                return libc::ENOMEM;
            }
            // SAFETY: the program gives a place for the address.
            unsafe { block.write(early) };
            0
        }
    }
}

unsafe extern "C-unwind" fn free_hook(block: *mut c_void) {
    if early_size(block).is_some() {
        return;
    }
    pages::apply_bind_requests();
    pages::freeing(block as u64);
    // SAFETY: the program's own call, passed on. There is nothing to free before the functions are
    // found.
    unsafe { heap::free(block) };
}

unsafe extern "C-unwind" fn realloc_hook(
    block: *mut c_void,
    size: size_t,
    sp: *const u64,
    fp: u64,
) -> *mut c_void {
    // SAFETY: the program's own call, passed on.
    let resize = || unsafe { heap::realloc(block, size) };
    resized(block, Some(size), Caller { sp, fp }, resize)
}

/// glibc's calls `realloc` by its name, which leads here again: the region of that call ends when
/// this one's begins, with the program's site. It must be called nevertheless, since `realloc` may
/// be another's.
unsafe extern "C-unwind" fn reallocarray_hook(
    block: *mut c_void,
    count: size_t,
    size: size_t,
    sp: *const u64,
    fp: u64,
) -> *mut c_void {
    // SAFETY: the program's own call, passed on.
    let resize = || unsafe { heap::reallocarray(block, count, size) };
    resized(block, count.checked_mul(size), Caller { sp, fp }, resize)
}

/// Resizes a block. What was a region ends before the call, which may give its memory to another
/// thread, and begins anew where the block then is; also if the call has failed.
fn resized(
    block: *mut c_void,
    size: Option<usize>,
    caller: Caller,
    resize: impl FnOnce() -> Option<*mut c_void>,
) -> *mut c_void {
    let Caller { sp, fp } = caller;
    if let (Some(length), Some(size)) = (early_size(block), size) {
        // SAFETY: any size will do, and the caller's frame is live.
        let fresh = unsafe { malloc_hook(size, sp, fp) };
        if !fresh.is_null() {
            // SAFETY: the early block is that long, the fresh one as asked, and they are two.
            unsafe { fresh.copy_from_nonoverlapping(block, length.min(size)) };
        }
        return fresh;
    }
    pages::apply_bind_requests();
    let region = pages::freeing(block as u64);
    let moved = resize().unwrap_or_else(|| {
        if block.is_null() {
            return early(size, EARLY_ALIGNMENT);
        }
        // Another allocator's, whose size nobody knows: it stays as it is.
        real::fail(libc::ENOMEM);
        null_mut()
    });
    match region {
        Some(region) if !moved.is_null() => {
            pages::again(&region, moved as u64, size.unwrap_or(0));
        }
        Some(region) if size != Some(0) => {
            let length = region.range.end - region.range.start;
            pages::again(&region, block as u64, length as usize);
        }
        Some(_) => {}
        None => {
            given(moved, size, sp, fp);
        }
    }
    moved
}
