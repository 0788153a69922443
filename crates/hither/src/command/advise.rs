//! `hither advise`: says what would help a program: another policy, more cache, or another
//! placement.

mod scratch;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use hither_analysis::advice::Recommendation;
use hither_analysis::cache_analysis::{self, CacheAnalysis, CallSite};
use hither_analysis::coverage::Coverage;
use hither_analysis::format::{bytes, count, counted, percent, printable, shortened};
use hither_analysis::placement::{self, PlacementAnalysis};
use hither_analysis::run_plan::RunPlan;
use hither_analysis::simulate::{hit_ratios, sizes_to_advise_on, trace_summary};
use hither_analysis::table::{Align, Table};
use hither_analysis::verdict::Verdict;
use hither_core::classify::Class;
use hither_core::placement::Target;
use hither_core::registry::compared_in_advice;
use hither_live::observe::Recorded;
use hither_live::page_cache::expected_reads;
use hither_trace::Trace;
use serde_json::json;

use super::options::heading::{CACHES, NODES, OUTPUT, READING, RECORDING, RUNNING};
use super::options::placement::PlacementArgs;
use super::options::recording::{self, RecordingArgs};
use super::options::running::RunningArgs;
use super::options::{CacheArgs, LoadArgs, ProfileArgs};
use super::subcommand::Subcommand;
use crate::exit;
use crate::output;
use crate::python_names;
use crate::ui::{self, Ui};

const EXAMPLES: &str = "\
Examples:
  hither advise -- make -j8                      record a program and advise
  hither advise make.hither --size 64MiB,1GiB    advise on a trace
  hither advise --save plan.toml -- ./scan data  save the settings that help
  hither run --plan plan.toml -- ./scan data     apply them";

const LONG_EXAMPLES: &str = "\
Examples:
  hither advise -- sh -c 'grep -r needle /usr/include > /dev/null'
                                                 record a program and advise
  hither advise -o make.hither -- make -j8       keep the trace too
  hither advise make.hither --size 64MiB,1GiB    advise on a trace
  hither advise --save plan.toml -- ./scan data  save the settings that help
  hither run --plan plan.toml -- ./scan data     apply them
  hither advise --unit nginx --for 5m            a service that runs already
  hither advise cg.hither --nodes 4              which data on which node
  hither advise --format lirs cs.trace.gz        a trace of block numbers
  hither advise --columns key=2,time=1 cdn.csv   delimited text of any columns";

const DETAILS: &str = "\
How sure the advice is. The trace is cut into 16 segments; those before the
cache is full do not count.
  sure    At 95 % confidence the gain is 2 points of hit ratio or more, three
          of four segments show it, and there is no doubt.
  likely  At 95 % confidence there is a gain, and more than half of the
          segments show it.
  unsure  Neither: the gain comes from a single phase, or the trace is short.
These are borders on a score, which all evidence moves without steps: a
segment that gains little counts in part, and so does a weak doubt.
Doubts, where they make a sure advice likely: a tenth of what was read was not
seen (from half on there is no verdict); the recorder lost 0.1 % of the accesses
or of the bytes that they moved; blocks are used 2.4 times on average; with a
fifth less or a quarter more cache, or with a fifth of or five times the
policy's sampling period, there is half of the gain. That nothing helps is sure
if, at 95 % confidence, the best policy gains less than 2 points, and likely if
it gains less than 4.

The exit code is the program's. It is 127 if there is no such program and 126 if
it cannot be executed.";

