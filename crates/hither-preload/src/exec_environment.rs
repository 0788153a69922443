//! The environment that a program needs to record, kept for the programs that this one starts.
//!
//! [`hither_session::preload`] has the rules for what a variable is to be.

use std::ffi::{CStr, c_char};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};

use hither_kernel::syscalls;
use hither_session::preload;

/// The longest path of the library that is looked for.
const PATH_BYTES_MAX: usize = 1024;

/// Words of stack for a changed environment of common size, with the variables that are changed:
/// 3 KiB, since the stack may be small.
const ENVIRONMENT_WORDS: usize = 384;

/// An array of C strings, ended by a null pointer.
pub(crate) type Strings = *const *const c_char;

/// A C string that is stored once and never freed; null before.
struct Kept(AtomicPtr<c_char>);

impl Kept {
    fn get(&self) -> Option<&'static [u8]> {
        let text = self.0.load(Ordering::Acquire);
        // SAFETY: `remember` stored a C string, which is never freed.
        (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_bytes())
    }
}

/// The path of this library and the name of the session, as they stood when the recording began:
/// programs clear their environment before they start others, and overwrite the memory of the one
/// that they were given (`setproctitle`).
static LIBRARY: Kept = Kept(AtomicPtr::new(null_mut()));
static SESSION: Kept = Kept(AtomicPtr::new(null_mut()));

/// Copies what later programs need. To be called once, when the recording begins.
pub(crate) fn remember() {
    let value = |name: &CStr| {
        // SAFETY: the name is a C string.
        let value = unsafe { libc::getenv(name.as_ptr()) };
        // SAFETY: getenv returned a C string, or null.
        (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) }.to_bytes())
    };
    let libraries = value(preload::LIBRARIES).unwrap_or_default();
    let library = preload::libraries(libraries).find(|path| preload::is_ours(path));
    let session = value(preload::SESSION);
    let texts = [(&LIBRARY, library), (&SESSION, session)];
    let texts = texts.map(|(kept, text)| (kept, text.unwrap_or_default()));
    let bytes = texts.iter().map(|(_, text)| text.len() + 1).sum();
    let Ok(mut at) = syscalls::map(bytes, None) else {
        return;
    };
    for (kept, text) in texts {
        // SAFETY: the mapping is new, zeroed, and as long as all texts with a NUL each, of which
        // those before this one are behind `at`.
        unsafe { at.copy_from_nonoverlapping(text.as_ptr(), text.len()) };
        if !text.is_empty() {
            kept.0.store(at.cast(), Ordering::Release);
        }
        at = at.wrapping_add(text.len() + 1);
    }
}

/// Whether a program that is started now can load the library. In another root (chroot) and in a
/// mount namespace its file may not be there, and a process that has confined itself (Landlock) may
/// not open it. The dynamic linker would print an error then.
pub(crate) fn is_library_there() -> bool {
    let mut buffer = [0; PATH_BYTES_MAX];
    let library = LIBRARY.get();
    match library.and_then(|path| preload::on_this_platform(path, &mut buffer)) {
        Some(path) => syscalls::is_loadable(path) && !is_denied(path),
        None => true,
    }
}

/// Whether this process may not open a file that is there. Only trying tells, and takes a
/// descriptor for that moment; so it is tried only where it may be: `access` does not ask Landlock.
fn is_denied(path: &CStr) -> bool {
    if !syscalls::no_new_privileges() {
        return false;
    }
    match syscalls::open(path, libc::O_RDONLY) {
        Ok(fd) => {
            syscalls::close(fd);
            false
        }
        Err(error) => matches!(error, libc::EACCES | libc::EPERM),
    }
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

/// A variable of an environment: its place in the array, and its value.
#[derive(Clone, Copy, Default)]
struct Variable<'a> {
    /// `None`: it is not there.
    at: Option<usize>,
    value: &'a [u8],
}

