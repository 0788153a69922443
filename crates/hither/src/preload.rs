//! The preload libraries are embedded in the command and written to where the programs' dynamic
//! linker can load them.
//!
//! There is one file for each version, user and platform ([`hither_session::preload`] says why),
//! named after a hash of the library's content. It lies in a folder that only this user can write
//! but everyone can read: a recorded program may switch to another user, such as a database that
//! drops root, and ld.so prints an error about a library that it cannot open. The file stays, so
//! that programs that outlive the recording can start others. A file of another version is removed
//! when no recording has used it for a month.
//!
//! The folder is in /var/tmp before /tmp: sandboxes give their programs a /tmp of their own more
//! often (bubblewrap's `--tmpfs /tmp`, Bazel, a mount over /tmp in `unshare --mount`), and /tmp is
//! more often mounted `noexec`, where no library can be loaded.

mod empty_library;

use std::ffi::{CString, OsString};
use std::fs::{self, File, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, ensure};
use empty_library::{MACHINES, empty_library};
use hither_kernel::private_folder;
use hither_kernel::syscalls;
use hither_session::preload::{self, PLATFORMS, TOKEN};

/// A library that process N writes is called this and N.
const PARTIAL: &str = ".partial-";

/// A library is called this and its fingerprint.
const LIBRARY: &str = "libhither_preload-";

/// A library that was not used for so long is removed.
const UNUSED: Duration = Duration::from_secs(30 * DAY.as_secs());

/// How exactly the last use of a library is kept, as the time of its last change.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

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

/// Whether there is a library for this processor.
pub(crate) const IS_THERE: bool = cfg!(has_library);

/// What is said where it is needed and is not there.
pub(crate) const NOT_THERE: &str = "the library that sees what programs do is written for x86-64 \
    alone; here the kernel says it, which takes root (or CAP_BPF and CAP_PERFMON) and Linux 5.15";

/// The path of the library that records. It is written if it is missing.
pub(crate) fn library() -> anyhow::Result<PathBuf> {
    path_of(&RECORD_LIBRARY)
}

/// The path of the library that also places memory. It is written if it is missing.
pub(crate) fn pages_library() -> anyhow::Result<PathBuf> {
    path_of(&MEMORY_LIBRARY)
}

