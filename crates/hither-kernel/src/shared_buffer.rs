//! A buffer that two processes share: one makes it and passes its descriptor on, both map it.
//!
//! It is a memfd that can neither shrink nor grow, so that no access to it ends in a SIGBUS. The
//! other process may write to it at any time. So no reference to its bytes is ever made: they are
//! copied in and out, and what is copied out is only as good as the two sides' agreement on turns.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::syscalls;

/// See the module. Unmapped when dropped.
#[derive(Debug)]
pub struct SharedBuffer {
    /// Its address, with exposed provenance.
    start: usize,
    bytes: usize,
}

impl SharedBuffer {
    /// A new buffer of zeroes, and the descriptor to pass on.
    ///
    /// # Errors
    /// What the system says: no memory, no descriptors.
    pub fn create(bytes: usize) -> io::Result<(SharedBuffer, OwnedFd)> {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: the name is a C string.
        let fd = unsafe { libc::memfd_create(c"hither".as_ptr(), flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call has just made the descriptor, and nobody else has it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let length = libc::off_t::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: the call takes no memory.
        if unsafe { libc::ftruncate(fd.as_raw_fd(), length) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: the command takes a number.
        if unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, seals) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((SharedBuffer::map(fd.as_fd(), bytes)?, fd))
    }

    /// The buffer of `bytes` that another process has made.
    ///
    /// # Errors
    /// It is shorter, or can be made so; or what the system says.
    pub fn map(fd: BorrowedFd<'_>, bytes: usize) -> io::Result<SharedBuffer> {
        // SAFETY: the command takes no memory.
        let seals = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) };
        // A file that has no seals has no fixed length either.
        if seals < 0 || seals & libc::F_SEAL_SHRINK == 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the length of the shared buffer is not fixed",
            ));
        }
        let length = File::from(fd.try_clone_to_owned()?).metadata()?.len();
        if bytes == 0 || length < bytes as u64 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the shared buffer is too short",
            ));
        }
        let start = syscalls::map(bytes, Some(fd.as_raw_fd()));
        let start = start.map_err(io::Error::from_raw_os_error)?;
        Ok(SharedBuffer {
            start: start.expose_provenance(),
            bytes,
        })
    }

    /// Its length in bytes, which is never 0.
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Copies `data` into the buffer, from `at` on.
    ///
    /// # Panics
    /// It does not fit.
    pub fn write(&self, at: usize, data: &[u8]) {
        let to = self.part(at, data.len());
        // SAFETY: so many bytes from there on are mapped for as long as `self` lives, and cannot go
        // away. `data` is not among them: no reference to them is ever made.
        unsafe { data.as_ptr().copy_to_nonoverlapping(to, data.len()) };
    }

    /// Copies bytes out of the buffer, from `at` on, until `data` is full.
    ///
    /// # Panics
    /// There are not so many.
    pub fn read(&self, at: usize, data: &mut [u8]) {
        let from = self.part(at, data.len());
        // SAFETY: as in `write`.
        unsafe { data.as_mut_ptr().copy_from_nonoverlapping(from, data.len()) };
    }

    /// The address of a part.
    fn part(&self, at: usize, bytes: usize) -> *mut u8 {
        let end = at.checked_add(bytes);
        assert!(
            end.is_some_and(|end| end <= self.bytes),
            "{bytes} bytes at {at} of {}",
            self.bytes
        );
        std::ptr::with_exposed_provenance_mut(self.start + at)
    }
}

impl Drop for SharedBuffer {
    fn drop(&mut self) {
        let start = std::ptr::with_exposed_provenance_mut(self.start);
        // SAFETY: `map` has mapped so much there, and no reference to it exists.
        unsafe { syscalls::unmap(start, self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_side_writes_the_other_reads() {
        let (one, fd) = SharedBuffer::create(8192).unwrap();
        let other = SharedBuffer::map(fd.as_fd(), 8192).unwrap();
        assert_eq!(one.len(), 8192);
        one.write(5000, b"here");
        let mut data = [0; 6];
        other.read(4999, &mut data);
        assert_eq!(&data, b"\0here\0");
        drop(one);
        other.write(0, b"still");
    }

    #[test]
    fn a_buffer_that_may_shrink_is_refused() {
        let (_, fd) = SharedBuffer::create(4096).unwrap();
        assert!(SharedBuffer::map(fd.as_fd(), 4097).is_err());
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        let error = SharedBuffer::map(file.as_fd(), 4096).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    #[should_panic(expected = "2 bytes at 4095 of 4096")]
    fn nothing_is_copied_beyond_the_end() {
        let (buffer, _) = SharedBuffer::create(4096).unwrap();
        buffer.write(4095, b"xy");
    }
}
