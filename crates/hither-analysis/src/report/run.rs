//! The part of a report about one run: the results of the other commands, and what only a report
//! shows, within the bounds of a page.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hither_core::Spec;
use hither_core::placement::Target;
use hither_sim::{CacheOutcome, CacheSize, Points, Spacing};
use hither_trace::schema::Machine;
use hither_trace::{RankedRow, ReferenceTime, Stats, Trace};
use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;
use serde_json::{Value, json};

use super::access_picture::AccessPicture;
use super::activity::{Activity, ProcessActivity};
use super::call_stacks::{self, CallStacks};
use super::distribution::Distribution;
use super::request::ReportRequest;
use super::room::{ROWS_MAX, rows_that_fit, take_room};
use crate::Result;
use crate::advice::CacheAdvice;
use crate::cache_analysis::{self, CacheAnalysis, CallSite};
use crate::coverage::{self, Coverage};
use crate::format::policy;
use crate::placement::{self, PlacementAnalysis};
use crate::progress::Progress;
use crate::relevance::Relevance;
use crate::simulate::{in_passes, statistics, trace_summary};
use crate::verdict;

/// The budget of a page's tables in bytes of JSON, which two runs share.
///
/// At most, the counts of call sites take half of it and their descriptions one and a half times
/// it, files three quarters, processes half, call stacks a quarter, and the comparison of two runs
/// half. With images, picture, library and scripts a page stays below 10 MiB.
pub(super) const TABLE_BYTES_MAX: usize = 1 << 20;

/// The most bytes of a page's images of placements.
const IMAGES_BYTES_MAX: usize = 3 << 18;

/// The most cells of a page's picture. They take less than 5 MiB, even if references are random and
/// each cell has another call site.
const PICTURE_CELLS_MAX: usize = 1 << 20;

/// The points of a curve of a policy whose hits at all sizes come from one pass.
const EXACT_CURVE_POINTS: usize = 200;

/// The most processes that are listed for a call site.
const SITE_PROCESSES_MAX: usize = 4;

/// The most moves of a placement that a picture shows.
const MOVES_MAX: usize = 100_000;

/// The part of a report about one run.
#[derive(Serialize)]
pub(super) struct RunReport {
    /// As in `stat --json` and `sim --json`.
    pub(super) trace: Value,
    kind: &'static str,
    started_unix_ns: u64,
    machine: Machine,
    pub(super) advice: CacheAdvice,
    /// How much of the program was seen; the first line of the page.
    seen: Option<String>,
    /// The accesses that the recording lost, and why.
    lost: Option<String>,
    /// The sentences at the top of the page, with the advice.
    sentences: Vec<String>,
    /// The command line that applies the advice.
    apply: Option<String>,
    /// Whether all files fit into the memory that the program had: a smaller cache costs reads.
    fits: bool,
    /// As in `stat --json`, without the rows that `left_out` counts and without the references of
    /// threads, which are in `processes`.
    pub(super) bytes: Value,
    pub(super) stats: Value,
    left_out: OmittedRows,
    sizes: Vec<CacheSize>,
    /// As in `sim --json`: by policy, then by size.
    pub(super) results: Vec<CacheOutcome>,
    curves: Vec<HitRatioCurve>,
    pub(super) sites: Vec<SiteRow>,
    stacks: CallStacks,
    distributions: Distributions,
    processes: Vec<ProcessActivity>,
    picture: AccessPicture,
    /// The times of some references: number and nanoseconds.
    times: Vec<ReferenceTime>,
    /// As in `place --json`.
    placements: Vec<Value>,
    placement_advice: Value,
    drawings: Vec<EmbeddedImage>,
    /// The number of drawings that the page has no room for.
    drawings_left_out: u64,
    /// All rows, for the comparison of two runs. They are not on the page.
    #[serde(skip)]
    pub(super) all: FullTables,
}

/// All call sites and files, with those that the page leaves out.
pub(super) struct FullTables {
    pub(super) sites: Vec<CallSite>,
    pub(super) objects: Vec<RankedRow>,
    pub(super) references: u64,
    pub(super) names_objects: bool,
}

