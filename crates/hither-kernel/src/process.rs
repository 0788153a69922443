//! System calls on processes, signals and clocks that std does not have: one call, one wrapper. The
//! agent and the library in programs use them.

use std::io;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use hither_ids::Pid;

/// CLOCK_MONOTONIC in nanoseconds: the clock of every record.
#[inline]
pub fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// As [`monotonic_ns`], at the kernel's last tick: read, not computed, which takes 4 to 8 ns in
/// place of 40 (measured 2026-11).
#[inline]
pub fn tick_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC_COARSE)
}

/// The processor time that this process has used, its children's not counted, in nanoseconds.
pub fn cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// The processor time that another process has used, in nanoseconds; 0 if there is none.
pub fn cpu_ns_of(pid: Pid) -> u64 {
    /// linux/posix-timers_types.h: the time that the scheduler counts, of a process.
    const CPUCLOCK_SCHED: i32 = 2;
    clock_ns(!pid.raw() << 3 | CPUCLOCK_SCHED)
}

/// The memory of this process that is no page of a file, in bytes. 0 where the kernel does not say.
pub fn own_memory_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = |line: &str| line.split_whitespace().nth(1)?.parse::<u64>().ok();
    let lines = status.lines();
    let is_memory = |line: &&str| line.starts_with("RssAnon:") || line.starts_with("RssShmem:");
    lines.filter(is_memory).filter_map(kib).sum::<u64>() << 10
}

/// Whether a process runs that had started at a time of [`monotonic_ns`]: its number may be another
/// one's since. One that has ended and was not waited for does not run.
pub fn was_started_by(pid: Pid, time_ns: u64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // SAFETY: it takes no memory.
    let ticks_a_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    // The kernel counts from the boot, and while the machine sleeps too.
    let asleep_ns = clock_ns(libc::CLOCK_BOOTTIME).saturating_sub(monotonic_ns());
    let tick_ns = 1_000_000_000 / u64::try_from(ticks_a_second).unwrap_or(100).max(1);
    started_ticks(&stat)
        .is_some_and(|ticks| ticks.saturating_mul(tick_ns) <= time_ns.saturating_add(asleep_ns))
}

/// The processes above this one: its parent, and so on. Who is orphaned in the tree below becomes a
/// child of one of them, or of process 1.
pub fn ancestors() -> Vec<Pid> {
    const ANCESTORS_MAX: usize = 1000;
    let mut pid = Pid::own();
    let parent = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (_, rest) = stat.rsplit_once(") ")?;
        pid = rest.split(' ').nth(1)?.parse().ok()?;
        (pid != Pid(0)).then_some(pid)
    };
    std::iter::from_fn(parent).take(ANCESTORS_MAX).collect()
}

/// When a process started, by its line in /proc/PID/stat (proc_pid_stat(5)); `None` if it has
/// ended.
fn started_ticks(stat: &str) -> Option<u64> {
    // The state follows the name, which is in parentheses and may have any characters.
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let state = fields.next()?;
    let started = fields.nth(18)?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then_some(started)
}

/// Bytes that this process's children had read from storage, and theirs: those that have ended and
/// were waited for.
pub fn children_read_bytes() -> u64 {
    /// Of `ru_inblock`, whatever the device's (getrusage(2)).
    const BLOCK: u64 = 512;
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel writes one rusage.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr()) };
    // SAFETY: zeroed memory is a valid rusage, and the kernel filled it or left it.
    let usage = unsafe { usage.assume_init() };
    u64::try_from(usage.ru_inblock).unwrap_or(0) * BLOCK
}

/// Waits until a child has ended, and leaves it to be waited for.
pub fn wait_until_ended(pid: Pid) {
    loop {
        let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
        let options = libc::WEXITED | libc::WNOWAIT;
        // SAFETY: the kernel writes one siginfo.
        let result = unsafe { libc::waitid(libc::P_PID, pid.0, info.as_mut_ptr(), options) };
        let interrupted = || io::Error::last_os_error().kind() == io::ErrorKind::Interrupted;
        if result == 0 || !interrupted() {
            return;
        }
    }
}

