//! One run in a report: what the other commands say of it, and what was gathered besides, cut to
//! what a page can hold.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hither_core::placement::Target;
use hither_sim::{CacheOutcome, Points, Size, Spacing};
use hither_trace::schema::Machine;
use hither_trace::{RankedRow, Stats, Trace};
use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;
use serde_json::{Value, json};

use super::ReportRequest;
use super::access_picture::AccessPicture;
use super::activity::{Activity, Process};
use super::distribution::Distribution;
use crate::Result;
use crate::advice::CacheAdvice;
use crate::cache_analysis::{self, CacheAnalysis, CallSite};
use crate::format::policy;
use crate::placement::{self, PlacementAnalysis};
use crate::progress::Progress;
use crate::simulate::{in_passes, statistics, trace_summary};

/// What a table of a page may take, in bytes of JSON; two runs share it. At worst that is half of
/// it for the call sites' counts and some three times as much for what is known of them, three
/// quarters for files, half for processes, half for what two runs compare: with the drawings, the
/// picture, the library and the scripts a page stays below 10 MiB.
pub(super) const TABLE_BYTES: usize = 1 << 20;
const DRAWINGS_BYTES: usize = 1 << 20;

/// Cells of the picture of a page: less than 5 MiB at worst, where references are random and each
/// cell has another call site.
const CELLS_MAX: usize = 1 << 20;

/// The most rows of a table.
const ROWS_MAX: usize = 2000;

/// Points of a curve that costs nothing more for more of them.
const EXACT_POINTS: usize = 200;

/// A run.
#[derive(Serialize)]
pub(super) struct RunReport {
    /// As in `stat --json` and `sim --json`.
    pub(super) trace: Value,
    kind: &'static str,
    started_unix_ns: u64,
    machine: Machine,
    pub(super) advice: CacheAdvice,
    /// FullTables that is to be said first, the advice included.
    sentences: Vec<String>,
    /// A command line that does what is advised.
    apply: Option<String>,
    /// As in `stat --json`, but for the rows that `left_out` counts and for the threads'
    /// references, which stand with `processes`.
    pub(super) bytes: Value,
    pub(super) stats: Value,
    left_out: LeftOut,
    sizes: Vec<CacheSize>,
    /// As in `sim --json`: by policy, then by size.
    pub(super) results: Vec<CacheOutcome>,
    curves: Vec<Curve>,
    pub(super) sites: Vec<Site>,
    distributions: Distributions,
    processes: Vec<Process>,
    picture: AccessPicture,
    /// As in `sim --nodes --json`.
    placements: Vec<Value>,
    placement_advice: Value,
    drawings: Vec<Drawing>,
    /// Drawings that the page has no room for.
    drawings_left_out: u64,
    /// What comparing needs of all rows; not on the page.
    #[serde(skip)]
    pub(super) all: FullTables,
}

/// Every call site and file, also those that the page leaves out.
pub(super) struct FullTables {
    pub(super) sites: Vec<CallSite>,
    pub(super) objects: Vec<RankedRow>,
    pub(super) references: u64,
    pub(super) names_objects: bool,
}

/// How many rows of each table are not on the page.
#[derive(Serialize)]
struct LeftOut {
    sites: u64,
    objects: u64,
    processes: u64,
}

/// A size as it was written, and in blocks.
#[derive(Serialize)]
struct CacheSize {
    size: String,
    cache_blocks: u32,
}

/// Hits of one policy by cache size: what `sim --size N` gives at each.
#[derive(Serialize)]
struct Curve {
    policy: String,
    cache_blocks: Vec<u32>,
    hits: Vec<u64>,
    hit_ratio: Vec<f64>,
}

/// A call site as `advise --json` has it, and the processes that made its references, those with
/// most of them first.
#[derive(Serialize)]
pub(super) struct Site {
    #[serde(flatten)]
    pub(super) site: CallSite,
    /// Number and references, four at most.
    processes: Vec<(u32, u64)>,
    processes_all: u64,
}

#[derive(Serialize)]
struct Distributions {
    sites: Distribution,
    objects: Distribution,
}

#[derive(Serialize)]
struct Drawing {
    title: String,
    /// SVG as a data URL: an image runs no script, whatever is in it.
    image: String,
}

