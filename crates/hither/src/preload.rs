//! The preload libraries are embedded in the command and written to where the programs' dynamic
//! linker can load them.
//!
//! There is one file for each version and user, named after a hash of its content. It lies in a
//! folder that only this user can write but everyone can read: a recorded program may switch to
//! another user, such as a database that drops root, and ld.so prints an error about a library that
//! it cannot open. The file stays, so that programs that outlive the recording can start others.
//!
//! The folder is in /var/tmp before /tmp: sandboxes give their programs a /tmp of their own more
//! often (bubblewrap's `--tmpfs /tmp`, Bazel, a mount over /tmp in `unshare --mount`), and /tmp is
//! more often mounted `noexec`, where no library can be loaded.

use std::ffi::{CString, OsString};
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use hither_sys::{private_folder, syscalls};

/// A library that process N writes is called this and N.
const PARTIAL: &str = ".partial-";

/// A library with the hash of its content.
struct Library {
    content: &'static [u8],
    fingerprint: &'static str,
}

/// The library that records files. It does not hook malloc.
const RECORD_LIBRARY: Library = Library {
    content: include_bytes!(env!("HITHER_PRELOAD_LIBRARY")),
    fingerprint: env!("HITHER_PRELOAD_LIBRARY_FINGERPRINT"),
};

/// The library that also tracks large allocations and places them.
const MEMORY_LIBRARY: Library = Library {
    content: include_bytes!(env!("HITHER_PAGES_LIBRARY")),
    fingerprint: env!("HITHER_PAGES_LIBRARY_FINGERPRINT"),
};

/// The path of the library that records. It is written if it is missing.
pub(crate) fn library() -> anyhow::Result<PathBuf> {
    path_of(&RECORD_LIBRARY)
}

/// The path of the library that also places memory. It is written if it is missing.
pub(crate) fn pages_library() -> anyhow::Result<PathBuf> {
    path_of(&MEMORY_LIBRARY)
}

fn path_of(library: &Library) -> anyhow::Result<PathBuf> {
    let user = private_folder::user().context("/proc is needed")?;
    let mut problem = None;
    for place in places(std::env::var_os("TMPDIR")) {
        let folder = place.join(format!("hither-{user}"));
        match install(library, &folder) {
            Ok(path) => return Ok(path),
            Err(error) => {
                let context = format!(
                    "cannot put the preload library into {} (TMPDIR names another place)",
                    folder.display()
                );
                problem.get_or_insert(error.context(context));
            }
        }
    }
    Err(problem.expect("there are places"))
}

/// Where the library's folder may be, the best place first.
fn places(named: Option<OsString>) -> Vec<PathBuf> {
    match named.filter(|named| !named.is_empty()) {
        Some(named) => vec![PathBuf::from(named)],
        None => vec![PathBuf::from("/var/tmp"), PathBuf::from("/tmp")],
    }
}

/// Whether the dynamic linker can load the file at `path`.
fn check_loadable(path: &Path) -> anyhow::Result<()> {
    let name = CString::new(path.as_os_str().as_bytes())?;
    ensure!(
        syscalls::is_loadable(&name),
        "nothing there can be executed (mounted noexec?)"
    );
    Ok(())
}

fn install(of: &Library, folder: &Path) -> anyhow::Result<PathBuf> {
    // Another user may have created a folder of that name, to make us load another library.
    private_folder::create(folder, 0o755)?;
    remove_abandoned(folder);
    let library = folder.join(format!("libhither_preload-{}.so", of.fingerprint));
    // The content is compared, since the name alone proves nothing.
    if fs::read(&library).is_ok_and(|bytes| bytes == of.content) {
        check_loadable(&library)?;
        return Ok(library);
    }
    let partial = folder.join(format!("{PARTIAL}{}", std::process::id()));
    let written = fs::write(&partial, of.content)
        .and_then(|()| fs::set_permissions(&partial, Permissions::from_mode(0o755)))
        .and_then(|()| fs::rename(&partial, &library));
    if written.is_err() {
        let _ = fs::remove_file(&partial);
    }
    written?;
    check_loadable(&library)?;
    Ok(library)
}

/// Removes what commands left half-written that were killed.
fn remove_abandoned(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let writer = name.to_str().and_then(|name| name.strip_prefix(PARTIAL));
        if writer.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_written_once_and_mended_when_damaged() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("hither");
        let library = install(&RECORD_LIBRARY, &folder).unwrap();
        assert_eq!(fs::read(&library).unwrap(), RECORD_LIBRARY.content);
        fs::write(&library, b"junk").unwrap();
        // By a process that is gone: none has this number.
        fs::write(folder.join(".partial-4194305"), b"half").unwrap();
        assert_eq!(install(&RECORD_LIBRARY, &folder).unwrap(), library);
        assert_ne!(install(&MEMORY_LIBRARY, &folder).unwrap(), library);
        assert_eq!(fs::read(&library).unwrap(), RECORD_LIBRARY.content);
        assert_eq!(
            fs::read_dir(&folder).unwrap().count(),
            2,
            "no partial file stays"
        );
    }

    #[test]
    fn the_place_that_is_named_is_the_only_one() {
        assert_eq!(places(Some("/a".into())), [Path::new("/a")]);
        let own = [Path::new("/var/tmp"), Path::new("/tmp")];
        assert_eq!(places(None), own);
        assert_eq!(places(Some("".into())), own);
    }

    #[test]
    fn a_folder_that_others_can_write_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("hither");
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, Permissions::from_mode(0o777)).unwrap();
        assert!(install(&RECORD_LIBRARY, &folder).is_err());
    }
}
