//! What a memory cgroup leaves for the pages of a program's files, over time.

use hither_trace::schema::MemoryLeft;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    samples: Vec<MemoryLeft>,
    next: usize,
    now: MemoryLeft,
}

impl Memory {
    /// As it was recorded.
    pub(super) fn recorded(samples: &[MemoryLeft], median_bytes: u64) -> Memory {
        let samples = match samples {
            [] => vec![MemoryLeft {
                bytes: median_bytes,
                ..MemoryLeft::default()
            }],
            some => some.to_vec(),
        };
        Memory {
            now: samples[0],
            samples,
            next: 0,
        }
    }

    /// Without the recorder in the group.
    pub(super) fn without_recorder(self) -> Memory {
        self.with_agent_of(0)
    }

    /// With an agent in place of the recorder. It keeps no trace, so it takes what the recorder
    /// took at its start, and nothing of the kernel, which does not report to it.
    pub(super) fn with_agent(self) -> Memory {
        let at_start = self.samples[0].recorder_bytes;
        self.with_agent_of(at_start)
    }

    fn with_agent_of(mut self, agent_bytes: u64) -> Memory {
        for sample in &mut self.samples {
            sample.bytes += sample.recorder_bytes.saturating_sub(agent_bytes);
            sample.bytes += sample.recorder_kernel_bytes;
        }
        self.now = self.samples[0];
        self
    }

    /// The same amount all the time: the one below which a share of the samples are.
    pub(super) fn at_share(&self, share: f64) -> Memory {
        let mut sorted = self.samples.clone();
        sorted.sort_by_key(|sample| sample.bytes.saturating_sub(sample.mapped_bytes));
        let at = (share * (sorted.len() - 1) as f64).round() as usize;
        Memory {
            now: sorted[at],
            samples: vec![sorted[at]],
            next: 0,
        }
    }

    /// At the start.
    pub(super) fn first(&self) -> u64 {
        self.samples[0].bytes
    }

    /// Whether it has changed by this time: what is left then.
    pub(super) fn change(&mut self, now_ns: u64) -> Option<u64> {
        let mut changed = None;
        while let Some(&sample) = self.samples.get(self.next)
            && (sample.time_ns <= now_ns || self.next == 0)
        {
            self.next += 1;
            self.now = sample;
            changed = Some(sample.bytes);
        }
        changed
    }

    /// What of it is not mapped: room for pages that are read.
    pub(super) fn unmapped(&self) -> u64 {
        self.now.bytes.saturating_sub(self.now.mapped_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(time_ns: u64, bytes: u64, recorder_bytes: u64) -> MemoryLeft {
        MemoryLeft {
            time_ns,
            bytes,
            mapped_bytes: 5,
            recorder_bytes,
            recorder_kernel_bytes: 1000,
        }
    }

    #[test]
    fn what_is_left_changes_over_time_and_with_who_is_in_the_group() {
        let samples = [sample(10, 100, 7), sample(20, 80, 27), sample(30, 90, 17)];
        let left = |mut memory: Memory| {
            let changes = [0, 25, 26, 40].map(|now_ns| memory.change(now_ns));
            (changes, memory.unmapped())
        };
        let recorded = Memory::recorded(&samples, 0);
        let expected = ([Some(100), Some(80), None, Some(90)], 85);
        assert_eq!(left(recorded.clone()), expected);
        let [first, second, _, third] = left(recorded.clone().without_recorder()).0;
        assert_eq!([first, second, third], [1107, 1107, 1107].map(Some));
        let [first, second, _, third] = left(recorded.clone().with_agent()).0;
        assert_eq!([first, second, third], [1100, 1100, 1100].map(Some));
        assert_eq!(
            [0.0, 0.5, 1.0].map(|of| recorded.at_share(of).first()),
            [80, 90, 100]
        );
        assert_eq!(Memory::recorded(&[], 30).unmapped(), 30);
    }
}
