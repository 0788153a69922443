//! Caches of one level: any number of them in one pass over a trace.
//!
//! For many sizes of `lru` or `opt`, one [stack](crate::stack) replaces the caches and gives the
//! same counts. For few sizes of `opt`, one stack per size does.
//!
//! The trace is decoded once, in batches. All caches run through a batch in parallel while the next
//! one is decoded. Every cache sees every access in order and shares nothing, so the number of
//! threads cannot change a result. A batch of 8192 accesses (0.5 MiB) stays in a core's
//! second-level cache. At 4 ns (lru) to 60 ns (dear) per access, a cache's work on a batch far
//! exceeds the one or two microseconds of passing it to a thread (2026-11, `benches/caches.rs`).

use crate::readahead::{Files, Readahead, Reads};
use crate::references::References;
use crate::sample::{self, Counts, Estimate, PART_BLOCKS_MIN, SAMPLE_PARTS};
use crate::stack::{Curve, Stack};
use hither_core::registry::{self, Needs, ReplacementSettings};
use hither_core::replacement::SiteRecord;
use hither_core::spec::Value;
use hither_core::{Access, ReplacementPolicy, Residency, Spec};
use hither_trace::Sampled;
use rayon::prelude::*;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) const BATCH_REFERENCES: usize = 8192;

/// One cache to simulate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CacheConfiguration {
    /// The policy and its parameters.
    pub spec: Spec,
    /// Capacity in blocks, at least one.
    pub cache_blocks: u32,
}

/// Options of a run.
#[derive(Clone, Copy, Default)]
pub struct CacheOptions<'a> {
    /// Profiles of call sites, for policies that learn about them.
    pub sites: &'a [SiteRecord],
    /// Called now and then with the number of references done.
    pub progress: Option<&'a (dyn Fn(u64) + Sync)>,
    /// Cancels the run with [`Error::Cancelled`] soon after it becomes true.
    pub cancel: Option<&'a AtomicBool>,
    /// Into how many segments of equal length the hits of each cache are also split; at most one
    /// per reference. 0: none.
    pub segments: u64,
    /// The largest window of the kernel's [readahead](crate::readahead), in blocks: the reads of
    /// each cache are counted, too. `None`: no readahead.
    pub readahead: Option<u32>,
}

/// A segment of the references.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// References. In a sample, those in it.
    pub accesses: u64,
    /// References that found their block.
    pub hits: u64,
}

/// The result of one cache.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CacheOutcome {
    /// The policy and its parameters.
    #[serde(flatten, serialize_with = "spec_fields")]
    pub spec: Spec,
    /// Capacity in blocks.
    pub cache_blocks: u32,
    /// References.
    pub accesses: u64,
    /// References that found their block.
    pub hits: u64,
    /// References that did not, including cold misses.
    pub misses: u64,
    /// Hits per access; 0 for an empty trace.
    pub hit_ratio: f64,
    /// If a sample was simulated: what it is a sample of, and the error of the estimate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimate: Option<Estimate>,
    /// With [readahead](CacheOptions::readahead): what the disk was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reads: Option<Reads>,
    /// Accesses classified as `sequential`, `looping` and `other`. Empty if the policy does not
    /// classify.
    pub classes: BTreeMap<&'static str, u64>,
    /// What the policy learned about call sites, if it does.
    #[serde(skip)]
    pub sites: Option<Vec<SiteRecord>>,
    /// The same references and hits by [segment](CacheOptions::segments).
    #[serde(skip)]
    pub segments: Vec<Segment>,
}

