//! Caches of objects of every size: any number of them in one pass over a trace that has sizes.
//!
//! It is what [`caches`](crate::caches) is for blocks, and decodes and drives in the same way. A
//! cache has a capacity in bytes. Hits count twice: by object, and by byte.
//!
//! A trace may be a sample of objects. A cache of `b` bytes becomes one of `b` times the rate, as
//! in [`sample`], which estimates the error of both ratios.

use std::sync::atomic::Ordering;

use hither_core::registry::{Needs, ReplacementSettings};
use hither_core::{Access, Life, ObjectCounts, ReplacementPolicy, SizedResidency, Spec};
use hither_trace::Sampled;
use rayon::prelude::*;
use serde::Serialize;

use crate::caches::{BATCH_REFERENCES, CacheOptions, Error, missing, ratio, spec_fields};
use crate::references::References;
use crate::sample::{self, Counts, PART_BLOCKS_MIN, Refusal, SAMPLE_PARTS};

/// A cache of so many bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ObjectCache {
    /// The policy and its parameters.
    pub spec: Spec,
    /// Its capacity.
    pub bytes: u64,
}

/// The result of a cache of objects.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ObjectOutcome {
    /// The policy and its parameters.
    #[serde(flatten, serialize_with = "spec_fields")]
    pub spec: Spec,
    /// Its capacity in bytes.
    pub cache_bytes: u64,
    /// References to objects. Deletes are not among them.
    pub accesses: u64,
    /// References that found their object.
    pub hits: u64,
    /// References that did not.
    pub misses: u64,
    /// Hits per reference; 0 without references.
    pub hit_ratio: f64,
    /// The bytes of all references.
    pub bytes: u64,
    /// The bytes of those that found their object.
    pub hit_bytes: u64,
    /// The bytes of those that did not.
    pub missed_bytes: u64,
    /// Bytes that were hit per byte; 0 without bytes.
    pub byte_hit_ratio: f64,
    /// Misses of an object that had been there and had expired.
    pub expired: u64,
    /// Misses of an object that was not brought in: it is larger than the cache, or the policy did
    /// not take it.
    pub passed_by: u64,
    /// Objects that were deleted.
    pub deleted: u64,
    /// If a sample was simulated: what it is a sample of, and the errors of the estimates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimate: Option<ObjectEstimate>,
}

/// What a result was estimated from.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ObjectEstimate {
    /// The share of all objects that was simulated.
    pub rate: f64,
    /// References that were simulated.
    pub references: u64,
    /// The size of the simulated cache.
    pub cache_bytes: u64,
    /// The error of the hit ratio.
    pub objects: RatioError,
    /// The error of the byte hit ratio.
    pub bytes: RatioError,
}

/// How sure an estimated ratio is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RatioError {
    /// The standard error. `None` where the cache of an eighth of the sample holds too few objects,
    /// or the estimate is refused.
    pub standard_error: Option<f64>,
    /// The limits of the 95 % interval. `None` without a standard error.
    pub interval: Option<[f64; 2]>,
    /// Why there is no estimate, if there is none. The counts of the outcome must not be used then.
    pub refused: Option<Refusal>,
}

/// A cache that is driven, and with which part of a sample; `None`: all references.
struct Lane {
    part: Option<usize>,
    residency: SizedResidency,
    policy: Box<dyn ReplacementPolicy>,
}

/// What a sample is one of.
#[derive(Clone, Copy)]
struct Whole {
    rate: f64,
    references: u64,
    bytes: u64,
}

/// The references of a batch, or of one part of it.
#[derive(Default)]
struct Batch {
    accesses: Vec<Access>,
    /// As many, or none.
    lives: Vec<Life>,
}

