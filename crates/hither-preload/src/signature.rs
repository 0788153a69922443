//! Call-site signatures: which line of the program, through which wrappers, makes an access.
//!
//! A signature is the wrapping sum, over the distinct return addresses of the call stack, of a mix
//! of the module's key and the offset in the module. The paper sums the program counters up to
//! `main` (PCC, section 4.3); here
//! - modules are named by build-id and addresses made relative, so that a signature is the same in
//!   every run, and
//! - an address that occurs again counts once, so that the depth of a recursion (a tree walk, a
//!   descent parser) does not split one call site into hundreds.
//!
//! Distribution binaries have no frame pointers, so frames are found by their unwind information
//! (`framehop`), which costs 0.6 to 1.1 us a stack. It is paid once: `memo` remembers,
//! for a return address and stack pointer, where on the stack each return address was saved, and
//! re-verifying those slots takes a nanosecond each.
//!
//! Everything here belongs to one thread and takes no lock, so a fork, a signal or a dying thread
//! cannot leave it half-changed for another one.

mod caller;
mod epilogue;
mod memo;
mod module;
mod stack;

use std::num::NonZeroU64;
use std::panic::{AssertUnwindSafe, catch_unwind};

use framehop::{
    CacheNative, FrameAddress, MustNotAllocateDuringUnwind, UnwindRegsNative, Unwinder,
    UnwinderNative,
};
use hither_session::call_stack::{Check, Epilogue, FramePointer, Frames, epilogue};
use hither_session::record::{FRAMES_MAX, Record};

pub use caller::Caller;
pub use memo::Memo;
pub use module::modules_changed;
#[cfg(feature = "pages")]
pub(crate) use module::{epoch, is_readable};

use crate::arch::{frame_pointer, return_slot, sp_above};
use module::Modules;
use stack::{Stack, Window};

/// Looks up what the dynamic linker and libc offer. To be called once, early: symbol lookup may
/// allocate.
pub fn prepare() {
    module::prepare();
    stack::prepare();
}

/// How many call sites a thread remembers as defined; beyond that, definitions are sent again.
const DEFINED_SITES_MAX: usize = 4096;

/// Finds signatures for one thread.
pub struct Walker {
    memo: Box<Memo>,
    stack: Stack,
    unwinder: UnwinderNative<&'static [u8], MustNotAllocateDuringUnwind>,
    cache: Option<CacheNative<MustNotAllocateDuringUnwind>>,
    modules: Modules,
    window: Window,
    defined: Box<[u64]>,
}

impl Default for Walker {
    fn default() -> Self {
        Self::new()
    }
}

impl Walker {
    /// A walker for the calling thread.
    pub fn new() -> Self {
        Walker {
            memo: Memo::boxed(),
            stack: Stack::default(),
            unwinder: UnwinderNative::new(),
            cache: None,
            modules: Modules::default(),
            window: Window::default(),
            defined: vec![0; DEFINED_SITES_MAX].into_boxed_slice(),
        }
    }

    /// The signature of `caller`'s call stack, if it was found before and the stack is still the
    /// same.
    ///
    /// # Safety
    /// `caller` describes a live frame of the calling thread, below which nothing returns during
    /// this call.
    #[inline]
    pub unsafe fn remembered(&self, caller: Caller) -> Option<u64> {
        // SAFETY: the memo only holds stacks of this thread that were walked inside its own stack,
        // upwards from the same stack pointer, so each slot lies between a live frame and the end
        // of that stack.
        unsafe { self.memo.find(caller, module::epoch()) }
    }