/// Why a run did not start or did not finish.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A policy needs what the trace does not have.
    #[error("policy `{policy}` needs {what}, which this trace does not have{advice}")]
    Lacks {
        /// The policy.
        policy: &'static str,
        /// What is missing.
        what: &'static str,
        /// How to get it.
        advice: &'static str,
    },
    /// A cache of 0 blocks.
    #[error("a cache of 0 blocks for policy `{policy}`; the smallest cache is one block")]
    NoRoom {
        /// The policy.
        policy: &'static str,
    },
    /// A policy that ranks blocks of one size alone, for a cache of objects.
    #[error(
        "policy `{policy}` does not take sizes: its blocks all have one; {} do",
        takes_sizes()
    )]
    NoSizes {
        /// The policy.
        policy: &'static str,
    },
    /// The number of capacities is not the number of nodes.
    #[error("{given} capacities for the {nodes} nodes of `{topology}`: give one, or one a node")]
    Capacities {
        /// The topology.
        topology: String,
        /// How many nodes it has.
        nodes: usize,
        /// How many capacities there were.
        given: usize,
    },
    /// A node that the topology does not have.
    #[error("a disk at node {node}, which `{topology}` does not have")]
    NoNode {
        /// The topology.
        topology: String,
        /// The node.
        node: u16,
    },
    /// A placement of pages used for files, or the other way round.
    #[error("placement `{placement}` places {of}, not {asked}")]
    WrongKind {
        /// The placement.
        placement: &'static str,
        /// What it places.
        of: &'static str,
        /// What was to be placed.
        asked: &'static str,
    },
    /// Readahead where it is not known what it would read.
    #[error("readahead needs {0}")]
    ReadaheadLacks(&'static str),
    /// The caller cancelled the run.
    #[error("cancelled")]
    Cancelled,
    /// The references could not be read.
    #[error(transparent)]
    Trace(#[from] hither_trace::Error),
}

/// The policies that take sizes.
fn takes_sizes() -> String {
    let entries = registry::replacement_policies().iter();
    let names: Vec<&str> = entries
        .filter(|entry| entry.takes_sizes)
        .map(|entry| entry.name)
        .collect();
    names.join(", ")
}

/// Replays `references` through every cache. Results are in the order of `configurations`.
pub fn run(
    references: &impl References,
    configurations: &[CacheConfiguration],
    options: &CacheOptions<'_>,
) -> Result<Vec<CacheOutcome>, Error> {
    for configuration in configurations {
        check(references, configuration)?;
    }
    let sampled = references.sampled();
    let files = readahead_files(references, options)?;
    let readahead = files.as_ref().zip(options.readahead);
    let from = LaneSource {
        blocks: references.blocks(),
        sites: options.sites,
        readahead,
    };
    let mut lanes = lanes(configurations, from, sampled);
    let mut parts: [Vec<Access>; SAMPLE_PARTS] = Default::default();
    let (mut batch, mut ahead) = (
        Vec::with_capacity(BATCH_REFERENCES),
        Vec::with_capacity(BATCH_REFERENCES),
    );
    let needs = lanes
        .iter()
        .map(|lane_run| lane_run.lane.needs())
        .fold(Needs::NOTHING, Needs::and);
    let read =
        |start: u64, out: &mut Vec<Access>| references.fill(start, BATCH_REFERENCES, needs, out);

    let ends = segment_ends(references.references(), options.segments);
    read(0, &mut batch)?;
    let mut done = 0;
    while !batch.is_empty() {
        if options
            .cancel
            .is_some_and(|cancel| cancel.load(Ordering::Relaxed))
        {
            return Err(Error::Cancelled);
        }
        let start = done + batch.len() as u64;
        if sampled.is_some() {
            sample::split_into_parts(&batch, &mut parts);
        }
        let within = ends
            .iter()
            .filter(|&&end| (done + 1..=start).contains(&end));
        let cuts: Vec<usize> = within.map(|end| (end - done) as usize).collect();
        let drive = |lane_run: &mut LaneRun<'_>| match lane_run.input {
            LaneInput::All => lane_run.drive(&batch, &cuts),
            LaneInput::Part(part) => lane_run.drive(&parts[part], &[]),
        };
        let ((), read) = rayon::join(
            || lanes.par_iter_mut().for_each(drive),
            || read(start, &mut ahead),
        );
        read?;
        std::mem::swap(&mut batch, &mut ahead);
        done = start;
        if let Some(progress) = options.progress {
            progress(done);
        }
    }
    debug_assert_eq!(
        done,
        references.references(),
        "a trace of another length than it says"
    );
    let mut outcomes = vec![None; configurations.len()];
    let mut of_parts = [const { Vec::new() }; SAMPLE_PARTS];
    for lane_run in lanes {
        match lane_run.input {
            LaneInput::All => lane_run.write_outcomes(&ends, configurations, &mut outcomes),
            LaneInput::Part(part) => {
                of_parts[part].resize(configurations.len(), None);
                lane_run.write_outcomes(&[], configurations, &mut of_parts[part]);
            }
        }
    }
    let of_lane =
        |outcome: &Option<CacheOutcome>| outcome.clone().expect("each configuration has its lane");
    let mut outcomes: Vec<CacheOutcome> = outcomes.iter().map(of_lane).collect();
    if let Some(sampled) = sampled {
        for (index, outcome) in outcomes.iter_mut().enumerate() {
            let parts = of_parts
                .each_ref()
                .map(|part| of_lane(&part[index]).counts());
            outcome.estimate(sampled, &parts);
        }
    }
    Ok(outcomes)
}

