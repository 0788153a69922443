//! Which OpenMP runtime a call was meant for.
//!
//! Mostly there is one, which the program is linked to. But python's extension modules, and other
//! plug-ins, bring their own, loaded with RTLD_LOCAL, and sometimes several of them. Without us
//! their calls would go there, so they must go there still: the runtime is looked up from the
//! calling module. All functions of a runtime are looked up together, when a region of a module
//! first begins. A look-up takes the dynamic linker's lock. The thread that begins the region could
//! take that as well, but the threads of its team must not wait for whoever holds it (a constructor
//! that computes in parallel).
//!
//! **The calling module** is the one that holds the region's function. The return address may lie
//! in
//! another: a call at the end of a function is a jump, which returns to that function's caller. A
//! barrier has only its return address; where no runtime is visible from there, the barrier belongs
//! to the region that the thread is in.
//!
//! **Bound before visible.** A runtime may become globally visible after a module was bound to its
//! own, and the two must not be mixed: to the functions that we do not hook, each thread of a
//! region would be the first of its team. So what the module's other calls are bound to comes
//! before what is visible globally.
//!
//! **Last resort.** A module may see no runtime itself where its loader does (it was linked without
//! one, and is needed by a module that was linked with one). Then all other modules are searched,
//! the likely ones first.
//!
//! A runtime that was found this way is kept loaded, as its threads are. A module's range is looked
//! up again after a library was unloaded.

use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use super::libraries::{bound, each_library, path_of, segment_of};
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

/// The code of a module, and the runtime that its calls are meant for.
struct Module {
    start: AtomicU64,
    /// Written last, and 0 in an entry that holds nothing.
    end: AtomicU64,
    /// Null where it sees none.
    runtime: AtomicPtr<Runtime>,
}

/// What is seen from a module.
#[derive(Clone, Copy)]
enum Visible {
    /// Its calls go here.
    Runtime(&'static Runtime),
    /// There is a runtime, but no room to keep its functions.
    Crowded,
    Nothing,
    /// No library lies there: code that was made at run time.
    NoModule,
}

/// Other runtimes than the program's: as many as there are copies of the library.
const RUNTIMES_MAX: usize = 16;

/// Modules that bring one. A scientific python loads some dozens.
const MODULES_MAX: usize = 256;

static GLOBAL: Runtime = Runtime::new();
/// Whether that was there from the start, so that no module can be bound to another one through us.
static LINKED: AtomicBool = AtomicBool::new(false);
static LOCAL: [Runtime; RUNTIMES_MAX] = [const { Runtime::new() }; RUNTIMES_MAX];
/// Entries of [`LOCAL`] that are in use, or about to be.
static LOCALS: AtomicUsize = AtomicUsize::new(0);
static MODULES_KNOWN: [Module; MODULES_MAX] = [const { Module::new() }; MODULES_MAX];
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

    /// Whether not all see it: there may be several of these.
    pub(super) fn is_private(&self) -> bool {
        !std::ptr::eq(self, &GLOBAL)
    }

    /// A barrier at the end of a region's function returns to the runtime, in each thread of the
    /// team.
    fn remember_own(&'static self) {
        remember(self.function(Name::GOMP_parallel) as u64, Some(self));
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

    fn sight_from(&self, address: u64) -> Option<Visible> {
        let end = self.end.load(Ordering::Acquire);
        if address >= end || address < self.start.load(Ordering::Relaxed) {
            return None;
        }
        // SAFETY: it was stored before the end was, and is null or one of the statics above.
        let runtime = unsafe { self.runtime.load(Ordering::Relaxed).as_ref() };
        Some(runtime.map_or(Visible::Nothing, Visible::Runtime))
    }

    fn assign(&self, runtime: Option<&'static Runtime>) {
        let runtime = runtime.map_or(null_mut(), |runtime| std::ptr::from_ref(runtime).cast_mut());
        self.runtime.store(runtime, Ordering::Relaxed);
    }
}

/// The runtime that is to begin a region with this function; `None` if it is none of those: then
/// [`function`] is to be asked.
#[inline]
pub(super) fn of_region(
    function: u64,
    return_address: u64,
    innermost: Option<&'static Runtime>,
) -> Option<&'static Runtime> {
    if LINKED.load(Ordering::Relaxed) {
        return Some(&GLOBAL);
    }
    match sight_from(function) {
        Visible::Runtime(runtime) => Some(runtime),
        Visible::Crowded => None,
        Visible::Nothing => find_around(function).inspect(|runtime| assign(function, runtime)),
        Visible::NoModule => of_barrier(return_address, innermost),
    }
}

/// The runtime that a barrier is meant for, of a thread that is in a region of the `innermost`;
/// `None` as above.
#[inline]
pub(super) fn of_barrier(
    return_address: u64,
    innermost: Option<&'static Runtime>,
) -> Option<&'static Runtime> {
    if LINKED.load(Ordering::Relaxed) {
        return Some(&GLOBAL);
    }
    match sight_from(return_address) {
        Visible::Runtime(runtime) => Some(runtime),
        Visible::Crowded => None,
        // A thread that is in no region passes any runtime's barrier at once.
        Visible::Nothing | Visible::NoModule => innermost
            .or_else(global)
            .or_else(|| LOCAL.iter().find(|runtime| runtime.is_found()))
            .or_else(|| find_around(return_address)),
    }
}

