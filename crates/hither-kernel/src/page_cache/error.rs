//! Why the kernel refuses to drop pages of a file, or to say which are cached.

use std::fmt;
use std::io;

/// Why the kernel did not drop or say what is cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageCacheError {
    /// The kernel lacks the call (ENOSYS): `cachestat` came with Linux 6.5.
    NoCall,
    /// Not for this file (EOPNOTSUPP of hugetlbfs, ESPIPE, EINVAL, EBADF).
    NotThis,
    /// Not for this user (EPERM): some kernels answer only those who may write the file.
    NotPermitted,
    /// Another error number.
    Other(i32),
}

impl PageCacheError {
    pub(crate) fn from_errno(error: i32) -> PageCacheError {
        match error {
            libc::ENOSYS => PageCacheError::NoCall,
            libc::EOPNOTSUPP | libc::ESPIPE | libc::EINVAL | libc::EBADF => PageCacheError::NotThis,
            libc::EPERM | libc::EACCES => PageCacheError::NotPermitted,
            error => PageCacheError::Other(error),
        }
    }
}

impl fmt::Display for PageCacheError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PageCacheError::NoCall => "this kernel does not have it, or a container hides it",
            PageCacheError::NotThis => "not for a file of this kind",
            PageCacheError::NotPermitted => "not permitted",
            PageCacheError::Other(error) => return io::Error::from_raw_os_error(*error).fmt(f),
        })
    }
}
