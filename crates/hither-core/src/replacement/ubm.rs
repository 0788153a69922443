//! UBM: the partitioned cache with classification by file. See [`partition`](super::partition) for
//! what it keeps and [`classify::ubm`](crate::classify::ubm) for how it classifies; both list their
//! departures from the paper.
//!
//! Source: Kim et al., "A low-overhead high-performance unified buffer management scheme that
//! exploits sequential and looping references", OSDI 2000.

use super::partition::{EXPIRE, OTHER, Partitioned};
use crate::cache::ReplacementPolicy;
use crate::classify::ubm::Ubm;
use crate::entry::{
    Compared, Mechanism, Needs, Param, ReplacementEntry, ReplacementSettings, Values,
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
    OTHER,
];

/// Its classifier.
pub fn classifier(values: &Values) -> Ubm {
    Ubm::new(values.count(0) as u32)
}

/// Builds the policy.
fn build(settings: &ReplacementSettings<'_>, values: &Values) -> Box<dyn ReplacementPolicy> {
    Box::new(Partitioned::new(
        settings.capacity,
        classifier(values),
        values.real(1),
        values.policy(2).build(settings),
    ))
}
