//! Follows the stack that the kernel has copied, as the library follows its program's
//! (`hither-preload/src/signature.rs`): the same frames make the same signature.

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64};
use framehop::{FrameAddress, Unwinder};
use hither_kernel_events::stack::CopiedStack;
use hither_session::call_stack::{Check, Epilogue, FramePointer, Frames, epilogue};

use super::address_space::{AddressSpace, Code, Module, Tables};
use super::guess::caller;

/// The most frames of a call site, as of the library.
const DEPTH: usize = 32;

/// Walks stacks.
#[derive(Default)]
pub(super) struct Walker {
    cache: CacheX86_64,
    pub(super) tables: Tables,
}

/// Where a walk is.
#[derive(Clone, Copy)]
struct At {
    /// A return address, or what stands for one: the innermost instruction is behind a system call,
    /// or makes the touch, which is taken for a call of one byte.
    address: u64,
    registers: UnwindRegsX86_64,
    from: FramePointer,
    is_innermost: bool,
}

impl Walker {
    /// The frames of a stack. None at all if not even the innermost one is known.
    pub(super) fn follow(
        &mut self,
        space: &mut AddressSpace,
        stack: &CopiedStack<'_>,
        now_ns: u64,
    ) -> Frames {
        let mut frames = Frames::default();
        frames.memoisable = true;
        let mut at = At {
            address: stack.ip.saturating_add(u64::from(!stack.in_call)),
            registers: UnwindRegsX86_64::new(stack.ip, stack.sp, stack.bp),
            from: FramePointer::Callers,
            is_innermost: true,
        };
        loop {
            let next = match space.find(at.address, now_ns, &mut self.tables) {
                Code::Module(module) => {
                    let module = space.module(module);
                    if module.has_c_library && space.is_signal_return(at.address) {
                        return frames;
                    }
                    let is_call = at.is_innermost && stack.in_call;
                    // The library is called in place of it, and does not see it.
                    if !(is_call && module.has_c_library) {
                        frames.push(module.key, at.address.wrapping_sub(module.bias));
                    }
                    if frames.count() >= DEPTH || frames.is_full() {
                        frames.truncated = true;
                        return frames;
                    }
                    match self.step(space, module, stack, &mut frames, at) {
                        Step::To(next) => Some(next),
                        Step::End => return frames,
                        Step::Lost => None,
                    }
                }
                Code::RunTime => step_over(space, stack, &mut frames, at),
                Code::None => None,
                Code::NotRead => {
                    frames.memoisable = false;
                    None
                }
            };
            let Some(next) = next else {
                frames.truncated = true;
                return frames;
            };
            at = next;
        }
    }

    /// To the caller, by the unwind table of the module.
    fn step(
        &mut self,
        space: &AddressSpace,
        module: &Module,
        stack: &CopiedStack<'_>,
        frames: &mut Frames,
        at: At,
    ) -> Step {
        let code = at.address.wrapping_sub(1).wrapping_sub(module.bias);
        let is_covered = module
            .table
            .as_ref()
            .is_some_and(|table| table.covers(code));
        if !is_covered {
            return guess(space, stack, frames, at).map_or(Step::Lost, Step::To);
        }
        let mut read = |address: u64| stack.word_at(address).ok_or(());
        let frame = if at.is_innermost {
            FrameAddress::InstructionPointer(stack.ip)
        } else {
            match FrameAddress::from_return_address(at.address) {
                Some(frame) => frame,
                None => return Step::Lost,
            }
        };
        let before = at.registers;
        // Code without frame pointers counts its loops in that register, and would never be known
        // again if it were compared. So find out whether this frame depends on it.
        let mut registers = before;
        let mut other = UnwindRegsX86_64::new(before.ip(), before.sp(), !before.bp());
        let unwinder = &space.unwinder;
        let cache = &mut self.cache;
        let other_next = unwinder.unwind_frame(frame, &mut other, cache, &mut read);
        let unwound = unwinder.unwind_frame(frame, &mut registers, cache, &mut read);
        let depends = other_next != unwound || other.sp() != registers.sp();
        if depends {
            frames.depends_on(at.from);
        }
        let next = match unwound {
            Ok(Some(next)) => next,
            Ok(None) => return Step::End,
            Err(_) => return Step::Lost,
        };
        if registers.sp() <= before.sp() {
            return Step::Lost;
        }
        let slot = registers.sp() - 8;
        frames.memoisable &= stack.word_at(slot) == Some(next);
        frames.check(slot - stack.sp, next);
        let is_restored = depends || other.bp() == registers.bp();
        Step::To(At {
            address: next,
            registers,
            from: if is_restored {
                saved_fp(stack, before.sp()..slot, registers.bp())
            } else {
                at.from
            },
            is_innermost: false,
        })
    }
}

/// From a frame to its caller.
enum Step {
    To(At),
    /// There is none.
    End,
    /// It is not known.
    Lost,
}

/// From code without unwind information to its caller.
fn guess(space: &AddressSpace, stack: &CopiedStack<'_>, frames: &mut Frames, at: At) -> Option<At> {
    let (sp, fp) = (at.registers.sp(), at.registers.bp());
    let caller = caller(space, stack, at.address, (sp, fp), at.is_innermost)?;
    frames.check(caller.slot - stack.sp, caller.address);
    let (fp, from) = if caller.by_frame_pointer {
        frames.depends_on(at.from);
        let slot = caller.slot - 8;
        let value = stack.word_at(slot)?;
        (value, saved(slot - stack.sp, value))
    } else {
        (fp, at.from)
    };
    let registers = UnwindRegsX86_64::new(caller.address, caller.slot.checked_add(8)?, fp);
    Some(At {
        address: caller.address,
        registers,
        from,
        is_innermost: false,
    })
}

/// From a trampoline that was made at run time to its caller, by what the instructions at the
/// return address will do.
fn step_over(
    space: &AddressSpace,
    stack: &CopiedStack<'_>,
    frames: &mut Frames,
    at: At,
) -> Option<At> {
    let mut code = [0; 16];
    if at.is_innermost || !space.read_code(at.address, &mut code) {
        return None;
    }
    let epilogue = epilogue(code)?;
    frames.push(space.run_time_key, at.address);
    if frames.is_full() {
        return None;
    }
    let first_at = at.registers.sp();
    let next_at = first_at.checked_add(8)?;
    let (first, next) = (stack.word_at(first_at)?, stack.word_at(next_at)?);
    frames.check(next_at - stack.sp, next);
    let (fp, from) = match epilogue {
        Epilogue::SkipsWord => (at.registers.bp(), at.from),
        Epilogue::RestoresFramePointer => (first, saved(first_at - stack.sp, first)),
    };
    Some(At {
        address: next,
        registers: UnwindRegsX86_64::new(next, next_at.checked_add(8)?, fp),
        from,
        is_innermost: false,
    })
}

/// Where in these addresses a frame has restored the frame pointer from.
fn saved_fp(stack: &CopiedStack<'_>, within: std::ops::Range<u64>, value: u64) -> FramePointer {
    // It is pushed first in nearly every prologue: look from the return address down.
    let mut at = within.end;
    while at > within.start {
        at -= 8;
        if stack.word_at(at) == Some(value) {
            return saved(at - stack.sp, value);
        }
    }
    FramePointer::Unknown
}

fn saved(distance: u64, value: u64) -> FramePointer {
    u32::try_from(distance).map_or(FramePointer::Unknown, |distance| {
        FramePointer::Saved(Check { distance, value })
    })
}