/// The number of rows of each table that are not on the page.
#[derive(Serialize)]
struct OmittedRows {
    sites: u64,
    objects: u64,
    processes: u64,
}

/// The hits of one policy by cache size, as `sim --size N` prints them.
#[derive(Serialize)]
struct HitRatioCurve {
    policy: String,
    cache_blocks: Vec<u32>,
    hits: Vec<u64>,
    hit_ratio: Vec<f64>,
}

/// A call site as in `advise --json`, with the processes that made its references, most first.
#[derive(Serialize)]
pub(super) struct SiteRow {
    #[serde(flatten)]
    pub(super) site: CallSite,
    /// Number and references of the first [`SITE_PROCESSES_MAX`] processes.
    processes: Vec<(u32, u64)>,
    /// The number of all processes.
    processes_all: u64,
}

#[derive(Serialize)]
struct Distributions {
    sites: Distribution,
    objects: Distribution,
}

#[derive(Serialize)]
struct EmbeddedImage {
    title: String,
    /// SVG as a data URL: an image cannot run scripts.
    image: String,
}

impl RunReport {
    /// The report on one trace. `page_share` runs share the budget of the page.
    pub(super) fn of(
        trace: &Trace,
        request: &ReportRequest,
        sizes: &[CacheSize],
        page_share: usize,
        progress: &dyn Progress,
    ) -> Result<RunReport> {
        let memory = placement::data_kind(trace) == Some(Target::Memory);
        // Pages of memory are not cached, so only placements are simulated for them.
        let (policies, sizes) = match (memory, request.own_policies) {
            (true, _) => (Vec::new(), &[][..]),
            (false, true) => (request.policies.clone(), sizes),
            (false, false) => (
                cache_analysis::supported_policies(request.policies.clone(), trace, progress),
                sizes,
            ),
        };
        let (placing, node_sizes) = (&request.placing, &request.sizes);
        let placed = PlacementAnalysis::of(trace, placing, node_sizes, MOVES_MAX, progress)?;
        let asked_sizes = !request.sizes.is_empty();
        let verdict = CacheAnalysis::of(
            trace,
            policies,
            sizes.to_vec(),
            asked_sizes,
            None,
            request.run_model,
            progress,
        )?;
        let curves = curves(trace, &verdict, request.points, progress)?;
        let cells = PICTURE_CELLS_MAX / page_share;
        let activity = Activity::of(trace, &verdict.stats, &verdict.caches, cells, progress)?;

        let sentences = sentences(trace, memory, &verdict, &placed);
        let in_question = call_stacks::caches_in_question(&verdict);
        let mut placements = json!({});
        placed.add_to(&mut placements, trace);

        let room = TABLE_BYTES_MAX / page_share;
        let CacheAnalysis {
            mut stats,
            advice,
            caches,
            sites,
            ..
        } = verdict;
        let distributions = Distributions {
            sites: Distribution::of(&stats.by_site),
            objects: Distribution::of(&stats.by_object),
        };
        let all = FullTables {
            sites: sites.clone(),
            objects: stats.by_object.clone(),
            references: stats.references,
            names_objects: trace.has_objects(),
        };
        let mut left_out = OmittedRows::of(&mut stats, room);

        let mut picture = activity.picture;
        let shown: FxHashSet<u32> = stats.by_object.iter().map(|row| row.number).collect();
        picture
            .objects
            .retain(|[object, ..]| shown.contains(object));
        let sites = sites.into_iter().take(stats.by_site.len());
        let sites: Vec<SiteRow> = sites
            .map(|site| SiteRow::of(site, &activity.of_sites))
            .collect();
        let numbers: Vec<u32> = sites.iter().map(|row| row.site.site).collect();
        let misses = call_stacks::misses(trace, &in_question, &numbers, progress)?;
        let stacks = CallStacks::of(trace, &numbers, misses, room / 4);
        let processes_all = activity.processes.len();
        let processes = rows_that_fit(activity.processes, room / 2);
        left_out.processes = (processes_all - processes.len()) as u64;
        let images_room = IMAGES_BYTES_MAX / page_share;
        let (drawings, drawings_left_out) = drawings(trace, &placed, images_room);
        let document = statistics(trace, &stats);
        Ok(RunReport {
            trace: trace_summary(trace),
            kind: kind_name(trace),
            started_unix_ns: trace.meta().started_unix_ns,
            machine: trace.meta().machine.clone(),
            apply: apply(trace, &advice),
            fits: fits(trace),
            advice,
            seen: Coverage::of(trace).map(|coverage| coverage.sentence()),
            lost: coverage::lost(&trace.meta().losses),
            sentences,
            bytes: document["bytes"].clone(),
            stats: document["stats"].clone(),
            left_out,
            sizes: caches.sizes().to_vec(),
            results: caches.into_iter().collect(),
            curves,
            sites,
            stacks,
            distributions,
            processes,
            picture,
            times: trace.reference_times(),
            placements: match placements["placements"].take() {
                Value::Array(results) => results,
                _ => Vec::new(),
            },
            placement_advice: placements["placement"].take(),
            drawings,
            drawings_left_out,
            all,
        })
    }
}

