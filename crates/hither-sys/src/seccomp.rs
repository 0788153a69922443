//! How many seccomp filters a process is under.
//!
//! A filter that was installed before the program was executed (by a sandbox, by a service manager)
//! may kill for any system call that the program itself never makes. The agent's own filters are no
//! worry: it makes such calls too.

use crate::syscalls;

/// Seccomp filters over this process; 0 where /proc does not say. Before Linux 5.9, which does not
/// count them, 1 stands for any number.
pub(crate) fn filter_count() -> u32 {
    let Ok(file) = syscalls::open(c"/proc/self/status", libc::O_RDONLY) else {
        return 0;
    };
    // All fields come with the first read; the file has some 1,500 bytes.
    let mut buffer = [0; 4096];
    let length = syscalls::read(file, &mut buffer).unwrap_or(0);
    syscalls::close(file);
    filters_in(&buffer[..length.min(buffer.len())])
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
