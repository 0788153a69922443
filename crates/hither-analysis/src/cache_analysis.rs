//! The analysis that `hither advise` prints and a report begins with: simulated caches, the advice
//! that follows, its doubts, and the call sites with their classes.

use std::path::Path;

use hither_core::classify::{Class, pcc};
use hither_core::placement::Target;
use hither_core::registry::Needs;
use hither_core::replacement::SiteRecord;
use hither_core::{Spec, replacement, signature};
use hither_sim::{CacheOptions, CacheSize, Grid, References, Row, Spacing, curve};
use hither_trace::{Stats, Trace};
use serde::Serialize;
use serde_json::json;

use crate::Result;
use crate::advice::{AdviceInput, CacheAdvice, Doubt, Recommendation, SEGMENTS, SecondPass};
use crate::applicable;
use crate::coverage::{self, Coverage, share};
use crate::expected::RunModel;
use crate::format::{bytes, counted, percent, shortened};
use crate::placement;
use crate::progress::Progress;
use crate::relevance::Relevance;
use crate::simulate;

/// The results of the analysis.
pub struct CacheAnalysis {
    /// The outcomes of the policies that were simulated.
    pub caches: Grid,
    /// The statistics of the trace.
    pub stats: Stats,
    /// The advice that follows from the outcomes.
    pub advice: CacheAdvice,
    /// The call sites. It is empty where the trace has none.
    pub sites: Vec<CallSite>,
}

impl CacheAnalysis {
    /// Simulates every policy at every size and counts the statistics of the trace. `asked_sizes`
    /// says whether the user named the sizes. `profile` is the file of what is known of call sites.
    /// `run_model` is asked what a run would read, if a policy is advised in the memory that the
    /// program had.
    pub fn of(
        trace: &Trace,
        policies: Vec<Spec>,
        sizes: Vec<CacheSize>,
        asked_sizes: bool,
        profile: Option<&Path>,
        run_model: RunModel,
        progress: &dyn Progress,
    ) -> Result<CacheAnalysis> {
        let known = simulate::load_profile(trace, profile)?;
        let options = CacheOptions {
            sites: &known,
            segments: SEGMENTS,
            ..CacheOptions::default()
        };
        let caches = simulate::caches(trace, &policies, sizes, &options, progress)?;
        simulate::save_profile(trace, &caches, profile, progress)?;
        let spinner = progress.begin("counting", None);
        let stats = Stats::of(trace)?;
        drop(spinner);
        let mut input = AdviceInput {
            references: trace.references_of_all(),
            blocks: trace.blocks_of_all(),
            block_bytes: trace.options().block_bytes.into(),
            caches: &caches,
            steerable: placement::data_kind(trace) == Some(Target::Files),
            asked_sizes,
            here: Relevance::of(trace)
                .filter(|_| !asked_sizes)
                .and_then(|relevance| relevance.size_bytes())
                .map(|bytes| bytes / u64::from(trace.options().block_bytes))
                .filter(|&here| {
                    let mut sizes = caches.sizes().iter();
                    sizes.any(|size| u64::from(size.blocks) == here)
                }),
            expected: None,
            doubts: trace_limitations(trace),
        };
        if let (Some(here), Some(candidate)) = (input.here, input.candidate()) {
            let _spinner = progress.begin("simulating a run", None);
            input.expected = run_model(trace, candidate.spec(), here * input.block_bytes)?;
        }
        let second = second_pass(trace, &input, &known, progress)?;
        let advice = match Coverage::of(trace).and_then(|coverage| coverage.no_verdict()) {
            Some(sentence) => CacheAdvice::unknown(sentence),
            None => {
                let obstacle = applicable::obstacle(trace, asked_sizes)?;
                input.advice(&second).with_obstacle(obstacle)
            }
        };
        let sites = call_sites(trace, &stats, &caches);
        Ok(CacheAnalysis {
            caches,
            stats,
            advice,
            sites,
        })
    }

