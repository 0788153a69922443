//! `hither top`: what the runs of `hither run` do, live.

mod screen;

use std::fmt::Write as _;
use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use hither_live::status::{self, Status};
use hither_sys::machine::{Machine, NodeMemory, ThisMachine};
use serde_json::Value;
use signal_hook::low_level::emulate_default_handler;

use self::screen::{Next, Screen};
use super::Subcommand;
use crate::format::{self, Lean, Table, bytes, count, percent};
use crate::ui::{self, Ui};

const EXAMPLES: &str = "\
Shows this user's runs until they have ended. q and Ctrl-C end the watching,
never a run; the arrow and page keys scroll.

Examples:
  hither top                 every run of yours, each second anew
  hither top 4711            one run, by the process number of its `hither run`
  hither top --once          once, for a script
  hither top --json | jq '.[].figures.after.local_share'";

/// Watch programs that run under `hither run`: page cache, nodes, regions, local share, moves
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Top {
    /// The run whose `hither run` has this process number
    #[arg(value_name = "PID")]
    pid: Option<u32>,

    /// Show once what is there now
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

    /// Print one JSON document: an array, a run an element
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
        names(&run.policy),
        format::duration_ns(run.ran_ns as f64),
        percent(agent)
    );
    let number = |name: &str| run.figures[name].as_u64().unwrap_or(0);
    if run.figures["budget_bytes"].is_u64() {
        let steering = run.figures["steering"].as_bool().unwrap_or(false);
        let _ = writeln!(
            text,
            "  {} of cache for {}: {} missed, {} by least recently used\n  {} dropped{}; {} left to others, {} taken by the kernel{}",
            bytes(number("budget_bytes")),
            format::counted(number("files"), "file"),
            bytes(number("missed_bytes")),
            bytes(number("lru_missed_bytes")),
            bytes(number("dropped_bytes")),
            match (steering, number("dropped_bytes")) {
                (true, _) => "",
                (false, 0) => " yet: nothing would be gained",
                (false, _) => ", and no more: nothing is gained",
            },
            bytes(number("foreign_bytes")),
            bytes(number("absent_bytes")),
            match number("readahead_disabled") {
                0 => String::new(),
                times => format!(
                    "; readahead switched off {}",
                    format::counted(times, "time")
                ),
            },
        );
        text.push_str(&busiest(&run.figures["busiest_files"], "file", "path"));
        text.push_str(&busiest(&run.figures["busiest_sites"], "call site", "site"));
        return text;
    }
    if run.figures["replica_bytes"].is_array() {
        let by_node = run.figures["replica_bytes"].as_array();
        let by_node = by_node.into_iter().flatten().zip(&run.nodes);
        let by_node = by_node
            .map(|(held, node)| format!("{} on node {node}", bytes(held.as_u64().unwrap_or(0))));
        let served = number("reads_served");
        let share = served as f64 / (served + number("reads")).max(1) as f64;
        let _ = writeln!(
            text,
            "  {} of reads served from replicas of {}: {}{}\n  {} made, {} given up for others; {} ended by writers or changes",
            percent(share),
            format::counted(number("files"), "file"),
            by_node.collect::<Vec<_>>().join(", "),
            match run.figures["memory_is_tight"].as_bool() {
                Some(true) => "; memory is tight",
                _ => "",
            },
            count(number("replicas_made")),
            count(number("replicas_reclaimed")),
            format::counted(number("files_ended"), "file"),
        );
        return text;
    }
    if run.figures["file_pages_moved"].is_u64() {
        let (accesses, local) = (number("file_accesses"), number("file_local_accesses"));
        let _ = writeln!(
            text,
            "  {} of what is read again of {} is local\n  {} moved to where they are read, {} refused",
            percent(local as f64 / accesses.max(1) as f64),
            format::counted(number("files"), "file"),
            format::counted(number("file_pages_moved"), "page"),
            count(number("file_pages_refused")),
        );
        return text;
    }
    if let Some(counters) = run.figures["counters"].as_str() {
        let tally = |name: &str| {
            let samples = run.figures[name]["samples"].as_u64().unwrap_or(0);
            let local = run.figures[name]["local_share"].as_f64();
            local.map(|local| (samples, percent(local)))
        };
        let _ = match tally("sampled") {
            None => writeln!(text, "  {counters} has sampled nothing yet"),
            Some((samples, local)) => {
                writeln!(
                    text,
                    "  {local} local of {} samples by {counters}",
                    count(samples)
                )
            }
        };
        if !run.dry_run
            && let (Some((_, before)), Some((_, after))) = (tally("before"), tally("after"))
        {
            let _ = writeln!(
                text,
                "  regions with moves: {before} local before the first, {after} after"
            );
        }
    }
    // Some were moved by the kernel before the mover came to them: those are not among the pages
    // that were moved.
    let migrated = count(number("pages_migrated"));
    let _ = match run.dry_run {
        true => writeln!(
            text,
            "  pages that would have moved after iterations: {migrated}"
        ),
        false => writeln!(
            text,
            "  pages moved: {}, {} refused; of those asked for after iterations {migrated} are there",
            count(number("pages_moved")),
            count(number("pages_refused")),
        ),
    };
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

