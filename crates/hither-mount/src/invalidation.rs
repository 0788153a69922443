//! Tells the kernel that names may lead elsewhere by now.
//!
//! The kernel takes locks for that which a program may hold while it waits for an answer of ours.
//! So it is done by one thread which answers nothing and holds no lock, and whoever has something
//! for it never waits. What it has no room for is found out when the kernel asks again.

use std::ffi::OsString;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use fuser::{INodeNo, Notifier};

/// Names that wait to be told, at most.
const WAITING_MAX: usize = 4096;

/// A name in the directory of that number.
pub(crate) type Name = (u64, OsString);

/// Where names go, and where they come from.
pub(crate) fn queue() -> (SyncSender<Name>, Receiver<Name>) {
    sync_channel(WAITING_MAX)
}

/// Starts the thread. It ends when nobody can send any more.
pub(crate) fn start(names: Receiver<Name>, notifier: Notifier) -> io::Result<()> {
    let thread = thread::Builder::new().name("invalidation".to_owned());
    thread.spawn(move || {
        for (directory, name) in names {
            // The kernel may not have the name, or nothing be mounted any more.
            let _ = notifier.inval_entry(INodeNo(directory), &name);
        }
    })?;
    Ok(())
}
