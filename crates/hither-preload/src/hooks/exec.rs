//! Programs that become or start other programs.
//!
//! The agent gets a record of what is about to run, so that it can report programs that then record
//! nothing. And a program that is started with an environment of its own (`env -i`, an `LD_PRELOAD`
//! for another library) still gets our variables, for as long as the session lasts.

use std::ffi::{CStr, c_char, c_int, c_void};

use hither_ids::Pid;
use hither_kernel::process::monotonic_ns;
use hither_kernel::syscalls;
use hither_kernel::this_process;
use hither_session::memory_limits;
use hither_session::record::Record;
use libc::{pid_t, posix_spawn_file_actions_t, posix_spawnattr_t};

use crate::arch::REGISTER_ARGUMENTS;
use crate::exec_environment::{self, Strings, with_room};
use crate::{files, lifecycle, real, session, thread};

/// Calls `run` with what `environment` is to be for a new program: with our variables, if this
/// process records, but without the library where that is not there.
///
/// # Safety
/// `environment` is null or a null-terminated array of C strings.
unsafe fn prepared<R>(
    environment: Strings,
    is_library_there: bool,
    run: impl FnOnce(Strings) -> R,
) -> R {
    if !is_library_there {
        // SAFETY: as the caller says.
        return unsafe { exec_environment::without_library(environment, run) };
    }
    if lifecycle::session().is_none() {
        return run(environment);
    }
    // SAFETY: as the caller says.
    unsafe { exec_environment::with_ours(environment, run) }
}

/// Whether a new program can load the library, and has the memory for it. Asked also when the
/// recording is over, since the environment may still have it; but not of a process that has
/// confined itself.
fn is_library_there() -> bool {
    !session::is_attached() || exec_environment::is_library_there() && memory_limits::leave_room()
}

/// Records that process `pid` is to run the program at `path`, from `time_ns` on.
fn record_exec(time_ns: u64, pid: Pid, path: &[u8], is_library_there: bool) {
    if let Some(session) = lifecycle::session() {
        let record = Record::Exec {
            pid,
            time_ns,
            path,
            hidden: !is_library_there,
        };
        thread::push_apart(session, &record);
    }
}

/// Records that the last exec of `pid` failed.
fn record_exec_failed(pid: Pid) {
    if let Some(session) = lifecycle::session() {
        thread::push_apart(session, &Record::ExecFailed { pid });
    }
}

/// Whether what a program passes points to memory, or nowhere on purpose. Programs that test the
/// kernel, and damaged ones, pass what does not: for them a call fails, and does not end them.
fn is_readable(pointer: *const c_void) -> bool {
    let at = pointer.addr() as u64;
    at == 0 || this_process::readable(at, at.saturating_add(1))
}

/// As [`become_program`], of the program at a path.
///
/// # Safety
/// `path` is null or a C string; `environment` null or a null-terminated array of them.
unsafe fn become_program_at(
    path: *const c_char,
    environment: Strings,
    exec: impl Fn(Strings) -> c_int,
) -> c_int {
    let announce = |pid, is_library_there| {
        if !path.is_null() && is_readable(path.cast()) {
            // SAFETY: as the caller says.
            let path = unsafe { CStr::from_ptr(path) }.to_bytes();
            record_exec(monotonic_ns(), pid, path, is_library_there);
        }
    };
    // SAFETY: as the caller says.
    unsafe { become_program(announce, environment, exec) }
}

/// As [`become_program`], of the file behind `fd`.
///
/// # Safety
/// `environment` is null or a null-terminated array of C strings.
#[inline(never)]
unsafe fn become_program_of(
    fd: c_int,
    environment: Strings,
    exec: impl Fn(Strings) -> c_int,
) -> c_int {
    let announce = |pid, is_library_there| {
        // The stack may be that of a signal handler. A longer path is cut.
        let mut buffer = [0; 1024];
        let path = files::path_of(fd, &mut buffer);
        record_exec(monotonic_ns(), pid, path, is_library_there);
    };
    // SAFETY: as the caller says.
    unsafe { become_program(announce, environment, exec) }
}

