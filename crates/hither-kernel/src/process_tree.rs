//! A program and its descendants: what they read from storage, by the kernel's own account, and
//! which files they have mapped.
//!
//! `/proc/PID/io` counts the bytes that a process had fetched from storage: by reads, by readahead,
//! and through mappings. It includes the children that the process has waited for. So the sum over
//! the living tree is all of it, except for what descendants read that nobody waits for.
//!
//! A daemon leaves the tree: its parent ends. It is asked for as long as it lives, provided that it
//! was seen before. Counts follow each other sooner than the kernel gives a number to another
//! process.
//!
//! A child that ends while the tree is asked is in its parent's account or in its own, in none or
//! in both. So a count is repeated until it has met the processes of the one before.

use hither_ids::Pid;

use crate::file_id::Inode;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// More processes than this are not asked: of a larger tree a part is seen.
const PROCESSES_MAX: usize = 1024;

/// Of a process with more threads than this, children of some threads may be missed.
const THREADS_MAX: usize = 64;

/// A tree in which processes start and end all the time is asked so often for one count.
const TRIES_MAX: usize = 4;

/// No more of a file in /proc is read.
const TEXT_BYTES_MAX: u64 = 16 << 20;

/// Bytes that processes had transferred to and from storage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transferred {
    /// Returned by calls that read: of files, cached or not, pipes, terminals.
    pub called_bytes: u64,
    /// Fetched from storage.
    pub read_bytes: u64,
    /// Written to the page cache, for storage.
    pub written_bytes: u64,
}

impl Transferred {
    /// What a process and the children that it has waited for transferred. `None` if it is gone,
    /// another user's, or (Linux 6.18, without CAP_SYS_PTRACE) has ended and nobody has waited for
    /// it.
    pub fn by(pid: Pid) -> Option<Transferred> {
        Transferred::parse(&fs::read_to_string(format!("/proc/{pid}/io")).ok()?)
    }

    fn parse(text: &str) -> Option<Transferred> {
        let number = |name: &str| {
            let mut lines = text.lines();
            lines.find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
        };
        Some(Transferred {
            called_bytes: number("rchar: ")?,
            read_bytes: number("read_bytes: ")?,
            written_bytes: number("write_bytes: ")?,
        })
    }

    /// What was transferred since an earlier count.
    pub fn since(self, earlier: Transferred) -> Transferred {
        Transferred {
            called_bytes: self.called_bytes.saturating_sub(earlier.called_bytes),
            read_bytes: self.read_bytes.saturating_sub(earlier.read_bytes),
            written_bytes: self.written_bytes.saturating_sub(earlier.written_bytes),
        }
    }

    /// Adds what another one has transferred.
    pub fn add(&mut self, other: Transferred) {
        self.called_bytes += other.called_bytes;
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
    }
}

/// Where trees of processes begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Roots {
    /// At these processes.
    Processes(Vec<Pid>),
    /// At each process of the cgroup of this folder, and of those below it.
    Cgroup(PathBuf),
}

/// Processes and their descendants.
#[derive(Debug)]
pub struct ProcessTree {
    roots: Roots,
    /// The processes of the last count.
    processes: BTreeSet<Pid>,
    /// What they had transferred when that could be read last.
    accounts: BTreeMap<Pid, Transferred>,
    /// The sum at the last count.
    sum: Transferred,
    total: Transferred,
    text: Vec<u8>,
}

impl Roots {
    /// The processes now.
    fn now(&self) -> Vec<Pid> {
        match self {
            Roots::Processes(processes) => processes.clone(),
            Roots::Cgroup(folder) => {
                let mut found = Vec::new();
                add_members(folder, &mut found);
                found
            }
        }
    }
}

/// Adds the processes of a cgroup and of those below it.
fn add_members(folder: &Path, found: &mut Vec<Pid>) {
    let members = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    found.extend(members.lines().filter_map(|pid| pid.parse::<Pid>().ok()));
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if found.len() < PROCESSES_MAX && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            add_members(&entry.path(), found);
        }
    }
}

impl ProcessTree {
    /// The tree below a process.
    pub fn of(root: Pid) -> ProcessTree {
        ProcessTree::below(Roots::Processes(vec![root]))
    }

    /// The trees below these.
    pub fn below(roots: Roots) -> ProcessTree {
        ProcessTree {
            roots,
            processes: BTreeSet::new(),
            accounts: BTreeMap::new(),
            sum: Transferred::default(),
            total: Transferred::default(),
            text: Vec::new(),
        }
    }

    /// The bytes so far. They never decrease: a branch of the tree that was lost without being
    /// waited for stays counted.
    pub fn transferred(&mut self) -> Transferred {
        let mut sum = Transferred::default();
        for _ in 0..TRIES_MAX {
            let before = std::mem::take(&mut self.processes);
            sum = Transferred::default();
            for root in self.roots.now() {
                self.add_tree(root, &mut sum);
            }
            for &pid in &before {
                if !self.processes.contains(&pid) && self.of_process(pid).is_some() {
                    self.add_tree(pid, &mut sum);
                }
            }
            if self.processes == before {
                break;
            }
        }
        let before = std::mem::replace(&mut self.sum, sum);
        self.total.add(sum.since(before));
        let processes = &self.processes;
        self.accounts.retain(|pid, _| processes.contains(pid));
        self.total
    }

