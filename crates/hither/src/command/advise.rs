//! `hither advise`: what would help a program's accesses, in plain words: another policy, more cache, or another place.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use hither_core::Spec;
use hither_core::classify::{Class, pcc};
use hither_core::placement::Of;
use hither_core::registry::Needs;
use hither_sim::placement::Binding;
use hither_sim::{Outcome, References};
use hither_trace::{Stats, Trace};
use serde::Serialize;
use serde_json::json;

use super::Subcommand;
use super::options::{Caches, Learnt, Loading};
use super::record::{self, Recording};
use crate::advice::Evidence;
use crate::exit;
use crate::format::{Lean, Table, bytes, count, counted, percent, policy, shortened};
use crate::place::options::Placing;
use crate::place::{self, Case, Request, Running, Watch};
use crate::simulate::{self, about, hit_ratios};
use crate::ui::{self, Ui};

/// What is simulated unless policies are named.
const POLICIES: &str = "lru,arc,dear,ubm,pcc,opt";

/// Say what would help a program's accesses: another policy, more cache, another placement, or nothing
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    hither advise -- grep -r needle /usr/include   record a program and advise\n  \
    hither advise -o make.hither -- make -j8       and keep the trace\n  \
    hither advise make.hither --size 64MiB,1GiB    advise on a trace\n  \
    hither advise cg.hither --nodes 4              and on which of four nodes its data should be\n  \
    hither advise --format lirs cs.trace.gz        on a trace of bare block numbers")]
pub(super) struct Advise {
    /// The trace to advise on
    #[arg(required_unless_present = "command", conflicts_with = "command")]
    trace: Option<PathBuf>,

    /// The program to record, with its arguments
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,

    #[command(flatten)]
    caches: Caches,

    #[command(flatten)]
    learnt: Learnt,

    #[command(flatten)]
    loading: Loading,

    #[command(flatten)]
    placing: Placing,

    #[command(flatten)]
    recording: Recording,

    /// Rows in the table of call sites
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

impl Subcommand for Advise {
    const NAME: &'static str = "advise";

    fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        self.placing.check()?;
        let Some(trace) = &self.trace else {
            // The folder goes at the end of this function, also when advising fails.
            let temporary = tempfile::Builder::new().prefix("hither-").tempdir()?;
            let kept = self.recording.output.clone();
            let folder = kept.unwrap_or_else(|| temporary.path().join("trace.hither"));
            let ended = record::run(&self.command, &folder, &self.recording, ui)?;
            // What the program printed is over; the advice stands apart from it.
            ui.gap();
            self.advise(&folder, ui)?;
            return Ok(exit::pass_on(ended));
        };
        self.advise(trace, ui)?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Advise {
    fn advise(&self, path: &Path, ui: &Ui) -> anyhow::Result<()> {
        let trace = self.loading.load(path, ui)?;
        let placed = self.place(&trace, ui)?;
        if place::kind(&trace) == Some(Of::Memory) {
            return self.advise_on_memory(&trace, &placed);
        }
        let mut policies = self.caches.policies(POLICIES);
        if !self.caches.names_policies() {
            let known = trace.knows();
            policies.retain(|spec| {
                let possible = knows_enough(spec.entry().needs, known);
                if !possible {
                    ui.note(format_args!(
                        "{} is left out: this trace has no call sites",
                        spec.entry().name
                    ));
                }
                possible
            });
        }
        let sizes = self.caches.sizes(&trace)?;
        let outcomes = simulate::run(&trace, &policies, &sizes, self.learnt.sites.as_deref(), ui)?;
        let spinner = ui.spinner("counting");
        let stats = Stats::of(&trace)?;
        spinner.finish_and_clear();

        let rows: Vec<&[Outcome]> = outcomes.chunks(sizes.len().max(1)).collect();
        let ratios: Vec<(String, Vec<f64>)> = policies
            .iter()
            .zip(&rows)
            .map(|(spec, row)| {
                (
                    policy(spec),
                    row.iter().map(|outcome| outcome.hit_ratio).collect(),
                )
            })
            .collect();
        let blocks: Vec<u64> = sizes.iter().map(|(_, blocks)| u64::from(*blocks)).collect();
        let block_bytes = u64::from(trace.options().block_bytes);
        let evidence = Evidence {
            references: stats.references,
            blocks: stats.blocks,
            block_bytes,
            sizes: &blocks,
            ratios: &ratios,
        };
        let advice = evidence.advice();
        let sites = call_sites(&trace, &stats, &policies, &outcomes);
        if self.json {
            let mut document = json!({ "trace": about(&trace), "advice": advice, "results": outcomes, "sites": sites });
            placed.add_to(&mut document, &trace);
            return ui::print_json(&document);
        }

        let mut text = format!(
            "{} to {} ({}) of {}.\n",
            counted(stats.references, "reference"),
            counted(stats.blocks, "distinct block"),
            bytes(stats.footprint_bytes),
            counted(stats.objects.max(1), "file"),
        );
        for sentence in advice
            .sentences
            .iter()
            .chain(&cautions(&trace))
            .chain(&loops(&sites, block_bytes))
            .chain(placed.sentences())
        {
            text += &format!("{sentence}\n");
        }
        if !sizes.is_empty() {
            text += &format!(
                "\n{}",
                hit_ratios(&policies, &sizes, &outcomes, block_bytes)
            );
        }
        text += &placed.table(block_bytes);
        text += &site_table(&sites, self.top);
        ui::print(&text)
    }

    /// Simulates placements where nodes are named or the trace knows several.
    fn place(&self, trace: &Trace, ui: &Ui) -> anyhow::Result<Placed> {
        let mut placed = Placed {
            running: self.placing.running(),
            binding: self
                .placing
                .running()
                .binding
                .resolved(References::nodes(trace)),
            cases: Vec::new(),
            outcomes: Vec::new(),
            advice: Vec::new(),
        };
        let nodes = match self.placing.wanted() {
            true => self.placing.topologies()?,
            false if trace.nodes() > 1 => vec![Arc::new(place::recorded(trace))],
            false => Vec::new(),
        };
        if nodes.is_empty() || trace.references() == 0 {
            return Ok(placed);
        }
        let usual = place::usual(place::kind(trace));
        let request = Request {
            nodes,
            placements: place::named_or(&self.placing.placements(), usual)?,
            sizes: match self.placing.wanted() {
                true => self.caches.sizes_as_written().to_vec(),
                false => Vec::new(),
            },
            policies: Vec::new(),
        };
        let block_bytes = u64::from(trace.options().block_bytes);
        placed.cases = place::cases(&request, block_bytes, trace.blocks_of_all())?;
        let runs = trace.references() as u64 * placed.cases.len() as u64;
        let bar = ui.bar("placing", runs);
        let watch = Watch {
            progress: Some(&|done| bar.set_position(done)),
            cancel: None,
        };
        placed.outcomes = place::run(trace, &placed.cases, &placed.running, 0, watch)?;
        bar.finish_and_clear();
        let lines = place::lines(&placed.cases, &placed.outcomes);
        placed.advice = place::advice(&lines, block_bytes);
        Ok(placed)
    }

    /// Pages are not cached: for them, where they are is all there is to say.
    fn advise_on_memory(&self, trace: &Trace, placed: &Placed) -> anyhow::Result<()> {
        if self.json {
            let mut document = json!({ "trace": about(trace) });
            placed.add_to(&mut document, trace);
            return ui::print_json(&document);
        }
        let block_bytes = u64::from(trace.options().block_bytes);
        let pages = trace.blocks_of_all();
        let mut text = format!(
            "{} to {} of memory ({}) by {}.\n",
            counted(trace.references_of_all(), "reference"),
            counted(pages, "page"),
            bytes(pages * block_bytes),
            counted(trace.threads() as u64, "thread"),
        );
        if placed.cases.is_empty() {
            text +=
                "Nothing says on how many nodes: --nodes simulates where the pages should be.\n";
        }
        for sentence in placed.sentences() {
            text += &format!("{sentence}\n");
        }
        text += &placed.table(block_bytes);
        ui::print(&text)
    }
}

/// Placements that were simulated, if any.
struct Placed {
    running: Running,
    binding: Binding,
    cases: Vec<Case>,
    outcomes: Vec<hither_sim::placement::Outcome>,
    /// One for each topology and size.
    advice: Vec<place::Advice>,
}

impl Placed {
    fn sentences(&self) -> impl Iterator<Item = &String> {
        self.advice.iter().flat_map(|advice| &advice.sentences)
    }

    fn table(&self, block_bytes: u64) -> String {
        let lines = place::lines(&self.cases, &self.outcomes);
        place::table(&lines, self.binding, block_bytes)
    }

