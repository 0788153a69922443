//! The log of a node: what the libraries say by `tracing`, on stderr or in a file.
//!
//! There is no colour, and no line per read. Under systemd, whose journal has the time, lines have
//! none.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::layer;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// The variable that stands in for `--log-level`.
const VARIABLE: &str = "RUST_LOG";

/// The options of the log.
#[derive(Args, Debug)]
pub(crate) struct LogArgs {
    /// Append the log to FILE [default: stderr]
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,

    /// What to log: error, warn, info, debug or trace, or by module, as in warn,hither_net=debug
    #[arg(long, value_name = "LEVEL", hide_short_help = true)]
    log_level: Option<Targets>,
}

/// Starts the log. Without `--log-level` and `RUST_LOG`, `level` holds.
pub(crate) fn start(args: &LogArgs, level: LevelFilter) -> anyhow::Result<()> {
    let asked = std::env::var(VARIABLE).unwrap_or_default();
    let by_default = || Targets::new().with_default(level);
    let (filter, mistake) = match (&args.log_level, asked.parse::<Targets>()) {
        (Some(targets), _) => (targets.clone(), None),
        (None, _) if asked.is_empty() => (by_default(), None),
        (None, Ok(targets)) => (targets, None),
        // It may be meant for another program, which knows more.
        (None, Err(error)) => (by_default(), Some(error)),
    };
    let lines = layer().with_ansi(false);
    let lines = match &args.log {
        Some(path) => {
            let file = File::options().append(true).create(true).open(path);
            let file = file.with_context(|| format!("--log {}", path.display()))?;
            lines.with_writer(file).boxed()
        }
        None if is_the_journal() => lines.with_writer(std::io::stderr).without_time().boxed(),
        None => lines.with_writer(std::io::stderr).boxed(),
    };
    tracing_subscriber::registry()
        .with(lines.with_filter(filter))
        .init();
    if let Some(error) = mistake {
        tracing::warn!("{VARIABLE}={asked}: {error}");
    }
    Ok(())
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
