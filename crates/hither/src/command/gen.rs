//! `hither gen`: generated traces of patterns or of programs.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::anyhow;
use clap::Args;
use hither_analysis::format::counted;
use hither_analysis::free_memory::half_of_free_bytes;
use hither_core::registry::Param;
use hither_core::spec::parse_count;
use hither_generate::{
    GENERATORS, NODES_MAX, PROGRAMS, Request, RequestOptions, RequestPart, SHARED, THREADS_MAX,
};
use hither_trace::{Export, Trace};

use super::options::heading;
use super::options::parameters::parameter_lines;
use super::options::trace_output::{DEFAULT_OUTPUT, goes_to_stdout, hint, named, target_name};
use super::subcommand::Subcommand;
use crate::exit::Usage;
use crate::interrupt;
use crate::ui::Ui;

/// Generate a trace of patterns (zipf, scans, loops) or of programs
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, after_long_help = help())]
pub(super) struct Gen {
    /// A pattern or program, such as loop or 'zipf{skew=0.9}'
    ///
    /// Several patterns take turns, several programs run at the same time, or in --queues.
    #[arg(value_name = "GENERATOR", required = true)]
    parts: Vec<RequestPart>,

    /// Number of references of patterns, such as 500 or 10M [default: 1M]
    #[arg(long, short = 'n', value_name = "N", value_parser = references)]
    references: Option<u64>,

    /// Threads of each program [default: the program's]
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(THREADS_MAX)),
        help_heading = PROGRAMS_HEADING
    )]
    threads: Option<u32>,

    /// Nodes of the machine that programs run on [default: one a thread]
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(NODES_MAX)),
        help_heading = PROGRAMS_HEADING
    )]
    nodes: Option<u32>,

    /// Move the threads of programs to other nodes every N iterations [default: never]
    ///
    /// A program without iterations moves a thread after N of its requests.
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u64).range(1..),
        help_heading = PROGRAMS_HEADING
    )]
    migrate_every: Option<u64>,

    /// Run the programs in N queues [default: all at once]
    ///
    /// Programs are dealt to the queues in turn, as jobs to processors, and those of a queue run
    /// one after another.
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..),
        help_heading = PROGRAMS_HEADING
    )]
    queues: Option<u32>,

    /// Seed of the random numbers; the same seed gives the same bytes
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,

    /// Format to write; `hither export --help` lists them
    #[arg(
        long,
        value_name = "NAME",
        default_value = "hither",
        value_parser = target_name,
        help_heading = heading::OUTPUT
    )]
    format: String,

    /// The trace folder or file to write; - is standard output, for formats other than hither
    #[arg(
        long,
        short,
        value_name = "PATH",
        default_value = DEFAULT_OUTPUT,
        help_heading = heading::OUTPUT
    )]
    output: PathBuf,

    /// Replace an existing file or folder
    #[arg(long, help_heading = heading::OUTPUT)]
    force: bool,
}

/// The heading of the options of programs.
const PROGRAMS_HEADING: &str = "Programs";

/// Steps of the progress bar of programs, whose number of references is not known in advance.
const PROGRESS_STEPS: u64 = 1000;

const EXAMPLES: &str = "\
Examples:
  hither gen 'zipf{blocks=1M,skew=1.0}' -n 10M -o zipf.hither
  hither gen scan 'loop{burst=100}' --format oracle-general -o mixed.bin
      for libCacheSim, too
  hither gen 'loop{blocks=2000}' 'scan{weight=0.5}' -n 100k --seed 7
      mixed 2 to 1
  hither gen 'nested{outer=500,inner=100}' 'zipf{weight=3,writes=0.2,burst=64}'
  hither gen parallel-grep --threads 8 --nodes 2 -o grep.hither
      8 shells on 2 nodes
  hither gen 'parallel-grep{files=50}' parallel-grep --migrate-every 1000";