    /// What the threads that live now have transferred in their lives: not those that have begun to
    /// end, nor children that were waited for.
    pub fn transferred_by_living(&mut self) -> Transferred {
        let before = std::mem::take(&mut self.processes);
        let mut ignored = Transferred::default();
        let roots = self.roots.now().into_iter();
        roots
            .chain(before)
            .for_each(|root| self.add_tree(root, &mut ignored));
        let processes = &self.processes;
        self.accounts.retain(|pid, _| processes.contains(pid));
        let mut sum = Transferred::default();
        for pid in processes {
            let threads = fs::read_dir(format!("/proc/{pid}/task"));
            for thread in threads.into_iter().flatten().flatten() {
                let status = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
                if is_ending(&status) {
                    continue;
                }
                let account = fs::read_to_string(thread.path().join("io")).ok();
                let account = account.and_then(|text| Transferred::parse(&text));
                sum.add(account.unwrap_or_default());
            }
        }
        sum
    }

    /// Adds a process and its descendants, those that are there already excepted.
    fn add_tree(&mut self, root: Pid, sum: &mut Transferred) {
        let mut found = vec![root];
        while let Some(pid) = found.pop() {
            if self.processes.len() == PROCESSES_MAX || !self.processes.insert(pid) {
                continue;
            }
            match self.of_process(pid) {
                Some(of_process) => {
                    self.accounts.insert(pid, of_process);
                    sum.add(of_process);
                }
                // Of another user, or it has ended and nobody has waited for it: until then its
                // parent's account lacks what it was last seen to have.
                None if Path::new(&format!("/proc/{pid}")).exists() => {
                    sum.add(self.accounts.get(&pid).copied().unwrap_or_default());
                }
                None => drop(self.processes.remove(&pid)),
            }
            self.add_children(pid, &mut found);
        }
    }

    fn of_process(&mut self, pid: Pid) -> Option<Transferred> {
        Transferred::parse(self.read(&format!("/proc/{pid}/io"))?)
    }

    /// The processes of the last count.
    pub fn processes(&self) -> &BTreeSet<Pid> {
        &self.processes
    }

    /// The files that processes have mapped, their own programs and libraries
    /// included. The processes are those of the last count.
    pub fn mapped_files(&mut self) -> BTreeSet<Inode> {
        let mut files = BTreeSet::new();
        for pid in self.processes.clone() {
            let maps = self.read(&format!("/proc/{pid}/maps")).unwrap_or("");
            files.extend(maps.lines().filter_map(Inode::of_mapped_file));
        }
        files
    }

    /// Adds the children of all threads of a process to `found`.
    fn add_children(&mut self, pid: Pid, found: &mut Vec<Pid>) {
        let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
            return;
        };
        for thread in threads.flatten().take(THREADS_MAX) {
            let Some(tid) = thread.file_name().to_str().map(str::to_owned) else {
                continue;
            };
            if let Some(text) = self.read(&format!("/proc/{pid}/task/{tid}/children")) {
                let children = text.split_ascii_whitespace();
                found.extend(children.filter_map(|child| child.parse::<Pid>().ok()));
            }
        }
    }

    /// The text of a file; `None` if it is gone or not for this user to read.
    fn read(&mut self, path: &str) -> Option<&str> {
        self.text.clear();
        // Without a limit the size would be asked for first, which /proc does not know.
        let mut file = fs::File::open(path).ok()?.take(TEXT_BYTES_MAX);
        file.read_to_end(&mut self.text).ok()?;
        std::str::from_utf8(&self.text).ok()
    }
}

