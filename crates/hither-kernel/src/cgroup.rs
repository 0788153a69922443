//! The memory limit of a process's control group, and how much of it is left for files.
//!
//! Both cgroup versions. Memory is charged to every group from the process's up to the mount's
//! root, so the lowest limit among them counts. A limit of at least the machine's memory is no
//! limit.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use hither_ids::Pid;

use crate::page_bytes;

/// A memory control group that has a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryGroup {
    folder: PathBuf,
    version: Version,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl MemoryGroup {
    /// The group whose limit holds for this process; none if it has no limit. The error names a
    /// file that could not be read.
    pub fn of_this_process() -> io::Result<Option<MemoryGroup>> {
        MemoryGroup::of_process(Pid::own())
    }

    /// The same for another process.
    pub fn of_process(process: Pid) -> io::Result<Option<MemoryGroup>> {
        let groups = fs::read_to_string(format!("/proc/{process}/cgroup"))?;
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        MemoryGroup::find(&groups, &mounts, memory_of_machine()?)
    }

    /// The group whose limit holds for the group of this folder.
    pub fn of_folder(folder: &Path) -> io::Result<Option<MemoryGroup>> {
        let version = if folder.join("memory.limit_in_bytes").exists() {
            Version::One
        } else {
            Version::Two
        };
        let is_group = |folder: &&Path| folder.join("cgroup.procs").exists();
        let groups = folder.ancestors().take_while(is_group);
        MemoryGroup::tightest(groups, version, memory_of_machine()?)
    }

    fn find(groups: &str, mounts: &str, total: u64) -> io::Result<Option<MemoryGroup>> {
        let Some((version, folders)) = folders(groups, mounts) else {
            return Ok(None);
        };
        MemoryGroup::tightest(folders.iter().map(PathBuf::as_path), version, total)
    }

    /// Of these, the one with the lowest limit below `total`.
    fn tightest<'a>(
        groups: impl Iterator<Item = &'a Path>,
        version: Version,
        total: u64,
    ) -> io::Result<Option<MemoryGroup>> {
        let mut tightest = None;
        let mut lowest = total;
        for folder in groups {
            let group = MemoryGroup {
                folder: folder.to_owned(),
                version,
            };
            if let Some(limit) = group.limit()?
                && limit < lowest
            {
                (lowest, tightest) = (limit, Some(group));
            }
        }
        Ok(tightest)
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The number in a file of the group; none if it is no number, or there is no such file: a
    /// group at the top of its hierarchy has no limits.
    fn number(&self, file: &str) -> io::Result<Option<u64>> {
        let path = self.folder.join(file);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(text.trim().parse().ok()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => {
                let message = format!("{}: {error}", path.display());
                Err(io::Error::new(error.kind(), message))
            }
        }
    }

    /// Its limit; in version 2, also the limit above which it is throttled.
    pub fn limit_bytes(&self) -> Option<u64> {
        self.limit().ok().flatten()
    }

    fn limit(&self) -> io::Result<Option<u64>> {
        match self.version {
            Version::One => self.number("memory.limit_in_bytes"),
            Version::Two => {
                let limits = [self.number("memory.max")?, self.number("memory.high")?];
                Ok(limits.into_iter().flatten().min())
            }
        }
    }

    /// What the limit leaves for pages of files: the limit less the memory of programs and the
    /// kernel that cannot be reclaimed. None where the group is gone.
    pub fn file_bytes(&self) -> Option<u64> {
        Some(self.for_files()?.bytes)
    }

    /// What it leaves for pages of files, and what of that is mapped. `None` where the group is
    /// gone.
    pub fn for_files(&self) -> Option<MemoryForFiles> {
        let text = fs::read_to_string(self.folder.join("memory.stat")).ok()?;
        let of = |name: &str| field(&text, name).unwrap_or(0);
        let (held, kernel, mapped, shared) = match self.version {
            Version::One => {
                let kernel = self.number("memory.kmem.usage_in_bytes").ok()?.unwrap_or(0);
                let shared = of("total_shmem");
                let held = of("total_rss") + shared + kernel;
                (held, kernel, of("total_mapped_file"), shared)
            }
            Version::Two => {
                let kernel = of("kernel").saturating_sub(of("slab_reclaimable"));
                let shared = of("shmem");
                let held = of("anon") + shared + kernel;
                (held, kernel, of("file_mapped"), shared)
            }
        };
        // A limit may be lifted.
        let machine = memory_of_machine().ok()?;
        let limit = self.limit_bytes().unwrap_or(machine).min(machine);
        Some(MemoryForFiles {
            bytes: limit.saturating_sub(held),
            // Shared memory counts as mapped, too.
            mapped_bytes: mapped.saturating_sub(shared),
            kernel_bytes: kernel,
        })
    }

    /// What it is charged with for cached pages of files, also in the groups below it. 0 where the
    /// group is gone.
    pub fn cached_bytes(&self) -> u64 {
        let text = fs::read_to_string(self.folder.join("memory.stat")).unwrap_or_default();
        let of = |name: &str| field(&text, name).unwrap_or(0);
        match self.version {
            Version::One => of("total_cache").saturating_sub(of("total_shmem")),
            Version::Two => of("file").saturating_sub(of("shmem")),
        }
    }
}

