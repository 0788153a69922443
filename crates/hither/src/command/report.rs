//! `hither report`: one HTML page about a trace, or about two side by side.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use hither_analysis::placement::pretty;
use hither_analysis::report::{Report, ReportRequest};

use super::options::heading::{CACHES, NODES, OUTPUT, READING};
use super::options::placement::PlacementArgs;
use super::options::{CacheArgs, LoadArgs};
use super::subcommand::Subcommand;
use crate::exit::Usage;
use crate::output;
use crate::ui::{self, Ui};
use hither_core::registry::compared_in_advice;
use hither_live::page_cache::expected_reads;

const EXAMPLES: &str = "\
Examples:
  hither report build.hither -o build.html       open it in a browser
  hither report before.hither after.hither -o compared.html
                                                 two runs side by side
  hither report db.hither -p lru,pcc,opt -s 64MiB,1GiB -o db.html
                                                 these caches
  hither report cfd.hither --nodes 4 -o cfd.html which data on which node
  hither report build.hither --json | jq .runs[0].advice
                                                 the data of the page";

/// Write an HTML page about a trace: verdict, curves, sites, files
///
/// It loads nothing from elsewhere. With two traces it compares them.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct ReportCommand {
    /// The trace, and one to compare it with
    ///
    /// Each is a folder of `hither record`, or a file in another format.
    #[arg(required = true, num_args = 1..=2, value_name = "TRACE")]
    traces: Vec<PathBuf>,

    /// The page to write; an existing file is replaced
    #[arg(
        long,
        short,
        value_name = "FILE",
        required_unless_present = "json",
        help_heading = OUTPUT
    )]
    output: Option<PathBuf>,

    #[command(flatten, next_help_heading = CACHES)]
    caches: CacheArgs,

    /// Cache sizes of a policy's curve, besides those of --size [default: 16]
    ///
    /// For more than four million references the default is lower, down to 6. lru and opt are exact
    /// at any size and have 200.
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u16).range(2..=200),
        help_heading = CACHES,
        hide_short_help = true
    )]
    points: Option<u16>,

    #[command(flatten, next_help_heading = READING)]
    loading: LoadArgs,

    #[command(flatten, next_help_heading = NODES)]
    placing: PlacementArgs,

    /// Print the page's data as one JSON document
    #[arg(long, help_heading = OUTPUT)]
    json: bool,
}

impl Subcommand for ReportCommand {
    const NAME: &'static str = "report";

    fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        self.placing.check()?;
        if let Some(output) = &self.output {
            output::check_folder(output)?;
            // The page must not replace its own trace.
            if self.traces.contains(output) {
                let problem = format!("{}: is the trace itself", output.display());
                return Err(Usage(problem).into());
            }
        }
        let request = ReportRequest {
            policies: self.caches.policies(compared_in_advice),
            own_policies: self.caches.names_policies(),
            sizes: self.caches.sizes_as_written().to_vec(),
            points: self.points.map(usize::from),
            placing: self.placing.chosen()?,
            run_model: expected_reads,
        };
        let load = |path: &PathBuf| self.loading.load(path, ui);
        let report = Report::of_traces(&self.traces, load, &request, ui)?;
        if let Some(output) = &self.output {
            output::write_private_interruptibly(output, report.page()?.as_bytes())?;
            ui.note(format_args!("wrote {}", output.display()));
        }
        if self.json {
            ui::print_json_text(&pretty(&report.document()?))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
