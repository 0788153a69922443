//! What the lease process does. Between `fork` and its end it allocates nothing and takes no lock.

use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use super::protocol::{Request, receive, words_of};
use crate::replica::FILES_MAX;
use crate::replica::agent::Shared;
use hither_ids::Pid;
use hither_kernel::lease::{self, Break, BreakListener, BreakTime, Lease, LeaseError, LeasedFile};
use hither_kernel::process::short_slices;
use hither_kernel::syscalls;

/// The least time that the kernel must give lease holders (fs.lease-break-time). With less,
/// replicas would expire before a lease process that the scheduler keeps waiting can renew them.
pub const BREAK_TIME_MIN: Duration = Duration::from_secs(4);

/// The kernel kills a lease process that has been stopped for so long, and its leases end.
pub const STOPPED_MAX: Duration = Duration::from_secs(1);

/// How often the lease process puts that off, and checks every lease.
const TICK: Duration = Duration::from_millis(250);

/// The name of the process, as `ps -e` and `top` show it; at most 15 bytes.
const NAME: &std::ffi::CStr = c"hither-leases";

unsafe extern "C" {
    /// closefrom(3), of glibc 2.34 and later.
    fn closefrom(first: i32);
}

/// Faults to inject, which tests must notice.
#[derive(Clone, Copy, Debug, Default)]
pub struct InjectedFaults {
    /// Writers are let in and replicas go on.
    pub ignores_breaks: bool,
    /// Replicas outlive the lease process.
    pub outlives: bool,
    /// Replicas never expire.
    pub never_expires: bool,
    /// The lease process survives being stopped: no timer kills it, and the agent waits for it.
    pub no_deadline: bool,
}

/// The lease process's own state, allocated before it is forked.
#[derive(Debug)]
pub(super) struct Holder {
    replicas: Arc<Shared>,
    socket: OwnedFd,
    faults: InjectedFaults,
    /// The leases, by the file's place in the table of files with replicas.
    held: Vec<Option<Lease>>,
}

/// What the loop needs, once it is set up.
struct Running {
    breaks: BreakListener,
    break_time: BreakTime,
    deadline: Option<Deadline>,
}

/// Runs the lease process to its end. A panic ends it as well.
pub(super) extern "C" fn main(holder: &mut Holder, agent: Pid) -> ! {
    let error = match holder.run(agent) {
        Ok(never) => match never {},
        Err(error) => error,
    };
    // Nobody may be there to receive it.
    holder.answer(error.raw_os_error().unwrap_or(libc::EIO));
    // SAFETY: the call takes no memory, and runs nothing of what the agent has registered.
    unsafe { libc::_exit(0) }
}

impl Holder {
    pub(super) fn new(replicas: Arc<Shared>, socket: OwnedFd, faults: InjectedFaults) -> Holder {
        Holder {
            replicas,
            socket,
            faults,
            held: (0..FILES_MAX).map(|_| None).collect(),
        }
    }

    fn run(&mut self, agent: Pid) -> io::Result<Infallible> {
        let running = self.set_up(agent)?;
        let mut next_tick_ns = self.tick(&running)?;
        self.answer(0);
        loop {
            let now_ns = self.replicas.now_ns();
            if now_ns >= next_tick_ns {
                next_tick_ns = self.tick(&running)?;
            }
            let wait = Duration::from_nanos(next_tick_ns.saturating_sub(now_ns));
            wait_for_either(&running.breaks, &self.socket, wait);
            // Breaks come first: a writer waits for each.
            while let Some(reported) = running.breaks.reported() {
                match reported {
                    Break::Of(fd) => self.end_if_broken(|lease| lease.fd() == fd),
                    Break::Some => self.end_if_broken(|_| true),
                }
            }
            if let Some((request, file)) = receive(&self.socket)? {
                let result = match request {
                    Request::Take { place, seen } => self.take(place, file, seen, &running.breaks),
                    Request::Release { place } => {
                        self.end(place as usize, false);
                        Ok(())
                    }
                };
                self.answer(result.map_or_else(LeaseError::errno, |()| 0));
            }
        }
    }

