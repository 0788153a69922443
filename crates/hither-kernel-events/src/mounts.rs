//! Where file systems are mounted: the kernel's events have paths below the root of a file system,
//! and cgroups have folders in a hierarchy.

pub(crate) mod foreign;
mod overlay;

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use hither_ids::Pid;

use crate::error::Error;
use crate::event::Device;

/// The mounts of this process.
#[derive(Clone, Debug, Default)]
pub struct Mounts(Vec<Mount>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    device: Device,
    /// What part of the file system is seen, below its root.
    root: PathBuf,
    /// Where.
    pub(crate) at: PathBuf,
    /// The type of the file system.
    pub(crate) kind: String,
    /// The options of the file system, with their escapes.
    pub(crate) options: Vec<u8>,
}

/// A folder or file by where it is in its file system.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct InFileSystem {
    device: Device,
    /// From the root of the file system on.
    path: PathBuf,
}

impl Mounts {
    /// Reads those that there are now.
    pub fn read() -> Result<Mounts, Error> {
        Mounts::read_from("/proc/self/mountinfo".to_owned())
    }

    /// Reads those that a process sees, by the paths that it sees.
    fn of_process(process: Pid) -> Result<Mounts, Error> {
        Mounts::read_from(format!("/proc/{process}/mountinfo"))
    }

    fn read_from(path: String) -> Result<Mounts, Error> {
        match fs::read(&path) {
            Ok(text) => Ok(Mounts::parse(&text)),
            Err(source) => Err(Error::Read { path, source }),
        }
    }

    /// Of the text of /proc/PID/mountinfo (proc_pid_mountinfo(5)). Other lines are left out.
    fn parse(text: &[u8]) -> Mounts {
        Mounts(
            text.split(|byte| *byte == b'\n')
                .filter_map(Mount::parse)
                .collect(),
        )
    }

    /// Where a file is, by its path below the root of its file system: at the latest mount that
    /// shows it. None if no mount does.
    pub fn path(&self, device: Device, below_root: &Path) -> Option<PathBuf> {
        let shows = |mount: &&Mount| mount.device == device;
        let mut showing = self.0.iter().rev().filter(shows).filter_map(|mount| {
            let below = Path::new("/").join(below_root);
            Some(joined(&mount.at, below.strip_prefix(&mount.root).ok()?))
        });
        showing.next()
    }

    /// The mount that a path is in. It must have no symbolic links.
    pub(crate) fn of(&self, path: &Path) -> Option<&Mount> {
        let holds = |mount: &&Mount| path.starts_with(&mount.at);
        // Of several at one place, the latest.
        self.0
            .iter()
            .filter(holds)
            .max_by_key(|mount| mount.at.components().count())
    }

    /// Where a path is in its file system. It must have no symbolic links.
    fn place(&self, path: &Path) -> Option<InFileSystem> {
        let mount = self.of(path)?;
        Some(InFileSystem {
            device: mount.device,
            path: joined(&mount.root, path.strip_prefix(&mount.at).ok()?),
        })
    }
}

impl Mounts {
    /// The hierarchies of cgroups that can be observed, the second version's first.
    pub(crate) fn cgroup_hierarchies(&self) -> impl Iterator<Item = &Mount> {
        let of_version = |second| {
            let all = self.0.iter();
            all.filter(move |mount| mount.is_cgroup() && (mount.kind == "cgroup2") == second)
        };
        of_version(true).chain(of_version(false))
    }
}

impl Mount {
    /// Whether its cgroups can be observed: those of the second version, or of the memory
    /// controller in the first.
    pub(crate) fn is_cgroup(&self) -> bool {
        let mut options = self.options.split(|byte| *byte == b',');
        self.kind == "cgroup2" || self.kind == "cgroup" && options.any(|option| option == b"memory")
    }

    fn parse(line: &[u8]) -> Option<Mount> {
        let mut words = line.split(|byte| *byte == b' ');
        let numbers = std::str::from_utf8(words.nth(2)?).ok()?;
        let (major, minor) = numbers.split_once(':')?;
        let (root, at) = (unescape(words.next()?), unescape(words.next()?));
        let mut rest = words.skip_while(|word| *word != b"-").skip(1);
        let kind = String::from_utf8_lossy(rest.next()?).into_owned();
        Some(Mount {
            device: Device::new(major.parse().ok()?, minor.parse().ok()?),
            root: OsString::from_vec(root).into(),
            at: OsString::from_vec(at).into(),
            kind,
            options: rest.nth(1)?.to_owned(),
        })
    }
}

/// A path below another one, which may be that one.
fn joined(folder: &Path, below: &Path) -> PathBuf {
    if below.as_os_str().is_empty() {
        return folder.to_owned();
    }
    folder.join(below)
}

/// Spaces and the like are three octal digits after a backslash.
fn unescape(word: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = word;
    while let Some((first, after)) = rest.split_first() {
        let code = after.first_chunk::<3>().filter(|_| *first == b'\\');
        let code = code.and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"\
        20 1 254:1 / / rw,noatime shared:1 - ext4 /dev/vda rw\n\
        21 20 0:40 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
        22 20 254:1 /var/a\\040b /mnt/x\\134y rw - ext4 /dev/vda rw\n\
        23 20 254:1 /var/hosts /etc/hosts rw - ext4 /dev/vda rw\n\
        bad\n";

    #[test]
    fn a_path_is_found_at_a_mount_that_shows_it() {
        let mounts = Mounts::parse(TEXT);
        let device = Device::new(254, 1);
        let path = |below: &str| mounts.path(device, Path::new(below));
        assert_eq!(path("etc/passwd"), Some("/etc/passwd".into()));
        assert_eq!(path("var/a b/c"), Some("/mnt/x\\y/c".into()));
        // Without a slash behind it.
        let hosts = path("var/hosts").expect("mounted");
        assert_eq!(hosts.as_os_str(), "/etc/hosts");
        assert_eq!(mounts.path(Device::new(1, 1), Path::new("a")), None);
        let cgroup = mounts.of(Path::new("/sys/fs/cgroup/memory/a")).unwrap();
        assert_eq!(
            (&*cgroup.kind, &*cgroup.options),
            ("cgroup", &b"rw,memory"[..])
        );
        assert!(cgroup.is_cgroup());
        assert_eq!(mounts.of(Path::new("/sys")).unwrap().at, Path::new("/"));
    }

    #[test]
    fn a_path_is_at_a_place_in_its_file_system() {
        let mounts = Mounts::parse(TEXT);
        let path = |path: &str| mounts.place(Path::new(path)).expect("mounted").path;
        assert_eq!(path("/mnt/x\\y/c"), Path::new("/var/a b/c"));
        assert_eq!(path("/mnt/x\\y").as_os_str(), "/var/a b");
        assert_eq!(path("/etc/passwd"), Path::new("/etc/passwd"));
    }
}
