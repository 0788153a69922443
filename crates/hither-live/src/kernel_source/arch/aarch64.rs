//! 64-bit Arm: a call leaves its return address in the link register, and a function that calls
//! others saves that, with the frame pointer, anywhere in its frame.

use std::sync::Arc;

use framehop::aarch64::{CacheAarch64, PtrAuthMask, UnwindRegsAarch64, UnwinderAarch64};
use hither_kernel_events::stack::CopiedStack;
use hither_session::call_stack::Frames;

use super::super::call::{Call, Return};

pub(crate) type Unwinder = UnwinderAarch64<Arc<[u8]>>;
pub(crate) type Cache = CacheAarch64;
pub(crate) type Registers = UnwindRegsAarch64;

/// Where a caller's frame begins cannot be told without a table, not even by the frame pointer.
pub(crate) const CAN_GUESS: bool = false;

/// The bits of an address: in a return address that is signed (PAC), those above are no part of it.
/// A program has addresses of more than 48 bits only if it asks for them.
const ADDRESS: PtrAuthMask = PtrAuthMask(u64::MAX >> 16);

/// Of the innermost frame.
pub(crate) fn innermost(stack: &CopiedStack<'_>) -> Registers {
    Registers::new_with_ptr_auth_mask(ADDRESS, stack.link, stack.sp, stack.bp)
}

/// Of a caller.
pub(crate) fn caller(address: u64, sp: u64, fp: u64) -> Registers {
    Registers::new_with_ptr_auth_mask(ADDRESS, address, sp, fp)
}

/// The frame pointer.
pub(crate) fn fp(registers: &Registers) -> u64 {
    registers.fp()
}

/// The same registers with another frame pointer.
pub(crate) fn with_other_fp(registers: &Registers) -> Registers {
    caller(registers.lr(), registers.sp(), !registers.fp())
}

/// The same registers with another link register.
pub(crate) fn with_other_link(registers: &Registers) -> Option<Registers> {
    Some(caller(!registers.lr(), registers.sp(), registers.fp()))
}

/// Has the return address compared, by which the stack is known again. Returns where it lies.
///
/// The table says what the address is, and not where. So all words of the frame that hold it are
/// compared: the one that counts is among them. The link register is compared in any case.
pub(crate) fn check_return(
    stack: &CopiedStack<'_>,
    frames: &mut Frames,
    step: &Return<Registers>,
) -> Option<u64> {
    if step.is_linked {
        return None;
    }
    let fp = step.after.fp();
    let mut found = None;
    for slot in (step.before.sp()..step.after.sp()).step_by(8) {
        let Some(word) = stack.word_at(slot) else {
            break;
        };
        if ADDRESS.strip_ptr_auth(word) != step.address {
            continue;
        }
        frames.check(slot - stack.sp, word);
        // As a rule they are saved as a pair.
        let is_pair = slot.checked_sub(8).and_then(|at| stack.word_at(at)) == Some(fp);
        if found.is_none() || is_pair {
            found = Some(slot);
        }
    }
    frames.memoisable &= found.is_some();
    found
}

/// The instruction at an address.
fn instruction(read_code: &dyn Fn(u64, &mut [u8]) -> bool, at: u64) -> Option<u32> {
    let mut code = [0; 4];
    read_code(at, &mut code).then(|| u32::from_le_bytes(code))
}

/// Where a branch at `from` leads, by its 26 bits of distance in instructions.
fn target(from: u64, instruction: u32) -> u64 {
    let distance = (instruction << 6) as i32 >> 4;
    from.wrapping_add_signed(distance.into())
}

/// Where a function begins that does no more than jump there (`b`).
pub(crate) fn jumps_to(read_code: &dyn Fn(u64, &mut [u8]) -> bool, function: u64) -> u64 {
    match instruction(read_code, function) {
        Some(branch) if branch >> 26 == 0b00_0101 => target(function, branch),
        _ => function,
    }
}

/// The call that returns to this address: `bl`, or `blr` and its forms that check a signature.
pub(crate) fn call_before(read_code: &dyn Fn(u64, &mut [u8]) -> bool, address: u64) -> Call {
    let Some(from) = address.checked_sub(4) else {
        return Call::None;
    };
    match instruction(read_code, from) {
        Some(call) if call >> 26 == 0b10_0101 => Call::Of(target(from, call)),
        Some(call) if call & 0xfeff_f000 == 0xd63f_0000 => Call::Indirect,
        _ => Call::None,
    }
}
