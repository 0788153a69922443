//! Sampling which node uses which page. A range is *armed*: the next touch of each of its pages is
//! a page fault, which [`crate::page_faults`] reports with its address, thread and CPU. One trait
//! for all ways to arm ([`crate::samplers`]); the agent takes the first that works.
//!
//! With each of them the program never waits for the agent, none of its system calls returns
//! anything else, and the kernel disarms everything when the agent dies.

use std::fmt;
use std::io;

use hither_ids::{Address, Pid};

use crate::page_faults::{PageFaults, WatchError};

/// A way to arm pages of other processes. Where the kernel arms, or nothing has to be armed
/// ([`PageSampler::armed_by`]), an implementation has nothing to do for a range, and keeps the
/// default methods.
pub trait PageSampler: Send {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// Whether reads are seen, too. If not, a page without samples may still have accesses.
    fn sees_reads(&self) -> bool;

    /// Who arms.
    fn armed_by(&self) -> ArmedBy {
        ArmedBy::Agent
    }

    /// Where the processor or the kernel samples: opens the source of the samples, so many a second
    /// of each CPU, for what the calling thread starts from now on.
    fn samples(&self, hertz: u64) -> Result<Box<dyn PageFaults>, WatchError> {
        let _ = hertz;
        Err(WatchError::NoPerf)
    }

    /// A process offers a descriptor that the sampler may need: nothing can be armed in the process
    /// before, nor after it has begun to run another program.
    fn offered(&mut self, offer: &UserfaultfdOffer) -> Result<(), SamplingError> {
        let _ = offer;
        Ok(())
    }

    /// Begins to sample a range: the whole pages of one region, which may begin and end within a
    /// page. It has to be ended even if its memory is gone.
    fn begin(&mut self, pid: Pid, start: Address, length: u64) -> Result<(), SamplingError> {
        let _ = (pid, start, length);
        Ok(())
    }

    /// Arms whole pages of a range that has begun. Absent pages are not armed; pages that were
    /// armed stay so.
    fn arm(&mut self, pid: Pid, start: Address, length: u64) -> Result<(), SamplingError> {
        let _ = (pid, start, length);
        Ok(())
    }

    /// Ends the sampling of a range, and disarms it. No error if nothing was armed.
    fn end(&mut self, pid: Pid, start: Address, length: u64) -> Result<(), SamplingError> {
        let _ = (pid, start, length);
        Ok(())
    }

    /// The process has ended, or runs another program.
    fn ended(&mut self, pid: Pid) {
        let _ = pid;
    }

    /// What a sample costs on this machine, measured now if possible.
    fn cost(&mut self) -> Option<SamplingCost> {
        None
    }
}

/// What arms pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArmedBy {
    /// The user of the [`PageSampler`].
    Agent,
    /// The kernel, for its own balancing ([`hint_faults`](crate::hint_faults)).
    Kernel,
    /// Nothing: the processor samples accesses ([`pmu`](crate::pmu)).
    Processor,
}

/// A descriptor that a process offers to the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserfaultfdOffer {
    /// The process.
    pub pid: Pid,
    /// The descriptor's number there; negative if the process withdraws from sampling.
    pub fd: i32,
    /// Its inode, which identifies it: the number may refer to something else by now.
    pub inode: u64,
}

/// Why pages cannot be armed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SamplingError {
    /// The process or its memory is gone (ESRCH; also ENOMEM of a memory that is being torn down,
    /// which looks like a lack of memory).
    NoProcess,
    /// The process has offered nothing: it does not have our library, or could not open a
    /// descriptor.
    NotOffered,
    /// The process closed what it had offered (EBADF), or something else has its number now.
    Withdrawn,
    /// Not allowed (EPERM, EACCES).
    NotPermitted,
    /// The program uses userfaultfd on this memory itself (EBUSY).
    InUse,
    /// There is no such memory, or it cannot be armed (ENOENT, EINVAL).
    NoMemory,
    /// The memory is on huge pages, which arming would split.
    HugePages,
    /// The program is changing its mappings: try again (EAGAIN).
    Busy,
    /// The kernel, or the agent, has no memory or descriptor left for it (ENOMEM, EMFILE, ENFILE).
    NoRoom,
    /// The kernel lacks it, or a container hides it (ENOSYS, ENOTTY, EINVAL when it is requested).
    NoCall,
    /// There is no hardware for it.
    NoHardware,
    /// There is hardware, but it reported none of the accesses of a trial.
    NoSamples,
    /// `kernel.numa_balancing` is not 1.
    KernelIdle,
    /// Another error number.
    Other(i32),
}