/// The misses of one cache by call site, by its number.
pub fn misses_by_site(
    references: &impl References,
    configuration: CacheConfiguration,
    options: &CacheOptions<'_>,
) -> Result<Vec<u64>, Error> {
    check(references, &configuration)?;
    let CacheConfiguration { spec, cache_blocks } = configuration;
    // As in `Lane::cache`, a cache has no more room than it can use.
    let capacity = cache_blocks.min(references.blocks().max(1));
    let mut residency = Residency::new(capacity, references.blocks() as usize);
    let sites = options.sites;
    let mut policy = spec.build(&ReplacementSettings {
        sites,
        ..ReplacementSettings::new(capacity)
    });
    let needs = Needs {
        sites: true,
        ..spec.entry().needs
    };
    let (mut misses, mut batch) = (Vec::new(), Vec::with_capacity(BATCH_REFERENCES));
    let mut done = 0;
    loop {
        references.fill(done, BATCH_REFERENCES, needs, &mut batch)?;
        if batch.is_empty() {
            return Ok(misses);
        }
        for same in batch.chunk_by(|a, b| a.site == b.site) {
            let (site, before) = (same[0].site.index(), residency.misses());
            policy.drive(&mut residency, same);
            if misses.len() <= site {
                misses.resize(site + 1, 0);
            }
            misses[site] += residency.misses() - before;
        }
        done += batch.len() as u64;
        if let Some(progress) = options.progress {
            progress(done);
        }
    }
}

/// What readahead has to know of the files, if there is to be any.
fn readahead_files<'a>(
    references: &'a impl References,
    options: &CacheOptions<'_>,
) -> Result<Option<Files<'a>>, Error> {
    if options.readahead.is_none() {
        return Ok(None);
    }
    if references.sampled().is_some() {
        return Err(Error::ReadaheadLacks("all blocks, not a sample"));
    }
    if references.object_bytes().is_empty() {
        return Err(Error::ReadaheadLacks(
            "the files that blocks belong to, which this trace does not have",
        ));
    }
    Ok(Some(Files::of(references)))
}

/// Rejects what cannot be simulated.
fn check(references: &impl References, configuration: &CacheConfiguration) -> Result<(), Error> {
    let CacheConfiguration { spec, cache_blocks } = configuration;
    let policy = spec.entry().name;
    let needs = spec.entry().needs;
    if *cache_blocks == 0 {
        return Err(Error::NoRoom { policy });
    }
    if references.sampled().is_some()
        && let Some(what) = sample::why_not_sampled(spec)
    {
        let advice = ", being a sample";
        return Err(Error::Lacks {
            policy,
            what,
            advice,
        });
    }
    missing(needs, references.knows()).map_or(Ok(()), |(what, advice)| {
        Err(Error::Lacks {
            policy,
            what,
            advice,
        })
    })
}

