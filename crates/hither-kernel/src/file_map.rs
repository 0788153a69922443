//! Pages of files by address. The kernel moves pages, and reports where they are, only by addresses
//! of a process; page cache pages that no process has mapped have none. So the agent maps a range
//! of a file for as long as it needs it, and has the cached part entered into its page tables.
//!
//! A page that only this process has mapped is moved by `MPOL_MF_MOVE` like one of its own, without
//! any privilege (`add_folio_for_migration`, 6.12). A page that a program has mapped, too, is not.
//!
//! Nothing is touched: pages are entered by a call (`MADV_POPULATE_READ`, Linux 5.14), which fails
//! if the file was truncated meanwhile, where a touch would raise SIGBUS. The call reads in what is
//! not cached, so the caller first checks which part is. `MADV_RANDOM` keeps the kernel from
//! reading ahead, and from marking the pages as used when they are unmapped (`vma_has_recency`).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use hither_ids::Address;

use crate::page_cache::error::PageCacheError;

/// A range of a file, mapped for reading.
#[derive(Debug)]
pub struct FileMap {
    base: *mut libc::c_void,
    bytes: usize,
    /// Its offset in the file.
    offset: u64,
}

// SAFETY: the mapping is not tied to a thread, and nothing is read or written through it.
unsafe impl Send for FileMap {}

fn last_error() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

impl FileMap {
    /// Maps `length` bytes from `offset` on, both whole pages.
    pub fn new(file: &File, offset: u64, length: u64) -> Result<FileMap, PageCacheError> {
        let (Ok(start), Ok(bytes)) = (i64::try_from(offset), usize::try_from(length)) else {
            return Err(PageCacheError::NotThis);
        };
        let (nobody, fd) = (std::ptr::null_mut(), file.as_raw_fd());
        // SAFETY: a new mapping, where the kernel likes.
        let base =
            unsafe { libc::mmap(nobody, bytes, libc::PROT_READ, libc::MAP_SHARED, fd, start) };
        if base == libc::MAP_FAILED {
            return Err(PageCacheError::from_errno(last_error()));
        }
        // If it is refused pages count as used, which they were.
        // SAFETY: the range is the mapping's, and the advice changes nothing that is in it.
        unsafe { libc::madvise(base, bytes, libc::MADV_RANDOM) };
        Ok(FileMap {
            base,
            bytes,
            offset,
        })
    }

    /// The address of a byte of the file, within the range.
    pub fn address(&self, offset: u64) -> Address {
        Address(self.base.addr() as u64 + (offset - self.offset))
    }

    /// Enters a part of the range, whole pages that are cached, into the page tables.
    ///
    /// # Panics
    /// If it is not a part of the range.
    pub fn enter(&self, offset: u64, length: u64) -> Result<(), PageCacheError> {
        let inside = offset >= self.offset && offset + length <= self.offset + self.bytes as u64;
        assert!(inside, "{length} bytes at {offset} of {self:?}");
        let start = self.base.wrapping_byte_add((offset - self.offset) as usize);
        // SAFETY: the range lies in the mapping, which is for reading; the call reads in pages, and
        // writes none.
        let result = unsafe { libc::madvise(start, length as usize, libc::MADV_POPULATE_READ) };
        match result {
            0 => Ok(()),
            _ => Err(match last_error() {
                // Kernels before 5.14 answer this to an unknown advice.
                libc::EINVAL => PageCacheError::NoCall,
                // Truncated meanwhile.
                libc::EFAULT => PageCacheError::NotThis,
                error => PageCacheError::from_errno(error),
            }),
        }
    }
}

impl Drop for FileMap {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new`, and nothing refers to it.
        unsafe { libc::munmap(self.base, self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use hither_testing::skip::skip_on_this_machine;
    use std::io::Write;

    use hither_ids::Pid;

    use super::*;
    use crate::machine::{Machine, PageState, ThisMachine};
    use crate::page_bytes;

    /// The nodes of the pages of a range, by a mapping of it.
    fn states(map: &FileMap, offset: u64, pages: u64) -> Option<Vec<PageState>> {
        let page = page_bytes();
        let addresses = (0..pages).map(|at| map.address(offset + at * page));
        let (mut states, addresses) = (Vec::new(), addresses.collect::<Vec<_>>());
        match ThisMachine.move_pages(Pid(0), &addresses, None, &mut states) {
            Ok(()) => Some(states),
            Err(refusal) => {
                skip_on_this_machine(format_args!("move_pages: {refusal}"));
                None
            }
        }
    }

    #[test]
    fn what_is_cached_has_addresses_and_can_be_asked_after_and_moved() {
        let page = page_bytes();
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&vec![7; 16 * page as usize])
            .expect("written");
        let map = FileMap::new(&file, 4 * page, 8 * page).expect("mapped");
        let Some(before) = states(&map, 4 * page, 8) else {
            return;
        };
        assert_eq!(before, [PageState::Absent; 8], "nothing is touched");
        match map.enter(6 * page, 2 * page) {
            Err(PageCacheError::NoCall) => return skip_on_this_machine("MADV_POPULATE_READ"),
            entered => entered.expect("entered"),
        }
        let after = states(&map, 4 * page, 8).expect("as before");
        let there = |at: usize| matches!(after[at], PageState::On(_));
        assert!(there(2) && there(3), "{after:?}");
        // To where they are: what another node's page answers is for a machine that has one.
        let PageState::On(node) = after[2] else {
            unreachable!()
        };
        let mut moved = Vec::new();
        let to_move = [map.address(6 * page), map.address(7 * page)];
        ThisMachine
            .move_pages(Pid(0), &to_move, Some(node), &mut moved)
            .expect("it may move its own");
        assert_eq!(moved[0], PageState::On(node));
    }

    #[test]
    fn a_file_that_was_cut_is_an_error_and_no_signal() {
        let page = page_bytes();
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&vec![7; 4 * page as usize])
            .expect("written");
        let map = FileMap::new(&file, 0, 4 * page).expect("mapped");
        file.set_len(page).expect("cut");
        let entered = map.enter(2 * page, page);
        assert!(
            matches!(
                entered,
                Err(PageCacheError::NotThis | PageCacheError::NoCall)
            ),
            "{entered:?}"
        );
        assert!(FileMap::new(&file, 1, page).is_err(), "no whole page");
    }
}
