//! `hither top`: what runs under `hither run` do, live.

use std::fmt::Write as _;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use clap::Args;
use hither_live::pages::status::{self, Status};
use hither_sys::machine::{Machine, NodeMemory, ThisMachine};

use super::Subcommand;
use crate::exit::Usage;
use crate::format::{self, Lean, Table, bytes, count, percent};
use crate::ui::{self, Ui};

/// Watch programs that run under `hither run`: nodes, regions, local share, moves
#[derive(Args, Debug)]
#[command(
    after_help = "Shows this user's runs until they have ended; Ctrl-C ends the watching, never a run.\n\n\
    Examples:\n  \
    hither top                 every run of yours, each second anew\n  \
    hither top 4711            one run, by the process number of its `hither run`\n  \
    hither top --once          once, for a script\n  \
    hither top --json | jq '.[].figures.after.local_share'"
)]
pub(super) struct Top {
    /// The run whose `hither run` has this process number
    #[arg(value_name = "PID")]
    pid: Option<u32>,

    /// Show once what is there now
    #[arg(long)]
    once: bool,

    /// Seconds between two looks
    #[arg(long, short = 'd', value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    delay: u32,

    /// Print one JSON document: an array, a run an element
    #[arg(long)]
    json: bool,
}

/// Upper left corner, and nothing below it.
const AFRESH: &str = "\x1b[H\x1b[2J";

impl Subcommand for Top {
    const NAME: &'static str = "top";

    fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        let runs = self.runs();
        if self.json {
            ui::print_json(&runs)?;
            return Ok(ExitCode::SUCCESS);
        }
        if runs.is_empty() {
            return Err(Usage(match self.pid {
                Some(pid) => format!("no run of yours has the process number {pid}"),
                None => "nothing of yours runs under `hither run`".to_owned(),
            })
            .into());
        }
        if self.once || !std::io::stdout().is_terminal() {
            ui::print(&text(&runs, &nodes()))?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut runs = runs;
        while !runs.is_empty() {
            ui::print(&format!("{AFRESH}{}", text(&runs, &nodes())))?;
            thread::sleep(Duration::from_secs(self.delay.into()));
            runs = self.runs();
        }
        ui.note("ended");
        Ok(ExitCode::SUCCESS)
    }
}

impl Top {
    fn runs(&self) -> Vec<Status> {
        let mut runs = status::runs();
        runs.retain(|run| self.pid.is_none_or(|pid| run.agent == pid));
        runs
    }
}

/// The machine's nodes; none where sysfs hides them.
fn nodes() -> Vec<NodeMemory> {
    ThisMachine.nodes().unwrap_or_default()
}

/// Everything, as shown.
fn text(runs: &[Status], nodes: &[NodeMemory]) -> String {
    let mut text = of_nodes(nodes);
    for run in runs {
        text.push('\n');
        text.push_str(&of_run(run));
    }
    text
}

fn of_nodes(nodes: &[NodeMemory]) -> String {
    let mut table = Table::new([
        ("node", Lean::Right),
        ("CPUs", Lean::Right),
        ("memory", Lean::Right),
        ("available", Lean::Right),
    ]);
    for node in nodes {
        table.row([
            node.node.to_string(),
            node.cpus.len().to_string(),
            bytes(node.bytes),
            bytes(node.available_bytes()),
        ]);
    }
    table.render()
}

fn of_run(run: &Status) -> String {
    let mut text = String::new();
    let command = format::shortened(&run.command.join(" ").escape_debug().to_string(), 60);
    let dry = if run.dry_run { ", a dry run" } else { "" };
    let agent = run.agent_ns as f64 / run.ran_ns.max(1) as f64;
    let _ = writeln!(
        text,
        "{}: {command}\n  {} for {}{dry}; the agent takes {} of a CPU",
        run.agent,
        run.policy,
        format::duration_ns(run.ran_ns as f64),
        percent(agent)
    );
    let number = |name: &str| run.figures[name].as_u64().unwrap_or(0);
    let share = |name: &str| run.figures[name]["local_share"].as_f64();
    if let Some(counters) = run.figures["counters"].as_str() {
        let samples = |name: &str| run.figures[name]["samples"].as_f64().unwrap_or(0.0);
        let local = |name: &str| share(name).map_or("unknown".to_owned(), percent);
        let _ = writeln!(
            text,
            "  local share of what {counters} sampled: {} where nothing was moved yet, {} of {} samples after",
            local("before"),
            local("after"),
            count(samples("after") as u64)
        );
    }
    let _ = writeln!(
        text,
        "  pages moved: {} as regions were placed, {} after iterations; {} refused",
        count(number("pages_moved")),
        count(number("pages_migrated")),
        count(number("pages_refused"))
    );
    let _ = writeln!(
        text,
        "  regions: {} now, {} in all: {} far, {} near",
        count(run.regions),
        count(number("regions")),
        count(number("far")),
        count(number("near"))
    );
    if !run.largest.is_empty() {
        let _ = write!(text, "\n{}", regions(run));
    }
    text
}

fn regions(run: &Status) -> String {
    let heads = ["process", "from", "size", "call site", "state"];
    let leans = [
        Lean::Right,
        Lean::Right,
        Lean::Right,
        Lean::Right,
        Lean::Left,
    ];
    let heads = heads.into_iter().map(str::to_owned).zip(leans);
    let pages = run
        .nodes
        .iter()
        .map(|node| (format!("node {node}"), Lean::Right));
    let mut table = Table::new(heads.chain(pages));
    for region in &run.largest {
        let all: u64 = region.pages.iter().sum();
        let cells = [
            region.pid.to_string(),
            format!("{:x}", region.start),
            bytes(region.bytes),
            format!("{:016x}", region.signature),
            region.state.clone(),
        ];
        let on = region.pages.iter().map(|&pages| match all {
            0 => String::new(),
            _ => percent(pages as f64 / all as f64),
        });
        table.row(cells.into_iter().chain(on));
    }
    table.render()
}
