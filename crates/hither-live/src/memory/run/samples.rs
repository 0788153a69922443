//! Samples of who uses which page: reads them, and asks the kernel where their pages are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hither_ids::{Address, KernelNode, Pid};
use hither_kernel::machine::{Machine, PageState};
use hither_kernel::page_faults::{Fault, PageFaults};

use super::super::budget::{READ_NS, SAVED_NS};
use super::super::event::{Input, TimedInput, TouchedPage};

/// Samples that the processor or the kernel makes.
pub(super) struct Samples {
    machine: Arc<dyn Machine>,
    source: Option<Box<dyn PageFaults>>,
    pace: Pace,
    /// Room for what is drained.
    found: Vec<Fault>,
    states: Vec<PageState>,
}

/// How many samples are taken, so that all that the agent does takes its share of a CPU; the others
/// are left out evenly.
#[derive(Debug)]
struct Pace {
    share: f64,
    /// What may be spent now; less than nothing where more was spent than there was.
    saved_ns: f64,
    /// The time, and the agent's processor time, of the last call.
    at_ns: u64,
    spent_ns: u64,
    /// Moving average of what a sample costs, the agent's other work with it.
    sample_ns: f64,
    /// Samples that were taken since.
    taken: usize,
}

/// After fewer samples than this, their cost is not measured: it would be that of other work.
const MEASURED_SAMPLES_MIN: usize = 16;

impl Pace {
    fn new(share: f64) -> Pace {
        Pace {
            share,
            saved_ns: 0.0,
            at_ns: 0,
            spent_ns: 0,
            sample_ns: READ_NS,
            taken: 0,
        }
    }

    /// How many samples may be taken now.
    fn samples(&mut self, now_ns: u64, cpu_ns: u64) -> usize {
        let passed_ns = now_ns - std::mem::replace(&mut self.at_ns, now_ns);
        let spent_ns = (cpu_ns - std::mem::replace(&mut self.spent_ns, cpu_ns)) as f64;
        let earned_ns = self.share * passed_ns as f64;
        let most_ns = self.share * SAVED_NS;
        self.saved_ns = (self.saved_ns + earned_ns - spent_ns).clamp(-most_ns, most_ns);
        if self.taken >= MEASURED_SAMPLES_MIN {
            self.sample_ns += (spent_ns / self.taken as f64 - self.sample_ns) / 8.0;
        }
        self.taken = 0;
        (self.saved_ns.max(0.0) / self.sample_ns.max(1.0)) as usize
    }
}

impl Samples {
    pub(super) fn new(machine: Arc<dyn Machine>, share: f64) -> Samples {
        Samples {
            machine,
            source: None,
            pace: Pace::new(share),
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

    /// What is read from, for its figures.
    pub(super) fn source(&self) -> Option<&dyn PageFaults> {
        self.source.as_deref()
    }

    /// Adds the samples since the last call of the `alive` processes, by the time since `start_ns`.
    /// The agent has spent `cpu_ns` on them and on what they led to.
    pub(super) fn drain(
        &mut self,
        start_ns: u64,
        (now_ns, cpu_ns): (u64, u64),
        alive: &BTreeSet<Pid>,
        inputs: &mut Vec<TimedInput>,
    ) {
        let Some(source) = &mut self.source else {
            return;
        };
        let found = &mut self.found;
        found.clear();
        let all_programs = source.is_of_all_programs();
        source.drain(&mut |sample| {
            if !all_programs || alive.contains(&sample.pid) {
                found.push(sample);
            }
        });
        let most = self.pace.samples(now_ns, cpu_ns);
        let every = self.found.len().div_ceil(most.max(1)).max(1);
        self.pace.taken = self.found.len().div_ceil(every);
        let taken: Vec<Fault> = self.found.iter().step_by(every).copied().collect();
        let touched = |of: &Fault| TouchedPage {
            pid: of.pid,
            tid: of.tid,
            address: of.address,
        };
        let pages: Vec<TouchedPage> = taken.iter().map(touched).collect();
        let taken = taken.into_iter().zip(self.homes(&pages));
        inputs.extend(taken.map(|(sample, home)| TimedInput {
            time_ns: sample.time_ns.saturating_sub(start_ns),
            input: Input::Sample {
                pid: sample.pid,
                tid: sample.tid,
                cpu: sample.cpu,
                address: sample.address,
                home,
            },
        }));
    }

    /// On which nodes pages are, as far as the kernel says. It is asked once for each process.
    pub(super) fn homes(&mut self, pages: &[TouchedPage]) -> Vec<Option<KernelNode>> {
        let mut homes = vec![None; pages.len()];
        let mut by_process: BTreeMap<Pid, Vec<usize>> = BTreeMap::new();
        for (number, page) in pages.iter().enumerate() {
            by_process.entry(page.pid).or_default().push(number);
        }
        for (pid, numbers) in by_process {
            let addresses: Vec<Address> = numbers.iter().map(|&of| pages[of].address).collect();
            let states = &mut self.states;
            let asked = self.machine.move_pages(pid, &addresses, None, states);
            let states = states.iter().filter(|_| asked.is_ok());
            for (number, state) in numbers.into_iter().zip(states) {
                if let &PageState::On(node) = state {
                    homes[number] = Some(node);
                }
            }
        }
        homes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_cost_their_share_whatever_one_costs() {
        for cost_ns in [500_u64, 50_000] {
            let mut pace = Pace::new(0.01);
            let (mut cpu_ns, mut taken) = (1_000_000, 0);
            for poll in 0..1000_u64 {
                let most = pace.samples(poll * 50_000_000, cpu_ns);
                pace.taken = most.min(10_000);
                taken += pace.taken as u64;
                // A poll takes 0.1 ms without any.
                cpu_ns += 100_000 + pace.taken as u64 * cost_ns;
            }
            let share = cpu_ns as f64 / 50e9;
            assert!((0.008..0.011).contains(&share), "{share}");
            assert!(taken * cost_ns > 300_000_000, "{taken}");
        }
    }

    #[test]
    fn what_is_not_spent_is_saved_for_a_second() {
        let mut pace = Pace::new(0.01);
        pace.samples(0, 0);
        let most = pace.samples(3_600_000_000_000, 0);
        assert_eq!(most, (1e7 / READ_NS) as usize);
        assert_eq!(pace.samples(3_600_000_000_000, 20_000_000), 0, "overspent");
    }
}
