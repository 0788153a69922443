//! How many seccomp filters a process is under.
//!
//! A filter that was installed before the program was executed (by a sandbox, by a service manager)
//! may kill for any system call that the program itself never makes. The agent asks first, where it
//! can do without a call: [`allows`].

use crate::syscalls;

/// Seccomp filters over this process; 0 where /proc does not say. Before Linux 5.9, which does not
/// count them, 1 stands for any number.
pub fn filter_count() -> u32 {
    let Ok(file) = syscalls::open(c"/proc/self/status", libc::O_RDONLY) else {
        return 0;
    };
    // All fields come with the first read; the file has some 1,500 bytes.
    let mut buffer = [0; 4096];
    let length = syscalls::read(file, &mut buffer).unwrap_or(0);
    syscalls::close(file);
    filters_in(&buffer[..length.min(buffer.len())])
}

/// Whether this process may make a system call. Where a filter is over it, a child tries: systemd's
/// `SystemCallFilter=@system-service` kills for calls that it does not list (`cachestat` and
/// `mincore`, systemd 257).
pub fn allows(number: libc::c_long) -> bool {
    filter_count() == 0 || child_survives(number)
}

/// Whether a child lives through a system call with arguments that are no descriptor and no memory.
fn child_survives(number: libc::c_long) -> bool {
    // SAFETY: the child makes system calls alone, which need nothing of other threads, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let undumped = [libc::PR_SET_DUMPABLE as usize, 0, 0, 0, 0, 0];
        // SAFETY: it keeps a kill from writing a core, and touches no memory.
        unsafe { syscalls::syscall(libc::SYS_prctl, undumped) };
        // SAFETY: where it is let through, it is refused for its descriptor; it touches no memory.
        unsafe { syscalls::syscall(number, [usize::MAX; 6]) };
        // SAFETY: the child has nothing to clean up.
        unsafe { libc::_exit(0) };
    }
    if child < 0 {
        return false;
    }
    let mut status = -1;
    loop {
        // SAFETY: the status is this function's own.
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
        if waited == child {
            return libc::WIFEXITED(status);
        }
        if std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
            return false;
        }
    }
}

/// As [`filter_count`], of what the file holds.
fn filters_in(status: &[u8]) -> u32 {
    let field = |name: &[u8]| {
        let line = status.split(|&byte| byte == b'\n');
        let value = line.into_iter().find_map(|line| line.strip_prefix(name))?;
        str::from_utf8(value.trim_ascii()).ok()?.parse::<u32>().ok()
    };
    let mode = || field(b"Seccomp:").map(|mode| u32::from(mode > 0));
    field(b"Seccomp_filters:").or_else(mode).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_counted_where_the_kernel_counts_them() {
        let new = b"Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t3\nThreads:\t1\n";
        assert_eq!(filters_in(new), 3);
        assert_eq!(filters_in(b"NoNewPrivs:\t0\nSeccomp:\t2\n"), 1);
        assert_eq!(filters_in(b"Seccomp:\t0\n"), 0);
        assert_eq!(filters_in(b"Seccomp_filters:\tmany"), 0);
        assert_eq!(filters_in(b""), 0);
        let own = std::fs::read("/proc/self/status").unwrap();
        assert_eq!(filter_count(), filters_in(&own));
    }
}