/// The variables of an environment that matter here; the last one of a name, which the dynamic
/// linker takes.
#[derive(Default)]
struct Given<'a> {
    count: usize,
    libraries: Variable<'a>,
    session: Variable<'a>,
    sanitizer: Variable<'a>,
}

impl<'a> Given<'a> {
    /// # Safety
    /// `environment` is null or a null-terminated array of C strings, and outlives the result.
    unsafe fn of(environment: Strings) -> Self {
        let mut given = Given::default();
        // SAFETY: as the caller says.
        for variable in unsafe { variables(environment) } {
            // SAFETY: an entry of the array is a C string, and outlives the result.
            let text: &'a [u8] = unsafe { CStr::from_ptr(variable) }.to_bytes();
            for (name, found) in [
                (preload::LIBRARIES, &mut given.libraries),
                (preload::SESSION, &mut given.session),
                (preload::SANITIZER, &mut given.sanitizer),
            ] {
                let rest = text.strip_prefix(name.to_bytes());
                if let Some(value) = rest.and_then(|rest| rest.strip_prefix(b"=")) {
                    let at = Some(given.count);
                    *found = Variable { at, value };
                }
            }
            given.count += 1;
        }
        given
    }
}

/// A changed environment in the making.
struct Changed<'a> {
    variables: &'a mut [*const c_char],
    count: usize,
    /// Room for the text of changed variables.
    text: &'a mut [u8],
}

impl Changed<'_> {
    /// Sets a variable, in the place of the one at `at`. `None`: there is no room.
    fn set<'a>(
        &mut self,
        at: Option<usize>,
        name: &'a CStr,
        value: impl Iterator<Item = &'a [u8]>,
    ) -> Option<()> {
        let start = self.text.as_ptr();
        let ends: [&[u8]; 1] = [b"\0"];
        let parts = [name.to_bytes(), b"="].into_iter().chain(value).chain(ends);
        for part in parts {
            let text = std::mem::take(&mut self.text);
            let (to, rest) = text.split_at_mut_checked(part.len())?;
            to.copy_from_slice(part);
            self.text = rest;
        }
        *self.variables.get_mut(at.unwrap_or(self.count))? = start.cast();
        self.count += usize::from(at.is_none());
        Some(())
    }

    fn remove(&mut self, at: usize) -> Option<()> {
        let from = self.variables.get_mut(at..)?;
        from.copy_within(1.., 0);
        self.count -= 1;
        Some(())
    }
}

/// Calls `run` with `environment` itself if nothing of ours is missing from it, or else with a copy
/// that has it, beside what the program has chosen for the new one.
///
/// # Safety
/// `environment` is null or a null-terminated array of C strings.
pub(crate) unsafe fn with_ours<R>(environment: Strings, run: impl FnOnce(Strings) -> R) -> R {
    // SAFETY: as the caller says.
    let given = unsafe { Given::of(environment) };
    if given.session.at.is_some() && SESSION.get() != Some(given.session.value) {
        // A session of its own: the program is another `hither`.
        return run(environment);
    }
    let library = LIBRARY.get();
    let library = library.filter(|path| !preload::has(given.libraries.value, path));
    let session = SESSION.get().filter(|_| given.session.at.is_none());
    let sanitizer = || preload::sanitizer_options(given.sanitizer.value);
    if library.is_none() && session.is_none() && sanitizer().is_none() {
        return run(environment);
    }
    let change = |changed: &mut Changed<'_>| {
        if library.is_some() {
            let value = preload::joined(given.libraries.value, library);
            changed.set(given.libraries.at, preload::LIBRARIES, value)?;
        }
        if session.is_some() {
            changed.set(None, preload::SESSION, session.into_iter())?;
        }
        if let Some(value) = sanitizer() {
            changed.set(given.sanitizer.at, preload::SANITIZER, value)?;
        }
        Some(())
    };
    let added = library.map_or(0, <[u8]>::len) + session.map_or(0, <[u8]>::len);
    // SAFETY: as the caller says.
    unsafe { with_change(environment, &given, added, change, run) }
}