/// What was read of the busiest files, or by the busiest call sites; nothing where nothing was.
fn busiest(rows: &Value, head: &str, name: &str) -> String {
    let rows = rows.as_array().map_or(&[][..], Vec::as_slice);
    let classified = rows.iter().any(|row| row["class"].is_string());
    let mut heads = vec![
        (head, Lean::Left),
        ("read", Lean::Right),
        ("hits", Lean::Right),
        ("missed", Lean::Right),
        ("to least recently used", Lean::Right),
    ];
    if classified {
        heads.push(("class", Lean::Left));
    }
    let mut table = Table::new(heads);
    for row in rows {
        let number = |name: &str| row[name].as_u64().unwrap_or(0);
        let (read, missed) = (number("referenced_bytes"), number("missed_bytes"));
        let text = |name: &str| row[name].as_str().unwrap_or_default();
        let hits = read.saturating_sub(missed) as f64 / read.max(1) as f64;
        let mut cells = vec![
            format::shortened(&text(name).escape_debug().to_string(), 50),
            bytes(read),
            percent(hits),
            bytes(missed),
            format::saved(number("lru_missed_bytes"), missed),
        ];
        if classified {
            cells.push(text("class").to_owned());
        }
        table.row(cells);
    }
    match rows.is_empty() {
        true => String::new(),
        false => format!("\n{}", table.render()),
    }
}

