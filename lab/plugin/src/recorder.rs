//! Regions, intervals and ranges: what the marks do to the model, and when its counts are written.

use crate::marks::Mark;
use crate::model::{Access, CpuCounts, Machine, Mode, Model, RangeCounts};
use crate::output;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// The model and the marks' state.
pub struct Recorder {
    model: Model,
    pending: Vec<PendingRange>,
    session: Mutex<Session>,
}

/// A range whose two loads are awaited on one CPU. Written by that CPU's thread alone.
#[derive(Default)]
struct PendingRange {
    loads: AtomicU8,
    first: AtomicU64,
}

struct Session {
    out: Box<dyn Write + Send>,
    /// Intervals written so far.
    written: u64,
    /// Regions begun so far.
    regions: u32,
    /// The region that is open.
    open: Option<Interval>,
}

/// The interval that runs: its number in its region, and the totals when it began.
struct Interval {
    number: u32,
    cpus: Vec<CpuCounts>,
    ranges: Vec<RangeCounts>,
}

impl Recorder {
    /// A recorder of a machine with cold caches, which writes to `out`.
    pub fn new(machine: &Machine, out: Box<dyn Write + Send>) -> Self {
        Self {
            model: Model::new(machine),
            pending: machine
                .cpus
                .iter()
                .map(|_| PendingRange::default())
                .collect(),
            session: Mutex::new(Session {
                out,
                written: 0,
                regions: 0,
                open: None,
            }),
        }
    }

    /// Bytes of a line.
    pub fn line_bytes(&self) -> u64 {
        self.model.line_bytes()
    }

    /// Runs an access to one line through the model. `device` tells whether it went to a device,
    /// and is called only if L1 does not serve it. Must be called by the CPU's own thread.
    #[inline]
    pub fn access(&self, access: &Access, device: impl FnOnce() -> bool) {
        if self.pending[access.cpu].loads.load(Relaxed) != 0 {
            self.range_load(access);
        }
        if self.model.hit(access) {
            return;
        }
        if device() {
            self.model.device(access.cpu);
        } else {
            self.model.miss(access);
        }
    }

    /// Counts an access whose physical address is unknown.
    pub fn unknown(&self, cpu: usize) {
        self.model.device(cpu);
    }

    /// Counts instructions. Called by the CPU's own thread.
    #[inline]
    pub fn instructions(&self, cpu: usize, count: u64, mode: Mode) {
        self.model.instructions(cpu, count, mode);
    }

    /// A CPU executed a mark. `begin` within a region ends that region. `iteration` and `end`
    /// outside of one do nothing.
    pub fn mark(&self, cpu: usize, mark: Mark) -> io::Result<()> {
        if mark == Mark::Range {
            self.pending[cpu].loads.store(2, Relaxed);
            return Ok(());
        }
        let session = &mut *self.session.lock().unwrap_or_else(PoisonError::into_inner);
        let (cpus, ranges) = self.model.totals();
        let ended = session.open.take();
        let next = match (mark, &ended) {
            (Mark::Begin, _) => Some(0),
            (Mark::Iteration, Some(interval)) => Some(interval.number + 1),
            _ => None,
        };
        let line = ended.map(|before| {
            let cpus: Vec<_> = cpus
                .iter()
                .zip(&before.cpus)
                .map(|(now, then)| now.since(then))
                .collect();
            let ranges: Vec<_> = ranges
                .iter()
                .enumerate()
                .map(|(index, now)| now.since(before.ranges.get(index)))
                .collect();
            output::line(session.regions - 1, before.number, &cpus, &ranges)
        });
        session.regions += u32::from(mark == Mark::Begin);
        session.open = next.map(|number| Interval {
            number,
            cpus,
            ranges,
        });
        if let Some(line) = line {
            session.out.write_all(line.as_bytes())?;
            session.written += 1;
        }
        Ok(())
    }

    /// Writes the last line, which proves that no interval is missing. Returns the open region,
    /// whose last interval no mark has written.
    pub fn finish(&self) -> io::Result<Option<u32>> {
        let session = &mut *self.session.lock().unwrap_or_else(PoisonError::into_inner);
        writeln!(session.out, "{{\"intervals\":{}}}", session.written)?;
        session.out.flush()?;
        Ok(session.open.as_ref().map(|_| session.regions - 1))
    }

