//! `hither sim`: what caches of given policies and sizes would make of a trace, or placements on
//! the nodes of a machine or a cluster.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use hither_core::registry;
use hither_sim::References;
use hither_trace::Trace;
use serde_json::json;

use super::Subcommand;
use super::options::curves::Curves;
use super::options::placement::{Drawing, Placing};
use super::options::{Caches, Learnt, Loading, Sampling};
use crate::exit::Usage;
use crate::format::{bytes, count, counted, percent};
use crate::place::{self, Request, Watch};
use crate::simulate::{self, about, hit_ratios};
use crate::ui::{self, Ui};

/// Simulate caches of given policies and sizes on a trace, or placements on nodes
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    hither sim trace.hither                                        lru, arc and opt at five sizes\n  \
    hither sim trace.hither --policy lru,pcc,opt --size 64MiB,10%  these caches\n  \
    hither sim trace.hither -p 'pcc{other=arc,sample=5}' --json    with parameters, for programs\n  \
    hither sim --format lirs cs.trace.gz --size 100,200,400        a trace of bare block numbers\n  \
    hither sim second.hither -p pcc --sites program.sites.json     with what an earlier run has learnt\n  \
    hither sim trace.hither --curve mrc.svg --curve mrc.csv        miss-ratio curves, drawn and as data\n  \
    hither sim huge.zst -p s3-fifo -s 1% --sample 100000           an estimate from 100,000 blocks, with its error\n\n  \
    hither sim shared.hither --nodes mesh:5x5                      which node should hold what: the usual placements\n  \
    hither sim cg.hither --nodes 4,16 --placement first-touch,upm,a-priori --warm-up 1iterations\n  \
    hither sim shared.hither --nodes mesh:5x5 --placement one-step,post-office -s 2MiB --heatmap who.svg --mesh moves.svg\n  \
    hither sim grep.hither --nodes 4 --placement dual-layer -p arc --bind threads --timeline over-time.svg --traffic")]
pub(super) struct Sim {
    /// The trace: a folder that `hither record` wrote, or a file in another format
    trace: PathBuf,

    #[command(flatten)]
    caches: Caches,

    #[command(flatten)]
    learnt: Learnt,

    #[command(flatten)]
    loading: Loading,

    #[command(flatten)]
    sampling: Sampling,

    #[command(flatten)]
    curves: Curves,

    #[command(flatten)]
    placing: Placing,

    #[command(flatten)]
    drawing: Drawing,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// A line on what of the trace was simulated, where that is not all.
fn simulated_part(trace: &Trace) -> String {
    trace.sampled().map_or_else(String::new, |sampled| {
        format!(
            "estimated from a sample of {} ({}) to {}, ± one standard error\n",
            counted(trace.references() as u64, "reference"),
            percent(trace.references() as f64 / sampled.references.max(1) as f64),
            counted(trace.blocks() as u64, "block"),
        )
    })
}

impl Sim {
    /// What placements on nodes would make of the trace.
    fn place(&self, ui: &Ui) -> anyhow::Result<ExitCode> {
        if self.learnt.sites.is_some() || self.curves.wanted() {
            let problem = "--curve and --sites are for one cache; with --nodes, --timeline and --heatmap draw";
            return Err(Usage(problem.to_owned()).into());
        }
        let nodes = self.placing.topologies()?;
        let trace = self
            .loading
            .sample(&self.trace, self.sampling.sample(), ui)?;
        let usual = place::usual(place::kind(&trace));
        let placements = place::named_or(&self.placing.placements(), &usual)?;
        place::check_kind(&trace, &placements)?;
        let request = Request {
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
            match self.json {
                true => ui::print_json(&json!({ "trace": about(&trace), "results": [] }))?,
                false => ui::print(&format!("{} has no references\n", self.trace.display()))?,
            }
            return Ok(ExitCode::SUCCESS);
        }
        let cases = place::cases(&request, block_bytes, trace.blocks_of_all())?;
        let running = self.placing.running();
        let bar = ui.bar("simulating", trace.references() as u64 * cases.len() as u64);
        let progress = |done| bar.set_position(done);
        let watch = Watch {
            progress: Some(&progress),
            cancel: None,
        };
        let outcomes = place::run(&trace, &cases, &running, self.drawing.moves(), watch)?;
        bar.finish_and_clear();
        let pictures = place::Pictures::of(&trace, &cases, &outcomes, &running);
        self.drawing.write(&pictures, ui)?;
        if self.json {
            let results = cases.iter().zip(&outcomes);
            let results =
                results.map(|(case, outcome)| place::document(case, outcome, &running, &trace));
            let results: Vec<serde_json::Value> = results.collect();
            ui::print(&place::pretty(
                &json!({ "trace": about(&trace), "results": results }),
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
            place::table(&place::lines(&cases, &outcomes), binding, block_bytes)
        );
        if self.drawing.traffic {
            text += &place::traffic(&cases, &outcomes);
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
            .sample(&self.trace, self.sampling.sample(), ui)?;
        if self.curves.wanted() {
            self.curves.write(&trace, &policies, ui)?;
            return Ok(ExitCode::SUCCESS);
        }
        let sizes = self.caches.sizes(&trace)?;
        let sites = self.learnt.sites.as_deref();
        let outcomes = simulate::run(&trace, &policies, &sizes, sites, ui)?;
        if self.json {
            ui::print_json(&json!({ "trace": about(&trace), "results": outcomes }))?;
            return Ok(ExitCode::SUCCESS);
        }
        if trace.references() == 0 {
            ui::print(&format!("{} has no references\n", self.trace.display()))?;
            return Ok(ExitCode::SUCCESS);
        }
        let block_bytes = u64::from(trace.options().block_bytes);
        let text = format!(
            "{} to {}{} of {}\n{}{}",
            counted(trace.references_of_all(), "reference"),
            if trace.sampled().is_some() {
                "about "
            } else {
                ""
            },
            counted(trace.blocks_of_all(), "distinct block"),
            bytes(block_bytes),
            simulated_part(&trace),
            hit_ratios(&policies, &sizes, &outcomes, block_bytes)
        );
        ui::print(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}