    /// All of it, as `advise --json` prints it.
    pub fn document(&self, trace: &Trace) -> serde_json::Value {
        json!({
            "trace": simulate::trace_summary(trace),
            "advice": self.advice,
            "results": self.caches.cells().collect::<Vec<_>>(),
            "sites": self.sites,
        })
    }

    /// Whether it matters on the machine of the recording, the advice in words, and a sentence
    /// about loops.
    pub fn sentences(&self, trace: &Trace) -> Vec<String> {
        if self.advice.change == Recommendation::Unknown {
            return self.advice.sentences.clone();
        }
        let matters = Relevance::of(trace).map(|relevance| relevance.sentence());
        let mut sentences: Vec<String> = matters.into_iter().collect();
        sentences.extend(self.advice.sentences.iter().cloned());
        sentences.extend(loops(&self.sites, trace.options().block_bytes.into()));
        sentences
    }
}

/// The number of sizes at which LRU is simulated. One pass over its stack serves all of them.
const LRU_SIZES: usize = 1000;

/// The smallest share of the references for which loops are mentioned.
const LOOPS_MIN_SHARE: f64 = 0.05;

/// The most programs that a doubt names.
const NAMED_PROGRAMS_MAX: usize = 3;

/// Simulates LRU at many sizes, and the candidate at slightly different settings.
fn second_pass(
    trace: &Trace,
    input: &AdviceInput<'_>,
    known: &[SiteRecord],
    progress: &dyn Progress,
) -> Result<SecondPass> {
    let (Some(candidate), Some(lru)) = (input.candidate(), input.caches.row_of("lru")) else {
        return Ok(SecondPass::default());
    };
    let variants = candidate.variants();
    let distinct = u32::try_from(input.blocks).unwrap_or(u32::MAX - 1);
    let mut sizes = curve::sizes(distinct, LRU_SIZES, Spacing::Linear);
    sizes.extend(input.caches.sizes().iter().map(|size| size.blocks));
    sizes.extend(variants.iter().map(|variant| variant.cache_blocks));
    sizes.sort_unstable();
    sizes.dedup();
    let rows = SecondPass::rows(lru.policy, sizes, &variants);
    let bar = progress.begin("comparing", Some(trace.references() as u64));
    let options = CacheOptions {
        sites: known,
        progress: Some(&|done| bar.set_position(done)),
        cancel: progress.cancelled(),
        segments: SEGMENTS,
        ..CacheOptions::default()
    };
    let outcomes = Row::run(&rows, trace, &options)?;
    drop(bar);
    Ok(SecondPass::of(outcomes))
}

/// The default policies for which this trace has enough data. A note names the others.
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

fn knows_enough(needs: Needs, known: Needs) -> bool {
    (!needs.sites || known.sites)
        && (!needs.objects || known.objects)
        && (!needs.processes || known.processes)
}

/// A call site with its statistics and its class.
#[derive(Clone, Debug, Serialize)]
pub struct CallSite {
    /// The number of the call site in the trace.
    pub site: u32,
    /// The signature in 16 hexadecimal digits. It is the same in each run of a binary.
    pub signature: String,
    /// The share of all references, from 0 to 1.
    pub share: f64,
    /// The number of its references.
    pub references: u64,
    /// The number of distinct blocks that it references.
    pub distinct_blocks: u64,
    /// The class that PCC gives it at the end. `None`: PCC was not simulated.
    pub class: Option<Class>,
    /// The mean period of its loop in references, according to PCC.
    pub period: Option<u64>,
    /// The function, if there are symbols.
    pub function: Option<String>,
    /// The source file, if there is debug information.
    pub file: Option<String>,
    /// The line in the source file.
    pub line: Option<u32>,
    /// The path of the executable or library.
    pub module: Option<String>,
    /// Its name in tables: function, file and line, or module and offset.
    pub label: String,
}

