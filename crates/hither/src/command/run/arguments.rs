//! The options of `hither run` that are not of one mechanism.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;

use crate::ui::Ui;

#[cfg(feature = "cluster")]
use hither_service::values::address;

#[cfg(not(feature = "cluster"))]
fn address(_: &str) -> Result<SocketAddr, String> {
    Err(crate::left_out::MESSAGE.to_owned())
}

/// The options about plans and profiles.
#[derive(Args, Debug)]
pub(super) struct KnowledgeArgs {
    /// Apply the plan that `hither advise --save` wrote
    ///
    /// The plan is TOML with the keys `page-cache`, `cache`, `replicas`, `file-placement` and
    /// `memory`, which are named after the switches.
    #[arg(long, value_name = "FILE")]
    pub(super) plan: Option<PathBuf>,

    /// Apply a plan also where its cache is less than half of what memory leaves for files
    ///
    /// There the program may read more than without hither.
    #[arg(long, requires = "plan", hide_short_help = true)]
    pub(super) force: bool,

    /// Start from what FILE has learnt, and add to it
    ///
    /// The profile has the call sites that read files, with their class, and those that allocate
    /// memory, with the nodes of their memory. It is for --page-cache and --memory.
    #[arg(long, value_name = "FILE")]
    pub(super) profile: Option<PathBuf>,

    /// Start from such a profile without changing it
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "profile",
        hide_short_help = true
    )]
    pub(super) read_only_profile: Option<PathBuf>,
}

/// The options about the output of a run.
#[derive(Args, Debug)]
pub(super) struct OutputArgs {
    /// Decide and report, but carry nothing out
    ///
    /// Nothing is dropped, copied, bound or moved. Counting by write-protect still protects sampled
    /// pages: the next write to each causes one page fault.
    #[arg(long)]
    pub(super) dry_run: bool,

    /// Write all observations and decisions to FILE, a JSON document a line
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(super) log: Option<PathBuf>,

    /// Record the run into the trace folder DIR, too, as `hither record` does
    ///
    /// Programs then report every access, as when they are recorded alone: none is left out because
    /// the policy needs no more of it, and readahead is not disabled for random reads.
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    pub(super) record: Option<PathBuf>,

    /// Serve Prometheus at http://ADDR/metrics during the run
    ///
    /// ADDR is an address and a port, or only a port, which is then open to this machine alone.
    /// Port 0 takes a free one.
    #[arg(long, value_name = "ADDR", value_parser = address, hide_short_help = true)]
    pub(super) metrics: Option<SocketAddr>,

    /// Print the summary as one line of JSON on stderr
    ///
    /// Standard output belongs to the program.
    #[arg(long)]
    pub(super) json: bool,
}

impl KnowledgeArgs {
    /// The first given option that needs a mechanism which learns.
    pub(super) fn options(&self) -> Option<&'static str> {
        match (&self.profile, &self.read_only_profile) {
            (Some(_), _) => Some("--profile"),
            (_, Some(_)) => Some("--read-only-profile"),
            _ => None,
        }
    }

    /// The profile to start from. A profile that is only read has to exist; one that is updated may
    /// be missing.
    pub(super) fn profile(&self) -> anyhow::Result<Option<&Path>> {
        if let Some(path) = &self.read_only_profile {
            File::open(path).with_context(|| path.display().to_string())?;
        }
        Ok((self.profile.as_deref()).or(self.read_only_profile.as_deref()))
    }

    /// Updates the profile, if there is one. The program has run, so a failure is a note and no
    /// error.
    pub(super) fn add_to_profile(&self, save: impl FnOnce(&Path) -> anyhow::Result<()>, ui: &Ui) {
        if let Some(path) = &self.profile
            && let Err(error) = save(path)
        {
            ui.note(format_args!("what was learnt is not kept: {error:#}"));
        }
    }
}
