//! Serves sends from replicas: the socket gets pages of the node's memory, by reference, instead of
//! those of the page cache.
//!
//! The slots of a piece are found and checked as for a read. Then the kernel is made to refer to
//! their pages (`vmsplice` to a pipe), and they are checked once more; only then does anything go
//! to the socket. A page that is referred to does not change ([`hither_session::replica`]), so
//! peers may take their time. The pipe exists for one call: the program's descriptors are the same
//! before and after.
//!
//! Only sends to stream sockets are served, since elsewhere the size of each write shows; and only
//! those of [`LENT_BYTES_MIN`] bytes or more. From the first block without a replica on, the kernel
//! sends.
//!
//! Differences that remain: while a send waits for its peer, of [`SENDS_MAX`] at a time, there are
//! three descriptors more, which a child of a `fork` by another thread keeps until it executes
//! something, and which a handler that leaves by `longjmp` leaves behind. A signal that comes
//! between two pieces runs its handler there, and the call goes on, as if it had come before the
//! call.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

use hither_kernel::syscalls;
use hither_session::replica::LENT_BYTES_MIN;
use libc::{c_int, iovec, off_t};

use super::table;
use super::view::{is_recorded, single_threaded, stop, view};

/// The capacity of a pipe.
const PIPE_BYTES: usize = 64 << 10;

/// The kernel sends at most this much at once.
const SEND_BYTES_MAX: usize = 0x7fff_f000;

/// The most sends that are served at a time, since each may wait for its peer with its pipe.
const SENDS_MAX: u32 = 8;

/// After a send of which the socket took little, which costs more than it gains, this many of the
/// thread's sends are not served.
const SKIPPED_SENDS_AFTER_SHORT: u32 = 7;

/// Sends under way, or abandoned by a jump.
static SENDS: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// How many sends are not to be served.
    static SKIP: Cell<u32> = const { Cell::new(0) };
    /// Served sends since the last one that was recorded.
    static UNRECORDED: Cell<u32> = const { Cell::new(0) };
}

/// The result of serving a send.
#[derive(Clone, Copy)]
pub(crate) enum Sent {
    /// All that the call will send, in bytes.
    All(isize),
    /// A part, in bytes; the kernel has to send the rest.
    Part { sent: usize, left: usize },
    /// Nothing, with this error.
    Failed(c_int),
}

/// Why no more is sent.
enum SendEnd {
    /// There is no more, or no more replicas.
    Over,
    /// The socket has taken less than it was offered.
    Short,
    /// The program's offset may not be written to any more.
    Unwritable,
    Error(c_int),
}

/// After a fork, in the child: the parent's sends do not count.
pub(super) fn forked() {
    SENDS.store(0, Ordering::Relaxed);
}

/// Serves a send as far as it can be. One in [`SERVED_EACH`](hither_session::replica::SERVED_EACH)
/// is passed to `record`, with its offset and the bytes sent. `None` if the real call is to be made
/// as if nothing had been tried.
///
/// # Safety
/// The arguments are those of the program's own call.
pub(crate) unsafe fn send(
    to: c_int,
    from: c_int,
    offset: *mut off_t,
    count: usize,
    record: impl FnOnce(u64, u64),
) -> Option<Sent> {
    if count < LENT_BYTES_MIN {
        return None;
    }
    let view = view()?;
    if view.is_ended() {
        stop();
        return None;
    }
    let of = table::matched(view, from)?;
    if !view.lends() {
        return None;
    }
    let offset = Offset::of(from, offset)?;
    let start = offset.read()?;
    // What the kernel refuses.
    i64::try_from(count).ok()?.checked_add_unsigned(start)?;
    let count = count.min(SEND_BYTES_MAX);
    let there = view.bytes(of).saturating_sub(start);
    let there = count.min(usize::try_from(there).unwrap_or(usize::MAX));
    if there < LENT_BYTES_MIN || !view.holds(of, start, LENT_BYTES_MIN) {
        return None;
    }
    let skip = SKIP.get();
    if skip > 0 {
        SKIP.set(skip - 1);
        return None;
    }
    if !table::is_file(view, of, from) || !is_stream(to) || !may_send(to, from, start) {
        return None;
    }
    // Another thread may close `to` amid the call, and a connection get its number that is to get
    // none of this.
    let to = Duplicate::of(to)?;
    let pipe = Pipe::new()?;
    let refer_next = |done: usize| {
        let length = (there - done).min(PIPE_BYTES);
        view.lend(of, start + done as u64, length, |pieces| pipe.refer(pieces))
    };
    let moved = |done: usize| offset.write(start + done as u64);
    let (sent, end) = through(&pipe, to.0, there, refer_next, moved);
    drop(pipe);
    if sent < LENT_BYTES_MIN {
        SKIP.set(SKIPPED_SENDS_AFTER_SHORT);
    }
    if sent > 0 && is_recorded(&UNRECORDED) {
        record(start, sent as u64);
    }
    match end {
        SendEnd::Over if sent < there => Some(Sent::Part {
            sent,
            left: count - sent,
        }),
        // What the socket does not take this way, or somebody has closed amid the call, is for the
        // kernel to refuse.
        SendEnd::Error(libc::EINVAL | libc::EBADF) if sent == 0 => None,
        SendEnd::Error(error) if sent == 0 => Some(Sent::Failed(error)),
        // The kernel says so after it has sent, too.
        SendEnd::Unwritable => Some(Sent::Failed(libc::EFAULT)),
        _ => Some(Sent::All(sent as isize)),
    }
}

