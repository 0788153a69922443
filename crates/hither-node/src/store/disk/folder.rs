//! The folder of a disk tier: whose it is, and where in it a file lies.
//!
//! ```text
//! format          what the folder is, and the length of its blocks
//! lock            locked by the process that uses it, whose number is in it
//! journal         which blocks are there
//! files/ab/...    one sparse file for each version of a file, by its key in hexadecimal
//! ```

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, OFlags};

use super::settings::DiskError;
use crate::key::FileKey;

/// What the mark of a folder starts with.
const MARK: &str = "hither disk cache";

/// The mode of a file that was lent. Root, who alone can lend, may still write it.
const LENT_MODE: u32 = 0o400;

/// What the file system allocates is counted in these units.
const SECTOR_BYTES: u64 = 512;

/// The space of a file system that is left to others: one in so many bytes, at most
/// [`RESERVE_BYTES_MAX`].
const RESERVE: u64 = 20;
const RESERVE_BYTES_MAX: u64 = 1 << 30;

/// See the module. Locked while this lives.
#[derive(Debug)]
pub(super) struct Folder {
    root: PathBuf,
    lock: File,
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Not by closing it alone: a child that another thread has just forked holds it until it
        // executes its program.
        let _ = self.lock.unlock();
    }
}

impl Folder {
    /// Takes the folder `root`, for blocks of `block_bytes`: makes it if need be, and empties it if
    /// its blocks have another length.
    pub(super) fn open(root: &Path, block_bytes: u32) -> Result<Folder, DiskError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |error| DiskError::Io { path, error }
        };
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(root).map_err(failed(root))?;
        // The working directory may be another one later.
        let root = &root.canonicalize().map_err(failed(root))?;
        let format = root.join("format");
        let lock = root.join("lock");
        if !format.exists() {
            for entry in fs::read_dir(root).map_err(failed(root))? {
                let name = entry.map_err(failed(root))?.file_name();
                // A new file system has the one; a process that was killed leaves the others.
                if name != "lost+found" && name != "lock" && name != "format.new" {
                    return Err(DiskError::Foreign(root.to_owned()));
                }
            }
        }
        let found = match fs::read(&format) {
            Ok(found) if !found.starts_with(MARK.as_bytes()) => {
                return Err(DiskError::Foreign(root.to_owned()));
            }
            Ok(found) => Some(String::from_utf8_lossy(&found).into_owned()),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(failed(&format)(error)),
        };
        let folder = Folder {
            lock: take_lock(root, &lock)?,
            root: root.to_owned(),
        };
        let expected = format!("{MARK}, format 1, blocks of {block_bytes} bytes\n");
        if found.as_ref() != Some(&expected) {
            if let Some(found) = found {
                let (root, found) = (root.display(), found.trim());
                tracing::warn!("{root}: starts afresh: it was a {found}");
            }
            folder.clear().map_err(failed(root))?;
            write_synced(&format, &expected).map_err(failed(&format))?;
        }
        Ok(folder)
    }

    /// Removes all blocks.
    fn clear(&self) -> io::Result<()> {
        let gone = |result: io::Result<()>| match result {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            result => result,
        };
        gone(fs::remove_file(self.journal()))?;
        gone(fs::remove_dir_all(self.root.join("files")))
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.root
    }

    /// Where the journal is.
    pub(super) fn journal(&self) -> PathBuf {
        self.root.join("journal")
    }

    fn file(&self, file: FileKey) -> PathBuf {
        let name = format!("{:032x}", file.0);
        self.root.join("files").join(&name[..2]).join(name)
    }

    /// Opens a file for reading. Whatever else lies in its place is an error now or at the read.
    pub(super) fn open_to_read(&self, file: FileKey) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(flags());
        options.open(self.file(file))
    }

    /// Opens a file for writing, and makes it if need be.
    pub(super) fn open_to_write(&self, file: FileKey) -> io::Result<File> {
        let path = self.file(file);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        options.mode(0o600).custom_flags(flags());
        match options.open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                if let Some(parent) = path.parent() {
                    let mut builder = DirBuilder::new();
                    builder.recursive(true).mode(0o700).create(parent)?;
                }
                options.open(&path)
            }
            result => result,
        }
    }

    /// Opens a file that programs may read and map as it lies there. It gets no holes from then on,
    /// in later runs neither: a mapping may outlive both its file handle and this process.
    pub(super) fn lend(&self, file: FileKey) -> io::Result<File> {
        let file = self.open_to_read(file)?;
        file.set_permissions(Permissions::from_mode(LENT_MODE))?;
        Ok(file)
    }

    /// Gives back what a range of a file takes. An error for a file that was lent: it can only be
    /// removed, which leaves its bytes to those who have it open.
    pub(super) fn punch(&self, file: FileKey, offset: u64, bytes: u64) -> io::Result<()> {
        let file = self.open_to_write(file)?;
        if file.metadata()?.mode() & 0o777 == LENT_MODE {
            return Err(ErrorKind::Unsupported.into());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(&file, flags, offset, bytes)?)
    }

    /// Removes a file.
    pub(super) fn remove(&self, file: FileKey) -> io::Result<()> {
        fs::remove_file(self.file(file))
    }

    /// The files that are there, with what they take on the disk. Whatever else is there is none of
    /// ours.
    pub(super) fn files(&self) -> impl Iterator<Item = (FileKey, u64)> + use<> {
        let folders = fs::read_dir(self.root.join("files")).into_iter().flatten();
        let entries = folders
            .flatten()
            .filter_map(|folder| fs::read_dir(folder.path()).ok());
        entries.flatten().flatten().filter_map(|entry| {
            let name = entry.file_name();
            let name = name.to_str().filter(|name| name.len() == 32)?;
            let key = u128::from_str_radix(name, 16).ok()?;
            // The metadata of the entry itself, not of what a link leads to.
            let metadata = entry.metadata().ok()?;
            let bytes = metadata.blocks() * SECTOR_BYTES;
            metadata.is_file().then_some((FileKey(key), bytes))
        })
    }

    /// How much more may be written, or less there must be: what is free, less what is left to
    /// others.
    pub(super) fn spare_bytes(&self) -> io::Result<i64> {
        let status = rustix::fs::statvfs(&self.root)?;
        let all = status.f_blocks.saturating_mul(status.f_frsize);
        let free = status.f_bavail.saturating_mul(status.f_frsize);
        let reserve = (all / RESERVE).min(RESERVE_BYTES_MAX);
        Ok(free.min(i64::MAX as u64) as i64 - reserve as i64)
    }
}

