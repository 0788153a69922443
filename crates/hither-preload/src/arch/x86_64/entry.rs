//! Entries of hooks: a few instructions each, which leave the arguments of the call as they came.

/// Defines a function that jumps to a hook with the caller's stack pointer and frame pointer added
/// as its last two arguments. The number is that of the C arguments: up to four, the two additions
/// fit into registers.
macro_rules! entry {
    ($(#[$attribute:meta])* $entry:ident => $hook:path, 0) => {
        entry!(@jump [$($attribute)*] $entry, $hook, "mov rdi, rsp", "mov rsi, rbp");
    };
    ($(#[$attribute:meta])* $entry:ident => $hook:path, 1) => {
        entry!(@jump [$($attribute)*] $entry, $hook, "mov rsi, rsp", "mov rdx, rbp");
    };
    ($(#[$attribute:meta])* $entry:ident => $hook:path, 2) => {
        entry!(@jump [$($attribute)*] $entry, $hook, "mov rdx, rsp", "mov rcx, rbp");
    };
    ($(#[$attribute:meta])* $entry:ident => $hook:path, 3) => {
        entry!(@jump [$($attribute)*] $entry, $hook, "mov rcx, rsp", "mov r8, rbp");
    };
    ($(#[$attribute:meta])* $entry:ident => $hook:path, 4) => {
        entry!(@jump [$($attribute)*] $entry, $hook, "mov r8, rsp", "mov r9, rbp");
    };
    // The stack pointer takes the last register, the frame pointer goes on the stack.
    ($(#[$attribute:meta])* $entry:ident => $hook:path, 5) => {
        $(#[$attribute])*
        #[unsafe(naked)]
        unsafe extern "C-unwind" fn $entry() {
            std::arch::naked_asm!(
                ".cfi_startproc",
                "mov r9, rsp",
                "push rbp",
                ".cfi_adjust_cfa_offset 8",
                "call {hook}",
                "add rsp, 8",
                ".cfi_adjust_cfa_offset -8",
                "ret",
                ".cfi_endproc",
                hook = sym $hook,
            )
        }
    };
    // Both go on the stack.
    ($(#[$attribute:meta])* $entry:ident => $hook:path, 6) => {
        $(#[$attribute])*
        #[unsafe(naked)]
        unsafe extern "C-unwind" fn $entry() {
            std::arch::naked_asm!(
                ".cfi_startproc",
                "mov rax, rsp",
                "sub rsp, 8",
                ".cfi_adjust_cfa_offset 8",
                "push rbp",
                ".cfi_adjust_cfa_offset 8",
                "push rax",
                ".cfi_adjust_cfa_offset 8",
                "call {hook}",
                "add rsp, 24",
                ".cfi_adjust_cfa_offset -24",
                "ret",
                ".cfi_endproc",
                hook = sym $hook,
            )
        }
    };
    (@jump [$($attribute:meta)*] $entry:ident, $hook:path, $sp:literal, $fp:literal) => {
        $(#[$attribute])*
        #[unsafe(naked)]
        unsafe extern "C-unwind" fn $entry() {
            std::arch::naked_asm!($sp, $fp, "jmp {hook}", hook = sym $hook)
        }
    };
}

/// Instructions that call `first` and then jump to what it returns, with every argument register as
/// it was on entry, and `al`, which tells a variadic function of its vector arguments.
#[cfg(feature = "interpose")]
macro_rules! call_and_jump {
    () => {
        // Seven words and the return address: the stack is aligned for the call.
        "push rdi
         push rsi
         push rdx
         push rcx
         push r8
         push r9
         push rax
         .cfi_adjust_cfa_offset 56
         call {first}
         mov r11, rax
         pop rax
         pop r9
         pop r8
         pop rcx
         pop rdx
         pop rsi
         pop rdi
         .cfi_adjust_cfa_offset -56
         jmp r11"
    };
}

/// Defines an exported symbol that calls a function and then jumps to what that returns with every
/// argument register as it was.
#[cfg(feature = "interpose")]
macro_rules! announced {
    ($symbol:ident => $first:path) => {
        /// Stands in for libc's function.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C-unwind" fn $symbol() {
            std::arch::naked_asm!(
                ".cfi_startproc",
                call_and_jump!(),
                ".cfi_endproc",
                first = sym $first,
            )
        }
    };
}

/// Defines an exported symbol that gets the number of a system call first. It jumps to the function
/// found if the number is not among those listed; otherwise, or if it is not found yet, it calls
/// `first` and jumps to what that returns. Vector registers are not kept: a system call has no such
/// arguments.
#[cfg(feature = "interpose")]
macro_rules! by_number {
    ($symbol:ident => $first:path, $found:path; $($name:ident: $number:expr;)*) => {
        /// Stands in for libc's function.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C-unwind" fn $symbol() {
            std::arch::naked_asm!(
                ".cfi_startproc",
                "mov r11, qword ptr [rip + {found} + {at}]",
                "test r11, r11",
                "jz 2f",
                "cmp rdi, 63",
                "ja 3f",
                "mov r10, {low}",
                "bt r10, rdi",
                "jc 2f",
                "jmp r11",
                "3:",
                $(
                    concat!(".if {", stringify!($name), "} > 63"),
                    concat!("cmp rdi, {", stringify!($name), "}"),
                    "je 2f",
                    ".endif",
                )*
                "jmp r11",
                "2:",
                call_and_jump!(),
                ".cfi_endproc",
                found = sym $found,
                at = const $crate::real::Real::AT,
                // A bit for each of the numbers below 64.
                low = const {
                    let (numbers, mut bits, mut at) = ([$($number),*], 0_u64, 0);
                    while at < numbers.len() {
                        if 0 <= numbers[at] && numbers[at] < 64 {
                            bits |= 1 << numbers[at];
                        }
                        at += 1;
                    }
                    bits
                },
                $($name = const $number,)*
                first = sym $first,
            )
        }
    };
}

/// Defines an exported symbol whose arguments after the first are an open list: those that came in
/// registers are pushed, so that they lie in one array, and the hook gets the first argument, that
/// array and the address of those that came on the stack.
#[cfg(feature = "interpose")]
macro_rules! listed {
    ($symbol:ident => $hook:path) => {
        /// Stands in for libc's function.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C-unwind" fn $symbol() {
            std::arch::naked_asm!(
                ".cfi_startproc",
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                ".cfi_adjust_cfa_offset 40",
                "mov rsi, rsp",
                // Above the five pushed words and the return address.
                "lea rdx, [rsp + 48]",
                "call {hook}",
                "add rsp, 40",
                ".cfi_adjust_cfa_offset -40",
                "ret",
                ".cfi_endproc",
                hook = sym $hook,
            )
        }
    };
}