/// Calls `run` with a copy of `environment` without this library, or with `environment` itself if
/// the library is not in it.
///
/// # Safety
/// `environment` is null or a null-terminated array of C strings.
pub(crate) unsafe fn without_library<R>(environment: Strings, run: impl FnOnce(Strings) -> R) -> R {
    // SAFETY: as the caller says.
    let given = unsafe { Given::of(environment) };
    let Variable {
        at: Some(at),
        value,
    } = given.libraries
    else {
        return run(environment);
    };
    if !preload::libraries(value).any(preload::is_ours) {
        return run(environment);
    }
    let others = || preload::joined(value, None);
    let change = |changed: &mut Changed<'_>| match others().next() {
        Some(_) => changed.set(Some(at), preload::LIBRARIES, others()),
        None => changed.remove(at),
    };
    // SAFETY: as the caller says.
    unsafe { with_change(environment, &given, 0, change, run) }
}

/// Calls `run` with a copy of `environment` that `change` has changed, for which it may add `added`
/// bytes to the values. Without memory `run` gets `environment` itself.
///
/// # Safety
/// `environment` is null or a null-terminated array of C strings, and `given` tells of it.
#[inline(never)]
unsafe fn with_change<R>(
    environment: Strings,
    given: &Given<'_>,
    added: usize,
    change: impl FnOnce(&mut Changed<'_>) -> Option<()>,
    run: impl FnOnce(Strings) -> R,
) -> R {
    // Three more variables and the end; the values as given, with ours, and for each variable its
    // name, "=", a separator and the NUL.
    let pointers = given.count + 4;
    let names = 3 * (preload::SESSION.count_bytes() + 3) + preload::SANITIZER_OPTION.len();
    let values = given.libraries.value.len() + given.sanitizer.value.len();
    let words = pointers + (names + values + added).div_ceil(size_of::<usize>());
    with_room::<ENVIRONMENT_WORDS, _>(words, |room| {
        let Some((pointers, text)) = room.and_then(|room| room.split_at_mut_checked(pointers))
        else {
            return run(environment);
        };
        let bytes = size_of_val(text);
        // SAFETY: the words are borrowed, initialised, and not used as pointers any more.
        let text = unsafe { std::slice::from_raw_parts_mut(text.as_mut_ptr().cast(), bytes) };
        // SAFETY: as the caller says.
        let variables = unsafe { variables(environment) };
        for (place, variable) in pointers.iter_mut().zip(variables) {
            *place = variable;
        }
        let mut changed = Changed {
            variables: pointers,
            count: given.count,
            text,
        };
        match change(&mut changed) {
            Some(()) => run(changed.variables.as_ptr()),
            None => run(environment),
        }
    })
}

/// Calls `run` with room for so many pointers, all of them null; `None` without memory. Up to
/// `USUAL` of them lie on the stack, more in a mapping: a child of `vfork` that becomes another
/// program leaves that to its parent for good.
#[inline(never)]
pub(crate) fn with_room<const USUAL: usize, R>(
    words: usize,
    run: impl FnOnce(Option<&mut [*const c_char]>) -> R,
) -> R {
    let mut usual = [null::<c_char>(); USUAL];
    if let Some(room) = usual.get_mut(..words) {
        return run(Some(room));
    }
    let bytes = words * size_of::<*const c_char>();
    let Ok(mapped) = syscalls::map(bytes, None) else {
        return run(None);
    };
    // SAFETY: the mapping is new, zeroed, aligned to a page, and that long.
    let room = unsafe { std::slice::from_raw_parts_mut(mapped.cast(), words) };
    let result = run(Some(room));
    // SAFETY: the mapping was made here, and what used it has returned.
    unsafe { syscalls::unmap(mapped, bytes) };
    result
}
