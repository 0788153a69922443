//! Which processes there are, by /proc.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use hither_ids::Pid;

/// Whether a process has a thread that has not ended. The first one may have.
pub fn is_alive(process: Pid) -> bool {
    let threads = fs::read_dir(format!("/proc/{process}/task"));
    let mut threads = threads.into_iter().flatten().flatten();
    threads.any(|thread| {
        let found = state_and_parent(&thread.path());
        found.is_some_and(|(state, _)| !matches!(state, 'Z' | 'X'))
    })
}

/// The processes whose parents these are.
pub(crate) fn children_of(parents: &BTreeSet<Pid>) -> BTreeSet<Pid> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let all = all.filter_map(|entry| entry.file_name().to_str()?.parse::<Pid>().ok());
    let is_child = |process: &Pid| {
        let found = state_and_parent(Path::new(&format!("/proc/{process}")));
        found.is_some_and(|(_, parent)| parents.contains(&parent))
    };
    all.filter(is_child).collect()
}

/// The state of a process or thread, and the parent (proc_pid_stat(5)).
fn state_and_parent(folder: &Path) -> Option<(char, Pid)> {
    let text = fs::read(folder.join("stat")).ok()?;
    parsed(&String::from_utf8_lossy(&text))
}

/// Of the text of /proc/PID/stat. The name in it may have spaces and brackets.
fn parsed(text: &str) -> Option<(char, Pid)> {
    let mut words = text.rsplit_once(')')?.1.split_whitespace();
    let state = words.next()?.chars().next()?;
    Some((state, words.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_name_may_look_like_what_comes_after_it() {
        assert_eq!(parsed("7 (a) Z 1) S 4 7"), Some(('S', Pid(4))));
        assert_eq!(parsed("7 (a"), None);
    }

    #[test]
    fn a_process_whose_end_nobody_waits_for_is_not_alive() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let (own, other) = (Pid(std::process::id()), Pid::of(&child));
        assert!(is_alive(own) && is_alive(other));
        assert!(children_of(&BTreeSet::from([own])).contains(&other));
        drop(child.stdin.take());
        while is_alive(other) {
            std::thread::yield_now();
        }
        assert!(Path::new(&format!("/proc/{other}")).exists());
        child.wait().unwrap();
    }
}
