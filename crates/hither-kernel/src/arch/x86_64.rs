//! x86-64.

/// Whether [`flush`] empties caches.
pub(crate) const CAN_FLUSH: bool = true;

/// Makes system call `number`. The result is what the kernel returns: `-errno` on failure.
///
/// # Safety
/// The arguments must satisfy what that system call demands of the memory and descriptors that they
/// name.
#[inline]
pub unsafe fn syscall(number: libc::c_long, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    let result: isize;
    // SAFETY: the kernel clobbers rax, rcx and r11 only, which are declared; the caller vouches for
    // the arguments.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a,
            in("rsi") b,
            in("rdx") c,
            in("r10") d,
            in("r8") e,
            in("r9") f,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// Writes the cache line of a value's first byte back and takes it out of all caches (`clflush`),
/// so that the next load of it goes to memory.
pub(crate) fn flush<T>(of: &T) {
    // SAFETY: every x86-64 processor has the instruction, it changes nothing of what memory holds,
    // and the reference says that it is there.
    unsafe {
        std::arch::x86_64::_mm_clflush(std::ptr::from_ref(of).cast());
    }
}

/// So far all lines are flushed.
pub(crate) fn fence() {
    // SAFETY: a fence takes nothing, and every x86-64 has this one.
    unsafe {
        std::arch::x86_64::_mm_mfence();
    }
}
