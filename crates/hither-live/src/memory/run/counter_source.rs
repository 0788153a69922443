//! Finds a way to count accesses, by trying.

use hither_kernel::machine::{Machine, NodeMemory};
use hither_kernel::page_faults::PageFaults;
use hither_kernel::page_sampling::{ArmedBy, PageSampler, SamplingError};

use super::super::config::SampleSource;

/// A program is taken to keep so many CPUs busy at most.
const BUSY_CPUS: usize = 16;

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

    pub(super) fn name(&self) -> Option<&'static str> {
        self.arm.as_ref().map(|arm| arm.name())
    }

    /// Takes the way, for arming pages. `None` where nothing has to be armed.
    pub(super) fn take_arm(&mut self) -> Option<Box<dyn PageSampler>> {
        match self.source() {
            SampleSource::Processor | SampleSource::Hints => None,
            SampleSource::Armed => self.arm.take(),
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

    /// Opens the samples that the processor or the kernel makes of what the calling thread starts.
    /// So many are wanted a second. `None` where this is not the way.
    ///
    /// Nobody knows yet how many CPUs the program will keep busy. With few of them it gets fewer
    /// samples than wanted, and with many there are more, which are thinned out.
    pub(super) fn samples(
        &self,
        nodes: &[NodeMemory],
        a_second: f64,
    ) -> Option<Box<dyn PageFaults>> {
        let cpus: usize = nodes.iter().map(|node| node.cpus.len()).sum();
        let hertz = a_second as u64 / cpus.clamp(1, BUSY_CPUS) as u64;
        let arm = self
            .arm
            .as_ref()
            .filter(|arm| arm.armed_by() != ArmedBy::Agent)?;
        // Opening them has just worked in the trial. If it fails now, nothing is counted.
        arm.samples(hertz.max(1)).ok()
    }
}