    /// An access while a range's loads are awaited. Accesses of the kernel are skipped, since an
    /// interrupt may come between.
    #[cold]
    fn range_load(&self, access: &Access) {
        if access.store || access.mode == Mode::Kernel {
            return;
        }
        let pending = &self.pending[access.cpu];
        let left = pending.loads.load(Relaxed) - 1;
        pending.loads.store(left, Relaxed);
        if left == 1 {
            pending.first.store(access.linear, Relaxed);
        } else {
            self.model
                .add_range(pending.first.load(Relaxed), access.linear);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Geometry, MemoryRange};
    use std::sync::Arc;

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn load(recorder: &Recorder, cpu: usize, address: u64, mode: Mode) {
        recorder.access(
            &Access {
                cpu,
                physical: address,
                linear: address,
                store: false,
                mode,
            },
            || address >= 0x10_0000,
        );
    }

    #[test]
    fn marks_cut_the_counts_into_lines() {
        let sink = Sink::default();
        let machine = Machine {
            cpus: vec![0, 1],
            memory: vec![
                MemoryRange {
                    start: 0,
                    end: 0x8000,
                    node: 0,
                },
                MemoryRange {
                    start: 0x8000,
                    end: 0x1_0000,
                    node: 1,
                },
            ],
            line_bytes: 64,
            l1: Geometry {
                bytes: 1024,
                ways: 2,
            },
            l2: None,
            llc: None,
        };
        let recorder = Recorder::new(&machine, Box::new(sink.clone()));
        let mark = |mark| recorder.mark(0, mark).unwrap();
        load(&recorder, 0, 0, Mode::User);
        mark(Mark::Iteration);
        mark(Mark::End);
        mark(Mark::Range);
        load(&recorder, 0, 0x70c0, Mode::Kernel);
        load(&recorder, 0, 0x8040, Mode::User);
        load(&recorder, 0, 0x9000, Mode::User);
        mark(Mark::Begin);
        recorder.instructions(0, 7, Mode::User);
        load(&recorder, 0, 0, Mode::User);
        load(&recorder, 0, 0x8080, Mode::User);
        load(&recorder, 1, 0x100, Mode::Kernel);
        load(&recorder, 1, 0x10_0000, Mode::Kernel);
        mark(Mark::Iteration);
        mark(Mark::End);
        mark(Mark::Begin);
        mark(Mark::End);
        assert_eq!(recorder.finish().unwrap(), None);
        mark(Mark::Begin);
        assert_eq!(recorder.finish().unwrap(), Some(2));

        let zero = |node| {
            format!(
                concat!(
                    r#"{{"node":{},"instructions":[0,0],"accesses":[0,0],"l1_hits":[0,0],"#,
                    r#""l2_hits":[0,0],"llc_hits":[0,0],"cache_to_cache":[[0,0],[0,0]],"#,
                    r#""reads":[[0,0],[0,0]],"writes":[[0,0],[0,0]],"write_backs":[0,0],"#,
                    r#""unmapped":0}}"#
                ),
                node
            )
        };
        let first = zero(0)
            .replace(
                r#""instructions":[0,0],"accesses":[0,0],"l1_hits":[0,0]"#,
                r#""instructions":[7,0],"accesses":[2,0],"l1_hits":[1,0]"#,
            )
            .replace(r#""reads":[[0,0],[0,0]]"#, r#""reads":[[0,0],[1,0]]"#);
        let second = zero(1)
            .replace(r#""accesses":[0,0]"#, r#""accesses":[0,1]"#)
            .replace(r#""reads":[[0,0],[0,0]]"#, r#""reads":[[0,1],[0,0]]"#)
            .replace(r#""unmapped":0"#, r#""unmapped":1"#);
        let quiet = |region, interval| {
            format!(
                "{{\"region\":{region},\"interval\":{interval},\"cpus\":[{},{}],\
                 \"ranges\":[[[0,0],[0,0]]]}}\n",
                zero(0),
                zero(1)
            )
        };
        let expected = format!(
            "{{\"region\":0,\"interval\":0,\"cpus\":[{first},{second}],\
             \"ranges\":[[[0,1],[0,0]]]}}\n"
        ) + &quiet(0, 1)
            + &quiet(1, 0)
            + "{\"intervals\":3}\n{\"intervals\":3}\n";
        assert_eq!(
            String::from_utf8(sink.0.lock().unwrap().clone()).unwrap(),
            expected
        );
    }
}
