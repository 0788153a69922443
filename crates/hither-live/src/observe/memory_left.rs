//! How much memory a program's cgroup leaves for pages of files while the program is recorded.

use hither_kernel::cgroup::MemoryGroup;

use crate::polling::Periodic;

/// Also for a program that runs for a second. Reading a cgroup's account takes 50 µs or so.
const PERIOD_NS: u64 = 250_000_000;

/// Samples of it.
#[derive(Debug)]
pub(crate) struct MemoryLeft {
    group: Option<MemoryGroup>,
    period: Periodic,
    samples: Vec<u64>,
}

impl MemoryLeft {
    /// Of a cgroup, if there is one that has a limit.
    pub(crate) fn of(group: Option<MemoryGroup>) -> MemoryLeft {
        MemoryLeft {
            group,
            period: Periodic::from_start(PERIOD_NS),
            samples: Vec::new(),
        }
    }

    /// The limit.
    pub(crate) fn limit_bytes(&self) -> Option<u64> {
        self.group.as_ref()?.limit_bytes()
    }

    /// Takes a sample if one is due.
    pub(crate) fn sample(&mut self, now_ns: u64) {
        let Some(group) = self.group.as_ref().filter(|_| self.period.is_due(now_ns)) else {
            return;
        };
        self.samples.extend(group.file_bytes());
    }

    /// The median of the samples.
    pub(crate) fn median_bytes(&self) -> Option<u64> {
        let mut sorted = self.samples.clone();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied()
    }
}
