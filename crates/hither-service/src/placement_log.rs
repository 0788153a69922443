//! The log of what the placement of a cluster is told and answers, for `hither cluster replay`.
//!
//! The node passes lines on by a bounded queue, and one thread writes them. A log that lacks a line
//! does not replay: once the queue is full, the log ends there, with a warning.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use hither_node::node::Node;

use crate::error::{Error, Place};

/// Lines that wait to be written.
const WAITING_MAX: usize = 1 << 16;

/// A killed node loses the lines of this time.
const FLUSH_INTERVAL: Duration = Duration::from_millis(200);

/// See the module.
pub(crate) struct PlacementLog {
    path: PathBuf,
    lines: SyncSender<Option<String>>,
    writer: JoinHandle<io::Result<()>>,
}

impl PlacementLog {
    /// Writes the log of `node`, which has not joined its cluster yet, to a new file.
    ///
    /// # Errors
    /// The file is there already, or cannot be made.
    pub(crate) fn start(path: &Path, node: &Node) -> Result<PlacementLog, Error> {
        let file = File::create_new(path).at(path.display())?;
        let (lines, queue) = sync_channel(WAITING_MAX);
        let writer = std::thread::Builder::new()
            .name("placement-log".to_owned())
            .spawn(move || write(file, &queue))
            .at(path.display())?;
        let (to, ended) = (lines.clone(), AtomicBool::new(false));
        node.log_placement(move |line| {
            if !ended.load(Ordering::Relaxed) && to.try_send(Some(line)).is_err() {
                ended.store(true, Ordering::Relaxed);
                tracing::warn!("the placement log ends: it cannot be written as fast as it grows");
            }
        });
        Ok(PlacementLog {
            path: path.to_owned(),
            lines,
            writer,
        })
    }

    /// Writes what waits, and ends the log.
    pub(crate) fn finish(self) -> Result<(), Error> {
        // If the writer has failed, its error says so.
        let _ = self.lines.send(None);
        let written = self.writer.join();
        let written = written.unwrap_or_else(|_| Err(io::Error::other("its writer has panicked")));
        written.at(self.path.display())
    }
}

fn write(file: File, lines: &Receiver<Option<String>>) -> io::Result<()> {
    let mut file = BufWriter::new(file);
    loop {
        match lines.recv_timeout(FLUSH_INTERVAL) {
            Ok(Some(line)) => writeln!(file, "{line}")?,
            Err(RecvTimeoutError::Timeout) => file.flush()?,
            Ok(None) | Err(RecvTimeoutError::Disconnected) => return file.flush(),
        }
    }
}
