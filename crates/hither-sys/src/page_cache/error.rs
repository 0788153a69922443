//! Why the kernel refuses to drop pages of a file, or to say which are cached.

use std::fmt;
use std::io;

/// Why the kernel did not drop or say what is cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The kernel lacks the call (ENOSYS): `cachestat` came with Linux 6.5.
    NoCall,
    /// Not for this file (EOPNOTSUPP of hugetlbfs, ESPIPE, EINVAL, EBADF).
    NotThis,
    /// Not for this user (EPERM): some kernels tell of a page cache only those who may write the
    /// file.
    NotPermitted,
    /// Another error number.
    Other(i32),
}

impl Refused {
    pub(crate) fn from_errno(error: i32) -> Refused {
        match error {
            libc::ENOSYS => Refused::NoCall,
            libc::EOPNOTSUPP | libc::ESPIPE | libc::EINVAL | libc::EBADF => Refused::NotThis,
            libc::EPERM | libc::EACCES => Refused::NotPermitted,
            error => Refused::Other(error),
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refused::NoCall => "this kernel does not have it, or a container hides it",
            Refused::NotThis => "not for a file of this kind",
            Refused::NotPermitted => "not permitted",
            Refused::Other(error) => return io::Error::from_raw_os_error(*error).fmt(f),
        })
    }
}
