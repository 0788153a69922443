//! Tells the kernel that names may lead elsewhere by now, and that files have grown.
//!
//! The kernel takes locks for that which a program may hold while it waits for an answer of ours.
//! So it is done by one thread which answers nothing and holds no lock, and whoever has something
//! for it never waits. What it has no room for is found out when the kernel asks again.

use std::ffi::OsString;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use fuser::{INodeNo, Notifier};
use tokio::sync::oneshot;

/// Names that wait to be told, at most.
const WAITING_MAX: usize = 4096;

/// What the kernel is told.
pub(crate) enum Told {
    /// To look up a name in the directory of that number anew.
    Name(u64, OsString),
    /// To read a file anew from an offset on.
    Pages {
        /// The number of its inode.
        number: u64,
        from: u64,
        /// AccessesWanted of it when the kernel has done so.
        told: oneshot::Sender<()>,
    },
}

/// Where names go, and where they come from.
pub(crate) fn queue() -> (SyncSender<Told>, Receiver<Told>) {
    sync_channel(WAITING_MAX)
}

/// Starts the thread. It ends when nobody can send any more.
pub(crate) fn start(names: Receiver<Told>, notifier: Notifier) -> io::Result<()> {
    let thread = thread::Builder::new().name("invalidation".to_owned());
    thread.spawn(move || {
        for told in names {
            // The kernel may not have it, or nothing be mounted any more.
            match told {
                Told::Name(directory, name) => {
                    let _ = notifier.inval_entry(INodeNo(directory), &name);
                }
                Told::Pages { number, from, told } => {
                    let _ = notifier.inval_inode(INodeNo(number), from.cast_signed(), 0);
                    let _ = told.send(());
                }
            }
        }
    })?;
    Ok(())
}