/// The function of this name that a call from this address is meant for, where its runtime lacks it
/// or there was no room for that. Null if no library has it.
#[cold]
pub(super) fn function(name: Name, address: u64) -> *const c_void {
    let Some(name) = NAMES.get(name as usize) else {
        return std::ptr::null();
    };
    quietly(|| {
        let next = look_up(libc::RTLD_NEXT, name);
        let found = Some(next).filter(|next| !next.is_null()).or_else(|| {
            let module = open(object(address as *const c_void)?, 0)?;
            let found = seen(module, name);
            close(module);
            found
        });
        found
            .or_else(|| from_around(address, |module| seen(module, name)))
            .unwrap_or(null_mut())
    })
}

/// Looks for the runtime that the program was linked to.
pub(super) fn prepare() {
    look_for_global();
    LINKED.store(GLOBAL.is_found(), Ordering::Relaxed);
}

fn look_for_global() {
    if GLOBAL.is_found() {
        return;
    }
    let parallel = look_up(libc::RTLD_NEXT, c"GOMP_parallel");
    if !parallel.is_null() {
        // What was loaded for all may be unloaded, too.
        keep(parallel);
        GLOBAL.find(libc::RTLD_NEXT);
    }
}

/// The runtime that all see, if that is known.
fn global() -> Option<&'static Runtime> {
    GLOBAL.is_found().then_some(&GLOBAL)
}

fn sight_from(address: u64) -> Visible {
    known(address).unwrap_or_else(|| find(address))
}

/// What is remembered to be seen from the module around this address.
fn known(address: u64) -> Option<Visible> {
    let known = KNOWN.load(Ordering::Acquire);
    let known = (EPOCH.load(Ordering::Relaxed) == epoch()).then_some(known);
    MODULES_KNOWN
        .iter()
        .take(known.unwrap_or(0))
        .find_map(|module| module.sight_from(address))
}

/// Finds the runtime of the module that this address lies in.
#[cold]
fn find(address: u64) -> Visible {
    quietly(|| {
        // It may have been loaded since, for all to see.
        look_for_global();
        let Some(path) = object(address as *const c_void) else {
            return Visible::NoModule;
        };
        let from = |path| {
            let module = open(path, 0)?;
            let sight = sight_of(module);
            close(module);
            Some(sight)
        };
        // Where all see one, that one is for modules to begin regions with; a barrier may be of
        // another's. The program itself cannot be opened by its name: it sees what all see.
        let seen = || {
            if GLOBAL.is_found() {
                None
            } else {
                from(path).filter(|sight| !matches!(sight, Visible::Nothing))
            }
        };
        let bound = || {
            let to = bound(address, is_unhooked)? as *const c_void;
            let sight = from(object(to)?)?;
            let is_its =
                |runtime: &Runtime| base(runtime.function(Name::GOMP_parallel)) == base(to);
            matches!(sight, Visible::Runtime(runtime) if is_its(runtime)).then_some(sight)
        };
        let sight = seen().or_else(bound).unwrap_or(Visible::Nothing);
        match sight {
            Visible::Runtime(runtime) => remember(address, Some(runtime)),
            Visible::Nothing => remember(address, None),
            Visible::Crowded | Visible::NoModule => {}
        }
        sight
    })
}

/// Whether a function is one of the runtime's that we do not stand in front of.
fn is_unhooked(name: &CStr) -> bool {
    let bytes = name.to_bytes();
    bytes.starts_with(b"omp_get_") || bytes.starts_with(b"GOMP_") && !NAMES.contains(&name)
}

/// Finds a runtime for the module that this address lies in, which sees none itself.
#[cold]
fn find_around(address: u64) -> Option<&'static Runtime> {
    quietly(|| {
        look_for_global();
        if GLOBAL.is_found() {
            GLOBAL.remember_own();
            return Some(&GLOBAL);
        }
        from_around(address, |module| match sight_of(module) {
            Visible::Runtime(runtime) => Some(runtime),
            Visible::Crowded | Visible::Nothing | Visible::NoModule => None,
        })
    })
}

/// What is seen from a module, whose runtime's functions are looked up if that is new.
fn sight_of(module: *mut c_void) -> Visible {
    let Some(parallel) = seen(module, c"GOMP_parallel") else {
        return Visible::Nothing;
    };
    let known = [&GLOBAL]
        .into_iter()
        .chain(&LOCAL)
        .find(|runtime| runtime.function(Name::GOMP_parallel) == parallel);
    let new = || {
        (LOCALS.load(Ordering::Relaxed) < RUNTIMES_MAX).then_some(())?;
        keep(parallel).then_some(())?;
        let runtime = LOCAL.get(LOCALS.fetch_add(1, Ordering::Relaxed))?;
        runtime.find(module);
        Some(runtime)
    };
    let Some(runtime) = known.or_else(new) else {
        return Visible::Crowded;
    };
    runtime.remember_own();
    Visible::Runtime(runtime)
}

