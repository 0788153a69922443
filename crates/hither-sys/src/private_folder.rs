//! Folders in places where anybody may make one: `/tmp`, a runtime directory.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::Path;

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
    match ours {
        true => Ok(()),
        false => Err(io::Error::other(
            "it is not a folder that only this user can write; remove it or set TMPDIR",
        )),
    }
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
}