pub(crate) fn missing(needs: Needs, known: Needs) -> Option<(&'static str, &'static str)> {
    if needs.sites && !known.sites {
        let advice = "; `hither record` makes traces that have them, and `ubm` does without";
        Some(("call sites", advice))
    } else if needs.objects && !known.objects {
        Some(("files and positions in them", ""))
    } else if needs.processes && !known.processes {
        Some(("processes", "; `ubm` does without"))
    } else {
        None
    }
}

/// The references of a lane.
#[derive(Clone, Copy, Debug)]
enum LaneInput {
    All,
    /// The references of one part of a sample.
    Part(usize),
}

/// The ends of the segments of a trace, of nearly equal length.
fn segment_ends(references: u64, segments: u64) -> Vec<u64> {
    let segments = segments.min(references);
    (1..=segments)
        .map(|number| (u128::from(references) * u128::from(number) / u128::from(segments)) as u64)
        .collect()
}

/// A lane, its references, and the hits of each of its configurations at the end of each segment.
struct LaneRun<'a> {
    input: LaneInput,
    lane: Lane<'a>,
    hits: Vec<Vec<u64>>,
}

impl LaneRun<'_> {
    /// Replays the next references. `cuts` are the ends of segments among them. Policies get one
    /// access at a time, so splitting a batch changes no result.
    fn drive(&mut self, batch: &[Access], cuts: &[usize]) {
        let mut from = 0;
        for &cut in cuts {
            self.lane.drive(&batch[from..cut]);
            self.hits.push(self.lane.hits());
            from = cut;
        }
        self.lane.drive(&batch[from..]);
    }

    /// Stores the results of its configurations.
    fn write_outcomes(
        self,
        ends: &[u64],
        configurations: &[CacheConfiguration],
        outcomes: &mut [Option<CacheOutcome>],
    ) {
        let indices = self.lane.write_outcomes(configurations, outcomes);
        for (place, index) in indices.into_iter().enumerate() {
            let so_far = ends.iter().zip(&self.hits);
            let mut before = (0, 0);
            let segments = so_far.map(|(&end, hits)| {
                let segment = Segment {
                    accesses: end - before.0,
                    hits: hits[place] - before.1,
                };
                before = (end, hits[place]);
                segment
            });
            if let Some(outcome) = &mut outcomes[index] {
                outcome.segments = segments.collect();
            }
        }
    }
}

/// What lanes are made of.
#[derive(Clone, Copy)]
struct LaneSource<'a> {
    /// How many blocks the references have.
    blocks: u32,
    sites: &'a [SiteRecord],
    /// The files, and the largest window in blocks.
    readahead: Option<(&'a Files<'a>, u32)>,
}

/// What one thread at a time drives: a cache, or a stack that replaces caches.
enum Lane<'a> {
    Cache {
        configuration: usize,
        residency: Residency,
        policy: Box<dyn ReplacementPolicy>,
        needs: Needs,
        readahead: Option<Readahead<'a>>,
    },
    Stack {
        /// Its configurations, and the size of each.
        configurations: Vec<(usize, u32)>,
        stack: Stack,
    },
}

/// A lane for each configuration, or for several that differ only in size. Stacks come first: they
/// take longer than caches, and the last lane to start should be short.
///
/// A sample has lanes of smaller caches, followed by those of its parts.
fn lanes<'a>(
    configurations: &[CacheConfiguration],
    from: LaneSource<'a>,
    sampled: Option<Sampled>,
) -> Vec<LaneRun<'a>> {
    let over = |input: LaneInput, rate: f64| {
        let smaller = configurations
            .iter()
            .map(|configuration| CacheConfiguration {
                cache_blocks: sample::scaled_blocks(configuration.cache_blocks, rate),
                ..*configuration
            });
        let lanes = lanes_of(&smaller.collect::<Vec<_>>(), from);
        lanes.into_iter().map(move |lane| LaneRun {
            input,
            lane,
            hits: Vec::new(),
        })
    };
    let Some(Sampled { rate, .. }) = sampled else {
        return over(LaneInput::All, 1.0).collect();
    };
    let parts = (0..SAMPLE_PARTS)
        .flat_map(|part| over(LaneInput::Part(part), rate * sample::share_of_part(part)));
    over(LaneInput::All, rate).chain(parts).collect()
}

