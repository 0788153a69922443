//! The range of the thread's stack, and reading it without the risk of a fault.

use std::sync::atomic::{AtomicU64, Ordering};

use hither_kernel::{PAGE_BYTES_MIN, this_process};

/// The end of the main thread's stack; 0 where libc does not say.
static MAIN_TOP: AtomicU64 = AtomicU64::new(0);

/// A stack pointer further than this below the stack's end is on another stack.
const STACK_BYTES_MAX: u64 = 64 << 20;

/// Finds out where the main thread's stack ends. To be called once, early: symbol lookup may
/// allocate.
pub(super) fn prepare() {
    // SAFETY: the name is a C string; RTLD_DEFAULT asks the global scope.
    let end = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__libc_stack_end".as_ptr()) };
    // SAFETY: it is null or libc's variable, a pointer that is set before any program code runs.
    if let Some(&end) = unsafe { end.cast::<u64>().as_ref() } {
        MAIN_TOP.store(end, Ordering::Relaxed);
    }
}

/// The used part of the calling thread's own stack, as far down as it was seen. Other stacks that
/// it may run on (a handler's, a coroutine's) are not included: the memory above their frames may
/// be unmapped by the next time.
#[derive(Clone, Copy, Default)]
pub(super) struct Stack {
    /// From here to the top everything is mapped, and stays so while a frame of this thread lies
    /// below.
    seen: u64,
    top: u64,
}

impl Stack {
    /// Whether `sp` is on the thread's own stack, so that this can be read.
    pub(super) fn holds(&mut self, sp: u64) -> bool {
        if self.top == 0 {
            // libc keeps a thread's descriptor at the top of its stack; the main thread's lies
            // elsewhere. SAFETY: it takes nothing and cannot fail.
            let descriptor = unsafe { libc::pthread_self() };
            let nearest = [MAIN_TOP.load(Ordering::Relaxed), descriptor]
                .into_iter()
                .filter(|&top| top > sp)
                .min();
            let Some(top) = nearest.filter(|&top| top - sp <= STACK_BYTES_MAX) else {
                return false;
            };
            if !this_process::readable(sp, top) {
                return false;
            }
            *self = Stack { seen: sp, top };
        } else if sp < self.seen {
            // Guard pages and the kernel's gap keep this from running into another mapping.
            if self.seen - sp > STACK_BYTES_MAX || !this_process::readable(sp, self.seen) {
                return false;
            }
            self.seen = sp;
        }
        self.contains(sp)
    }

    /// Whether the word at `address` lies in the seen part.
    pub(super) fn contains(self, address: u64) -> bool {
        self.seen <= address && address.saturating_add(8) <= self.top
    }
}

/// No more than a page of any processor.
const WINDOW_WORDS: usize = PAGE_BYTES_MIN / 8;
const WINDOW_BYTES: u64 = PAGE_BYTES_MIN as u64;

/// A copy of the part of the stack that is being walked, within one page. A system call takes it,
/// which fails where a load would fault: one call a page, not one a word.
pub(super) struct Window {
    base: u64,
    words: Box<[u64; WINDOW_WORDS]>,
}

impl Default for Window {
    fn default() -> Self {
        Window {
            base: 0,
            words: Box::new([0; WINDOW_WORDS]),
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
        let base = address & !(WINDOW_BYTES - 1);
        if base != self.base || base == 0 {
            self.base = 0;
            if !this_process::copy_memory(base, self.words.as_mut_slice()) {
                return None;
            }
            self.base = base;
        }
        self.words.get(((address - base) / 8) as usize).copied()
    }
}
