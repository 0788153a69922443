//! Sampling by the kernel: NUMA balancing's hint faults.
//!
//! Where `kernel.numa_balancing` is 1, the kernel takes the access rights off a program's pages,
//! some 256 MiB at a time, once in one to sixty seconds of the program's CPU time. The next touch
//! of each page, a read or a write, faults once, and the kernel moves pages to the node that
//! touched them twice. So nobody has to arm anything: perf counts page faults, and passes one in
//! eight of them on. That is at most some 8,000 a second, for the scanner goes through 256 MiB a
//! second at most. (A sampling frequency would not do: faults come in bursts, in which the kernel
//! lengthens the sampling period, and it does not shorten it while none come. Of 26,000 faults in 6
//! s 106 were passed on where 2,500 a second had been asked for; Linux 6.12, 2026-11.)
//!
//! On Linux 6.18, 2026-11, a process of two threads with 64 MiB saw each of its 16,384 pages fault
//! once in 2.0 to 2.5 s. A process of one thread sees no fault on pages of its own node, which the
//! kernel does not sample then. First touches are page faults as well, and look the same.
//!
//! The sysctl is the administrator's, and is never set from here.

use std::fs;

use crate::page_faults::{Event, PageFaults, PerfRings, SamplePeriod, WatchError};
use crate::page_sampling::{ArmedBy, PageSampler, SamplingError};

/// Its name on the command line.
pub const NAME: &str = "hint-faults";

const SYSCTL: &str = "/proc/sys/kernel/numa_balancing";

/// One in so many faults is a sample.
const FAULTS_PER_SAMPLE: u64 = 8;

/// Of the sysctl: pages are sampled whatever node they are on. Alone among its bits it means what
/// we need; with 2 only pages of slow nodes are.
const NORMAL: u32 = 1;

/// The kernel's way.
#[derive(Debug)]
pub struct HintFaultSampler(());

impl HintFaultSampler {
    /// The way, where the kernel samples.
    pub(crate) fn tried() -> Result<HintFaultSampler, SamplingError> {
        let setting = fs::read_to_string(SYSCTL).map_err(|_| SamplingError::NoCall)?;
        if is_on(&setting) {
            Ok(HintFaultSampler(()))
        } else {
            Err(SamplingError::KernelIdle)
        }
    }
}

fn is_on(setting: &str) -> bool {
    let number = setting.trim().parse::<u32>();
    number.is_ok_and(|number| number & NORMAL != 0)
}

impl PageSampler for HintFaultSampler {
    fn name(&self) -> &'static str {
        NAME
    }

    fn sees_reads(&self) -> bool {
        true
    }

    fn armed_by(&self) -> ArmedBy {
        ArmedBy::Kernel
    }

    fn samples(&self, _hertz: u64) -> Result<Box<dyn PageFaults>, WatchError> {
        let event = Event {
            every: SamplePeriod::Count(FAULTS_PER_SAMPLE),
            ..Event::PAGE_FAULTS
        };
        Ok(Box::new(PerfRings::of_programs(event)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sysctl_is_a_set_of_bits() {
        assert!(is_on("1\n") && is_on("3\n"));
        assert!(!is_on("0\n") && !is_on("2\n") && !is_on("") && !is_on("on"));
    }

    #[test]
    fn this_kernel_samples_or_says_why() {
        let off = fs::read_to_string(SYSCTL).is_ok_and(|setting| !is_on(&setting));
        let refused = HintFaultSampler::tried().err();
        assert_eq!(off, refused == Some(SamplingError::KernelIdle));
    }
}