    /// The signature of `caller`'s call stack, followed over at most `depth` frames; never 0. It
    /// takes some 25 KiB of stack.
    ///
    /// When a call site is new to this thread, its definition and those of its modules go to
    /// `define`, which says whether it could take them: what it could not is offered again on the
    /// next unwind.
    ///
    /// # Safety
    /// As for [`Walker::remembered`].
    pub unsafe fn signature(
        &mut self,
        caller: Caller,
        depth: usize,
        define: &mut dyn FnMut(&Record<'_>) -> bool,
    ) -> u64 {
        // SAFETY: as the caller says.
        if let Some(signature) = unsafe { self.remembered(caller) } {
            return signature;
        }
        // SAFETY: as above.
        unsafe { self.walk(caller, depth, define) }
    }

    #[cold]
    #[inline(never)]
    unsafe fn walk(
        &mut self,
        caller: Caller,
        depth: usize,
        define: &mut dyn FnMut(&Record<'_>) -> bool,
    ) -> u64 {
        let depth = depth.clamp(1, FRAMES_MAX);
        // A panic in the unwinder (a malformed table) must not reach the program; the panic hook is
        // silent.
        let walked = catch_unwind(AssertUnwindSafe(|| {
            if module::epoch() != self.modules.epoch() {
                self.forget_modules();
            }
            // SAFETY: as the caller says.
            unsafe { self.follow(caller, depth) }
        }));
        let Ok(frames) = walked else { return 1 };
        let signature = frames.signature();
        if frames.memoisable {
            let fp = frames.needs_fp.then_some(caller.fp);
            let sp = caller.sp as u64;
            let checks = frames.checks();
            self.memo.insert(sp, fp, signature, module::epoch(), checks);
        }
        self.define(signature, &frames, define);
        signature
    }

    /// Forgets the stacks that were walked, so that the next one is walked: for measuring. It takes
    /// some 0.3 us itself.
    #[doc(hidden)]
    pub fn forget_stacks(&mut self) {
        self.memo.clear();
    }

    /// After a library was unloaded, another one may lie where it was.
    fn forget_modules(&mut self) {
        self.modules = Modules::default();
        self.unwinder = UnwinderNative::new();
        self.cache = None;
        self.memo.clear();
    }

    /// Walks the stack.
    ///
    /// # Safety
    /// As for [`Walker::signature`].
    unsafe fn follow(&mut self, caller: Caller, depth: usize) -> Frames {
        let mut frames = Frames::default();
        let sp = caller.sp as u64;
        self.window.forget();
        if !caller.sp.is_aligned() {
            return frames;
        }
        // SAFETY: the frame is live, as the caller says, and its return address lies there.
        let Some(mut address) = NonZeroU64::new(unsafe { caller.sp.read() }) else {
            return frames;
        };
        // Off its own stack (a coroutine, a signal handler) another stack may lie at the same place
        // next time, and its end is not known: take the innermost frame alone.
        let walkable = self.stack.holds(sp);
        let stack = self.stack;
        frames.memoisable = walkable;
        frames.check(0, address.get());
        let mut regs = UnwindRegsNative::new(address.get(), sp_above(sp), caller.fp);
        let mut from = FramePointer::Callers;
        loop {
            let Some(module) = self.modules.find(address.get(), &mut self.unwinder) else {
                let over = walkable
                    .then(|| self.step_over(&mut frames, depth, sp, (address, regs, from)))
                    .flatten();
                let Some(over) = over else {
                    frames.truncated = true;
                    return frames;
                };
                (address, regs, from) = over;
                continue;
            };
            if module.is_signal_return(address.get()) {
                return frames;
            }
            frames.push(module.key, address.get().wrapping_sub(module.bias));
            if frames.count() >= depth || frames.is_full() || !walkable {
                frames.truncated = true;
                return frames;
            }
            let before = regs;
            let Self {
                window,
                cache,
                unwinder,
                ..
            } = self;
            let cache = cache.get_or_insert_with(CacheNative::new_in);
            let mut read = |at: u64| {
                if stack.contains(at) {
                    window.read(at).ok_or(())
                } else {
                    Err(())
                }
            };
            let frame = FrameAddress::ReturnAddress(address);
            // Code without frame pointers counts its loops in that register, and would never be
            // remembered if the memo compared it. So find out whether this frame depends on it.
            let mut other =
                UnwindRegsNative::new(address.get(), before.sp(), !frame_pointer(&before));
            let other_next = unwinder.unwind_frame(frame, &mut other, cache, &mut read);
            let unwound = unwinder.unwind_frame(frame, &mut regs, cache, &mut read);
            let depends = other_next != unwound || other.sp() != regs.sp();
            if depends {
                frames.depends_on(from);
            }
            let restored = depends || frame_pointer(&other) == frame_pointer(&regs);
            match unwound {
                Ok(Some(next)) => {
                    let (Some(next), true) = (NonZeroU64::new(next), regs.sp() > before.sp())
                    else {
                        frames.truncated = true;
                        return frames;
                    };
                    let saved_at = return_slot(regs.sp());
                    let in_place =
                        stack.contains(saved_at) && self.window.read(saved_at) == Some(next.get());
                    frames.memoisable &= in_place;
                    frames.check(saved_at - sp, next.get());
                    if restored {
                        from = self.saved_fp(sp, before.sp(), saved_at, frame_pointer(&regs));
                    }
                    address = next;
                }
                Ok(None) => return frames,
                Err(_) => {
                    frames.truncated = true;
                    return frames;
                }
            }
        }
    }

    /// From a trampoline that was made at run time to its caller: what the instructions at the
    /// return address will do. `None` for any other code.
    fn step_over(
        &mut self,
        frames: &mut Frames,
        depth: usize,
        sp: u64,
        (address, regs, mut from): (NonZeroU64, UnwindRegsNative, FramePointer),
    ) -> Option<(NonZeroU64, UnwindRegsNative, FramePointer)> {
        let epilogue = epilogue(epilogue::code_at(address.get())?)?;
        frames.push(self.modules.run_time_code().key, address.get());
        if frames.count() >= depth || frames.is_full() {
            return None;
        }
        let (first_at, next_at) = (regs.sp(), regs.sp() + 8);
        if !self.stack.contains(first_at) || !self.stack.contains(next_at) {
            return None;
        }
        let first = self.window.read(first_at)?;
        let next = NonZeroU64::new(self.window.read(next_at)?)?;
        frames.check(next_at - sp, next.get());
        let mut fp = frame_pointer(&regs);
        if epilogue == Epilogue::RestoresFramePointer {
            (fp, from) = (first, saved(first_at - sp, first));
        }
        let regs = UnwindRegsNative::new(next.get(), sp_above(next_at), fp);
        Some((next, regs, from))
    }

    /// Where between `from` and `to` a frame has restored the frame pointer from.
    fn saved_fp(&mut self, sp: u64, from: u64, to: u64, value: u64) -> FramePointer {
        // It is pushed first in nearly every prologue: look from the return address down.
        let mut at = to;
        while at > from {
            at -= 8;
            if self.window.read(at) == Some(value) {
                return saved(at - sp, value);
            }
        }
        FramePointer::Unknown
    }

    fn define(
        &mut self,
        signature: u64,
        frames: &Frames,
        define: &mut dyn FnMut(&Record<'_>) -> bool,
    ) {
        let mut slot = signature as usize % DEFINED_SITES_MAX;
        // A few steps of probing; a full neighbourhood only means that the definition is sent
        // again.
        for _ in 0..8 {
            match self.defined.get(slot) {
                Some(&known) if known == signature => return,
                Some(0) => break,
                _ => slot = (slot + 1) % DEFINED_SITES_MAX,
            }
        }
        let mut sent = true;
        let words = frames.words();
        for pair in words.chunks_exact(2) {
            sent &= self.modules.define(pair[0], define);
        }
        sent &= define(&Record::Site {
            signature,
            truncated: frames.truncated,
            frames: words,
        });
        if sent && let Some(known) = self.defined.get_mut(slot) {
            *known = signature;
        }
    }
}

/// A frame pointer that lies `distance` bytes above the stack pointer where the walk began.
fn saved(distance: u64, value: u64) -> FramePointer {
    u32::try_from(distance).map_or(FramePointer::Unknown, |distance| {
        FramePointer::Saved(Check { distance, value })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    type Work<'a> = &'a mut dyn FnMut(Caller);

    // Calls its work as a hook's trampoline would.
    entry!(enter => hook, 1);
    // Keeps a number in the frame pointer, as code without frame pointers does.
    counting!(counts, saves => enter);

    unsafe extern "C" fn hook(work: *mut Work<'_>, sp: *const u64, fp: u64) {
        // SAFETY: `count` passes a pointer to its own argument.
        let work = unsafe { &mut *work };
        work(Caller { sp, fp });
    }

    #[inline(never)]
    fn count(number: u64, mut work: Work<'_>) {
        // SAFETY: the functions follow the C convention, and this frame outlives the call.
        unsafe { counts(&raw mut work, number) }
    }

    #[test]
    fn a_counter_in_the_frame_pointer_does_not_hide_a_stack() {
        prepare();
        let mut walker = Walker::new();
        let (mut first, mut again, mut frames) = (0, None, 0);
        // Not unrolled: both calls are made from one place.
        for number in 1..std::hint::black_box(3) {
            count(number, &mut |caller| {
                // SAFETY: the caller's frame is live.
                again = unsafe { walker.remembered(caller) };
                let mut define = |record: &Record<'_>| {
                    if let Record::Site { frames: words, .. } = record {
                        frames = words.len() / 2;
                    }
                    true
                };
                // SAFETY: as above.
                first = unsafe { walker.signature(caller, FRAMES_MAX, &mut define) };
            });
        }
        assert!(frames > 3, "the walk went beyond both: {frames}");
        assert_eq!(again, Some(first));
    }
}
