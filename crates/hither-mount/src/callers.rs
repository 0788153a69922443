//! Who asks, and as whom the source is asked.
//!
//! The kernel compares a caller with the owner, the mode and the access list that it was told of.
//! These may be a moment old, a name may lead elsewhere by then, and a source may go by more than
//! them. So whatever another user than this process's opens or changes is asked of the source as
//! that user.

use std::sync::Arc;

use fuser::{Errno, Request};
use hither_node::source::write::{Acting, User, WritableSource};
use hither_node::source::{Access, SourcePath, Version};

use crate::attributes::errno;
use crate::shared::Shared;

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
    fn groups(self) -> Vec<u32> {
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
        match is_it && numbers("Gid").get(3) == Some(&self.gid) {
            true => numbers("Groups"),
            false => Vec::new(),
        }
    }
}

impl Shared {
    /// As whom the source is asked for `caller`. An error where that cannot be: then the caller
    /// may do what it is allowed to by what the kernel knows, and change nothing.
    fn acting(&self, caller: Caller) -> Result<Acting, Errno> {
        let own = self.view.owner;
        let is_own = (caller.uid, caller.gid) == (own.uid, own.gid);
        let user = match self.view.may_act && !is_own {
            true => Some(User {
                uid: caller.uid,
                gid: caller.gid,
                groups: caller.groups(),
            }),
            false if caller.uid == own.uid || caller.uid == 0 => None,
            false => return Err(Errno::EACCES),
        };
        Ok(Acting {
            user,
            umask: caller.umask,
        })
    }

    /// The source, to be changed for `caller`, if this mount may change it.
    pub(crate) fn writes_for(&self, caller: Caller) -> Result<Arc<dyn WritableSource>, Errno> {
        let writes = self.writes()?;
        if !self.view.has_owners() {
            return Ok(Arc::clone(writes));
        }
        let acting = writes.acting(self.acting(caller)?);
        Ok(acting.unwrap_or_else(|| Arc::clone(writes)))
    }

    /// Whether the source lets `caller` use what is at `path`.
    pub(crate) async fn check_access(
        &self,
        path: &SourcePath,
        version: Option<&Version>,
        access: Access,
        caller: Caller,
    ) -> Result<(), Errno> {
        if !self.view.has_owners() {
            return Ok(());
        }
        let acting = match self.acting(caller) {
            // This process reads what it may read, and the kernel decides who else may.
            Err(_) if !access.write => return Ok(()),
            acting => acting?,
        };
        if acting.user.is_none() {
            return Ok(());
        }
        let source = self.volume.source();
        let checked = source.check_access(path, version, access, &acting).await;
        checked.map_err(|error| errno(&error))
    }
}
