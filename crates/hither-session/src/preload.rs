//! How programs are told of the preloaded library: the agent tells its program, and the library
//! what that program starts.
//!
//! **One path, whatever the program is.** An environment passes through programs that the library
//! is not built for. musl's linker would refuse to start one for the library's symbols; that of a
//! 32-bit program would print an error. What they start may be built for it, and only the
//! environment that they pass on tells that of the library. So nothing is taken out for them:
//! `LD_PRELOAD` has [`TOKEN`] in the path, and each linker makes something else of it.
//!
//! | linker | finds |
//! |---|---|
//! | glibc | the library, in the folder of one of the names in [`PLATFORMS`] |
//! | glibc, other machines | a library of nothing, in the folder of that machine's name |
//! | musl | no such file, as it knows no tokens. It says nothing and goes on |
//! | none (static) | it is not asked |
//!
//! Rejected: looking at each program before it starts. That costs every exec four system calls, has
//! a race, and is too late where a program that is not recorded starts the next one.

use std::ffi::CStr;

pub use crate::arch::{ELF_MACHINE, PLATFORMS};

/// The variable that names libraries to load.
pub const LIBRARIES: &CStr = c"LD_PRELOAD";

/// The variable that names the session.
pub const SESSION: &CStr = c"HITHER_SESSION";

/// The variable that tells a program built with the address sanitizer that [`SANITIZER_OPTION`]:
/// its runtime need not be the first library, since this one does not intercept what it does.
pub const SANITIZER: &CStr = c"ASAN_OPTIONS";

/// What [`SANITIZER`] has to say.
pub const SANITIZER_OPTION: &[u8] = b"verify_asan_link_order=0";

/// Stands in a path for what glibc calls the machine that it runs on (ld.so(8), "Dynamic string
/// tokens").
pub const TOKEN: &str = "$PLATFORM";

/// Whether glibc knows what to put for [`TOKEN`]: the kernel has told this process.
pub fn is_platform_told() -> bool {
    // SAFETY: it reads what the process was started with.
    unsafe { libc::getauxval(libc::AT_PLATFORM) != 0 }
}

/// The libraries that a value of `LD_PRELOAD` names.
pub fn libraries(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let separates = |&byte: &u8| matches!(byte, b':' | b' ');
    value.split(separates).filter(|path| !path.is_empty())
}

/// Whether a library is this one, of whatever build.
pub fn is_ours(path: &[u8]) -> bool {
    let name = path.rsplit(|&byte| byte == b'/').next();
    name.is_some_and(|name| name.starts_with(b"libhither_preload"))
}

/// Whether a value of `LD_PRELOAD` names this library, and by this path alone. Who writes the value
/// into a shell's command loses the token from it.
pub fn has(value: &[u8], ours: &[u8]) -> bool {
    let mut named = libraries(value).filter(|path| is_ours(path)).peekable();
    named.peek().is_some() && named.all(|path| path == ours)
}

/// A value of `LD_PRELOAD`, in parts, that has `ours` at its end and the others as they are given.
/// A library that a program chooses is to be called first, and may insist on it.
pub fn joined<'a>(given: &'a [u8], ours: Option<&'a [u8]>) -> impl Iterator<Item = &'a [u8]> {
    let others = libraries(given).filter(|path| !is_ours(path)).chain(ours);
    separated(others)
}

/// A value of `ASAN_OPTIONS`, in parts, with what a program needs to start with the library;
/// `None`: that is what it has, or the user has decided.
pub fn sanitizer_options(given: &[u8]) -> Option<impl Iterator<Item = &[u8]>> {
    let name = SANITIZER_OPTION.split(|&byte| byte == b'=').next()?;
    let decided = given.windows(name.len()).any(|part| part == name);
    let given = Some(given).filter(|given| !given.is_empty());
    (!decided).then(|| separated(given.into_iter().chain([SANITIZER_OPTION])))
}