/// The folders of the memory groups that this process is in, the lowest first.
///
/// # Errors
/// A file of /proc that could not be read.
pub fn folders_of_this_process() -> io::Result<Vec<PathBuf>> {
    let groups = fs::read_to_string("/proc/self/cgroup")?;
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    Ok(folders(&groups, &mounts).map_or(Vec::new(), |(_, folders)| folders))
}

/// The folders of a process's memory groups, the lowest first, by its /proc/PID/cgroup and
/// /proc/self/mountinfo.
fn folders(groups: &str, mounts: &str) -> Option<(Version, Vec<PathBuf>)> {
    let (version, path) = groups.lines().find_map(own_group)?;
    let (root, mount) = mounts.lines().find_map(|line| mounted(line, version))?;
    // In a container the mount may show only a part of the tree, and the process's path may be
    // outside of it.
    let below = path.strip_prefix(&root).unwrap_or(Path::new(""));
    let lowest = mount.join(below);
    let folders = lowest.ancestors();
    let folders = folders.take_while(|folder| folder.starts_with(&mount));
    Some((version, folders.map(Path::to_owned).collect()))
}

/// What a group leaves for pages of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryForFiles {
    /// In bytes.
    pub bytes: u64,
    /// What programs have mapped of files, in bytes: at least their own code.
    pub mapped_bytes: u64,
    /// What the kernel holds for the group and cannot reclaim, in bytes. It is in `bytes` already.
    pub kernel_bytes: u64,
}

fn memory_of_machine() -> io::Result<u64> {
    let memory = fs::read_to_string("/proc/meminfo")?;
    Ok(field(&memory, "MemTotal:").map_or(u64::MAX, |kib| kib << 10))
}

/// Bytes of file pages that were read in anew after they had been reclaimed: in a group and those
/// below it, or on the whole machine. 0 where the kernel does not say.
pub fn refaulted_file_bytes(group: Option<&MemoryGroup>) -> u64 {
    let path = match group {
        Some(group) => group.folder.join("memory.stat"),
        None => PathBuf::from("/proc/vmstat"),
    };
    let text = fs::read_to_string(path).unwrap_or_default();
    // Version 1 has a second one for the groups below.
    let names = ["total_workingset_refault_file", "workingset_refault_file"];
    let pages = names.iter().find_map(|name| field(&text, name));
    pages.unwrap_or(0) * page_bytes()
}

/// The number after a name at the start of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines();
    lines.find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next()? == name).then(|| words.next()?.parse().ok())?
    })
}

/// The path of the memory group that a line of /proc/self/cgroup has. A hierarchy of version 1 with
/// the memory controller comes before that of version 2, which does not have the controller then.
fn own_group(line: &str) -> Option<(Version, PathBuf)> {
    let mut parts = line.splitn(3, ':');
    let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
    if controllers.split(',').any(|name| name == "memory") {
        Some((Version::One, path.into()))
    } else if (number, controllers) == ("0", "") {
        Some((Version::Two, path.into()))
    } else {
        None
    }
}

