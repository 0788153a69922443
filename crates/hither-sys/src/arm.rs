//! Sampling who uses which page: a range is *armed*, and the next touch of each of its pages is a
//! page fault, which [`crate::faults`] sees with its address, thread and CPU. One trait for the
//! ways to arm; the agent takes the first that works.
//!
//! What all have in common: the program never waits for the agent, no result of a system call of
//! its own changes, and what was armed is undone by the kernel when the agent dies.

use std::fmt;
use std::io;

use crate::faults::{PageFaults, Unwatched};
use crate::{hardware, hints, userfaultfd};

/// The names of all ways, the best first.
pub const NAMES: [&str; 3] = [hardware::NAME, hints::NAME, userfaultfd::NAME];

/// A way to arm pages of other processes. One by which somebody else arms, or nobody ([`Arm::by`]),
/// has nothing to do when it is told of ranges, and leaves these methods as they are.
pub trait Arm: Send {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// Whether reads are seen, too. Where they are not, a page without samples is not one without
    /// accesses.
    fn sees_reads(&self) -> bool;

    /// Who arms.
    fn by(&self) -> By {
        By::Agent
    }

    /// Where the processor samples: opens the source of its samples of what the calling thread
    /// starts from now on, so many a second of each CPU.
    fn samples(&self, hertz: u64) -> Result<Box<dyn PageFaults>, Unwatched> {
        let _ = hertz;
        Err(Unwatched::NoPerf)
    }

    /// A process offers a descriptor that the way may need: nothing can be armed in the process
    /// before, nor once it has begun to run another program.
    fn offered(&mut self, offer: &Offer) -> Result<(), Unarmed> {
        let _ = offer;
        Ok(())
    }

    /// A range is to be sampled from now on: the whole pages of one region, which may begin and end
    /// within a page. To be ended even where memory of it is gone.
    fn begin(&mut self, pid: u32, start: u64, length: u64) -> Result<(), Unarmed> {
        let _ = (pid, start, length);
        Ok(())
    }

    /// Arms whole pages of a range that has begun. A page that is not there is not armed; a page
    /// that was armed stays so.
    fn arm(&mut self, pid: u32, start: u64, length: u64) -> Result<(), Unarmed> {
        let _ = (pid, start, length);
        Ok(())
    }

    /// The range is not sampled any more; nothing of it is armed. No error if there was nothing.
    fn end(&mut self, pid: u32, start: u64, length: u64) -> Result<(), Unarmed> {
        let _ = (pid, start, length);
        Ok(())
    }

    /// The process has ended, or runs another program.
    fn ended(&mut self, pid: u32) {
        let _ = pid;
    }

    /// What a sample costs here, measured now where it can be.
    fn cost(&mut self) -> Option<Cost> {
        None
    }
}

/// Who arms pages, or what is done instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Whoever has the [`Arm`].
    Agent,
    /// The kernel, what has the policy for it ([`hints`]).
    Kernel,
    /// The processor samples accesses, and nothing is armed ([`hardware`]).
    Processor,
}

/// A descriptor that a process lets the agent have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The process.
    pub pid: u32,
    /// The descriptor's number there; negative where the process wants to be left alone.
    pub fd: i32,
    /// Its inode, by which it is told from whatever else may have the number by now.
    pub inode: u64,
}

/// Why pages cannot be armed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unarmed {
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

impl Unarmed {
    /// What an error number means where pages are armed.
    pub fn from_errno(error: i32) -> Unarmed {
        match error {
            libc::ESRCH => Unarmed::NoProcess,
            libc::EBADF => Unarmed::Withdrawn,
            libc::EPERM | libc::EACCES => Unarmed::NotPermitted,
            libc::EBUSY => Unarmed::InUse,
            libc::ENOENT | libc::EINVAL => Unarmed::NoMemory,
            libc::EAGAIN => Unarmed::Busy,
            libc::ENOMEM | libc::EMFILE | libc::ENFILE => Unarmed::NoRoom,
            libc::ENOSYS | libc::ENOTTY => Unarmed::NoCall,
            error => Unarmed::Other(error),
        }
    }

