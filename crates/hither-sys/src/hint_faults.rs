//! Sampling by the kernel: NUMA balancing's hint faults, without its migrations.
//!
//! Where `kernel.numa_balancing` is 1, the kernel takes the access rights off a program's pages,
//! some 256 MiB at a time, once in one to sixty seconds of the program's CPU time. The next touch
//! of each page, a read or a write, faults once. By default the kernel then moves pages to the node
//! that touched them. A range with the policy [`BindMode::Sampled`] for the node that its pages are
//! on is sampled and not moved. A touch from that node finds the page where it belongs. One from
//! any other node is not in the policy's set, and `mpol_misplaced` (mm/mempolicy.c) then leaves the
//! page alone. So the agent arms nothing: the program sets the policy, and the agent receives the
//! faults.
//!
//! On Linux 6.18, 2026-11, a process of two threads with 64 MiB saw each of its 16,384 pages fault
//! once in 2.0 to 2.5 s, with this policy or with none. A process of one thread sees no fault on
//! pages of its own node, which the kernel does not sample then.
//!
//! `MPOL_BIND`, which has the flag since Linux 5.12, would do as well until the node is full, and
//! the
//! kernel would then kill the program. So only `MPOL_PREFERRED_MANY` is used, which has the flag
//! since 6.10. The sysctl is the administrator's, and is never set from here.

use std::fs;

use crate::page_sampling::{ArmedBy, PageSampler, SamplingError};
use crate::record::{Bind, BindMode};
use crate::{syscalls, sysfs};

/// Its name on the command line.
pub const NAME: &str = "hint-faults";

const SYSCTL: &str = "/proc/sys/kernel/numa_balancing";

/// Of the sysctl: pages are sampled whatever node they are on. Alone among its bits it means what
/// we need; with 2 only pages of slow nodes are.
const NORMAL: u32 = 1;

/// The kernel's way.
#[derive(Debug)]
pub struct HintFaultSampler(());

impl HintFaultSampler {
    /// The way, where the kernel samples and takes the policy.
    pub(crate) fn tried() -> Result<HintFaultSampler, SamplingError> {
        let setting = fs::read_to_string(SYSCTL).map_err(|_| SamplingError::NoCall)?;
        if !is_on(&setting) {
            return Err(SamplingError::KernelIdle);
        }
        accepts().map_err(|error| match SamplingError::from_errno(error) {
            // The memory was just mapped, so only the policy can be unknown.
            SamplingError::NoMemory => SamplingError::NoCall,
            other => other,
        })?;
        Ok(HintFaultSampler(()))
    }
}

fn is_on(setting: &str) -> bool {
    let number = setting.trim().parse::<u32>();
    number.is_ok_and(|number| number & NORMAL != 0)
}

/// Gives memory of our own the policy.
fn accepts() -> Result<(), i32> {
    let length = usize::try_from(sysfs::page_bytes()).unwrap_or(4096);
    let (_, node) = syscalls::cpu_and_node().ok_or(libc::ENOSYS)?;
    let page = syscalls::map(length, None)?;
    let policy = Bind {
        mode: BindMode::Sampled,
        nodes: 1_u64.checked_shl(node).unwrap_or(0),
    };
    let answer = syscalls::bind(page as u64, length as u64, policy);
    // SAFETY: the page was mapped above, and nothing refers to it.
    unsafe { syscalls::unmap(page, length) };
    answer
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skip::skip_on_this_machine;

    #[test]
    fn the_sysctl_is_a_set_of_bits() {
        assert!(is_on("1\n") && is_on("3\n"));
        assert!(!is_on("0\n") && !is_on("2\n") && !is_on("") && !is_on("on"));
    }

    #[test]
    fn this_kernel_takes_the_policy_or_says_why() {
        match accepts() {
            Ok(()) => {}
            Err(error) => {
                skip_on_this_machine(format_args!("error {error}"));
                assert_ne!(error, libc::EFAULT);
            }
        }
        let off = fs::read_to_string(SYSCTL).is_ok_and(|setting| !is_on(&setting));
        if off {
            assert_eq!(
                HintFaultSampler::tried().err(),
                Some(SamplingError::KernelIdle)
            );
        }
    }
}