/// Replays `references` through every cache. Results are in the order of `caches`. Of the options,
/// only those of progress and cancellation matter.
pub fn run(
    references: &impl References,
    caches: &[ObjectCache],
    options: &CacheOptions<'_>,
) -> Result<Vec<ObjectOutcome>, Error> {
    caches
        .iter()
        .try_for_each(|cache| check(references, cache))?;
    let sampled = references.sampled();
    let mut lanes = lanes(references, caches, sampled);
    let needs = caches
        .iter()
        .map(|cache| cache.spec.entry().needs)
        .fold(Needs::NOTHING, Needs::and);
    let needs = Needs {
        sizes: true,
        ..needs
    };
    let read = |start: u64, out: &mut Batch| -> hither_trace::Result<()> {
        references.fill(start, BATCH_REFERENCES, needs, &mut out.accesses)?;
        references.fill_lives(start, BATCH_REFERENCES, &mut out.lives)
    };
    let mut parts: [Batch; SAMPLE_PARTS] = Default::default();
    let (mut batch, mut ahead) = (Batch::default(), Batch::default());
    let mut done = 0;
    read(0, &mut batch)?;
    while !batch.accesses.is_empty() {
        if options
            .cancel
            .is_some_and(|cancel| cancel.load(Ordering::Relaxed))
        {
            return Err(Error::Cancelled);
        }
        let start = done + batch.accesses.len() as u64;
        if sampled.is_some() {
            split_into_parts(&batch, &mut parts);
        }
        let drive = |lane: &mut Lane| {
            let batch = lane.part.map_or(&batch, |part| &parts[part]);
            let (accesses, lives) = (&batch.accesses, &batch.lives);
            lane.policy
                .drive_sized(&mut lane.residency, accesses, lives);
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
    let (whole, of_parts) = lanes.split_at(caches.len());
    let outcomes = caches
        .iter()
        .zip(whole)
        .enumerate()
        .map(|(at, (cache, lane))| {
            let mut outcome = ObjectOutcome::new(cache, lane.residency.counts());
            if let Some(Sampled {
                rate,
                references: of_all,
            }) = sampled
            {
                let whole = Whole {
                    rate,
                    references: of_all - references.deletes_of_all(),
                    bytes: references.bytes_of_all(),
                };
                let part = |part: usize| &of_parts[part * caches.len() + at].residency;
                outcome.estimate(whole, &std::array::from_fn(part));
            }
            outcome
        });
    Ok(outcomes.collect())
}

/// Rejects what cannot be simulated.
fn check(references: &impl References, cache: &ObjectCache) -> Result<(), Error> {
    let entry = cache.spec.entry();
    let policy = entry.name;
    let lacks = |what, advice| Error::Lacks {
        policy,
        what,
        advice,
    };
    if !references.has_sizes() {
        return Err(lacks(
            "sizes of objects",
            "; give the size of the cache in blocks or in %",
        ));
    }
    if !entry.takes_sizes {
        return Err(Error::NoSizes { policy });
    }
    if cache.bytes == 0 {
        return Err(Error::NoRoom { policy });
    }
    missing(entry.needs, references.knows())
        .map_or(Ok(()), |(what, advice)| Err(lacks(what, advice)))
}

/// A lane for each cache; for a sample, of smaller ones, followed by those of its parts.
fn lanes(
    references: &impl References,
    caches: &[ObjectCache],
    sampled: Option<Sampled>,
) -> Vec<Lane> {
    let over = |part: Option<usize>, rate: f64| {
        caches.iter().map(move |cache| {
            let bytes = scaled_bytes(cache.bytes, rate);
            Lane {
                part,
                residency: SizedResidency::new(bytes, references.blocks() as usize),
                policy: cache.spec.build(&ReplacementSettings::of_bytes(bytes)),
            }
        })
    };
    let Some(Sampled { rate, .. }) = sampled else {
        return over(None, 1.0).collect();
    };
    let parts =
        (0..SAMPLE_PARTS).flat_map(|part| over(Some(part), rate * sample::share_of_part(part)));
    over(None, rate).chain(parts).collect()
}

fn scaled_bytes(bytes: u64, rate: f64) -> u64 {
    ((bytes as f64 * rate).round() as u64).max(1)
}

/// Splits a batch by object into the parts of a sample.
fn split_into_parts(batch: &Batch, parts: &mut [Batch; SAMPLE_PARTS]) {
    for part in &mut *parts {
        part.accesses.clear();
        part.lives.clear();
    }
    for (at, access) in batch.accesses.iter().enumerate() {
        for part in sample::parts_of(access.block) {
            parts[part].accesses.push(*access);
            parts[part].lives.extend(batch.lives.get(at));
        }
    }
}

impl ObjectOutcome {
    fn new(cache: &ObjectCache, counts: &ObjectCounts) -> ObjectOutcome {
        let accesses = counts.hits + counts.misses;
        let bytes = counts.hit_bytes + counts.missed_bytes;
        ObjectOutcome {
            spec: cache.spec,
            cache_bytes: cache.bytes,
            accesses,
            hits: counts.hits,
            misses: counts.misses,
            hit_ratio: ratio(counts.hits, accesses),
            bytes,
            hit_bytes: counts.hit_bytes,
            missed_bytes: counts.missed_bytes,
            byte_hit_ratio: ratio(counts.hit_bytes, bytes),
            expired: counts.expired,
            passed_by: counts.passed_by,
            deleted: counts.deleted,
            estimate: None,
        }
    }

    /// Scales the counts of a sample to the whole trace, with their errors.
    fn estimate(&mut self, whole: Whole, parts: &[&SizedResidency; SAMPLE_PARTS]) {
        let of_parts = parts.map(SizedResidency::counts);
        let enough = parts
            .iter()
            .all(|part| part.len() >= PART_BLOCKS_MIN as usize);
        let ratio_of = |of_all: u64, counts: Counts, parts: [Counts; SAMPLE_PARTS]| {
            let sampled = Sampled {
                rate: whole.rate,
                references: of_all,
            };
            let (hits, misses) = sample::extrapolate(sampled, counts.misses);
            let error = enough.then(|| sample::standard_error(sampled, counts, &parts));
            let standard_error = error.and_then(Result::ok);
            let interval = |error| sample::interval(ratio(hits, of_all), error);
            let error = RatioError {
                standard_error,
                interval: standard_error.map(interval),
                refused: error.and_then(Result::err),
            };
            (hits, misses, error)
        };
        let objects = Counts {
            references: self.accesses,
            misses: self.misses,
        };
        let bytes = Counts {
            references: self.bytes,
            misses: self.missed_bytes,
        };
        let (hits, misses, of_objects) = ratio_of(
            whole.references,
            objects,
            of_parts.map(|counts| Counts {
                references: counts.hits + counts.misses,
                misses: counts.misses,
            }),
        );
        let (hit_bytes, missed_bytes, of_bytes) = ratio_of(
            whole.bytes,
            bytes,
            of_parts.map(|counts| Counts {
                references: counts.hit_bytes + counts.missed_bytes,
                misses: counts.missed_bytes,
            }),
        );
        self.estimate = Some(ObjectEstimate {
            rate: whole.rate,
            references: self.accesses,
            cache_bytes: scaled_bytes(self.cache_bytes, whole.rate),
            objects: of_objects,
            bytes: of_bytes,
        });
        (self.accesses, self.hits, self.misses) = (whole.references, hits, misses);
        (self.bytes, self.hit_bytes, self.missed_bytes) = (whole.bytes, hit_bytes, missed_bytes);
        self.hit_ratio = ratio(hits, whole.references);
        self.byte_hit_ratio = ratio(hit_bytes, whole.bytes);
        let scaled = |count: u64| (count as f64 / whole.rate).round() as u64;
        self.expired = scaled(self.expired);
        self.passed_by = scaled(self.passed_by);
        self.deleted = scaled(self.deleted);
    }

    /// How sure both ratios are: that of objects, and that of bytes. `None` for a whole trace.
    pub fn errors(&self) -> Option<[RatioError; 2]> {
        self.estimate
            .map(|estimate| [estimate.objects, estimate.bytes])
    }
}