/// Say what would help a program: a policy, more cache, a placement
///
/// It prints whether it matters on this machine, the cheapest change that gets most of the gain,
/// and how sure that is, a line each, and then a line that says how to apply it. A policy costs no
/// memory, so it comes first, unless twice the cache gains more than three times as much. Of
/// policies that gain nearly as much as the best, it takes the one that needs to know least.
///
/// With one --size, the advice is about a cache of that size. Without --size, five shares of the
/// data are simulated, and a policy is advised at the size at which it gains most. For a recorded
/// program only sizes from 8 MiB on count, which `hither run` can steer; if its files did not fit
/// into the memory that it had, the advice is about a cache of that memory.
#[derive(Args, Debug)]
#[command(
    after_help = EXAMPLES,
    // Here it is that of --policy.
    mut_arg("pids", |pids| pids.short(None).hide_short_help(true)),
    mut_arg("unit", |unit| unit.hide_short_help(true)),
    mut_arg("all", |all| all.hide_short_help(true)),
    after_long_help = format!("{DETAILS}\n\n{LONG_EXAMPLES}")
)]
pub(super) struct Advise {
    /// The trace to advise on
    #[arg(
        required_unless_present_any = ["command", "running"],
        conflicts_with_all = ["command", "running"]
    )]
    trace: Option<PathBuf>,

    /// The program to record, with its arguments
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,

    #[command(flatten, next_help_heading = RUNNING)]
    running: RunningArgs,

    #[command(flatten, next_help_heading = CACHES)]
    caches: CacheArgs,

    #[command(flatten, next_help_heading = CACHES)]
    profile: ProfileArgs,

    #[command(flatten, next_help_heading = READING)]
    loading: LoadArgs,

    #[command(flatten, next_help_heading = NODES)]
    placing: PlacementArgs,

    #[command(flatten, next_help_heading = RECORDING)]
    recording: RecordingArgs,

    /// Print why, with tables of hit ratios and call sites
    ///
    /// ROWS is how many call sites there are in their table: 10 if it is not given.
    #[arg(
        long,
        value_name = "ROWS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "10",
        help_heading = OUTPUT
    )]
    explain: Option<usize>,

    /// Write the settings for `hither run --plan` to FILE
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    save: Option<PathBuf>,

    /// Print one JSON document
    #[arg(long, help_heading = OUTPUT)]
    json: bool,
}

impl Subcommand for Advise {
    const NAME: &'static str = "advise";

    fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        self.placing.check()?;
        if let Some(path) = &self.save {
            output::check_folder(path)?;
        }
        let Some(trace) = &self.trace else {
            // The folder is removed at the end of this function, even if advising fails.
            let temporary = scratch::Scratch::create(ui)?;
            let kept = self.recording.output.clone();
            let folder = kept.unwrap_or_else(|| temporary.trace());
            if let Some(scope) = self.running.scope()? {
                let frames_max = hither_live::SessionOptions::default().frames_max;
                let recorded =
                    self.running
                        .record(scope, &folder, &self.recording, frames_max, ui)?;
                if let Some(recorded) = recorded {
                    self.say_recorded(&recorded, ui);
                }
                self.advise(&folder, ui)?;
                return Ok(ExitCode::SUCCESS);
            }
            let recorded = recording::record(
                &self.command,
                &folder,
                &self.recording,
                recording::session(),
                ui,
            )?;
            if !self.json {
                // The last line of the program's output may have no end.
                ui::print("\n")?;
            }
            self.say_recorded(&recorded, ui);
            self.advise(&folder, ui)?;
            return Ok(exit::code_of(recorded.exit));
        };
        self.advise(trace, ui)?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Advise {
    /// Says what a recording lacks. Only an explanation says what it holds.
    fn say_recorded(&self, recorded: &Recorded, ui: &Ui) {
        recording::warn_of_cut(recorded);
        if self.explain.is_some() {
            recording::report_contents(recorded, ui);
        }
    }

    fn advise(&self, path: &Path, ui: &Ui) -> anyhow::Result<()> {
        let trace = self.loading.load(path, ui)?;
        let placing = self.placing.chosen()?;
        let placed =
            PlacementAnalysis::of(&trace, &placing, self.caches.sizes_as_written(), 0, ui)?;
        if placement::data_kind(&trace) == Some(Target::Memory) {
            self.save(placed.plan(), placed.sentences().cloned(), ui)?;
            return self.advise_on_memory(&trace, &placed);
        }
        let policies = if self.caches.names_policies() {
            self.caches.policies(compared_in_advice)
        } else {
            cache_analysis::supported_policies(self.caches.policies(compared_in_advice), &trace, ui)
        };
        let sizes = sizes_to_advise_on(self.caches.sizes_as_written(), &trace)?;
        let asked = self.caches.names_sizes();
        let learnt = self.profile.path.as_deref();
        let analysis =
            CacheAnalysis::of(&trace, policies, sizes, asked, learnt, expected_reads, ui)?;
        let block_bytes = u64::from(trace.options().block_bytes);
        let said = analysis.advice.sentences.iter().chain(placed.sentences());
        let plan = analysis.advice.plan(block_bytes).or_else(|| placed.plan());
        self.save(plan, said.cloned(), ui)?;
        if self.json {
            let mut document = analysis.document(&trace);
            placed.add_to(&mut document, &trace);
            return ui::print_json(&document);
        }
        let verdict = Verdict::of(&analysis, &placed, &trace);
        ui::print(&match self.explain {
            Some(rows) => explanation(&analysis, &placed, &verdict, &trace, rows),
            None => lines(verdict.lines.iter().chain(&verdict.apply)),
        })
    }

    /// Saves the plan, with the advice in words as comments.
    fn save(
        &self,
        plan: Option<RunPlan>,
        said: impl Iterator<Item = String>,
        ui: &Ui,
    ) -> anyhow::Result<()> {
        let Some(path) = &self.save else {
            return Ok(());
        };
        let mut about: Vec<String> = said.collect();
        about.push(match plan {
            Some(_) => format!("hither run --plan {} -- CMD applies:", path.display()),
            None => "Nothing of this is for `hither run` to apply: it runs the program as it is."
                .to_owned(),
        });
        if plan.is_none() {
            ui.note(format_args!(
                "{}: nothing that could be applied; the plan leaves the program as it is",
                path.display()
            ));
        }
        Ok(plan.unwrap_or_default().save(path, &about)?)
    }

    /// Advice for a trace of memory. Its pages are not cached, so only placements matter.
    fn advise_on_memory(&self, trace: &Trace, placed: &PlacementAnalysis) -> anyhow::Result<()> {
        if self.json {
            let mut document = json!({ "trace": trace_summary(trace) });
            placed.add_to(&mut document, trace);
            return ui::print_json(&document);
        }
        let verdict = Verdict::on_memory(placed, trace);
        if self.explain.is_none() {
            return ui::print(&lines(verdict.lines.iter().chain(&verdict.apply)));
        }
        let block_bytes = u64::from(trace.options().block_bytes);
        let pages = trace.blocks_of_all();
        let counted = format!(
            "{} to {} of memory ({}) by {}.",
            counted(trace.references_of_all(), "reference"),
            counted(pages, "page"),
            bytes(pages * block_bytes),
            counted(trace.threads() as u64, "thread"),
        );
        let mut text = lines([&counted]);
        text += &if placed.results.is_empty() {
            lines(&verdict.lines)
        } else {
            lines(placed.sentences().chain(&verdict.apply))
        };
        text += &placed.table(block_bytes);
        ui::print(&text)
    }
}

/// Sentences, a line each.
fn lines<'a>(sentences: impl IntoIterator<Item = &'a String>) -> String {
    let sentences = sentences.into_iter();
    sentences
        .map(|sentence| format!("{}\n", printable(sentence)))
        .collect()
}

