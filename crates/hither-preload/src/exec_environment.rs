//! The environment that a program needs to record, kept for the programs that this one starts.

use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicPtr, Ordering};

use hither_sys::syscalls;

/// The variables that make a program record, and that let one built with the address sanitizer
/// start all the same.
const OURS: [&CStr; 3] = [c"LD_PRELOAD", c"HITHER_SESSION", c"ASAN_OPTIONS"];

/// Which of [`OURS`] names the library.
const PRELOAD: usize = 0;

/// The longest path of the library, or list of others, that is copied, to the stack.
const PATH_BYTES_MAX: usize = 1024;

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
    let lengths = OURS.iter().zip(&values).map(|(name, value)| {
        // The name, "=", and the value with its NUL.
        value.map_or(0, |value| {
            name.to_bytes().len() + 1 + value.count_bytes() + 1
        })
    });
    let bytes = lengths.sum();
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

/// Whether a program that is started now can load the library. In another root (chroot) and in a
/// mount namespace its file may not be there. The dynamic linker would print an error then.
pub(crate) fn is_library_there() -> bool {
    let mut path = [0; PATH_BYTES_MAX + 1];
    let preload = REMEMBERED[PRELOAD].load(Ordering::Acquire);
    if preload.is_null() {
        return true;
    }
    // SAFETY: `remember` stored a C string, which is never freed.
    let preload = unsafe { CStr::from_ptr(preload) }.to_bytes();
    let library = paths_of(preload).and_then(|mut paths| paths.find(|path| is_ours(path)));
    let at = library.and_then(|library| path.get_mut(..library.len()).zip(Some(library)));
    let Some((to, library)) = at.filter(|(to, _)| to.len() <= PATH_BYTES_MAX) else {
        return true;
    };
    to.copy_from_slice(library);
    CStr::from_bytes_until_nul(&path).is_ok_and(syscalls::is_loadable)
}

/// The paths that a variable of the form `LD_PRELOAD=...` has; `None` if it is another variable.
fn paths_of(variable: &[u8]) -> Option<impl Iterator<Item = &[u8]>> {
    let paths = variable.strip_prefix(b"LD_PRELOAD=")?;
    let separates = |&byte: &u8| matches!(byte, b':' | b' ');
    Some(paths.split(separates).filter(|path| !path.is_empty()))
}

/// Whether a library is this one.
fn is_ours(path: &[u8]) -> bool {
    let name = path.rsplit(|&byte| byte == b'/').next();
    name.is_some_and(|name| name.starts_with(b"libhither_preload"))
}

/// Calls `run` with a copy of `environment` without this library, or with `environment` itself if
/// the library is not in it.
///
/// # Safety
/// `environment` is null or a null-terminated array of C strings.
#[inline(never)]
pub(crate) unsafe fn without_library<R>(environment: Strings, run: impl FnOnce(Strings) -> R) -> R {
    let mut reduced = [std::ptr::null::<c_char>(); VARIABLES_MAX + 1];
    let mut others = [0; PATH_BYTES_MAX];
    let (mut count, mut found) = (0, false);
    // SAFETY: as the caller says.
    for variable in unsafe { variables(environment) } {
        // SAFETY: an entry of the array is a C string.
        let text = unsafe { CStr::from_ptr(variable) }.to_bytes();
        let has_ours = paths_of(text).is_some_and(|mut paths| paths.any(is_ours));
        let kept = match has_ours && !found {
            true => match without_ours(text, &mut others) {
                Some(others) => others,
                None => return run(environment),
            },
            false => variable,
        };
        found |= has_ours;
        if kept.is_null() {
            continue;
        }
        let Some(place) = reduced.get_mut(count).filter(|_| count < VARIABLES_MAX) else {
            return run(environment);
        };
        *place = kept;
        count += 1;
    }
    run(if found { reduced.as_ptr() } else { environment })
}

/// Writes an `LD_PRELOAD` without this library into `buffer`. Returns it, or null if no other
/// library is left; `None` if there is no room.
fn without_ours(variable: &[u8], buffer: &mut [u8]) -> Option<*const c_char> {
    let mut length = 0;
    for path in paths_of(variable)?.filter(|path| !is_ours(path)) {
        let before: &[u8] = if length == 0 { b"LD_PRELOAD=" } else { b":" };
        for part in [before, path] {
            buffer
                .get_mut(length..length + part.len())?
                .copy_from_slice(part);
            length += part.len();
        }
    }
    if length == 0 {
        return Some(std::ptr::null());
    }
    *buffer.get_mut(length)? = 0;
    Some(buffer.as_ptr().cast())
}

/// The entries of an environment.
///
/// # Safety
/// `environment` is null or a null-terminated array of C strings, and outlives what is returned.
unsafe fn variables(environment: Strings) -> impl Iterator<Item = *const c_char> {
    let mut at = environment;
    std::iter::from_fn(move || {
        if at.is_null() {
            return None;
        }
        // SAFETY: the array's end has not been reached.
        let variable = unsafe { at.read() };
        at = at.wrapping_add(1);
        Some(variable).filter(|variable| !variable.is_null())
    })
    .fuse()
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
    // SAFETY: as the caller says.
    for variable in unsafe { variables(environment) } {
        if count >= VARIABLES_MAX {
            return run(environment);
        }
        // SAFETY: an entry of the array is a C string.
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
