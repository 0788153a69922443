//! What is to be said of a trace before anybody asks for details: policies simulated, the advice
//! that follows, what to take with care, and the call sites with what PCC makes of them. `advise`
//! prints it, and a report opens with it.

use std::path::Path;

use hither_core::Spec;
use hither_core::classify::{Class, pcc};
use hither_core::placement::Target;
use hither_core::registry::Needs;
use hither_core::replacement::SiteRecord;
use hither_sim::{
    CacheConfiguration, CacheOptions, CacheOutcome, References, Size, Spacing, curve,
};
use hither_trace::{Stats, Trace};
use serde::Serialize;

use crate::Result;
use crate::advice::{AdviceInput, Alternatives, CacheAdvice, STRETCHES};
use crate::format::{bytes, counted, percent, shortened};
use crate::placement;
use crate::progress::Progress;
use crate::simulate;

/// What was found.
pub struct CacheAnalysis {
    /// The policies that were simulated.
    pub policies: Vec<Spec>,
    /// The sizes of the caches as they were written, and in blocks.
    pub sizes: Vec<(Size, u32)>,
    /// By policy, then by size.
    pub outcomes: Vec<CacheOutcome>,
    /// What is in the trace.
    pub stats: Stats,
    /// The advice that follows from the outcomes.
    pub advice: CacheAdvice,
    /// Empty where the trace has none.
    pub sites: Vec<CallSite>,
}

impl CacheAnalysis {
    /// Simulates every policy at every size and counts what is in the trace. Sizes that nobody
    /// asked about are parts of the data.
    pub fn of(
        trace: &Trace,
        policies: Vec<Spec>,
        sizes: Vec<(Size, u32)>,
        asked_sizes: bool,
        learnt: Option<&Path>,
        progress: &dyn Progress,
    ) -> Result<CacheAnalysis> {
        let known = simulate::load_profile(trace, learnt)?;
        let outcomes = simulate::caches(trace, &policies, &sizes, &known, STRETCHES, progress)?;
        simulate::save_profile(trace, &outcomes, learnt, progress)?;
        let spinner = progress.begin("counting", None);
        let stats = Stats::of(trace)?;
        drop(spinner);
        let blocks: Vec<u32> = sizes.iter().map(|&(_, blocks)| blocks).collect();
        let input = AdviceInput {
            references: trace.references_of_all(),
            blocks: trace.blocks_of_all(),
            block_bytes: trace.options().block_bytes.into(),
            policies: &policies,
            sizes: &blocks,
            outcomes: &outcomes,
            steerable: placement::data_kind(trace) == Some(Target::Files),
            asked_sizes,
            doubts: trace_limitations(trace),
        };
        let alternatives = alternatives(trace, &input, &known, progress)?;
        let advice = input.advice(&alternatives);
        let sites = call_sites(trace, &stats, &policies, &outcomes);
        Ok(CacheAnalysis {
            policies,
            sizes,
            outcomes,
            stats,
            advice,
            sites,
        })
    }

    /// The advice in words, and the loops.
    pub fn sentences(&self, trace: &Trace) -> Vec<String> {
        let mut sentences = self.advice.sentences.clone();
        sentences.extend(loops(&self.sites, trace.options().block_bytes.into()));
        sentences
    }
}

/// Sizes of LRU that are looked at: exact, and no more work than a few.
const LRU_SIZES: usize = 1000;

/// LRU in caches of all sizes, and the change in question if things were a little different. It
/// takes a pass of the trace, of which LRU is the smaller part.
fn alternatives(
    trace: &Trace,
    input: &AdviceInput<'_>,
    known: &[SiteRecord],
    progress: &dyn Progress,
) -> Result<Alternatives> {
    let mut policies = input.policies.iter();
    let lru = policies.find(|spec| spec.entry().name == "lru");
    let (Some(candidate), Some(&lru)) = (input.candidate(), lru) else {
        return Ok(Alternatives::default());
    };
    let variants = candidate.variants();
    let distinct = u32::try_from(input.blocks).unwrap_or(u32::MAX - 1);
    let mut sizes = curve::sizes(distinct, LRU_SIZES, Spacing::Linear);
    sizes.extend(input.sizes);
    sizes.extend(variants.iter().map(|variant| variant.cache_blocks));
    sizes.sort_unstable();
    sizes.dedup();
    let lru = sizes.iter().map(|&cache_blocks| CacheConfiguration {
        spec: lru,
        cache_blocks,
    });
    let configurations: Vec<CacheConfiguration> = lru.chain(variants.iter().copied()).collect();
    let bar = progress.begin("comparing", Some(trace.references() as u64));
    let options = CacheOptions {
        sites: known,
        progress: Some(&|done| bar.set_position(done)),
        segments: STRETCHES,
        ..CacheOptions::default()
    };
    let mut lru = hither_sim::run(trace, &configurations, &options)?;
    drop(bar);
    let others = lru.split_off(sizes.len());
    Ok(Alternatives {
        lru,
        variants: variants.into_iter().zip(others).collect(),
    })
}

/// Those of our own choice of policies that this trace knows enough for; the others are named in a
/// note.
pub fn supported_policies(
    mut policies: Vec<Spec>,
    trace: &Trace,
    progress: &dyn Progress,
) -> Vec<Spec> {
    let known = trace.knows();
    policies.retain(|spec| {
        let possible = knows_enough(spec.entry().needs, known);
        if !possible {
            progress.note(format_args!(
                "{} is left out: this trace has no call sites",
                spec.entry().name
            ));
        }
        possible
    });
    policies
}

/// A parameter of a policy that is a count.
pub fn parameter(spec: &Spec, name: &str) -> u64 {
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
pub struct CallSite {
    /// The number of the call site in the trace.
    pub site: u32,
    /// The signature, which is the same in each run of a binary: 16 hexadecimal digits.
    pub signature: String,
    /// The share of all references, from 0 to 1.
    pub share: f64,
    /// The references that it makes.
    pub references: u64,
    /// The different blocks that it references.
    pub distinct_blocks: u64,
    /// What PCC makes of it in the end; nothing where PCC was not simulated.
    pub class: Option<&'static str>,
    /// PCC's mean period of its loop in references, where it loops.
    pub period: Option<u64>,
    /// The function, where symbols tell.
    pub function: Option<String>,
    /// The source file, where debug information tells.
    pub file: Option<String>,
    /// The line in the source file.
    pub line: Option<u32>,
    /// The path of the executable or library.
    pub module: Option<String>,
    /// One line that names it for people.
    pub label: String,
}

fn call_sites(
    trace: &Trace,
    stats: &Stats,
    policies: &[Spec],
    outcomes: &[CacheOutcome],
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

/// What the trace lacks, if that could change the advice: the ends of a sentence.
fn trace_limitations(trace: &Trace) -> Vec<String> {
    let losses = &trace.meta().losses;
    let mut cautions = Vec::new();
    if losses.dropped_events > 0 {
        cautions.push(format!(
            "{} were lost because the rings were full",
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
            "{} of the program could not be recorded ({})",
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
            "mapped files ({}) outweigh read ones ({}), \
             and what is touched in a mapping is not seen",
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
