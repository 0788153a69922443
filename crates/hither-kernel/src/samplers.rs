//! The ways to sample who uses which page, in the order of preference.

use std::fmt;

use crate::page_sampling::{PageSampler, SamplingError};
use crate::{hint_faults, pmu, userfaultfd};

/// The names of all ways, the best first.
pub const NAMES: [&str; 3] = [pmu::NAME, hint_faults::NAME, userfaultfd::NAME];

/// Whether the way of that name sees writes and no reads: what its samples say is said of writes.
pub fn sees_writes_alone(name: &str) -> bool {
    name == userfaultfd::NAME
}

/// Whether the way of that name listens to the kernel's NUMA balancing, which moves pages itself.
pub fn is_of_balancing(name: &str) -> bool {
    name == hint_faults::NAME
}

/// A way to sample, and whether it works here.
pub struct SamplerCandidate {
    /// Its name.
    pub name: &'static str,
    /// The way, or why it does not work.
    pub sampler: Result<Box<dyn PageSampler>, SamplingError>,
}

impl fmt::Debug for SamplerCandidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let refusal = self.sampler.as_ref().err();
        f.debug_struct("SamplerCandidate")
            .field("name", &self.name)
            .field("refusal", &refusal)
            .finish()
    }
}

/// All ways, the best first, each tried out on memory of our own.
pub fn candidates() -> Vec<SamplerCandidate> {
    let write_protect = userfaultfd::WriteProtectSampler::tried();
    vec![
        SamplerCandidate {
            name: pmu::NAME,
            sampler: pmu::tried().map(|arm| Box::new(arm) as Box<dyn PageSampler>),
        },
        SamplerCandidate {
            name: hint_faults::NAME,
            sampler: hint_faults::HintFaultSampler::tried()
                .map(|arm| Box::new(arm) as Box<dyn PageSampler>),
        },
        SamplerCandidate {
            name: userfaultfd::NAME,
            sampler: write_protect.map(|arm| Box::new(arm) as Box<dyn PageSampler>),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_sees_what_its_name_says() {
        assert!(NAMES.into_iter().any(sees_writes_alone));
        for candidate in candidates() {
            if let Ok(sampler) = candidate.sampler {
                assert_eq!(sampler.sees_reads(), !sees_writes_alone(candidate.name));
            }
        }
    }
}
