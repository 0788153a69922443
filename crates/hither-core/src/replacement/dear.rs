//! DEAR: the partitioned cache with classification by process. See [`partition`](super::partition)
//! for what it keeps and [`classify::dear`](crate::classify::dear) for how it classifies. DEAR
//! itself gives each application a cache with a policy of its own, and divides memory among them by
//! a simple rule. Within the partitioned cache, its classification alone is compared with those of
//! `ubm` and `pcc`.
//!
//! Source: Choi et al., "An implementation study of a detection-based adaptive block replacement
//! scheme", USENIX ATC 1999.

use super::partition::{EXPIRE, OTHER, Partitioned};
use crate::cache::ReplacementPolicy;
use crate::classify::dear::Dear;
use crate::entry::{
    Compared, Mechanism, Needs, Param, ReplacementEntry, ReplacementSettings, Values,
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
    EXPIRE,
    OTHER,
];

/// Builds the policy.
fn build(settings: &ReplacementSettings<'_>, values: &Values) -> Box<dyn ReplacementPolicy> {
    Box::new(Partitioned::new(
        settings.capacity,
        Dear::new(values.count(0), values.count(1) as usize),
        values.real(2),
        values.policy(3).build(settings),
    ))
}
