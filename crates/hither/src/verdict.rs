//! What is to be said of a trace before anybody asks for details: policies simulated, the advice that follows, what to take
//! with care, and the call sites with what PCC makes of them. `advise` prints it, and a report opens with it.

use std::path::Path;

use hither_core::Spec;
use hither_core::classify::{Class, pcc};
use hither_core::registry::Needs;
use hither_sim::{Outcome, References, Size};
use hither_trace::{Stats, Trace};
use serde::Serialize;

use crate::advice::{Advice, Evidence};
use crate::format::{bytes, counted, percent, policy, shortened};
use crate::simulate;
use crate::ui::Ui;

/// What is simulated unless policies are named.
pub(crate) const POLICIES: &str = "lru,arc,dear,ubm,pcc,opt";

/// What was found.
pub(crate) struct Verdict {
    pub(crate) policies: Vec<Spec>,
    /// The sizes of the caches as they were written, and in blocks.
    pub(crate) sizes: Vec<(Size, u32)>,
    /// By policy, then by size.
    pub(crate) outcomes: Vec<Outcome>,
    pub(crate) stats: Stats,
    pub(crate) advice: Advice,
    /// Empty where the trace has none.
    pub(crate) sites: Vec<CallSite>,
}

impl Verdict {
    /// Simulates every policy at every size and counts what is in the trace.
    pub(crate) fn of(
        trace: &Trace,
        policies: Vec<Spec>,
        sizes: Vec<(Size, u32)>,
        learnt: Option<&Path>,
        ui: &Ui,
    ) -> anyhow::Result<Verdict> {
        let outcomes = simulate::run(trace, &policies, &sizes, learnt, ui)?;
        let spinner = ui.spinner("counting");
        let stats = Stats::of(trace)?;
        spinner.finish_and_clear();
        let rows = outcomes.chunks(sizes.len().max(1));
        let ratios: Vec<(String, Vec<f64>)> = policies
            .iter()
            .zip(rows)
            .map(|(spec, row)| {
                let ratios = row.iter().map(|outcome| outcome.hit_ratio);
                (policy(spec), ratios.collect())
            })
            .collect();
        let blocks: Vec<u64> = sizes.iter().map(|(_, blocks)| u64::from(*blocks)).collect();
        let evidence = Evidence {
            references: stats.references,
            blocks: stats.blocks,
            block_bytes: trace.options().block_bytes.into(),
            sizes: &blocks,
            ratios: &ratios,
        };
        let advice = evidence.advice();
        let sites = call_sites(trace, &stats, &policies, &outcomes);
        Ok(Verdict {
            policies,
            sizes,
            outcomes,
            stats,
            advice,
            sites,
        })
    }

    /// The advice in words, what to take with care, and the loops.
    pub(crate) fn sentences(&self, trace: &Trace) -> Vec<String> {
        let mut sentences = self.advice.sentences.clone();
        sentences.extend(cautions(trace));
        sentences.extend(loops(&self.sites, trace.options().block_bytes.into()));
        sentences
    }
}

/// Those of our own choice of policies that this trace knows enough for; the others are named in a note.
pub(crate) fn possible(mut policies: Vec<Spec>, trace: &Trace, ui: &Ui) -> Vec<Spec> {
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
    policies
}

/// A parameter of a policy that is a count.
pub(crate) fn parameter(spec: &Spec, name: &str) -> u64 {
    let mut params = spec.params();
    let value = params.find_map(|(param, value)| (param.name == name).then(|| value.to_string()));
    value.and_then(|value| value.parse().ok()).unwrap_or(0)
}

fn knows_enough(needs: Needs, known: Needs) -> bool {
    (!needs.sites || known.sites)
        && (!needs.objects || known.objects)
        && (!needs.processes || known.processes)
}

/// A call site as the advice shows it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct CallSite {
    pub(crate) site: u32,
    pub(crate) signature: String,
    pub(crate) share: f64,
    pub(crate) references: u64,
    pub(crate) distinct_blocks: u64,
    /// What PCC makes of it in the end; nothing where PCC was not simulated.
    pub(crate) class: Option<&'static str>,
    pub(crate) period: Option<u64>,
    pub(crate) function: Option<String>,
    pub(crate) file: Option<String>,
    pub(crate) line: Option<u32>,
    pub(crate) module: Option<String>,
    pub(crate) label: String,
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
    let pcc = policies.iter().find(|spec| spec.entry().name == "pcc");
    let threshold = pcc.map_or(0, |spec| parameter(spec, "threshold"));
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
