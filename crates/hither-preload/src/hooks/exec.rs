//! Programs that become or start other programs.
//!
//! Two things happen here. The agent is told what is about to run, so that it can say which programs it then heard
//! nothing of. And a program that is given an environment of its own (`env -i`) still gets ours, for as long as the
//! session lasts. `execl` and its kin take the caller's environment or pass through libc unseen; what they start records
//! all the same, only a static program started so is not reported.

use std::ffi::{CStr, c_char, c_int};

use hither_sys::raw;
use libc::{pid_t, posix_spawn_file_actions_t, posix_spawnattr_t};

use crate::{real, recorder};

/// The variables that make a program record.
const OURS: [&CStr; 2] = [c"LD_PRELOAD", c"HITHER_SESSION"];

/// The largest environment that is copied to add ours; it goes on the stack, which may be small.
const VARIABLES_MAX: usize = 250;

type Strings = *const *const c_char;

/// Calls `run` with `environment`, ours added where they are missing.
///
/// # Safety
/// `environment` is null or a null-terminated array of C strings.
unsafe fn with_ours<R>(environment: Strings, run: impl FnOnce(Strings) -> R) -> R {
    if recorder::session().is_none() {
        return run(environment);
    }
    let mut extended = [std::ptr::null::<c_char>(); VARIABLES_MAX + OURS.len() + 1];
    let mut count = 0;
    let mut missing = OURS.map(Some);
    loop {
        let variable = if environment.is_null() {
            std::ptr::null()
        } else {
            // SAFETY: the array's end has not been reached.
            unsafe { *environment.add(count) }
        };
        if variable.is_null() {
            break;
        }
        if count >= VARIABLES_MAX {
            return run(environment);
        }
        // SAFETY: an entry before the array's end is a C string.
        let text = unsafe { CStr::from_ptr(variable) }.to_bytes();
        for ours in &mut missing {
            if ours.is_some_and(|name| {
                text.strip_prefix(name.to_bytes())
                    .is_some_and(|rest| rest.starts_with(b"="))
            }) {
                *ours = None;
            }
        }
        extended[count] = variable;
        count += 1;
    }
    // A program that sets LD_PRELOAD for its child has reasons, and its choice stands.
    for name in missing.into_iter().flatten() {
        extended[count] = variable_of_ours(name);
        count += usize::from(!extended[count].is_null());
    }
    run(extended.as_ptr())
}

/// `NAME=VALUE` as it stands in this process's environment, null if it does not.
fn variable_of_ours(name: &CStr) -> *const c_char {
    // SAFETY: the name is a C string.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    if value.is_null() {
        return std::ptr::null();
    }
    // A value that getenv finds lies behind its name and an equals sign, in one string.
    value.wrapping_sub(name.count_bytes() + 1)
}

/// Tells the agent that `pid` is to run `path`.
///
/// # Safety
/// `path` is null or a C string.
unsafe fn announce(pid: u32, path: *const c_char) {
    if !path.is_null() {
        // SAFETY: as the caller says.
        recorder::exec(pid, unsafe { CStr::from_ptr(path) }.to_bytes());
    }
}

/// Announces, runs an exec that only returns if it failed, and says so then.
///
/// # Safety
/// `path` is null or a C string; `environment` null or a null-terminated array of them.
unsafe fn become_program(
    path: *const c_char,
    environment: Strings,
    exec: impl FnOnce(Strings) -> c_int,
) -> c_int {
    let pid = raw::pid();
    // SAFETY: as the caller says.
    unsafe { announce(pid, path) };
    // SAFETY: as the caller says.
    let result = unsafe { with_ours(environment, exec) };
    recorder::exec_failed(pid);
    result
}

unsafe extern "C" {
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
    unsafe {
        become_program(path, environment, |environment| {
            real::execve(path, arguments, environment)
        })
    }
}

/// Stands in for libc's function.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn execv(path: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: libc's variable; execv takes the environment as it is.
    let environment = unsafe { environ };
    // SAFETY: the program's own call, passed on.
    unsafe { execve(path, arguments, environment) }
}

/// Stands in for libc's function.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn execvpe(
    file: *const c_char,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    // SAFETY: the program's own call, passed on.
    unsafe {
        become_program(file, environment, |environment| {
            real::execvpe(file, arguments, environment)
        })
    }
}

/// Stands in for libc's function.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn execvp(file: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: libc's variable; execvp takes the environment as it is.
    let environment = unsafe { environ };
    // SAFETY: the program's own call, passed on.
    unsafe { execvpe(file, arguments, environment) }
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
    unsafe {
        become_program(path, environment, |environment| {
            real::execveat(at, path, arguments, environment, flags)
        })
    }
}

/// Stands in for libc's function.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fexecve(fd: c_int, arguments: Strings, environment: Strings) -> c_int {
    // SAFETY: the program's own call, passed on. An unnamed program is not announced.
    unsafe {
        become_program(std::ptr::null(), environment, |environment| {
            real::fexecve(fd, arguments, environment)
        })
    }
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

/// Runs a spawn and announces the child that it made. The child may be recording by then; the agent matches them by
/// process id, whichever comes first.
///
/// # Safety
/// `pid` is null or valid for a store; the others as for [`become_program`].
unsafe fn start_program(
    pid: *mut pid_t,
    path: *const c_char,
    environment: Strings,
    spawn: impl FnOnce(Strings, *mut pid_t) -> c_int,
) -> c_int {
    let before = recorder::now_ns();
    let mut child = 0;
    // SAFETY: as the caller says.
    let result = unsafe {
        with_ours(environment, |environment| {
            spawn(environment, &raw mut child)
        })
    };
    if result == 0 {
        // SAFETY: as the caller says.
        if let Some(pid) = unsafe { pid.as_mut() } {
            *pid = child;
        }
        if !path.is_null() {
            // SAFETY: the spawn took it, so it is a C string.
            recorder::exec_at(
                before,
                child as u32,
                unsafe { CStr::from_ptr(path) }.to_bytes(),
            );
        }
    }
    result
}
