//! Runs the simulator for a command: with progress, profiles of call sites, tables of the results
//! and a summary of the trace.

use std::path::Path;

use hither_core::Spec;
use hither_core::replacement::SiteRecord;
use hither_sim::readahead::{Reads, WINDOW_BYTES};
use hither_sim::sample::QUANTILE;
use hither_sim::{CacheConfiguration, CacheOptions, CacheOutcome, CacheSize, Grid, Row, Size};
use hither_trace::schema::{ObjectKind, ObjectRow};
use hither_trace::{Stats, Trace};
use serde_json::json;

use crate::coverage::Coverage;
use crate::format::{bytes, count, percent, policy};
use crate::free_memory::half_of_free_bytes;
use crate::profile;
use crate::progress::Progress;
use crate::relevance::Relevance;
use crate::table::{Align, Table};
use crate::{Error, Result};

/// Simulates every policy at every size. The file `profile` is read before and updated after. With
/// `readahead` the reads are counted, too, for windows of up to so many blocks.
pub fn simulate_with_profile(
    trace: &Trace,
    policies: &[Spec],
    sizes: Vec<CacheSize>,
    profile: Option<&Path>,
    readahead: Option<u32>,
    progress: &dyn Progress,
) -> Result<Grid> {
    let is_memory = |object: &ObjectRow| object.kind == ObjectKind::Memory;
    if readahead.is_some() && trace.objects().iter().any(is_memory) {
        let problem = "readahead is of files, and this trace has regions of memory";
        return Err(Error::Usage(problem.to_owned()));
    }
    let known = load_profile(trace, profile)?;
    let options = CacheOptions {
        sites: &known,
        readahead,
        ..CacheOptions::default()
    };
    let grid = caches(trace, policies, sizes, &options, progress)?;
    save_profile(trace, &grid, profile, progress)?;
    Ok(grid)
}

/// The known call sites in the file `profile`; none if there is no file.
pub fn load_profile(trace: &Trace, profile: Option<&Path>) -> Result<Vec<SiteRecord>> {
    let known = profile
        .map(|path| profile::load_for_trace(path, trace))
        .transpose()?;
    Ok(known.unwrap_or_default())
}

/// The largest window of the kernel's readahead where a trace was recorded, in blocks of the trace.
pub fn readahead_window(trace: &Trace) -> u32 {
    let recorded = trace.meta().seen.map_or(0, |seen| seen.readahead_bytes);
    let bytes = match recorded {
        0 => u64::from(WINDOW_BYTES),
        recorded => recorded,
    };
    readahead_blocks(trace, bytes)
}

/// A largest window of so many bytes, in blocks.
pub fn readahead_blocks(trace: &Trace, bytes: u64) -> u32 {
    let blocks = bytes / u64::from(trace.options().block_bytes);
    u32::try_from(blocks).unwrap_or(u32::MAX).max(1)
}

/// Simulates every policy at every size, with these options but for the progress.
pub fn caches(
    trace: &Trace,
    policies: &[Spec],
    sizes: Vec<CacheSize>,
    options: &CacheOptions<'_>,
    progress: &dyn Progress,
) -> Result<Grid> {
    let rows = in_passes(trace, policies, sizes.len(), progress, |policies, done| {
        let row = |&policy: &Spec| Row {
            policy,
            cells: sizes.iter().map(|size| size.blocks).collect(),
        };
        let options = CacheOptions {
            progress: Some(done),
            cancel: progress.cancelled(),
            ..*options
        };
        let rows: Vec<Row<u32>> = policies.iter().map(row).collect();
        Ok(Row::run(&rows, trace, &options)?)
    })?;
    Ok(Grid::new(sizes, rows))
}

/// The misses of one cache by call site, by its number. The file `profile` is read.
pub fn misses_by_site(
    trace: &Trace,
    cache: CacheConfiguration,
    profile: Option<&Path>,
    progress: &dyn Progress,
) -> Result<Vec<u64>> {
    let known = load_profile(trace, profile)?;
    let bar = progress.begin("simulating", Some(trace.references() as u64));
    let options = CacheOptions {
        sites: &known,
        progress: Some(&|done| bar.set_position(done)),
        ..CacheOptions::default()
    };
    Ok(hither_sim::misses_by_site(trace, cache, &options)?)
}

