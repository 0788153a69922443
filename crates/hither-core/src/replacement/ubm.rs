//! UBM: the partitioned cache with classification by file. See [`partition`](super::partition) for
//! what it keeps and [`classify::ubm`](crate::classify::ubm) for how it classifies; both list their
//! departures from the paper.
//!
//! Source: Kim et al., "A low-overhead high-performance unified buffer management scheme that
//! exploits sequential and looping references", OSDI 2000.
//!
//! Each departure from the papers is one parameter. `as=paper` takes all of them back at once; a
//! parameter that is given beside it wins, as in `ubm{as=paper,expire=2}`:
//! - `expire`: a loop that has not returned for two of its periods has ended, and its blocks are
//!   evicted before all others. In the papers loops never end.
//! - `steady`: as soon as a file loops, its sequential blocks become looping ones. In the papers
//!   each does at its next reference. This is PCC's rule for steady call sites; a looping file
//!   counts as steady.
//! - `periods`: periods with the same power of two count as equal.
//! - `gain`: the value of other blocks comes from the hits of four segments of an LRU stack, not
//!   from a curve (Belady's lifetime function) fitted through the hits of ghost buffers.
//!
//! Readings that are parameters too: `sequential` (whether sequential blocks are discarded while
//! there is room), and `period_of`: a loop and its period belong to a file.
//!
//! What each is worth, in points of hit ratio, if it alone is taken back from the default: over
//! the eight workloads of the PCC paper as `pcc.py` records them, in caches of 5, 10, 25, 50 and
//! 75 % of their blocks (2026-11, build 88898eea). `experiments/pcc/departures.py` measures these
//! and the same in paper mode, by workload (`results/departures.md`):
//!
//! | departure | paper | mean | worst | best |
//! |---|---|--:|--:|--:|
//! | `expire=2` | `expire=0` | +2.8 | -15.2 (multi1, 50 %) | +40.7 (gcc, 25 %) |
//! | `periods=power` | `periods=exact` | +0.6 | -0.2 (multi2, 5 %) | +3.0 (multi3, 5 %) |
//! | `gain=segments` | `gain=fitted` | +0.3 | -2.9 (multi3, 25 %) | +5.7 (glimpse, 50 %) |
//! | `steady=1` | `steady=0` | +0.2 | -0.9 (cscope, 25 %) | +0.9 (multi2, 10 %) |

use super::partition::{
    EXPIRE, GAIN, HITHER, MAPPED, OTHER, PERIOD_OF, PERIODS, Partitioned, SEQUENTIAL, STEADY,
    paper_mode,
};
use crate::cache::ReplacementPolicy;
use crate::classify::ubm::Ubm;
use crate::entry::{
    Compared, Mechanism, Needs, Param, Preset, ReplacementEntry, ReplacementSettings, Value, Values,
};

/// The line in the registry.
pub(crate) const ENTRY: ReplacementEntry = ReplacementEntry {
    name: "ubm",
    summary: "partitions the cache by access pattern, detected for each file",
    source: "Kim et al., OSDI 2000",
    params: PARAMS,
    needs: Needs {
        objects: true,
        ..Needs::NOTHING
    },
    takes_sizes: false,
    live: &[Mechanism::PageCache],
    compared: Compared::InAdvice(4),
    build: &build,
};

/// The default of the threshold is that of the evaluation of PCC, section 5.3.3.
const PARAMS: &[Param] = &[
    Param::count(
        "threshold",
        "the consecutive blocks of a file after which it is sequential",
        3,
        1..=1 << 30,
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
                ("gain", Value::Name("fitted")),
            ],
        },
    ]),
];

/// Its classifier.
pub fn classifier(values: &Values) -> Ubm {
    Ubm::new(values.count(0) as u32)
}

/// Builds the policy.
fn build(settings: &ReplacementSettings<'_>, values: &Values) -> Box<dyn ReplacementPolicy> {
    Box::new(Partitioned::new(settings, classifier(values), values, 1))
}
