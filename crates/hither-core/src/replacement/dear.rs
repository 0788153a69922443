//! DEAR: the partitioned cache with classification by process. See [`partition`](super::partition)
//! for what it keeps and [`classify::dear`](crate::classify::dear) for how it classifies. DEAR
//! itself gives each application a cache with its own policy and shares memory among them by a
//! simple rule; put into the partitioned cache, it is compared with `ubm` and `pcc` by its
//! classification alone.
//!
//! Source: Choi et al., "An implementation study of a detection-based adaptive block replacement
//! scheme", USENIX ATC 1999.

use super::partition::{EXPIRE, OTHER, Partitioned};
use crate::cache::ReplacementPolicy;
use crate::classify::dear::Dear;
use crate::entry::{
    Compared, Mechanism, Needs, Param, ParamKind, ReplacementEntry, ReplacementSettings, Values,
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
    live: &[Mechanism::PageCache],
    compared: Compared::InAdvice(3),
    build,
};

/// The window and the number of sublists are ours to choose.
const PARAMS: &[Param] = &[
    Param {
        name: "window",
        doc: "a process is judged every so many of its references",
        kind: ParamKind::Count {
            default: 500,
            min: 2,
            max: 1 << 30,
        },
    },
    Param {
        name: "sublists",
        doc: "parts that its blocks are cut into, by age, to see whether the oldest come first",
        kind: ParamKind::Count {
            default: 5,
            min: 2,
            max: 1024,
        },
    },
    EXPIRE,
    OTHER,
];

/// Makes one.
fn build(settings: &ReplacementSettings<'_>, values: &Values) -> Box<dyn ReplacementPolicy> {
    Box::new(Partitioned::new(
        settings.capacity,
        Dear::new(values.count(0), values.count(1) as usize),
        values.real(2),
        values.policy(3).build(settings),
    ))
}
