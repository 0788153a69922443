//! Which OpenMP runtime a call was meant for.
//!
//! Mostly there is one, which the program is linked to. But python's extension modules, and other plug-ins, bring their
//! own: loaded for themselves alone, where only they see it, and sometimes several of them. Without us their calls would
//! go there; so they must, and to find it we look from the calling module. All functions of a runtime are looked up together,
//! when a region of a module first begins, since a look-up takes the dynamic linker's lock: the thread that begins it
//! could take that too, but the threads of its team must not wait for whoever holds it (a constructor that
//! computes in parallel).
//!
//! Such a runtime is kept loaded, as its threads are. A module's range is looked at anew after a library was unloaded.

use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use crate::real;
use crate::signature::epoch;

/// Declares the functions of a runtime that are called here.
macro_rules! functions {
    ($($name:ident)*) => {
        /// A function of a runtime.
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy)]
        pub(super) enum Name { $($name,)* }

        const NAMES: &[&CStr] = &[$(
            match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a name without NUL bytes"),
            },
        )*];
    };
}

functions! {
    GOMP_parallel
    GOMP_parallel_reductions
    GOMP_parallel_sections
    GOMP_parallel_loop_static
    GOMP_parallel_loop_dynamic
    GOMP_parallel_loop_guided
    GOMP_parallel_loop_runtime
    GOMP_parallel_loop_nonmonotonic_dynamic
    GOMP_parallel_loop_nonmonotonic_guided
    GOMP_parallel_loop_nonmonotonic_runtime
    GOMP_parallel_loop_maybe_nonmonotonic_runtime
    GOMP_barrier
    GOMP_barrier_cancel
    GOMP_loop_end
    GOMP_loop_end_cancel
    GOMP_sections_end
    GOMP_sections_end_cancel
    GOMP_workshare_task_reduction_unregister
    omp_get_level
    omp_get_num_threads
}

/// The functions of one runtime.
pub(super) struct Runtime {
    functions: [AtomicPtr<c_void>; NAMES.len()],
}

/// The code of a module that calls a runtime of its own.
struct Module {
    start: AtomicU64,
    /// Written last, and 0 in an entry that holds nothing.
    end: AtomicU64,
    runtime: AtomicPtr<Runtime>,
}

/// Other runtimes than the program's: as many as there are copies of the library.
const RUNTIMES: usize = 16;

/// Modules that bring one. A scientific python loads some dozens.
const MODULES: usize = 256;

static GLOBAL: Runtime = Runtime::new();
static LOCAL: [Runtime; RUNTIMES] = [const { Runtime::new() }; RUNTIMES];
/// Entries of [`LOCAL`] that are in use, or about to be.
static LOCALS: AtomicUsize = AtomicUsize::new(0);
static MODULES_KNOWN: [Module; MODULES] = [const { Module::new() }; MODULES];
static KNOWN: AtomicUsize = AtomicUsize::new(0);
static EPOCH: AtomicU64 = AtomicU64::new(0);
/// Set while modules are remembered or forgotten: whoever finds it set does without.
static CHANGING: AtomicBool = AtomicBool::new(false);

impl Runtime {
    const fn new() -> Self {
        Runtime {
            functions: [const { AtomicPtr::new(null_mut()) }; NAMES.len()],
        }
    }

    /// A function of this runtime; null if it has none of this name.
    #[inline]
    pub(super) fn function(&self, name: Name) -> *const c_void {
        let function = self.functions.get(name as usize);
        function.map_or(null_mut(), |function| function.load(Ordering::Relaxed))
    }

    /// How many regions this thread is in.
    #[inline]
    pub(super) fn level(&self) -> c_int {
        self.ask(Name::omp_get_level)
    }

    /// The threads of this thread's team.
    #[inline]
    pub(super) fn threads(&self) -> u32 {
        self.ask(Name::omp_get_num_threads) as u32
    }

    #[inline]
    fn ask(&self, name: Name) -> c_int {
        let function = self.function(name);
        if function.is_null() {
            return 0;
        }
        // SAFETY: the runtime's functions of these names take nothing and return an int.
        let function = unsafe {
            std::mem::transmute::<*const c_void, unsafe extern "C" fn() -> c_int>(function)
        };
        // SAFETY: it may be called by any thread at any time.
        unsafe { function() }
    }

    fn is_found(&self) -> bool {
        !self.function(Name::GOMP_parallel).is_null()
    }

    /// Looks all functions up, the one that says that they are found last.
    fn find(&self, within: *mut c_void) {
        for (function, name) in self.functions.iter().zip(NAMES).rev() {
            function.store(look_up(within, name), Ordering::Release);
        }
    }
}

impl Module {
    const fn new() -> Self {
        Module {
            start: AtomicU64::new(0),
            end: AtomicU64::new(0),
            runtime: AtomicPtr::new(null_mut()),
        }
    }

    fn runtime_of(&self, address: u64) -> Option<&'static Runtime> {
        let end = self.end.load(Ordering::Acquire);
        if address >= end || address < self.start.load(Ordering::Relaxed) {
            return None;
        }
        // SAFETY: it was stored before the end was, and is one of the statics above.
        unsafe { self.runtime.load(Ordering::Relaxed).as_ref() }
    }
}

/// The runtime that a call from this address is meant for; `None` if there is none.
#[inline]
pub(super) fn of(return_address: u64) -> Option<&'static Runtime> {
    if GLOBAL.is_found() {
        Some(&GLOBAL)
    } else {
        local(return_address)
    }
}