fn path_of(library: &Library) -> anyhow::Result<PathBuf> {
    ensure!(IS_THERE, NOT_THERE);
    let user = private_folder::user().context("/proc is needed")?;
    let mut problem = None;
    for place in places(std::env::var_os("TMPDIR")) {
        // Another user may have created a folder of that name, to make us load another library.
        let name = format!("hither-{user}");
        let folder = private_folder::own(&place, &name, 0o755);
        let installed = folder.map_err(anyhow::Error::from);
        match installed.and_then(|folder| install(library, &folder)) {
            Ok(path) => return Ok(path),
            Err(error) => {
                let context = format!(
                    "cannot put the preload library into {} (TMPDIR names another place)",
                    place.join(&name).display()
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

/// Writes the library into a folder for each platform, as far as it is missing. Returns the path
/// that `LD_PRELOAD` gets.
fn install(of: &Library, folder: &Path) -> anyhow::Result<PathBuf> {
    private_folder::create(folder, 0o755)?;
    let name = format!("{LIBRARY}{}.so", of.fingerprint);
    let own = write(of.content, &folder.join(PLATFORMS[0]), &name)?;
    check_loadable(&own)?;
    if !preload::is_platform_told() {
        return Ok(own);
    }
    link_all(folder, &PLATFORMS)?;
    for machine in &MACHINES {
        let platforms = machine.platforms;
        write(&empty_library(machine), &folder.join(platforms[0]), &name)?;
        link_all(folder, platforms)?;
    }
    Ok(folder.join(TOKEN).join(name))
}

/// Has all names of a platform but the first lead to the first.
fn link_all(folder: &Path, platforms: &[&str]) -> anyhow::Result<()> {
    for name in &platforms[1..] {
        let link = folder.join(name);
        let leads_there = || fs::read_link(&link).is_ok_and(|to| to == Path::new(platforms[0]));
        if !leads_there() {
            let made = symlink(platforms[0], &link);
            // Another command may have made it meanwhile.
            ensure!(leads_there(), "{}: {made:?}", link.display());
        }
    }
    Ok(())
}

/// Writes a library, if it is missing or damaged. Returns its path.
fn write(content: &[u8], folder: &Path, name: &str) -> anyhow::Result<PathBuf> {
    private_folder::create(folder, 0o755)?;
    let library = folder.join(name);
    // The content is compared, since the name alone proves nothing.
    let is_there = fs::read(&library).is_ok_and(|bytes| bytes == content);
    if is_there && age(&library).is_some_and(|age| age > DAY) {
        // Best effort: without it, the library is written again some day.
        let file = File::options().write(true).open(&library);
        let _ = file.and_then(|file| file.set_modified(SystemTime::now()));
    }
    remove_abandoned(folder);
    if is_there {
        return Ok(library);
    }
    let partial = folder.join(format!("{PARTIAL}{}", std::process::id()));
    let written = fs::write(&partial, content)
        .and_then(|()| fs::set_permissions(&partial, Permissions::from_mode(0o755)))
        .and_then(|()| fs::rename(&partial, &library));
    if written.is_err() {
        let _ = fs::remove_file(&partial);
    }
    written?;
    Ok(library)
}

/// Removes what commands left half-written that were killed, and libraries of versions that are no
/// longer used.
fn remove_abandoned(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_str().unwrap_or_default();
        let abandoned = match name.strip_prefix(PARTIAL) {
            Some(pid) => !Path::new("/proc").join(pid).exists(),
            None => name.starts_with(LIBRARY) && age(&entry.path()).is_some_and(|age| age > UNUSED),
        };
        if abandoned {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// How long a file was not changed.
fn age(file: &Path) -> Option<Duration> {
    file.metadata().ok()?.modified().ok()?.elapsed().ok()
}

#[cfg(all(test, has_library))]
mod tests {
    use super::*;

    /// Where the library of `path` is for programs of this machine.
    fn here(path: &Path) -> PathBuf {
        PathBuf::from(path.to_str().unwrap().replace(TOKEN, "x86_64"))
    }

    #[test]
    fn it_is_written_once_and_mended_when_damaged() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("hither");
        let path = install(&RECORD_LIBRARY, &folder).unwrap();
        let library = here(&path);
        assert_eq!(fs::read(&library).unwrap(), RECORD_LIBRARY.content);
        fs::write(&library, b"junk").unwrap();
        // By a process that is gone: none has this number.
        fs::write(library.with_file_name(".partial-4194305"), b"half").unwrap();
        assert_eq!(install(&RECORD_LIBRARY, &folder).unwrap(), path);
        assert_ne!(install(&MEMORY_LIBRARY, &folder).unwrap(), path);
        assert_eq!(fs::read(&library).unwrap(), RECORD_LIBRARY.content);
        let files = fs::read_dir(library.parent().unwrap()).unwrap();
        assert_eq!(files.count(), 2, "no partial file stays");
    }

    #[test]
    fn every_platform_has_a_file_of_that_name() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("hither");
        let path = install(&RECORD_LIBRARY, &folder).unwrap();
        let path = path.to_str().unwrap();
        assert!(path.contains(TOKEN), "{path}");
        let at = |platform| fs::read(path.replace(TOKEN, platform)).unwrap();
        for platform in PLATFORMS {
            assert!(at(platform) == RECORD_LIBRARY.content, "{platform}");
        }
        for machine in &MACHINES {
            for platform in machine.platforms {
                assert_eq!(at(platform), empty_library(machine), "{platform}");
            }
        }
        // What leads elsewhere is not believed.
        fs::remove_file(folder.join("haswell")).unwrap();
        symlink("/", folder.join("haswell")).unwrap();
        assert!(install(&RECORD_LIBRARY, &folder).is_err());
    }

    #[test]
    fn the_place_that_is_named_is_the_only_one() {
        assert_eq!(places(Some("/a".into())), [Path::new("/a")]);
        let own = [Path::new("/var/tmp"), Path::new("/tmp")];
        assert_eq!(places(None), own);
        assert_eq!(places(Some("".into())), own);
    }

    #[test]
    fn a_library_that_is_no_longer_used_is_removed() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("hither");
        let ours = here(&install(&RECORD_LIBRARY, &folder).unwrap());
        let other = ours.with_file_name("libhither_preload-0000000000000001.so");
        fs::write(&other, b"of another version").unwrap();
        install(&RECORD_LIBRARY, &folder).unwrap();
        assert!(other.exists(), "it may be in use");
        let long_ago = SystemTime::now() - 2 * UNUSED;
        for library in [&ours, &other] {
            let file = File::options().write(true).open(library).unwrap();
            file.set_modified(long_ago).unwrap();
        }
        install(&RECORD_LIBRARY, &folder).unwrap();
        assert!(!other.exists());
        assert!(age(&ours).unwrap() < DAY, "it was used now");
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
