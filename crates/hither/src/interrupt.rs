//! Removes the unfinished output of a command that is interrupted.
//!
//! A command writes its output under a hidden name until it is complete. If the command fails, it
//! removes that file or folder itself. A signal would leave it behind, unseen and perhaps gigabytes
//! large. So a thread waits for the signals that ask a process to end, removes the partial output,
//! and then lets the signal take its default action.

use std::path::Path;
use std::time::Duration;
use std::{fs, thread};

use anyhow::Context;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

/// The most attempts at the removal: the writer may put a file into a folder while it is being
/// emptied.
const ATTEMPTS_MAX: u32 = 20;

/// Removes the partial output of `output` if the process is interrupted from now on.
pub(crate) fn remove_partial_on_interrupt(output: &Path) -> anyhow::Result<()> {
    let Some(partial) = hither_trace::partial_path(output) else {
        return Ok(());
    };
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("watching for signals")?;
    thread::spawn(move || {
        for signal in signals.forever() {
            for _ in 0..ATTEMPTS_MAX {
                // One of the two fails, since a folder is no file. No other error can be reported
                // any more.
                let _ = fs::remove_file(&partial).or_else(|_| fs::remove_dir_all(&partial));
                if partial.symlink_metadata().is_err() {
                    break;
                }
                thread::sleep(Duration::from_millis(10));
            }
            let _ = emulate_default_handler(signal);
        }
    });
    Ok(())
}
