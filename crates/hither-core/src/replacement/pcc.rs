//! PCC: the partitioned cache with classification by call site. See [`partition`](super::partition)
//! for what it keeps and [`classify::pcc`](crate::classify::pcc) for how it classifies; both list
//! their departures from the paper.
//!
//! Source: Gniady, Butt and Hu, "Program-counter-based pattern classification in buffer caching",
//! OSDI 2004.
//!
//! Each departure from the paper is one parameter. `as=paper` takes all of them back at once; a
//! parameter that is given beside it wins, as in `pcc{as=paper,expire=2}`.
//!
//! Departure (`steady`): *steady* sites, for programs that read each block once an epoch, in
//! another order each time. In the paper a block keeps its class until it is accessed again
//! (sections 4.1 and 5.1), and the period follows the latest accesses. A site is steady if its
//! blocks return after similar times. When it is found to loop, the blocks that were taken for
//! sequential count as looping at once, and its loop has not ended before `expire` times the mean
//! of these times. Simulated, six epochs over 512 MiB in records of 128 KiB, with a cache of 223
//! MiB (2026-11): 1957 MiB of misses, which is the optimum, against 2229 MiB without this rule.
//!
//! Departure (`expire`): a loop that has not returned for two of its periods has ended, and its
//! blocks are evicted before all others. In the paper loops never end.
//!
//! Departure (`periods`): looping blocks are compared by period, as in the paper, but periods with
//! the same power of two count as equal. Among equals the most recently used block is evicted.
//!
//! Departure (`period_of`): that period is the present one of the block's site. Figure 4 of the
//! paper returns a period with each access, and the block keeps it until its next one.
//!
//! Departure (`gain`): the paper takes the value of other blocks from UBM, which fits a curve
//! (Belady's lifetime function) through the hits of ghost buffers. Here the hits of four segments
//! of an LRU stack stand for that curve; nothing is fitted.
//!
//! Departure (`mapped`): the paper's kernel takes references to mapped files for *other* (section
//! 5.4), since it cannot tell who makes them. The trace has the call site of `mmap`.
//!
//! Readings that are parameters too, as the paper is open or contradicts itself; `as=paper` leaves
//! them alone: `counters` (what figure 4 counts under sampling) and `sequential` (whether
//! sequential blocks are discarded while there is room).
//!
//! What each is worth, in points of hit ratio, if it alone is taken back from the default: over
//! the eight workloads of the PCC paper as `pcc.py` records them, in caches of 5, 10, 25, 50 and
//! 75 % of their blocks (2026-11, build 88898eea). `experiments/pcc/departures.py` measures these
//! and the same in paper mode, by workload (`results/departures.md`):
//!
//! | departure | paper | mean | worst | best |
//! |---|---|--:|--:|--:|
//! | `expire=2` | `expire=0` | +4.7 | -4.5 (tpc-h, 50 %) | +35.7 (viewperf, 25 %) |
//! | `period_of=stream` | `period_of=block` | +0.5 | -4.1 (multi1, 75 %) | +5.7 (multi1, 25 %) |
//! | `periods=power` | `periods=exact` | +0.3 | -0.8 (multi2, 10 %) | +2.7 (glimpse, 10 %) |
//! | `gain=segments` | `gain=fitted` | 0.0 | -0.1 (gcc, 10 %) | 0.0 (multi1, 50 %) |
//! | `steady=1` | `steady=0` | -0.3 | -4.7 (multi2, 10 %) | +1.6 (tpc-h, 50 %) |
//!
//! The steady rule is for shuffled epochs, which the paper does not have.

use super::partition::{
    EXPIRE, GAIN, HITHER, MAPPED, OTHER, PERIOD_OF, PERIODS, Partitioned, SEQUENTIAL, STEADY,
    paper_mode,
};
use crate::cache::ReplacementPolicy;
use crate::classify::pcc::{Config, Counters, Pcc};
use crate::entry::{
    Compared, Mechanism, Needs, Param, Preset, ReplacementEntry, ReplacementSettings, Value, Values,
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
    takes_sizes: false,
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
    Param::name(
        "counters",
        "what a site's counters count under sampling: accesses, of which a sampled one that \
         returns stands for many; samples alone; or as figure 4 of the paper says for no sampling",
        "weighted",
        Counters::NAMES,
    ),
    EXPIRE,
    STEADY,
    PERIODS,
    PERIOD_OF,
    GAIN,
    SEQUENTIAL,
    MAPPED,
    OTHER,
    paper_mode(&[
        HITHER,
        Preset {
            name: "paper",
            values: &[
                ("expire", Value::Real(0.0)),
                ("steady", Value::Count(0)),
                ("periods", Value::Name("exact")),
                ("period_of", Value::Name("block")),
                ("gain", Value::Name("fitted")),
                ("mapped", Value::Name("other")),
            ],
        },
    ]),
];

/// The configuration of its classifier.
pub fn config(values: &Values) -> Config {
    Config {
        threshold: values.count(0),
        sample: values.count(1),
        entries_max: values.count(2) as usize,
        sites_max: values.count(3) as usize,
        counters: Counters::named(values.name(4)).expect("checked on parsing"),
    }
}

/// Builds the policy.
fn build(settings: &ReplacementSettings<'_>, values: &Values) -> Box<dyn ReplacementPolicy> {
    let classifier = Pcc::new(config(values), settings.sites);
    Box::new(Partitioned::new(settings, classifier, values, 5))
}
