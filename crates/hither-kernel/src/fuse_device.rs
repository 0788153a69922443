//! /dev/fuse, through which a file system in a program gets its requests.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// linux/fuse.h: has a descriptor serve the mount of another one, with a queue of its own.
const IOC_CLONE: u64 = 0x8004_e500;

/// Whether the open `device` can be given a mount that another descriptor serves. Linux can, since
/// 4.2; QEMU's user mode does not pass the request on.
pub fn can_clone(device: BorrowedFd<'_>) -> bool {
    // No descriptor has this number: whoever knows the request refuses the number.
    let of: u32 = u32::MAX;
    // SAFETY: the request reads an integer of this size, which outlives the call.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), IOC_CLONE, &raw const of) };
    let is_unknown = || {
        let error = io::Error::last_os_error().raw_os_error();
        matches!(error, Some(libc::ENOTTY | libc::ENOSYS))
    };
    result == 0 || !is_unknown()
}

#[cfg(test)]
mod tests {
    use std::fs::{File, OpenOptions};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn linux_clones_the_device_and_nothing_else() {
        assert!(!can_clone(File::open("/dev/null").unwrap().as_fd()));
        let device = OpenOptions::new().read(true).write(true).open("/dev/fuse");
        match device {
            Ok(device) => assert!(can_clone(device.as_fd())),
            Err(error) => hither_testing::skip::skip_on_this_machine(error),
        }
    }
}
