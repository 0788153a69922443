//! Pid namespaces: a process's number means something in its own namespace and the ones above.
//!
//! Containers and sandboxes (`unshare --pid`, bubblewrap) give their processes numbers from 1 on.
//! The agent reads these numbers in records and must not take them for its own.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use hither_ids::{Pid, Tid};

use crate::syscalls;

/// Bits of a [`PidNamespace`].
pub const NAMESPACE_BITS: u32 = 20;

/// What is known of the processes is forgotten if they were not looked at for so long: a number
/// may belong to another process by then.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(1);

/// A pid namespace, told apart from others by the low bits of its inode number. The kernel gives
/// these numbers out densely, so that two namespaces that exist at once differ in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PidNamespace(u32);

impl PidNamespace {
    /// The agent's own.
    pub const OWN: PidNamespace = PidNamespace(0);

    /// Another one than the agent's, where /proc does not say which.
    const UNKNOWN: PidNamespace = PidNamespace(1);

    /// Whether numbers of this namespace are the agent's, too.
    pub fn is_own(self) -> bool {
        self == PidNamespace::OWN
    }

    /// The namespace of this inode number; 0 where it is not known. It is not the agent's.
    pub fn of_inode(inode: u64) -> PidNamespace {
        match inode as u32 & ((1 << NAMESPACE_BITS) - 1) {
            0 => PidNamespace::UNKNOWN,
            bits => PidNamespace(bits),
        }
    }

    /// This process's namespace, if the agent's has the inode number `agents`.
    pub fn of_this_process(agents: u64) -> PidNamespace {
        match own_inode() {
            inode if inode == agents && inode != 0 => PidNamespace::OWN,
            inode => PidNamespace::of_inode(inode),
        }
    }

    /// As [`PidNamespace::bits`] gave it.
    pub fn from_bits(bits: u32) -> PidNamespace {
        PidNamespace(bits & ((1 << NAMESPACE_BITS) - 1))
    }

    /// The low 20 bits of the inode number; 0 for the agent's own.
    pub fn bits(self) -> u32 {
        self.0
    }
}

/// Inode number of this process's pid namespace, 0 if /proc does not say.
pub fn own_inode() -> u64 {
    syscalls::status_of(c"/proc/self/ns/pid").map_or(0, |status| status.id.inode)
}

/// The processes of this machine that are in other pid namespaces below this process's own, by
/// their numbers there.
#[derive(Debug, Default)]
pub struct ForeignProcesses {
    /// Each process of the last look: what it is called in its own namespace, if that is another
    /// one.
    known: HashMap<Pid, Option<(PidNamespace, Pid)>>,
    numbers: HashMap<(PidNamespace, Pid), Pid>,
    last: Option<Instant>,
}

impl ForeignProcesses {
    /// Looks at all processes. Those that are known already cost nothing more than a line of
    /// /proc's list.
    pub fn update(&mut self) {
        let now = Instant::now();
        let is_old = |last: Instant| now.duration_since(last) > FORGOTTEN_AFTER;
        if self.last.replace(now).is_none_or(is_old) {
            self.known.clear();
        }
        let mut before = std::mem::take(&mut self.known);
        let own = own_inode();
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<Pid>().ok());
        self.known = pids
            .map(|pid| {
                let known = before.remove(&pid);
                (pid, known.unwrap_or_else(|| foreign(pid, own)))
            })
            .collect();
        let numbers = self.known.iter();
        self.numbers = numbers
            .filter_map(|(&pid, &there)| Some((there?, pid)))
            .collect();
    }

    /// Whether a thread exists; of one in another namespace, whether its process did at the last
    /// look.
    pub fn has_thread(&self, namespace: PidNamespace, pid: Pid, tid: Tid) -> bool {
        if namespace.is_own() {
            Path::new(&format!("/proc/{pid}/task/{tid}")).exists()
        } else {
            self.number_here(namespace, pid).is_some()
        }
    }

    /// The number here of a process that has the number `pid` in its namespace, at the last look.
    pub fn number_here(&self, namespace: PidNamespace, pid: Pid) -> Option<Pid> {
        let named = |namespace| self.numbers.get(&(namespace, pid)).copied();
        // Whose namespace may not be asked for may be in this one.
        named(namespace).or_else(|| named(PidNamespace::UNKNOWN))
    }
}

/// What a process is called in its own namespace, if that is not the one with the inode number
/// `own`.
fn foreign(pid: Pid, own: u64) -> Option<(PidNamespace, Pid)> {
    let namespace = match fs::read_link(format!("/proc/{pid}/ns/pid")) {
        Ok(link) => {
            let name = link.to_str()?.strip_prefix("pid:[")?.strip_suffix(']')?;
            let inode: u64 = name.parse().ok()?;
            if inode == own {
                return None;
            }
            PidNamespace::of_inode(inode)
        }
        // Only who may trace a process may ask for its namespace; its numbers are public.
        Err(_) => PidNamespace::UNKNOWN,
    };
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let numbers = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))?;
    // From this namespace down to its own.
    let numbers = numbers.split_ascii_whitespace().skip(1);
    Some((namespace, numbers.last()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::{Command, Stdio};

    use super::*;
    use hither_testing::skip::skip_on_this_machine;

    #[test]
    fn a_namespace_is_told_apart_by_its_inode_and_never_taken_for_the_agents() {
        assert!(PidNamespace::of_this_process(own_inode()).is_own());
        let other = PidNamespace::of_this_process(own_inode() ^ 1);
        assert!(!other.is_own());
        assert_eq!(PidNamespace::from_bits(other.bits()), other);
        assert_eq!(PidNamespace::of_inode(0), PidNamespace::UNKNOWN);
        assert_eq!(PidNamespace::of_inode(1 << 32), PidNamespace::UNKNOWN);
        assert_ne!(
            PidNamespace::of_inode(4_026_531_836),
            PidNamespace::of_inode(4_026_532_000)
        );
    }

    #[test]
    fn a_process_of_another_namespace_is_found_by_its_number_there() {
        let script = "stat -Lc %i /proc/self/ns/pid; exec cat";
        let started = Command::new("unshare")
            .args(["--user", "--map-root-user", "--pid", "--fork"])
            .args(["--kill-child", "sh", "-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let Ok(mut child) = started else {
            skip_on_this_machine("there is no unshare");
            return;
        };
        let mut inode = Vec::new();
        let mut output = child.stdout.take().expect("its output");
        let mut byte = [0];
        while output.read(&mut byte).is_ok_and(|read| read == 1) && byte != *b"\n" {
            inode.push(byte[0]);
        }
        if inode.is_empty() {
            skip_on_this_machine("no namespace may be made");
            child.wait().expect("waited for");
            return;
        }
        let inode = String::from_utf8(inode).expect("digits");
        let namespace = PidNamespace::of_inode(inode.parse().expect("an inode number"));
        let mut processes = ForeignProcesses::default();
        processes.update();
        let here = processes.number_here(namespace, Pid(1)).expect("its init");
        let status = fs::read_to_string(format!("/proc/{here}/status")).expect("a status");
        assert!(status.contains(&format!("NSpid:\t{here}\t1\n")), "{status}");
        assert_eq!(processes.number_here(PidNamespace(2), Pid(1)), None);
        drop(child.stdin.take());
        child.wait().expect("waited for");
        processes.update();
        assert_eq!(processes.number_here(namespace, Pid(1)), None);
    }
}