/// Announces, runs an exec that only returns if it failed, and says so then.
///
/// # Safety
/// `environment` is null or a null-terminated array of C strings.
unsafe fn become_program(
    announce: impl FnOnce(Pid, bool),
    environment: Strings,
    exec: impl Fn(Strings) -> c_int,
) -> c_int {
    if !is_readable(environment.cast()) {
        // The kernel refuses it.
        return exec(environment);
    }
    let is_library_there = is_library_there();
    let recorded = lifecycle::session().map(|_| syscalls::pid());
    if let Some(pid) = recorded {
        announce(pid, is_library_there);
        lifecycle::before_exec();
    }
    // SAFETY: as the caller says.
    let mut result = unsafe { prepared(environment, is_library_there, &exec) };
    if result == -1 && std::io::Error::last_os_error().raw_os_error() == Some(libc::E2BIG) {
        // For the program's own variables there may be room.
        result = exec(environment);
    }
    if let Some(pid) = recorded {
        record_exec_failed(pid);
    }
    result
}

unsafe extern "C" {
    /// The name that libc itself uses. Of `environ`, a program may have a variable of its own.
    #[link_name = "__environ"]
    static environ: Strings;
}

/// Stands in for libc's function.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn execve(
    path: *const c_char,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    // SAFETY: the program's own call, passed on.
    let exec = |environment| unsafe { real::execve(path, arguments, environment) };
    // SAFETY: the program's own arguments.
    unsafe { become_program_at(path, environment, exec) }
}

/// Stands in for libc's function.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn execv(path: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: libc's variable; execv takes the environment as it is.
    let current = unsafe { environ };
    let exec = |environment| {
        if environment == current {
            // SAFETY: the program's own call, passed on.
            unsafe { real::execv(path, arguments) }
        } else {
            // SAFETY: the program's own call, with another environment.
            unsafe { real::execve(path, arguments, environment) }
        }
    };
    // SAFETY: the program's own arguments.
    unsafe { become_program_at(path, current, exec) }
}

/// Stands in for libc's function.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn execvpe(
    file: *const c_char,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    // SAFETY: the program's own call, passed on.
    let exec = |environment| unsafe { real::execvpe(file, arguments, environment) };
    // SAFETY: the program's own arguments.
    unsafe { become_program_at(file, environment, exec) }
}

/// Stands in for libc's function.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn execvp(file: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: libc's variable; execvp takes the environment as it is.
    let current = unsafe { environ };
    let exec = |environment| {
        if environment == current {
            // SAFETY: the program's own call, passed on.
            unsafe { real::execvp(file, arguments) }
        } else {
            // SAFETY: the program's own call, with another environment.
            unsafe { real::execvpe(file, arguments, environment) }
        }
    };
    // SAFETY: the program's own arguments.
    unsafe { become_program_at(file, current, exec) }
}

/// Stands in for libc's function.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn execveat(
    at: c_int,
    path: *const c_char,
    arguments: Strings,
    environment: Strings,
    flags: c_int,
) -> c_int {
    // SAFETY: the program's own call, passed on.
    let exec = |environment| unsafe { real::execveat(at, path, arguments, environment, flags) };
    if flags & libc::AT_EMPTY_PATH != 0 {
        // SAFETY: the program's own arguments.
        return unsafe { become_program_of(at, environment, exec) };
    }
    // SAFETY: the program's own arguments.
    unsafe { become_program_at(path, environment, exec) }
}

/// Stands in for libc's function.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fexecve(fd: c_int, arguments: Strings, environment: Strings) -> c_int {
    // SAFETY: the program's own call, passed on.
    let exec = |environment| unsafe { real::fexecve(fd, arguments, environment) };
    // SAFETY: the program's own arguments.
    unsafe { become_program_of(fd, environment, exec) }
}

/// Stands in for libc's function.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn posix_spawn(
    pid: *mut pid_t,
    path: *const c_char,
    actions: *const posix_spawn_file_actions_t,
    attributes: *const posix_spawnattr_t,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    let spawn = |environment, pid| {
        // SAFETY: the program's own call, passed on.
        unsafe { real::posix_spawn(pid, path, actions, attributes, arguments, environment) }
    };
    // SAFETY: the program's own arguments.
    unsafe { start_program(pid, path, environment, spawn) }
}

/// Stands in for libc's function.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn posix_spawnp(
    pid: *mut pid_t,
    file: *const c_char,
    actions: *const posix_spawn_file_actions_t,
    attributes: *const posix_spawnattr_t,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    let spawn = |environment, pid| {
        // SAFETY: the program's own call, passed on.
        unsafe { real::posix_spawnp(pid, file, actions, attributes, arguments, environment) }
    };
    // SAFETY: the program's own arguments.
    unsafe { start_program(pid, file, environment, spawn) }
}