impl SamplingError {
    /// The meaning of an error number from arming pages.
    pub fn from_errno(error: i32) -> SamplingError {
        match error {
            libc::ESRCH => SamplingError::NoProcess,
            libc::EBADF => SamplingError::Withdrawn,
            libc::EPERM | libc::EACCES => SamplingError::NotPermitted,
            libc::EBUSY => SamplingError::InUse,
            libc::ENOENT | libc::EINVAL => SamplingError::NoMemory,
            libc::EAGAIN => SamplingError::Busy,
            libc::ENOMEM | libc::EMFILE | libc::ENFILE => SamplingError::NoRoom,
            libc::ENOSYS | libc::ENOTTY => SamplingError::NoCall,
            error => SamplingError::Other(error),
        }
    }

    /// Whether it may work for another range of the same process, or later.
    pub fn may_pass(self) -> bool {
        matches!(
            self,
            SamplingError::InUse
                | SamplingError::NoMemory
                | SamplingError::HugePages
                | SamplingError::Busy
                | SamplingError::NoRoom
        )
    }
}

impl fmt::Display for SamplingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SamplingError::NoProcess => "the process is gone",
            SamplingError::NotOffered => {
                "the program has offered no descriptor to arm its memory with"
            }
            SamplingError::Withdrawn => "the program closed the descriptor that it had offered",
            SamplingError::NotPermitted => {
                "not permitted here: a container's filter of system calls, or a security module"
            }
            SamplingError::InUse => "the program watches this memory itself",
            SamplingError::NoMemory => "no such memory, or of a kind that cannot be armed",
            SamplingError::HugePages => "the memory lies on huge pages, which would be split",
            SamplingError::Busy => "the program is changing its mappings",
            SamplingError::NoRoom => "no memory or descriptors left",
            SamplingError::NoCall => "this kernel does not have it, or hides it",
            SamplingError::NoHardware => "the processor does not have it, or a hypervisor hides it",
            SamplingError::NoSamples => {
                "the processor has it, but a trial's accesses were not seen where they were made"
            }
            SamplingError::KernelIdle => {
                "kernel.numa_balancing is not 1, so the kernel samples nothing"
            }
            SamplingError::Other(error) => return io::Error::from_raw_os_error(*error).fmt(f),
        })
    }
}

impl std::error::Error for SamplingError {}

/// What sampling costs on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SamplingCost {
    /// Arming a page: time of the agent.
    pub arm_ns: u64,
    /// The next touch of an armed page: time of the program.
    pub touch_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_number_has_its_name() {
        for (error, reason) in [
            (libc::ESRCH, SamplingError::NoProcess),
            (libc::EBADF, SamplingError::Withdrawn),
            (libc::EPERM, SamplingError::NotPermitted),
            (libc::EACCES, SamplingError::NotPermitted),
            (libc::EBUSY, SamplingError::InUse),
            (libc::ENOENT, SamplingError::NoMemory),
            (libc::EINVAL, SamplingError::NoMemory),
            (libc::EAGAIN, SamplingError::Busy),
            (libc::ENOMEM, SamplingError::NoRoom),
            (libc::EMFILE, SamplingError::NoRoom),
            (libc::ENFILE, SamplingError::NoRoom),
            (libc::ENOSYS, SamplingError::NoCall),
            (libc::ENOTTY, SamplingError::NoCall),
            (libc::EIO, SamplingError::Other(libc::EIO)),
        ] {
            assert_eq!(SamplingError::from_errno(error), reason);
            assert!(!reason.to_string().is_empty());
        }
        assert!(SamplingError::Busy.may_pass());
        assert!(!SamplingError::NoProcess.may_pass());
    }
}
