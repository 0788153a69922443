//! Calls that tell nothing by themselves, and are moments to do what the agent asks for: most of a
//! server's threads make no other hooked call. A process offers its memory at such a call when it
//! has run for a while, and when it starts a thread: its memory may soon have users on several
//! nodes.

use std::ffi::{c_int, c_void};

use libc::{
    epoll_event, fd_set, msghdr, nfds_t, pollfd, pthread_attr_t, pthread_t, sigset_t, size_t,
    sockaddr, socklen_t, ssize_t, timespec, timeval,
};

use crate::{pages, real};

macro_rules! moments {
    ($($then:ident after $name:ident($($argument:ident: $kind:ty),*) -> $result:ty;)*) => {
        $(
            /// Stands in for libc's function.
            ///
            /// # Safety
            /// As the C function demands.
            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $name($($argument: $kind),*) -> $result {
                // SAFETY: the program's own call, passed on.
                let result = unsafe { real::$name($($argument),*) };
                pages::$then();
                result
            }
        )*
    };
}

moments! {
    started_thread after pthread_create(
        thread: *mut pthread_t, attributes: *const pthread_attr_t, start: *mut c_void,
        argument: *mut c_void
    ) -> c_int;
    apply_bind_requests after recv(
        fd: c_int, buffer: *mut c_void, length: size_t, flags: c_int
    ) -> ssize_t;
    apply_bind_requests after __recv_chk(
        fd: c_int, buffer: *mut c_void, length: size_t, size: size_t, flags: c_int
    ) -> ssize_t;
    apply_bind_requests after recvfrom(
        fd: c_int, buffer: *mut c_void, length: size_t, flags: c_int, from: *mut sockaddr,
        from_length: *mut socklen_t
    ) -> ssize_t;
    apply_bind_requests after recvmsg(
        fd: c_int, message: *mut msghdr, flags: c_int
    ) -> ssize_t;
    apply_bind_requests after poll(
        descriptors: *mut pollfd, count: nfds_t, timeout: c_int
    ) -> c_int;
    apply_bind_requests after __poll_chk(
        descriptors: *mut pollfd, count: nfds_t, timeout: c_int, size: size_t
    ) -> c_int;
    apply_bind_requests after select(
        count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set,
        timeout: *mut timeval
    ) -> c_int;
    apply_bind_requests after epoll_wait(
        epoll: c_int, events: *mut epoll_event, count: c_int, timeout: c_int
    ) -> c_int;
    apply_bind_requests after ppoll(
        descriptors: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t
    ) -> c_int;
    apply_bind_requests after __ppoll_chk(
        descriptors: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t,
        size: size_t
    ) -> c_int;
    apply_bind_requests after pselect(
        count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set,
        timeout: *const timespec, mask: *const sigset_t
    ) -> c_int;
    apply_bind_requests after epoll_pwait(
        epoll: c_int, events: *mut epoll_event, count: c_int, timeout: c_int, mask: *const sigset_t
    ) -> c_int;
}
