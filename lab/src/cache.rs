//! The cache's folder: QEMU and the kernel, compiled programs, snapshots.
//!
//! An entry with its final name is complete: it is made under a temporary name, under a lock, and
//! then renamed. So a killed run, a full disk or two labs at once leave no partial entry. The next
//! holder of the lock removes what a killed run left under a temporary name.

use std::fs::{self, File, FileTimes, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};

use crate::interrupt;

/// Limit on the snapshots together: some forty machines, since one of two nodes takes 90 MB
/// (2026-11).
const SNAPSHOT_BYTES_MAX: u64 = 4 << 30;

/// A snapshot used within this time is left alone: another lab may be about to resume from it.
const SNAPSHOT_IN_USE_AGE: Duration = Duration::from_secs(3600);

/// Prefix of the snapshots' names. The oldest snapshots are removed beyond the limit.
pub(crate) const SNAPSHOT: &str = "snapshot-";

/// Prefix of the unpacked packages' names. Only `clean --all` removes these.
pub(crate) const TOOLS: &str = "qemu-";

/// Prefix of the names of root file systems of packages, likewise.
pub(crate) const PACKAGES: &str = "packages-";

const LOCK_NAME: &str = "lock";
const PARTIAL_SUFFIX: &str = ".partial";

/// The folder.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    folder: PathBuf,
}

impl Cache {
    /// `$HITHER_LAB_CACHE`, else `hither-lab` in the user's cache; made where it is not there.
    pub(crate) fn open() -> Result<Self> {
        let variable = |name: &str| {
            std::env::var_os(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        let folder = variable("HITHER_LAB_CACHE")
            .or_else(|| Some(variable("XDG_CACHE_HOME")?.join("hither-lab")))
            .or_else(|| Some(variable("HOME")?.join(".cache/hither-lab")))
            .context("no folder for the lab's cache: set HITHER_LAB_CACHE")?;
        Self::at(&folder)
    }

    /// The cache in `folder`.
    pub(crate) fn at(folder: &Path) -> Result<Self> {
        // QEMU runs in a folder of its own, and its loader takes a list of folders.
        let folder = std::path::absolute(folder).with_context(|| folder.display().to_string())?;
        ensure!(
            !folder.as_os_str().as_encoded_bytes().contains(&b':'),
            "the cache {}: its path must have no colon (HITHER_LAB_CACHE names another)",
            folder.display()
        );
        fs::create_dir_all(&folder).with_context(|| {
            format!(
                "the cache {} (HITHER_LAB_CACHE names another)",
                folder.display()
            )
        })?;
        Ok(Self { folder })
    }

    /// Where it is.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The file or folder `name`, made by `make` at the path given to it where the cache has none.
    pub(crate) fn entry(
        &self,
        name: &str,
        make: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        let path = self.folder.join(name);
        if path.exists() {
            return Ok(path);
        }
        let _lock = self.lock()?;
        if path.exists() {
            return Ok(path);
        }
        let partial = self.folder.join(PARTIAL_SUFFIX);
        remove(&partial)?;
        let made = make(&partial)
            .and_then(|()| fs::rename(&partial, &path).with_context(|| path.display().to_string()));
        if made.is_err() {
            // The first error is the cause: report that one.
            let _ = remove(&partial);
        }
        made?;
        self.trim(SNAPSHOT_BYTES_MAX)?;
        Ok(path)
    }

    /// Marks an entry as just used, so that [`Self::entry`] does not remove it.
    pub(crate) fn touch(path: &Path) {
        // Without permission to do so, the entry only looks older than it is.
        let _ = File::open(path)
            .and_then(|file| file.set_times(FileTimes::new().set_modified(SystemTime::now())));
    }

    /// Removes all but the tools, or everything; the bytes that were freed.
    pub(crate) fn clean(&self, tools_too: bool) -> Result<u64> {
        let _lock = self.lock()?;
        let mut freed = 0;
        for path in self.entries()? {
            let name = file_name(&path);
            let fetched = name.starts_with(TOOLS) || name.starts_with(PACKAGES);
            if name != LOCK_NAME && (tools_too || !fetched) {
                freed += bytes(&path)?;
                remove(&path)?;
            }
        }
        Ok(freed)
    }

    /// Removes the snapshots that were not used for longest, until the rest have `bytes_max` bytes
    /// at most. The caller holds the lock.
    fn trim(&self, bytes_max: u64) -> Result<()> {
        let mut snapshots = Vec::new();
        for path in self.entries()? {
            if file_name(&path).starts_with(SNAPSHOT) {
                let about = fs::metadata(&path).with_context(|| path.display().to_string())?;
                snapshots.push((about.modified()?, about.len(), path));
            }
        }
        snapshots.sort();
        let mut total: u64 = snapshots.iter().map(|(_, bytes, _)| bytes).sum();
        for (used, bytes, path) in snapshots {
            if total <= bytes_max
                || used
                    .elapsed()
                    .is_ok_and(|since| since < SNAPSHOT_IN_USE_AGE)
            {
                break;
            }
            remove(&path)?;
            total -= bytes;
        }
        Ok(())
    }

    fn entries(&self) -> Result<Vec<PathBuf>> {
        let place = || self.folder.display().to_string();
        let mut paths: Vec<PathBuf> = fs::read_dir(&self.folder)
            .with_context(place)?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<io::Result<_>>()
            .with_context(place)?;
        paths.sort();
        Ok(paths)
    }

    /// Held until the file is dropped.
    fn lock(&self) -> Result<File> {
        let path = self.folder.join(LOCK_NAME);
        let place = || {
            format!(
                "the cache's {} (HITHER_LAB_CACHE names another)",
                path.display()
            )
        };
        let file = File::create(&path).with_context(place)?;
        let mut waited = false;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::Error(error)) => return Err(error).with_context(place),
                Err(TryLockError::WouldBlock) => {
                    if !waited {
                        eprintln!(
                            "waiting for another lab that adds to the cache {}",
                            self.folder.display()
                        );
                        waited = true;
                    }
                    interrupt::check()?;
                    std::thread::sleep(Duration::from_millis(100));
                }
            }
        }
    }
}

