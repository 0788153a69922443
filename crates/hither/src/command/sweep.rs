//! `hither sweep`: many policies and sizes on many traces, with resuming after an interruption.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::thread;

use anyhow::Context;
use clap::{Args, ValueEnum};
use hither_analysis::format::{bytes, counted};
use hither_analysis::objects;
use hither_analysis::placement;
use hither_analysis::result_rows::{ResultRow, RowFormat};
use hither_analysis::simulate::{self, Ratio, ratio_table};
use hither_analysis::sweep::{
    self, JobDefaults, Journal, Shard, Sweep, SweepEnd, SweepOptions, SweepPlan, TraceJob,
    TraceResults,
};
use hither_core::registry;
use hither_sim::{Grid, Row};

use super::options::heading::{CACHES, NODES, OUTPUT, READING};
use super::options::placement::PlacementArgs;
use super::options::{CacheArgs, LoadArgs, SampleArgs};
use super::subcommand::Subcommand;
use crate::exit::{self, Usage};
use crate::output;
use crate::this_machine;
use crate::ui::{self, Ui};

const EXAMPLES: &str = "\
Examples:
  hither sweep -t a.hither -t b.hither -p lru,arc,opt -s 1%,10%
                                                a table for each trace
  hither sweep papers.toml -o papers.parquet    what the file says
  hither sweep papers.toml -p sieve -o out.csv  with another policy
  hither sweep papers.toml -o out.csv --shard merge
                                                one output of all parts";

const DETAILS: &str = "\
With --output, results are saved as they come in, in a journal beside the output
(OUT.journal). The same command resumes from there, however the last one ended;
without that file it begins anew.
The output itself appears when all is done, with the same bytes in any case.

--shard 2/8 does the second of eight parts, about as long as the others, and
saves it in OUT.shard-2-of-8: the parts can run on any machines that see the
same traces under the same paths. --shard merge makes the output of all parts
beside it, with the same bytes as of one sweep. --print rows prints the rows that
are saved by now, while parts are at work.

The caches that are simulated at the same time take no more memory than the
trace may (--memory), but for a single one.

Where a machine reads copies of traces, --copies names a file COPIES.toml of
them. Results name the traces, and never the copies:
  [[copies]]
  trace = \"/store/cs.trace.gz\" # as the sweep names it
  path = \"/tmp/cs.trace.gz\"    # from the folder of COPIES.toml
  bytes = 123456               # in place of the path, of a trace that another
                               # shard reads: work is divided by size

A file SPEC.toml holds the same settings as the options, and further ones for
single traces. Options on the command line replace those of the file:
  policies = [\"lru\", \"arc\", \"pcc{sample=5}\"]
  sizes = [\"1%\", \"64MiB\", 512]
  [[traces]]
  path = \"cs.trace.gz\"        # from the folder of SPEC.toml
  format = \"lirs\"             # and block, keep-repeats, no-in-kernel, maps,
                              # objects, sample, policies, sizes
  [[traces]]
  path = \"shared.hither\"
  nodes = [4, \"mesh:5x5\"]     # and placements, bind, warm-up, costs
  placements = [\"first-and-forever\", \"post-office\"]";

/// Simulate many policies, sizes and traces; resumes if interrupted
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, after_long_help = format!("{DETAILS}\n\n{EXAMPLES}"))]
pub(super) struct SweepCommand {
    /// What to simulate, as TOML
    spec: Option<PathBuf>,

    /// A trace; may be given several times
    #[arg(long = "trace", short = 't', value_name = "TRACE")]
    traces: Vec<PathBuf>,

    /// Read the copies that FILE names in place of their traces
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    copies: Option<PathBuf>,

    /// Threads of the simulation, at most four a processor [default: one a processor]
    ///
    /// No result depends on it.
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=4096),
        hide_short_help = true
    )]
    threads: Option<u16>,

    #[command(flatten, next_help_heading = CACHES)]
    caches: CacheArgs,

    #[command(flatten, next_help_heading = READING)]
    loading: LoadArgs,

    #[command(flatten, next_help_heading = READING)]
    sampling: SampleArgs,

    #[command(flatten, next_help_heading = NODES)]
    placing: PlacementArgs,

    /// Write the results to FILE: .csv, .json or .parquet
    ///
    /// It has a row for each cache.
    #[arg(long, short, value_name = "FILE", help_heading = OUTPUT)]
    output: Option<PathBuf>,

    /// Format of the results: csv, json or parquet; without --output they are printed in it
    #[arg(long, value_name = "FORMAT", help_heading = OUTPUT, hide_short_help = true)]
    to: Option<RowFormat>,

    /// Replace an existing output
    #[arg(long, requires = "output", help_heading = OUTPUT)]
    force: bool,

    /// Do one of N parts of the sweep, I from 1, or `merge` the parts into the output
    #[arg(long, value_name = "I/N|merge", requires = "output", help_heading = OUTPUT)]
    shard: Option<Part>,

    /// Simulate nothing, but print what is saved or read, with --shard I/N of this part
    #[arg(
        long,
        value_name = "WHAT",
        value_enum,
        requires_if("rows", "output"),
        help_heading = OUTPUT,
        hide_short_help = true
    )]
    print: Option<Printed>,

    /// Save after about N references, counted once for each cache
    #[arg(
        long,
        value_name = "N",
        default_value = "500M",
        value_parser = references,
        help_heading = OUTPUT,
        hide_short_help = true
    )]
    save_every: u64,
}

