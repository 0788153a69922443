//! The calls that gcc compiles OpenMP to (libgomp's interface, which LLVM's libomp offers as well).
//!
//! gcc 8 to 14 compile a `parallel` to one call that returns when the team is done. All of its
//! forms take the region's function, its argument and the number of threads first. At a barrier,
//! explicit or at the end of a work-sharing construct, each thread makes one of a few calls. Not
//! hooked: `nowait` ends, `single` and `taskwait`, which are no boundaries of the team (the barrier
//! after a `single` is a `GOMP_barrier`; which thread copies a private value out of it differs from
//! run to run), and the pairs of `GOMP_parallel_start` and `_end`, which gcc has not emitted since
//! 4.9.
//!
//! All hooks are one function, [`hook`], which passes the call's arguments on as they came, up to
//! eight of them. The team's other threads enter the region by [`member`], so that they record
//! where they run even if they meet no barrier; it leaves no frame behind.

use std::cell::Cell;
use std::ffi::c_void;

use hither_session::record::ConstructKind;

use super::construct::{MASTER, located, record, record_place};
use super::runtime::{self, Name, Runtime};
use crate::arch::REGISTER_ARGUMENTS;
use crate::lifecycle;
use crate::signature::Caller;

/// A call and what it means.
pub(super) struct Hook {
    name: Name,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Barrier,
    Parallel,
    /// The runtime reads the region's argument itself, so that it cannot be another.
    ParallelReading,
}

/// A call that is being made, as `around` keeps it on its stack.
#[repr(C)]
struct Call {
    arguments: [usize; REGISTER_ARGUMENTS],
    result: usize,
    /// What the team's threads are to call, if they go by [`member`].
    function: usize,
    data: usize,
    /// The region's call site, if it is an outermost one that was told of; 0 otherwise.
    signature: u64,
    runtime: Option<&'static Runtime>,
    /// That of the region that the thread is in.
    outer: Option<&'static Runtime>,
}

const RESULT: usize = std::mem::offset_of!(Call, result);
const FUNCTION: usize = std::mem::offset_of!(Call, function);

// The trampoline keeps the stack aligned by it.
const _: () = assert!(size_of::<Call>().is_multiple_of(16));

thread_local! {
    /// The runtime whose region this thread is in, or was last in if that was begun by another
    /// thread: of its workers each runtime has its own.
    static INNERMOST: Cell<Option<&'static Runtime>> = const { Cell::new(None) };
}

/// Declares the hooks.
macro_rules! hook {
    ($($symbol:ident: $kind:ident;)*) => {
        /// What each hooked call means.
        #[allow(non_upper_case_globals)]
        mod hooks {
            use super::{Hook, Kind, Name};
            $(pub(super) static $symbol: Hook = Hook { name: Name::$symbol, kind: Kind::$kind };)*
        }
        $(
            around!($symbol, hooks::$symbol, begin, end, Call, RESULT);
        )*
    };
}

hook! {
    GOMP_barrier: Barrier;
    GOMP_barrier_cancel: Barrier;
    GOMP_loop_end: Barrier;
    GOMP_loop_end_cancel: Barrier;
    GOMP_sections_end: Barrier;
    GOMP_sections_end_cancel: Barrier;
    GOMP_workshare_task_reduction_unregister: Barrier;
    GOMP_parallel: Parallel;
    GOMP_parallel_reductions: ParallelReading;
    GOMP_parallel_sections: Parallel;
    GOMP_parallel_loop_static: Parallel;
    GOMP_parallel_loop_dynamic: Parallel;
    GOMP_parallel_loop_guided: Parallel;
    GOMP_parallel_loop_runtime: Parallel;
    GOMP_parallel_loop_nonmonotonic_dynamic: Parallel;
    GOMP_parallel_loop_nonmonotonic_guided: Parallel;
    GOMP_parallel_loop_nonmonotonic_runtime: Parallel;
    GOMP_parallel_loop_maybe_nonmonotonic_runtime: Parallel;
}

/// Before the call: returns the function to make it with.
unsafe extern "C" fn begin(
    hook: &'static Hook,
    call: &mut Call,
    sp: *const u64,
    fp: u64,
) -> *const c_void {
    // SAFETY: the trampoline passes the address of its own return address.
    let return_address = unsafe { sp.read() };
    let innermost = INNERMOST.get();
    (call.signature, call.runtime) = (0, None);
    let function = call.arguments[0] as u64;
    let (found, address) = match hook.kind {
        Kind::Barrier => {
            let found = runtime::of_barrier(return_address, innermost);
            (found, return_address)
        }
        Kind::Parallel | Kind::ParallelReading => {
            let found = runtime::of_region(function, return_address, innermost);
            (found, function)
        }
    };
    let Some(runtime) = found.filter(|found| !found.function(hook.name).is_null()) else {
        return runtime::function(hook.name, address);
    };
    call.runtime = Some(runtime);
    if hook.kind != Kind::Barrier {
        call.outer = INNERMOST.replace(call.runtime);
        let records = lifecycle::session().is_some();
        if records
            && !MASTER.get()
            && runtime.level() == 0
            && let Some(signature) = located(Caller { sp, fp })
        {
            call.signature = signature;
            MASTER.set(true);
            let [_, _, threads, ..] = call.arguments;
            record(ConstructKind::ParallelBegin, signature, threads as u32);
        }
        // Without recording, only where its threads may need to know which of several runtimes it
        // is.
        if hook.kind == Kind::Parallel && (records || runtime.is_private()) {
            let [function, data, ..] = &mut call.arguments;
            (call.function, call.data) = (*function, *data);
            // The call lives until the whole team has left the region.
            (*function, *data) = (
                member as *const () as usize,
                (&raw const call.function).addr(),
            );
        }
    }
    runtime.function(hook.name)
}

/// After the call.
unsafe extern "C" fn end(hook: &'static Hook, call: &mut Call, sp: *const u64, fp: u64) {
    let Some(runtime) = call.runtime else { return };
    if hook.kind != Kind::Barrier {
        INNERMOST.set(call.outer);
        if call.signature != 0 {
            MASTER.set(false);
            record(ConstructKind::ParallelEnd, call.signature, 0);
        }
    } else if !MASTER.get() {
        record_place();
    } else if runtime.level() == 1
        && let Some(signature) = located(Caller { sp, fp })
    {
        record(ConstructKind::Barrier, signature, runtime.threads());
    }
}

// Where the threads of a team enter their region: with the address of its function, which the
// argument follows.
member!(member => enter);

unsafe extern "C" fn enter(function: *const usize) {
    let call = function.wrapping_byte_sub(FUNCTION).cast::<Call>();
    // SAFETY: it is the address that `begin` took of this field; the call lives until the whole
    // team has left the region, and nobody writes to it meanwhile.
    INNERMOST.set(unsafe { (*call).runtime });
    if !MASTER.get() {
        record_place();
    }
}