/// Runs a spawn and announces the child that it made. The child may be recording by then; the agent
/// matches them by process id, whichever comes first.
///
/// # Safety
/// `pid` is null or valid for a store; the others as for [`become_program_at`].
unsafe fn start_program(
    pid: *mut pid_t,
    path: *const c_char,
    environment: Strings,
    spawn: impl FnOnce(Strings, *mut pid_t) -> c_int,
) -> c_int {
    if !is_readable(environment.cast()) {
        // The kernel refuses it.
        return spawn(environment, pid);
    }
    let before = monotonic_ns();
    let is_library_there = is_library_there();
    lifecycle::all_shared();
    let mut child = 0;
    // SAFETY: as the caller says.
    let result = unsafe {
        prepared(environment, is_library_there, |environment| {
            spawn(environment, &raw mut child)
        })
    };
    lifecycle::were_all_shared();
    if result == 0 {
        // SAFETY: as the caller says.
        if let Some(pid) = unsafe { pid.as_mut() } {
            *pid = child;
        }
        if !path.is_null() {
            // SAFETY: the spawn took it, so it is a C string.
            let path = unsafe { CStr::from_ptr(path) }.to_bytes();
            record_exec(before, Pid(child as u32), path, is_library_there);
        }
    }
    result
}

listed!(execl => execl_hook);
listed!(execlp => execlp_hook);
listed!(execle => execle_hook);

/// The arguments of an `execl`: a null-terminated list, of which the first ones lie in one place
/// and the rest in another.
#[derive(Clone, Copy)]
struct List {
    registers: Strings,
    stack: Strings,
}

impl List {
    /// All registers but that of the path.
    const REGISTER_WORDS: usize = REGISTER_ARGUMENTS - 1;
    const STACK_WORDS_MAX: usize = 32;

    /// # Safety
    /// No word of the list before number `index` is its end.
    unsafe fn word(self, index: usize) -> *const c_char {
        let at = match index.checked_sub(Self::REGISTER_WORDS) {
            None => self.registers.wrapping_add(index),
            Some(index) => self.stack.wrapping_add(index),
        };
        // SAFETY: as the caller says, so the program passed this word.
        unsafe { at.read() }
    }

    /// Copies the list into an array, its end included, and passes it on with the word that
    /// follows.
    ///
    /// # Safety
    /// The list has an end; and if `and_next`, a word after it.
    unsafe fn collect(self, and_next: bool, run: impl FnOnce(Strings, Strings) -> c_int) -> c_int {
        let mut count = 0;
        // SAFETY: every word before this one was not the end.
        while !unsafe { self.word(count) }.is_null() {
            count += 1;
        }
        let next = if and_next {
            // SAFETY: the caller says that a word follows the end, which is at `count`.
            unsafe { self.word(count + 1) }
        } else {
            std::ptr::null()
        };
        with_room::<{ Self::STACK_WORDS_MAX }, _>(count + 1, |room| {
            let Some(strings) = room else {
                return real::fail(libc::E2BIG);
            };
            // The end stays null.
            for (index, place) in strings.iter_mut().enumerate().take(count) {
                // SAFETY: the list's end is at `count`.
                *place = unsafe { self.word(index) };
            }
            run(strings.as_ptr(), next.cast())
        })
    }
}

unsafe extern "C-unwind" fn execl_hook(
    path: *const c_char,
    registers: Strings,
    stack: Strings,
) -> c_int {
    let list = List { registers, stack };
    // SAFETY: the program's own call, passed on as the form with an array.
    let exec = |arguments, _| unsafe { execv(path, arguments) };
    // SAFETY: the arguments of execl end with a null pointer.
    unsafe { list.collect(false, exec) }
}

unsafe extern "C-unwind" fn execlp_hook(
    file: *const c_char,
    registers: Strings,
    stack: Strings,
) -> c_int {
    let list = List { registers, stack };
    // SAFETY: the program's own call, passed on as the form with an array.
    let exec = |arguments, _| unsafe { execvp(file, arguments) };
    // SAFETY: the arguments of execlp end with a null pointer.
    unsafe { list.collect(false, exec) }
}

unsafe extern "C-unwind" fn execle_hook(
    path: *const c_char,
    registers: Strings,
    stack: Strings,
) -> c_int {
    let list = List { registers, stack };
    // SAFETY: the program's own call, passed on as the form with an array.
    let exec = |arguments, environment| unsafe { execve(path, arguments, environment) };
    // SAFETY: the arguments of execle end with a null pointer, after which comes the environment.
    unsafe { list.collect(true, exec) }
}
