//! `lab SCENARIO.toml`: runs programs in guests with several NUMA nodes and says where their memory accesses went.
#![forbid(unsafe_code)]

mod check;
mod counts;
mod guest;
mod machine;
mod policy;
mod price;
mod programs;
mod report;
mod run;
mod scenario;

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand};

use crate::guest::{Guest, Tools};
use crate::report::Row;
use crate::run::Built;
use crate::scenario::{Case, Scenario};

/// Runs programs in Linux guests with several NUMA nodes, counts every memory access, and says what was local and what it cost.
///
/// The first run fetches QEMU and a kernel from Debian into a cache ($HITHER_LAB_CACHE, else ~/.cache/hither-lab); nothing is installed.
#[derive(Parser)]
#[command(name = "lab", version, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    /// The scenario: machines, and cases to run on them
    #[arg(required = true)]
    scenario: Option<PathBuf>,
    /// Print a line of JSON a case, as soon as it is done, rather than a table at the end
    #[arg(long)]
    json: bool,
    /// Run only cases that match: `*` and `?` in a case's name, or in NAME/MACHINE/PLACEMENT/POLICY where the pattern has a `/`
    #[arg(long, value_name = "GLOB")]
    only: Option<String>,
    /// Run each case so many times, whatever the scenario says
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: Option<u32>,
    /// Write results.jsonl and table.txt into this folder as well
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// List the cases and run none
    #[arg(long)]
    list: bool,
    /// Use this plugin rather than build lab/plugin
    #[arg(long, value_name = "PATH")]
    plugin: Option<PathBuf>,
}

const EXAMPLES: &str = "Examples:
  lab setup                                             fetch the tools and try a guest
  lab lab/scenarios/smoke.toml                          the checks that CI runs
  lab lab/scenarios/placement.toml --only 'spmv*'       some cases of a scenario
  lab lab/scenarios/tiers.toml --json > tiers.jsonl     results for other programs

Exit status: 0 all expectations hold, 1 one does not (each is named on stderr), 2 a case or the lab itself could not run.";

#[derive(Subcommand)]
enum Command {
    /// Fetch the tools into the cache, boot a guest of two nodes, and say what is there
    Setup,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match act(&cli) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(failed) => {
            eprintln!(
                "lab: {failed} expectation{} did not hold",
                if failed == 1 { "" } else { "s" }
            );
            ExitCode::from(1)
        }
        Err(error)
            if error
                .downcast_ref::<io::Error>()
                .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe) =>
        {
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("lab: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Does what was asked; the number of expectations that do not hold.
fn act(cli: &Cli) -> Result<usize> {
    let quiet = !io::stderr().is_terminal();
    let Some(path) = &cli.scenario else {
        print(&guest::setup(quiet)?)?;
        return Ok(0);
    };
    let mut scenario = scenario::read(path)?;
    if let Some(pattern) = &cli.only {
        scenario
            .cases
            .retain(|case| scenario::selected(pattern, case));
        ensure!(
            !scenario.cases.is_empty(),
            "--only {pattern}: no case of {} matches (--list names them)",
            path.display()
        );
    }
    for case in &mut scenario.cases {
        case.repetitions = cli.repetitions.unwrap_or(case.repetitions);
    }
    if cli.list {
        let list: String = scenario
            .cases
            .iter()
            .map(|case| format!("{}\n", case.id()))
            .collect();
        print(&list)?;
        return Ok(0);
    }
    run_all(cli, &scenario, quiet)
}

/// Runs the cases, prints the results as asked, and says which expectations do not hold.
fn run_all(cli: &Cli, scenario: &Scenario, quiet: bool) -> Result<usize> {
    let mut results = match &cli.output {
        Some(folder) => {
            fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
            let path = folder.join("results.jsonl");
            Some(fs::File::create(&path).with_context(|| path.display().to_string())?)
        }
        None => None,
    };
    let tools = Tools::ready(quiet)?;
    let built = Built {
        plugin: match &cli.plugin {
            Some(path) => {
                fs::canonicalize(path).with_context(|| format!("--plugin {}", path.display()))?
            }
            None => run::build_plugin(quiet)?,
        },
        programs: programs::build(tools.cache())?,
    };
    let mut rows: Vec<Row> = Vec::new();
    let mut failed = 0;
    for (index, case) in scenario.cases.iter().enumerate() {
        let runs = run_case(
            case,
            &tools,
            &built,
            quiet,
            &format!("[{}/{}]", index + 1, scenario.cases.len()),
        )
        .with_context(|| format!("case {}", case.id()))?;
        let row = report::row(case, &runs, tools.versions());
        for failure in case.expect.failures(&row) {
            eprintln!("lab: {}: {failure}", case.id());
            failed += 1;
        }
        let line = serde_json::to_string(&row)? + "\n";
        if cli.json {
            print(&line)?;
        }
        if let Some(results) = &mut results {
            results.write_all(line.as_bytes())?;
        }
        rows.push(row);
    }
    let table = format!("{}\n\n{}", scenario.title, report::table(&rows));
    if !cli.json {
        print(&table)?;
    }
    if let Some(folder) = &cli.output {
        let path = folder.join("table.txt");
        fs::write(&path, table).with_context(|| path.display().to_string())?;
    }
    Ok(failed)
}

fn run_case(
    case: &Case,
    tools: &Tools,
    built: &Built,
    quiet: bool,
    place: &str,
) -> Result<Vec<run::Run>> {
    let guest = Guest::snapshot(tools, &case.machine, quiet)?;
    let mut runs = Vec::new();
    for repetition in 0..case.repetitions {
        if !quiet {
            eprint!(
                "\r\x1b[K{place} {}, run {} of {}",
                case.id(),
                repetition + 1,
                case.repetitions
            );
        }
        let run = run::run(case, repetition, &guest, built)
            .with_context(|| format!("run {}", repetition + 1));
        if !quiet {
            eprint!("\r\x1b[K");
        }
        runs.push(run?);
    }
    if !quiet {
        let seconds: f64 = runs.iter().map(|run| run.host_seconds).sum();
        eprintln!("{place} {} ({seconds:.1} s)", case.id());
    }
    Ok(runs)
}

fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}
