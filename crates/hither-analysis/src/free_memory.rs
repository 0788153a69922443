//! The memory that is free for the references of a trace.
//!
//! The bounds are the available memory of the machine and the limits of the control groups of this
//! process. In batch systems and containers these are often much lower, and a job that exceeds them
//! is killed.

use std::fs;
use std::path::Path;

/// Half of the free memory, or 512 MiB if it cannot be read.
pub fn half_of_free_bytes() -> u64 {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let machine = available(&read("/proc/meminfo"));
    let groups = left_in_groups(Path::new("/sys/fs/cgroup"), &read("/proc/self/cgroup"));
    [machine, groups]
        .into_iter()
        .flatten()
        .min()
        .unwrap_or(1 << 30)
        / 2
}

/// The available memory in bytes, from the text of `/proc/meminfo`.
fn available(meminfo: &str) -> Option<u64> {
    let kilobytes = meminfo.lines().find_map(|line| {
        let rest = line.strip_prefix("MemAvailable:")?;
        rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    });
    kilobytes.map(|kilobytes| kilobytes * 1024)
}

/// The smallest remainder of the limits of this process's control groups and their parents, from
/// the text of `/proc/self/cgroup`, version 2 or 1.
fn left_in_groups(mounted: &Path, groups: &str) -> Option<u64> {
    let left = groups.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let (mounted, limit, used) = match controllers {
            "" => (mounted.to_owned(), "memory.max", "anon"),
            "memory" => (mounted.join("memory"), "memory.limit_in_bytes", "total_rss"),
            _ => return None,
        };
        let own = mounted.join(path.trim_start_matches('/'));
        let around = own
            .ancestors()
            .take_while(|group| group.starts_with(&mounted));
        around.filter_map(|group| left(group, limit, used)).min()
    });
    left.min()
}

/// The limit of a group, if it has one, less the anonymous memory of its processes. Cached files do
/// not count, since the kernel evicts them.
fn left(group: &Path, limit: &str, used: &str) -> Option<u64> {
    let read = |name| fs::read_to_string(group.join(name));
    let limit: u64 = read(limit).ok()?.trim().parse().ok()?;
    let stat = read("memory.stat").unwrap_or_default();
    let mut counts = stat.lines().filter_map(|line| line.split_once(' '));
    let used = counts.find(|(name, _)| *name == used);
    let used = used.and_then(|(_, bytes)| bytes.parse().ok());
    Some(limit.saturating_sub(used.unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_says_what_is_available() {
        let meminfo = "MemTotal:  9 kB\nMemAvailable:    5 kB\n";
        assert_eq!(available(meminfo), Some(5 * 1024));
        assert_eq!(available("MemTotal:  9 kB\n"), None);
    }

    #[test]
    fn the_tightest_group_counts() {
        let mounted = tempfile::tempdir().unwrap();
        let group = |path: &str, files: &[(&str, &str)]| {
            let folder = mounted.path().join(path);
            fs::create_dir_all(&folder).unwrap();
            for (name, text) in files {
                fs::write(folder.join(name), text).unwrap();
            }
        };
        let left = |groups: &str| left_in_groups(mounted.path(), groups);
        group(
            "job",
            &[
                ("memory.max", "1000\n"),
                ("memory.stat", "file 700\nanon 300\n"),
            ],
        );
        group(
            "job/step",
            &[("memory.max", "max\n"), ("memory.stat", "anon 200\n")],
        );
        assert_eq!(left("0::/job/step\n"), Some(700));
        assert_eq!(left("0::/\n"), None);
        let first = [
            ("memory.limit_in_bytes", "500\n"),
            ("memory.stat", "rss 9\ntotal_rss 100\n"),
        ];
        group("memory/old", &first);
        assert_eq!(left("9:cpu:/x\n4:memory:/old\n0::/\n"), Some(400));
        assert_eq!(left("4:memory:/old\n0::/job/step\n"), Some(400));
        assert_eq!(left(""), None);
    }
}