fn lanes_of<'a>(configurations: &[CacheConfiguration], from: LaneSource<'a>) -> Vec<Lane<'a>> {
    let mut by_name: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, configuration) in configurations.iter().enumerate() {
        let name = configuration.spec.entry().name;
        by_name.entry(name).or_default().push(index);
    }
    let (mut stacks, mut caches) = (Vec::new(), Vec::new());
    for same in by_name.into_values() {
        let spec = &configurations[same[0]].spec;
        // A stack does not say which references missed.
        let at_once = Stack::sizes_at_once(spec, same.len()).filter(|_| from.readahead.is_none());
        let Some(at_once) = at_once else {
            let lane = |&index: &usize| Lane::cache(index, &configurations[index], from);
            caches.extend(same.iter().map(lane));
            continue;
        };
        stacks.extend(same.chunks(at_once).map(|indices| {
            let size = |&index: &usize| configurations[index].cache_blocks;
            let sizes: Vec<u32> = indices.iter().map(size).collect();
            Lane::Stack {
                stack: Stack::new(spec, &sizes, from.blocks),
                configurations: indices.iter().copied().zip(sizes).collect(),
            }
        }));
    }
    stacks.extend(caches);
    stacks
}

impl<'a> Lane<'a> {
    fn cache(index: usize, configuration: &CacheConfiguration, from: LaneSource<'a>) -> Lane<'a> {
        let LaneSource { blocks, sites, .. } = from;
        // A cache larger than the trace's footprint never evicts. It gets only the capacity that it
        // needs, so `--size 1TiB` costs no memory.
        let capacity = configuration.cache_blocks.min(blocks.max(1));
        Lane::Cache {
            configuration: index,
            residency: Residency::new(capacity, blocks as usize),
            policy: configuration.spec.build(&ReplacementSettings {
                sites,
                ..ReplacementSettings::new(capacity)
            }),
            needs: configuration.spec.entry().needs,
            readahead: from
                .readahead
                .map(|(files, window)| Readahead::new(files, window, capacity)),
        }
    }

    /// What it needs to know about an access besides its block.
    fn needs(&self) -> Needs {
        match self {
            Lane::Cache {
                needs, readahead, ..
            } => Needs {
                objects: needs.objects || readahead.is_some(),
                processes: needs.processes || readahead.is_some(),
                ..*needs
            },
            Lane::Stack { .. } => Needs::NOTHING,
        }
    }

    fn drive(&mut self, batch: &[Access]) {
        match self {
            Lane::Cache {
                residency,
                policy,
                readahead: None,
                ..
            } => policy.drive(residency, batch),
            Lane::Cache {
                residency,
                policy,
                readahead: Some(readahead),
                ..
            } => {
                for access in batch {
                    let misses = residency.misses();
                    policy.drive(residency, std::slice::from_ref(access));
                    readahead.served(access, residency.misses() == misses, residency);
                }
            }
            Lane::Stack { stack, .. } => stack.drive(batch),
        }
    }

    /// The hits of each of its configurations so far.
    fn hits(&self) -> Vec<u64> {
        match self {
            Lane::Cache { residency, .. } => vec![residency.hits()],
            Lane::Stack {
                configurations,
                stack,
            } => {
                let curve = stack.curve();
                let sizes = configurations.iter().map(|&(_, size)| size);
                sizes.map(|size| hits_at(&curve, size)).collect()
            }
        }
    }

    /// Stores the results of its configurations and returns their numbers.
    fn write_outcomes(
        self,
        configurations: &[CacheConfiguration],
        outcomes: &mut [Option<CacheOutcome>],
    ) -> Vec<usize> {
        match self {
            Lane::Cache {
                configuration: index,
                residency,
                policy,
                readahead,
                ..
            } => {
                let classes = policy.class_counts().map_or_else(BTreeMap::new, |classes| {
                    BTreeMap::from([
                        ("sequential", classes.sequential),
                        ("looping", classes.looping),
                        ("other", classes.other),
                    ])
                });
                let (hits, misses) = (residency.hits(), residency.misses());
                outcomes[index] = Some(CacheOutcome {
                    reads: readahead.map(|readahead| readahead.reads()),
                    classes,
                    sites: policy.sites(),
                    ..CacheOutcome::new(&configurations[index], hits, misses)
                });
                vec![index]
            }
            Lane::Stack {
                configurations: indices,
                stack,
            } => {
                let curve = stack.curve();
                for &(index, cache_blocks) in &indices {
                    let hits = hits_at(&curve, cache_blocks);
                    let misses = curve.references() - hits;
                    outcomes[index] = Some(CacheOutcome::new(&configurations[index], hits, misses));
                }
                indices.into_iter().map(|(index, _)| index).collect()
            }
        }
    }
}

fn hits_at(curve: &Curve, cache_blocks: u32) -> u64 {
    curve.hits(cache_blocks).expect("the size was asked for")
}

impl CacheOutcome {
    fn counts(&self) -> Counts {
        Counts {
            references: self.accesses,
            misses: self.misses,
        }
    }

