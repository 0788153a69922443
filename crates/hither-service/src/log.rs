//! The log of a node: what the libraries say by `tracing`, on stderr or in a file.
//!
//! There is no colour, and no line per read. Under systemd, whose journal has the time, lines have
//! none.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use hither_analysis::format::printable_message;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::layer;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::error::{Error, Place};

/// The variable that stands in for `--log-level`.
const VARIABLE: &str = "RUST_LOG";

/// Starts the log, in `file` or on stderr. Without `targets` and `RUST_LOG`, `level` holds.
///
/// # Errors
/// The file cannot be opened.
pub fn start(
    file: Option<&Path>,
    targets: Option<&Targets>,
    level: LevelFilter,
) -> Result<(), Error> {
    let asked = std::env::var(VARIABLE).unwrap_or_default();
    let by_default = || Targets::new().with_default(level);
    let (filter, mistake) = match (targets, asked.parse::<Targets>()) {
        (Some(targets), _) => (targets.clone(), None),
        (None, _) if asked.is_empty() => (by_default(), None),
        (None, Ok(targets)) => (targets, None),
        // It may be meant for another program, which knows more.
        (None, Err(error)) => (by_default(), Some(error)),
    };
    let lines = layer().with_ansi(false);
    let stderr = || Printable(io::stderr());
    let lines = match file {
        Some(path) => {
            let file = File::options().append(true).create(true).open(path);
            let file = file.at(format_args!("--log {}", path.display()))?;
            let file = Arc::new(file);
            let writer = move || Printable(Arc::clone(&file));
            lines.with_writer(writer).boxed()
        }
        None if is_the_journal() => lines.with_writer(stderr).without_time().boxed(),
        None => lines.with_writer(stderr).boxed(),
    };
    tracing_subscriber::registry()
        .with(lines.with_filter(filter))
        .init();
    if let Some(error) = mistake {
        tracing::warn!("{VARIABLE}={asked}: {error}");
    }
    Ok(())
}

/// Writes messages so that names in them neither act on a terminal nor look like other messages.
struct Printable<W>(W);

impl<W: Write> Write for Printable<W> {
    /// The formatter writes each message at once, with its line feed.
    fn write(&mut self, message: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(message);
        let line = printable_message(text.strip_suffix('\n').unwrap_or(&text));
        self.0.write_all((line + "\n").as_bytes())?;
        Ok(message.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Whether stderr is the journal's stream, which systemd names by device and inode.
fn is_the_journal() -> bool {
    let named = std::env::var("JOURNAL_STREAM").ok();
    let stderr = fs::metadata("/proc/self/fd/2").ok();
    let (Some(named), Some(stderr)) = (named, stderr) else {
        return false;
    };
    named == format!("{}:{}", stderr.dev(), stderr.ino())
}
