//! Folders in places where anybody may make one: `/tmp`, a runtime directory.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use hither_ids::Pid;

/// The number of this process's user. An error without /proc.
pub fn user() -> io::Result<u32> {
    Ok(fs::metadata("/proc/self")?.uid())
}

/// Makes a folder of this mode if it does not exist. An error if it belongs to another user, who
/// may have made one of that name first, is a link, or gives more rights than the mode.
pub fn create(folder: &Path, mode: u32) -> io::Result<()> {
    match DirBuilder::new().mode(mode).create(folder) {
        Ok(()) => fs::set_permissions(folder, Permissions::from_mode(mode))?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    let found = fs::symlink_metadata(folder)?;
    let ours = found.is_dir() && found.uid() == user()? && found.mode() & 0o777 & !mode == 0;
    if ours {
        Ok(())
    } else {
        Err(io::Error::other(
            "it is not a folder that only this user can write; remove it or set TMPDIR",
        ))
    }
}

/// The folder `name` of this user in `parent`, of at most this mode. Where another user has made
/// one of that name first, it is another one, whose name begins so; each call finds the same.
///
/// # Errors
/// None can be made.
pub fn own(parent: &Path, name: &str, mode: u32) -> io::Result<PathBuf> {
    let folder = parent.join(name);
    let Err(error) = create(&folder, mode) else {
        return Ok(folder);
    };
    // What is there and not fit for use is another's, or open to others.
    if fs::symlink_metadata(&folder).is_err() {
        return Err(error);
    }
    let find = || others(parent, name).find(|folder| create(folder, mode).is_ok());
    if let Some(folder) = find() {
        return Ok(folder);
    }
    let nonce = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let nonce = nonce.unwrap_or_default().as_nanos() ^ u128::from(Pid::own().0) << 64;
    create(&parent.join(format!("{name}.{nonce:x}")), mode)?;
    // Another process may have made one in the same moment: both take the first.
    find().ok_or(error)
}

/// The folders of this user in `parent` that are there in place of `name`, sorted.
fn others(parent: &Path, name: &str) -> impl Iterator<Item = PathBuf> {
    let start = format!("{name}.");
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let entries = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&start));
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    folders.sort();
    folders.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_folder_of_our_own_will_do() {
        let scratch = tempfile::tempdir().expect("a folder");
        for (mode, too_open) in [(0o700, 0o755), (0o755, 0o777), (0o755, 0o775)] {
            let folder = scratch.path().join(format!("{mode:o}-{too_open:o}"));
            create(&folder, mode).expect("made");
            create(&folder, mode).expect("there");
            fs::set_permissions(&folder, Permissions::from_mode(too_open)).expect("set");
            assert!(create(&folder, mode).is_err(), "open to others");
        }
        let link = scratch.path().join("link");
        std::os::unix::fs::symlink(scratch.path(), &link).expect("linked");
        assert!(create(&link, 0o755).is_err(), "leads elsewhere");
        assert!(create(&scratch.path().join("no/where"), 0o700).is_err());
    }

    #[test]
    fn a_name_that_another_user_has_taken_stops_nobody() {
        let scratch = tempfile::tempdir().expect("a folder");
        let folder = || own(scratch.path(), "hither-7", 0o700).expect("a folder");
        // What is no folder of ours alone is as good as another user's.
        fs::write(scratch.path().join("hither-7"), "").expect("written");
        let first = folder();
        assert_ne!(first, scratch.path().join("hither-7"));
        assert_eq!(folder(), first, "found again");
        fs::set_permissions(&first, Permissions::from_mode(0o777)).expect("set");
        let second = folder();
        assert_ne!(second, first);
        assert_eq!(folder(), second);
        fs::remove_file(scratch.path().join("hither-7")).expect("removed");
        assert_eq!(folder(), scratch.path().join("hither-7"));
        assert!(own(&scratch.path().join("nowhere"), "hither-7", 0o700).is_err());
    }
}