    /// Scales the counts of a sample to the whole trace, with their error.
    fn estimate(&mut self, sampled: Sampled, parts: &[Counts; SAMPLE_PARTS]) {
        let of_eighth = f64::from(self.cache_blocks) * sampled.rate * sample::share_of_part(0);
        let error = (of_eighth >= f64::from(PART_BLOCKS_MIN))
            .then(|| sample::standard_error(sampled, self.counts(), parts));
        let references = self.accesses;
        let (hits, misses) = sample::extrapolate(sampled, self.misses);
        (self.accesses, self.hits, self.misses) = (sampled.references, hits, misses);
        self.hit_ratio = ratio(hits, self.accesses);
        let standard_error = error.and_then(Result::ok);
        self.estimate = Some(Estimate {
            rate: sampled.rate,
            references,
            cache_blocks: sample::scaled_blocks(self.cache_blocks, sampled.rate),
            standard_error,
            interval: standard_error.map(|error| sample::interval(self.hit_ratio, error)),
            refused: error.and_then(Result::err),
        });
    }

    /// Whether a sample was simulated that does not show what the whole trace would do.
    pub fn is_refused(&self) -> bool {
        self.estimate
            .is_some_and(|estimate| estimate.refused.is_some())
    }

    /// The result of one configuration of a policy that neither classifies nor learns.
    fn new(configuration: &CacheConfiguration, hits: u64, misses: u64) -> CacheOutcome {
        let accesses = hits + misses;
        CacheOutcome {
            spec: configuration.spec,
            cache_blocks: configuration.cache_blocks,
            accesses,
            hits,
            misses,
            hit_ratio: ratio(hits, accesses),
            estimate: None,
            reads: None,
            classes: BTreeMap::new(),
            sites: None,
            segments: Vec::new(),
        }
    }
}

pub(crate) fn ratio(hits: u64, accesses: u64) -> f64 {
    if accesses == 0 {
        0.0
    } else {
        hits as f64 / accesses as f64
    }
}

/// A policy as two fields of a document.
pub(crate) fn spec_fields<S: Serializer>(spec: &Spec, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Fields {
        policy: &'static str,
        params: BTreeMap<&'static str, Value>,
    }
    let fields = Fields {
        policy: spec.entry().name,
        params: spec.values_by_name(),
    };
    fields.serialize(serializer)
}
