//! `hither gen`: made-up traces.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::anyhow;
use clap::Args;
use hither_core::spec::parse_count;
use hither_trace::generate::{GENERATORS, SHARED, Spec, Workload};
use hither_trace::{Export, LoadOptions};

use super::Subcommand;
use super::export::{goes_to_stdout, named, target_name};
use super::policies::params;
use super::record::{OUTPUT, hint};
use crate::format::counted;
use crate::interrupt;
use crate::memory::half_of_free_bytes;
use crate::ui::Ui;

/// Make up a trace: zipf, scans, loops, shifting working sets, alone or mixed
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, after_long_help = help())]
pub(super) struct Gen {
    /// What to generate, such as loop or 'zipf{blocks=1M,skew=0.9}'; several take turns
    #[arg(value_name = "GENERATOR", required = true)]
    parts: Vec<Spec>,

    /// How many references, such as 500 or 10M
    #[arg(long, short = 'n', value_name = "N", default_value = "1M", value_parser = references)]
    references: u64,

    /// The same seed gives the same bytes
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,

    /// Format to write; `hither export --help` lists them
    #[arg(long, value_name = "NAME", default_value = "hither", value_parser = target_name)]
    format: String,

    /// The trace folder or file to write; - is standard output, for formats other than hither
    #[arg(long, short, value_name = "PATH", default_value = OUTPUT)]
    output: PathBuf,

    /// Replace what is there already
    #[arg(long)]
    force: bool,
}

const EXAMPLES: &str = "Examples:\n  \
    hither gen 'zipf{blocks=1M,skew=1.0}' -n 10M -o zipf.hither\n  \
    hither gen scan 'loop{burst=100}' --format oracle-general -o mixed.bin  for libCacheSim too\n  \
    hither gen 'loop{blocks=2000}' 'scan{weight=0.5}' -n 100k --seed 7   mixed 2 to 1\n  \
    hither gen 'nested{outer=500,inner=100}' 'zipf{weight=3,writes=0.2,burst=64}'";

/// The examples and the registry.
fn help() -> String {
    let mut text = "Generators:\n".to_owned();
    for entry in GENERATORS {
        text += &format!("  {}: {}\n", entry.name, entry.summary);
        text += &params(&entry.params[..entry.params.len() - SHARED.len()]);
    }
    text += "  All of them:\n";
    text += &params(SHARED);
    text += "\nEach part of a mixture is a process with one thread, files and call sites of its own, named for the \
             generator.\n\n";
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
        if !to_stdout {
            interrupt::leaves_nothing_of(&self.output)?;
        }
        self.write(target, to_stdout, ui)
            .map_err(|error| match hint(&error) {
                "" => named(error),
                hint => anyhow!("{error}{hint}"),
            })?;
        ui.note(format_args!(
            "{} in {}",
            counted(self.references, "reference"),
            self.output.display()
        ));
        Ok(ExitCode::SUCCESS)
    }
}

impl Gen {
    /// A trace folder is written as it comes. A stream says when each block comes next, so the whole trace is made first.
    fn write(&self, target: &Export, to_stdout: bool, ui: &Ui) -> hither_trace::Result<()> {
        let (references, path) = (self.references, &self.output);
        let mut workload = Workload::new(&self.parts, self.seed);
        let bar = ui.bar("generating", references);
        let progress = |done| bar.set_position(done);
        if !target.is_stream() {
            return workload.write(references, path, self.force, progress);
        }
        let options = LoadOptions {
            keep_repeats: true,
            memory_bytes: half_of_free_bytes(),
            ..LoadOptions::default()
        };
        let trace = workload.trace(references, path, &options, progress)?;
        let bar = ui.bar("writing", references);
        if to_stdout {
            return target.write_stream(&trace, io::stdout().lock(), |done| bar.set_position(done));
        }
        target.write(&trace, path, self.force, |done| bar.set_position(done))
    }
}
