//! Reads that are served from replicas: a copy out of shared memory in place of a system call.
//!
//! [`read`] serves reads, [`send`] serves `sendfile`; [`view`] is what this process sees of the
//! agent's replicas, and [`table`] which descriptor stands for a file that has some.
//!
//! A read is served if the file behind its descriptor has replicas of all that it asks for, and the
//! checks of [`hither_session::replica`] hold; otherwise the real call is made. The kernel is asked
//! about all else in the call itself, since whatever this library knows of descriptors and memory a
//! program can change unseen, by a system call of its own:
//!
//! - *The file*: `fstat` says which one the descriptor stands for ([`table`]).
//! - *The right to read it*: the kernel reads a byte of it into the buffer (`pread`).
//! - *The buffer*: the kernel copies (`process_vm_writev`), and stops where the program may not
//!   write. Then the real call is made, which says what it has to say.
//! - *The offset*, for `read`: it stays in the kernel. The range at it is copied, and then the
//!   offset is moved. Only of descriptors that this process has opened and not shared since, and
//!   while it has one thread: with another thread, the number may come to mean another file in
//!   between, whose offset would be moved. If the offset was moved by somebody else after all, the
//!   range that is this call's is read by a real `pread`.
//!
//! This costs four system calls, or six, so reads of less than [`READ_BYTES_MIN`] are the kernel's,
//! as vectored reads are. A served call is a cancellation point, as the real one is. One in
//! [`SERVED_EACH`] is recorded.
//!
//! [`READ_BYTES_MIN`]: hither_session::replica::READ_BYTES_MIN
//! [`SERVED_EACH`]: hither_session::replica::SERVED_EACH
//!
//! Differences that remain: the counters in /proc and tracers see one byte read; protection keys
//! (pkeys) of the calling thread are checked at the first byte of the buffer alone.

mod read;
mod send;
mod table;
mod view;

pub(crate) use self::read::{flags, serve};
pub(crate) use self::send::{Sent, is_stream, send};
pub(crate) use self::table::TABLE;
pub(crate) use self::view::{give_up, may_serve, single_threaded, start, stop, unmap};

/// After a fork, in the child.
pub(crate) fn forked() {
    send::forked();
}
