//! A tool for runtimes that have OpenMP's interface for tools (OpenMP 5.0, chapter 4): LLVM's
//! libomp, and its descendants.
//!
//! There can be one tool only. If the program brings one, or names one in `OMP_TOOL_LIBRARIES`, or
//! is built with the thread sanitizer, whose tool (archer) knows of barriers, that tool gets the
//! interface, and a record informs the agent that constructs are hidden. With `OMP_TOOL=disabled`
//! the runtime does not ask for a tool.
//!
//! The runtime has a word for the tool in each region and task. An outermost region's word holds
//! its call site's signature, its master's task's the size of the team; all others hold 0.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::null;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use hither_session::record::ConstructKind;

use super::construct::{MASTER, located, record, record_place};
use crate::lifecycle;
use crate::signature::Caller;

/// `ompt_data_t`, as an integer.
type Data = u64;

/// `ompt_function_lookup_t`.
type Lookup = unsafe extern "C" fn(*const c_char) -> *mut c_void;

/// `ompt_start_tool_result_t`.
#[repr(C)]
pub(super) struct Tool {
    initialize: unsafe extern "C" fn(Lookup, c_int, *mut Data) -> c_int,
    finalize: unsafe extern "C" fn(*mut Data),
    data: AtomicU64,
}

static TOOL: Tool = Tool {
    initialize,
    finalize,
    data: AtomicU64::new(0),
};

/// The runtime's `ompt_get_parallel_info`.
static PARALLEL_INFO: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

const PARALLEL_BEGIN: c_int = 3;
const PARALLEL_END: c_int = 4;
const IMPLICIT_TASK: c_int = 7;
const SYNC_REGION: c_int = 23;

const SCOPE_BEGIN: c_int = 1;
const SCOPE_END: c_int = 2;

/// `ompt_task_initial`: the task of a thread outside of all regions.
const INITIAL: c_int = 1;

/// `ompt_sync_region_barrier_*`, but for the one at a region's end, which is told of as such. Until
/// LLVM 17 that has the number of other implicit ones, but when it ends there is no region any
/// more.
const BARRIERS: [c_int; 5] = [1, 2, 3, 4, 8];

/// The runtime asks for a tool.
#[unsafe(no_mangle)]
unsafe extern "C" fn ompt_start_tool(version: c_uint, runtime: *const c_char) -> *const Tool {
    // The runtime's own definition, which may come next, looks further in the same way.
    // SAFETY: the name is a C string.
    let next = unsafe { libc::dlsym(libc::RTLD_NEXT, c"ompt_start_tool".as_ptr()) };
    if !next.is_null() {
        // SAFETY: the symbol of this name has this type (OpenMP 5.0, 4.2.1).
        let next = unsafe {
            std::mem::transmute::<
                *mut c_void,
                unsafe extern "C" fn(c_uint, *const c_char) -> *const Tool,
            >(next)
        };
        // SAFETY: the runtime's own call, passed on.
        let other = unsafe { next(version, runtime) };
        if !other.is_null() {
            record(ConstructKind::Hidden, 0, 0);
            return other;
        }
    }
    if lifecycle::session().is_none() {
        return null();
    }
    if wants_another() {
        record(ConstructKind::Hidden, 0, 0);
        return null();
    }
    &raw const TOOL
}

fn wants_another() -> bool {
    // SAFETY: the name is a C string; the runtime reads its environment at this very moment.
    let libraries = unsafe { libc::getenv(c"OMP_TOOL_LIBRARIES".as_ptr()) };
    if !libraries.is_null() {
        // SAFETY: getenv returned a C string.
        let libraries = unsafe { CStr::from_ptr(libraries) };
        if !libraries.is_empty() {
            return true;
        }
    }
    // SAFETY: the name is a C string.
    !unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__tsan_init".as_ptr()) }.is_null()
}

