//! `hither top`: what the runs of `hither run` and the nodes of a cluster cache do, live.

#[cfg(feature = "cluster")]
mod nodes;
#[cfg(not(feature = "cluster"))]
#[path = "top/no_nodes.rs"]
mod nodes;
mod screen;
mod text;

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use hither_ids::Pid;
use hither_kernel::machine::{Machine, ThisMachine};
use hither_live::status::{self, CallSiteNames, Status};
use signal_hook::low_level::emulate_default_handler;

use self::nodes::Nodes;
use self::screen::{Next, Screen};
use self::text::{Seen, text};
use super::subcommand::Subcommand;
use crate::ui::{self, Ui};

const EXAMPLES: &str = "\
Shows your runs, mounts and nodes until they have ended. q and Ctrl-C quit
without ending any; the arrow and page keys scroll.

Examples:
  hither top                 all your runs, updated each second
  hither top 4711            one run, by the process id of its `hither run`
  hither top --once          once, for a script
  hither top --json | jq '.[].mechanisms[].figures.after.local_share'";

/// Watch runs, mounts and nodes: caches, local share, moves
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Top {
    /// Show only the run, mount or node that has this process id
    #[arg(value_name = "PID")]
    pid: Option<Pid>,

    /// Print the current state once and exit
    #[arg(long)]
    once: bool,

    /// Seconds between two updates
    #[arg(
        long,
        short = 'd',
        value_name = "SECONDS",
        default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    delay: u32,

    /// Print one JSON document: an array with an element for each run
    ///
    /// The figures of a node are in `hither cache status --json`.
    #[arg(long)]
    json: bool,
}

impl Subcommand for Top {
    const NAME: &'static str = "top";

    fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        if self.json {
            ui::print_json(&self.runs(&mut CallSiteNames::default()))?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut names = CallSiteNames::default();
        let seen = self.seen(&mut names);
        if seen.is_empty() {
            match self.pid {
                Some(pid) => bail!("no run or node of yours has the process number {pid}"),
                None => bail!("nothing of yours runs under `hither run`, no mount and no node"),
            }
        }
        if self.once || !io::stdout().is_terminal() {
            ui::print(&text(&seen))?;
            return Ok(ExitCode::SUCCESS);
        }
        match self.watch(seen, &mut names).context("the terminal")? {
            Next::Refresh => ui.note("ended"),
            Next::Quit => {}
            Next::Signal(signal) => emulate_default_handler(signal)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Top {
    fn runs(&self, names: &mut CallSiteNames) -> Vec<Status> {
        let mut runs = status::runs();
        runs.retain(|run| self.pid.is_none_or(|pid| run.agent == pid));
        runs.iter_mut().for_each(|run| names.add(run));
        runs
    }

    fn seen(&self, names: &mut CallSiteNames) -> Seen {
        Seen {
            machine: ThisMachine.nodes().unwrap_or_default(),
            runs: self.runs(names),
            nodes: Nodes::running(self.pid),
        }
    }

    /// Shows what there is until there is nothing, or the user or a signal ends the watching.
    fn watch(&self, mut seen: Seen, names: &mut CallSiteNames) -> io::Result<Next> {
        let mut screen = Screen::open()?;
        while !seen.is_empty() {
            let delay = Duration::from_secs(self.delay.into());
            match screen.show(&text(&seen), delay)? {
                Next::Refresh => seen = self.seen(names),
                end => return Ok(end),
            }
        }
        Ok(Next::Refresh)
    }
}
