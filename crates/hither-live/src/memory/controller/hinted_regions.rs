//! Regions that the kernel samples by its hint faults: their state, and when to inspect them.

use std::collections::BTreeMap;

use hither_core::{Node, Object};

use super::super::counters::CPUS_MAX;

/// The first inspection of a region comes this long after its allocation. The interval doubles each
/// time, up to the second value.
pub(super) const INSPECTION_INTERVAL_NS_MIN: u64 = 50_000_000;
pub(super) const INSPECTION_INTERVAL_NS_MAX: u64 = 5_000_000_000;

/// A region counts as filled if no more than one in so many of its pages is missing.
pub(super) const MISSING_DIVISOR: u32 = 16;

/// A region that is left to the kernel is inspected so many times a pass of the scanner: it may lie
/// well between two passes, and the next pass spoils it.
pub(super) const INSPECTIONS_PER_PASS: u32 = 4;

/// The kernel moves a page at the second touch from the same node. What it has not put right in so
/// many passes, it never will.
const PASSES_MAX: u64 = 16;

/// An inspection goes through all pages of a region at a few hundred nanoseconds a page, since it
/// asks for their nodes. This rest after it keeps inspections to a hundredth of a CPU.
const INSPECTION_REST_NS_PER_PAGE: u64 = 20_000;

/// A large region rests no longer than this, or than what keeps inspections to a hundredth of all
/// CPUs that count: 9 minutes for 100 GiB are too long.
const INSPECTION_REST_NS: u64 = 100_000_000;

/// A region to be inspected, and its generation.
pub(super) type Inspection = (Object, u32);

/// Regions that the kernel samples, and what is due for them.
#[derive(Debug)]
pub(super) struct HintedRegions {
    cpus: u64,
    pub(super) due: BTreeMap<(u64, u64), (Object, u32, HintStep)>,
    count: u64,
    /// Regions of which pages have moved.
    pub(super) stale: Vec<Object>,
    /// Regions that a second node has begun to use.
    pub(super) shared: Vec<Object>,
    /// How many regions the kernel samples.
    pub(super) live: usize,
}

/// What is due for a region.
#[derive(Clone, Copy, Debug)]
pub(super) enum HintStep {
    /// Ask for the nodes of its pages.
    Inspect,
    /// Judge whether it is well placed.
    Judge,
    /// Give its runs new policies, where they have changed.
    UpdatePolicies,
}

/// How far a region is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum HintStage {
    /// Its pages are still being touched for the first time.
    #[default]
    Filling,
    /// It is held where it is, until a pass shows whether it is well placed.
    Trial,
    /// The kernel moves its pages.
    KernelMoves,
    /// It is held where it is.
    Held,
}

/// A region that the kernel samples.
#[derive(Debug, Default)]
pub(super) struct HintedRegion {
    pub(super) stage: HintStage,
    /// The policies of its runs while it is held, from the first page on.
    pub(super) runs: Vec<(u32, Option<Node>)>,
    /// Pages that exist, as far as is known.
    pub(super) present: u32,
    /// Samples in this stage, since several nodes use it.
    samples: u64,
    /// Of these, samples since the last pass of the scanner.
    pub(super) of_pass: u64,
    /// Look-ups of its pages that are not answered yet.
    pub(super) open_lookups: u32,
    /// The current interval of inspections.
    pub(super) wait_ns: u64,
    /// The end of the rest after the last inspection.
    pub(super) rests_until_ns: u64,
    /// First touches since the last inspection.
    pub(super) new_touches: u32,
    /// An update of its policies is due.
    pub(super) updates: bool,
    /// A policy could not be set.
    pub(super) refused: bool,
    /// How often its policies were set again for that.
    pub(super) retries: u32,
    /// The inspection that is due.
    pub(super) inspection: Option<(u64, u64)>,
}

impl HintedRegion {
    /// A region whose first inspection is due by this key.
    pub(super) fn new(inspection: (u64, u64)) -> HintedRegion {
        HintedRegion {
            wait_ns: INSPECTION_INTERVAL_NS_MIN,
            inspection: Some(inspection),
            ..HintedRegion::default()
        }
    }

    /// Whether an inspection is due, or under way.
    pub(super) fn is_inspected(&self) -> bool {
        self.inspection.is_some() || self.open_lookups > 0
    }

