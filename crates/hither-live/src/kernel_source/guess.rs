//! The caller of code without unwind information, such as Go's and musl's: by the frame pointer, or
//! by the return address on the stack that fits.
//!
//! A return address fits if it follows a call of a function that begins a little before the
//! address where the frame is, or a call by a pointer. Words on the stack can look so by accident,
//! or since an earlier call has left them: so this is only asked where no table says better.

use hither_kernel_events::stack::CopiedStack;

use super::address_space::AddressSpace;
use super::arch::{CAN_GUESS, call_before, jumps_to};
use super::call::Call;

/// As far behind the beginning of a function the code is taken to be its.
const FUNCTION_BYTES_MAX: u64 = 1 << 12;

/// So many words are looked at.
const WORDS_MAX: u64 = 64;

/// The caller of a frame.
pub(super) struct Caller {
    /// Where the return address lies.
    pub(super) slot: u64,
    pub(super) address: u64,
    /// The frame pointer has led there.
    pub(super) by_frame_pointer: bool,
}

/// Of a frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct StackRegisters {
    /// The stack pointer.
    pub(super) sp: u64,
    /// The frame pointer, if the code has one.
    pub(super) fp: u64,
}

/// The caller of the frame whose code is before `address`. The innermost function may have no frame
/// pointer of its own even if all others have, and its frame is small.
pub(super) fn caller(
    space: &AddressSpace,
    stack: &CopiedStack<'_>,
    address: u64,
    registers: StackRegisters,
    is_innermost: bool,
) -> Option<Caller> {
    if !CAN_GUESS {
        return None;
    }
    let StackRegisters { sp, fp } = registers;
    let read_code = |at: u64, to: &mut [u8]| space.read_code(at, to);
    let fits = |slot: u64, is_call: &dyn Fn(&Call) -> bool| {
        let found = stack.word_at(slot)?;
        let is_code = found > 0 && space.is_code(found - 1);
        (is_code && is_call(&call_before(&read_code, found))).then_some(found)
    };
    let is_its = |call: &Call| match *call {
        Call::Of(function) => {
            let begins = |at: u64| at < address && address - at <= FUNCTION_BYTES_MAX;
            begins(function) || begins(jumps_to(&read_code, function))
        }
        Call::Indirect | Call::None => false,
    };
    let may_be_its = |call: &Call| is_its(call) || matches!(call, Call::Indirect);
    let is_any = |call: &Call| !matches!(call, Call::None);
    let by_frame_pointer = |is_call: &dyn Fn(&Call) -> bool| {
        let slot = fp.checked_add(8).filter(|&slot| slot > sp)?;
        Some(Caller {
            slot,
            address: fits(slot, is_call)?,
            by_frame_pointer: true,
        })
    };
    let by_search = || {
        (0..WORDS_MAX).find_map(|word| {
            let slot = sp.checked_add(8 * word)?;
            Some(Caller {
                slot,
                address: fits(slot, &may_be_its)?,
                by_frame_pointer: false,
            })
        })
    };
    let first = (!is_innermost).then(|| by_frame_pointer(&may_be_its));
    first
        .flatten()
        .or_else(by_search)
        .or_else(|| by_frame_pointer(&is_any))
}
