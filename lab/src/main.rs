//! `lab SCENARIO.toml`: runs programs in guests with several NUMA nodes and says where their memory
//! accesses went.
#![forbid(unsafe_code)]

mod cache;
mod check;
mod counts;
mod expect;
mod guest;
mod hash;
mod interrupt;
mod machine;
mod policy;
mod price;
mod programs;
mod report;
mod run;
mod scenario;

use std::ffi::OsString;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{self, ExitCode};

use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand};

use crate::cache::Cache;
use crate::guest::{Guest, Outside, Tools};
use crate::interrupt::Interrupted;
use crate::policy::Policy;
use crate::programs::{Compiler, Programs};
use crate::report::Row;
use crate::run::{Built, Run};
use crate::scenario::{Case, Scenario};

/// Runs programs in Linux guests with several NUMA nodes, counts every memory access, and says what
/// was local and what it cost.
///
/// The first run fetches QEMU and a kernel from Debian into a cache ($HITHER_LAB_CACHE, else
/// ~/.cache/hither-lab); nothing is installed.
#[derive(Parser)]
#[command(
    name = "lab",
    version,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = EXAMPLES
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    /// The scenario: machines, and cases to run on them
    #[arg(required = true)]
    scenario: Option<PathBuf>,
    /// Print one line of JSON per case as soon as it is done, instead of a table at the end
    #[arg(long)]
    json: bool,
    /// Run only cases that match: `*` and `?` in a case's name, or in NAME/MACHINE/PLACEMENT/POLICY
    /// where the pattern has a `/`
    #[arg(long, value_name = "GLOB")]
    only: Option<String>,
    /// Run each case N times; overrides the scenario
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: Option<u32>,
    /// Write results.jsonl and table.txt into this folder as well
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// List the cases without running any
    #[arg(long)]
    list: bool,
    /// Open a shell in the first case's guest, with its programs, instead of running cases
    #[arg(long, conflicts_with_all = ["json", "output", "list", "repetitions"])]
    shell: bool,
    /// Use this plugin instead of building lab/plugin
    #[arg(long, value_name = "PATH")]
    plugin: Option<PathBuf>,
    /// Use this build of hither, in cases with a policy hither:PAGES, instead of building it
    #[arg(long, value_name = "PATH")]
    hither: Option<PathBuf>,
}

const EXAMPLES: &str = "Examples:
  lab setup                                             make everything ready and try a guest
  lab lab/scenarios/smoke.toml                          the checks that CI runs
  lab lab/scenarios/placement.toml --only 'spmv*'       some cases of a scenario
  lab lab/scenarios/tiers.toml --json > tiers.jsonl     results for other programs
  lab lab/scenarios/smoke.toml --only moved --shell     open a shell in a guest
  lab trace -o bt.txt bt --class A --threads 32         a program's misses, for hither place
  lab clean                                             remove snapshots and compiled programs

Exit status:
  0    all expectations hold
  1    one does not (each is named on stderr)
  2    a case or the lab itself could not run
  130  interrupted";

#[derive(Subcommand)]
enum Command {
    /// Compile the programs and the plugin, fetch the tools into the cache, boot a guest of two
    /// nodes, and say what is there
    Setup,
    /// Run a program that counts its own misses, without a guest, and write them by page, thread
    /// and loop in hither's format page-counts (`hither place FILE`)
    Trace {
        /// The file that is written
        #[arg(long, short, value_name = "FILE")]
        output: PathBuf,
        /// The program: after the NAS parallel benchmark of that name
        #[arg(value_parser = clap::builder::PossibleValuesParser::new(programs::COUNTING))]
        program: String,
        /// Its options, such as `--class A --threads 32` (`--help` lists them)
        #[arg(
            trailing_var_arg = true,
            allow_hyphen_values = true,
            value_name = "OPTION"
        )]
        options: Vec<OsString>,
    },
    /// Remove snapshots and compiled programs from the cache
    Clean {
        /// Remove the tools as well; the next run fetches their current versions
        #[arg(long)]
        all: bool,
    },
}

/// The outcome of a scenario.
#[derive(Debug, Default)]
struct Outcome {
    /// Number of expectations that do not hold.
    wrong: usize,
    /// Cases that could not run.
    not_run: Vec<String>,
}

/// The reader of standard output has closed it.
#[derive(Debug)]
struct Closed;

impl std::fmt::Display for Closed {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("standard output is closed")
    }
}

impl std::error::Error for Closed {}

