//! `hither sim`: what caches of given policies and sizes would make of a trace, or placements on
//! the nodes of a machine or a cluster.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use hither_analysis::format::{bytes, count, counted, percent};
use hither_analysis::placement::{self, PlacementRequest, RunControl};
use hither_analysis::simulate::{self, hit_ratios, trace_summary};
use hither_analysis::stacks;
use hither_core::registry;
use hither_sim::{CacheConfiguration, References};
use hither_trace::Trace;
use serde_json::json;

use super::options::curves::CurveArgs;
use super::options::heading::{CACHES, NODES, OUTPUT, READING};
use super::options::placement::{DrawingArgs, PlacementArgs};
use super::options::{CacheArgs, LoadArgs, ProfileArgs, SampleArgs};
use super::subcommand::Subcommand;
use crate::exit::Usage;
use crate::ui::{self, Ui};

const EXAMPLES: &str = "\
Examples:
  hither sim trace.hither                       lru, arc and opt at five sizes
  hither sim trace.hither -p lru,pcc,opt -s 64MiB,10%
  hither sim trace.hither --curve mrc.svg       a miss-ratio curve
  hither sim shared.hither --nodes mesh:5x5     which data on which node";

const LONG_HELP: &str = "\
Examples of caches:
  hither sim trace.hither
      lru, arc and opt at five sizes
  hither sim trace.hither --policy lru,pcc,opt --size 64MiB,10%
      these caches
  hither sim trace.hither -p 'pcc{other=arc,sample=5}' --json
      with parameters; the results as JSON
  hither sim trace.hither -p lru -s 64MiB --folded > misses.folded
      which call stacks miss, for flame graph tools
  hither sim --format lirs cs.trace.gz --size 100,200,400
      a trace of block numbers
  hither sim second.hither -p pcc --profile program.profile
      with what an earlier run has learnt
  hither sim trace.hither --curve mrc.svg --curve mrc.csv
      miss-ratio curves, drawn and as data
  hither sim huge.zst -p s3-fifo -s 1% --sample 100000
      an estimate from 100,000 blocks, with its error

Examples of nodes:
  hither sim shared.hither --nodes mesh:5x5
      which data on which node, by the default placements
  hither sim cg.hither --nodes 4,16 --placement first-touch,upm,a-priori \\
      --warm-up 1iterations
  hither sim shared.hither --nodes mesh:5x5 -s 2MiB \\
      --placement one-step,post-office --heatmap who.svg --mesh moves.svg
  hither sim grep.hither --nodes 4 --placement dual-layer -p arc \\
      --bind threads --timeline over-time.svg --traffic";

/// Simulate caches of given policies and sizes on a trace, or placements on nodes
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, after_long_help = LONG_HELP)]
pub(super) struct Sim {
    /// The trace: a folder of `hither record`, or a file in another format
    trace: PathBuf,

    #[command(flatten, next_help_heading = CACHES)]
    caches: CacheArgs,

    #[command(flatten, next_help_heading = CACHES)]
    profile: ProfileArgs,

    #[command(flatten, next_help_heading = READING)]
    loading: LoadArgs,

    #[command(flatten, next_help_heading = READING)]
    sampling: SampleArgs,

    #[command(flatten, next_help_heading = "Miss-ratio curves")]
    curves: CurveArgs,

    #[command(flatten, next_help_heading = NODES)]
    placing: PlacementArgs,

    #[command(flatten, next_help_heading = NODES)]
    drawing: DrawingArgs,

    /// Print the call stacks, folded, with the misses of one policy at one size: for flame graph
    /// tools
    ///
    /// It takes `--policy` and `--size` with one value each.
    #[arg(
        long,
        conflicts_with_all = ["json", "sample", "files", "nodes"],
        help_heading = OUTPUT
    )]
    folded: bool,

    /// Print one JSON document
    #[arg(long, help_heading = OUTPUT)]
    json: bool,
}

