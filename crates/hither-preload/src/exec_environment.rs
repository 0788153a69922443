//! The environment that a program needs to record, kept for the programs that this one starts.

use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicPtr, Ordering};

use hither_sys::syscalls;

/// The variables that make a program record, and that let one built with the address sanitizer
/// start all the same.
const OURS: [&CStr; 3] = [c"LD_PRELOAD", c"HITHER_SESSION", c"ASAN_OPTIONS"];

/// The largest environment that is copied to add ours; it goes on the stack, which may be small.
const VARIABLES_MAX: usize = 250;

/// An array of C strings, ended by a null pointer.
pub(crate) type Strings = *const *const c_char;

/// `NAME=VALUE` for each of [`OURS`], as it stood when the recording began: programs clear their
/// environment before they start others, and overwrite the memory of the one that they were given
/// (`setproctitle`).
static REMEMBERED: [AtomicPtr<c_char>; OURS.len()] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; OURS.len()];

/// Copies our variables. To be called once, when the recording begins.
pub(crate) fn remember() {
    let values = OURS.map(|name| {
        // SAFETY: the name is a C string.
        let value = unsafe { libc::getenv(name.as_ptr()) };
        // SAFETY: getenv returned a C string, or null.
        (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) })
    });
    let parts = |(name, value): (&CStr, &CStr)| -> [usize; 3] {
        [name.to_bytes().len(), 1, value.to_bytes_with_nul().len()]
    };
    let known = || {
        OURS.iter()
            .zip(&values)
            .filter_map(|(name, value)| Some((*name, (*value)?)))
    };
    let bytes = known().flat_map(parts).sum();
    let Ok(mut at) = syscalls::map(bytes, None) else {
        return;
    };
    for ((name, value), kept) in OURS.iter().zip(&values).zip(&REMEMBERED) {
        let Some(value) = value else { continue };
        kept.store(at.cast(), Ordering::Release);
        for part in [name.to_bytes(), b"=", value.to_bytes_with_nul()] {
            // SAFETY: the mapping is new and as long as all parts, of which those before this one
            // are behind `at`.
            unsafe { at.copy_from_nonoverlapping(part.as_ptr(), part.len()) };
            at = at.wrapping_add(part.len());
        }
    }
}

/// Calls `run` with `environment` itself if nothing of ours is missing from it, or else with a copy
/// that has it.
///
/// # Safety
/// `environment` is null or a null-terminated array of C strings.
pub(crate) unsafe fn with_ours<R>(environment: Strings, run: impl FnOnce(Strings) -> R) -> R {
    let mut extended = [std::ptr::null::<c_char>(); VARIABLES_MAX + OURS.len() + 1];
    let mut count = 0;
    let mut missing = OURS.map(Some);
    loop {
        let variable = if environment.is_null() {
            std::ptr::null()
        } else {
            // SAFETY: the array's end has not been reached.
            unsafe { environment.wrapping_add(count).read() }
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
    let given = count;
    // A program that sets LD_PRELOAD for its child has reasons, and its choice stands.
    for (_, kept) in missing
        .iter()
        .zip(&REMEMBERED)
        .filter(|(name, _)| name.is_some())
    {
        extended[count] = kept.load(Ordering::Acquire);
        count += usize::from(!extended[count].is_null());
    }
    run(if count == given {
        environment
    } else {
        extended.as_ptr()
    })
}