impl RunReport {
    /// Everything about one trace; `share` runs are on the page.
    pub(super) fn of(
        trace: &Trace,
        asked: &ReportRequest,
        sizes: &[(Size, u32)],
        share: usize,
        progress: &dyn Progress,
    ) -> Result<RunReport> {
        let memory = placement::data_kind(trace) == Some(Target::Memory);
        // Pages of memory are not cached: for them, where they are is all there is to simulate.
        let (policies, sizes) = match (memory, asked.own_policies) {
            (true, _) => (Vec::new(), &[][..]),
            (false, true) => (asked.policies.clone(), sizes),
            (false, false) => (
                cache_analysis::supported_policies(asked.policies.clone(), trace, progress),
                sizes,
            ),
        };
        let placed = PlacementAnalysis::of(trace, &asked.placing, &asked.sizes, 100_000, progress)?;
        let asked_sizes = !asked.sizes.is_empty();
        let verdict =
            CacheAnalysis::of(trace, policies, sizes.to_vec(), asked_sizes, None, progress)?;
        let curves = curves(trace, &verdict, asked.points, progress)?;
        let cells = CELLS_MAX / share;
        let activity = Activity::of(trace, &verdict.stats, &verdict.policies, cells, progress)?;

        let sentences = sentences(trace, memory, &verdict, &placed);
        let mut placements = json!({});
        placed.add_to(&mut placements, trace);

        let room = TABLE_BYTES / share;
        let CacheAnalysis {
            mut stats,
            advice,
            outcomes,
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
        let mut left_out = LeftOut::of(&mut stats, room);

        let mut picture = activity.picture;
        let shown: FxHashSet<u32> = stats.by_object.iter().map(|row| row.number).collect();
        picture
            .objects
            .retain(|[object, ..]| shown.contains(object));
        let sites = sites.into_iter().take(stats.by_site.len());
        let sites = sites
            .map(|site| Site::of(site, &activity.of_sites))
            .collect();
        let processes_all = activity.processes.len();
        let processes = rows_that_fit(activity.processes, room / 2);
        left_out.processes = (processes_all - processes.len()) as u64;
        let (drawings, drawings_left_out) = drawings(trace, &placed, DRAWINGS_BYTES / share);
        let document = statistics(trace, &stats);
        Ok(RunReport {
            trace: trace_summary(trace),
            kind: kind_name(trace),
            started_unix_ns: trace.meta().started_unix_ns,
            machine: trace.meta().machine.clone(),
            apply: apply(trace, &advice),
            advice,
            sentences,
            bytes: document["bytes"].clone(),
            stats: document["stats"].clone(),
            left_out,
            sizes: sizes
                .iter()
                .map(|&(size, cache_blocks)| CacheSize {
                    size: size.to_string(),
                    cache_blocks,
                })
                .collect(),
            results: outcomes,
            curves,
            sites,
            distributions,
            processes,
            picture,
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

/// What the trace is of, as the page names it.
fn kind_name(trace: &Trace) -> &'static str {
    match placement::data_kind(trace) {
        Some(Target::Memory) => "memory",
        Some(Target::Files) => "files",
        None => "blocks",
    }
}

/// All that is to be said first.
fn sentences(
    trace: &Trace,
    memory: bool,
    caches: &CacheAnalysis,
    placed: &PlacementAnalysis,
) -> Vec<String> {
    let mut sentences = match memory {
        true if placed.cases.is_empty() => vec![
            "Nothing says on how many nodes this ran: \
             --nodes simulates where the pages should be."
                .to_owned(),
        ],
        true => Vec::new(),
        false => caches.sentences(trace),
    };
    sentences.extend(placed.sentences().cloned());
    sentences
}

impl LeftOut {
    /// Cuts the tables of call sites and files to what a page has room for, and counts what goes.
    fn of(stats: &mut Stats, room_bytes: usize) -> LeftOut {
        let all = (stats.by_site.len(), stats.by_object.len());
        let by_site = std::mem::take(&mut stats.by_site);
        stats.by_site = rows_that_fit(by_site, room_bytes / 2);
        let by_object = std::mem::take(&mut stats.by_object);
        stats.by_object = most_used(by_object, room_bytes / 4 * 3);
        // The processes have them.
        stats.by_thread = Vec::new();
        LeftOut {
            sites: (all.0 - stats.by_site.len()) as u64,
            objects: (all.1 - stats.by_object.len()) as u64,
            processes: 0,
        }
    }
}

impl Site {
    fn of(site: CallSite, of_sites: &FxHashMap<u32, Vec<(u32, u64)>>) -> Site {
        let processes = of_sites.get(&site.site).map_or(&[][..], Vec::as_slice);
        Site {
            processes: processes.iter().copied().take(4).collect(),
            processes_all: processes.len() as u64,
            site,
        }
    }
}

/// The curves of the policies that the verdict goes by.
fn curves(
    trace: &Trace,
    verdict: &CacheAnalysis,
    asked: Option<usize>,
    progress: &dyn Progress,
) -> Result<Vec<Curve>> {
    // Six sizes of a long trace take about as long as the verdict does; with those of the table
    // they still show a curve.
    let affordable = 60_000_000 / trace.references().max(1);
    let simulated = asked.unwrap_or(affordable.clamp(6, 16));
    let points = Points {
        simulated,
        exact: EXACT_POINTS.max(simulated),
        spacing: Spacing::Linear,
    };
    let curves = in_passes(
        trace,
        &verdict.policies,
        simulated,
        progress,
        |policies, done| {
            let options = hither_sim::CacheOptions {
                progress: Some(done),
                ..hither_sim::CacheOptions::default()
            };
            Ok(hither_sim::curves(trace, policies, points, &options)?)
        },
    )?;
    let curves = curves.iter().map(|curve| Curve {
        policy: policy(&curve.spec),
        cache_blocks: curve
            .outcomes
            .iter()
            .map(|outcome| outcome.cache_blocks)
            .collect(),
        hits: curve.outcomes.iter().map(|outcome| outcome.hits).collect(),
        hit_ratio: curve
            .outcomes
            .iter()
            .map(|outcome| outcome.hit_ratio)
            .collect(),
    });
    Ok(curves.collect())
}

/// As many of the first rows as a page has room for.
pub(super) fn rows_that_fit<T: Serialize>(mut rows: Vec<T>, bytes: usize) -> Vec<T> {
    let mut left = bytes;
    let fits = rows
        .iter()
        .take(ROWS_MAX)
        .take_while(|row| take_room(row, &mut left));
    let kept = fits.count();
    rows.truncate(kept);
    rows
}

/// Takes the room for a row, if it is there.
fn take_room(row: &impl Serialize, left: &mut usize) -> bool {
    let length = serde_json::to_string(row).map_or(0, |text| text.len());
    let rest = left.checked_sub(length);
    *left = rest.unwrap_or(*left);
    rest.is_some()
}

/// The objects with most references and those that moved most bytes, as they were sorted: large
/// reads of a few files are not to be hidden by many small ones.
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
    // In turns, so that neither order takes the room of the other.
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

/// What does what is advised, where a run can and the trace says which command it is of.
fn apply(trace: &Trace, advice: &CacheAdvice) -> Option<String> {
    let plan = advice.plan(trace.options().block_bytes.into())?;
    let (policy, cache) = (quoted(&plan.page_cache?), plan.cache?);
    let command = &trace.meta().command;
    let words: Vec<String> = command.iter().map(|word| quoted(word)).collect();
    let words = words.join(" ");
    let switches = format!("--page-cache={policy} --cache {cache}");
    (!command.is_empty()).then(|| format!("hither run {switches} -- {words}"))
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// Who served whom, what moved and what happened over time, as far as there is room; and how many
/// drawings there was none for.
fn drawings(trace: &Trace, placed: &PlacementAnalysis, bytes: usize) -> (Vec<Drawing>, u64) {
    if placed.cases.is_empty() {
        return (Vec::new(), 0);
    }
    let mut left = bytes;
    let drawn =
        placement::Pictures::of(trace, &placed.cases, &placed.outcomes, &placed.running).all();
    let all = drawn.len();
    let drawings = drawn.into_iter().map(|(title, svg)| Drawing {
        title,
        image: format!("data:image/svg+xml;base64,{}", STANDARD.encode(svg)),
    });
    let kept: Vec<Drawing> = drawings
        .filter(|drawing| take_room(drawing, &mut left))
        .collect();
    let left_out = (all - kept.len()) as u64;
    (kept, left_out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quoted("/usr/bin/grep"), "/usr/bin/grep");
        assert_eq!(quoted("it's $HOME"), r"'it'\''s $HOME'");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("pcc{sample=5}"), "'pcc{sample=5}'");
    }

    #[test]
    fn rows_stop_where_room_does() {
        assert_eq!(rows_that_fit(vec!["aaaa", "b", "c"], 9), ["aaaa", "b"]);
        assert_eq!(
            rows_that_fit(vec![0; 3 * ROWS_MAX], 1 << 20).len(),
            ROWS_MAX
        );
    }

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
