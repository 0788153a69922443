//! `hither sim`: what caches of given policies and sizes would make of a trace.

use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

use clap::Args;
use hither_analysis::format::{bytes, counted, percent};
use hither_analysis::objects;
use hither_analysis::simulate::{self, hit_ratios, trace_summary};
use hither_analysis::stacks;
use hither_core::{Spec, registry};
use hither_sim::{CacheConfiguration, Size};
use hither_trace::Trace;
use serde_json::json;

use super::options::curves::CurveArgs;
use super::options::heading::{CACHES, OUTPUT, READING};
use super::options::{CacheArgs, LoadArgs, ProfileArgs, SampleArgs};
use super::subcommand::Subcommand;
use crate::exit::Usage;
use crate::ui::{self, Ui};

const EXAMPLES: &str = "\
Examples:
  hither sim trace.hither                       lru, arc and opt at five sizes
  hither sim trace.hither -p lru,pcc,opt -s 64MiB,10%
  hither sim trace.hither --curve mrc.svg       a miss-ratio curve
  hither place trace.hither --nodes mesh:5x5    which data on which node";

const LONG_HELP: &str = "\
Examples:
  hither sim trace.hither
      lru, arc and opt at five sizes
  hither sim trace.hither --policy lru,pcc,opt --size 64MiB,10%
      these caches
  hither sim trace.hither -p 'pcc{other=arc,sample=5}' --json
      with parameters; the results as JSON
  hither sim trace.hither -p lru,pcc --readahead kernel
      also how often the disk is asked, with the kernel's readahead
  hither sim trace.hither -p lru -s 64MiB --folded > misses.folded
      which call stacks miss, for flame graph tools
  hither sim --format lirs cs.trace.gz --size 100,200,400
      a trace of block numbers
  hither sim --columns key=3,time=1,op=2 --no-header cdn.csv
      delimited text of any columns
  hither sim cdn.oracleGeneral.zst -p lru,sieve,s3-fifo -s 10GiB
      objects of every size, in caches of bytes
  hither sim cdn.oracleGeneral.zst --objects --bounds -s 1%,10%
      also what the best cache would hit
  hither sim second.hither -p pcc --profile program.profile
      with what an earlier run has learnt
  hither sim trace.hither --curve mrc.svg --curve mrc.csv
      miss-ratio curves, drawn and as data
  hither sim huge.zst -p s3-fifo -s 1% --sample 100000
      an estimate from 100,000 blocks, with its error";

/// How far Linux reads ahead.
#[derive(Clone, Copy, Debug)]
enum Readahead {
    /// As far as it did where the trace was recorded.
    Kernel,
    /// Windows of up to so many bytes.
    Window(u64),
}

impl FromStr for Readahead {
    type Err = String;

    fn from_str(text: &str) -> Result<Readahead, String> {
        match text {
            "kernel" => Ok(Readahead::Kernel),
            _ => match text.parse() {
                Ok(Size::Bytes(bytes)) if bytes > 0 => Ok(Readahead::Window(bytes)),
                _ => Err("`kernel`, or a size with its unit, such as 512KiB".to_owned()),
            },
        }
    }
}

/// Simulate caches of given policies and sizes on a trace
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, after_long_help = LONG_HELP)]
pub(super) struct Sim {
    /// The trace: a folder of `hither record`, or a file in another format
    trace: PathBuf,

    #[command(flatten, next_help_heading = CACHES)]
    caches: CacheArgs,

    #[command(flatten, next_help_heading = CACHES)]
    profile: ProfileArgs,

