//! The comparison of two runs. Call sites are matched by signature. A rebuilt program has other
//! signatures; then call sites are matched by their full label. Files are matched by path.

use std::collections::BTreeMap;

use hither_core::classify::Class;
use hither_sim::CacheOutcome;
use serde::Serialize;

use super::room::rows_that_fit;
use super::run::{RunReport, TABLE_BYTES_MAX};
use crate::cache_analysis::CallSite;
use crate::format::{bytes, count, percent, shortened};

/// The most rows of a table of changes.
const ROWS_MAX: usize = 500;

/// The differences between two runs.
#[derive(Serialize)]
pub(super) struct Comparison {
    sentences: Vec<String>,
    figures: Vec<ComparedMetric>,
    caches: Vec<ComparedCache>,
    /// The call sites, largest change first.
    sites: Vec<ComparedRow>,
    /// The files, largest change first.
    files: Vec<ComparedRow>,
    /// The number of rows of each that are not listed.
    sites_left_out: u64,
    files_left_out: u64,
}

/// A number of both runs.
#[derive(Serialize)]
struct ComparedMetric {
    name: &'static str,
    /// The unit: `count`, `bytes`, `share` or `ns`.
    unit: &'static str,
    a: f64,
    b: f64,
}

/// The same cache in both runs.
#[derive(Serialize)]
struct ComparedCache {
    policy: &'static str,
    cache_blocks: u32,
    a: CacheHits,
    b: CacheHits,
}

#[derive(Serialize)]
struct CacheHits {
    hit_ratio: f64,
    misses: u64,
}

/// A call site or a file. It has 0 references in a run without it.
#[derive(Serialize)]
struct ComparedRow {
    name: String,
    a: RunSide,
    b: RunSide,
    /// The share of the references in B, less that in A.
    change: f64,
}

#[derive(Clone, Copy, Default, Serialize)]
struct RunSide {
    references: u64,
    share: f64,
    class: Option<Class>,
    blocks: u64,
}

impl Comparison {
    pub(super) fn of(a: &RunReport, b: &RunReport) -> Comparison {
        let figures = figures(a, b);
        let caches: Vec<ComparedCache> = a
            .results
            .iter()
            .filter_map(|of_a| Some(cache(of_a, same_cache(of_a, &b.results)?)))
            .collect();
        let (sites, matched) = compared_sites(a, b);
        let files = compared_files(a, b);
        let mut sentences = vec![volume(a, b)];
        sentences.extend(storage(&caches, a));
        if !a.all.sites.is_empty() && !b.all.sites.is_empty() && !matched {
            sentences.push(
                "No call site is in both: these are different programs, \
                 or different builds without symbols."
                    .to_owned(),
            );
        } else if let Some(most) = sites.first().filter(|pair| pair.change.abs() >= 0.01) {
            sentences.push(format!(
                "The call site that changed most is {}: {} of the references in A, {} in B.",
                shortened(&most.name, 90),
                percent(most.a.share),
                percent(most.b.share)
            ));
        }
        let all = (sites.len(), files.len());
        let [sites, files] = [sites, files].map(|mut pairs| {
            pairs.truncate(ROWS_MAX);
            rows_that_fit(pairs, TABLE_BYTES_MAX / 4)
        });
        Comparison {
            sentences,
            figures,
            caches,
            sites_left_out: (all.0 - sites.len()) as u64,
            files_left_out: (all.1 - files.len()) as u64,
            sites,
            files,
        }
    }
}

fn figures(a: &RunReport, b: &RunReport) -> Vec<ComparedMetric> {
    let stat = |name: &'static str, path: &'static str, unit: &'static str| {
        let of = |run: &RunReport| run.stats.pointer(path).and_then(serde_json::Value::as_f64);
        ComparedMetric {
            name,
            unit,
            a: of(a).unwrap_or(0.0),
            b: of(b).unwrap_or(0.0),
        }
    };
    vec![
        stat("references", "/references", "count"),
        stat("distinct blocks", "/blocks", "count"),
        stat("footprint", "/footprint_bytes", "bytes"),
        stat("first uses", "/reuse/cold", "count"),
        stat("requests", "/counts/total/requests", "count"),
        stat("sequential requests", "/sequential_share", "share"),
        stat("bytes read", "/counts/total/read_bytes", "bytes"),
        stat("bytes written", "/counts/total/written_bytes", "bytes"),
        stat("bytes mapped", "/counts/total/mapped_bytes", "bytes"),
        stat("files", "/objects", "count"),
        stat("call sites", "/sites", "count"),
        stat("processes", "/processes", "count"),
        stat("threads", "/threads", "count"),
        stat("last access", "/counts/last_ns", "ns"),
    ]
}

fn same_cache<'a>(of: &CacheOutcome, among: &'a [CacheOutcome]) -> Option<&'a CacheOutcome> {
    among
        .iter()
        .find(|other| (other.spec, other.cache_blocks) == (of.spec, of.cache_blocks))
}

fn cache(a: &CacheOutcome, b: &CacheOutcome) -> ComparedCache {
    let hits = |outcome: &CacheOutcome| CacheHits {
        hit_ratio: outcome.hit_ratio,
        misses: outcome.misses,
    };
    ComparedCache {
        policy: a.spec.entry().name,
        cache_blocks: a.cache_blocks,
        a: hits(a),
        b: hits(b),
    }
}

