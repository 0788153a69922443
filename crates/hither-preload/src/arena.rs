//! The recorder's own heap and stack inside a program, one of each a thread.
//!
//! A hook may run in a signal handler that interrupted `malloc`, so it must not call it. It may run
//! on a stack with a few hundred bytes left (a thread of the smallest size, a handler's alternative
//! stack, a coroutine), so whatever needs more than a push into the ring runs on the recorder's
//! stack. Heap and stack lie in one region of the thread, which is unmapped when the thread ends.
//! There are no locks, so a fork cannot leave one locked.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::null_mut;

use hither_kernel::{page_bytes, syscalls};

use crate::arch::on_stack;

/// Virtual size of a thread's region; only what is touched takes memory.
const REGION_BYTES: usize = 2 << 20;

/// The part at its end that is the stack. An unwind takes 25 KiB of it at most.
const STACK_BYTES: usize = 256 << 10;

/// Blocks come in powers of two, from 16 bytes to 1 MiB.
const SIZE_CLASSES: usize = 17;
const SMALLEST_BYTES: usize = 16;

thread_local! {
    static REGION: Cell<Region> = const { Cell::new(Region { start: 0, at: 0, end: 0 }) };
    /// Blocks that were given back, by class: each holds the address of the next.
    static FREE: [Cell<usize>; SIZE_CLASSES] = const { [const { Cell::new(0) }; SIZE_CLASSES] };
}

#[derive(Clone, Copy)]
struct Region {
    start: usize,
    at: usize,
    end: usize,
}

/// Gives the calling thread a region if it has none. False if there is no memory.
pub(crate) fn open() -> bool {
    if REGION.get().start != 0 {
        return true;
    }
    let Ok(start) = syscalls::map(REGION_BYTES, None) else {
        return false;
    };
    let start = start as usize;
    REGION.set(Region {
        start,
        at: start,
        end: start + REGION_BYTES - STACK_BYTES,
    });
    true
}

/// Takes the calling thread's region away.
///
/// # Safety
/// Nothing that was allocated in this thread is used any more, and the thread is not on the
/// region's stack.
pub(crate) unsafe fn close() {
    let start = REGION.get().start;
    REGION.set(Region {
        start: 0,
        at: 0,
        end: 0,
    });
    FREE.with(|free| free.iter().for_each(|class| class.set(0)));
    if start != 0 {
        // SAFETY: the region was mapped by `open`, and the caller vouches that it is unused.
        unsafe { syscalls::unmap(start as *mut u8, REGION_BYTES) };
    }
}

/// Runs `work` on the stack of the calling thread's region, which must be open, with all signals
/// blocked: no handler finds itself on a stack that it does not know (collectors of garbage look
/// for their roots from there), none leaves by a jump, and no cancellation unwinds through the
/// recorder.
pub(crate) fn apart(work: &mut dyn FnMut()) {
    unsafe extern "C" fn call(work: *mut c_void) {
        // SAFETY: `apart` passes a pointer to its own argument, and waits.
        let work = unsafe { &mut *work.cast::<&mut dyn FnMut()>() };
        work();
    }
    let top = (REGION.get().start + REGION_BYTES) as *mut u8;
    let before = syscalls::block_signals(u64::MAX);
    let mut work = work;
    // SAFETY: `top` is the end of a part of the region that is used for nothing else, aligned to a
    // page; it is not in use, since the recorder does not enter itself and no signal can interrupt
    // it here.
    unsafe { on_stack(top, call, (&raw mut work).cast()) };
    syscalls::block_signals(before);
}

/// The allocator of the preload library.
pub(crate) struct Arena;

/// The class of a block and its size, if it is not too large for the region.
fn class(layout: Layout) -> Option<(usize, usize)> {
    let bytes = layout
        .size()
        .max(layout.align())
        .max(SMALLEST_BYTES)
        .next_power_of_two();
    let class = (bytes / SMALLEST_BYTES).trailing_zeros() as usize;
    (class < SIZE_CLASSES && layout.align() <= page_bytes() as usize).then_some((class, bytes))
}

impl Arena {
    /// A block and whether it is known to be zeroed.
    fn take(layout: Layout) -> (*mut u8, bool) {
        let region = REGION.get();
        if let (Some((class, bytes)), true) = (class(layout), region.start != 0) {
            let free = FREE.with(|free| free[class].get());
            if free != 0 {
                // SAFETY: it was given back by `dealloc`, which left the address of the next one in
                // it.
                let next = unsafe { (free as *const usize).read() };
                FREE.with(|free| free[class].set(next));
                return (free as *mut u8, false);
            }
            let start = region.at.next_multiple_of(bytes.min(page_bytes() as usize));
            if start + bytes <= region.end {
                REGION.set(Region {
                    at: start + bytes,
                    ..region
                });
                return (start as *mut u8, true);
            }
        }
        // Larger than what is left, or a thread without a region: a mapping of its own, which is
        // aligned to a page.
        let mapped = if layout.align() > page_bytes() as usize {
            None
        } else {
            syscalls::map(layout.size().max(1), None).ok()
        };
        (mapped.unwrap_or(null_mut()), true)
    }
}

// SAFETY: blocks are disjoint parts of mappings, aligned as asked, and stay valid until they are
// given back or their thread's region is closed, whose caller vouches that they are unused.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Arena::take(layout).0
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let (block, zeroed) = Arena::take(layout);
        if !zeroed && !block.is_null() {
            // SAFETY: the block was just taken and is that large.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let region = REGION.get();
        if (region.start..region.end).contains(&(block as usize)) {
            if let Some((class, _)) = class(layout) {
                let next = FREE.with(|free| free[class].replace(block as usize));
                // SAFETY: the block is unused, at least 16 bytes large and aligned to as many.
                unsafe { block.cast::<usize>().write(next) };
            }
        } else if region.start != 0 {
            // SAFETY: outside of the region every block is a mapping of its own. (Blocks of another
            // thread's region are never given back here: nothing that a thread allocates leaves
            // it.)
            unsafe { syscalls::unmap(block, layout.size().max(1)) };
        }
    }
}