    /// Simulate readahead as well, and count the requests to the disk
    ///
    /// `kernel`: windows of up to what the disk had where the trace was recorded, or 128 KiB. A
    /// size, such as 512KiB: windows of up to that. Hit ratios stay as they are: a block that was
    /// read ahead is a miss that need not wait.
    #[arg(
        long,
        value_name = "kernel|SIZE",
        conflicts_with_all = ["folded", "sample"],
        help_heading = CACHES
    )]
    readahead: Option<Readahead>,

    /// A cache has so many bytes, and objects have the sizes of the trace
    ///
    /// Percentages are then of all bytes. Sizes in bytes (10GiB) mean it, too. Hit ratios are by
    /// object and by byte; objects expire and are deleted as the trace says.
    #[arg(long, help_heading = CACHES)]
    objects: bool,

    /// With sizes of objects, also what the best cache would hit: at most and at least
    ///
    /// No cache exceeds the first one, and one that knows the future reaches the second one. They
    /// take 56 bytes a reference, and all references.
    #[arg(long, conflicts_with = "sample", help_heading = CACHES, hide_short_help = true)]
    bounds: bool,

    #[command(flatten, next_help_heading = READING)]
    loading: LoadArgs,

    #[command(flatten, next_help_heading = READING)]
    sampling: SampleArgs,

    #[command(flatten, next_help_heading = "Miss-ratio curves")]
    curves: CurveArgs,

    /// Print the call stacks, folded, with the misses of one policy at one size: for flame graph
    /// tools
    ///
    /// It takes `--policy` and `--size` with one value each.
    #[arg(
        long,
        conflicts_with_all = ["json", "sample", "files"],
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
    /// Simulates caches of bytes, on a trace whose objects have sizes.
    fn run_objects(&self, trace: &Trace, ui: &Ui) -> anyhow::Result<ExitCode> {
        let of_blocks = [
            ("--readahead", self.readahead.is_some()),
            ("--folded", self.folded),
            ("--profile", self.profile.path.is_some()),
        ];
        if let Some((option, _)) = of_blocks.iter().find(|(_, is_given)| *is_given) {
            let problem = format!(
                "{option} is for blocks, and a size in bytes means objects of every size here"
            );
            return Err(Usage(problem).into());
        }
        let takes_sizes = |spec: &Spec| spec.entry().takes_sizes;
        let policies = self.caches.policies(|| {
            let everywhere = registry::compared_everywhere();
            everywhere.into_iter().filter(takes_sizes).collect()
        });
        let sizes = objects::sizes(
            self.caches.sizes_as_written(),
            trace.distinct_bytes_of_all(),
        )?;
        let bounds = if self.bounds {
            objects::bounds(trace, &sizes, ui)?
        } else {
            Vec::new()
        };
        let caches = objects::simulate(trace, &policies, sizes.clone(), ui)?;
        if self.json {
            let results = caches.documents()?;
            let mut document = json!({ "trace": trace_summary(trace), "results": results });
            if self.bounds {
                document["bounds"] = serde_json::to_value(&bounds)?;
            }
            ui::print_json(&document)?;
            return Ok(ExitCode::SUCCESS);
        }
        let bounds = match &bounds[..] {
            [] => String::new(),
            bounds => format!("\n{}", objects::bounds_table(&sizes, bounds)),
        };
        let about = match trace.sampled() {
            Some(_) => "about ",
            None => "",
        };
        let deletes = match trace.deletes_of_all() {
            0 => String::new(),
            deletes => format!(" and {}", counted(deletes, "delete")),
        };
        ui::print(&format!(
            "{}{deletes} to {about}{} of {}\n{}{}{bounds}",
            counted(
                trace.references_of_all() - trace.deletes_of_all(),
                "reference"
            ),
            counted(trace.blocks_of_all(), "distinct object"),
            bytes(trace.distinct_bytes_of_all()),
            simulated_part(trace),
            caches.text(),
        ))?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Subcommand for Sim {
    const NAME: &'static str = "sim";

    fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        let policies = self.caches.policies(registry::compared_everywhere);
        self.curves.check()?;
        let (_, mut options) = self.loading.options(self.sampling.sample());
        options.keep_lengths = self.readahead.is_some();
        let named = self.caches.sizes_as_written();
        options.keep_sizes = self.objects || self.bounds || simulate::are_of_bytes(named);
        let trace = self.loading.load_with(&self.trace, &options, ui)?;
        if self.curves.wanted() {
            self.curves.write(&trace, &policies, ui)?;
            if !(self.caches.names_sizes() || self.json || self.readahead.is_some()) {
                return Ok(ExitCode::SUCCESS);
            }
        }
        if trace.has_sizes() {
            return self.run_objects(&trace, ui);
        }
        if (self.objects || self.bounds) && trace.references() > 0 {
            let problem = "--objects and --bounds are for traces that say how large each object is";
            return Err(Usage(problem.to_owned()).into());
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
        let readahead = self.readahead.map(|readahead| match readahead {
            Readahead::Kernel => simulate::readahead_window(&trace),
            Readahead::Window(bytes) => simulate::readahead_blocks(&trace, bytes),
        });
        let caches =
            simulate::simulate_with_profile(&trace, &policies, sizes, sites, readahead, ui)?;
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
            "{} to {}{} of {}\n{}{}{}{}",
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
            simulate::reads(&caches, block_bytes),
            simulate::refusals(&caches)
        );
        ui::print(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}