/// The kind of data of the trace, as the page names it.
fn kind_name(trace: &Trace) -> &'static str {
    match placement::data_kind(trace) {
        Some(Target::Memory) => "memory",
        Some(Target::Files) => "files",
        None => "blocks",
    }
}

/// The sentences at the top of the page.
fn sentences(
    trace: &Trace,
    memory: bool,
    caches: &CacheAnalysis,
    placed: &PlacementAnalysis,
) -> Vec<String> {
    let mut sentences = if !memory {
        caches.sentences(trace)
    } else if placed.results.is_empty() {
        vec![
            "Nothing says on how many nodes this ran: \
             --nodes simulates where the pages should be."
                .to_owned(),
        ]
    } else {
        Vec::new()
    };
    sentences.extend(placed.sentences().cloned());
    sentences
}

impl OmittedRows {
    /// Cuts the tables of call sites and files to the room on the page and counts the rows that are
    /// left out.
    fn of(stats: &mut Stats, room_bytes: usize) -> OmittedRows {
        let all = (stats.by_site.len(), stats.by_object.len());
        let by_site = std::mem::take(&mut stats.by_site);
        stats.by_site = rows_that_fit(by_site, room_bytes / 2);
        let by_object = std::mem::take(&mut stats.by_object);
        stats.by_object = most_used(by_object, room_bytes / 4 * 3);
        // The table of processes has the references of threads.
        stats.by_thread = Vec::new();
        OmittedRows {
            sites: (all.0 - stats.by_site.len()) as u64,
            objects: (all.1 - stats.by_object.len()) as u64,
            processes: 0,
        }
    }
}

impl SiteRow {
    fn of(site: CallSite, of_sites: &FxHashMap<u32, Vec<(u32, u64)>>) -> SiteRow {
        let processes = of_sites.get(&site.site).map_or(&[][..], Vec::as_slice);
        SiteRow {
            processes: processes.iter().copied().take(SITE_PROCESSES_MAX).collect(),
            processes_all: processes.len() as u64,
            site,
        }
    }
}

