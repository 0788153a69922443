//! x86-64: a call pushes its return address.

use std::sync::Arc;

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use hither_kernel_events::stack::CopiedStack;
use hither_session::call_stack::Frames;

use super::super::call::{Call, Return};

pub(crate) type Unwinder = UnwinderX86_64<Arc<[u8]>>;
pub(crate) type Cache = CacheX86_64;
pub(crate) type Registers = UnwindRegsX86_64;

/// The return address is the word below a caller's stack, so a frame without a table can be found.
pub(crate) const CAN_GUESS: bool = true;

/// Of the innermost frame.
pub(crate) fn innermost(stack: &CopiedStack<'_>) -> Registers {
    Registers::new(stack.ip, stack.sp, stack.bp)
}

/// Of a caller.
pub(crate) fn caller(address: u64, sp: u64, fp: u64) -> Registers {
    Registers::new(address, sp, fp)
}

/// The frame pointer.
pub(crate) fn fp(registers: &Registers) -> u64 {
    registers.bp()
}

/// The same registers with another frame pointer.
pub(crate) fn with_other_fp(registers: &Registers) -> Registers {
    Registers::new(registers.ip(), registers.sp(), !registers.bp())
}

/// The same registers with another link register: there is none.
pub(crate) fn with_other_link(_registers: &Registers) -> Option<Registers> {
    None
}

/// Has the return address compared, by which the stack is known again. Returns where it lies.
pub(crate) fn check_return(
    stack: &CopiedStack<'_>,
    frames: &mut Frames,
    step: &Return<Registers>,
) -> Option<u64> {
    let slot = step.after.sp() - 8;
    frames.memoisable &= stack.word_at(slot) == Some(step.address);
    frames.check(slot - stack.sp, step.address);
    Some(slot)
}

/// Where a function begins that does no more than jump there.
pub(crate) fn jumps_to(read_code: &dyn Fn(u64, &mut [u8]) -> bool, function: u64) -> u64 {
    let mut code = [0; 5];
    match (read_code(function, &mut code), code) {
        (true, [0xe9, distance @ ..]) => function
            .wrapping_add(5)
            .wrapping_add_signed(i32::from_le_bytes(distance).into()),
        _ => function,
    }
}

/// The call that returns to this address.
pub(crate) fn call_before(read_code: &dyn Fn(u64, &mut [u8]) -> bool, address: u64) -> Call {
    let mut code = [0; 7];
    let Some(from) = address.checked_sub(7) else {
        return Call::None;
    };
    if !read_code(from, &mut code) {
        return Call::None;
    }
    if let [_, _, 0xe8, distance @ ..] = code {
        return Call::Of(address.wrapping_add_signed(i32::from_le_bytes(distance).into()));
    }
    // The second byte names the operand: an extension of 2, and its form, with the length.
    let is_indirect = |bytes: usize| {
        let [.., first, operand] = code[..9 - bytes] else {
            return false;
        };
        let (form, extension, register) = (operand >> 6, operand >> 3 & 7, operand & 7);
        let sib = usize::from(form != 3 && register == 4);
        let displacement = match (form, register) {
            (1, _) => 1,
            (2, _) | (0, 5) => 4,
            _ => 0,
        };
        first == 0xff && extension == 2 && bytes == 2 + sib + displacement
    };
    if (2..=7).any(is_indirect) {
        Call::Indirect
    } else {
        Call::None
    }
}
