//! What is observed.

use hither_ids::Pid;

use crate::cgroup::Cgroup;
use crate::event::{Device, Kind};
use crate::sampling::Sampling;
use crate::source::Source;

/// Bytes of the ring between the kernel's side and the observer, if nothing else is asked for: a
/// quarter of a million events without stacks.
pub const RING_BYTES: u32 = 16 << 20;

/// At the same time, so many stacks are known, of a KiB each, and so many files.
const STACKS_MAX: u32 = 1 << 15;
const FILES_MAX: u32 = 1 << 16;

/// What is observed. The kernel's side filters, so that what is not asked for costs little.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whose accesses.
    pub scope: Scope,
    /// Which kinds of events. No program is loaded for the others.
    pub kinds: Vec<Kind>,
    /// By what reads, faults and mapped pages are seen. None: the best source that works, of each
    /// kind. The other kinds have tracepoints alone.
    pub source: Option<Source>,
    /// The devices whose files are observed. Empty: all.
    pub devices: Vec<Device>,
    /// Which pages.
    pub sampling: Sampling,
    /// Whether files are reported before the first event about their pages. Without, what
    /// leaves the page cache is only seen where the scope is everything.
    pub files: bool,
    /// Whether files are excluded that were reported ([`Observer::exclude`]): each event then looks
    /// its file up.
    ///
    /// [`Observer::exclude`]: crate::Observer::exclude
    pub excludes: bool,
    /// Whether it is also reported what other processes use of the files that were reported, and
    /// what comes into the page cache or goes for them.
    pub others: bool,
    /// Whether it is said of what was in a call that reads or writes.
    pub calls: bool,
    /// Up to so many bytes of the top of the user stack are copied, if an event's stack is not
    /// known: at most [`STACK_BYTES_MAX`]. 0: events have no stacks.
    ///
    /// [`STACK_BYTES_MAX`]: crate::stack::STACK_BYTES_MAX
    pub stack_bytes: u32,
    /// Bytes of the ring: a power of two, at least a page. A ring that is full loses events, which
    /// are counted.
    pub ring_bytes: u32,
    /// So many stacks are known at the same time. One that is not is copied again.
    pub stacks_max: u32,
    /// So many files are known at the same time. One that is not is reported again.
    pub files_max: u32,
}

impl Options {
    /// What the kernel keeps for the observer counts against the memory cgroup that the observer is
    /// in, and often the programs are in there, too: the ring takes up to 1/32 of the limit, the
    /// stacks 1/64, the files 1/64. With a limit of 2 GiB or more nothing is smaller.
    #[must_use]
    pub fn within(self, limit_bytes: u64) -> Options {
        let share = |bytes_each: u64, least: u32, most: u32| {
            let entries = u32::try_from(limit_bytes / bytes_each).unwrap_or(u32::MAX);
            entries.max(least).min(most)
        };
        let ring_bytes = share(32, 1 << 16, self.ring_bytes);
        Options {
            // The largest power of two that is not more.
            ring_bytes: 1 << ring_bytes.max(1).ilog2(),
            stacks_max: share(64 << 10, 1 << 8, self.stacks_max),
            files_max: share(16 << 10, 1 << 10, self.files_max),
            ..self
        }
    }
}

impl Default for Options {
    /// Everything, without stacks.
    fn default() -> Options {
        Options {
            scope: Scope::Everything,
            kinds: Kind::all().collect(),
            source: None,
            devices: Vec::new(),
            sampling: Sampling::ALL,
            files: true,
            excludes: false,
            others: false,
            calls: false,
            stack_bytes: 0,
            ring_bytes: RING_BYTES,
            stacks_max: STACKS_MAX,
            files_max: FILES_MAX,
        }
    }
}

/// Whose accesses are observed. Those of the observing process never are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All processes.
    Everything,
    /// These processes, by their numbers in the initial pid namespace, and those below them, which
    /// they have started or start from now on.
    Processes(Vec<Pid>),
    /// What this process starts from now on, and what is below that.
    Started,
    /// The processes of a cgroup and of those below it.
    Cgroup(Cgroup),
}

impl Scope {
    /// Its number in `bpf/observer.h`.
    pub(crate) fn number(&self) -> u32 {
        match self {
            Scope::Everything => 0,
            Scope::Processes(_) | Scope::Started => 1,
            Scope::Cgroup(_) => 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_side_takes_a_part_of_a_memory_limit() {
        let sizes = |limit_bytes| {
            let within = Options::default().within(limit_bytes);
            [within.ring_bytes, within.stacks_max, within.files_max]
        };
        assert_eq!(sizes(192 << 20), [4 << 20, 3072, 12288]);
        let full = Options::default();
        let full = [full.ring_bytes, full.stacks_max, full.files_max];
        assert_eq!(sizes(2 << 30), full);
        assert_eq!(sizes(u64::MAX), full);
        assert_eq!(sizes(0), [1 << 16, 1 << 8, 1 << 10]);
        let asked = Options {
            ring_bytes: 4096,
            ..Options::default()
        };
        assert_eq!(asked.within(1 << 30).ring_bytes, 4096);
    }
}
