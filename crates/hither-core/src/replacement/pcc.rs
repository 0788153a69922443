//! PCC: the partitioned cache with classification by call site. See [`partition`](super::partition)
//! for what it keeps and [`classify::pcc`](crate::classify::pcc) for how it classifies; both list
//! their departures from the paper.
//!
//! Source: Gniady, Butt and Hu, "Program-counter-based pattern classification in buffer caching",
//! OSDI 2004.
//!
//! Departure: *steady* sites, for programs that read each block once an epoch, in another order
//! each time. In the paper a block keeps its class until it is accessed again (sections 4.1 and
//! 5.1), and the period follows the latest accesses. A site is steady if its blocks return after
//! similar times. When it is found to loop, the blocks that were taken for sequential count as
//! looping at once, and its loop has not ended before `expire` times the mean of these times.
//! Simulated, six epochs over 512 MiB in records of 128 KiB, with a cache of 223 MiB (2026-11):
//! 1957 MiB of misses, which is the optimum, against 2229 MiB without this rule.
//!
//! Departure: looping blocks are compared by period, as in the paper, but periods with the same
//! power of two count as equal. Among equals the most recently used block is evicted.
//!
//! Departure: the paper takes the value of other blocks from UBM, which fits a curve (Belady's
//! lifetime function) through the hits of ghost buffers. Here the hits of four segments of an LRU
//! stack stand for that curve; nothing is fitted.

use super::partition::{EXPIRE, OTHER, Partitioned};
use crate::cache::ReplacementPolicy;
use crate::classify::pcc::{Config, Pcc};
use crate::entry::{
    Compared, Mechanism, Needs, Param, ReplacementEntry, ReplacementSettings, Values,
};

/// The line in the registry.
pub(crate) const ENTRY: ReplacementEntry = ReplacementEntry {
    name: "pcc",
    summary: "partitions the cache by access pattern, detected for each call site",
    source: "Gniady, Butt and Hu, OSDI 2004",
    params: PARAMS,
    needs: Needs {
        sites: true,
        ..Needs::NOTHING
    },
    live: &[Mechanism::PageCache],
    compared: Compared::InAdvice(5),
    build: &build,
};

/// The defaults of the threshold and the sampling period are those of section 5.3.1 of the paper.
const PARAMS: &[Param] = &[
    Param::count(
        "threshold",
        "the accesses to new blocks after which a call site is sequential",
        100,
        1..=u64::MAX,
    ),
    Param::count(
        "sample",
        "of so many accesses of a call site, the block of one is watched for its return",
        20,
        1..=1 << 20,
    ),
    Param::count(
        "entries",
        "the most blocks watched at a time",
        65536,
        1..=1 << 30,
    ),
    Param::count(
        "sites",
        "the most call sites remembered at a time",
        4096,
        1..=1 << 30,
    ),
    EXPIRE,
    OTHER,
];

/// The configuration of its classifier.
pub fn config(values: &Values) -> Config {
    Config {
        threshold: values.count(0),
        sample: values.count(1),
        entries_max: values.count(2) as usize,
        sites_max: values.count(3) as usize,
    }
}

/// Builds the policy.
fn build(settings: &ReplacementSettings<'_>, values: &Values) -> Box<dyn ReplacementPolicy> {
    Box::new(Partitioned::new(
        settings.capacity,
        Pcc::new(config(values), settings.sites),
        values.real(4),
        values.policy(5).build(settings),
    ))
}
