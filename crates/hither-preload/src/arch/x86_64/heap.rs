//! Entries of the malloc family: most calls take a comparison, or a look into a filter, and a jump
//! to the real function. They read `REGION_MIN`, the filter of `TABLE` and a `Real`, which have to
//! be in scope where they are used.

/// Jumps to `2` if the filter has seen something near the address in `rdi`.
macro_rules! if_marked {
    () => {
        "mov rax, rdi
         shr rax, {shift}
         movzx eax, ax
         lea r10, [rip + {table} + {filter}]
         cmp byte ptr [r10 + rax], 0
         jne 2f"
    };
}

/// Jumps to the real function if it is known.
macro_rules! to_real {
    () => {
        "mov r11, qword ptr [rip + {real} + {at}]
         test r11, r11
         jz 2f
         jmp r11"
    };
}

/// Defines an exported symbol that jumps to the real function, which is found in `$real`, unless
/// the size is not below the least region's, or is too large for a word. The hook gets its caller's
/// stack pointer and frame pointer after the arguments of the call. The size is said as the index
/// of the argument that has it, or of two to multiply, and the number of arguments.
macro_rules! allocating {
    ($symbol:ident => $hook:path, $real:ident, 0 of 1) => {
        allocating!(@ $symbol, $hook, $real, [] "rdi", "rsi", "rdx");
    };
    ($symbol:ident => $hook:path, $real:ident, 1 of 2) => {
        allocating!(@ $symbol, $hook, $real, [] "rsi", "rdx", "rcx");
    };
    ($symbol:ident => $hook:path, $real:ident, 2 of 3) => {
        allocating!(@ $symbol, $hook, $real, [] "rdx", "rcx", "r8");
    };
    ($symbol:ident => $hook:path, $real:ident, 0 * 1 of 2) => {
        allocating!(
            @ $symbol, $hook, $real, ["mov rax, rdi", "mul rsi", "jo 2f"] "rax", "rdx", "rcx"
        );
    };
    (
        @ $symbol:ident, $hook:path, $real:ident,
        [$($before:literal),*] $size:literal, $sp:literal, $fp:literal
    ) => {
        /// Stands in for libc's function.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C-unwind" fn $symbol() {
            std::arch::naked_asm!(
                $($before,)*
                concat!("cmp ", $size, ", qword ptr [rip + {least}]"),
                "jae 2f",
                to_real!(),
                "2:",
                concat!("mov ", $sp, ", rsp"),
                concat!("mov ", $fp, ", rbp"),
                "jmp {hook}",
                least = sym REGION_MIN,
                real = sym $real,
                at = const Real::AT,
                hook = sym $hook,
            )
        }
    };
}

/// As [`allocating`], for functions that also give up the block in their first argument.
macro_rules! resizing {
    ($symbol:ident => $hook:path, $real:ident, 1 of 2) => {
        resizing!(@ $symbol, $hook, $real, [] "rsi", "rdx", "rcx");
    };
    ($symbol:ident => $hook:path, $real:ident, 1 * 2 of 3) => {
        resizing!(
            @ $symbol, $hook, $real,
            ["mov rcx, rdx", "mov rax, rsi", "mul rdx", "mov rdx, rcx", "jo 2f"] "rax", "rcx", "r8"
        );
    };
    (
        @ $symbol:ident, $hook:path, $real:ident,
        [$($before:literal),*] $size:literal, $sp:literal, $fp:literal
    ) => {
        /// Stands in for libc's function.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C-unwind" fn $symbol() {
            std::arch::naked_asm!(
                $($before,)*
                concat!("cmp ", $size, ", qword ptr [rip + {least}]"),
                "jae 2f",
                if_marked!(),
                to_real!(),
                "2:",
                concat!("mov ", $sp, ", rsp"),
                concat!("mov ", $fp, ", rbp"),
                "jmp {hook}",
                least = sym REGION_MIN,
                shift = const FILTER_SHIFT,
                table = sym TABLE,
                filter = const Table::FILTER_AT,
                real = sym $real,
                at = const Real::AT,
                hook = sym $hook,
            )
        }
    };
}

/// Defines an exported symbol that jumps to the real function, which is found in `$real`, unless
/// the filter has seen something near the block in its first argument.
macro_rules! freeing {
    ($symbol:ident => $hook:path, $real:ident) => {
        /// Stands in for libc's function.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C-unwind" fn $symbol() {
            std::arch::naked_asm!(
                if_marked!(),
                to_real!(),
                "2:",
                "jmp {hook}",
                shift = const FILTER_SHIFT,
                table = sym TABLE,
                filter = const Table::FILTER_AT,
                real = sym $real,
                at = const Real::AT,
                hook = sym $hook,
            )
        }
    };
}
