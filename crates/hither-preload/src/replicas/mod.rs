//! Reads that are served from replicas: a copy out of shared memory in place of a system call.
//!
//! [`read`] serves reads, [`send`] serves `sendfile`; [`view`] is what this process sees of the
//! agent's replicas, and [`table`] which descriptor stands for a file that has some.
//!
//! A read is served if the file behind its descriptor has replicas of all that it asks for, and the
//! checks of [`hither_sys::replica`] hold; otherwise the real call is made. The kernel is asked
//! about all else in the call itself, since whatever this library knows of descriptors and memory a
//! program can change unseen, by a system call of its own:
//!
//! - *The file*: `fstat` says which one the descriptor stands for ([`table`]).
//! - *The right to read it, and the buffer*: the kernel reads a byte into each page of the buffer
//!   (`preadv`). Where it fails, the real call fails alike.
//! - *The offset*, for `read`. It stays in the kernel: it is moved on first, which is atomic and
//!   makes the range this read's, and then the range is served; if it cannot be after all, by a real
//!   `pread`. Only of descriptors that this process has opened and not shared since: where the read
//!   fails the offset must be put back, which others could see.
//!
//! This costs two system calls, or three, so reads of less than [`READ_BYTES_MIN`] are the kernel's,
//! as vectored reads are. A served call is a cancellation point, as the real one is. One in
//! [`SERVED_EACH`] is recorded.
//!
//! [`READ_BYTES_MIN`]: hither_sys::replica::READ_BYTES_MIN
//! [`SERVED_EACH`]: hither_sys::replica::SERVED_EACH
//!
//! Differences that remain: another thread that unmaps the buffer during the read raises SIGSEGV
//! here, where the kernel would return EFAULT or what it had read; the counters in /proc and tracers
//! see the bytes of the probe alone.

mod read;
mod send;
mod table;
mod view;

pub(crate) use self::read::{serve, was_read};
pub(crate) use self::send::{Sent, is_stream, send};
pub(crate) use self::table::{TABLE, opened};
pub(crate) use self::view::{may_serve, single_threaded, start, stop};

/// After a fork, in the child.
pub(crate) fn forked() {
    send::forked();
}