/// Whether the kernel would send: from a file that may be read, to something that may be written
/// to. A send of nothing answers that, and a byte of the file, as for reads.
fn may_send(to: c_int, from: c_int, start: u64) -> bool {
    let mut at = start as off_t;
    let arguments = [to as usize, from as usize, (&raw mut at) as usize, 0, 0, 0];
    // SAFETY: the kernel reads and writes the offset.
    if unsafe { syscalls::syscall(libc::SYS_sendfile, arguments) } != 0 {
        return false;
    }
    let mut byte = 0;
    // SAFETY: there is room for the byte.
    unsafe { syscalls::read_at(from, &raw mut byte, 1, start) == 1 }
}

/// Where a send begins and ends: the offset that the program gives, which the kernel is to read and
/// write, since it may not be there; or the one of the file.
#[derive(Clone, Copy)]
enum Offset {
    /// The descriptor's, where no other thread could give the number to another file.
    OfFile(c_int),
    At(*mut off_t),
}

impl Offset {
    fn of(from: c_int, given: *mut off_t) -> Option<Offset> {
        if given.is_null() {
            single_threaded().then_some(Offset::OfFile(from))
        } else {
            Some(Offset::At(given))
        }
    }

    fn read(self) -> Option<u64> {
        let at = match self {
            Offset::OfFile(from) => return syscalls::seek(from, 0, libc::SEEK_CUR).ok(),
            Offset::At(at) => at,
        };
        let mut read: off_t = 0;
        // SAFETY: there is room for the number here.
        unsafe { copied(at, &raw mut read) }.then_some(())?;
        u64::try_from(read).ok()
    }

    /// Whether it could be written.
    fn write(self, value: u64) -> bool {
        match self {
            // As the kernel does it: the offset is read before and set after. It was read, so this
            // does not fail.
            Offset::OfFile(from) => syscalls::seek(from, value as i64, libc::SEEK_SET).is_ok(),
            Offset::At(at) => {
                let value = value as off_t;
                // SAFETY: the program's call is to write there.
                unsafe { copied(&raw const value, at) }
            }
        }
    }
}

/// Has the kernel copy a number: whether it could.
///
/// # Safety
/// Nobody relies on what lies at `to`. Neither need be mapped.
unsafe fn copied(from: *const off_t, to: *mut off_t) -> bool {
    let piece = iovec {
        iov_base: from.cast_mut().cast(),
        iov_len: size_of::<off_t>(),
    };
    // SAFETY: it is a thread of this process, and as the caller says.
    let copied = unsafe { syscalls::copy_to(syscalls::tid(), &[piece], to.cast()) };
    copied == size_of::<off_t>()
}

/// A descriptor of this call's for what another one stands for.
struct Duplicate(c_int);

impl Duplicate {
    fn of(fd: c_int) -> Option<Duplicate> {
        // Above those that a program without standard descriptors may be about to make.
        let arguments = [fd as usize, libc::F_DUPFD_CLOEXEC as usize, 3, 0, 0, 0];
        // SAFETY: the call takes no memory.
        let made = unsafe { syscalls::syscall(libc::SYS_fcntl, arguments) };
        (made >= 0).then_some(Duplicate(made as c_int))
    }
}

