//! The functions that the hooks stand in for: the next definition of each name after ours.
//!
//! All are looked up when the library is loaded, since a lookup takes the dynamic linker's lock and may allocate; a hook
//! that runs even earlier (from another library's constructor) looks its own up.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{iovec, off_t, pid_t, posix_spawn_file_actions_t, posix_spawnattr_t, size_t, ssize_t};

/// A function found by name.
struct Real {
    name: &'static CStr,
    at: AtomicPtr<c_void>,
}

impl Real {
    const fn new(name: &'static CStr) -> Self {
        Real {
            name,
            at: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    #[inline]
    fn get(&self) -> *mut c_void {
        let known = self.at.load(Ordering::Relaxed);
        if known.is_null() { self.find() } else { known }
    }

    #[cold]
    fn find(&self) -> *mut c_void {
        // SAFETY: the name is a C string; RTLD_NEXT searches the objects after this library.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.at.store(found, Ordering::Relaxed);
        found
    }
}

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

impl Failure for () {
    fn failure(_: c_int) -> Self {}
}

impl Failure for *mut c_void {
    fn failure(minus_one: c_int) -> Self {
        // Of these there is only mmap, whose MAP_FAILED is -1.
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
fn missing() -> c_int {
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

/// Declares functions of the C library, each callable as `real::name` with the signature given. The variable arguments
/// of `open` and `fcntl` are declared as one argument: it travels in the same register, and reading one that the caller
/// did not pass harms nobody.
macro_rules! declare {
    ($(fn $name:ident($($argument:ident: $kind:ty),*) -> $result:ty;)*) => {
        /// Where each function was found.
        #[allow(non_upper_case_globals)]
        mod found {
            use super::Real;
            $(
                pub(super) static $name: Real = Real::new(
                    match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                        Ok(name) => name,
                        Err(_) => panic!("a name without NUL bytes"),
                    },
                );
            )*
        }

        /// Looks every function up.
        pub(crate) fn find_all() {
            for function in [$(&found::$name),*] {
                function.find();
            }
        }

        $(
            /// The real function.
            ///
            /// # Safety
            /// As the C function demands.
            #[inline]
            pub(crate) unsafe fn $name($($argument: $kind),*) -> $result {
                let at = found::$name.get();
                if at.is_null() {
                    return Failure::failure(missing());
                }
                // SAFETY: the symbol of this name in libc has this type.
                let function = unsafe {
                    std::mem::transmute::<*mut c_void, unsafe extern "C-unwind" fn($($kind),*) -> $result>(at)
                };
                // SAFETY: the caller keeps to what the function demands.
                unsafe { function($($argument),*) }
            }
        )*
    };
}

declare! {
    fn read(fd: c_int, buffer: *mut c_void, count: size_t) -> ssize_t;
    fn __read_chk(fd: c_int, buffer: *mut c_void, count: size_t, size: size_t) -> ssize_t;
    fn pread64(fd: c_int, buffer: *mut c_void, count: size_t, offset: off_t) -> ssize_t;
    fn __pread64_chk(fd: c_int, buffer: *mut c_void, count: size_t, offset: off_t, size: size_t) -> ssize_t;
    fn readv(fd: c_int, vector: *const iovec, count: c_int) -> ssize_t;
    fn preadv64(fd: c_int, vector: *const iovec, count: c_int, offset: off_t) -> ssize_t;
    fn preadv64v2(fd: c_int, vector: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    fn write(fd: c_int, buffer: *const c_void, count: size_t) -> ssize_t;
    fn pwrite64(fd: c_int, buffer: *const c_void, count: size_t, offset: off_t) -> ssize_t;
    fn writev(fd: c_int, vector: *const iovec, count: c_int) -> ssize_t;
    fn pwritev64(fd: c_int, vector: *const iovec, count: c_int, offset: off_t) -> ssize_t;
    fn pwritev64v2(fd: c_int, vector: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    fn ftruncate64(fd: c_int, length: off_t) -> c_int;
    fn sendfile64(to: c_int, from: c_int, offset: *mut off_t, count: size_t) -> ssize_t;
    fn copy_file_range(from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, count: size_t, flags: c_uint) -> ssize_t;
    fn splice(from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, count: size_t, flags: c_uint) -> ssize_t;
    fn mmap64(address: *mut c_void, length: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off_t) -> *mut c_void;
    fn munmap(address: *mut c_void, length: size_t) -> c_int;
    fn truncate64(path: *const c_char, length: off_t) -> c_int;
    fn open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int;
    fn __open64_2(path: *const c_char, flags: c_int) -> c_int;
    fn openat64(at: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int;
    fn __openat64_2(at: c_int, path: *const c_char, flags: c_int) -> c_int;
    fn creat64(path: *const c_char, mode: c_uint) -> c_int;
    fn mkstemp64(template: *mut c_char) -> c_int;
    fn mkostemp64(template: *mut c_char, flags: c_int) -> c_int;
    fn mkstemps64(template: *mut c_char, suffix: c_int) -> c_int;
    fn mkostemps64(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int;
    fn fopen64(path: *const c_char, mode: *const c_char) -> *mut libc::FILE;
    fn freopen64(path: *const c_char, mode: *const c_char, stream: *mut libc::FILE) -> *mut libc::FILE;
    fn tmpfile64() -> *mut libc::FILE;
    fn close(fd: c_int) -> c_int;
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    fn closefrom(first: c_int) -> ();
    fn dup(fd: c_int) -> c_int;
    fn dup2(fd: c_int, to: c_int) -> c_int;
    fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int;
    fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int;
    fn dlclose(library: *mut c_void) -> c_int;
    fn execve(path: *const c_char, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    fn execvpe(file: *const c_char, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    fn execveat(at: c_int, path: *const c_char, arguments: *const *const c_char, environment: *const *const c_char, flags: c_int) -> c_int;
    fn fexecve(fd: c_int, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    fn posix_spawn(pid: *mut pid_t, path: *const c_char, actions: *const posix_spawn_file_actions_t, attributes: *const posix_spawnattr_t, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    fn posix_spawnp(pid: *mut pid_t, file: *const c_char, actions: *const posix_spawn_file_actions_t, attributes: *const posix_spawnattr_t, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
}
