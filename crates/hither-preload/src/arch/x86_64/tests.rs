//! What tests need of the processor.

/// Defines a function that keeps its second argument in `rbp`, as code without frame pointers does,
/// and calls another with its first argument; that saves `rbp`, changes it, and calls `$enter`.
macro_rules! counting {
    ($counts:ident, $saves:ident => $enter:path) => {
        #[unsafe(naked)]
        unsafe extern "C" fn $counts(_work: *mut Work<'_>, _number: u64) {
            std::arch::naked_asm!(
                ".cfi_startproc",
                "push rbp",
                ".cfi_adjust_cfa_offset 8",
                ".cfi_rel_offset rbp, 0",
                "mov rbp, rsi",
                "call {saves}",
                "pop rbp",
                ".cfi_adjust_cfa_offset -8",
                ".cfi_restore rbp",
                "ret",
                ".cfi_endproc",
                saves = sym $saves,
            )
        }

        #[unsafe(naked)]
        unsafe extern "C" fn $saves() {
            std::arch::naked_asm!(
                ".cfi_startproc",
                "push rbp",
                ".cfi_adjust_cfa_offset 8",
                ".cfi_rel_offset rbp, 0",
                "xor ebp, ebp",
                "call {enter}",
                "pop rbp",
                ".cfi_adjust_cfa_offset -8",
                ".cfi_restore rbp",
                "ret",
                ".cfi_endproc",
                enter = sym $enter,
            )
        }
    };
}