    /// Whether another range of the same process, or this one at another time, may fare better.
    pub fn may_pass(self) -> bool {
        matches!(
            self,
            Unarmed::InUse
                | Unarmed::NoMemory
                | Unarmed::HugePages
                | Unarmed::Busy
                | Unarmed::NoRoom
        )
    }
}

impl fmt::Display for Unarmed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unarmed::NoProcess => "the process is gone",
            Unarmed::NotOffered => "the program has offered no descriptor to arm its memory with",
            Unarmed::Withdrawn => "the program closed the descriptor that it had offered",
            Unarmed::NotPermitted => {
                "not permitted here: a container's filter of system calls, or a security module"
            }
            Unarmed::InUse => "the program watches this memory itself",
            Unarmed::NoMemory => "no such memory, or of a kind that cannot be armed",
            Unarmed::HugePages => "the memory lies on huge pages, which would be split",
            Unarmed::Busy => "the program is changing its mappings",
            Unarmed::NoRoom => "no memory or descriptors left",
            Unarmed::NoCall => "this kernel does not have it, or hides it",
            Unarmed::NoHardware => "the processor does not have it, or a hypervisor hides it",
            Unarmed::NoSamples => {
                "the processor has it, but a trial's accesses were not seen where they were made"
            }
            Unarmed::KernelIdle => "kernel.numa_balancing is not 1, so the kernel samples nothing",
            Unarmed::Other(error) => return io::Error::from_raw_os_error(*error).fmt(f),
        })
    }
}

impl std::error::Error for Unarmed {}

/// A step of the ladder: a way to arm, and whether it works here.
pub struct Rung {
    /// Its name.
    pub name: &'static str,
    /// The way, or why not.
    pub arm: Result<Box<dyn Arm>, Unarmed>,
}

impl fmt::Debug for Rung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let refusal = self.arm.as_ref().err();
        f.debug_struct("Rung")
            .field("name", &self.name)
            .field("refusal", &refusal)
            .finish()
    }
}

/// What sampling costs here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Arming a page: time of the agent.
    pub arm_ns: u64,
    /// The next touch of an armed page: time of the program.
    pub touch_ns: u64,
}

/// All ways, the best first, each tried out on memory of our own.
pub fn ladder() -> Vec<Rung> {
    let write_protect = userfaultfd::WriteProtect::tried();
    vec![
        Rung {
            name: hardware::NAME,
            arm: hardware::tried().map(|arm| Box::new(arm) as Box<dyn Arm>),
        },
        Rung {
            name: hints::NAME,
            arm: hints::HintFaults::tried().map(|arm| Box::new(arm) as Box<dyn Arm>),
        },
        Rung {
            name: userfaultfd::NAME,
            arm: write_protect.map(|arm| Box::new(arm) as Box<dyn Arm>),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_number_has_its_name() {
        for (error, reason) in [
            (libc::ESRCH, Unarmed::NoProcess),
            (libc::EBADF, Unarmed::Withdrawn),
            (libc::EPERM, Unarmed::NotPermitted),
            (libc::EACCES, Unarmed::NotPermitted),
            (libc::EBUSY, Unarmed::InUse),
            (libc::ENOENT, Unarmed::NoMemory),
            (libc::EINVAL, Unarmed::NoMemory),
            (libc::EAGAIN, Unarmed::Busy),
            (libc::ENOMEM, Unarmed::NoRoom),
            (libc::EMFILE, Unarmed::NoRoom),
            (libc::ENFILE, Unarmed::NoRoom),
            (libc::ENOSYS, Unarmed::NoCall),
            (libc::ENOTTY, Unarmed::NoCall),
            (libc::EIO, Unarmed::Other(libc::EIO)),
        ] {
            assert_eq!(Unarmed::from_errno(error), reason);
            assert!(!reason.to_string().is_empty());
        }
        assert!(Unarmed::Busy.may_pass());
        assert!(!Unarmed::NoProcess.may_pass());
    }
}