/// Lets the calling thread run before others, as far as that is permitted: with CAP_SYS_NICE before
/// all, else as RLIMIT_NICE says. Threads and processes that it starts inherit it.
pub fn raise_priority() {
    // SAFETY: no memory is passed; a refusal leaves all as it is.
    let is_allowed = |nice| unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) } == 0;
    let _ = (-20..0).find(|&nice| is_allowed(nice));
}

/// Processor time of this thread, in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

#[inline]
fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the timespec is ours to write, and a clock that does not exist leaves it.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Asks the scheduler for short slices for this thread: no more CPU time in all, but sooner on a
/// busy CPU. Linux 6.12 and later support it (EEVDF: a shorter request has an earlier deadline);
/// others ignore it, and nothing depends on it.
pub fn short_slices() {
    /// The shortest that there is.
    const SLICE_NS: u64 = 100_000;
    /// As `struct sched_attr` in the kernel's `uapi/linux/sched/types.h`, its first version.
    #[repr(C)]
    #[derive(Default)]
    struct Attributes {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime_ns: u64,
        deadline_ns: u64,
        period_ns: u64,
    }
    let size = size_of::<Attributes>() as u32;
    let mut attributes = Attributes::default();
    // SAFETY: the kernel writes no more than the size that it is told.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
    let normal = attributes.policy == libc::SCHED_OTHER as u32;
    if got == 0 && normal {
        attributes.size = size;
        attributes.runtime_ns = SLICE_NS;
        // SAFETY: the kernel reads one struct of the size that it says.
        unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    }
}

