//! Entries of OpenMP's runtime.

/// Defines an exported symbol that calls `begin(about, call, sp, fp)`, then what that returns with
/// the arguments that are then in the call, and then `end(about, call, sp, fp)`, and returns what
/// the second has returned. `$call` is the type of the call, which lies on the stack: its size is a
/// multiple of 16, it begins with the argument registers, and `$result` is where in it the result
/// belongs. Of the arguments on the stack two are passed on.
macro_rules! around {
    ($symbol:ident, $about:path, $begin:path, $end:path, $call:ty, $result:expr) => {
        /// Stands in for the runtime's function.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C-unwind" fn $symbol() {
            std::arch::naked_asm!(
                ".cfi_startproc",
                "push rbp",
                ".cfi_def_cfa_offset 16",
                ".cfi_offset rbp, -16",
                "mov rbp, rsp",
                ".cfi_def_cfa_register rbp",
                "sub rsp, {size}",
                "mov [rsp], rdi",
                "mov [rsp + 8], rsi",
                "mov [rsp + 16], rdx",
                "mov [rsp + 24], rcx",
                "mov [rsp + 32], r8",
                "mov [rsp + 40], r9",
                "lea rdi, [rip + {about}]",
                "mov rsi, rsp",
                "lea rdx, [rbp + 8]",
                "mov rcx, [rbp]",
                "call {begin}",
                "mov r11, rax",
                "mov rdi, [rsp]",
                "mov rsi, [rsp + 8]",
                "mov rdx, [rsp + 16]",
                "mov rcx, [rsp + 24]",
                "mov r8, [rsp + 32]",
                "mov r9, [rsp + 40]",
                // The seventh and eighth argument, or what else the caller has there.
                "push qword ptr [rbp + 24]",
                "push qword ptr [rbp + 16]",
                "call r11",
                "add rsp, 16",
                "mov [rsp + {result}], rax",
                "lea rdi, [rip + {about}]",
                "mov rsi, rsp",
                "lea rdx, [rbp + 8]",
                "mov rcx, [rbp]",
                "call {end}",
                "mov rax, [rsp + {result}]",
                "leave",
                ".cfi_def_cfa rsp, 8",
                "ret",
                ".cfi_endproc",
                about = sym $about,
                size = const size_of::<$call>(),
                result = const $result,
                begin = sym $begin,
                end = sym $end,
            )
        }
    };
}

/// Defines a function that calls another one with its own argument, the address of two words, and
/// then jumps to the first of these with the second as its argument: no frame of ours is left.
macro_rules! member {
    ($member:ident => $enter:path) => {
        #[unsafe(naked)]
        unsafe extern "C-unwind" fn $member() {
            std::arch::naked_asm!(
                ".cfi_startproc",
                "push rdi",
                ".cfi_adjust_cfa_offset 8",
                "call {enter}",
                "pop rax",
                ".cfi_adjust_cfa_offset -8",
                "mov rdi, [rax + 8]",
                "jmp qword ptr [rax]",
                ".cfi_endproc",
                enter = sym $enter,
            )
        }
    };
}
