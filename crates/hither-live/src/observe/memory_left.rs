//! How much memory a program's cgroup leaves for pages of files while the program is recorded.

use hither_kernel::cgroup::MemoryGroup;
use hither_kernel::process::{monotonic_ns, own_memory_bytes};
use hither_trace::schema::MemoryLeft;

use crate::polling::Periodic;

/// Also for a program that runs for a second. Reading a cgroup's account takes 50 µs or so.
const PERIOD_NS: u64 = 250_000_000;

/// Of more samples, every other one is left out.
const SAMPLES_MAX: usize = 2048;

/// Samples of it.
#[derive(Debug)]
pub(crate) struct MemorySampler {
    group: Option<MemoryGroup>,
    /// The recorder is in that group, too.
    is_own: bool,
    start_ns: u64,
    period: Periodic,
    period_ns: u64,
    /// What the kernel held for the group when the sampler was made.
    kernel_before_bytes: u64,
    samples: Vec<MemoryLeft>,
}

impl MemorySampler {
    /// Of the recorder's own cgroup, if that has a limit. Made before the recorder sets anything
    /// up that the kernel holds: of that, the recorder takes what comes after.
    pub(crate) fn of_this_process() -> MemorySampler {
        MemorySampler::of(MemoryGroup::of_this_process().ok().flatten(), true)
    }

    /// Of a cgroup, if there is one that has a limit. `is_own`: it is the recorder's, too.
    pub(crate) fn of(group: Option<MemoryGroup>, is_own: bool) -> MemorySampler {
        let before = group.as_ref().and_then(MemoryGroup::for_files);
        MemorySampler {
            kernel_before_bytes: before.map_or(0, |before| before.kernel_bytes),
            group,
            is_own,
            start_ns: monotonic_ns(),
            period: Periodic::from_start(PERIOD_NS),
            period_ns: PERIOD_NS,
            samples: Vec::new(),
        }
    }

    /// Its times are since this one.
    pub(crate) fn since(self, start_ns: u64) -> MemorySampler {
        MemorySampler { start_ns, ..self }
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
        let Some(found) = group.for_files() else {
            return;
        };
        let (recorder_bytes, recorder_kernel_bytes) = match self.samples.first() {
            _ if !self.is_own => (0, 0),
            Some(first) => (own_memory_bytes(), first.recorder_kernel_bytes),
            // The program has hardly begun: what the kernel holds by now is for the recorder.
            None => {
                let set_up = found.kernel_bytes.saturating_sub(self.kernel_before_bytes);
                (own_memory_bytes(), set_up)
            }
        };
        self.samples.push(MemoryLeft {
            time_ns: now_ns.saturating_sub(self.start_ns),
            bytes: found.bytes,
            mapped_bytes: found.mapped_bytes,
            recorder_bytes,
            recorder_kernel_bytes,
        });
        if self.samples.len() > SAMPLES_MAX {
            let mut keeps = false;
            self.samples.retain(|_| {
                keeps = !keeps;
                keeps
            });
            self.period_ns *= 2;
            self.period = Periodic::after(self.period_ns);
        }
    }

    /// The samples.
    pub(crate) fn samples(&self) -> &[MemoryLeft] {
        &self.samples
    }

    /// The median of what the programs have left: the recorder is none of them.
    pub(crate) fn median_bytes(&self) -> Option<u64> {
        let left = self.samples.iter();
        let left = left.map(|of| of.bytes + of.recorder_bytes + of.recorder_kernel_bytes);
        let mut sorted: Vec<u64> = left.collect();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied()
    }
}
