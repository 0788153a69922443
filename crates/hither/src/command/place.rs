//! `hither place`: what placements on the nodes of a machine or a cluster would make of a trace.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use hither_analysis::format::{bytes, count, counted};
use hither_analysis::placement::{self, CaseResult, PlacementRequest, RunControl};
use hither_analysis::simulate::{refuse_bytes, trace_summary};
use hither_core::registry;
use hither_sim::References;
use serde_json::json;

use super::options::heading::{CACHES, NODES, OUTPUT, READING};
use super::options::placement::{DrawingArgs, PlacementArgs};
use super::options::{CacheArgs, LoadArgs};
use super::subcommand::Subcommand;
use crate::exit::Usage;
use crate::ui::{self, Ui};

const EXAMPLES: &str = "\
Examples:
  hither place shared.hither --nodes mesh:5x5   by the default placements
  hither place cg.hither --nodes 4,16 --placement first-touch,upm,a-priori
  hither place shared.hither --nodes 4 --heatmap who.svg --mesh moves.svg";

const LONG_HELP: &str = "\
Pages of memory lie on nodes that hold all of them. Blocks of files lie in the
caches of the nodes: --size is the size of each, and --policy what it keeps.

Examples:
  hither place shared.hither --nodes mesh:5x5
      which data on which node, by the default placements
  hither place cg.hither --nodes 4,16 --placement first-touch,upm,a-priori \\
      --warm-up 1iterations
  hither place shared.hither --nodes mesh:5x5 -s 2MiB \\
      --placement one-step,post-office --heatmap who.svg --mesh moves.svg
  hither place grep.hither --nodes 4 --placement dual-layer -p arc \\
      --bind threads --timeline over-time.svg --traffic";

/// Simulate placements of pages or file blocks on several nodes
#[derive(Args, Debug)]
#[command(
    after_help = EXAMPLES,
    after_long_help = LONG_HELP,
    mut_arg("nodes", |nodes| nodes.required(true))
)]
pub(super) struct Place {
    /// The trace: a folder of `hither record`, or a file in another format
    trace: PathBuf,

    #[command(flatten, next_help_heading = NODES)]
    placing: PlacementArgs,

    #[command(flatten, next_help_heading = CACHES)]
    caches: CacheArgs,

    #[command(flatten, next_help_heading = READING)]
    loading: LoadArgs,

    #[command(flatten, next_help_heading = OUTPUT)]
    drawing: DrawingArgs,

    /// Print one JSON document
    #[arg(long, help_heading = OUTPUT)]
    json: bool,
}

impl Subcommand for Place {
    const NAME: &'static str = "place";

    fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        self.drawing.check()?;
        let nodes = self.placing.topologies()?;
        let trace = self.loading.load(&self.trace, ui)?;
        refuse_bytes(self.caches.sizes_as_written(), &trace)?;
        let defaults = placement::default_placements(placement::data_kind(&trace));
        let placements = placement::placements_or_default(&self.placing.placements(), &defaults)?;
        placement::check_kind(&trace, &placements)?;
        let request = PlacementRequest {
            nodes,
            placements,
            sizes: self.caches.sizes_as_written().to_vec(),
            policies: self.caches.policies(|| vec![registry::baseline()]),
            reclaims: self.placing.running().costs.reclaims(),
        };
        let block_bytes = u64::from(trace.options().block_bytes);
        if trace.references() == 0 {
            if self.drawing.wanted() {
                let path = self.trace.display();
                let problem = format!("{path} has no references: there is nothing to draw");
                return Err(Usage(problem).into());
            }
            if self.json {
                ui::print_json(&json!({ "trace": trace_summary(&trace), "results": [] }))?
            } else {
                ui::print(&format!("{} has no references\n", self.trace.display()))?
            }
            return Ok(ExitCode::SUCCESS);
        }
        let cases = placement::cases(&request, block_bytes, trace.blocks_of_all())?;
        let running = self.placing.running();
        let bar = ui.bar("simulating", trace.references() as u64 * cases.len() as u64);
        let progress = |done| bar.set_position(done);
        let control = RunControl {
            progress: Some(&progress),
            cancel: None,
        };
        let results = placement::run(&trace, cases, &running, self.drawing.moves(), control)?;
        bar.finish_and_clear();
        let pictures = placement::Pictures::of(&trace, &results, &running);
        self.drawing.write(&pictures, ui)?;
        if self.json {
            let results = results.iter();
            let results: Vec<serde_json::Value> = results
                .map(|result| placement::document(result, &running, &trace))
                .collect();
            ui::print_json_text(&placement::pretty(
                &json!({ "trace": trace_summary(&trace), "results": results }),
            ))?;
            return Ok(ExitCode::SUCCESS);
        }
        let binding = running.binding.resolved(References::nodes(&trace));
        let mut text = format!(
            "{} to {} of {}{}\n{}",
            counted(trace.references_of_all(), "reference"),
            counted(trace.blocks_of_all(), "distinct block"),
            bytes(block_bytes),
            match running.warm_up.end(&trace) {
                0 => String::new(),
                references => format!(", the first {} not counted", count(references)),
            },
            placement::table(
                results.iter().map(CaseResult::summary),
                binding,
                block_bytes
            )
        );
        if self.drawing.traffic {
            text += &placement::traffic(&results);
        }
        ui::print(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}