/// A line on what of the trace was simulated, where that is not all.
fn simulated_part(trace: &Trace) -> String {
    trace.sampled().map_or_else(String::new, |sampled| {
        format!(
            "estimated from a sample of {} ({}) to {}, with 95 % intervals\n",
            counted(trace.references() as u64, "reference"),
            percent(trace.references() as f64 / sampled.references.max(1) as f64),
            counted(trace.blocks() as u64, "block"),
        )
    })
}

impl Sim {
    /// What placements on nodes would make of the trace.
    fn place(&self, ui: &Ui) -> anyhow::Result<ExitCode> {
        if self.profile.path.is_some() || self.curves.wanted() {
            let problem = "--curve and --profile are for one cache; \
                           with --nodes, --timeline and --heatmap draw";
            return Err(Usage(problem.to_owned()).into());
        }
        let nodes = self.placing.topologies()?;
        let trace = self
            .loading
            .load_sample(&self.trace, self.sampling.sample(), ui)?;
        let defaults = placement::default_placements(placement::data_kind(&trace));
        let placements = placement::placements_or_default(&self.placing.placements(), &defaults)?;
        placement::check_kind(&trace, &placements)?;
        let request = PlacementRequest {
            nodes,
            placements,
            sizes: self.caches.sizes_as_written().to_vec(),
            policies: self.caches.policies(|| vec![registry::baseline()]),
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
        let outcomes = placement::run(&trace, &cases, &running, self.drawing.moves(), control)?;
        bar.finish_and_clear();
        let pictures = placement::Pictures::of(&trace, &cases, &outcomes, &running);
        self.drawing.write(&pictures, ui)?;
        if self.json {
            let results = cases.iter().zip(&outcomes);
            let results =
                results.map(|(case, outcome)| placement::document(case, outcome, &running, &trace));
            let results: Vec<serde_json::Value> = results.collect();
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
                &placement::case_results(&cases, &outcomes),
                binding,
                block_bytes
            )
        );
        if self.drawing.traffic {
            text += &placement::traffic(&cases, &outcomes);
        }
        ui::print(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Subcommand for Sim {
    const NAME: &'static str = "sim";

    fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        let policies = self.caches.policies(registry::compared_everywhere);
        self.curves.check()?;
        self.drawing.check()?;
        self.placing.check()?;
        if self.placing.wanted() {
            return self.place(ui);
        }
        let trace = self
            .loading
            .load_sample(&self.trace, self.sampling.sample(), ui)?;
        if self.curves.wanted() {
            self.curves.write(&trace, &policies, ui)?;
            return Ok(ExitCode::SUCCESS);
        }
        let sizes = self.caches.sizes(&trace)?;
        let sites = self.profile.path.as_deref();
        if self.folded {
            let (&[spec], [size]) = (&policies[..], &sizes[..]) else {
                let problem = "--folded is for the misses of one cache: \
                               name one policy and one size (-p lru -s 64MiB)";
                return Err(Usage(problem.to_owned()).into());
            };
            let cache_blocks = size.blocks;
            let cache = CacheConfiguration { spec, cache_blocks };
            let misses = simulate::misses_by_site(&trace, cache, sites, ui)?;
            ui::print(&stacks::folded(&trace, (0..).zip(misses)))?;
            return Ok(ExitCode::SUCCESS);
        }
        let caches = simulate::simulate_with_profile(&trace, &policies, sizes, sites, ui)?;
        if self.json {
            let results = simulate::outcome_documents(caches.cells())?;
            ui::print_json(&json!({ "trace": trace_summary(&trace), "results": results }))?;
            return Ok(ExitCode::SUCCESS);
        }
        if trace.references() == 0 {
            ui::print(&format!("{} has no references\n", self.trace.display()))?;
            return Ok(ExitCode::SUCCESS);
        }
        let block_bytes = u64::from(trace.options().block_bytes);
        let text = format!(
            "{} to {}{} of {}\n{}{}{}",
            counted(trace.references_of_all(), "reference"),
            if trace.sampled().is_some() {
                "about "
            } else {
                ""
            },
            counted(trace.blocks_of_all(), "distinct block"),
            bytes(block_bytes),
            simulated_part(&trace),
            hit_ratios(&caches, block_bytes),
            simulate::refusals(&caches)
        );
        ui::print(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}