fn separated<'a>(items: impl Iterator<Item = &'a [u8]>) -> impl Iterator<Item = &'a [u8]> {
    let with_separator = |(at, item)| {
        let separator: &[u8] = if at == 0 { b"" } else { b":" };
        [separator, item]
    };
    items.enumerate().flat_map(with_separator)
}

/// Where a program of this architecture finds the library at `path`. `None`: the buffer is too
/// small, or the path has a NUL.
pub fn on_this_platform<'a>(path: &[u8], buffer: &'a mut [u8]) -> Option<&'a CStr> {
    let token = TOKEN.as_bytes();
    let at = path.windows(token.len()).position(|part| part == token);
    let (before, after) = match at {
        Some(at) => (path.get(..at)?, path.get(at + token.len()..)?),
        None => (path, &b""[..]),
    };
    let platform = at.map_or("", |_| PLATFORMS[0]).as_bytes();
    let mut length = 0;
    for part in [before, platform, after, b"\0"] {
        let to = buffer.get_mut(length..length + part.len())?;
        to.copy_from_slice(part);
        length += part.len();
    }
    CStr::from_bytes_with_nul(buffer.get(..length)?).ok()
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use super::*;

    fn text<'a>(parts: impl Iterator<Item = &'a [u8]>) -> String {
        String::from_utf8(parts.flatten().copied().collect()).expect("text")
    }

    #[test]
    fn the_library_comes_last_and_once() {
        let ours: &[u8] = b"/new/$PLATFORM/libhither_preload-2.so";
        let last = "/new/$PLATFORM/libhither_preload-2.so";
        for (given, others) in [
            ("", ""),
            (":", ""),
            ("libjemalloc.so.2", "libjemalloc.so.2:"),
            ("a.so b.so", "a.so:b.so:"),
            (" a.so::b.so:", "a.so:b.so:"),
            ("a.so:/old/libhither_preload-1.so:b.so", "a.so:b.so:"),
            ("$LIB/a.so", "$LIB/a.so:"),
        ] {
            let with = text(joined(given.as_bytes(), Some(ours)));
            assert_eq!(with, format!("{others}{last}"), "{given}");
            let without = text(joined(given.as_bytes(), None));
            assert_eq!(without, others.trim_end_matches(':'), "{given}");
        }
    }

    #[test]
    fn only_the_whole_path_will_do() {
        let ours = b"/a/$PLATFORM/libhither_preload-2.so";
        let cut = "/a//libhither_preload-2.so";
        let whole = "/a/$PLATFORM/libhither_preload-2.so";
        for (value, expected) in [
            (String::new(), false),
            ("a.so".to_owned(), false),
            (cut.to_owned(), false),
            (format!("{whole}:a.so {cut}"), false),
            (format!("{whole}:a.so {whole}"), true),
        ] {
            assert_eq!(has(value.as_bytes(), ours), expected, "{value}");
        }
    }

    #[test]
    fn sanitizer_options_are_added_to_the_users() {
        let added = |given: &str| sanitizer_options(given.as_bytes()).map(text);
        assert_eq!(added("").as_deref(), Some("verify_asan_link_order=0"));
        assert_eq!(
            added("detect_leaks=0").as_deref(),
            Some("detect_leaks=0:verify_asan_link_order=0")
        );
        for decided in ["verify_asan_link_order=0", "a=1:verify_asan_link_order=1"] {
            assert_eq!(added(decided), None);
        }
    }

    #[test]
    fn the_token_stands_for_this_machine() {
        let mut buffer = [0; 20];
        let own = CString::new(format!("/a/{}/b", PLATFORMS[0])).unwrap();
        for (path, expected) in [
            ("/a/$PLATFORM/b", Some(own.as_c_str())),
            ("/a/b", Some(c"/a/b")),
            ("/a/\0/b", None),
            ("/as/long/as/that/and/longer", None),
        ] {
            assert_eq!(on_this_platform(path.as_bytes(), &mut buffer), expected);
        }
    }
}
