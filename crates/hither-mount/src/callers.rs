//! Who asks, and as whom the source is asked.
//!
//! The kernel compares a caller with the owner, the mode and the access list that it was told of.
//! These may be a moment old, a name may lead elsewhere by then, and a source may go by more than
//! them. So whatever another user than this process's opens or changes is asked of the source as
//! that user.

use fuser::Request;

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) thread: u32,
    /// What new files of it do not get.
    pub(crate) umask: u32,
}

impl Caller {
    /// Who has sent `request`, which makes something with this umask.
    pub(crate) fn of(request: &Request, umask: u32) -> Caller {
        Caller {
            uid: request.uid(),
            gid: request.gid(),
            thread: request.pid(),
            umask,
        }
    }

    /// Its other groups, while it waits. None if it is gone, or is not who it was.
    pub(crate) fn groups(self) -> Vec<u32> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.thread));
        let status = status.unwrap_or_default();
        let numbers = |name: &str| -> Vec<u32> {
            let mut lines = status.lines();
            let line = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            let words = line.unwrap_or_default().split_whitespace();
            words.filter_map(|word| word.parse().ok()).collect()
        };
        // The last of the four is what file systems go by.
        let is_it = numbers("Uid").get(3) == Some(&self.uid);
        if is_it && numbers("Gid").get(3) == Some(&self.gid) {
            numbers("Groups")
        } else {
            Vec::new()
        }
    }
}