    /// Adds `placement`, the advice, and `placements`, the results, where there are any.
    fn add_to(&self, document: &mut serde_json::Value, trace: &Trace) {
        if self.cases.is_empty() {
            return;
        }
        let each = self.cases.iter().zip(&self.outcomes);
        let results =
            each.map(|(case, outcome)| place::document(case, outcome, &self.running, trace));
        document["placements"] = results.collect();
        document["placement"] = json!(self.advice);
    }
}

fn knows_enough(needs: Needs, known: Needs) -> bool {
    (!needs.sites || known.sites)
        && (!needs.objects || known.objects)
        && (!needs.processes || known.processes)
}

/// A call site as the advice shows it.
#[derive(Debug, Serialize)]
struct CallSite {
    site: u32,
    signature: String,
    share: f64,
    references: u64,
    distinct_blocks: u64,
    /// What PCC makes of it in the end; nothing where PCC was not simulated.
    class: Option<&'static str>,
    period: Option<u64>,
    function: Option<String>,
    file: Option<String>,
    line: Option<u32>,
    module: Option<String>,
    label: String,
}

fn call_sites(
    trace: &Trace,
    stats: &Stats,
    policies: &[Spec],
    outcomes: &[Outcome],
) -> Vec<CallSite> {
    if !trace.has_sites() {
        return Vec::new();
    }
    let learnt = outcomes
        .iter()
        .find_map(|outcome| outcome.sites.as_deref())
        .unwrap_or_default();
    let threshold = policies
        .iter()
        .filter(|spec| spec.entry().name == "pcc")
        .flat_map(Spec::params)
        .find_map(|(param, value)| {
            (param.name == "threshold").then(|| value.to_string().parse().unwrap_or(0))
        })
        .unwrap_or(0);
    let rows = stats.by_site.iter().filter(|row| row.references > 0);
    rows.map(|row| {
        let site = &trace.sites()[row.number as usize];
        let record = learnt.iter().find(|record| record.site.0 == row.number);
        CallSite {
            site: row.number,
            signature: format!("{:016x}", site.signature),
            share: row.share,
            references: row.references,
            distinct_blocks: row.blocks,
            class: record.map(|record| {
                match pcc::class(record.sequential, record.looping, threshold) {
                    Class::Sequential => "sequential",
                    Class::Looping => "looping",
                    Class::Other => "other",
                }
            }),
            period: record
                .map(|record| record.period)
                .filter(|&period| period > 0),
            function: site.function.clone(),
            file: site.file.clone(),
            line: site.line,
            module: site.module.clone(),
            label: row.name.clone(),
        }
    })
    .collect()
}

/// What the trace lacks, if that could change the advice.
fn cautions(trace: &Trace) -> Vec<String> {
    let losses = &trace.meta().losses;
    let mut cautions = Vec::new();
    if losses.dropped_events > 0 {
        cautions.push(format!(
            "Take this with care: {} were lost because the rings were full.",
            counted(losses.dropped_events, "access")
        ));
    }
    let unseen: u64 = losses
        .not_recorded
        .iter()
        .map(|program| program.count)
        .sum();
    if unseen > 0 {
        let names: Vec<&str> = losses
            .not_recorded
            .iter()
            .take(3)
            .map(|program| program.path.as_str())
            .collect();
        cautions.push(format!(
            "Take this with care: {} of the program could not be recorded ({}).",
            counted(unseen, "process"),
            names.join(", ")
        ));
    }
    let (mapped, read) = (
        trace.counts().total.mapped_bytes,
        trace.counts().total.read_bytes,
    );
    if mapped > read {
        cautions.push(format!(
            "Mapped files ({}) outweigh read ones ({}); what is touched in a mapping is not seen.",
            bytes(mapped),
            bytes(read)
        ));
    }
    cautions
}

/// The loops that matter, in a sentence.
fn loops(sites: &[CallSite], block_bytes: u64) -> Option<String> {
    let looping = || sites.iter().filter(|site| site.class == Some("looping"));
    let largest = looping().max_by_key(|site| site.references)?;
    let share: f64 = looping().map(|site| site.share).sum();
    (share >= 0.05).then(|| {
        format!(
            "Loops make {} of the references; the largest, {}, goes over {} again and again.",
            percent(share),
            shortened(&largest.label, 90),
            bytes(largest.distinct_blocks * block_bytes)
        )
    })
}

fn site_table(sites: &[CallSite], top: usize) -> String {
    if sites.is_empty() || top == 0 {
        return String::new();
    }
    let mut table = Table::new([
        ("share", Lean::Right),
        ("references", Lean::Right),
        ("blocks", Lean::Right),
        ("class", Lean::Left),
        ("period", Lean::Right),
        ("call site", Lean::Left),
    ]);
    for site in sites.iter().take(top) {
        table.row([
            percent(site.share),
            count(site.references),
            count(site.distinct_blocks),
            site.class.unwrap_or("-").to_owned(),
            site.period.map_or("-".to_owned(), count),
            shortened(&site.label, 90),
        ]);
    }
    let more = sites.len().saturating_sub(top);
    let more = if more > 0 {
        format!("  ... {} more (--top)\n", count(more as u64))
    } else {
        String::new()
    };
    format!("\n{}{more}", table.render())
}
