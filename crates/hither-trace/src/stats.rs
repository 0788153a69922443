//! Statistics of a trace: its size, its sources, its sharing and its reuse distances.

use hither_core::Thread;
use hither_core::placement::EpochKind;
use rustc_hash::FxHashSet;
use serde::Serialize;

use crate::counts::{RequestCounts, TraceCounts};
use crate::error::Result;
use crate::labels::labels;
use crate::reuse::ReuseHistogram;
use crate::schema::Losses;
use crate::store::Run;
use crate::trace::Trace;

/// Statistics of a trace. Tables are sorted by descending references, then by number. They leave
/// out rows with neither requests nor mappings.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stats {
    /// References to blocks.
    pub references: u64,
    /// The accesses of these references. There are more of them for memory.
    pub accesses: u64,
    /// Distinct blocks.
    pub blocks: u64,
    /// The size of a block.
    pub block_bytes: u32,
    /// Distinct blocks times their size.
    pub footprint_bytes: u64,
    /// Requests and bytes, and what did not become a reference.
    pub counts: TraceCounts,
    /// The share of requests that began where the same thread's last request on the same object
    /// ended.
    pub sequential_share: f64,
    /// Objects with references.
    pub objects: u64,
    /// Call sites with references, the unknown one included.
    pub sites: u64,
    /// Processes.
    pub processes: u64,
    /// Threads.
    pub threads: u64,
    /// Nodes of the machine.
    pub nodes: u64,
    /// Marks that end an iteration.
    pub iterations: u64,
    /// Marks that end a parallel construct.
    pub constructs: u64,
    /// Blocks and their accesses, by the number of threads, processes and nodes that use them.
    pub sharing: Sharing,
    /// Reuse distances.
    pub reuse: ReuseHistogram,
    /// How many call sites make most references.
    pub site_concentration: Concentration,
    /// How many objects receive most references.
    pub object_concentration: Concentration,
    /// The call sites.
    pub by_site: Vec<RankedRow>,
    /// The objects. Empty if the format has none.
    pub by_object: Vec<RankedRow>,
    /// References of each thread, by its number in the trace.
    pub by_thread: Vec<u64>,
    /// What is known to be missing from the trace.
    pub losses: Losses,
}

/// How much is used by one, by two, and by three or more users.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sharing {
    /// By number of threads.
    pub threads: SharingCounts,
    /// By number of processes.
    pub processes: SharingCounts,
    /// By number of nodes that the accesses were made on.
    pub nodes: SharingCounts,
}

/// Blocks used by one, by two, and by three or more users over the whole trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SharingCounts {
    /// Blocks.
    pub blocks: [u64; 3],
    /// Accesses to these blocks.
    pub accesses: [u64; 3],
}

/// How many of the most referenced rows make up a share of all references.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Concentration {
    /// Rows for half of the references.
    pub for_50_percent: u64,
    /// Rows for nine in ten.
    pub for_90_percent: u64,
    /// Rows for ninety-nine in a hundred.
    pub for_99_percent: u64,
}

/// An object or a call site, with its share of the trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RankedRow {
    /// Its number in the trace.
    pub number: u32,
    /// The path of an object, or the label of a call site.
    pub name: String,
    /// References.
    pub references: u64,
    /// Its share of all references.
    pub share: f64,
    /// Distinct blocks.
    pub blocks: u64,
    /// Its requests and bytes.
    #[serde(flatten)]
    pub tally: RequestCounts,
}