/// The curves of the policies that the verdict is based on.
fn curves(
    trace: &Trace,
    verdict: &CacheAnalysis,
    asked: Option<usize>,
    progress: &dyn Progress,
) -> Result<Vec<HitRatioCurve>> {
    // For a long trace, six sizes take about as long as the verdict. With those of the table they
    // still make a curve.
    let affordable = 60_000_000 / trace.references().max(1);
    let simulated = asked.unwrap_or(affordable.clamp(6, 16));
    let points = Points {
        simulated,
        exact: EXACT_CURVE_POINTS.max(simulated),
        spacing: Spacing::Linear,
    };
    let policies: Vec<Spec> = verdict.caches.policies().collect();
    let curves = in_passes(trace, &policies, simulated, progress, |policies, done| {
        let options = hither_sim::CacheOptions {
            progress: Some(done),
            ..hither_sim::CacheOptions::default()
        };
        Ok(hither_sim::curves(trace, policies, points, &options)?)
    })?;
    let curves = curves.iter().map(|curve| HitRatioCurve {
        policy: policy(&curve.policy),
        cache_blocks: curve.map(|outcome| outcome.cache_blocks).cells,
        hits: curve.map(|outcome| outcome.hits).cells,
        hit_ratio: curve.map(|outcome| outcome.hit_ratio).cells,
    });
    Ok(curves.collect())
}

/// The objects with most references and those with most bytes, in their order, so that many files
/// with small reads do not hide a few with large ones.
fn most_used(rows: Vec<RankedRow>, bytes: usize) -> Vec<RankedRow> {
    let mut by_bytes: Vec<usize> = (0..rows.len()).collect();
    by_bytes.sort_by_key(|&at| {
        let tally = &rows[at].tally;
        (
            std::cmp::Reverse(tally.read_bytes.saturating_add(tally.written_bytes)),
            at,
        )
    });
    let mut kept = vec![false; rows.len()];
    let mut left = bytes;
    // Alternately, so that neither order takes the room of the other.
    for at in (0..rows.len().min(ROWS_MAX / 2)).flat_map(|place| [place, by_bytes[place]]) {
        if !kept[at] {
            if !take_room(&rows[at], &mut left) {
                break;
            }
            kept[at] = true;
        }
    }
    let each = rows.into_iter().zip(kept);
    each.filter_map(|(row, kept)| kept.then_some(row)).collect()
}

/// Whether all files fit into the memory that the program had, as far as the trace says.
fn fits(trace: &Trace) -> bool {
    Relevance::of(trace).is_some_and(|relevance| relevance.fit)
}

/// The command line that applies the advice, if `hither run` can and the trace has the command. It
/// has no guard, as a plan has, so there is none where the files fit.
fn apply(trace: &Trace, advice: &CacheAdvice) -> Option<String> {
    if fits(trace) {
        return None;
    }
    let plan = advice.plan(trace.options().block_bytes.into())?;
    Some(verdict::command_line(&plan, &verdict::command_of(trace)?))
}

/// The drawings of placements that fit into `bytes`, and the number of those that do not.
fn drawings(trace: &Trace, placed: &PlacementAnalysis, bytes: usize) -> (Vec<EmbeddedImage>, u64) {
    if placed.results.is_empty() {
        return (Vec::new(), 0);
    }
    let mut left = bytes;
    let pictures = placement::Pictures::of(trace, &placed.results, &placed.running);
    let drawn = pictures.titles_and_svgs();
    let all = drawn.len();
    let drawings = drawn.into_iter().map(|(title, svg)| EmbeddedImage {
        title,
        image: format!("data:image/svg+xml;base64,{}", STANDARD.encode(svg)),
    });
    let kept: Vec<EmbeddedImage> = drawings
        .filter(|drawing| take_room(drawing, &mut left))
        .collect();
    let left_out = (all - kept.len()) as u64;
    (kept, left_out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_few_references_and_many_bytes_is_kept() {
        let row = |number: u32| RankedRow {
            number,
            name: format!("file {number}"),
            references: 10_000 - u64::from(number),
            share: 0.0,
            blocks: 1,
            tally: hither_trace::RequestCounts {
                read_bytes: u64::from(number),
                ..Default::default()
            },
        };
        let rows = most_used((0..5000).map(row).collect(), 1 << 20);
        assert_eq!(rows.len(), ROWS_MAX);
        assert!(rows.is_sorted_by_key(|row| row.number));
        assert_eq!((rows[0].number, rows[ROWS_MAX - 1].number), (0, 4999));
        assert!(most_used((0..5000).map(row).collect(), 1000).len() < 10);
    }
}
