//! Calls that change a file that is open.

use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fd::OwnedFd;
use rustix::fs::{
    Gid, Mode, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid, fchmod, fchown, futimens,
};
use rustix::io::{Errno, pwrite};

use super::super::write::Changes;
use super::super::{SourceError, SourcePath};

pub(super) fn write_whole(file: &OwnedFd, bytes: &[u8], offset: u64) -> Result<(), Errno> {
    let mut done = 0;
    while done < bytes.len() {
        match pwrite(file, &bytes[done..], offset + done as u64) {
            Ok(0) => return Err(Errno::IO),
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Sets attributes of an open file. The owner first: changing it takes away permission bits.
pub(super) fn set_open(file: &OwnedFd, changes: &Changes) -> Result<(), Errno> {
    if changes.uid.is_some() || changes.gid.is_some() {
        let owner = changes.uid.map(Uid::from_raw);
        fchown(file, owner, changes.gid.map(Gid::from_raw))?;
    }
    if let Some(mode) = changes.mode {
        fchmod(file, Mode::from_raw_mode(mode & 0o7777))?;
    }
    if changes.accessed.is_some() || changes.modified.is_some() {
        futimens(file, &timestamps(changes))?;
    }
    Ok(())
}

/// What is not to change is left as it is.
pub(super) fn timestamps(changes: &Changes) -> Timestamps {
    Timestamps {
        last_access: timespec(changes.accessed),
        last_modification: timespec(changes.modified),
    }
}

pub(super) fn in_the_way(path: &SourcePath, reason: &str) -> SourceError {
    SourceError::InTheWay {
        path: path.clone(),
        reason: reason.into(),
    }
}

/// The time of now, as the file system has it.
pub(super) fn now() -> Timestamps {
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: UTIME_NOW,
    };
    Timestamps {
        last_access: timespec(None),
        last_modification: now,
    }
}

fn timespec(time: Option<SystemTime>) -> Timespec {
    let Some(time) = time else {
        return Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        };
    };
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => Timespec {
            tv_sec: after.as_secs() as i64,
            tv_nsec: after.subsec_nanos().into(),
        },
        Err(before) => {
            // Whole seconds down, and nanoseconds up from there.
            let before = before.duration();
            let nanoseconds = before.subsec_nanos();
            Timespec {
                tv_sec: -(before.as_secs() as i64) - i64::from(nanoseconds > 0),
                tv_nsec: i64::from((1_000_000_000 - nanoseconds) % 1_000_000_000),
            }
        }
    }
}