    /// Whether the stage has lasted so many passes that the kernel will not improve the region any
    /// more.
    pub(super) fn is_exhausted(&self) -> bool {
        self.samples >= PASSES_MAX * u64::from(self.present)
    }

    /// Takes in a sample. After as many as a pass of the scanner makes, or a part of one, the
    /// result is judged or inspected, unless one node alone uses the region.
    pub(super) fn sampled(
        &mut self,
        now_ns: u64,
        of: Inspection,
        is_shared: bool,
        hints: &mut HintedRegions,
    ) {
        self.samples += 1;
        self.of_pass += 1;
        match self.stage {
            // Part of the pass may have come before it was known that several nodes use the region.
            HintStage::Trial
                if self.of_pass >= u64::from(self.present - self.present / MISSING_DIVISOR) =>
            {
                self.of_pass = 0;
                hints.set(now_ns, of, HintStep::Judge);
            }
            HintStage::KernelMoves
                if is_shared && self.of_pass > u64::from(self.present / INSPECTIONS_PER_PASS) =>
            {
                self.inspect_by(now_ns.max(self.rests_until_ns), of, hints);
            }
            _ => {}
        }
    }

    /// Makes sure that an inspection is due by then at the latest, unless one is under way.
    pub(super) fn inspect_by(&mut self, due_ns: u64, of: Inspection, hints: &mut HintedRegions) {
        let is_due_by_then = |(already_ns, _): (u64, u64)| already_ns <= due_ns;
        if self.open_lookups > 0 || self.inspection.is_some_and(is_due_by_then) {
            return;
        }
        if let Some(key) = self.inspection.take() {
            hints.due.remove(&key);
        }
        self.inspection = Some(hints.set(due_ns, of, HintStep::Inspect));
    }

    /// Begins a stage.
    pub(super) fn begin(&mut self, stage: HintStage) {
        self.stage = stage;
        self.samples = 0;
        self.of_pass = 0;
        self.retries = 0;
        self.wait_ns = INSPECTION_INTERVAL_NS_MIN;
    }
}

impl HintedRegions {
    pub(super) fn new(cpus: usize) -> HintedRegions {
        HintedRegions {
            cpus: cpus.clamp(1, CPUS_MAX) as u64,
            due: BTreeMap::new(),
            count: 0,
            stale: Vec::new(),
            shared: Vec::new(),
            live: 0,
        }
    }

    /// How long a region of so many pages rests after an inspection.
    pub(super) fn rest_ns(&self, pages: u32) -> u64 {
        let one_cpu_ns = u64::from(pages) * INSPECTION_REST_NS_PER_PAGE;
        one_cpu_ns.min(INSPECTION_REST_NS.max(one_cpu_ns / self.cpus))
    }

    /// Sets when a step is due, and returns its key.
    pub(super) fn set(&mut self, due_ns: u64, of: Inspection, step: HintStep) -> (u64, u64) {
        let key = (due_ns, self.count);
        self.due.insert(key, (of.0, of.1, step));
        self.count += 1;
        key
    }

    /// When the next step is due.
    pub(super) fn due_ns(&self) -> Option<u64> {
        self.due.keys().next().map(|&(due_ns, _)| due_ns)
    }

    /// Whether the kernel samples any region.
    pub(super) fn is_live(&self) -> bool {
        self.live > 0
    }

    /// Pages of a region have moved.
    pub(super) fn moved(&mut self, object: Object) {
        self.stale.push(object);
    }

    /// A second node has begun to use a region.
    pub(super) fn shared(&mut self, object: Object) {
        self.shared.push(object);
    }

    /// A counted region is gone.
    pub(super) fn end(&mut self, was_hinted: bool) {
        self.live -= usize::from(was_hinted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_regions_rest_by_all_cpus_between_two_inspections() {
        let rest_ms = |cpus, pages| HintedRegions::new(cpus).rest_ns(pages) / 1_000_000;
        assert_eq!([1, 4, 64].map(|cpus| rest_ms(cpus, 4_000)), [80; 3]);
        let gib = 1 << 18;
        assert_eq!(
            [1, 4, 64].map(|cpus| rest_ms(cpus, gib)),
            [5_242, 1_310, 327]
        );
        assert_eq!(rest_ms(16, 16_000), 100);
    }
}