/// Looks for the runtime that the program was linked to.
pub(super) fn prepare() {
    if !look_up(libc::RTLD_NEXT, c"GOMP_parallel").is_null() {
        GLOBAL.find(libc::RTLD_NEXT);
    }
}

fn local(return_address: u64) -> Option<&'static Runtime> {
    let known = KNOWN.load(Ordering::Acquire);
    let known = (EPOCH.load(Ordering::Relaxed) == epoch()).then_some(known);
    MODULES_KNOWN
        .iter()
        .take(known.unwrap_or(0))
        .find_map(|module| module.runtime_of(return_address))
        .or_else(|| find(return_address))
}

/// Finds the runtime of the module that this address lies in.
#[cold]
fn find(return_address: u64) -> Option<&'static Runtime> {
    // SAFETY: it takes nothing and always returns an address.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: errno is the calling thread's own.
    let before = unsafe { errno.read() };
    // It may have been loaded since, for all to see.
    prepare();
    let found = if GLOBAL.is_found() {
        Some(&GLOBAL)
    } else {
        find_from(return_address)
    };
    // What a look-up that failed has left for the program to read.
    // SAFETY: it takes nothing; the message is this thread's own.
    unsafe { libc::dlerror() };
    // SAFETY: as above.
    unsafe { errno.write(before) };
    found
}

fn find_from(return_address: u64) -> Option<&'static Runtime> {
    let module = open(object(return_address as *const c_void)?, 0)?;
    let parallel = look_up(module, c"GOMP_parallel");
    let known = LOCAL
        .iter()
        .find(|runtime| runtime.function(Name::GOMP_parallel) == parallel);
    let runtime = if parallel.is_null() {
        None
    } else {
        known.or_else(|| {
            // It stays, whatever becomes of the module: we keep addresses of it.
            open(object(parallel)?, libc::RTLD_NODELETE)?;
            let runtime = LOCAL.get(LOCALS.fetch_add(1, Ordering::Relaxed))?;
            runtime.find(module);
            Some(runtime)
        })
    };
    // SAFETY: the handle is the one that was opened above, and is not used again.
    unsafe { real::dlclose(module) };
    let runtime = runtime?;
    if !CHANGING.swap(true, Ordering::Acquire) {
        remember(return_address, runtime);
        CHANGING.store(false, Ordering::Release);
    }
    Some(runtime)
}

/// Remembers that calls from the module around this address are meant for this runtime.
fn remember(address: u64, runtime: &'static Runtime) {
    let now = epoch();
    if EPOCH.load(Ordering::Relaxed) != now {
        KNOWN.store(0, Ordering::Relaxed);
        for module in &MODULES_KNOWN {
            module.end.store(0, Ordering::Release);
        }
        EPOCH.store(now, Ordering::Release);
    }
    let mut range = (address, 0);
    // SAFETY: the callback has the type asked for and gets the pair, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(segment), (&raw mut range).cast()) };
    let (start, end) = range;
    if end == 0 {
        return;
    }
    let at = KNOWN.load(Ordering::Relaxed);
    let Some(module) = MODULES_KNOWN.get(at) else {
        return;
    };
    module.start.store(start, Ordering::Relaxed);
    let runtime = std::ptr::from_ref(runtime).cast_mut();
    module.runtime.store(runtime, Ordering::Relaxed);
    module.end.store(end, Ordering::Release);
    KNOWN.store(at + 1, Ordering::Release);
}

/// Replaces the address in `range` by the ends of the segment of code that holds it.
unsafe extern "C" fn segment(
    object: *mut libc::dl_phdr_info,
    _size: usize,
    range: *mut c_void,
) -> c_int {
    // SAFETY: `remember` passes its pair.
    let range = unsafe { &mut *range.cast::<(u64, u64)>() };
    // SAFETY: the linker passes a description that is whole for the time of the call.
    let object = unsafe { &*object };
    // SAFETY: as above: that many headers lie there.
    let headers =
        unsafe { std::slice::from_raw_parts(object.dlpi_phdr, usize::from(object.dlpi_phnum)) };
    let found = headers
        .iter()
        .filter(|header| header.p_type == libc::PT_LOAD)
        .map(|header| {
            let start = object.dlpi_addr + header.p_vaddr;
            (start, start + header.p_memsz)
        })
        .find(|(start, end)| (*start..*end).contains(&range.0));
    found.map_or(0, |found| {
        *range = found;
        1
    })
}

/// The path of the library that an address lies in.
fn object(address: *const c_void) -> Option<*const libc::c_char> {
    let mut found = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the buffer is one Dl_info.
    let known = unsafe { libc::dladdr(address, found.as_mut_ptr()) } != 0;
    // SAFETY: zeroed memory is a valid Dl_info, and dladdr filled it or not.
    let found = unsafe { found.assume_init() };
    (known && !found.dli_fname.is_null()).then_some(found.dli_fname)
}

/// A handle of a library that is loaded.
fn open(path: *const libc::c_char, flags: c_int) -> Option<*mut c_void> {
    // SAFETY: the path is the linker's own string; nothing is loaded, so no constructor runs.
    let handle = unsafe { libc::dlopen(path, libc::RTLD_LAZY | libc::RTLD_NOLOAD | flags) };
    (!handle.is_null()).then_some(handle)
}

fn look_up(within: *mut c_void, name: &CStr) -> *mut c_void {
    // SAFETY: the name is a C string; the handle is open, or one of the special ones.
    unsafe { libc::dlsym(within, name.as_ptr()) }
}