/// The root and the place of the hierarchy, if that is what a line of /proc/self/mountinfo is about
/// (proc_pid_mountinfo(5)).
fn mounted(line: &str, version: Version) -> Option<(PathBuf, PathBuf)> {
    let (mount, rest) = line.split_once(" - ")?;
    let mut mount = mount.split(' ').skip(3);
    let (root, place) = (mount.next()?, mount.next()?);
    let mut rest = rest.split(' ');
    let (kind, options) = (rest.next()?, rest.nth(1)?);
    let wanted = match version {
        Version::One => kind == "cgroup" && options.split(',').any(|option| option == "memory"),
        Version::Two => kind == "cgroup2",
    };
    wanted.then(|| (root.into(), place.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    /// Files below a folder, made with those that lead to them.
    fn files(below: &Path, files: &[(&str, &str)]) {
        for (name, text) in files {
            let path = below.join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            fs::write(path, text).expect("written");
        }
    }

    #[test]
    fn the_lowest_limit_on_the_way_up_counts_in_version_1() {
        let folder = tempfile::tempdir().expect("a folder");
        let mount = folder.path().to_str().expect("text");
        files(
            folder.path(),
            &[
                ("memory.limit_in_bytes", "9223372036854771712\n"),
                ("a/memory.limit_in_bytes", "268435456\n"),
                (
                    "a/memory.stat",
                    "rss 1\ntotal_rss 8388608\ntotal_shmem 4194304\n",
                ),
                ("a/memory.kmem.usage_in_bytes", "4194304\n"),
                ("a/b/memory.limit_in_bytes", "9223372036854771712\n"),
            ],
        );
        let groups = "5:cpu:/x\n4:memory:/a/b\n0::/c\n";
        let mounts = format!(
            "30 20 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
             31 20 0:28 / {mount} rw,relatime shared:9 - cgroup cgroup rw,memory\n"
        );
        let find = |mounts: &str, total| MemoryGroup::find(groups, mounts, total).expect("read");
        let group = find(&mounts, GIB).expect("a limit");
        assert_eq!(group.folder(), folder.path().join("a"));
        assert_eq!(group.limit_bytes(), Some(256 << 20));
        assert_eq!(group.file_bytes(), Some(240 << 20));
        assert_eq!(find(&mounts, 1 << 20), None);
        assert_eq!(find("", GIB), None);
        fs::remove_dir_all(folder.path().join("a")).expect("removed");
        assert_eq!(group.file_bytes(), None);
    }

    #[test]
    fn the_lower_of_max_and_high_counts_in_version_2() {
        let folder = tempfile::tempdir().expect("a folder");
        let mount = folder.path().to_str().expect("text");
        files(
            folder.path(),
            &[
                ("a/memory.max", "max\n"),
                ("a/memory.high", "134217728\n"),
                (
                    "a/memory.stat",
                    "anon 16777216\nkernel 8388608\nslab_reclaimable 4194304\nshmem 0\n",
                ),
            ],
        );
        // The mount shows the part of the tree below /outer.
        let mounts = format!("31 20 0:28 /outer {mount} rw shared:9 - cgroup2 cgroup2 rw\n");
        let find = || MemoryGroup::find("0::/outer/a\n", &mounts, GIB);
        let group = find().expect("read").expect("a limit");
        assert_eq!(group.limit_bytes(), Some(128 << 20));
        assert_eq!(group.file_bytes(), Some(108 << 20));
        fs::write(folder.path().join("a/memory.high"), "max\n").expect("written");
        assert_eq!(group.limit_bytes(), None);
        assert_eq!(find().expect("read"), None);
        // Not even root can read a folder as a file.
        let max = folder.path().join("a/memory.max");
        fs::remove_file(&max).expect("removed");
        fs::create_dir(&max).expect("made");
        let error = find().expect_err("it cannot be read").to_string();
        assert!(error.contains("a/memory.max: "), "{error}");
    }

    #[test]
    fn this_process_has_a_group_or_none() {
        if let Some(group) = MemoryGroup::of_this_process().expect("/proc") {
            assert!(group.limit_bytes().is_some());
        }
    }
}
