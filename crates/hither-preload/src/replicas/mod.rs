//! Reads that are served from replicas: a copy out of shared memory in place of a system call.
//!
//! [`read`] serves reads, [`send`] serves `sendfile`; [`view`] is what this process sees of the
//! agent's replicas, and [`table`] which descriptor stands for a file that has some.
//!
//! A read is served if the file behind its descriptor has replicas of all that it asks for, and the
//! checks of [`hither_sys::replica`] hold after the copy; otherwise the real call is made, as if
//! nothing had been tried. What must be known beforehand:
//!
//! - *The file*, from the descriptor (`table`). Whatever closes or replaces descriptors has the
//!   table forget; where that cannot be seen (descriptors shared with or unshared from another
//!   process, io_uring, stdio of an unknown layout), no read is served in this process any more.
//! - *The buffer* ([`crate::buffers`]). The kernel fails with EFAULT where a copy would kill the
//!   program, so only memory that the kernel has written to is copied to.
//! - *The offset*, for `read` and `readv`. It stays in the kernel: it is moved on first, which is
//!   atomic and makes the range this read's, and then the range is served; if it cannot be after
//!   all, by a real `pread`. Only of descriptors that this process has opened and not shared since:
//!   where the file ends the offset must be put back, which others could see.
//!
//! A served call is a cancellation point, as the real one is. One in [`SERVED_EACH`] is recorded.
//!
//! [`SERVED_EACH`]: hither_sys::replica::SERVED_EACH
//!
//! Differences that remain: the access time is as old as the last read that reached the kernel, at
//! most six hours more than relatime allows; watches of inotify and fanotify for accesses, counters
//! of read calls in /proc and tracers do not see what is served.

mod read;
mod send;
mod table;
mod view;

pub(crate) use self::read::{serve, was_read, was_sent};
pub(crate) use self::send::{Sent, is_stream, send};
pub(crate) use self::table::{TABLE, opened};
pub(crate) use self::view::{before_vfork, may_serve, single_threaded, start, stop};

/// After a fork, in the child.
pub(crate) fn forked() {
    crate::buffers::changed();
    send::forked();
}
