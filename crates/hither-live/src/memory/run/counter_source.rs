//! Finds a way to count accesses, by trying.

use hither_sys::machine::{Machine, NodeMemory};
use hither_sys::page_faults::PageFaults;
use hither_sys::page_sampling::{ArmedBy, PageSampler, SamplingError};

use super::super::controller::SampleSource;
use super::super::counters::SamplingBudget;

/// The cost of a fault event in perf: up to this (2 cores, Linux 6.18, 2026-11).
const FAULT_EVENT_NS: u64 = 500;

/// The least and most that a sample costs on any machine.
const SAMPLE_NS_MIN: u64 = 1_000;
const SAMPLE_NS_MAX: u64 = 20_000;

/// The first way that works, and why the others were refused.
#[derive(Default)]
pub(super) struct CounterSource {
    /// `None` where no way works, or counts are not needed.
    arm: Option<Box<dyn PageSampler>>,
    /// The ways that were refused, by name.
    pub(super) refused: Vec<(&'static str, SamplingError)>,
}

impl CounterSource {
    /// Tries all ways, or only the one that is `wanted`.
    pub(super) fn find(machine: &dyn Machine, wanted: Option<&'static str>) -> CounterSource {
        let mut found = CounterSource::default();
        for candidate in machine.sampler_candidates() {
            if wanted.is_some_and(|wanted| wanted != candidate.name) {
                continue;
            }
            match candidate.sampler {
                Ok(arm) => found.arm = found.arm.or(Some(arm)),
                Err(reason) => found.refused.push((candidate.name, reason)),
            }
        }
        found
    }

    /// The cost of a sample, as measured now, within bounds: on a busy machine the measurement is
    /// too high. `None` where it cannot be measured.
    pub(super) fn sample_ns(&mut self) -> Option<u64> {
        let cost = self.arm.as_mut()?.cost()?;
        let sample_ns = cost.arm_ns + cost.touch_ns + FAULT_EVENT_NS;
        Some(sample_ns.clamp(SAMPLE_NS_MIN, SAMPLE_NS_MAX))
    }

    pub(super) fn name(&self) -> Option<&'static str> {
        self.arm.as_ref().map(|arm| arm.name())
    }

    /// Takes the way, for arming pages. `None` where the processor samples, which arms nothing.
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

    /// Whether programs have to offer a descriptor for arming their pages.
    pub(super) fn needs_offers(&self) -> bool {
        self.arm
            .as_ref()
            .is_some_and(|arm| arm.armed_by() == ArmedBy::Agent)
    }

    /// Opens the processor's samples of what the calling thread starts, as many as the budget
    /// allows. `None` where this is not the way.
    pub(super) fn samples(
        &self,
        nodes: &[NodeMemory],
        cpu_permille: u32,
    ) -> Option<Box<dyn PageFaults>> {
        let cpus: usize = nodes.iter().map(|node| node.cpus.len()).sum();
        let hertz = SamplingBudget::of(cpus, cpu_permille).samples_a_second() / cpus.max(1) as u64;
        let arm = self
            .arm
            .as_ref()
            .filter(|arm| arm.armed_by() == ArmedBy::Processor)?;
        // Opening them has just worked in the trial. If it fails now, nothing is counted.
        arm.samples(hertz.max(1)).ok()
    }
}