/// A value of --shard.
#[derive(Clone, Copy, Debug)]
enum Part {
    One(Shard),
    Merge,
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Part, String> {
        if text == "merge" {
            Ok(Part::Merge)
        } else {
            text.parse().map(Part::One)
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Printed {
    /// The rows that are saved by now, in the format of the output or that of --to
    Rows,
    /// The names of the traces that are read
    Traces,
}

fn references(text: &str) -> Result<u64, String> {
    hither_core::spec::parse_count(text)
        .filter(|&count| count > 0)
        .ok_or_else(|| format!("`{text}` is no number of references, such as 500M"))
}

impl Subcommand for SweepCommand {
    const NAME: &'static str = "sweep";

    fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        let plan = self.plan()?;
        sweep::check_plan(&plan)?;
        let shard = self.one_shard();
        let read = sweep::traces_read(&plan, shard);
        if self.print == Some(Printed::Traces) {
            let names = read.iter().map(|job| format!("{}\n", job.name.display()));
            ui::print(&names.collect::<String>())?;
            return Ok(ExitCode::SUCCESS);
        }
        let (prints, merges) = (
            self.print.is_some(),
            matches!(self.shard, Some(Part::Merge)),
        );
        if !(prints || merges) {
            sweep::check_traces(&read)?;
        }
        let format = self.format()?;
        if let Some(threads) = self.threads {
            let processors = thread::available_parallelism().map_or(1, NonZeroUsize::get);
            let threads = useful_threads(threads.into(), processors);
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
            pool.build_global().context("starting the threads")?;
        }
        let run = SweepOptions {
            unit_references: self.save_every,
            cancel: exit::cancelled_by_signals()?,
            shard,
        };
        if let (Some(output), Some(format), true) = (&self.output, format, prints) {
            let sweep = Sweep::so_far(&plan, output, run)?;
            ui::print_bytes(&format.write(&sweep.rows())?)?;
            return Ok(ExitCode::SUCCESS);
        }
        if let (Some(output), true) = (&self.output, merges) {
            self.check_output(output, false)?;
            let sweep = Sweep::merged(&plan, output, run)?;
            self.deliver(sweep, format, ui)?;
            return Ok(ExitCode::SUCCESS);
        }
        let journal = match &self.output {
            Some(output) => Some(self.journal(output, &plan)?),
            None => None,
        };
        let mut sweep = Sweep::new(&plan, journal, run)?;
        let (done, _) = sweep.progress();
        if done > 0 {
            ui.note(format_args!(
                "going on: {} done before",
                counted(done as u64, "cache")
            ));
        }
        let end = sweep.run(ui);
        let (done, _) = sweep.progress();
        let end = match end {
            Ok(end) => end,
            // An empty journal is removed, since the next attempt may have another plan.
            Err(error) if done == 0 => {
                sweep.finish()?;
                return Err(error.into());
            }
            Err(error) => return Err(error.into()),
        };
        if let SweepEnd::Cancelled = end {
            match self.output {
                Some(_) => ui.note(format_args!(
                    "interrupted: {} done and saved; the same command goes on from there",
                    counted(done as u64, "cache")
                )),
                None => {
                    ui.note("interrupted; with --output, results are saved and can be gone on from")
                }
            }
            return Ok(ExitCode::from(exit::INTERRUPTED));
        }
        if let (Some(shard), Some(output)) = (shard, &self.output) {
            ui.note(format_args!(
                "shard {shard} is done, {} in {}; --shard merge makes the output of all",
                counted(done as u64, "cache"),
                shard.path(output).display()
            ));
            return Ok(ExitCode::SUCCESS);
        }
        self.deliver(sweep, format, ui)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Limits the number of threads to four a processor. Idle threads of rayon search all others for
/// work before they sleep, which takes all time with thousands of threads. On two processors an
/// almost empty sweep took 0.02 s with 256 threads and 1.7 s with 1024, and had not ended after 20
/// s with 4096 (2026-11).
fn useful_threads(wanted: usize, processors: usize) -> usize {
    wanted.min(4 * processors)
}

impl SweepCommand {
    /// The part to do or to print, if it is one.
    fn one_shard(&self) -> Option<Shard> {
        match self.shard? {
            Part::One(shard) => Some(shard),
            Part::Merge => None,
        }
    }

    fn plan(&self) -> anyhow::Result<SweepPlan> {
        let (format, options) = self.loading.options(self.sampling.sample());
        let defaults = JobDefaults { format, options };
        let mut plan = match &self.spec {
            Some(path) => sweep::read_plan(path, &defaults, &this_machine::topology)?,
            None => SweepPlan { jobs: Vec::new() },
        };
        if !self.traces.is_empty() {
            let of_all = |trace: &PathBuf| TraceJob {
                name: trace.clone(),
                path: trace.clone(),
                bytes: None,
                format: defaults.format.clone(),
                options: defaults.options,
                policies: Vec::new(),
                sizes: Vec::new(),
                placing: placement::PlacementSetup::default(),
            };
            plan.jobs = self.traces.iter().map(of_all).collect();
        }
        if let Some(path) = &self.copies {
            sweep::use_copies(&mut plan, path)?;
        }
        for job in &mut plan.jobs {
            self.placing.apply(&mut job.placing)?;
            if self.caches.names_policies() || job.policies.is_empty() {
                let placed = !job.placing.nodes.is_empty();
                job.policies = self.caches.policies(|| {
                    if placed {
                        vec![registry::baseline()]
                    } else {
                        registry::compared_everywhere()
                    }
                });
            }
            if self.caches.names_sizes() {
                job.sizes = self.caches.sizes_as_written().to_vec();
            }
        }
        Ok(plan)
    }

    /// The format of the rows. `None`: tables as text.
    fn format(&self) -> anyhow::Result<Option<RowFormat>> {
        let (Some(output), None) = (&self.output, self.to) else {
            return Ok(self.to);
        };
        let ending = output.extension().and_then(|ending| ending.to_str());
        let format = ending.and_then(|name| name.parse().ok());
        let unknown = || {
            let path = output.display();
            Usage(format!(
                "{path}: the name ends in none of .csv, .json, .parquet; --to names a format"
            ))
        };
        Ok(Some(format.ok_or_else(unknown)?))
    }

    fn journal(
        &self,
        output: &Path,
        plan: &SweepPlan,
    ) -> anyhow::Result<(Journal, Vec<sweep::JournalEntry>)> {
        let path = match self.one_shard() {
            Some(shard) => shard.path(output),
            None => sweep::journal_path(output),
        };
        // A sweep that was killed after its last rename has both. Resuming it removes the journal.
        self.check_output(output, path.exists())?;
        Ok(Journal::open(path, &plan.digest())?)
    }

    /// Fails where the output cannot be written, or is there and shall not be replaced.
    fn check_output(&self, output: &Path, replace: bool) -> anyhow::Result<()> {
        if output == Path::new("-") {
            let problem = "results go to standard output without --output";
            return Err(Usage(problem.to_owned()).into());
        }
        output::check_folder(output)?;
        anyhow::ensure!(
            self.force || replace || !output.exists(),
            "{}: already exists (--force replaces it, -o names another)",
            output.display()
        );
        Ok(())
    }

    fn deliver(&self, sweep: Sweep<'_>, format: Option<RowFormat>, ui: &Ui) -> anyhow::Result<()> {
        let Some(format) = format else {
            return ui::print(&tables(&sweep)?);
        };
        for TraceResults { source, .. } in sweep.by_trace() {
            if source.references == 0 {
                ui.note(format_args!("{} has no references", source.trace));
            }
        }
        let rows = sweep.rows();
        let content = format.write(&rows)?;
        match &self.output {
            None => ui::print_bytes(&content),
            Some(output) => {
                let count = counted(rows.len() as u64, "row");
                drop(rows);
                // The lock of the journal excludes other writers.
                output::write_by_one_writer(output, &content)?;
                sweep.finish()?;
                ui.note(format_args!("{count} in {}", output.display()));
                Ok(())
            }
        }
    }
}

/// A table for each trace with the miss ratio of each policy at each size.
fn tables(sweep: &Sweep<'_>) -> anyhow::Result<String> {
    let mut tables = Vec::new();
    for TraceResults { job, source, rows } in sweep.by_trace() {
        if source.references == 0 {
            tables.push(format!("{} has no references\n", source.trace));
            continue;
        }
        if !job.placing.nodes.is_empty() {
            let placed = rows.iter().filter_map(|row| row.placement.as_ref());
            let results = placed.map(|placed| placed.result);
            tables.push(format!(
                "{}: {} to {} of {}\n{}",
                source.trace,
                counted(source.references, "reference"),
                counted(source.distinct, "distinct block"),
                bytes(source.block_bytes),
                placement::table(results, job.placing.running.binding, source.block_bytes)
            ));
            continue;
        }
        let ratio =
            |ratio: f64, is_refused: bool, error: Option<f64>| match source.sample_rate.as_str() {
                _ if is_refused => Ratio::Refused,
                "1" => Ratio::Exact(ratio),
                _ => Ratio::Estimate(ratio, error),
            };
        let of_blocks =
            |row: &ResultRow<'_>| ratio(row.miss_ratio(), row.refused, row.standard_error);
        let estimated = match source.sample_rate.as_str() {
            "1" => "",
            _ => "estimated from a sample, with 95 % intervals\n",
        };
        let lengths = |sizes: usize| job.policies.iter().map(move |&policy| (policy, sizes));
        let (of, each, table) = if let Some(distinct_bytes) = source.distinct_bytes {
            let sizes = objects::sizes(&job.sizes, distinct_bytes)?;
            let ratios = rows.iter().filter_map(|row| {
                let cells = row.objects?;
                let error = cells.error_bits.map(f64::from_bits);
                let of_bytes = ratio(cells.miss_ratio(), cells.refused, error);
                Some([of_blocks(row), of_bytes])
            });
            let ratios = Row::split(lengths(sizes.len()), ratios);
            let table = objects::ratio_table("miss ratio", &sizes, &ratios);
            ("distinct object", distinct_bytes, table)
        } else {
            let sizes = simulate::sizes(&job.sizes, source.block_bytes, source.distinct)?;
            let ratios = Row::split(lengths(sizes.len()), rows.iter().map(of_blocks));
            let ratios = Grid::new(sizes, ratios);
            let table = ratio_table("miss ratio", &ratios, source.block_bytes);
            ("distinct block", source.block_bytes, table)
        };
        tables.push(format!(
            "{}: {} to {} of {}\n{estimated}{table}",
            source.trace,
            counted(source.references, "reference"),
            counted(source.distinct, of),
            bytes(each),
        ));
    }
    Ok(tables.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_of_threads_are_not_started() {
        assert_eq!(useful_threads(4096, 2), 8);
        assert_eq!(useful_threads(3, 2), 3);
    }
}