/// Policies without their parameters.
fn names(policies: &str) -> String {
    let names = policies.split('}').filter_map(|one| one.split('{').next());
    names.collect()
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

#[cfg(test)]
mod tests {
    use hither_live::status::RegionStatus;
    use insta::assert_snapshot;
    use serde_json::json;

    use super::*;

    fn run() -> Status {
        let region = |signature, state: &str, pages| RegionStatus {
            pid: 812,
            start: 0x7f31_4000_0000,
            bytes: 64 << 20,
            signature,
            state: state.to_owned(),
            pages,
        };
        Status {
            agent: 810,
            command: vec!["./bt".to_owned(), "a\nb".to_owned()],
            policy: "cache-aware{limit=0.5},upm{predictive=1}".to_owned(),
            dry_run: true,
            ran_ns: 12_300_000_000,
            agent_ns: 61_500_000,
            nodes: vec![0, 2],
            regions: 41,
            largest: vec![
                region(0xabc, "sampled", vec![12288, 4096]),
                region(0xdef0_0000_0000_0001, "watched", vec![0, 0]),
            ],
            figures: json!({
                "counters": "write-protect", "regions": 44, "far": 2, "near": 3, "pages_moved": 4608, "pages_migrated": 4096,
                "pages_refused": 7, "sampled": { "samples": 9000, "local_share": 0.75 },
                "before": { "samples": 4000, "local_share": 0.5 }, "after": { "samples": 5000, "local_share": 0.95 },
            }),
        }
    }

    #[test]
    fn a_run() {
        let node = |node, cpus| NodeMemory {
            node,
            cpus,
            bytes: 4 << 30,
            free_bytes: 1 << 30,
            ..NodeMemory::default()
        };
        let nodes = [node(0, vec![0, 1]), node(2, Vec::new())];
        let wet = Status {
            dry_run: false,
            ..run()
        };
        assert_snapshot!(text(&[wet], &nodes), @r"
          node  CPUs    memory  available
             0     2  4.00 GiB   1.00 GiB
             2     0  4.00 GiB   1.00 GiB

        810: ./bt a\nb
          cache-aware,upm for 12.3 s; the agent takes 0.5 % of a CPU
          75.0 % local of 9,000 samples by write-protect
          regions with moves: 50.0 % local before the first, 95.0 % after
          pages moved: 4,608, 7 refused; of those asked for after iterations 4,096 are there
          regions: 41 now, 44 in all: 2 far, 3 near

          process          from       size         call site  state    node 0  node 2
              812  7f3140000000  64.00 MiB  0000000000000abc  sampled  75.0 %  25.0 %
              812  7f3140000000  64.00 MiB  def0000000000001  watched
        ");
    }

    #[test]
    fn a_dry_run_moves_nothing() {
        let said = of_run(&run());
        assert!(said.contains(", a dry run; "), "{said}");
        let would = "  pages that would have moved after iterations: 4,096\n";
        assert!(said.contains(would), "{said}");
        assert!(!said.contains("regions with moves"), "{said}");
    }

    #[test]
    fn a_run_with_its_files_steered() {
        let files = Status {
            policy: "pcc{threshold=100}".to_owned(),
            figures: json!({
                "budget_bytes": 1 << 30, "files": 1, "missed_bytes": 3 << 20, "lru_missed_bytes": 4 << 20,
                "dropped_bytes": 2 << 20, "foreign_bytes": 0, "absent_bytes": 1 << 20, "steering": false,
                "readahead_disabled": 3,
                "busiest_files": [
                    { "path": "/data/index\n1", "referenced_bytes": 8 << 20, "missed_bytes": 3 << 20, "lru_missed_bytes": 4 << 20 },
                ],
                "busiest_sites": [
                    { "site": "0xabc", "class": "looping", "referenced_bytes": 6 << 20, "missed_bytes": 3 << 20, "lru_missed_bytes": 2 << 20 },
                    { "site": "0x0", "class": null, "referenced_bytes": 2 << 20, "missed_bytes": 0, "lru_missed_bytes": 0 },
                ],
            }),
            ..run()
        };
        assert_snapshot!(of_run(&files), @r"
        810: ./bt a\nb
          pcc for 12.3 s, a dry run; the agent takes 0.5 % of a CPU
          1.00 GiB of cache for 1 file: 3.00 MiB missed, 4.00 MiB by least recently used
          2.00 MiB dropped, and no more: nothing is gained; 0 B left to others, 1.00 MiB taken by the kernel; readahead switched off 3 times

          file                read    hits    missed  to least recently used
          /data/index\n1  8.00 MiB  62.5 %  3.00 MiB          1.00 MiB saved

          call site      read     hits    missed  to least recently used  class
          0xabc      6.00 MiB   50.0 %  3.00 MiB           1.00 MiB more  looping
          0x0        2.00 MiB  100.0 %       0 B               0 B saved
        ");
    }

    #[test]
    fn a_run_with_replicas() {
        let files = Status {
            policy: "dual-layer{threshold=2}".to_owned(),
            figures: json!({
                "replica_bytes": [3 << 20, 0], "files": 2, "reads_served": 750, "reads": 250, "replicas_made": 200,
                "replicas_reclaimed": 8, "files_ended": 1, "memory_is_tight": true,
            }),
            ..run()
        };
        assert_snapshot!(of_run(&files), @r"
        810: ./bt a\nb
          dual-layer for 12.3 s, a dry run; the agent takes 0.5 % of a CPU
          75.0 % of reads served from replicas of 2 files: 3.00 MiB on node 0, 0 B on node 2; memory is tight
          200 made, 8 given up for others; 1 file ended by writers or changes
        ");
    }

    #[test]
    fn a_run_whose_files_follow_their_readers() {
        let files = Status {
            policy: "upm{history=1}".to_owned(),
            dry_run: false,
            figures: json!({
                "files": 3, "file_accesses": 4000, "file_local_accesses": 3000, "file_pages_moved": 2048, "file_pages_refused": 12,
            }),
            ..run()
        };
        assert_snapshot!(of_run(&files), @r"
        810: ./bt a\nb
          upm for 12.3 s; the agent takes 0.5 % of a CPU
          75.0 % of what is read again of 3 files is local
          2,048 pages moved to where they are read, 12 refused
        ");
    }

    #[test]
    fn a_run_that_has_just_begun() {
        let bare = Status {
            largest: Vec::new(),
            figures: json!({ "counters": "write-protect", "sampled": { "samples": 0, "local_share": null } }),
            dry_run: false,
            ..run()
        };
        assert_snapshot!(text(&[bare], &[]), @r"
          node  CPUs  memory  available

        810: ./bt a\nb
          cache-aware,upm for 12.3 s; the agent takes 0.5 % of a CPU
          write-protect has sampled nothing yet
          pages moved: 0, 0 refused; of those asked for after iterations 0 are there
          regions: 41 now, 0 in all: 0 far, 0 near
        ");
    }
}