impl Stats {
    /// Computes the statistics in a few passes. Reuse distances take most of the time.
    pub fn of(trace: &Trace) -> Result<Stats> {
        let counts = *trace.counts();
        let labels = labels(trace.sites());
        let by_site = ranked(trace, sites(trace)?, trace.site_counts(), |site| {
            labels[site].clone()
        });
        let objects = objects(trace)?;
        let by_object = ranked(trace, objects, trace.object_counts(), |object| {
            trace.objects()[object].path_lossy().into_owned()
        });
        let marks = |kind| {
            trace
                .marks()
                .iter()
                .filter(|mark| mark.kind == kind)
                .count() as u64
        };
        let accesses = accesses(trace)?;
        let referenced =
            |rows: &[RankedRow]| rows.iter().filter(|row| row.references > 0).count() as u64;
        Ok(Stats {
            references: trace.references() as u64,
            accesses: accesses.iter().sum(),
            blocks: trace.blocks() as u64,
            block_bytes: trace.options().block_bytes,
            footprint_bytes: trace.blocks() as u64 * u64::from(trace.options().block_bytes),
            sequential_share: share(counts.total.sequential, counts.total.requests),
            counts,
            objects: referenced(&by_object),
            sites: referenced(&by_site),
            processes: trace.processes() as u64,
            threads: trace.threads() as u64,
            nodes: trace.nodes() as u64,
            iterations: marks(EpochKind::Iteration),
            constructs: marks(EpochKind::Construct),
            sharing: Sharing {
                threads: shared(trace, &accesses, trace.threads(), |run| run.thread)?,
                processes: shared(trace, &accesses, trace.processes(), |run| {
                    trace.process_of(Thread(run.thread)).0
                })?,
                nodes: shared(trace, &accesses, trace.nodes(), |run| run.node.into())?,
            },
            reuse: ReuseHistogram::of(trace)?,
            site_concentration: concentration(&by_site, trace),
            object_concentration: concentration(&by_object, trace),
            by_site,
            by_object,
            by_thread: threads(trace)?,
            losses: trace.meta().losses.clone(),
        })
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

/// References and distinct blocks.
#[derive(Clone, Copy, Default)]
struct Usage {
    references: u64,
    blocks: u64,
}

/// The use of each object.
fn objects(trace: &Trace) -> Result<Vec<Usage>> {
    let mut uses = vec![Usage::default(); trace.objects().len()];
    if !trace.has_objects() {
        return Ok(uses);
    }
    let object_of = |block: u32| trace.object_of(hither_core::Block(block)).index();
    trace.for_each_chunk(|chunk| {
        for &block in chunk.blocks() {
            uses[object_of(block)].references += 1;
        }
    })?;
    for block in 0..trace.blocks() as u32 {
        uses[object_of(block)].blocks += 1;
    }
    Ok(uses)
}

/// The use of each call site. Most blocks are used by one site. So each block stores its first and
/// its last site, and only further sites go into a set of pairs, which is asked only where the site
/// changes.
fn sites(trace: &Trace) -> Result<Vec<Usage>> {
    let mut uses = vec![Usage::default(); trace.sites().len()];
    const NONE: u32 = u32::MAX;
    let mut met = vec![[NONE; 2]; trace.blocks()];
    let mut pairs = FxHashSet::default();
    trace.for_each_chunk(|chunk| {
        for (run, range) in chunk.runs() {
            let site = &mut uses[run.site as usize];
            site.references += range.len() as u64;
            for &block in &chunk.blocks()[range] {
                let [first, last] = &mut met[block as usize];
                if std::mem::replace(last, run.site) == run.site {
                    continue;
                }
                if *first == NONE {
                    *first = run.site;
                    site.blocks += 1;
                } else if *first != run.site {
                    let pair = u64::from(run.site) << 32 | u64::from(block);
                    site.blocks += u64::from(pairs.insert(pair));
                }
            }
        }
    })?;
    Ok(uses)
}

/// The references of each thread.
fn threads(trace: &Trace) -> Result<Vec<u64>> {
    let mut references = vec![0; trace.threads()];
    trace.for_each_chunk(|chunk| {
        for (run, range) in chunk.runs() {
            references[run.thread as usize] += range.len() as u64;
        }
    })?;
    Ok(references)
}

fn ranked(
    trace: &Trace,
    uses: Vec<Usage>,
    tallies: &[RequestCounts],
    name: impl Fn(usize) -> String,
) -> Vec<RankedRow> {
    let rows = uses.into_iter().zip(tallies).enumerate();
    let seen =
        rows.filter(|(_, (row, tally))| row.references > 0 || **tally != RequestCounts::default());
    let mut rows: Vec<RankedRow> = seen
        .map(|(number, (row, tally))| RankedRow {
            number: number as u32,
            name: name(number),
            references: row.references,
            share: share(row.references, trace.references() as u64),
            blocks: row.blocks,
            tally: *tally,
        })
        .collect();
    rows.sort_by_key(|row| (std::cmp::Reverse(row.references), row.number));
    rows
}

fn concentration(rows: &[RankedRow], trace: &Trace) -> Concentration {
    let rows_for = |percent: u64| {
        let wanted = trace.references() as u64 * percent;
        let mut sum = 0;
        let short = |row: &&RankedRow| {
            let enough = sum * 100 >= wanted;
            sum += row.references;
            !enough
        };
        rows.iter().take_while(short).count() as u64
    };
    Concentration {
        for_50_percent: rows_for(50),
        for_90_percent: rows_for(90),
        for_99_percent: rows_for(99),
    }
}

/// The accesses to each block.
fn accesses(trace: &Trace) -> Result<Vec<u64>> {
    let mut accesses = vec![0; trace.blocks()];
    trace.for_each_chunk(|chunk| {
        for (run, range) in chunk.runs() {
            for &block in &chunk.blocks()[range] {
                accesses[block as usize] += u64::from(run.count);
            }
        }
    })?;
    Ok(accesses)
}

/// Blocks and accesses by the number of users: one, two, more. Two users are stored per block,
/// since a third one decides.
fn shared(
    trace: &Trace,
    accesses: &[u64],
    users: usize,
    user_of: impl Fn(Run) -> u32,
) -> Result<SharingCounts> {
    const NOBODY: u32 = u32::MAX;
    if users <= 1 {
        return Ok(SharingCounts {
            blocks: [trace.blocks() as u64, 0, 0],
            accesses: [accesses.iter().sum(), 0, 0],
        });
    }
    let mut first_two = vec![[NOBODY; 2]; trace.blocks()];
    let mut more = vec![false; trace.blocks()];
    trace.for_each_chunk(|chunk| {
        for (run, range) in chunk.runs() {
            let user = user_of(run);
            for &block in &chunk.blocks()[range] {
                match &mut first_two[block as usize] {
                    [first, _] if *first == user => {}
                    [_, second] if *second == user => {}
                    [first, _] if *first == NOBODY => *first = user,
                    [_, second] if *second == NOBODY => *second = user,
                    _ => more[block as usize] = true,
                }
            }
        }
    })?;
    let mut shared = SharingCounts::default();
    for (([_, second], more), accesses) in first_two.into_iter().zip(more).zip(accesses) {
        let users = if more {
            2
        } else {
            usize::from(second != NOBODY)
        };
        shared.blocks[users] += 1;
        shared.accesses[users] += accesses;
    }
    Ok(shared)
}