fn call_sites(trace: &Trace, stats: &Stats, caches: &Grid) -> Vec<CallSite> {
    if !trace.has_sites() {
        return Vec::new();
    }
    let learnt = simulate::learnt(caches).unwrap_or_default();
    let simulated = caches.row_of("pcc");
    let config = simulated.map(|row| replacement::pcc::config(row.policy.values()));
    let threshold = config.map_or(0, |config| config.threshold);
    let rows = stats.by_site.iter().filter(|row| row.references > 0);
    rows.map(|row| {
        let site = &trace.sites()[row.number as usize];
        let record = learnt.iter().find(|record| record.site.0 == row.number);
        let counters = record.map(|record| record.counters);
        CallSite {
            site: row.number,
            signature: signature::text(site.signature),
            share: row.share,
            references: row.references,
            distinct_blocks: row.blocks,
            class: counters
                .map(|counters| pcc::class(counters.sequential, counters.looping, threshold)),
            period: counters
                .map(|counters| counters.period)
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

/// The lost, damaged or unseen share at which a doubt has strength 1.
const LOST_SHARE: f64 = 0.001;
const DAMAGED_SHARE: f64 = 0.01;
const UNSEEN_SHARE: f64 = 0.1;

/// What the trace lacks and could change the advice.
fn trace_limitations(trace: &Trace) -> Vec<Doubt> {
    let losses = &trace.meta().losses;
    let total = &trace.counts().total;
    let moved = total.read_bytes.saturating_add(total.written_bytes);
    let mut doubts = Vec::new();
    doubts.extend(coverage::lost(losses).map(|what| Doubt {
        words: format!("the recorder lost {what}"),
        strength: coverage::lost_share(losses, total.requests, moved) / LOST_SHARE,
    }));
    if losses.damaged_records > 0 {
        doubts.push(Doubt {
            words: format!(
                "{} were damaged, and left out",
                counted(losses.damaged_records, "record")
            ),
            strength: share(losses.damaged_records, total.requests) / DAMAGED_SHARE,
        });
    }
    let coverage = Coverage::of(trace);
    let unseen: u64 = losses
        .not_recorded
        .iter()
        .map(|program| program.count)
        .sum();
    if unseen > 0 {
        let names: Vec<&str> = losses
            .not_recorded
            .iter()
            .take(NAMED_PROGRAMS_MAX)
            .map(|program| program.path.as_str())
            .collect();
        doubts.push(Doubt::unbounded(format!(
            "{} of the program could not be recorded ({})",
            counted(unseen, "process"),
            names.join(", ")
        )));
    }
    if let Some(coverage) = &coverage {
        let unseen = (1.0 - coverage.share) / UNSEEN_SHARE;
        doubts.extend(coverage.doubt().map(|words| Doubt {
            words,
            strength: if coverage.is_open_ended() {
                Doubt::UNBOUNDED.max(unseen)
            } else {
                unseen
            },
        }));
    }
    let (mapped, read) = (
        trace.counts().total.mapped_bytes,
        trace.counts().total.read_bytes,
    );
    if coverage.is_none() && mapped > read {
        doubts.push(Doubt {
            words: format!(
                "mapped files ({}) outweigh read ones ({}), \
                 and what is touched in a mapping is not seen",
                bytes(mapped),
                bytes(read)
            ),
            strength: mapped as f64 / read.max(1) as f64,
        });
    }
    doubts
}

/// A sentence about the loops, if they are a large share of the references.
fn loops(sites: &[CallSite], block_bytes: u64) -> Option<String> {
    let looping = || {
        sites
            .iter()
            .filter(|site| site.class == Some(Class::Looping))
    };
    let largest = looping().max_by_key(|site| site.references)?;
    let share: f64 = looping().map(|site| site.share).sum();
    (share >= LOOPS_MIN_SHARE).then(|| {
        format!(
            "By what pcc takes call sites for at the end, loops make {} of the references; the \
             largest, {}, goes over {} again and again.",
            percent(share),
            shortened(&largest.label, 90),
            bytes(largest.distinct_blocks * block_bytes)
        )
    })
}