/// All that was found: how much was seen, the advice with its reasons, hit ratios, placements, and
/// so many call sites.
fn explanation(
    analysis: &CacheAnalysis,
    placed: &PlacementAnalysis,
    verdict: &Verdict,
    trace: &Trace,
    rows: usize,
) -> String {
    let block_bytes = u64::from(trace.options().block_bytes);
    let stats = &analysis.stats;
    let counted = format!(
        "{} to {} ({}) of {}.",
        counted(stats.references, "reference"),
        counted(stats.blocks, "distinct block"),
        bytes(stats.footprint_bytes),
        counted(stats.objects.max(1), "file"),
    );
    let seen = Coverage::of(trace).map(|coverage| coverage.sentence());
    let advice = analysis.sentences(trace);
    let sentences = seen.iter().chain([&counted]).chain(&advice);
    let mut text = lines(sentences.chain(placed.sentences()).chain(&verdict.apply));
    if analysis.advice.change == Recommendation::Unknown {
        return text;
    }
    if !analysis.caches.sizes().is_empty() {
        text += &format!("\n{}", hit_ratios(&analysis.caches, block_bytes));
    }
    text += &placed.table(block_bytes);
    text += &site_table(&analysis.sites, rows);
    text + &python_names::hint(trace)
}

fn site_table(sites: &[CallSite], top: usize) -> String {
    if sites.is_empty() || top == 0 {
        return String::new();
    }
    let mut table = Table::new([
        ("share", Align::Right),
        ("references", Align::Right),
        ("blocks", Align::Right),
        ("class (pcc)", Align::Left),
        ("period", Align::Right),
        ("call site", Align::Left),
    ]);
    for site in sites.iter().take(top) {
        table.row([
            percent(site.share),
            count(site.references),
            count(site.distinct_blocks),
            site.class.map_or("-", Class::name).to_owned(),
            site.period.map_or("-".to_owned(), count),
            shortened(&site.label, 90),
        ]);
    }
    let more = sites.len().saturating_sub(top);
    let more = if more > 0 {
        format!("  ... {} more (--explain=ROWS)\n", count(more as u64))
    } else {
        String::new()
    };
    format!("\n{}{more}", table.render())
}