/// The long help: the registries and the examples.
fn help() -> String {
    let mut text = "Patterns:\n".to_owned();
    for entry in GENERATORS {
        text += &format!("  {}: {}\n", entry.name, entry.summary);
        text += &parameter_lines(&entry.params[..entry.params.len() - SHARED.len()]);
    }
    text += "  All of them:\n";
    text += &parameter_lines(SHARED);
    text += "\nEach part of a mixture is a process with one thread, \
             files and call sites of its own, named for the generator.\n\n\
             Programs, which have an end, threads, nodes and a modelled clock:\n";
    // Parameters that at least three programs share are listed once, after the programs.
    let mut alike: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    let line = |param: &Param| parameter_lines(std::slice::from_ref(param));
    for entry in PROGRAMS {
        for param in entry.params {
            alike.entry(line(param)).or_default().push(entry.name);
        }
    }
    alike.retain(|_, names| names.len() >= 3);
    for entry in PROGRAMS {
        text += &format!(
            "  {}: {} ({})\n",
            entry.name,
            entry.summary,
            counted(entry.threads.into(), "thread")
        );
        let lines = entry.params.iter().map(line);
        text.extend(lines.filter(|line| !alike.contains_key(line)));
    }
    let mut together: BTreeMap<Vec<&str>, String> = BTreeMap::new();
    for (line, names) in alike {
        *together.entry(names).or_default() += &line;
    }
    for (names, lines) in together {
        text += &format!("  {}, each:\n{lines}", names.join(", "));
    }
    text += "\nThreads are dealt to the nodes in turn, over all programs of a mix.\n\n";
    text + EXAMPLES
}

fn references(text: &str) -> Result<u64, String> {
    match parse_count(text) {
        Some(0) => Err("a trace has at least one reference".to_owned()),
        Some(count) => Ok(count),
        None => Err("write a whole number, such as 5000, 100k or 10M".to_owned()),
    }
}

impl Subcommand for Gen {
    const NAME: &'static str = "gen";

    fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        let target = Export::find(&self.format)?;
        let to_stdout = goes_to_stdout(&self.output, target)?;
        let mut request = self.request()?;
        if !to_stdout {
            interrupt::remove_partial_on_interrupt(&self.output)?;
        }
        let written =
            self.write(&mut request, target, to_stdout, ui)
                .map_err(|error| match hint(&error) {
                    "" => named(error),
                    hint => anyhow!("{error}{hint}"),
                })?;
        ui.note(format_args!("{written} in {}", self.output.display()));
        Ok(ExitCode::SUCCESS)
    }
}

impl Gen {
    /// What is to be generated.
    fn request(&self) -> Result<Request, Usage> {
        let options = RequestOptions {
            references: self.references,
            threads: self.threads,
            nodes: self.nodes,
            migrate_every: self.migrate_every,
            queues: self.queues,
            seed: self.seed,
        };
        Request::new(&self.parts, &options).map_err(Usage)
    }

    /// Writes the trace and returns what was written, in words. A trace folder is written as it is
    /// generated. A stream format has the next use of each block, so the whole trace is generated
    /// first.
    fn write(
        &self,
        request: &mut Request,
        target: &Export,
        to_stdout: bool,
        ui: &Ui,
    ) -> hither_trace::Result<String> {
        let path = &self.output;
        if !target.is_stream() {
            return match request {
                Request::Patterns(workload, references) => {
                    let bar = ui.bar("generating", *references);
                    let progress = |done| bar.set_position(done);
                    workload.write(*references, path, self.force, progress)?;
                    bar.finish_and_clear();
                    Ok(counted(*references, "reference"))
                }
                Request::Programs(mix) => {
                    let bar = ui.bar("running", PROGRESS_STEPS);
                    let progress = |done| bar.set_position((done * PROGRESS_STEPS as f64) as u64);
                    let rows = mix.write(path, self.force, progress)?;
                    bar.finish_and_clear();
                    Ok(counted(rows, "row"))
                }
            };
        }
        let trace = self.trace(request, ui)?;
        let references = trace.references() as u64;
        let bar = ui.bar("writing", references);
        let progress = |done| bar.set_position(done);
        if to_stdout {
            target.write_stream(&trace, io::stdout().lock(), progress)?;
        } else {
            target.write(&trace, path, self.force, progress)?;
        }
        bar.finish_and_clear();
        Ok(counted(references, "reference"))
    }

    /// Generates the whole trace.
    fn trace(&self, request: &mut Request, ui: &Ui) -> hither_trace::Result<Trace> {
        let (what, steps) = match request {
            Request::Patterns(_, references) => ("generating", *references),
            Request::Programs(_) => ("running", PROGRESS_STEPS),
        };
        let bar = ui.bar(what, steps);
        let progress = |done| bar.set_position((done * steps as f64) as u64);
        request.trace(&self.output, half_of_free_bytes(), progress)
    }
}
