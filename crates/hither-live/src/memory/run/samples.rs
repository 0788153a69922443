//! Samples of who uses which page: reads them, and asks the kernel where their pages are.

use std::collections::BTreeMap;
use std::sync::Arc;

use hither_sys::machine::{Machine, PageState};
use hither_sys::page_faults::{Fault, PageFaults};

use super::super::event::{Input, TimedInput};

/// Samples that the processor or the kernel makes.
pub(super) struct Samples {
    machine: Arc<dyn Machine>,
    source: Option<Box<dyn PageFaults>>,
    /// How many are taken in a second; the others are left out evenly.
    a_second: u64,
    drained_ns: u64,
    /// Room for what is drained.
    found: Vec<Fault>,
    states: Vec<PageState>,
}

impl Samples {
    pub(super) fn new(machine: Arc<dyn Machine>, a_second: u64) -> Samples {
        Samples {
            machine,
            source: None,
            a_second,
            drained_ns: 0,
            found: Vec::new(),
            states: Vec::new(),
        }
    }

    /// Reads from this source from now on.
    pub(super) fn open(&mut self, source: Option<Box<dyn PageFaults>>) {
        self.source = source;
    }

    /// Switches the samples on or off.
    pub(super) fn listen(&mut self, on: bool) {
        // If that fails, they go on: they cost a little.
        let _ = self.source.as_mut().map(|source| source.watch(on));
    }

    /// Samples that found no room in their ring.
    pub(super) fn lost(&self) -> u64 {
        self.source.as_ref().map_or(0, |source| source.lost())
    }

    /// Adds the samples since the last call, by the time since `start_ns`.
    pub(super) fn drain(&mut self, start_ns: u64, now_ns: u64, inputs: &mut Vec<TimedInput>) {
        let Some(source) = &mut self.source else {
            return;
        };
        let found = &mut self.found;
        found.clear();
        source.drain(&mut |sample| found.push(sample));
        let passed_ns = now_ns.saturating_sub(self.drained_ns).min(1_000_000_000);
        self.drained_ns = now_ns;
        let most = (self.a_second * passed_ns / 1_000_000_000).max(1) as usize;
        let every = self.found.len().div_ceil(most).max(1);
        let mut by_process: BTreeMap<u32, Vec<Fault>> = BTreeMap::new();
        for sample in self.found.iter().step_by(every) {
            by_process.entry(sample.pid).or_default().push(*sample);
        }
        for (pid, samples) in by_process {
            let addresses: Vec<u64> = samples.iter().map(|sample| sample.address).collect();
            self.states.clear();
            let asked = self
                .machine
                .move_pages(pid, &addresses, None, &mut self.states);
            for (number, sample) in samples.iter().enumerate() {
                let state = self.states.get(number).filter(|_| asked.is_ok());
                inputs.push(TimedInput {
                    time_ns: sample.time_ns.saturating_sub(start_ns),
                    input: input(sample, state),
                });
            }
        }
    }

    /// The input for a fault on a page that was armed.
    pub(super) fn armed(&mut self, (pid, tid): (u32, u32), cpu: u32, address: u64) -> Input {
        self.states.clear();
        let asked = self
            .machine
            .move_pages(pid, &[address], None, &mut self.states);
        let fault = Fault {
            time_ns: 0,
            address,
            pid,
            tid,
            cpu,
        };
        input(&fault, self.states.first().filter(|_| asked.is_ok()))
    }
}

fn input(sample: &Fault, state: Option<&PageState>) -> Input {
    let home = match state {
        Some(&PageState::On(node)) => Some(node),
        _ => None,
    };
    Input::Sample {
        pid: sample.pid,
        tid: sample.tid,
        cpu: sample.cpu,
        address: sample.address,
        home,
    }
}