    /// Leaves the agent's job and files, and takes the word that programs rely on.
    fn set_up(&mut self, agent: Pid) -> io::Result<Running> {
        let (name, kill) = (NAME.as_ptr() as usize, libc::SIGKILL as usize);
        let calls = [
            (libc::SYS_prctl, [libc::PR_SET_NAME as usize, name]),
            (libc::SYS_prctl, [libc::PR_SET_PDEATHSIG as usize, kill]),
            // Fails where it is the leader of a group, which a new process is not.
            (libc::SYS_setsid, [0, 0]),
            (libc::SYS_chdir, [c"/".as_ptr() as usize, 0]),
        ];
        for (number, [first, second]) in calls {
            // SAFETY: the calls read no memory but these strings.
            let result = unsafe { syscalls::syscall(number, [first, second, 0, 0, 0, 0]) };
            if result < 0 {
                return Err(io::Error::from_raw_os_error(-result as i32));
            }
        }
        // It may have died before its death was a signal.
        if syscalls::parent_pid() != agent {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        // Of its descriptors only the socket stays, as the first.
        // SAFETY: the calls take no memory; no code of the agent runs here that would use any of
        // the others.
        let moved = unsafe { libc::dup2(self.socket.as_raw_fd(), 0) };
        if moved != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: as above.
        unsafe { closefrom(1) };
        // SAFETY: the descriptor was just made; the old value's was closed.
        std::mem::forget(std::mem::replace(&mut self.socket, unsafe {
            OwnedFd::from_raw_fd(0)
        }));
        let deadline = if self.faults.no_deadline {
            None
        } else {
            Some(Deadline::new()?)
        };
        let running = Running {
            breaks: BreakListener::here()?,
            break_time: BreakTime::open()?,
            deadline,
        };
        short_slices();
        self.replicas.hold()?;
        if self.faults.outlives {
            self.replicas.end_unmarked();
        }
        Ok(running)
    }

    /// Puts the deadline off, checks every lease, and promises programs that replicas can be relied
    /// on for half of the time that the kernel gives lease holders. Returns when to do it again.
    fn tick(&mut self, running: &Running) -> io::Result<u64> {
        if let Some(deadline) = &running.deadline {
            deadline.put_off()?;
        }
        let from_ns = self.replicas.now_ns();
        let waits = running.break_time.read().unwrap_or_default();
        if waits >= BREAK_TIME_MIN {
            self.end_if_broken(|_| true);
            let relied_on = if self.faults.outlives || self.faults.never_expires {
                u64::MAX
            } else {
                from_ns + waits.as_nanos() as u64 / 2
            };
            self.replicas.keep_until(relied_on);
        }
        Ok(from_ns + TICK.as_nanos() as u64)
    }

    /// Takes a lease on a file, through a description of its own, and publishes its replicas.
    fn take(
        &mut self,
        place: u32,
        file: Option<File>,
        seen: [u64; 3],
        breaks: &BreakListener,
    ) -> Result<(), LeaseError> {
        // The kernel drops a descriptor that there is no room for.
        let passed = file.ok_or(LeaseError::NoRoom)?;
        let lease = Lease::take(lease::reopen(passed.as_fd())?, breaks)?;
        drop(passed);
        let state = LeasedFile::of(lease.file()).map_err(|_| LeaseError::NoFile)?;
        // It was entered into the table with another size, if a writer came before the lease.
        if words_of(&state) != seen {
            return Err(LeaseError::Written);
        }
        let held = self.held.get_mut(place as usize);
        let held = held.ok_or(LeaseError::NoRoom)?;
        *held = Some(lease);
        self.replicas.publish(place);
        Ok(())
    }

    fn end_if_broken(&mut self, is_meant: impl Fn(&Lease) -> bool) {
        for place in 0..self.held.len() {
            let lease = self.held.get(place).and_then(Option::as_ref);
            if lease.is_some_and(|lease| is_meant(lease) && lease.is_broken()) {
                self.end(place, true);
            }
        }
    }

    /// Ends a file's replicas, and releases its lease afterwards.
    fn end(&mut self, place: usize, broken: bool) {
        let Some(lease) = self.held.get_mut(place).and_then(Option::take) else {
            return;
        };
        let ignored = self.faults.ignores_breaks && broken;
        if !ignored {
            self.replicas.end(place as u32);
        }
        lease.release();
        if !ignored {
            self.replicas.count_ended();
        }
    }

    fn answer(&self, error: i32) {
        let bytes = size_of::<i32>();
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        let from = (&raw const error).cast();
        // Nobody may be there any more.
        // SAFETY: the kernel reads one integer.
        let _ = unsafe { libc::send(self.socket.as_raw_fd(), from, bytes, flags) };
    }
}

/// Waits until one of the two can be read, or was closed by the other side.
fn wait_for_either(breaks: &BreakListener, socket: &OwnedFd, at_most: Duration) {
    let polled = |fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    let mut both = [
        polled(breaks.as_fd().as_raw_fd()),
        polled(socket.as_raw_fd()),
    ];
    let milliseconds = at_most.as_millis() as i32 + 1;
    // SAFETY: the kernel reads and writes two structures.
    unsafe { libc::poll(both.as_mut_ptr(), 2, milliseconds) };
}

/// A timer that kills this process, unless it is put off in time. The kernel's timers also run for
/// a process that is stopped, and SIGKILL ends one that is stopped, traced or frozen by cgroup v2.
struct Deadline {
    timer: i32,
}

impl Deadline {
    fn new() -> io::Result<Deadline> {
        let event = std::mem::MaybeUninit::<libc::sigevent>::zeroed();
        // SAFETY: zeroed memory is a valid sigevent.
        let mut event = unsafe { event.assume_init() };
        event.sigev_notify = libc::SIGEV_SIGNAL;
        event.sigev_signo = libc::SIGKILL;
        let mut timer = 0_i32;
        let clock = libc::CLOCK_MONOTONIC as usize;
        let (event, id) = ((&raw const event) as usize, (&raw mut timer) as usize);
        // SAFETY: the kernel reads one sigevent and writes one integer.
        let made =
            unsafe { syscalls::syscall(libc::SYS_timer_create, [clock, event, id, 0, 0, 0]) };
        match made {
            0 => Ok(Deadline { timer }),
            error => Err(io::Error::from_raw_os_error(-error as i32)),
        }
    }

    /// To [`STOPPED_MAX`] from now.
    fn put_off(&self) -> io::Result<()> {
        let none = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let time = libc::itimerspec {
            it_interval: none,
            it_value: libc::timespec {
                tv_sec: STOPPED_MAX.as_secs() as i64,
                tv_nsec: i64::from(STOPPED_MAX.subsec_nanos()),
            },
        };
        let (timer, time) = (self.timer as usize, (&raw const time) as usize);
        // SAFETY: the kernel reads one itimerspec.
        let set = unsafe { syscalls::syscall(libc::SYS_timer_settime, [timer, 0, time, 0, 0, 0]) };
        match set {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(-error as i32)),
        }
    }
}