fn main() -> ExitCode {
    let cli = Cli::parse();
    interrupt::note();
    match act(&cli) {
        Ok(Outcome { wrong: 0, not_run }) if not_run.is_empty() => ExitCode::SUCCESS,
        Ok(Outcome { wrong, not_run }) => {
            if wrong > 0 {
                eprintln!("lab: {} did not hold", count(wrong, "expectation"));
            }
            if not_run.is_empty() {
                return ExitCode::from(1);
            }
            let (cases, names) = (count(not_run.len(), "case"), not_run.join(", "));
            eprintln!("lab: {cases} could not run: {names}");
            ExitCode::from(2)
        }
        Err(error) if error.is::<Closed>() => ExitCode::SUCCESS,
        Err(error) if error.is::<Interrupted>() => {
            eprintln!("lab: interrupted");
            ExitCode::from(130)
        }
        Err(error) => {
            eprintln!("lab: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Runs the command.
fn act(cli: &Cli) -> Result<Outcome> {
    let quiet = !io::stderr().is_terminal();
    match &cli.command {
        Some(Command::Setup) => {
            let cache = Cache::open()?;
            Built::new(&cache, cli.plugin.as_deref(), quiet)?;
            print(&guest::setup(&cache, quiet)?)?;
        }
        Some(Command::Trace {
            output,
            program,
            options,
        }) => {
            let programs = Programs::build(&Cache::open()?, Compiler::Cc)?;
            let status = process::Command::new(programs.counting_path(program))
                .args(options)
                .arg("--trace")
                .arg(output)
                .status()
                .with_context(|| format!("running {program}"))?;
            ensure!(status.success(), "{program} ended with {status}");
        }
        Some(Command::Clean { all }) => {
            let cache = Cache::open()?;
            let mib = cache.clean(*all)? >> 20;
            print(&format!(
                "{mib} MiB freed in {}\n",
                cache.folder().display()
            ))?;
        }
        None => {
            let path = cli.scenario.as_deref().context("which scenario?")?;
            return act_on(path, cli, quiet);
        }
    }
    Ok(Outcome::default())
}

/// Runs, lists or opens the scenario at `path`, as the options say.
fn act_on(path: &Path, cli: &Cli, quiet: bool) -> Result<Outcome> {
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
        let ids = scenario.cases.iter().map(|case| case.id() + "\n");
        print(&ids.collect::<String>())?;
        return Ok(Outcome::default());
    }
    // What can fail on this machine is tried before the download.
    if let Some(folder) = &cli.output {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    let cache = Cache::open()?;
    let mut built = Built::new(&cache, cli.plugin.as_deref(), quiet)?;
    let needs_hither = |case: &Case| matches!(case.policy, Policy::Hither { .. });
    if scenario
        .cases
        .iter()
        .any(|case| case.compiler == Compiler::Clang)
    {
        built = built.with_clang(&cache);
    }
    if scenario.cases.iter().any(needs_hither) {
        built = built.with_hither(&cache, cli.hither.as_deref(), quiet)?;
    }
    let bench = Bench {
        built,
        tools: Tools::ready(&cache, quiet)?,
        quiet,
    };
    if cli.shell {
        let case = &scenario.cases[0];
        let guest = Guest::snapshot(&bench.tools, &case.machine, quiet)?;
        run::shell(case, &guest, &bench.built, bench.outside(case)?.as_ref())?;
        return Ok(Outcome::default());
    }
    bench.run_all(&scenario, cli.json, cli.output.as_deref())
}

/// What every case needs.
struct Bench {
    tools: Tools,
    built: Built,
    quiet: bool,
}

impl Bench {
    /// Runs the cases and prints the results, into the folder `output` as well. The other cases
    /// still run if one cannot.
    fn run_all(&self, scenario: &Scenario, json: bool, output: Option<&Path>) -> Result<Outcome> {
        let mut lines = match output.map(|folder| folder.join("results.jsonl")) {
            Some(path) => {
                Some(fs::File::create(&path).with_context(|| path.display().to_string())?)
            }
            None => None,
        };
        let mut rows: Vec<Row> = Vec::new();
        let mut outcome = Outcome::default();
        let mut interrupted = None;
        for (index, case) in scenario.cases.iter().enumerate() {
            let runs = match self.run_case(case, index, scenario.cases.len()) {
                Ok(runs) => runs,
                Err(error) if error.is::<Interrupted>() => {
                    interrupted = Some(error);
                    break;
                }
                Err(error) => {
                    eprintln!("lab: case {}: {error:#}", case.id());
                    outcome.not_run.push(case.id());
                    continue;
                }
            };
            let row = report::row(case, &runs, &self.built, self.tools.versions());
            for failure in check::failures(&case.expect, &row) {
                eprintln!("lab: {}: {failure}", case.id());
                outcome.wrong += 1;
            }
            let line = serde_json::to_string(&row)? + "\n";
            if json {
                print(&line)?;
            }
            if let Some(lines) = &mut lines {
                lines
                    .write_all(line.as_bytes())
                    .context("writing results.jsonl")?;
            }
            rows.push(row);
        }
        let table = format!("{}\n\n{}", scenario.title, report::table(&rows));
        if !json && !rows.is_empty() {
            print(&table)?;
        }
        if let Some(path) = output.map(|folder| folder.join("table.txt")) {
            fs::write(&path, table).with_context(|| path.display().to_string())?;
        }
        interrupted.map_or(Ok(outcome), Err)
    }

    /// The root of the packages that a case needs, if it needs any.
    fn outside(&self, case: &Case) -> Result<Option<Outside>> {
        (!case.packages.is_empty())
            .then(|| Outside::ready(self.tools.cache(), &case.packages, self.quiet))
            .transpose()
    }

    fn run_case(&self, case: &Case, index: usize, cases: usize) -> Result<Vec<Run>> {
        let guest = Guest::snapshot(&self.tools, &case.machine, self.quiet)?;
        let outside = self.outside(case)?;
        let place = format!("[{}/{cases}] {}", index + 1, case.id());
        let mut runs = Vec::new();
        for repetition in 0..case.repetitions {
            let place_of_run = format!("run {} of {}", repetition + 1, case.repetitions);
            if !self.quiet {
                eprint!("\r\x1b[K{place}, {place_of_run}");
            }
            let run = run::run(case, repetition, &guest, &self.built, outside.as_ref());
            if !self.quiet {
                eprint!("\r\x1b[K");
            }
            runs.push(run.with_context(|| place_of_run)?);
        }
        if !self.quiet {
            let seconds: f64 = runs.iter().map(|run| run.host_seconds).sum();
            eprintln!("{place} ({seconds:.1} s)");
        }
        Ok(runs)
    }
}

fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Closed.into()),
        Err(error) => Err(error).context("writing to standard output"),
        Ok(()) => Ok(()),
    }
}
