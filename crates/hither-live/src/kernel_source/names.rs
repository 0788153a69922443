//! What files are called: as the process sees them that uses them first.
//!
//! An event has the path of a file below the root of its file system. The mounts of this process
//! make it a path here. A process in another mount namespace, such as a container's, has other
//! mounts, which are read for each namespace (and root in it), and again when a file is new, at
//! most twenty times a second. Only /proc is asked, and where the layers of overlays are.
//!
//! What is mounted in its namespace alone is found here through its root in /proc.
//!
//! A process may end before its events are taken. So its namespace is remembered from when it was
//! looked up, and that of its parent when it is forked.

use std::fs;
use std::path::{Path, PathBuf};

use hither_ids::Pid;
use hither_kernel::process::monotonic_ns;
use hither_kernel_events::event::Device;
use hither_kernel_events::{ForeignMounts, Mounts};
use rustc_hash::FxHashMap;

use crate::polling::Periodic;

/// How often mounts are read again, at most.
const MOUNTS_PERIOD_NS: u64 = 1_000_000_000;

/// How often those of another namespace are, which may still be set up: a container begins with all
/// mounts of the host.
const SEEN_PERIOD_NS: u64 = 50_000_000;

/// The mounts of so many namespaces are kept.
const VIEWS_MAX: usize = 1024;

/// What a file is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileName {
    /// As the process that uses it sees it.
    pub(super) seen: PathBuf,
    /// As it is found here.
    pub(super) here: PathBuf,
}

impl FileName {
    /// For the records of the file. The first one names it, and who opens it does so by the last.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        let here = (self.here != self.seen).then_some(&*self.here);
        std::iter::once(&*self.seen).chain(here)
    }

    /// For all the same.
    fn same(path: PathBuf) -> FileName {
        FileName {
            seen: path.clone(),
            here: path,
        }
    }
}

/// What all processes share that see the same mounts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct View {
    /// The mount namespace, as its link in /proc says.
    namespace: PathBuf,
    /// The root of the process.
    root: PathBuf,
}

impl View {
    /// That of a process, unless it has ended.
    fn of(process: Pid) -> Option<View> {
        let link = |name: &str| fs::read_link(format!("/proc/{process}/{name}")).ok();
        Some(View {
            namespace: link("ns/mnt")?,
            root: link("root")?,
        })
    }
}

/// What is seen in a view.
struct Seen {
    mounts: ForeignMounts,
    read: Periodic,
}

/// How a file is reached that only a process sees, as long as it lives.
fn through(process: Pid, seen: &Path) -> PathBuf {
    let root = PathBuf::from(format!("/proc/{process}/root"));
    root.join(seen.strip_prefix("/").unwrap_or(seen))
}

/// See the module.
pub(super) struct Names {
    here: Mounts,
    here_read: Periodic,
    /// The mount namespace of this process.
    namespace: Option<PathBuf>,
    seen: FxHashMap<View, Seen>,
    /// The views of processes in other namespaces.
    views: FxHashMap<Pid, View>,
}

impl Names {
    pub(super) fn new() -> Names {
        Names {
            here: Mounts::default(),
            here_read: Periodic::from_start(MOUNTS_PERIOD_NS),
            namespace: fs::read_link("/proc/self/ns/mnt").ok(),
            seen: FxHashMap::default(),
            views: FxHashMap::default(),
        }
    }

    /// Finds out what a process sees, while it lives.
    pub(super) fn look_up(&mut self, process: Pid) {
        if let Some(view) = self.view_of(process)
            && !self.seen.contains_key(&view)
        {
            self.read_seen(process, &view, monotonic_ns());
        }
    }

    /// A process has begun, with its parent's mounts.
    pub(super) fn fork(&mut self, parent: Pid, child: Pid) {
        self.look_up(parent);
        match self.views.get(&parent).cloned() {
            Some(view) => self.views.insert(child, view),
            None => self.views.remove(&child),
        };
    }

    /// A process has ended.
    pub(super) fn forget(&mut self, process: Pid) {
        self.views.remove(&process);
    }

    /// The name of a file that a process uses, by its path below the root of its file system.
    pub(super) fn of(
        &mut self,
        process: Pid,
        device: Device,
        below_root: Option<PathBuf>,
        is_cut: bool,
        now_ns: u64,
    ) -> FileName {
        let Some(below_root) = below_root else {
            return FileName::same("(no name)".into());
        };
        if is_cut {
            return FileName::same(Path::new("...").join(below_root));
        }
        let here = self.here(device, &below_root, now_ns);
        let seen = self.seen_by(process, device, &below_root, now_ns);
        match (seen, here) {
            (Some(seen), Some(here)) => FileName { seen, here },
            (Some(seen), None) => FileName {
                here: through(process, &seen),
                seen,
            },
            (None, Some(here)) => FileName::same(here),
            // Of a container whose process has ended, or of a disk that is no longer mounted.
            (None, None) => FileName::same(Path::new("(elsewhere)").join(below_root)),
        }
    }

    /// Where a file is here. File systems may be mounted meanwhile.
    fn here(&mut self, device: Device, below_root: &Path, now_ns: u64) -> Option<PathBuf> {
        let found = self.here.path(device, below_root);
        found.or_else(|| {
            self.read_here(now_ns);
            self.here.path(device, below_root)
        })
    }

