//! The way in which accesses are counted, found by trying.

use hither_sys::machine::{Machine, NodeMemory};
use hither_sys::page_faults::PageFaults;
use hither_sys::page_sampling::{ArmedBy, PageSampler, SamplingError};

use super::super::controller::SampleSource;
use super::super::counters::Budget;

/// What perf takes to see a touch (up to that: 2 cores, Linux 6.18, 2026-11).
const SEEN_NS: u64 = 500;

/// What a sample costs anywhere.
const SAMPLE_NS: (u64, u64) = (1_000, 20_000);

/// The first way that works, and why others are not taken.
#[derive(Default)]
pub(super) struct CounterSource {
    /// Nothing where none works, or none is wanted.
    arm: Option<Box<dyn PageSampler>>,
    /// What refused, by its name.
    pub(super) refused: Vec<(&'static str, SamplingError)>,
}

impl CounterSource {
    /// Tries all ways, or the only one that may be taken.
    pub(super) fn find(machine: &dyn Machine, wanted: Option<&'static str>) -> CounterSource {
        let mut way = CounterSource::default();
        for candidate in machine.sampler_candidates() {
            if wanted.is_some_and(|wanted| wanted != candidate.name) {
                continue;
            }
            match candidate.sampler {
                Ok(arm) => way.arm = way.arm.or(Some(arm)),
                Err(reason) => way.refused.push((candidate.name, reason)),
            }
        }
        way
    }

    /// What a sample costs, as measured now; nothing where that could not be. A machine that is
    /// busy at this moment says too much: in bounds.
    pub(super) fn sample_ns(&mut self) -> Option<u64> {
        let cost = self.arm.as_mut()?.cost()?;
        let sample_ns = cost.arm_ns + cost.touch_ns + SEEN_NS;
        Some(sample_ns.clamp(SAMPLE_NS.0, SAMPLE_NS.1))
    }

    pub(super) fn name(&self) -> Option<&'static str> {
        self.arm.as_ref().map(|arm| arm.name())
    }

    /// The way, for whoever arms; where the processor samples nobody does.
    pub(super) fn take_arm(&mut self) -> Option<Box<dyn PageSampler>> {
        match self.source() {
            SampleSource::Processor => None,
            SampleSource::Armed | SampleSource::Hints => self.arm.take(),
        }
    }

    pub(super) fn source(&self) -> SampleSource {
        match self.arm.as_ref().map(|arm| arm.armed_by()) {
            Some(ArmedBy::Processor) => SampleSource::Processor,
            Some(ArmedBy::Kernel) => SampleSource::Hints,
            Some(ArmedBy::Agent) | None => SampleSource::Armed,
        }
    }

    /// Whether programs have to offer a descriptor for it.
    pub(super) fn needs_offers(&self) -> bool {
        self.arm
            .as_ref()
            .is_some_and(|arm| arm.armed_by() == ArmedBy::Agent)
    }

    /// The processor's samples of what the calling thread starts, as many as the budget pays for.
    /// Nothing where it makes none.
    pub(super) fn samples(
        &self,
        nodes: &[NodeMemory],
        cpu_permille: u32,
    ) -> Option<Box<dyn PageFaults>> {
        let cpus: usize = nodes.iter().map(|node| node.cpus.len()).sum();
        let hertz = Budget::of(cpus, cpu_permille).samples_a_second() / cpus.max(1) as u64;
        let arm = self
            .arm
            .as_ref()
            .filter(|arm| arm.armed_by() == ArmedBy::Processor)?;
        // It was opened for the trial a moment ago; if it is not now, nothing is counted.
        arm.samples(hertz.max(1)).ok()
    }
}
