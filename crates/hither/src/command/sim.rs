//! `hither sim`: what caches of given policies and sizes would make of a trace.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use hither_trace::Trace;
use serde_json::json;

use super::Subcommand;
use super::options::{Caches, Learnt, Loading, Sampling};
use crate::curve::{self, Curves};
use crate::format::{bytes, counted, percent};
use crate::simulate::{self, about, hit_ratios};
use crate::ui::{self, Ui};

/// Simulate caches of given policies and sizes on a trace
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    hither sim trace.hither                                        lru, arc and opt at five sizes\n  \
    hither sim trace.hither --policy lru,pcc,opt --size 64MiB,10%  these caches\n  \
    hither sim trace.hither -p 'pcc{other=arc,sample=5}' --json    with parameters, for programs\n  \
    hither sim --format lirs cs.trace.gz --size 100,200,400        a trace of bare block numbers\n  \
    hither sim second.hither -p pcc --sites program.sites.json     with what an earlier run has learnt\n  \
    hither sim trace.hither --curve mrc.svg --curve mrc.csv        miss-ratio curves, drawn and as data\n  \
    hither sim huge.zst -p s3-fifo -s 1% --sample 100000           an estimate from 100,000 blocks, with its error")]
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

impl Subcommand for Sim {
    const NAME: &'static str = "sim";

    fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        let policies = self.caches.policies("lru,arc,opt");
        self.curves.check()?;
        let trace = self
            .loading
            .sample(&self.trace, self.sampling.sample(), ui)?;
        if self.curves.wanted() {
            curve::write(&trace, &policies, &self.curves, ui)?;
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