/// Writes what was learnt of call sites to the file `profile`, if there is one.
pub fn save_profile(
    trace: &Trace,
    grid: &Grid,
    profile: Option<&Path>,
    progress: &dyn Progress,
) -> Result<()> {
    if let Some(path) = profile {
        match learnt(grid) {
            Some(learnt) => profile::save_for_trace(path, trace, learnt)?,
            None => progress.note(format_args!(
                "none of these policies learns about call sites: --profile is left as it was"
            )),
        }
    }
    Ok(())
}

/// What was learnt of call sites.
pub(crate) fn learnt(grid: &Grid) -> Option<&[SiteRecord]> {
    grid.cells().find_map(|outcome| outcome.sites.as_deref())
}

/// The memory of a simulated cache for each distinct block of the trace. The mean over `arc`,
/// `dear`, `ubm` and `pcc` of all sizes was 30 bytes (3.6 million blocks, 64 caches, 2026-11).
pub(crate) const CACHE_BYTES_PER_BLOCK: u64 = 32;

/// Runs policies with `caches` caches each, in one pass over the trace, or in several if all caches
/// would take more than half of the free memory. Caches share no state, so the results are the
/// same. There is one result for each policy.
pub fn in_passes<T>(
    trace: &Trace,
    policies: &[Spec],
    caches: usize,
    progress: &dyn Progress,
    run: impl Fn(&[Spec], &(dyn Fn(u64) + Sync)) -> Result<Vec<T>>,
) -> Result<Vec<T>> {
    let each = CACHE_BYTES_PER_BLOCK * (trace.blocks().max(1) * caches.max(1)) as u64;
    let at_once = usize::try_from(half_of_free_bytes() / each).unwrap_or(usize::MAX);
    in_groups(trace, policies, at_once, progress, run)
}

/// Runs `at_once` of the policies in a pass, at least one.
fn in_groups<T>(
    trace: &Trace,
    policies: &[Spec],
    at_once: usize,
    progress: &dyn Progress,
    run: impl Fn(&[Spec], &(dyn Fn(u64) + Sync)) -> Result<Vec<T>>,
) -> Result<Vec<T>> {
    let groups = || policies.chunks(at_once.clamp(1, policies.len().max(1)));
    let references = trace.references() as u64;
    let bar = progress.begin("simulating", Some(references * groups().len() as u64));
    let mut results = Vec::new();
    for (group, policies) in groups().enumerate() {
        let before = references * group as u64;
        results.extend(run(policies, &|done| bar.set_position(before + done))?);
    }
    drop(bar);
    Ok(results)
}

/// A table of the hit ratio of each policy at each size.
pub fn hit_ratios(grid: &Grid, block_bytes: u64) -> String {
    let ratios = grid.map(|outcome| match outcome.estimate {
        None => Ratio::Exact(outcome.hit_ratio),
        Some(estimate) if estimate.refused.is_some() => Ratio::Refused,
        Some(estimate) => Ratio::Estimate(outcome.hit_ratio, estimate.standard_error),
    });
    ratio_table("hit ratio", &ratios, block_bytes)
}

/// Tables of how often the disk was asked and of how much it read, if that was simulated.
pub fn reads(grid: &Grid, block_bytes: u64) -> String {
    let table = |head: &str, cell: &dyn Fn(&Reads) -> String| {
        let cells = grid.map(|outcome| outcome.reads.as_ref().map_or_else(String::new, cell));
        format!("\n{}", table_of(head, &cells, block_bytes))
    };
    if grid.cells().all(|outcome| outcome.reads.is_none()) {
        return String::new();
    }
    let requests = table("requests to the disk", &|reads| count(reads.requests));
    let read = table("read from the disk", &|reads| {
        bytes(reads.blocks * block_bytes)
    });
    requests + &read
}

/// A line for each refused estimate, with the reason.
pub fn refusals(grid: &Grid) -> String {
    let of_row = |row: &Row| {
        let cells = grid.sizes().iter().zip(&row.cells);
        let refused = cells.filter_map(|(size, outcome)| {
            let (name, size) = (policy(&row.policy), size.written);
            let reason = outcome.estimate?.refused?;
            Some(format!("{name} at {size} is refused: {reason}\n"))
        });
        refused.collect::<String>()
    };
    grid.rows().iter().map(of_row).collect()
}

