//! Options of the log of a node.

use std::path::PathBuf;

use clap::Args;
use hither_service::log;
use tracing_subscriber::filter::{LevelFilter, Targets};

/// Where the log goes, and what is in it.
#[derive(Args, Debug)]
pub(crate) struct LogArgs {
    /// Append the log to FILE [default: stderr]
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    log: Option<PathBuf>,

    /// What to log: error, warn, info, debug or trace, or by module, as in warn,hither_net=debug
    #[arg(long, value_name = "LEVEL", hide_short_help = true)]
    log_level: Option<Targets>,
}

impl LogArgs {
    /// Starts the log. Without `--log-level` and `RUST_LOG`, `level` holds.
    pub(crate) fn start(&self, level: LevelFilter) -> anyhow::Result<()> {
        Ok(log::start(
            self.log.as_deref(),
            self.log_level.as_ref(),
            level,
        )?)
    }
}
