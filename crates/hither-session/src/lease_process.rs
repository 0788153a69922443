//! The *lease process*: a child of the agent that holds the leases on files with replicas, and does
//! nothing else.
//!
//! A process of its own, because an agent may be stopped: by Ctrl-Z, SIGSTOP, a debugger or a
//! cgroup freezer. Writers would then wait for its leases until the kernel takes them away, 45 s.
//! The lease process is in a session of its own, so that what stops a job does not reach it. If it
//! is stopped all the same, a timer of the kernel kills it within [`STOPPED_MAX`], and its leases
//! end with it. Only the freezer of cgroup v1 holds SIGKILL back as well.
//!
//! **Protocol.** A socket pair. The agent asks for one thing at a time and waits for the answer:
//! to take a lease on a file that it passes, or to release one. The lease process answers with an
//! error number. It says nothing unasked: that the replicas of a file have ended is in the shared
//! memory ([`Shared::is_published`], [`Shared::ended`]), so a stopped agent does not block it.
//!
//! **Fork.** The agent may have threads by then, so what runs in the child (`holder`) makes system
//! calls and uses memory that was allocated before. If it hangs after all, its timer kills it.

mod holder;
mod protocol;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use self::holder::Holder;
use self::protocol::{Request, send, words_of};
use crate::replica::agent::Shared;
use hither_ids::Pid;
use hither_kernel::lease::{LeaseError, LeasedFile};
use hither_kernel::process;
use hither_kernel::syscalls;

pub use self::holder::{BREAK_TIME_MIN, InjectedFaults, STOPPED_MAX};

/// How long the agent waits for an answer. Only a frozen lease process takes longer than
/// [`STOPPED_MAX`].
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// How long the agent waits at the end of a run for the lease process, which was killed: a freezer
/// or a debugger may keep it.
const END_MAX_MS: u32 = 1000;

/// The lease process, as its agent has it. Dropping it kills the process.
#[derive(Debug)]
pub struct LeaseProcess {
    pid: Pid,
    socket: OwnedFd,
    /// It was killed by us, and may not have ended yet.
    killed: bool,
    /// It has ended, and was waited for.
    reaped: bool,
}

impl LeaseProcess {
    /// Starts it. Replicas can be relied on from then on. It ends with the calling thread, at the
    /// latest.
    ///
    /// # Errors
    /// There is no process, descriptor or timer to be had. Nothing is left behind.
    pub fn start(replicas: Arc<Shared>, faults: InjectedFaults) -> io::Result<LeaseProcess> {
        let wait = if faults.no_deadline {
            Duration::ZERO
        } else {
            ANSWER_MAX
        };
        let (ours, theirs) = socket_pair(wait)?;
        let mut holder = Holder::new(replicas, theirs, faults);
        let agent = Pid::own();
        // A handler of the agent's is not to run in the child.
        let blocked = syscalls::block_signals(!0);
        // SAFETY: the child makes system calls on memory that is there, and does not return.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            holder::main(&mut holder, agent);
        }
        let error = io::Error::last_os_error();
        syscalls::block_signals(blocked);
        if pid < 0 {
            return Err(error);
        }
        drop(holder);
        let process = LeaseProcess {
            pid: Pid(pid as u32),
            socket: ours,
            killed: false,
            reaped: false,
        };
        match process.answer() {
            Some(0) => Ok(process),
            Some(error) => Err(io::Error::from_raw_os_error(error)),
            None => Err(io::Error::other("the process that holds leases has ended")),
        }
    }

    /// Its process id.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Processor time that it has used, in nanoseconds.
    pub fn cpu_ns(&self) -> u64 {
        process::cpu_ns_of(self.pid())
    }

    /// Has it take a lease on a file that [`hither_kernel::lease::check`] has passed, and publish
    /// the replicas of the file's place in the table. No break is handled in between. `seen` is the
    /// file's state, by which it was entered into the table: of another one there is no lease.
    ///
    /// If the process ends meanwhile, this is as if it had ended right after: Ok.
    ///
    /// # Errors
    /// There is no lease. [`LeaseError::NoHolder`]: it had been found to have ended before.
    pub fn take(&mut self, place: u32, file: &File, seen: &LeasedFile) -> Result<(), LeaseError> {
        if self.killed {
            return Err(LeaseError::NoHolder);
        }
        let seen = words_of(seen);
        match self.ask(Request::Take { place, seen }, Some(file.as_fd())) {
            Some(0) | None => Ok(()),
            Some(error) => Err(LeaseError::from_errno(error)),
        }
    }

    /// Has it end a file's replicas and release the lease, if there still is one.
    pub fn release(&mut self, place: u32) {
        if !self.killed {
            self.ask(Request::Release { place }, None);
        }
    }

    /// The answer, unless there is none: the process has ended, or is about to.
    fn ask(&mut self, request: Request, file: Option<BorrowedFd<'_>>) -> Option<i32> {
        let sent = send(&self.socket, request, file);
        let answer = if sent { self.answer() } else { None };
        if answer.is_none() {
            self.kill();
        }
        answer
    }

    fn answer(&self) -> Option<i32> {
        let mut answer = 0_i32;
        let bytes = size_of::<i32>();
        let to = (&raw mut answer).cast();
        loop {
            // SAFETY: the kernel writes at most one integer.
            let received = unsafe { libc::recv(self.socket.as_raw_fd(), to, bytes, 0) };
            match received {
                -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
                _ => return (received == bytes as isize).then_some(answer),
            }
        }
    }

    fn kill(&mut self) {
        self.killed = true;
        if !self.reaped {
            // An error means that it has ended by itself.
            let _ = process::kill(self.pid.raw(), libc::SIGKILL);
        }
    }

    /// Whether it was killed, by whomever: no answer is to be expected, and leases are about to go.
    pub fn is_killed(&self) -> bool {
        self.killed
    }

    /// Whether it has ended, and with it all leases; asks the kernel only where `replicas` or a
    /// missing answer say so. A debugger may keep a process that has ended: then this is false
    /// until it lets go.
    pub fn has_ended(&mut self, replicas: &Shared) -> bool {
        if !self.killed && replicas.is_held_by(self.pid()) {
            return false;
        }
        self.kill();
        self.reap()
    }

    fn reap(&mut self) -> bool {
        // SAFETY: waitpid without a place for the status takes no memory.
        let waited =
            || unsafe { libc::waitpid(self.pid.raw(), std::ptr::null_mut(), libc::WNOHANG) };
        // An error means that it was waited for elsewhere.
        self.reaped = self.reaped || waited() != 0;
        self.reaped
    }
}

impl Drop for LeaseProcess {
    fn drop(&mut self) {
        self.kill();
        for _ in 0..END_MAX_MS {
            if self.reap() {
                return;
            }
            syscalls::sleep_ns(1_000_000);
        }
    }
}

/// A pair of sockets that keep messages apart. The first one waits so long; 0 is for ever.
fn socket_pair(wait: Duration) -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0_i32; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: the kernel writes two descriptors.
    if unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has just made the descriptors, and nobody else has them.
    let [ours, theirs] = ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
    let time = libc::timeval {
        tv_sec: wait.as_secs() as i64,
        tv_usec: 0,
    };
    for option in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
        // SAFETY: the kernel reads one timeval.
        let set = unsafe {
            libc::setsockopt(
                ours.as_raw_fd(),
                libc::SOL_SOCKET,
                option,
                (&raw const time).cast(),
                size_of::<libc::timeval>() as u32,
            )
        };
        if set != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok((ours, theirs))
}

#[cfg(test)]
mod tests;