    /// Reads what is mounted here, if that was not done just now.
    fn read_here(&mut self, now_ns: u64) {
        if self.here_read.is_due(now_ns) {
            self.here = Mounts::read().unwrap_or_default();
        }
    }

    /// What a process in another mount namespace calls a file.
    fn seen_by(
        &mut self,
        process: Pid,
        device: Device,
        below_root: &Path,
        now_ns: u64,
    ) -> Option<PathBuf> {
        let view = self.view_of(process)?;
        let found = |seen: &Seen| seen.mounts.path(device, below_root);
        if let Some(seen) = self.seen.get_mut(&view)
            && !seen.read.is_due(now_ns)
        {
            return found(seen);
        }
        self.read_seen(process, &view, now_ns);
        self.seen.get(&view).and_then(found)
    }

    /// The view of a process in another mount namespace, as it is, or as it was last.
    fn view_of(&mut self, process: Pid) -> Option<View> {
        let Some(view) = View::of(process) else {
            return self.views.get(&process).cloned();
        };
        let is_own = self.namespace.as_ref() == Some(&view.namespace);
        if is_own || self.namespace.is_none() {
            self.views.remove(&process);
            return None;
        }
        self.views.insert(process, view.clone());
        Some(view)
    }

    /// Reads what is seen in the view of a process, if it has not ended.
    fn read_seen(&mut self, process: Pid, view: &View, now_ns: u64) {
        // They say where the layers of overlays are.
        self.read_here(now_ns);
        let earlier = self.seen.get(view).map(|seen| &seen.mounts);
        let Ok(mounts) = ForeignMounts::read(process, &self.here, earlier) else {
            return;
        };
        if self.seen.len() >= VIEWS_MAX {
            self.seen.clear();
        }
        let mut read = Periodic::from_start(SEEN_PERIOD_NS);
        read.is_due(now_ns);
        self.seen.insert(view.clone(), Seen { mounts, read });
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::unix::fs::MetadataExt;
    use std::process::{Child, Command, Stdio};

    use hither_testing::needs::ON_A_DISK;
    use hither_testing::skip::skip_on_this_machine;

    use super::*;

    /// A process in a mount namespace of its own, after a command that mounts something there. None
    /// if there can be none.
    fn elsewhere(folder: &Path, mount: &str) -> Option<Child> {
        let script = format!("{mount} && echo done && exec cat");
        let mut child = Command::new("unshare")
            .args(["--mount", "sh", "-c", &script])
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut line = String::new();
        let said = child.stdout.as_mut().expect("piped");
        BufReader::new(said).read_line(&mut line).expect("read");
        if line == "done\n" {
            return Some(child);
        }
        child.wait().expect("waited for");
        None
    }

    #[test]
    fn a_process_that_has_ended_saw_what_it_saw_and_so_did_its_child() {
        let folder = tempfile::tempdir_in(ON_A_DISK).expect("a folder");
        let folder = folder.path();
        let [a, b] = ["a", "b"].map(|name| folder.join(name));
        fs::create_dir(&a).expect("created");
        fs::create_dir(&b).expect("created");
        let device = fs::metadata(&a).expect("it is there").dev();
        let device = Device::new(libc::major(device), libc::minor(device));
        let file = a.join("x");
        let below = file.strip_prefix("/").expect("absolute");
        let here = Mounts::read().expect("read").path(device, below);
        if here.as_ref() != Some(&file) {
            return skip_on_this_machine("it is another file system than that of the root");
        }
        let Some(mut process) = elsewhere(folder, "mount --bind a b") else {
            return skip_on_this_machine("no mount namespace can be made");
        };
        let pid = Pid::of(&process);
        // More than a process can have.
        let [child, unknown] = [Pid(1 << 30), Pid((1 << 30) + 1)];
        let mut names = Names::new();
        names.fork(pid, child);
        drop(process.stdin.take());
        process.wait().expect("waited for");
        let mut name = |pid| names.of(pid, device, Some(below.to_owned()), false, 0);
        for pid in [pid, child] {
            let name = name(pid);
            assert_eq!((name.seen, name.here), (b.join("x"), file.clone()));
        }
        assert_eq!(name(unknown), FileName::same(file.clone()));
        assert_eq!(name(Pid::own()), FileName::same(file.clone()));
        names.forget(child);
        let name = names.of(child, device, Some(below.to_owned()), false, 0);
        assert_eq!(name.seen, file);
    }

    #[test]
    fn what_only_a_process_sees_is_found_through_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path();
        let own = folder.join("own");
        fs::create_dir(&own).expect("created");
        let mount = "mount -t tmpfs none own && echo here > own/x";
        let Some(mut process) = elsewhere(folder, mount) else {
            return skip_on_this_machine("no mount namespace can be made");
        };
        let pid = Pid::of(&process);
        let there = fs::metadata(through(pid, &own.join("x"))).expect("it is there");
        let device = Device::new(libc::major(there.dev()), libc::minor(there.dev()));
        let mut names = Names::new();
        let name = names.of(pid, device, Some("x".into()), false, 0);
        assert_eq!(name.seen, own.join("x"));
        assert_eq!(fs::read(&name.here).expect("read"), b"here\n");
        drop(process.stdin.take());
        process.wait().expect("waited for");
        let unknown = names.of(Pid::own(), device, Some("x".into()), false, 0);
        assert_eq!(unknown, FileName::same("(elsewhere)/x".into()));
    }
}