fn file_name(path: &Path) -> &str {
    path.file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default()
}

/// Removes a file or a folder, if it is there.
fn remove(path: &Path) -> Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(about) if about.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// The bytes of a file, or of all files below a folder.
fn bytes(path: &Path) -> Result<u64> {
    let place = || path.display().to_string();
    let about = fs::symlink_metadata(path).with_context(place)?;
    if !about.is_dir() {
        return Ok(about.len());
    }
    let mut total = 0;
    for entry in fs::read_dir(path).with_context(place)? {
        total += bytes(&entry.with_context(place)?.path())?;
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use anyhow::bail;

    use super::*;

    fn names(cache: &Cache) -> Vec<String> {
        let paths = cache.entries().unwrap();
        paths
            .iter()
            .map(|path| file_name(path).to_owned())
            .collect()
    }

    #[test]
    fn an_entry_is_made_once_and_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(&folder.path().join("new/cache")).unwrap();
        let made = Cell::new(0);
        let make = |path: &Path| {
            made.set(made.get() + 1);
            fs::create_dir(path)?;
            Ok(fs::write(path.join("file"), "whole")?)
        };
        let failed = cache.entry("thing", |path| {
            fs::create_dir(path)?;
            fs::write(path.join("half"), "ha")?;
            bail!("cut off")
        });
        assert_eq!(failed.unwrap_err().to_string(), "cut off");
        assert_eq!(names(&cache), [LOCK_NAME]);
        // The rest of a killed process does not get in the way.
        fs::create_dir_all(cache.folder().join(".partial/file")).unwrap();
        for _ in 0..2 {
            let path = cache.entry("thing", make).unwrap();
            assert_eq!(fs::read(path.join("file")).unwrap(), b"whole");
        }
        assert_eq!(made.get(), 1);
        assert_eq!(names(&cache), [LOCK_NAME, "thing"]);
    }

    #[test]
    fn the_oldest_snapshots_go_first_but_none_in_use() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path()).unwrap();
        for (name, hours) in [
            ("qemu-10", 9),
            ("snapshot-a", 4),
            ("snapshot-b", 3),
            ("snapshot-c", 0),
        ] {
            let path = cache.folder().join(name);
            fs::write(&path, [0; 10]).unwrap();
            let used = SystemTime::now() - hours * SNAPSHOT_IN_USE_AGE;
            let times = FileTimes::new().set_modified(used);
            File::options()
                .write(true)
                .open(&path)
                .unwrap()
                .set_times(times)
                .unwrap();
        }
        cache.trim(30).unwrap();
        assert_eq!(
            names(&cache),
            ["qemu-10", "snapshot-a", "snapshot-b", "snapshot-c"]
        );
        cache.trim(25).unwrap();
        assert_eq!(names(&cache), ["qemu-10", "snapshot-b", "snapshot-c"]);
        Cache::touch(&cache.folder().join("snapshot-b"));
        cache.trim(0).unwrap();
        assert_eq!(names(&cache), ["qemu-10", "snapshot-b", "snapshot-c"]);
    }

    #[test]
    fn cleaning_leaves_the_tools() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path()).unwrap();
        for name in ["qemu-10", "programs-1", ".partial"] {
            fs::create_dir(cache.folder().join(name)).unwrap();
            fs::write(cache.folder().join(name).join("file"), [0; 5]).unwrap();
        }
        assert_eq!(cache.clean(false).unwrap(), 10);
        assert_eq!(names(&cache), [LOCK_NAME, "qemu-10"]);
        assert_eq!(cache.clean(true).unwrap(), 5);
        assert_eq!(names(&cache), [LOCK_NAME]);
    }

    #[test]
    fn a_path_that_a_loader_would_cut_is_refused() {
        let error = Cache::at(Path::new("/tmp/a:b")).unwrap_err().to_string();
        assert!(error.contains("no colon"), "{error}");
    }
}
