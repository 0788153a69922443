//! `hither top`: what the runs of `hither run` do, live.

mod screen;
mod text;

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use hither_live::status::{self, Status};
use hither_sys::machine::{Machine, NodeMemory, ThisMachine};
use signal_hook::low_level::emulate_default_handler;

use self::screen::{Next, Screen};
use self::text::text;
use super::subcommand::Subcommand;
use crate::ui::{self, Ui};

const EXAMPLES: &str = "\
Shows your runs until they have ended. q and Ctrl-C quit without ending a run;
the arrow and page keys scroll.

Examples:
  hither top                 all your runs, updated each second
  hither top 4711            one run, by the process id of its `hither run`
  hither top --once          once, for a script
  hither top --json | jq '.[].mechanisms[].figures.after.local_share'";

/// Watch programs that run under `hither run`: page cache, nodes, regions, local share, moves
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Top {
    /// Show only the run whose `hither run` has this process id
    #[arg(value_name = "PID")]
    pid: Option<u32>,

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
    #[arg(long)]
    json: bool,
}

impl Subcommand for Top {
    const NAME: &'static str = "top";

    fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        let runs = self.runs();
        if self.json {
            ui::print_json(&runs)?;
            return Ok(ExitCode::SUCCESS);
        }
        if runs.is_empty() {
            match self.pid {
                Some(pid) => bail!("no run of yours has the process number {pid}"),
                None => bail!("nothing of yours runs under `hither run`"),
            }
        }
        if self.once || !io::stdout().is_terminal() {
            ui::print(&text(&runs, &nodes()))?;
            return Ok(ExitCode::SUCCESS);
        }
        match self.watch(runs).context("the terminal")? {
            Next::Refresh => ui.note("ended"),
            Next::Quit => {}
            Next::Signal(signal) => emulate_default_handler(signal)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Top {
    fn runs(&self) -> Vec<Status> {
        let mut runs = status::runs();
        runs.retain(|run| self.pid.is_none_or(|pid| run.agent == pid));
        runs
    }

    /// Shows the runs until there are none, or the user or a signal ends the watching.
    fn watch(&self, mut runs: Vec<Status>) -> io::Result<Next> {
        let mut screen = Screen::open()?;
        while !runs.is_empty() {
            let delay = Duration::from_secs(self.delay.into());
            match screen.show(&text(&runs, &nodes()), delay)? {
                Next::Refresh => runs = self.runs(),
                end => return Ok(end),
            }
        }
        Ok(Next::Refresh)
    }
}

/// The machine's nodes; none where sysfs hides them.
fn nodes() -> Vec<NodeMemory> {
    ThisMachine.nodes().unwrap_or_default()
}
