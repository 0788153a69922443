//! The page map of a process, /proc/PID/pagemap, and its scan (Linux 6.7).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use hither_ids::{Address, Pid};

use crate::page_bytes;

/// linux/fs.h: the scan of the page map.
const IOC_PAGEMAP_SCAN: u64 = 0xc060_6610;
const SCAN_WRITE_PROTECT: u64 = 1 << 0;
const SCAN_CHECK_ASYNC: u64 = 1 << 1;
const PAGE_IS_WRITTEN: u64 = 1 << 1;
const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_ZERO: u64 = 1 << 5;
const PAGE_IS_HUGE: u64 = 1 << 6;

#[repr(C)]
#[derive(Default)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    regions: u64,
    regions_count: u64,
    pages_max: u64,
    inverted: u64,
    wanted: u64,
    any_of: u64,
    returned: u64,
}

#[repr(C)]
#[derive(Default)]
struct ScanRegion {
    start: u64,
    end: u64,
    categories: u64,
}

/// The error number of the last call that failed.
pub(crate) fn last_errno() -> i32 {
    io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(libc::EIO)
}

/// Opens the page map of a process; the error number where that fails.
pub(crate) fn open(pid: Pid) -> Result<File, i32> {
    let file = File::open(format!("/proc/{pid}/pagemap"));
    file.map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))
}

/// Whether a page is mapped as a part of a huge page.
pub(crate) fn is_huge(page_map: &File, start: Address) -> Result<bool, i32> {
    let mut found = ScanRegion::default();
    let found_count = scan(
        page_map,
        Scan {
            start: start.0,
            end: start.0 + page_bytes(),
            regions: (&raw mut found) as u64,
            regions_count: 1,
            wanted: PAGE_IS_HUGE,
            returned: PAGE_IS_HUGE,
            ..Scan::default()
        },
    )?;
    Ok(found_count > 0)
}

/// Whether each of these pages of a process is; no where nobody can tell.
pub(crate) fn are_huge(pid: Pid, addresses: &[Address]) -> Vec<bool> {
    let page_map = open(pid).ok();
    let is_huge = |&address: &Address| {
        let page = address.page_start(page_bytes());
        page_map
            .as_ref()
            .is_some_and(|page_map| is_huge(page_map, page) == Ok(true))
    };
    addresses.iter().map(is_huge).collect()
}

/// Write-protects the pages of a range that are there, are not protected yet, and are not huge. The
/// range is registered with a userfaultfd for that.
pub(crate) fn protect(page_map: &File, start: Address, length: u64) -> Result<(), i32> {
    let marks = Scan {
        flags: SCAN_WRITE_PROTECT | SCAN_CHECK_ASYNC,
        start: start.0,
        end: start.0 + length,
        inverted: PAGE_IS_HUGE | PAGE_IS_ZERO,
        wanted: PAGE_IS_PRESENT | PAGE_IS_WRITTEN | PAGE_IS_HUGE | PAGE_IS_ZERO,
        ..Scan::default()
    };
    scan(page_map, marks).map(drop)
}

/// How many regions were found.
fn scan(page_map: &File, mut scan: Scan) -> Result<u32, i32> {
    scan.size = size_of::<Scan>() as u64;
    // SAFETY: the request reads and writes one `Scan`, and as many regions at its pointer as it
    // says, which the callers above keep there.
    let result = unsafe { libc::ioctl(page_map.as_raw_fd(), IOC_PAGEMAP_SCAN, &raw mut scan) };
    u32::try_from(result).map_err(|_| last_errno())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_pages_are_told_from_small_ones() {
        const HUGE: usize = 2 << 20;
        // SAFETY: a new mapping of no file, where the kernel likes.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                2 * HUGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(at, libc::MAP_FAILED);
        let huge = (at as usize).next_multiple_of(HUGE);
        // SAFETY: the huge page lies within the mapping, and the advice changes no contents.
        unsafe { libc::madvise(huge as *mut libc::c_void, HUGE, libc::MADV_HUGEPAGE) };
        // SAFETY: the byte is in the mapping, and nobody else's.
        unsafe { *(huge as *mut u8) = 1 };
        let small = [0_u8; 1];
        let addresses = [huge as u64 + 8192, small.as_ptr() as u64].map(Address);
        let found = are_huge(Pid::own(), &addresses);
        assert!(!found[1]);
        let thp = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
        let enabled = thp.is_ok_and(|thp| !thp.contains("[never]"));
        println!("huge pages are enabled: {enabled}, found: {}", found[0]);
        assert!(enabled || !found[0]);
        assert_eq!(are_huge(Pid(u32::MAX), &addresses), [false; 2]);
        // SAFETY: the mapping is ours, and nothing points to it any more.
        unsafe { libc::munmap(at, 2 * HUGE) };
    }
}
