//! Sweeps that outgrow a machine: shards, each of which does a part of the caches, and what makes
//! one output of them.
//!
//! The caches of a plan lie on a line, trace after trace. A trace takes as much of the line as its
//! [weight](TraceJob::weight), and its caches divide that evenly. Shard i of n does the caches
//! whose middle lies in the i-th of n equal parts. So the shards take about as long as each other,
//! each reads few traces, and the sizes of one policy stay together. Whose a cache is follows from
//! the plan and the sizes of the traces alone: the shards need not know of each other.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::plan::{SweepPlan, TraceJob};
use crate::file::{beside, folder_of, name_of};
use crate::{Error, Result};

/// One of several parts of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shard {
    /// From 1.
    number: u32,
    of: u32,
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Shard, String> {
        let numbers = text.split_once('/').and_then(|(number, of)| {
            let number = number.parse().ok()?;
            Some(Shard {
                number,
                of: of.parse().ok()?,
            })
        });
        numbers
            .filter(|shard| (1..=shard.of).contains(&shard.number))
            .ok_or_else(|| format!("`{text}` is no shard: the second of eight is 2/8"))
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.number, self.of)
    }
}

impl Shard {
    /// What it has done is in this file, beside the output of the whole sweep.
    pub fn path(self, output: &Path) -> PathBuf {
        beside(output, &format!("{ENDING}{}-of-{}", self.number, self.of))
    }

    /// Whether a cache of a trace may be this shard's, given the weights of all traces.
    pub(super) fn reads(self, weights: &[u64], trace: usize) -> bool {
        let of = u128::from(self.of);
        let (from, to) = (sum(&weights[..trace]), sum(&weights[..=trace]));
        let whole = sum(weights);
        to * of > whole * u128::from(self.number - 1) && from * of < whole * u128::from(self.number)
    }

    /// Whether cache `cache` of `caches` of a trace is this shard's, given the weights of all
    /// traces.
    pub(super) fn has(self, weights: &[u64], trace: usize, cache: usize, caches: usize) -> bool {
        // In units of 1 / (2 caches).
        let unit = 2 * caches as u128;
        let own = u128::from(weights[trace]) * (2 * cache as u128 + 1);
        let middle = sum(&weights[..trace]) * unit + own;
        let part = middle * u128::from(self.of) / (sum(weights) * unit);
        part == u128::from(self.number - 1)
    }
}

fn sum(weights: &[u64]) -> u128 {
    weights.iter().copied().map(u128::from).sum()
}

const ENDING: &str = ".shard-";

/// The shards of which there is a file beside the output, sorted.
pub(super) fn found(output: &Path) -> Result<Vec<Shard>> {
    let folder = folder_of(output);
    let beginning = format!("{}{ENDING}", name_of(output));
    let mut shards = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(Error::of_file(folder))? {
        let name = entry.map_err(Error::of_file(folder))?.file_name();
        let shard = name.to_str().and_then(|name| {
            let numbers = name.strip_prefix(&beginning)?.replacen("-of-", "/", 1);
            numbers.parse::<Shard>().ok()
        });
        shards.extend(shard);
    }
    shards.sort_unstable();
    Ok(shards)
}

/// The weights of all traces of a plan. None is 0.
pub(super) fn weights(plan: &SweepPlan) -> Vec<u64> {
    plan.jobs.iter().map(TraceJob::weight).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cache_is_of_one_shard_and_shards_are_alike() {
        let weights = [1, 500, 3, 700, 90];
        let caches = [4, 30, 1, 96, 7];
        for of in [1, 2, 3, 8, 200] {
            let shards: Vec<Shard> = (1..=of).map(|number| Shard { number, of }).collect();
            let mut work = vec![0.0; of as usize];
            for (trace, &count) in caches.iter().enumerate() {
                for cache in 0..count {
                    let its = |shard: &&Shard| shard.has(&weights, trace, cache, count);
                    let owners: Vec<&Shard> = shards.iter().filter(its).collect();
                    assert_eq!(owners.len(), 1, "{trace} {cache}");
                    assert!(owners[0].reads(&weights, trace));
                    work[owners[0].number as usize - 1] += weights[trace] as f64 / count as f64;
                }
            }
            let largest = 500.0_f64 / 30.0;
            let each = 1294.0 / f64::from(of);
            assert!(
                work.iter()
                    .all(|work| (work - each).abs() <= 2.0 * largest.max(90.0 / 7.0)),
                "{of}: {work:?}"
            );
        }
    }

    #[test]
    fn shards_are_read_as_they_are_written() {
        for text in ["1/1", "2/8", "8/8"] {
            assert_eq!(text.parse::<Shard>().unwrap().to_string(), text);
        }
        for text in ["0/8", "9/8", "1", "1/", "/2", "a/b", "-1/2", "1/2/3"] {
            assert!(text.parse::<Shard>().is_err(), "{text}");
        }
    }
}
