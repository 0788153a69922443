//! Sampling who uses which page. A range is *armed*: the next touch of each of its pages is a page
//! fault, which [`crate::page_faults`] reports with its address, thread and CPU. One trait for all
//! ways to arm ([`crate::samplers`]); the agent takes the first that works.
//!
//! With all of them the program never waits for the agent, no system call of its own returns
//! anything else, and the kernel disarms everything when the agent dies.

use std::fmt;
use std::io;

use crate::page_faults::{PageFaults, WatchError};

/// A way to arm pages of other processes. One by which somebody else arms, or nobody
/// ([`PageSampler::armed_by`]), has nothing to do when it is told of ranges, and leaves these
/// methods as they are.
pub trait PageSampler: Send {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// Whether reads are seen, too. Where they are not, a page without samples is not one without
    /// accesses.
    fn sees_reads(&self) -> bool;

    /// Who arms.
    fn armed_by(&self) -> ArmedBy {
        ArmedBy::Agent
    }

    /// Where the processor samples: opens the source of its samples of what the calling thread
    /// starts from now on, so many a second of each CPU.
    fn samples(&self, hertz: u64) -> Result<Box<dyn PageFaults>, WatchError> {
        let _ = hertz;
        Err(WatchError::NoPerf)
    }

    /// A process offers a descriptor that the way may need: nothing can be armed in the process
    /// before, nor once it has begun to run another program.
    fn offered(&mut self, offer: &UserfaultfdOffer) -> Result<(), SamplingError> {
        let _ = offer;
        Ok(())
    }

    /// A range is to be sampled from now on: the whole pages of one region, which may begin and end
    /// within a page. To be ended even where memory of it is gone.
    fn begin(&mut self, pid: u32, start: u64, length: u64) -> Result<(), SamplingError> {
        let _ = (pid, start, length);
        Ok(())
    }

    /// Arms whole pages of a range that has begun. A page that is not there is not armed; a page
    /// that was armed stays so.
    fn arm(&mut self, pid: u32, start: u64, length: u64) -> Result<(), SamplingError> {
        let _ = (pid, start, length);
        Ok(())
    }

    /// The range is not sampled any more; nothing of it is armed. No error if there was nothing.
    fn end(&mut self, pid: u32, start: u64, length: u64) -> Result<(), SamplingError> {
        let _ = (pid, start, length);
        Ok(())
    }

    /// The process has ended, or runs another program.
    fn ended(&mut self, pid: u32) {
        let _ = pid;
    }

    /// What a sample costs here, measured now where it can be.
    fn cost(&mut self) -> Option<SamplingCost> {
        None
    }
}

/// Who arms pages, or what is done instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArmedBy {
    /// Whoever has the [`PageSampler`].
    Agent,
    /// The kernel, what has the policy for it ([`hint_faults`](crate::hint_faults)).
    Kernel,
    /// The processor samples accesses, and nothing is armed ([`pmu`](crate::pmu)).
    Processor,
}

/// A descriptor that a process lets the agent have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserfaultfdOffer {
    /// The process.
    pub pid: u32,
    /// The descriptor's number there; negative where the process wants to be left alone.
    pub fd: i32,
    /// Its inode, by which it is told from whatever else may have the number by now.
    pub inode: u64,
}

/// Why pages cannot be armed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SamplingError {
    /// The process is gone, or its memory is (ESRCH; ENOMEM of a memory that is being given up
    /// looks like want of memory).
    NoProcess,
    /// The process has offered nothing: it has no library of ours, or could not open a descriptor.
    NotOffered,
    /// The process closed what it had offered (EBADF), or something else has taken its number.
    Withdrawn,
    /// Not allowed (EPERM, EACCES).
    NotPermitted,
    /// The program watches this memory itself (EBUSY).
    InUse,
    /// There is no such memory, or of a kind that cannot be armed (ENOENT, EINVAL).
    NoMemory,
    /// The memory lies on huge pages, which arming would split.
    HugePages,
    /// The program is changing its mappings: to be tried again (EAGAIN).
    Busy,
    /// The kernel, or the agent, has no memory or descriptor left for it (ENOMEM, EMFILE, ENFILE).
    NoRoom,
    /// The kernel does not have it, or a container hides it (ENOSYS, ENOTTY, EINVAL when asked
    /// for).
    NoCall,
    /// There is no hardware for it.
    NoHardware,
    /// There is, and it showed none of the accesses of a trial where they were made.
    NoSamples,
    /// `kernel.numa_balancing` is not 1.
    KernelIdle,
    /// Another error number.
    Other(i32),
}

impl SamplingError {
    /// What an error number means where pages are armed.
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

    /// Whether another range of the same process, or this one at another time, may fare better.
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

/// What sampling costs here.
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