/// Whether a thread has begun to end, by its /proc/PID/task/TID/stat (proc_pid_stat(5)).
fn is_ending(stat: &str) -> bool {
    const PF_EXITING: u32 = 4;
    let words = stat.rsplit_once(')').map(|(_, words)| words);
    let flags = words.and_then(|words| words.split_whitespace().nth(6)?.parse::<u32>().ok());
    flags.is_none_or(|flags| flags & PF_EXITING != 0)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, Write};
    use std::os::fd::AsRawFd;
    use std::process::{Command, Stdio};

    use super::*;
    use hither_testing::needs::ON_A_DISK;
    use hither_testing::skip::skip_on_this_machine;

    /// A folder on a disk.
    fn folder() -> tempfile::TempDir {
        tempfile::tempdir_in(ON_A_DISK).expect("a folder")
    }

    /// Creates a file, none of it cached.
    fn uncached(path: &Path, bytes: usize) {
        let mut file = fs::File::create(path).expect("created");
        file.write_all(&vec![1; bytes]).expect("written");
        file.sync_all().expect("synced");
        // SAFETY: the descriptor is open, and the call takes no memory.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    }

    #[test]
    fn a_process_has_its_program_mapped() {
        let mut tree = ProcessTree::of(Pid::own());
        tree.transferred();
        let program = fs::File::open("/proc/self/exe").expect("opened");
        let status = crate::syscalls::status(program.as_raw_fd()).expect("a status");
        let mapped = tree.mapped_files();
        assert!(mapped.contains(&status.id.inode()), "{mapped:?}");
        let anonymous = "7ffc6d5d5000-7ffc6d5f6000 rw-p 00000000 00:00 0      [stack]";
        assert_eq!(Inode::of_mapped_file(anonymous), None);
    }

    #[test]
    fn a_daemon_is_counted_after_its_parent_has_ended() {
        // The child prints the number of a grandchild, and both outlive the process between.
        let start = "sh -c 'cat > /dev/null <&3 & echo $!; read line' 3<&0 < \"$1\"; \
                     echo; read line; read line";
        let folder = tempfile::tempdir().expect("a folder");
        let wait = folder.path().join("wait");
        let made = Command::new("mkfifo").arg(&wait).status().expect("it runs");
        assert!(made.success());
        let mut child = Command::new("sh")
            .args(["-c", start, "sh"])
            .arg(&wait)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let mut tree = ProcessTree::of(Pid::of(&child));
        let mut between = fs::File::create(&wait).expect("opened");
        let output = child.stdout.take().expect("piped");
        let mut lines = std::io::BufReader::new(output).lines();
        let mut line = || lines.next().expect("a line").expect("read");
        let daemon: Pid = line().parse().expect("a number");
        tree.transferred();
        assert!(tree.processes.contains(&daemon));
        between.write_all(b"\n").expect("written");
        assert_eq!(line(), "", "the process between has ended");
        for _ in 0..2 {
            tree.transferred();
            assert!(tree.processes.contains(&daemon));
        }
        drop(child.stdin.take());
        child.wait().expect("waited for");
        while fs::read(format!("/proc/{daemon}/io")).is_ok() {
            std::thread::yield_now();
        }
        tree.transferred();
        assert!(!tree.processes.contains(&daemon), "it has ended");
    }

    #[test]
    fn threads_that_live_are_counted_each_for_itself() {
        assert!(!is_ending("7 (a) b) S 1 7 7 0 -1 4194304 0"));
        assert!(is_ending("7 (a) Z 1 7 7 0 -1 4194308 0"));
        assert!(is_ending(""));
        let folder = folder();
        let path = folder.path().join("data");
        uncached(&path, 1 << 20);
        let mut tree = ProcessTree::of(Pid::own());
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let (read, have_read) = std::sync::mpsc::channel();
        let reader = std::thread::spawn(move || {
            let bytes = fs::read(&path).expect("read");
            read.send(bytes.len()).expect("sent");
            let _ = wait.recv();
        });
        assert_eq!(have_read.recv().expect("sent"), 1 << 20);
        let all = tree.transferred_by_living();
        assert!(all.called_bytes >= 1 << 20, "{all:?}");
        drop(go);
        reader.join().expect("it ends");
    }

    #[test]
    fn what_a_tree_reads_is_counted_while_it_lives_and_after() {
        let folder = folder();
        let path = folder.path().join("data");
        uncached(&path, 1 << 20);
        // A grandchild reads; the child waits for it and then for its standard input.
        let mut child = Command::new("sh")
            .args([
                "-c",
                "sh -c 'cat \"$1\"; true' sh \"$1\"; echo; read line",
                "sh",
            ])
            .arg(&path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let mut tree = ProcessTree::of(Pid::of(&child));
        let mut read = vec![0; (1 << 20) + 1];
        let output = child.stdout.as_mut().expect("piped");
        output.read_exact(&mut read).expect("read");
        let counted = tree.transferred().read_bytes;
        drop(child.stdin.take());
        child.wait().expect("waited for");
        assert_eq!(
            tree.transferred().read_bytes,
            counted,
            "a tree that is gone is not forgotten"
        );
        if counted == 0 {
            return skip_on_this_machine(format_args!("the sources lie in memory"));
        }
        assert!((1 << 20..64 << 20).contains(&counted), "{counted}");
    }

    #[test]
    fn children_that_end_while_the_tree_is_counted_are_counted_once() {
        let folder = folder();
        for number in 0..100 {
            uncached(&folder.path().join(number.to_string()), 64 << 10);
        }
        let mut child = Command::new("sh")
            .args([
                "-c",
                "for f in *; do cat $f > /dev/null; done; echo; read line",
            ])
            .current_dir(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let mut tree = ProcessTree::of(Pid::of(&child));
        let mut output = child.stdout.take().expect("piped");
        let done = std::thread::spawn(move || output.read_exact(&mut [0]));
        while !done.is_finished() {
            tree.transferred();
        }
        let counted = tree.transferred();
        assert_eq!(Some(counted), tree.of_process(Pid::of(&child)));
        drop(child.stdin.take());
        child.wait().expect("waited for");
        if counted.read_bytes == 0 {
            skip_on_this_machine(format_args!("the sources lie in memory"));
        }
    }
}
