//! The parameters of upm, and what follows from them.

use super::criteria::{Bar, Better, Prices};
use crate::entry::{Param, Values};
use crate::ids::Node;
use crate::placement::entry::INITIAL;
use crate::placement::nodes::Nodes;

/// The defaults are figures of the Origin2000 (sections 3.1 and 5.4); those for what the paper
/// calls "a constant" or "several" are ours.
pub(super) const PARAMS: &[Param] = &[
    INITIAL,
    Param::count(
        "contention_ns",
        "what each contending node adds to the latency of a remote access",
        50,
        0..=1 << 20,
    ),
    Param::count(
        "migration_ns",
        "the cost of a migration, `ml`; in a running program it is measured",
        1_100_000,
        0..=1 << 40,
    ),
    Param::switch("optimistic", "1: `ml` is left out", false),
    Param::switch(
        "history",
        "1: counters accumulate over iterations; 0: they start again, as always for samples",
        true,
    ),
    Param::switch("predictive", "1: pages follow threads that moved", true),
    Param::count(
        "stay",
        "constructs that a thread must stay on the node that it moved to",
        2,
        0..=1 << 20,
    ),
    Param::switch(
        "freeze",
        "1: a page that would return to its previous home stays for good",
        true,
    ),
    Param::real(
        "tune",
        "the factor of an area's latency ratio when its worst remote latency grew; \
              1: never",
        1.1,
        1.0..=100.0,
    ),
    Param::count(
        "cold",
        "invocations without candidates after which an area is ignored; 0: never",
        10,
        0..=1 << 20,
    ),
    Param::count(
        "skip",
        "iterations at the start that are not counted",
        1,
        0..=1 << 20,
    ),
    Param::real(
        "period_ms",
        "time between two invocations in place of iterations; \
              0: iterations, or periods where there are none",
        0.0,
        0.0..=1e9,
    ),
    Param::count("visit", "pages examined each period", 512, 1..=1 << 30),
    Param::count(
        "replay",
        "pages moved before each construct and back after it; 0: none",
        0,
        0..=1 << 20,
    ),
    Param::switch(
        "adapt",
        "1: the period doubles, up to 64-fold, while it finds no candidate",
        false,
    ),
];

/// The time between two invocations, where periods replace iterations.
pub(super) fn period_ns(values: &Values) -> Option<u64> {
    let period_ns = (values.real(11) * 1e6) as u64;
    (period_ns > 0).then_some(period_ns)
}

/// The values of the parameters.
pub(super) struct UpmConfig {
    pub(super) contention_ns: u32,
    /// 0 in the optimistic variant.
    pub(super) migration_ns: u64,
    optimistic: bool,
    pub(super) history: bool,
    pub(super) predictive: bool,
    pub(super) stay: u64,
    pub(super) freeze: bool,
    pub(super) tune: f64,
    pub(super) cold: u64,
    pub(super) skip: u64,
    pub(super) visit: usize,
    pub(super) replay: u64,
    /// Periods grow while they find nothing.
    pub(super) adapt: bool,
    /// Counts are estimates.
    pub(super) sampled: bool,
}

impl UpmConfig {
    pub(super) fn of(values: &Values, sampled: bool) -> UpmConfig {
        UpmConfig {
            contention_ns: values.count(1) as u32,
            migration_ns: match values.count(3) {
                0 => values.count(2),
                _ => 0,
            },
            optimistic: values.count(3) == 1,
            history: values.count(4) == 1 && !sampled,
            predictive: values.count(5) == 1,
            stay: values.count(6),
            freeze: values.count(7) == 1,
            tune: if sampled { 1.0 } else { values.real(8) },
            cold: if sampled { 0 } else { values.count(9) },
            skip: if sampled { 0 } else { values.count(10) },
            visit: values.count(12) as usize,
            replay: values.count(13),
            adapt: values.count(14) == 1,
            sampled,
        }
    }

    /// Sets the measured cost of a migration.
    pub(super) fn set_migration_ns(&mut self, migration_ns: u64) {
        if !self.optimistic {
            self.migration_ns = migration_ns;
        }
    }

    /// The prices of accesses to pages of a home.
    pub(super) fn prices<'a>(
        &self,
        nodes: &'a Nodes,
        home: Node,
    ) -> Prices<impl Fn(Node) -> u32 + 'a> {
        Prices {
            latency_ns: move |from| nodes.topology().latency_ns(from, home),
            contention_ns: self.contention_ns,
        }
    }

    /// The competitive criterion for a move there and back.
    pub(super) fn judge<'a>(
        &self,
        nodes: &'a Nodes,
    ) -> impl Fn(&[u32], Node) -> Option<Better> + 'a {
        let bar = Bar {
            factor: 1.0,
            migration_ns: 2 * self.migration_ns,
        };
        let contention_ns = self.contention_ns;
        move |counts, home| {
            let prices = Prices {
                latency_ns: |from| nodes.topology().latency_ns(from, home),
                contention_ns,
            };
            prices.competitive(counts, home, bar)
        }
    }
}
