//! Follows the stack that the kernel has copied, as the library follows its program's
//! (`hither-preload/src/signature.rs`): the same frames make the same signature.

use framehop::{FrameAddress, Unwinder as _};
use hither_kernel_events::stack::CopiedStack;
use hither_session::call_stack::{Check, Epilogue, FramePointer, Frames, epilogue};
use rustc_hash::FxHashMap;

use super::address_space::{AddressSpace, Code, Module, Tables};
use super::arch::{self, Registers};
use super::call::Return;
use super::guess::{StackRegisters, caller};

/// Walks stacks.
#[derive(Default)]
pub(super) struct Walker {
    pub(super) frames_max: usize,
    cache: arch::Cache,
    pub(super) tables: Tables,
    /// Whether code of the C library, by its module and where it is there, is where a signal
    /// handler returns to.
    signal_returns: FxHashMap<CodePlace, bool>,
}

/// Where code is in a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct CodePlace {
    module: u64,
    offset: u64,
}

/// Where a walk is.
#[derive(Clone, Copy)]
struct At {
    /// A return address, or what stands for one: the innermost instruction is behind a system call,
    /// or makes the touch, which is taken for a call of one byte.
    address: u64,
    registers: Registers,
    from: FramePointer,
    is_innermost: bool,
}

impl Walker {
    /// Of stacks of which so many frames count.
    pub(super) fn new(frames_max: usize) -> Walker {
        Walker {
            frames_max,
            ..Walker::default()
        }
    }

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
            registers: arch::innermost(stack),
            from: FramePointer::Callers,
            is_innermost: true,
        };
        loop {
            let next = match space.find(at.address, now_ns, &mut self.tables) {
                Code::Module(module) => {
                    let module = space.module(module);
                    let offset = at.address.wrapping_sub(module.bias);
                    if module.has_c_library {
                        let known = self.signal_returns.entry(CodePlace {
                            module: module.key,
                            offset,
                        });
                        if *known.or_insert_with(|| space.is_signal_return(at.address)) {
                            return frames;
                        }
                    }
                    let is_call = at.is_innermost && stack.in_call;
                    // The library is called in place of it, and does not see it.
                    if !(is_call && module.has_c_library) {
                        frames.push(module.key, offset);
                    }
                    if frames.count() >= self.frames_max || frames.is_full() {
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
            return match guess(space, stack, frames, at) {
                Some(caller) => Step::To(caller),
                // As programs and threads begin.
                None if arch::fp(&at.registers) == 0 => Step::End,
                None => Step::Lost,
            };
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
        let mut other = arch::with_other_fp(&before);
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
        // Only the innermost function, before it calls another, may have no frame.
        let other_link = arch::with_other_link(&before).filter(|_| at.is_innermost);
        let is_linked = other_link.is_some_and(|mut other| {
            unwinder.unwind_frame(frame, &mut other, cache, &mut read) != unwound
        });
        let has_advanced = registers.sp() > before.sp();
        let is_without_frame = is_linked && registers.sp() == before.sp();
        if !has_advanced && !is_without_frame {
            return Step::Lost;
        }
        let step = Return {
            before,
            after: registers,
            address: next,
            is_linked,
        };
        let slot = arch::check_return(stack, frames, &step);
        let is_restored = depends || arch::fp(&other) == arch::fp(&registers);
        Step::To(At {
            address: next,
            registers,
            from: if is_restored {
                let end = slot.unwrap_or(registers.sp());
                saved_fp(stack, before.sp()..end, arch::fp(&registers))
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
    let registers = StackRegisters {
        sp: at.registers.sp(),
        fp: arch::fp(&at.registers),
    };
    let caller = caller(space, stack, at.address, registers, at.is_innermost)?;
    frames.check(caller.slot - stack.sp, caller.address);
    let (fp, from) = if caller.by_frame_pointer {
        frames.depends_on(at.from);
        let slot = caller.slot - 8;
        let value = stack.word_at(slot)?;
        (value, saved(slot - stack.sp, value))
    } else {
        (registers.fp, at.from)
    };
    let registers = arch::caller(caller.address, caller.slot.checked_add(8)?, fp);
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
        Epilogue::SkipsWord => (arch::fp(&at.registers), at.from),
        Epilogue::RestoresFramePointer => (first, saved(first_at - stack.sp, first)),
    };
    Some(At {
        address: next,
        registers: arch::caller(next, next_at.checked_add(8)?, fp),
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

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use hither_ids::Pid;
    use hither_kernel_events::stack;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// What a program has on its stack need not be a stack: the walk ends, and its checks hold.
        #[test]
        fn any_stack_is_followed_to_an_end(
            words in proptest::collection::vec(any::<u64>(), 0..64),
            places in proptest::collection::vec((0_usize..64, 0_u64..4096), 0..64),
            (ip, bp) in (0_u64..4096, 0_u64..1024),
            link in any::<u64>(),
            in_call in any::<bool>(),
        ) {
            let sp = 1 << 40;
            let code = follow_nothing as fn() as usize as u64;
            // Some words lead into code, some to the stack.
            let mut words = words;
            for (at, to) in places {
                if let Some(word) = words.get_mut(at) {
                    *word = if to % 2 == 0 { code + to } else { sp + to };
                }
            }
            let words: Vec<[u8; 8]> = words.into_iter().map(u64::to_ne_bytes).collect();
            let registers = stack::Registers { ip: code + ip, sp, bp: sp + bp, link };
            let stack = CopiedStack::new(registers, in_call, &words);
            let mut space = AddressSpace::of(Pid(std::process::id()), 7, 0).expect("this process");
            let mut walker = Walker::new(8);
            let frames = walker.follow(&mut space, &stack, 1);
            prop_assert!(frames.count() <= 8);
            if frames.memoisable {
                for check in frames.checks() {
                    let found = stack.word_at(sp + u64::from(check.distance));
                    prop_assert_eq!(found, Some(check.value));
                }
            }
        }
    }

    fn follow_nothing() {
        black_box(());
    }
}