/// The outcomes as JSON. A refused estimate has no counts.
pub fn outcome_documents<'a>(
    outcomes: impl IntoIterator<Item = &'a CacheOutcome>,
) -> Result<Vec<serde_json::Value>> {
    let document = |outcome: &CacheOutcome| {
        let mut document = serde_json::to_value(outcome)?;
        if outcome.is_refused() {
            for count in ["hits", "misses", "hit_ratio"] {
                document[count] = serde_json::Value::Null;
            }
        }
        Ok(document)
    };
    outcomes.into_iter().map(document).collect()
}

/// A hit ratio or miss ratio, from 0 to 1.
pub enum Ratio {
    /// Of the whole trace.
    Exact(f64),
    /// From a sample, with the standard error if that is known.
    Estimate(f64, Option<f64>),
    /// A sample does not show it.
    Refused,
}

impl Ratio {
    /// As tables have it.
    pub(crate) fn text(&self) -> String {
        match *self {
            Ratio::Exact(ratio) => percent(ratio),
            Ratio::Estimate(ratio, None) => format!("{} ± ?", percent(ratio)),
            Ratio::Estimate(ratio, Some(error)) => {
                format!("{} ± {}", percent(ratio), percent(QUANTILE * error))
            }
            Ratio::Refused => "refused".to_owned(),
        }
    }
}

/// A table of ratios with a row for each policy and a column for each size.
pub fn ratio_table(head: &str, ratios: &Grid<Ratio>, block_bytes: u64) -> String {
    table_of(head, &ratios.map(Ratio::text), block_bytes)
}

/// A table with a row for each policy and a column for each size.
fn table_of(head: &str, cells: &Grid<String>, block_bytes: u64) -> String {
    let heads = cells.sizes().iter().map(|size| {
        let in_bytes = bytes(u64::from(size.blocks) * block_bytes);
        (format!("{} ({in_bytes})", size.written), Align::Right)
    });
    let mut table = Table::new([(head.to_owned(), Align::Left)].into_iter().chain(heads));
    for row in cells.rows() {
        table.row([policy(&row.policy)].into_iter().chain(row.cells.clone()));
    }
    table.render()
}

/// The sizes where none are named: shares of all distinct blocks, or bytes.
pub(crate) const DEFAULT_SIZES: [Size; 5] = [
    Size::Percent(5.0),
    Size::Percent(10.0),
    Size::Percent(25.0),
    Size::Percent(50.0),
    Size::Percent(75.0),
];

/// The cache sizes that the user wrote. By default they are five shares of the distinct blocks.
pub fn sizes(named: &[Size], block_bytes: u64, distinct: u64) -> Result<Vec<CacheSize>> {
    let sizes = if named.is_empty() {
        &DEFAULT_SIZES
    } else {
        named
    };
    let mut found = Vec::new();
    for &written in sizes {
        match written.blocks(block_bytes, distinct) {
            Ok(blocks) => found.push(CacheSize { written, blocks }),
            // A small trace may have no block for some of the default shares.
            Err(_) if named.is_empty() => {}
            Err(error) => return Err(Error::Usage(error.to_string())),
        }
    }
    Ok(found)
}

/// Whether these sizes mean caches of bytes, where objects have sizes: one is in bytes.
pub fn are_of_bytes(sizes: &[Size]) -> bool {
    sizes.iter().any(|size| matches!(size, Size::Bytes(_)))
}

/// Refuses sizes in bytes for what simulates blocks, where objects have sizes.
pub fn refuse_bytes(sizes: &[Size], trace: &Trace) -> Result<()> {
    if trace.says_sizes() && are_of_bytes(sizes) {
        let problem = "this trace has objects of every size, whose caches in bytes `hither sim` \
                       and `hither sweep` simulate; here a size is a number of objects (512) or a \
                       part of them (10%)";
        return Err(Error::Usage(problem.to_owned()));
    }
    Ok(())
}

/// The sizes to advise on. By default these are five shares of the distinct blocks, and the memory
/// that a recorded program had, if its files do not fit into it.
pub fn sizes_to_advise_on(named: &[Size], trace: &Trace) -> Result<Vec<CacheSize>> {
    refuse_bytes(named, trace)?;
    let block_bytes = u64::from(trace.options().block_bytes);
    let found = sizes(named, block_bytes, trace.blocks_of_all())?;
    Ok(with_own_memory(found, named, trace))
}

