//! 64-bit Arm.

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
    // SAFETY: the kernel keeps all registers but x0, which is declared; the caller vouches for the
    // arguments.
    unsafe {
        std::arch::asm!(
            "svc #0",
            in("x8") number,
            inlateout("x0") a as isize => result,
            in("x1") b,
            in("x2") c,
            in("x3") d,
            in("x4") e,
            in("x5") f,
            options(nostack),
        );
    }
    result
}

/// Writes the cache line of a value's first byte back and takes it out of all caches (`dc civac`,
/// which Linux lets programs use), so that the next load of it goes to memory.
pub(crate) fn flush<T>(of: &T) {
    // SAFETY: it changes nothing of what memory holds, and the reference says that it is there.
    unsafe {
        std::arch::asm!(
            "dc civac, {of}",
            of = in(reg) std::ptr::from_ref(of),
            options(nostack, preserves_flags),
        );
    }
}

/// So far all lines are flushed.
pub(crate) fn fence() {
    // SAFETY: a barrier takes nothing.
    unsafe {
        std::arch::asm!("dsb ish", "isb", options(nostack, preserves_flags));
    }
}
