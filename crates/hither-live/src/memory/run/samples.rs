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
        let first = inputs.len();
        let samples = self.found.iter().step_by(every);
        inputs.extend(samples.map(|sample| TimedInput {
            time_ns: sample.time_ns.saturating_sub(start_ns),
            input: Input::Sample {
                pid: sample.pid,
                tid: sample.tid,
                cpu: sample.cpu,
                address: sample.address,
                home: None,
            },
        }));
        self.find_homes(&mut inputs[first..]);
    }

    /// Makes samples of the faults on armed pages.
    pub(super) fn of_armed(
        &mut self,
        inputs: &mut [TimedInput],
        mut is_armed: impl FnMut(u32, u64) -> bool,
    ) {
        for TimedInput { input, .. } in &mut *inputs {
            if let &mut Input::Fault {
                pid,
                tid,
                cpu,
                address,
            } = input
                && is_armed(pid, address)
            {
                *input = Input::Sample {
                    pid,
                    tid,
                    cpu,
                    address,
                    home: None,
                };
            }
        }
        self.find_homes(inputs);
    }

    /// Asks the kernel where the pages of samples are whose node is not known: once for each
    /// process.
    fn find_homes(&mut self, inputs: &mut [TimedInput]) {
        let mut by_process: BTreeMap<u32, Vec<(u64, &mut Option<u32>)>> = BTreeMap::new();
        for at in inputs {
            if let Input::Sample {
                pid, address, home, ..
            } = &mut at.input
                && home.is_none()
            {
                by_process.entry(*pid).or_default().push((*address, home));
            }
        }
        for (pid, pages) in by_process {
            let addresses: Vec<u64> = pages.iter().map(|&(address, _)| address).collect();
            let states = &mut self.states;
            let asked = self.machine.move_pages(pid, &addresses, None, states);
            let states = states.iter().filter(|_| asked.is_ok());
            for ((_, home), state) in pages.into_iter().zip(states) {
                if let &PageState::On(node) = state {
                    *home = Some(node);
                }
            }
        }
    }
}
