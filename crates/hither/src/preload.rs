//! The preload libraries are embedded in the command and written to where the programs' dynamic
//! linker can load them.
//!
//! There is one file for each version and user, named by its content, in a folder that only that
//! user can write and everyone can read: a recorded program may run as another user (a database
//! that drops root), and ld.so complains on the program's stderr about a library that it cannot
//! open. The file stays, so that programs that outlive the recording can still start others.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use hither_sys::private_folder;

/// A library, and what its version is told by.
struct Library {
    content: &'static [u8],
    fingerprint: &'static str,
}

/// Records files; stays out of the way of malloc.
const LIBRARY: Library = Library {
    content: include_bytes!(env!("HITHER_PRELOAD_LIBRARY")),
    fingerprint: env!("HITHER_PRELOAD_LIBRARY_FINGERPRINT"),
};

/// Tracks large allocations as well, and places them.
const PAGES_LIBRARY: Library = Library {
    content: include_bytes!(env!("HITHER_PAGES_LIBRARY")),
    fingerprint: env!("HITHER_PAGES_LIBRARY_FINGERPRINT"),
};

/// The path of the library that records, written first where it is not there yet.
pub(crate) fn library() -> anyhow::Result<PathBuf> {
    path_of(&LIBRARY)
}

/// The path of the library that places pages.
pub(crate) fn pages_library() -> anyhow::Result<PathBuf> {
    path_of(&PAGES_LIBRARY)
}

fn path_of(library: &Library) -> anyhow::Result<PathBuf> {
    let user = private_folder::user().context("/proc is needed")?;
    let folder = std::env::temp_dir().join(format!("hither-{user}"));
    install(library, &folder)
        .with_context(|| format!("cannot put the preload library into {}", folder.display()))
}

fn install(of: &Library, folder: &Path) -> anyhow::Result<PathBuf> {
    // Somebody else may have made a folder of that name first, to have us load a library of theirs.
    private_folder::create(folder, 0o755)?;
    let library = folder.join(format!("libhither_preload-{}.so", of.fingerprint));
    // By its content, for the name alone could be somebody's junk.
    if fs::read(&library).is_ok_and(|bytes| bytes == of.content) {
        return Ok(library);
    }
    let partial = folder.join(format!(".partial-{}", std::process::id()));
    let written = fs::write(&partial, of.content)
        .and_then(|()| fs::set_permissions(&partial, Permissions::from_mode(0o755)))
        .and_then(|()| fs::rename(&partial, &library));
    if written.is_err() {
        let _ = fs::remove_file(&partial);
    }
    written?;
    Ok(library)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_written_once_and_mended_when_damaged() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("hither");
        let library = install(&LIBRARY, &folder).unwrap();
        assert_eq!(fs::read(&library).unwrap(), LIBRARY.content);
        fs::write(&library, b"junk").unwrap();
        assert_eq!(install(&LIBRARY, &folder).unwrap(), library);
        assert_ne!(install(&PAGES_LIBRARY, &folder).unwrap(), library);
        assert_eq!(fs::read(&library).unwrap(), LIBRARY.content);
        assert_eq!(
            fs::read_dir(&folder).unwrap().count(),
            2,
            "no partial file stays"
        );
    }

    #[test]
    fn a_folder_that_others_can_write_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("hither");
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, Permissions::from_mode(0o777)).unwrap();
        assert!(install(&LIBRARY, &folder).is_err());
    }
}