/// `12.3 % more` or `as many`.
fn more(a: u64, b: u64) -> String {
    let change = (b as f64 - a as f64) / a.max(1) as f64;
    match a {
        _ if a == b => "as many".to_owned(),
        0 => format!("{} more", count(b)),
        _ if change > 0.0 => format!("{} more", percent(change)),
        _ => format!("{} fewer", percent(-change)),
    }
}

fn volume(a: &RunReport, b: &RunReport) -> String {
    let number = |run: &RunReport, name: &str| run.stats[name].as_u64().unwrap_or(0);
    let (of_a, of_b) = (number(a, "references"), number(b, "references"));
    let (blocks_a, blocks_b) = (number(a, "blocks"), number(b, "blocks"));
    format!(
        "B makes {} references {} A ({} against {}), to {} distinct blocks ({} against {}).",
        more(of_a, of_b),
        if of_a == of_b { "as" } else { "than" },
        count(of_b),
        count(of_a),
        more(blocks_a, blocks_b),
        count(blocks_b),
        count(blocks_a)
    )
}

/// The bytes that both runs read from storage under LRU, at the size at which they differ most.
fn storage(caches: &[ComparedCache], run: &RunReport) -> Option<String> {
    let lru = caches.iter().filter(|cache| cache.policy == "lru");
    let most = lru.max_by_key(|cache| cache.a.misses.abs_diff(cache.b.misses))?;
    let block_bytes = run.trace["block_bytes"].as_u64()?;
    let size = bytes(u64::from(most.cache_blocks) * block_bytes);
    let (a, b) = (most.a.misses * block_bytes, most.b.misses * block_bytes);
    Some(if a == b {
        format!(
            "With LRU both read the same from storage at every size: {} in a cache of {size}.",
            bytes(a)
        )
    } else {
        format!(
            "With LRU in a cache of {size}, B reads {} from storage and A {}: {} blocks.",
            bytes(b),
            bytes(a),
            more(most.a.misses, most.b.misses)
        )
    })
}

/// Sorts by change, largest first, then by references, then by name.
fn sorted(pairs: impl Iterator<Item = ComparedRow>) -> Vec<ComparedRow> {
    let mut pairs: Vec<ComparedRow> = pairs.collect();
    pairs.sort_by(|one, other| {
        let by_change = other.change.abs().total_cmp(&one.change.abs());
        let size = |pair: &ComparedRow| pair.a.references.max(pair.b.references);
        by_change
            .then_with(|| size(other).cmp(&size(one)))
            .then_with(|| one.name.cmp(&other.name))
    });
    pairs
}

/// The call sites of both runs, and whether any is in both.
fn compared_sites(a: &RunReport, b: &RunReport) -> (Vec<ComparedRow>, bool) {
    let part = |site: &CallSite| RunSide {
        references: site.references,
        share: site.share,
        class: site.class,
        blocks: site.distinct_blocks,
    };
    let mut pairs: BTreeMap<&str, (String, RunSide, RunSide)> = BTreeMap::new();
    for site in &a.all.sites {
        pairs.insert(
            &site.signature,
            (site.label.clone(), part(site), RunSide::default()),
        );
    }
    let mut of_b: Vec<&CallSite> = Vec::new();
    let mut matched = false;
    for site in &b.all.sites {
        match pairs.get_mut(site.signature.as_str()) {
            Some((_, _, b)) => {
                *b = part(site);
                matched |= site.signature != "0000000000000000";
            }
            None => of_b.push(site),
        }
    }
    // In another build of the program, a call site is the same if its label is, and is unique.
    let mut named: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (signature, (name, _, b)) in &pairs {
        if b.references == 0 {
            named.entry(name.clone()).or_default().push(signature);
        }
    }
    for site in of_b {
        let same = named.remove(&site.label).filter(|same| same.len() == 1);
        let same = same.filter(|_| site.function.is_some());
        match same.and_then(|same| pairs.get_mut(same[0])) {
            Some((_, _, b)) => {
                *b = part(site);
                matched = true;
            }
            None => {
                let pair = (site.label.clone(), RunSide::default(), part(site));
                pairs.insert(&site.signature, pair);
            }
        }
    }
    let pairs = pairs.into_values().map(|(name, a, b)| pair(name, a, b));
    (sorted(pairs), matched)
}

fn compared_files(a: &RunReport, b: &RunReport) -> Vec<ComparedRow> {
    if !a.all.names_objects || !b.all.names_objects {
        return Vec::new();
    }
    // A path may name several files one after the other, such as a compiler's temporary files.
    let mut pairs: BTreeMap<&str, (RunSide, RunSide)> = BTreeMap::new();
    let add = |part: &mut RunSide, references: u64, blocks: u64, all: u64| {
        part.references += references;
        part.blocks += blocks;
        part.share = part.references as f64 / all.max(1) as f64;
    };
    for row in &a.all.objects {
        let (of_a, _) = pairs.entry(&row.name).or_default();
        add(of_a, row.references, row.blocks, a.all.references);
    }
    for row in &b.all.objects {
        let (_, of_b) = pairs.entry(&row.name).or_default();
        add(of_b, row.references, row.blocks, b.all.references);
    }
    sorted(
        pairs
            .into_iter()
            .map(|(name, (a, b))| pair(name.to_owned(), a, b)),
    )
}

fn pair(name: String, a: RunSide, b: RunSide) -> ComparedRow {
    ComparedRow {
        name,
        a,
        b,
        change: b.share - a.share,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_read_well() {
        assert_eq!(more(100, 100), "as many");
        assert_eq!(more(100, 150), "50.0 % more");
        assert_eq!(more(100, 25), "75.0 % fewer");
        assert_eq!(more(0, 25), "25 more");
    }
}