/// These sizes and, where none was named, the memory that the recorded program had.
pub(crate) fn with_own_memory(
    mut found: Vec<CacheSize>,
    named: &[Size],
    trace: &Trace,
) -> Vec<CacheSize> {
    let block_bytes = u64::from(trace.options().block_bytes);
    let memory = Relevance::of(trace).and_then(|relevance| relevance.size_bytes());
    if let (true, Some(bytes)) = (named.is_empty(), memory)
        && let Ok(blocks) = u32::try_from(bytes / block_bytes)
    {
        let written = Size::Bytes(bytes);
        found.push(CacheSize { written, blocks });
        found.sort_by_key(|size| size.blocks);
    }
    found
}

/// The summary of the trace in a JSON result.
pub fn trace_summary(trace: &Trace) -> serde_json::Value {
    let meta = trace.meta();
    let mut summary = json!({
        "path": trace.path().to_string_lossy(),
        "format": trace.format(),
        "sha256": trace.sha256(),
        "hither": env!("CARGO_PKG_VERSION"),
        "command": meta.command,
        "references": trace.references_of_all(),
        "distinct_blocks": trace.blocks_of_all(),
        "block_bytes": trace.options().block_bytes,
        "loaded_with": trace.options(),
        "skipped": trace.counts().skipped,
        "losses": meta.losses,
        "coverage": Coverage::of(trace),
        "memory": Relevance::of(trace),
    });
    if trace.has_sizes() {
        summary["objects"] = json!({
            "distinct_bytes": trace.distinct_bytes_of_all(),
            "bytes": trace.bytes_of_all(),
            "deletes": trace.deletes_of_all(),
        });
    }
    summary
}

/// The statistics of a trace as `stat --json` prints them and a report has them.
pub fn statistics(trace: &Trace, stats: &Stats) -> serde_json::Value {
    let total = stats.counts.total;
    json!({
        "trace": trace_summary(trace),
        "bytes": {
            "read": total.read_bytes,
            "written": total.written_bytes,
            "in_kernel": total.in_kernel_bytes,
            "mapped": total.mapped_bytes,
        },
        "stats": stats,
    })
}

#[cfg(test)]
mod tests {
    use hither_trace::LoadOptions;

    use super::*;

    /// Where memory is short, policies run in several passes with the same results.
    #[test]
    fn several_passes_give_what_one_gives() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let block = |tick: u64| match tick % 3 {
            0 => tick % 500,
            _ => 1000 + tick * tick % 700,
        };
        let lines: String = (0..20_000)
            .map(|tick| format!("{}\n", block(tick)))
            .collect();
        std::fs::write(file.path(), lines).unwrap();
        let trace = Trace::load(file.path(), None, &LoadOptions::default()).unwrap();
        let policies = Spec::parse_list("lru,arc,ubm,lirs,opt").unwrap();
        let passes = |at_once: usize| {
            let calls = std::cell::Cell::new(0);
            let outcomes = in_groups(
                &trace,
                &policies,
                at_once,
                &crate::progress::Silent,
                |policies, done| {
                    calls.set(calls.get() + 1);
                    assert!(policies.len() <= at_once.max(1));
                    let row = |&policy: &Spec| Row {
                        policy,
                        cells: vec![50, 200, 400],
                    };
                    let rows: Vec<Row<u32>> = policies.iter().map(row).collect();
                    let options = CacheOptions {
                        progress: Some(done),
                        segments: 4,
                        ..CacheOptions::default()
                    };
                    Ok(Row::run(&rows, &trace, &options)?)
                },
            );
            (calls.get(), outcomes.unwrap())
        };
        let (calls, whole) = passes(usize::MAX);
        assert_eq!((calls, whole.len()), (1, 5));
        for (at_once, expected) in [(0, 5), (1, 5), (2, 3), (4, 2)] {
            let (calls, outcomes) = passes(at_once);
            assert_eq!(calls, expected, "{at_once} at once");
            assert_eq!(outcomes, whole, "{at_once} at once");
        }
    }
}
