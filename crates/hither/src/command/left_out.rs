//! The commands that a build without the feature `cluster` leaves out.

use anyhow::bail;
use clap::Arg;

use super::CommandEntry;

/// What such a build says when it is asked for one.
pub(crate) const MESSAGE: &str = "this build of hither has no mounts and no nodes: it was made \
     without the feature `cluster`, which the packages and a plain `cargo install` have";

/// A command that says so, whatever its arguments.
pub(super) const fn entry(name: &'static str) -> CommandEntry {
    CommandEntry {
        name,
        define: |command| {
            let arguments = Arg::new("arguments").num_args(0..).hide(true);
            let arguments = arguments.trailing_var_arg(true).allow_hyphen_values(true);
            command.about("Not in this build").arg(arguments)
        },
        run: |_, _| bail!(MESSAGE),
    }
}
