//! What every command implements.

use std::process::ExitCode;

use clap::{Args, FromArgMatches};

use crate::ui::Ui;

/// A command: its arguments, which clap parses, and its action.
pub(super) trait Subcommand: Args + FromArgMatches {
    /// The name of the command.
    const NAME: &'static str;

    /// Runs the command. The exit code is 0, except for commands that pass on the exit code of
    /// another program.
    fn run(self, ui: &Ui) -> anyhow::Result<ExitCode>;
}
