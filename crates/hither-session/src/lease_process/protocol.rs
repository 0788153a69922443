//! The messages between the agent and the lease process. Nothing here allocates.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use hither_kernel::lease::LeasedFile;

/// What the agent asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// To take a lease on the file that comes along, if its state is this, and to publish its
    /// replicas.
    Take { place: u32, seen: [u64; 3] },
    /// To end its replicas, and to release the lease.
    Release { place: u32 },
}

type RequestWords = [u64; 5];

impl Request {
    fn to_words(self) -> RequestWords {
        match self {
            Request::Take { place, seen } => [0, u64::from(place), seen[0], seen[1], seen[2]],
            Request::Release { place } => [1, u64::from(place), 0, 0, 0],
        }
    }

    fn from_words([kind, place, seen @ ..]: RequestWords) -> Request {
        let place = place as u32;
        match kind {
            0 => Request::Take { place, seen },
            _ => Request::Release { place },
        }
    }
}

/// The state of a file, to be compared. Times are compared modulo 584 years.
pub(super) fn words_of(seen: &LeasedFile) -> [u64; 3] {
    [seen.bytes, seen.changed_ns as u64, u64::from(seen.linked)]
}

/// A control message with one descriptor (cmsg(3)): the header is a multiple of 8 bytes long.
#[repr(C)]
struct PassedDescriptor {
    header: libc::cmsghdr,
    fd: i32,
    _padding: i32,
}

/// A message of these words, and room for a descriptor.
fn message(words: &mut libc::iovec, passed: &mut PassedDescriptor) -> libc::msghdr {
    let message = std::mem::MaybeUninit::<libc::msghdr>::zeroed();
    // SAFETY: zeroed memory is a valid msghdr, without an address, data and control messages.
    let mut message = unsafe { message.assume_init() };
    message.msg_iov = words;
    message.msg_iovlen = 1;
    message.msg_control = std::ptr::from_mut(passed).cast();
    message.msg_controllen = size_of::<PassedDescriptor>();
    message
}

fn no_descriptor() -> PassedDescriptor {
    PassedDescriptor {
        header: libc::cmsghdr {
            // Up to the descriptor's end, without the padding.
            cmsg_len: size_of::<libc::cmsghdr>() + size_of::<i32>(),
            cmsg_level: libc::SOL_SOCKET,
            cmsg_type: libc::SCM_RIGHTS,
        },
        fd: -1,
        _padding: 0,
    }
}

/// Sends a request, with a descriptor of a file if there is one. False where nobody receives it.
pub(super) fn send(socket: &OwnedFd, request: Request, file: Option<BorrowedFd<'_>>) -> bool {
    let words = request.to_words();
    let mut data = libc::iovec {
        iov_base: words.as_ptr().cast_mut().cast(),
        iov_len: size_of::<RequestWords>(),
    };
    let mut passed = no_descriptor();
    passed.fd = file.map_or(-1, |file| file.as_raw_fd());
    let mut message = message(&mut data, &mut passed);
    if file.is_none() {
        message.msg_controllen = 0;
    }
    loop {
        // SAFETY: the message refers to the words and to the control message, which outlive it.
        let sent =
            unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
        match sent {
            -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            _ => return sent == size_of::<RequestWords>() as isize,
        }
    }
}

/// A request of the agent's, and the file that came along.
///
/// # Errors
/// The agent has ended.
pub(super) fn receive(socket: &OwnedFd) -> io::Result<Option<(Request, Option<File>)>> {
    let mut words: RequestWords = [0; 5];
    let mut data = libc::iovec {
        iov_base: words.as_mut_ptr().cast(),
        iov_len: size_of::<RequestWords>(),
    };
    let mut passed: PassedDescriptor = no_descriptor();
    let mut message = message(&mut data, &mut passed);
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: the kernel writes into the words and the control message, as far as they go.
    let received = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
    if received < 0 {
        let error = io::Error::last_os_error();
        return match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
            _ => Err(error),
        };
    }
    if received != size_of::<RequestWords>() as isize {
        return Err(io::Error::from_raw_os_error(libc::ECONNRESET));
    }
    let came = message.msg_controllen >= passed.header.cmsg_len && passed.fd >= 0;
    // SAFETY: the kernel has just made the descriptor.
    let file = came.then(|| unsafe { File::from_raw_fd(passed.fd) });
    Ok(Some((Request::from_words(words), file)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_come_as_they_are_sent() {
        for request in [
            Request::Take {
                place: 7,
                seen: [1, u64::MAX, 1],
            },
            Request::Release { place: u32::MAX },
        ] {
            assert_eq!(Request::from_words(request.to_words()), request);
        }
    }
}
