//! Which cgroup is observed.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::error::Error;
use crate::mounts::Mounts;

/// A cgroup, with all that are below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cgroup {
    /// The kernel's number of it, which is the inode of its folder.
    pub(crate) id: u64,
    /// Whether it is one of the memory controller in the first version's hierarchies.
    pub(crate) is_memory_hierarchy: bool,
}

impl Cgroup {
    /// The cgroup of this folder. Of the first version's hierarchies, only the memory controller's
    /// can be observed.
    pub fn at(path: &Path) -> Result<Cgroup, Error> {
        let read = |source| Error::Read {
            path: path.display().to_string(),
            source,
        };
        let full = fs::canonicalize(path).map_err(read)?;
        let id = fs::metadata(&full).map_err(read)?.ino();
        let mounts = Mounts::read()?;
        let of_memory = |options: &str| options.split(',').any(|option| option == "memory");
        let is_memory_hierarchy = match mounts.of(&full) {
            Some(mount) if mount.kind == "cgroup2" => false,
            Some(mount) if mount.kind == "cgroup" && of_memory(&mount.options) => true,
            _ => return Err(Error::NoCgroup(path.display().to_string())),
        };
        Ok(Cgroup {
            id,
            is_memory_hierarchy,
        })
    }
}
