//! The functions that the hooks stand in front of: the next definition of each name after ours.
//!
//! It is the definition of the very name that the program called, even where libc has two names for
//! one function (`open`, `open64`): another preloaded library may define only one of them.
//!
//! All are looked up when the library is loaded, since a lookup takes the dynamic linker's lock and
//! may allocate. A hook that runs even earlier, from another library's constructor, looks its own
//! up.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{
    iovec, mmsghdr, msghdr, off_t, pid_t, posix_spawn_file_actions_t, posix_spawnattr_t, size_t,
    ssize_t,
};

/// A function found by name.
pub(crate) struct Real {
    name: &'static CStr,
    at: AtomicPtr<c_void>,
}

impl Real {
    /// Where the address of the function lies in this, for a trampoline that reads it.
    pub(crate) const AT: usize = std::mem::offset_of!(Real, at);

    pub(crate) const fn new(name: &'static CStr) -> Self {
        Real {
            name,
            at: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// The function, if it was looked up and found.
    #[cfg(feature = "pages")]
    pub(crate) fn known(&self) -> Option<*mut c_void> {
        Some(self.at.load(Ordering::Relaxed)).filter(|at| !at.is_null())
    }

    #[inline]
    pub(crate) fn get(&self) -> *mut c_void {
        let known = self.at.load(Ordering::Relaxed);
        if known.is_null() { self.find() } else { known }
    }

    #[cold]
    fn find(&self) -> *mut c_void {
        let mut found = next(self.name);
        if found.is_null() {
            // On x86-64 the 64-bit form of a function is the plain one, and an old libc may lack
            // its name (`fcntl64`).
            let mut plain = [0; 32];
            if let Some(plain) = without_64(self.name, &mut plain) {
                found = next(plain);
            }
        }
        self.at.store(found, Ordering::Relaxed);
        found
    }
}

/// The next definition of a name after ours, or null.
fn next(name: &CStr) -> *mut c_void {
    // SAFETY: the name is a C string; RTLD_NEXT searches the objects after this library.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if is_ours(found) { in_libc(name) } else { found }
}

unsafe extern "C" {
    /// The linker's names of the first byte of this library in memory, and of the end of it.
    static __ehdr_start: u8;
    static _end: u8;
}

/// Whether an address is one of this library's. Where another library, or the program, stands in
/// for `dlsym` itself, what is next after it may be ours, which would call itself without end.
fn is_ours(address: *const c_void) -> bool {
    let own = (&raw const __ehdr_start).addr()..(&raw const _end).addr();
    own.contains(&address.addr())
}

/// libc's definition of a name, or null.
fn in_libc(name: &CStr) -> *mut c_void {
    // SAFETY: the name is a C string; nothing is loaded, since libc is there.
    let libc = unsafe { libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if libc.is_null() {
        return libc;
    }
    // SAFETY: the handle is open, and libc is never unloaded; the name is a C string.
    let found = unsafe { libc::dlsym(libc, name.as_ptr()) };
    if is_ours(found) {
        return std::ptr::null_mut();
    }
    found
}

/// A function that a library of the program's has: the next one of that name, or, where the caller
/// was loaded later with libraries of its own (a plugin), the one that these give it.
pub(crate) fn found_by(function: &Real, caller: *const c_void) -> Option<*mut c_void> {
    let known = function.get();
    if !known.is_null() {
        return Some(known);
    }
    let mut about = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: it writes one Dl_info, or nothing.
    unsafe { libc::dladdr(caller, about.as_mut_ptr()) };
    // SAFETY: zeroed memory is a valid Dl_info.
    let path = unsafe { about.assume_init() }.dli_fname;
    if path.is_null() {
        return None;
    }
    // SAFETY: the name is that of a loaded library, a C string; nothing is loaded.
    let library = unsafe { libc::dlopen(path, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    let mut found = std::ptr::null_mut();
    if !library.is_null() {
        // SAFETY: the handle is open, and the name is a C string.
        found = unsafe { libc::dlsym(library, function.name.as_ptr()) };
        // SAFETY: the handle is ours; the library stays, since its caller is running.
        unsafe { libc::dlclose(library) };
    }
    // SAFETY: as in `find_all`.
    unsafe { libc::dlerror() };
    Some(found).filter(|found| !found.is_null())
}

/// The name without its "64"; `None` if it has none.
fn without_64<'a>(name: &CStr, plain: &'a mut [u8; 32]) -> Option<&'a CStr> {
    let name = name.to_bytes();
    let at = name.windows(2).position(|digits| digits == b"64")?;
    let (before, after) = (name.get(..at)?, name.get(at + 2..)?);
    plain.get_mut(..at)?.copy_from_slice(before);
    // At least one of the zeros that the buffer was filled with stays behind the name.
    let rest = plain.get_mut(at..at + after.len() + 1)?;
    rest.split_last_mut()?.1.copy_from_slice(after);
    CStr::from_bytes_until_nul(plain).ok()
}

/// `syscall`, whose hook is a trampoline that reads the address itself.
pub(crate) static SYSCALL: Real = Real::new(c"syscall");

/// As `SYSCALL`: a function that returns twice can only be jumped to.
pub(crate) static VFORK: Real = Real::new(c"vfork");

/// As `VFORK`, by the same macro.
pub(crate) static FORK: Real = Real::new(c"_Fork");

/// As `SYSCALL`: its arguments are an open list.
pub(crate) static CLONE: Real = Real::new(c"clone");

/// What a function returns when it cannot even be called.
trait Failure {
    /// From C's customary -1.
    fn failure(minus_one: c_int) -> Self;
}

impl Failure for c_int {
    fn failure(minus_one: c_int) -> Self {
        minus_one
    }
}

impl Failure for ssize_t {
    fn failure(minus_one: c_int) -> Self {
        minus_one as ssize_t
    }
}

impl Failure for off_t {
    fn failure(minus_one: c_int) -> Self {
        off_t::from(minus_one)
    }
}

impl Failure for () {
    fn failure(_: c_int) -> Self {}
}

impl Failure for *mut c_void {
    fn failure(minus_one: c_int) -> Self {
        // Those that return a pointer here (mmap, mremap) fail with -1.
        minus_one as isize as *mut c_void
    }
}

impl Failure for *mut libc::FILE {
    fn failure(_: c_int) -> Self {
        std::ptr::null_mut()
    }
}

/// Fails as the kernel does for a call that it does not have.
#[cold]
pub(crate) fn missing() -> c_int {
    fail(libc::ENOSYS)
}

/// Fails as a function of libc does.
pub(crate) fn fail(error: c_int) -> c_int {
    // SAFETY: it takes nothing and always returns an address.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: errno is the calling thread's own.
    unsafe { *errno = error };
    -1
}

/// Declares functions of the C library, each callable as `real::name` with the signature given. The
/// variable arguments of `open`, `fcntl` and `prctl` are declared as arguments: they travel in the
/// same registers, and reading one that the caller did not pass harms nobody.
macro_rules! declare {
    ($($($name:ident),+: fn $arguments:tt -> $result:ty;)*) => {
        /// Where each function was found.
        #[allow(non_upper_case_globals)]
        mod found {
            use super::Real;
            $($(
                pub(super) static $name: Real = Real::new(
                    match std::ffi::CStr::from_bytes_with_nul(
                        concat!(stringify!($name), "\0").as_bytes(),
                    ) {
                        Ok(name) => name,
                        Err(_) => panic!("a name without NUL bytes"),
                    },
                );
            )+)*
        }

        /// Looks every function up.
        pub(crate) fn find_all() {
            for function in [&SYSCALL, &VFORK, &FORK, &CLONE, $($(&found::$name),+),*] {
                function.find();
            }
            // A name that this libc lacks leaves a message behind, which the program would take for
            // its own. SAFETY: it takes nothing; the message, which is this thread's own, is not
            // looked at.
            unsafe { libc::dlerror() };
        }

        $($(declare!(@call $name $arguments -> $result);)+)*
    };
    (@call $name:ident ($($argument:ident: $kind:ty),*) -> $result:ty) => {
        /// The real function.
        ///
        /// # Safety
        /// As the C function demands.
        #[cfg_attr(
            not(feature = "pages"),
            allow(dead_code, reason = "some are hooked only where memory is placed")
        )]
        #[inline]
        pub(crate) unsafe fn $name($($argument: $kind),*) -> $result {
            let at = found::$name.get();
            if at.is_null() {
                return Failure::failure(missing());
            }
            // SAFETY: the symbol of this name in libc has this type.
            let function = unsafe {
                std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C-unwind" fn($($kind),*) -> $result,
                >(at)
            };
            // SAFETY: the caller keeps to what the function demands.
            unsafe { function($($argument),*) }
        }
    };
}

declare! {
    read, __read: fn(fd: c_int, buffer: *mut c_void, count: size_t) -> ssize_t;
    __read_chk: fn(fd: c_int, buffer: *mut c_void, count: size_t, size: size_t) -> ssize_t;
    pread, pread64: fn(fd: c_int, buffer: *mut c_void, count: size_t, offset: off_t) -> ssize_t;
    __pread_chk, __pread64_chk: fn(
        fd: c_int, buffer: *mut c_void, count: size_t, offset: off_t, size: size_t
    ) -> ssize_t;
    readv: fn(fd: c_int, vector: *const iovec, count: c_int) -> ssize_t;
    preadv, preadv64: fn(fd: c_int, vector: *const iovec, count: c_int, offset: off_t) -> ssize_t;
    preadv2, preadv64v2: fn(
        fd: c_int, vector: *const iovec, count: c_int, offset: off_t, flags: c_int
    ) -> ssize_t;
    write, __write: fn(fd: c_int, buffer: *const c_void, count: size_t) -> ssize_t;
    pwrite, pwrite64: fn(fd: c_int, buffer: *const c_void, count: size_t, offset: off_t) -> ssize_t;
    writev: fn(fd: c_int, vector: *const iovec, count: c_int) -> ssize_t;
    pwritev, pwritev64: fn(fd: c_int, vector: *const iovec, count: c_int, offset: off_t) -> ssize_t;
    pwritev2, pwritev64v2: fn(
        fd: c_int, vector: *const iovec, count: c_int, offset: off_t, flags: c_int
    ) -> ssize_t;
    ftruncate, ftruncate64: fn(fd: c_int, length: off_t) -> c_int;
    sendfile, sendfile64: fn(to: c_int, from: c_int, offset: *mut off_t, count: size_t) -> ssize_t;
    copy_file_range: fn(
        from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, count: size_t, flags:
        c_uint
    ) -> ssize_t;
    sendmsg: fn(to: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
    sendmmsg: fn(to: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int;
    splice: fn(
        from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, count: size_t, flags:
        c_uint
    ) -> ssize_t;
    posix_fadvise, posix_fadvise64: fn(
        fd: c_int, offset: off_t, length: off_t, advice: c_int
    ) -> c_int;
    readahead: fn(fd: c_int, offset: off_t, count: size_t) -> ssize_t;
    mmap, mmap64: fn(
        address: *mut c_void, length: size_t, protection: c_int, flags: c_int, fd: c_int, offset:
        off_t
    ) -> *mut c_void;
    munmap: fn(address: *mut c_void, length: size_t) -> c_int;
    mremap: fn(
        address: *mut c_void, length: size_t, to: size_t, flags: c_int, at: *mut c_void
    ) -> *mut c_void;
    pthread_create: fn(
        thread: *mut libc::pthread_t, attributes: *const libc::pthread_attr_t, start: *mut c_void,
        argument: *mut c_void
    ) -> c_int;
    recv: fn(fd: c_int, buffer: *mut c_void, length: size_t, flags: c_int) -> ssize_t;
    __recv_chk: fn(
        fd: c_int, buffer: *mut c_void, length: size_t, size: size_t, flags: c_int
    ) -> ssize_t;
    recvfrom: fn(
        fd: c_int, buffer: *mut c_void, length: size_t, flags: c_int, from: *mut libc::sockaddr,
        from_length: *mut libc::socklen_t
    ) -> ssize_t;
    recvmsg: fn(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
    poll: fn(descriptors: *mut libc::pollfd, count: libc::nfds_t, timeout: c_int) -> c_int;
    __poll_chk: fn(
        descriptors: *mut libc::pollfd, count: libc::nfds_t, timeout: c_int, size: size_t
    ) -> c_int;
    select: fn(
        count: c_int, read: *mut libc::fd_set, write: *mut libc::fd_set, except: *mut libc::fd_set,
        timeout: *mut libc::timeval
    ) -> c_int;
    epoll_wait: fn(
        epoll: c_int, events: *mut libc::epoll_event, count: c_int, timeout: c_int
    ) -> c_int;
    ppoll: fn(
        descriptors: *mut libc::pollfd, count: libc::nfds_t, timeout: *const libc::timespec,
        mask: *const libc::sigset_t
    ) -> c_int;
    __ppoll_chk: fn(
        descriptors: *mut libc::pollfd, count: libc::nfds_t, timeout: *const libc::timespec,
        mask: *const libc::sigset_t, size: size_t
    ) -> c_int;
    pselect: fn(
        count: c_int, read: *mut libc::fd_set, write: *mut libc::fd_set, except: *mut libc::fd_set,
        timeout: *const libc::timespec, mask: *const libc::sigset_t
    ) -> c_int;
    epoll_pwait: fn(
        epoll: c_int, events: *mut libc::epoll_event, count: c_int, timeout: c_int,
        mask: *const libc::sigset_t
    ) -> c_int;
    system: fn(command: *const c_char) -> c_int;
    popen: fn(command: *const c_char, mode: *const c_char) -> *mut libc::FILE;
    unshare: fn(flags: c_int) -> c_int;
    daemon: fn(stay: c_int, keep: c_int) -> c_int;
    login_tty: fn(fd: c_int) -> c_int;
    forkpty: fn(
        terminal: *mut c_int, name: *mut c_char, settings: *const c_void, size: *const c_void
    ) -> c_int;
    truncate, truncate64: fn(path: *const c_char, length: off_t) -> c_int;
    open, open64: fn(path: *const c_char, flags: c_int, mode: c_uint) -> c_int;
    __open_2, __open64_2: fn(path: *const c_char, flags: c_int) -> c_int;
    openat, openat64: fn(at: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int;
    __openat_2, __openat64_2: fn(at: c_int, path: *const c_char, flags: c_int) -> c_int;
    creat, creat64: fn(path: *const c_char, mode: c_uint) -> c_int;
    mkstemp, mkstemp64: fn(template: *mut c_char) -> c_int;
    mkostemp, mkostemp64: fn(template: *mut c_char, flags: c_int) -> c_int;
    mkstemps, mkstemps64: fn(template: *mut c_char, suffix: c_int) -> c_int;
    mkostemps, mkostemps64: fn(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int;
    fopen, fopen64: fn(path: *const c_char, mode: *const c_char) -> *mut libc::FILE;
    freopen, freopen64: fn(
        path: *const c_char, mode: *const c_char, stream: *mut libc::FILE
    ) -> *mut libc::FILE;
    tmpfile, tmpfile64: fn() -> *mut libc::FILE;
    lseek, lseek64, __lseek: fn(fd: c_int, offset: off_t, whence: c_int) -> off_t;
    fdopen: fn(fd: c_int, mode: *const c_char) -> *mut libc::FILE;
    close, __close: fn(fd: c_int) -> c_int;
    closedir: fn(directory: *mut libc::DIR) -> c_int;
    close_range: fn(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    closefrom: fn(first: c_int) -> ();
    dup: fn(fd: c_int) -> c_int;
    dup2: fn(fd: c_int, to: c_int) -> c_int;
    dup3: fn(fd: c_int, to: c_int, flags: c_int) -> c_int;
    fcntl, fcntl64: fn(fd: c_int, command: c_int, argument: usize) -> c_int;
    prctl: fn(option: c_int, second: usize, third: usize, fourth: usize, fifth: usize) -> c_int;
    setrlimit, setrlimit64: fn(resource: c_int, limit: *const c_void) -> c_int;
    prlimit, prlimit64: fn(
        process: c_int, resource: c_int, limit: *const c_void, old: *mut c_void
    ) -> c_int;
    mlockall: fn(flags: c_int) -> c_int;
    dlclose: fn(library: *mut c_void) -> c_int;
    execv, execvp: fn(path: *const c_char, arguments: *const *const c_char) -> c_int;
    execve: fn(
        path: *const c_char, arguments: *const *const c_char, environment: *const *const c_char
    ) -> c_int;
    execvpe: fn(
        file: *const c_char, arguments: *const *const c_char, environment: *const *const c_char
    ) -> c_int;
    execveat: fn(
        at: c_int, path: *const c_char, arguments: *const *const c_char, environment: *const *const
        c_char, flags: c_int
    ) -> c_int;
    fexecve: fn(
        fd: c_int, arguments: *const *const c_char, environment: *const *const c_char
    ) -> c_int;
    posix_spawn: fn(
        pid: *mut pid_t, path: *const c_char, actions: *const posix_spawn_file_actions_t,
        attributes: *const posix_spawnattr_t, arguments: *const *const c_char, environment: *const
        *const c_char
    ) -> c_int;
    posix_spawnp: fn(
        pid: *mut pid_t, file: *const c_char, actions: *const posix_spawn_file_actions_t,
        attributes: *const posix_spawnattr_t, arguments: *const *const c_char, environment: *const
        *const c_char
    ) -> c_int;
}