/// Sends a signal to a process (a negative `pid`: to a group).
pub fn kill(pid: i32, signal: i32) -> io::Result<()> {
    // SAFETY: kill takes no memory.
    let result = unsafe { libc::kill(pid, signal) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Makes writes beyond the file size limit (`ulimit -f`) fail with EFBIG instead of killing this
/// process. The signal is caught rather than ignored, because a program that is started inherits
/// what its parent ignores. If our own parent had it ignored, it stays ignored.
pub fn outlive_file_size_limit() {
    extern "C" fn nothing(_: i32) {}
    let nothing = nothing as extern "C" fn(i32) as libc::sighandler_t;
    // SAFETY: a handler that does nothing is safe at any moment.
    let old = unsafe { libc::signal(libc::SIGXFSZ, nothing) };
    if old == libc::SIG_IGN {
        // SAFETY: as it was.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    }
}

/// A changed reaction to a signal; dropping it restores the old one.
#[derive(Debug)]
pub struct Reaction {
    signal: i32,
    old: libc::sighandler_t,
}

impl Reaction {
    fn set(signal: i32, handler: libc::sighandler_t) -> io::Result<Self> {
        // SAFETY: the handler is SIG_IGN or `forward`, which only makes async-signal-safe calls.
        let old = unsafe { libc::signal(signal, handler) };
        if old == libc::SIG_ERR {
            Err(io::Error::last_os_error())
        } else {
            Ok(Reaction { signal, old })
        }
    }

    /// Ignores the signal. A program that is started afterwards inherits that: start it first.
    pub fn ignore(signal: i32) -> io::Result<Self> {
        Self::set(signal, libc::SIG_IGN)
    }

    /// Passes the signal on to process `pid`, or keeps it until there is one where `pid` is 0: a
    /// parent must be ready before its child is. There is one such process at a time.
    pub fn forward(signal: i32, pid: i32) -> io::Result<Self> {
        FORWARD_TO.store(pid, Ordering::SeqCst);
        let reaction = Self::set(signal, forward as extern "C" fn(i32) as libc::sighandler_t)?;
        deliver(signal);
        Ok(reaction)
    }
}

impl Drop for Reaction {
    fn drop(&mut self) {
        // SAFETY: `old` is what the kernel had for this signal before.
        unsafe { libc::signal(self.signal, self.old) };
    }
}

static FORWARD_TO: AtomicI32 = AtomicI32::new(0);

/// Signals that have come and are not yet passed on, a bit each.
static PENDING: AtomicU64 = AtomicU64::new(0);

extern "C" fn forward(signal: i32) {
    PENDING.fetch_or(1 << (signal & 63), Ordering::SeqCst);
    deliver(signal);
}

/// Passes a pending signal on if there is a process to pass it to. The handler marks the signal
/// before it looks for the process, and whoever names the process does so before looking for marks:
/// one of the two sees both.
fn deliver(signal: i32) {
    let bit = 1 << (signal & 63);
    let pid = FORWARD_TO.load(Ordering::SeqCst);
    if pid > 0 && PENDING.fetch_and(!bit, Ordering::SeqCst) & bit != 0 {
        // A signal handler must leave errno as it was, and there is nobody to tell of a failure:
        // the raw call. SAFETY: kill takes no memory.
        unsafe {
            crate::syscalls::syscall(libc::SYS_kill, [pid as usize, signal as usize, 0, 0, 0, 0])
        };
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_forwarded_signal_reaches_the_child() {
        let mut child = Command::new("sleep").arg("100").spawn().expect("sleep");
        let early = Reaction::forward(libc::SIGUSR1, 0).expect("set");
        // It comes before the child is named, and is kept for it.
        kill(Pid::own().raw(), libc::SIGUSR1).expect("sent");
        while PENDING.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        let reaction = Reaction::forward(libc::SIGUSR1, child.id() as i32).expect("set");
        assert_eq!(child.wait().expect("waited").signal(), Some(libc::SIGUSR1));
        drop(reaction);
        drop(early);
    }

    #[test]
    fn an_ignored_signal_is_ignored() {
        let reaction = Reaction::ignore(libc::SIGUSR2).expect("set");
        kill(Pid::own().raw(), libc::SIGUSR2).expect("sent");
        assert!(kill(i32::MAX, libc::SIGUSR2).is_err(), "no such process");
        // The kernel keeps it if the main thread blocks signals, as it does while it starts a
        // thread: it may come when this test is over.
        std::mem::forget(reaction);
    }

    #[test]
    fn a_process_that_started_later_or_has_ended_is_not_the_one_that_is_meant() {
        let before_ns = monotonic_ns();
        std::thread::sleep(std::time::Duration::from_millis(30));
        let mut child = Command::new("sleep").arg("100").spawn().expect("sleep");
        let pid = child.id();
        assert!(was_started_by(Pid::own(), before_ns));
        assert!(was_started_by(Pid(pid), monotonic_ns()));
        assert!(!was_started_by(Pid(pid), before_ns), "another one's number");
        child.kill().expect("killed");
        wait_until_ended(Pid(pid));
        assert!(!was_started_by(Pid(pid), monotonic_ns()), "a zombie");
        child.wait().expect("waited for");
        assert!(!was_started_by(Pid(pid), monotonic_ns()));
        let named = "7 (a) S b) R 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 400 20";
        assert_eq!(started_ticks(named), Some(400));
        assert_eq!(started_ticks(&named.replace(") R", ") Z")), None);
        assert_eq!(started_ticks(""), None);
    }

    #[test]
    fn ancestors_begin_with_the_parent_and_end_with_the_first_process() {
        let ancestors = ancestors();
        assert_eq!(ancestors.first(), Some(&crate::syscalls::parent_pid()));
        assert!(!ancestors.contains(&Pid::own()));
    }

    #[test]
    fn clocks_do_not_run_backwards() {
        let first = monotonic_ns();
        assert!(monotonic_ns() >= first);
        let first = cpu_ns_of(Pid::own());
        assert!(first > 0 && cpu_ns() >= first);
        assert_eq!(cpu_ns_of(Pid(1 << 23)), 0, "twice as many as there can be");
    }
}
