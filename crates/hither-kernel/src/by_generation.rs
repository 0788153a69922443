//! The page cache of files that the kernel's own events have identified.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

use crate::file_id::{FileId, Inode};
use crate::mapped_files::mapped_inode_of;
use crate::page_cache::{CachedFile, OpenError, Opened, PageCache, ThisPageCache, open_if};
use crate::syscalls;

/// The page cache of this machine. In place of their birth time, files have the generation of their
/// inode, and their device is that of the file system, which Btrfs does not show to programs.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByGeneration;

impl PageCache for ByGeneration {
    fn open(&self, path: &Path, id: FileId) -> Result<Box<dyn CachedFile>, OpenError> {
        Ok(Box::new(Opened::new(open(path, id)?, true)))
    }

    fn readahead_bytes(&self, device: u64) -> u64 {
        ThisPageCache.readahead_bytes(device)
    }
}

/// Opens the file of that inode and generation, which not every file system tells.
fn open(path: &Path, id: FileId) -> Result<File, OpenError> {
    let file = open_if(path, id.inode(), |found| found.inode == id.inode)?;
    let inode = file.metadata().map(|about| Inode::of(&about)).ok();
    let is_there = inode == Some(id.inode()) || mapped_inode_of(&file) == Some(id.inode());
    let generation = syscalls::generation(file.as_raw_fd());
    let is_it = is_there && generation.is_none_or(|found| u64::from(found) == id.birth_ns);
    is_it.then_some(file).ok_or(OpenError::Another)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn another_file_is_not_opened() {
        let folder = tempfile::tempdir_in("/var/tmp").expect("a folder");
        let path = folder.path().join("data");
        fs::write(&path, "x").expect("written");
        let inode = Inode::of(&fs::metadata(&path).expect("it is there"));
        let file = File::open(&path).expect("opened");
        let generation = syscalls::generation(file.as_raw_fd());
        let id = |device, number, generation: u32| FileId {
            device,
            inode: number,
            birth_ns: u64::from(generation),
        };
        let opened = |id| ByGeneration.open(&path, id).map(drop);
        let Inode { device, number } = inode;
        let its = generation.unwrap_or_default();
        assert_eq!(opened(id(device, number, its)), Ok(()));
        assert_eq!(opened(id(device, number + 1, its)), Err(OpenError::Another));
        assert_eq!(opened(id(device + 1, number, its)), Err(OpenError::Another));
        let reused = opened(id(device, number, its.wrapping_add(1)));
        let expected = generation.map_or(Ok(()), |_| Err(OpenError::Another));
        assert_eq!(reused, expected);
        let folder_id = Inode::of(&fs::metadata(folder.path()).expect("it is there"));
        let folder_id = id(folder_id.device, folder_id.number, 0);
        let opened = ByGeneration.open(folder.path(), folder_id).map(drop);
        assert_eq!(opened, Err(OpenError::Another));
    }
}