/// Nothing that lies in a file's place is followed or waited for.
fn flags() -> i32 {
    (OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC).bits() as i32
}

/// Writes a file that a power cut leaves whole, or leaves out.
fn write_synced(path: &Path, text: &str) -> io::Result<()> {
    let beside = path.with_extension("new");
    let mut file = File::create(&beside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&beside, path)
}

/// Locks the folder for this process.
fn take_lock(root: &Path, path: &Path) -> Result<File, DiskError> {
    let failed = |error| DiskError::Io {
        path: path.to_owned(),
        error,
    };
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    let mut file = options.mode(0o600).open(path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            let _ = file.read_to_string(&mut holder);
            let holder = match holder.trim() {
                "" => "(unknown)".to_owned(),
                holder => holder.to_owned(),
            };
            let folder = root.to_owned();
            return Err(DiskError::InUse { folder, holder });
        }
        Err(TryLockError::Error(error)) => return Err(failed(error)),
    }
    file.set_len(0).map_err(failed)?;
    writeln!(file, "{}", std::process::id()).map_err(failed)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_one_user_and_nothing_foreign() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("a/b");
        let folder = Folder::open(&root, 4096).unwrap();
        let error = Folder::open(&root, 4096).unwrap_err().to_string();
        let expected = format!("process {} uses this disk cache", std::process::id());
        assert!(error.ends_with(&expected), "{error}");
        drop(folder);
        Folder::open(&root, 4096).unwrap();
        // What has no mark of ours is not touched.
        let other = place.path().join("other");
        fs::create_dir_all(other.join("files")).unwrap();
        let error = Folder::open(&other, 4096).unwrap_err();
        assert!(matches!(error, DiskError::Foreign(_)), "{error}");
        fs::write(other.join("format"), "of a book").unwrap();
        let error = Folder::open(&other, 4096).unwrap_err();
        assert!(matches!(error, DiskError::Foreign(_)), "{error}");
        assert!(other.join("files").exists());
    }

    #[test]
    fn another_length_of_blocks_starts_afresh() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::open(place.path(), 4096).unwrap();
        folder.open_to_write(FileKey(7)).unwrap();
        assert_eq!(folder.files().collect::<Vec<_>>(), [(FileKey(7), 0)]);
        drop(folder);
        let folder = Folder::open(place.path(), 4096).unwrap();
        assert_eq!(folder.files().count(), 1);
        drop(folder);
        let folder = Folder::open(place.path(), 8192).unwrap();
        assert_eq!(folder.files().count(), 0);
    }
}
