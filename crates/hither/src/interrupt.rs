//! What an interrupted command leaves behind: nothing.
//!
//! What a command writes lies under a hidden name until it is complete. Where the command fails it
//! takes that away; a signal gives it no chance to, and gigabytes would stay that nobody sees. So a
//! thread waits for the signals that ask a process to end, removes what there is, and lets the
//! signal do what it does.

use std::path::Path;
use std::time::Duration;
use std::{fs, thread};

use anyhow::Context;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

/// How often removal is tried: whoever writes may put a file into a folder while it is being
/// emptied.
const TRIES: u32 = 20;

/// Sees to it that nothing unfinished of what is being written at `output` outlives an interrupt.
pub(crate) fn leaves_nothing_of(output: &Path) -> anyhow::Result<()> {
    let Some(partial) = hither_trace::partial_path(output) else {
        return Ok(());
    };
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("watching for signals")?;
    thread::spawn(move || {
        for signal in signals.forever() {
            for _ in 0..TRIES {
                // One of the two fails, as a folder is no file. Nobody is left to hear of more than
                // that.
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
