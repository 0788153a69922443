//! DEAR: the partitioned cache with classification by process. See [`partition`](super::partition)
//! for what it keeps and [`classify::dear`](crate::classify::dear) for how it classifies. DEAR
//! itself gives each application a cache with a policy of its own, and divides memory among them by
//! a simple rule. Within the partitioned cache, its classification alone is compared with those of
//! `ubm` and `pcc`.
//!
//! Source: Choi et al., "An implementation study of a detection-based adaptive block replacement
//! scheme", USENIX ATC 1999.
//!
//! Each departure from the paper is one parameter, but for that cache. `as=paper` takes all of them
//! back at once; a parameter that is given beside it wins, as in `dear{as=paper,expire=2}`. `ages`
//! and `new_blocks` are the classifier's; `expire`, `steady`, `periods` and `gain` are those of the
//! partitioned cache, which have the values of `ubm{as=paper}`: DEAR itself has none of them.
//!
//! What each is worth, in points of hit ratio, if it alone is taken back from the default: over
//! the eight workloads of the PCC paper as `pcc.py` records them, in caches of 5, 10, 25, 50 and
//! 75 % of their blocks (2026-11, build 88898eea). `experiments/pcc/departures.py` measures these
//! and the same in paper mode, by workload (`results/departures.md`):
//!
//! | departure | paper | mean | worst | best |
//! |---|---|--:|--:|--:|
//! | `ages=any` | `ages=own` | +8.1 | -14.2 (gcc, 10 %) | +40.9 (gcc, 25 %) |
//! | `expire=2` | `expire=0` | +4.9 | -15.0 (cscope, 50 %) | +27.9 (viewperf, 10 %) |
//! | `steady=1` | `steady=0` | +0.7 | -0.6 (multi3, 75 %) | +6.9 (tpc-h, 25 %) |
//! | `gain=segments` | `gain=fitted` | 0.0 | -0.6 (tpc-h, 10 %) | +0.6 (multi1, 10 %) |
//! | `new_blocks=most` | `new_blocks=all` | 0.0 | -1.4 (viewperf, 5 %) | +2.2 (glimpse, 50 %) |
//! | `periods=power` | `periods=exact` | 0.0 | -0.6 (tpc-h, 10 %) | +0.6 (tpc-h, 5 %) |

use super::partition::{
    EXPIRE, GAIN, HITHER, MAPPED, OTHER, PERIOD_OF, PERIODS, Partitioned, SEQUENTIAL, STEADY,
    paper_mode,
};
use crate::cache::ReplacementPolicy;
use crate::classify::dear::{Config, Dear};
use crate::entry::{
    Compared, Mechanism, Needs, Param, Preset, ReplacementEntry, ReplacementSettings, Value, Values,
};

/// The line in the registry.
pub(crate) const ENTRY: ReplacementEntry = ReplacementEntry {
    name: "dear",
    summary: "partitions the cache by access pattern, detected for each process",
    source: "Choi et al., USENIX ATC 1999",
    params: PARAMS,
    needs: Needs {
        processes: true,
        ..Needs::NOTHING
    },
    takes_sizes: false,
    live: &[Mechanism::PageCache],
    compared: Compared::InAdvice(3),
    build: &build,
};

/// The paper gives no defaults for the window and the number of sublists.
const PARAMS: &[Param] = &[
    Param::count(
        "window",
        "the references of a process after which it is classified again",
        500,
        2..=1 << 30,
    ),
    Param::count(
        "sublists",
        "the sublists, by age, that its blocks are divided into to see if old ones come first",
        5,
        2..=1024,
    ),
    Param::name(
        "new_blocks",
        "a window of a process is sequential if most or all (as in the paper) of its blocks are \
         new",
        "most",
        &["most", "all"],
    ),
    Param::name(
        "ages",
        "a block's age is the time since any process referenced it, or since its own did (as in \
         the paper)",
        "any",
        &["any", "own"],
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
                ("new_blocks", Value::Name("all")),
                ("ages", Value::Name("own")),
                ("expire", Value::Real(0.0)),
                ("steady", Value::Count(0)),
                ("periods", Value::Name("exact")),
                ("gain", Value::Name("fitted")),
            ],
        },
    ]),
];

/// Builds the policy.
fn build(settings: &ReplacementSettings<'_>, values: &Values) -> Box<dyn ReplacementPolicy> {
    let classifier = Dear::new(Config {
        window: values.count(0),
        sublists: values.count(1) as usize,
        all_new: values.name(2) == "all",
        own_ages: values.name(3) == "own",
    });
    Box::new(Partitioned::new(settings, classifier, values, 4))
}
