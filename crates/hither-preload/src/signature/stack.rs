//! Where the thread's stack lies, and reading it without any risk of a fault.

use std::ops::Range;

use hither_sys::own;

/// The mapping that holds a thread's stack.
#[derive(Clone, Copy)]
pub(super) struct Stack {
    bottom: u64,
    top: u64,
}

impl Stack {
    /// The stack of the calling thread, whose stack pointer is `sp`; an empty one if `sp` is on no mapping.
    pub(super) fn of_this_thread(sp: u64) -> Self {
        let Range { mut start, end } = own::mapping_of(sp).unwrap_or(0..0);
        if own::is_main_thread() {
            // The kernel grows it downwards on demand, to the limit.
            start = start.min(end.saturating_sub(own::stack_limit_bytes()));
        }
        Stack {
            bottom: start,
            top: end,
        }
    }

    /// Whether the word at `address` lies in it.
    pub(super) fn contains(self, address: u64) -> bool {
        self.bottom <= address && address.saturating_add(8) <= self.top
    }

    /// Room between `sp` and the end towards which the stack grows, in bytes.
    pub(super) fn left_below(self, sp: u64) -> u64 {
        sp.saturating_sub(self.bottom)
    }
}

const WORDS: usize = 512;
const BYTES: u64 = 8 * WORDS as u64;

/// A copy of the page of the stack that is being walked. It is taken by a system call that fails where a load would
/// fault: one a page, not one a word.
pub(super) struct Window {
    base: u64,
    words: Box<[u64; WORDS]>,
}

impl Default for Window {
    fn default() -> Self {
        Window {
            base: 0,
            words: Box::new([0; WORDS]),
        }
    }
}

impl Window {
    /// Forgets the copy: the stack has changed since.
    pub(super) fn forget(&mut self) {
        self.base = 0;
    }

    /// The word at `address`, which must be a multiple of 8; `None` where nothing is mapped.
    pub(super) fn read(&mut self, address: u64) -> Option<u64> {
        if !address.is_multiple_of(8) {
            return None;
        }
        let base = address & !(BYTES - 1);
        if base != self.base || base == 0 {
            self.base = 0;
            if !own::copy_memory(base, self.words.as_mut_slice()) {
                return None;
            }
            self.base = base;
        }
        self.words.get(((address - base) / 8) as usize).copied()
    }
}
