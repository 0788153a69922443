//! Memory for the recorder inside a program, apart from the program's own heap.
//!
//! A hook may run in a signal handler that interrupted `malloc`, so it must never call it. What the recorder allocates
//! (the unwinder's tables, a few hundred KiB a thread) comes from a region of the thread's own: taken by bumping a pointer,
//! never given back one by one, and unmapped as a whole when the thread ends. No locks, so nothing that a fork could
//! leave locked.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::ptr::null_mut;

use hither_sys::raw;

/// Virtual size of a thread's region; only what is touched takes memory.
const REGION_BYTES: usize = 2 << 20;

thread_local! {
    static REGION: Cell<Region> = const { Cell::new(Region { at: 0, end: 0 }) };
}

#[derive(Clone, Copy)]
struct Region {
    at: usize,
    end: usize,
}

/// Gives the calling thread a region, and returns where it starts; null if there is no memory.
pub(crate) fn open() -> *mut u8 {
    let Ok(start) = raw::map(REGION_BYTES, None) else {
        return null_mut();
    };
    REGION.set(Region {
        at: start as usize,
        end: start as usize + REGION_BYTES,
    });
    start
}

/// Takes the calling thread's region away.
///
/// # Safety
/// `start` came from [`open`] in this thread, and nothing allocated since is used any more.
pub(crate) unsafe fn close(start: *mut u8) {
    REGION.set(Region { at: 0, end: 0 });
    // SAFETY: the region was mapped by `open`, and the caller vouches that it is unused.
    unsafe { raw::unmap(start, REGION_BYTES) };
}

/// The allocator of the preload library.
pub(crate) struct Arena;

// SAFETY: blocks are disjoint parts of mappings, aligned as asked, and stay valid until their thread's region is closed,
// whose caller vouches that they are unused.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let region = REGION.get();
        let start = region.at.next_multiple_of(layout.align());
        if let Some(end) = start
            .checked_add(layout.size())
            .filter(|&end| end <= region.end)
        {
            REGION.set(Region {
                at: end,
                end: region.end,
            });
            return start as *mut u8;
        }
        // Larger than what is left, or a thread without a region: a mapping of its own, which is aligned to a page.
        if layout.align() > 4096 {
            null_mut()
        } else {
            raw::map(layout.size().max(1), None).unwrap_or(null_mut())
        }
    }

    unsafe fn dealloc(&self, _block: *mut u8, _layout: Layout) {}

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // Memory is never used twice, and the kernel hands it out zeroed.
        // SAFETY: the same contract.
        unsafe { self.alloc(layout) }
    }
}