/// What `take` makes of the first library that it makes anything of. First come those that most
/// likely loaded the module that this address lies in: each library is listed before those that
/// were loaded for it, so these are the nearest before.
fn from_around<T>(address: u64, take: impl Fn(*mut c_void) -> Option<T>) -> Option<T> {
    let (mut all, mut at) = (0, None);
    each_library(&mut |library| {
        at = at.or_else(|| segment_of(library, address).map(|_| all));
        all += 1;
        false
    });
    let at = at.unwrap_or(0);
    let from = |number: usize| {
        let mut path = [0; libc::PATH_MAX as usize];
        let module = open(path_of(number, &mut path)?.as_ptr(), 0)?;
        let taken = take(module);
        close(module);
        taken
    };
    (0..at).rev().chain(at..all).find_map(from)
}

/// Remembers which runtime calls from the module around this address are meant for.
fn remember(address: u64, runtime: Option<&'static Runtime>) {
    if known(address).is_some() || CHANGING.swap(true, Ordering::Acquire) {
        return;
    }
    let now = epoch();
    if EPOCH.load(Ordering::Relaxed) != now {
        KNOWN.store(0, Ordering::Relaxed);
        for module in &MODULES_KNOWN {
            module.end.store(0, Ordering::Release);
        }
        EPOCH.store(now, Ordering::Release);
    }
    let mut range = None;
    each_library(&mut |library| {
        range = segment_of(library, address);
        range.is_some()
    });
    let at = KNOWN.load(Ordering::Relaxed);
    if let (Some((start, end)), Some(module)) = (range, MODULES_KNOWN.get(at)) {
        module.start.store(start, Ordering::Relaxed);
        module.assign(runtime);
        module.end.store(end, Ordering::Release);
        KNOWN.store(at + 1, Ordering::Release);
    }
    CHANGING.store(false, Ordering::Release);
}

/// Remembers the runtime of a module that is known to see none itself.
fn assign(address: u64, runtime: &'static Runtime) {
    if CHANGING.swap(true, Ordering::Acquire) {
        return;
    }
    let known = KNOWN.load(Ordering::Relaxed);
    let module = MODULES_KNOWN
        .iter()
        .take(known)
        .find(|module| module.sight_from(address).is_some());
    if let Some(module) = module {
        module.assign(Some(runtime));
    }
    CHANGING.store(false, Ordering::Release);
}

/// Does what may leave something behind for the program to read.
fn quietly<T>(does: impl FnOnce() -> T) -> T {
    // SAFETY: it takes nothing and always returns an address.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: errno is the calling thread's own.
    let before = unsafe { errno.read() };
    let done = does();
    // What a look-up that failed has left.
    // SAFETY: it takes nothing; the message is this thread's own.
    unsafe { libc::dlerror() };
    // SAFETY: as above.
    unsafe { errno.write(before) };
    done
}

/// The path of the library that an address lies in.
fn object(address: *const c_void) -> Option<*const libc::c_char> {
    described(address)
        .map(|found| found.dli_fname)
        .filter(|path| !path.is_null())
}

/// Where the library that an address lies in begins; null for none.
fn base(address: *const c_void) -> *mut c_void {
    described(address).map_or(null_mut(), |found| found.dli_fbase)
}

fn described(address: *const c_void) -> Option<libc::Dl_info> {
    let mut found = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the buffer is one Dl_info.
    let known = unsafe { libc::dladdr(address, found.as_mut_ptr()) } != 0;
    // SAFETY: zeroed memory is a valid Dl_info, and dladdr filled it or not.
    known.then(|| unsafe { found.assume_init() })
}

/// A handle of a library that is loaded.
fn open(path: *const libc::c_char, flags: c_int) -> Option<*mut c_void> {
    // SAFETY: the path is the linker's own string; nothing is loaded, so no constructor runs.
    let handle = unsafe { libc::dlopen(path, libc::RTLD_LAZY | libc::RTLD_NOLOAD | flags) };
    (!handle.is_null()).then_some(handle)
}

/// Has the library that an address lies in stay, whatever becomes of those that it was loaded for:
/// we keep addresses of it. Whether that was done.
fn keep(address: *const c_void) -> bool {
    let path = object(address);
    path.and_then(|path| open(path, libc::RTLD_NODELETE))
        .is_some()
}

/// The handle is not used again.
fn close(handle: *mut c_void) {
    // SAFETY: `open` made it, and each is closed once.
    unsafe { real::dlclose(handle) };
}

/// What a name means to a module and the libraries that it was linked to, unless that is our own
/// hook.
fn seen(module: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    let seen = look_up(module, name);
    let ours = base((&raw const GLOBAL).cast());
    (!seen.is_null() && base(seen) != ours).then_some(seen)
}

fn look_up(within: *mut c_void, name: &CStr) -> *mut c_void {
    // SAFETY: the name is a C string; the handle is open, or one of the special ones.
    unsafe { libc::dlsym(within, name.as_ptr()) }
}