impl Drop for Duplicate {
    fn drop(&mut self) {
        syscalls::close(self.0);
    }
}

/// Sends what `refer_next` makes a pipe refer to, piece by piece, up to `there` bytes. Returns how
/// many went, and why no more. `moved` is called after each piece, and says whether it could note
/// that.
fn through(
    pipe: &Pipe,
    to: c_int,
    there: usize,
    refer_next: impl Fn(usize) -> Option<usize>,
    moved: impl Fn(usize) -> bool,
) -> (usize, SendEnd) {
    let mut done = 0;
    while done < there {
        let Some(referred) = refer_next(done).filter(|&referred| referred > 0) else {
            break;
        };
        // At the end of the file no more is announced: a peer might wait for what is announced.
        match pipe.splice(to, referred, done + referred < there) {
            Ok(sent) => {
                done += sent;
                if !moved(done) {
                    return (done, SendEnd::Unwritable);
                }
                if sent < referred {
                    return (done, SendEnd::Short);
                }
            }
            Err(error) => return (done, SendEnd::Error(error)),
        }
    }
    (done, SendEnd::Over)
}

/// Whether `fd` is a socket on which bytes are a stream.
pub(crate) fn is_stream(fd: c_int) -> bool {
    let mut kind: c_int = 0;
    let mut length = size_of::<c_int>() as libc::socklen_t;
    let arguments = [
        fd as usize,
        libc::SOL_SOCKET as usize,
        libc::SO_TYPE as usize,
        (&raw mut kind) as usize,
        (&raw mut length) as usize,
        0,
    ];
    // SAFETY: the kernel writes a number, and its length.
    let result = unsafe { syscalls::syscall(libc::SYS_getsockopt, arguments) };
    result == 0 && kind == libc::SOCK_STREAM
}

/// A pipe for one call.
struct Pipe {
    out: c_int,
    into: c_int,
}

impl Pipe {
    /// `None` where there are no descriptors, or too many sends are under way.
    fn new() -> Option<Pipe> {
        if SENDS.fetch_add(1, Ordering::Relaxed) >= SENDS_MAX {
            ended();
            return None;
        }
        let mut ends = [0; 2];
        let arguments = [
            ends.as_mut_ptr() as usize,
            libc::O_CLOEXEC as usize,
            0,
            0,
            0,
            0,
        ];
        // SAFETY: the kernel writes two numbers.
        if unsafe { syscalls::syscall(libc::SYS_pipe2, arguments) } != 0 {
            ended();
            return None;
        }
        let [out, into] = ends;
        let pipe = Pipe { out, into };
        // A program without standard descriptors may be about to make some.
        (out > 2 && into > 2).then_some(pipe)
    }

    /// Refers to pages, while it is empty and without waiting: to how many bytes.
    fn refer(&self, pieces: &[iovec]) -> usize {
        let flags = libc::SPLICE_F_NONBLOCK as usize;
        let arguments = [
            self.into as usize,
            pieces.as_ptr() as usize,
            pieces.len(),
            flags,
            0,
            0,
        ];
        // SAFETY: the pieces are memory of this process's that is only read.
        let result = unsafe { syscalls::syscall(libc::SYS_vmsplice, arguments) };
        result.max(0) as usize
    }

    /// Moves on to a socket what it holds, which more will follow or not.
    fn splice(&self, to: c_int, count: usize, more: bool) -> Result<usize, c_int> {
        let flags = if more {
            libc::SPLICE_F_MORE as usize
        } else {
            0
        };
        let arguments = [self.out as usize, 0, to as usize, 0, count, flags];
        // SAFETY: the call takes no memory.
        let result = unsafe { syscalls::syscall(libc::SYS_splice, arguments) };
        usize::try_from(result).map_err(|_| -result as c_int)
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        syscalls::close(self.out);
        syscalls::close(self.into);
        ended();
    }
}

/// A send is over. A child that was made amid it has counted it as over before.
fn ended() {
    // It never refuses.
    let _ = SENDS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |sends| {
        Some(sends.saturating_sub(1))
    });
}