unsafe extern "C" fn initialize(lookup: Lookup, _device: c_int, _data: *mut Data) -> c_int {
    // SAFETY: the runtime's own function, which takes a C string.
    let info = unsafe { lookup(c"ompt_get_parallel_info".as_ptr()) };
    // SAFETY: as above.
    let set = unsafe { lookup(c"ompt_set_callback".as_ptr()) };
    if info.is_null() || set.is_null() {
        return 0;
    }
    PARALLEL_INFO.store(info, Ordering::Relaxed);
    // SAFETY: the entry point of this name has this type (OpenMP 5.0, 4.6.1.3).
    let set = unsafe {
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn(c_int, *const c_void) -> c_int>(set)
    };
    for (event, callback) in [
        (PARALLEL_BEGIN, parallel_begin as *const c_void),
        (PARALLEL_END, parallel_end as *const c_void),
        (IMPLICIT_TASK, implicit_task as *const c_void),
        (SYNC_REGION, sync_region as *const c_void),
    ] {
        // A runtime that lacks an event never calls; the others still tell.
        // SAFETY: each callback has the type of its event.
        unsafe { set(event, callback) };
    }
    1
}

unsafe extern "C" fn finalize(_data: *mut Data) {}

entry!(parallel_begin => begins, 4);
entry!(parallel_end => ended, 4);
entry!(sync_region => passed, 4);

unsafe extern "C" fn begins(
    _task: *mut Data,
    _frame: *const c_void,
    parallel: *mut Data,
    threads: c_uint,
    sp: *const u64,
    fp: u64,
) {
    // SAFETY: it is null or the runtime's word for this region, which no other thread knows yet.
    let Some(parallel) = (unsafe { parallel.as_mut() }) else {
        return;
    };
    *parallel = 0;
    if MASTER.get() || is_nested() {
        return;
    }
    if let Some(signature) = located(Caller { sp, fp }) {
        *parallel = signature;
        record(ConstructKind::ParallelBegin, signature, threads);
    }
}

unsafe extern "C" fn ended(
    parallel: *mut Data,
    _task: *mut Data,
    _flags: c_int,
    _code: *const c_void,
    _sp: *const u64,
    _fp: u64,
) {
    // SAFETY: it is null or the runtime's word for the region, whose other threads have left it.
    match unsafe { parallel.as_ref() } {
        None | Some(0) => {}
        Some(&signature) => record(ConstructKind::ParallelEnd, signature, 0),
    }
}

unsafe extern "C" fn implicit_task(
    endpoint: c_int,
    parallel: *mut Data,
    task: *mut Data,
    threads: c_uint,
    index: c_uint,
    flags: c_int,
) {
    if endpoint != SCOPE_BEGIN {
        return;
    }
    // SAFETY: it is null or the region's word, which is not written while it has threads.
    let outermost = unsafe { parallel.as_ref() }.is_some_and(|&signature| signature != 0);
    let master = outermost && index == 0;
    // SAFETY: it is null or the runtime's word for this thread's own task.
    if let Some(task) = unsafe { task.as_mut() } {
        *task = if master { u64::from(threads) } else { 0 };
    }
    if !master && flags & INITIAL == 0 && !MASTER.get() {
        record_place();
    }
}

unsafe extern "C" fn passed(
    kind: c_int,
    endpoint: c_int,
    parallel: *mut Data,
    task: *mut Data,
    sp: *const u64,
    fp: u64,
) {
    if endpoint != SCOPE_END || parallel.is_null() || !BARRIERS.contains(&kind) {
        return;
    }
    // SAFETY: it is null or the runtime's word for this thread's own task.
    match unsafe { task.as_ref() } {
        None => {}
        Some(0) if MASTER.get() => {}
        Some(0) => record_place(),
        Some(&threads) => {
            if let Some(signature) = located(Caller { sp, fp }) {
                record(ConstructKind::Barrier, signature, threads as u32);
            }
        }
    }
}

/// Whether this thread is in a region already: the implicit one around the whole program has none
/// around it.
fn is_nested() -> bool {
    let info = PARALLEL_INFO.load(Ordering::Relaxed);
    if info.is_null() {
        return true;
    }
    // SAFETY: the entry point of this name has this type (OpenMP 5.0, 4.6.1.14).
    let info = unsafe {
        std::mem::transmute::<
            *mut c_void,
            unsafe extern "C" fn(c_int, *mut *mut Data, *mut c_int) -> c_int,
        >(info)
    };
    let (mut parallel, mut threads) = (std::ptr::null_mut(), 0);
    // SAFETY: it may be called from callbacks, and both results are locals.
    unsafe { info(1, &raw mut parallel, &raw mut threads) != 0 }
}
