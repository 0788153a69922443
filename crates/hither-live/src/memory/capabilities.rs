//! What this machine permits a live run to do with memory pages. This is found out by trying, as a
//! run does at its start.

use std::io;

use hither_ids::{Address, Pid};
pub use hither_kernel::machine::MoveError;
use hither_kernel::machine::{Machine, NodeMemory, PageState};
pub use hither_kernel::page_faults::WatchError;
pub use hither_kernel::page_sampling::{SamplingCost, SamplingError};

use super::budget::{PERMILLE, share};

/// What a machine permits.
#[derive(Clone, Debug)]
pub struct Capabilities {
    /// Memory nodes, in the order of their numbers.
    pub nodes: Vec<NodeMemory>,
    /// Size of a huge page, where a first touch may bring in a whole one.
    pub huge_page_bytes: Option<u64>,
    /// Which page faults can be watched, or why none can.
    pub faults: Result<WatchedFaults, WatchError>,
    /// Whether pages can be moved.
    pub moving: Result<(), MoveError>,
    /// The ways to count accesses, the best first.
    pub counters: Vec<CounterProbe>,
    /// The share of a CPU that counting may take; 1 is a whole one.
    pub budget: f64,
}

/// Which page faults can be watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchedFaults {
    /// Those of the kernel on a program's behalf, too.
    pub in_system_calls: bool,
    /// Those of all programs, which costs nothing in switches of threads.
    pub of_all_programs: bool,
}

/// A way to count accesses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterProbe {
    /// Its name.
    pub name: &'static str,
    /// What it can do, or why it cannot be used.
    pub answer: Result<CountingCapability, SamplingError>,
}

/// What a way to count accesses can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountingCapability {
    /// Whether it sees reads as well as writes.
    pub sees_reads: bool,
    /// The cost of a sample, where it could be measured.
    pub cost: Option<SamplingCost>,
}

impl Capabilities {
    /// Tries what this machine permits.
    pub fn of(machine: &dyn Machine) -> io::Result<Capabilities> {
        let counter = |candidate: hither_kernel::samplers::SamplerCandidate| CounterProbe {
            name: candidate.name,
            answer: candidate.sampler.map(|mut arm| CountingCapability {
                sees_reads: arm.sees_reads(),
                cost: arm.cost(),
            }),
        };
        let nodes = machine.nodes()?;
        Ok(Capabilities {
            nodes,
            huge_page_bytes: machine.huge_page_bytes(),
            faults: machine.faults().map(|faults| WatchedFaults {
                in_system_calls: faults.sees_kernel(),
                of_all_programs: faults.is_of_all_programs(),
            }),
            moving: moving(machine),
            counters: machine
                .sampler_candidates()
                .into_iter()
                .map(counter)
                .collect(),
            budget: share(PERMILLE),
        })
    }

    /// The way to count that a run would take: the first that works, if faults can be watched,
    /// since samples are faults.
    pub fn chosen(&self) -> Option<&CounterProbe> {
        let first = self.counters.iter().find(|counter| counter.answer.is_ok());
        first.filter(|_| self.faults.is_ok())
    }

    /// How many samples a second the budget allows at this cost.
    pub fn rate(&self, cost: SamplingCost) -> u64 {
        (self.budget * 1e9 / (cost.arm_ns + cost.touch_ns).max(1) as f64) as u64
    }
}

/// Looks up a page of this process: the kernel asks for the same right as for moving it.
fn moving(machine: &dyn Machine) -> Result<(), MoveError> {
    let here = 0_u8;
    let mut states: Vec<PageState> = Vec::new();
    let address = (&raw const here) as u64;
    machine.move_pages(Pid::own(), &[Address(address)], None, &mut states)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hither_kernel::machine::ThisMachine;
    use hither_testing::skip::skip_on_this_machine;

    #[test]
    fn this_machine_answers() {
        let Ok(survey) = Capabilities::of(&ThisMachine) else {
            skip_on_this_machine("no nodes in sysfs");
            return;
        };
        assert!(!survey.nodes.is_empty());
        let names: Vec<&str> = survey.counters.iter().map(|counter| counter.name).collect();
        assert_eq!(names, hither_kernel::samplers::NAMES);
        let counting = survey
            .counters
            .iter()
            .filter_map(|of| of.answer.as_ref().ok());
        for cost in counting.filter_map(|counting| counting.cost) {
            assert!(survey.rate(cost) > 0);
        }
    }

    #[test]
    fn without_faults_nothing_is_counted() {
        let cost = SamplingCost {
            arm_ns: 1_500,
            touch_ns: 500,
        };
        let counting = CountingCapability {
            sees_reads: false,
            cost: Some(cost),
        };
        let counter = |name, answer| CounterProbe { name, answer };
        let mut survey = Capabilities {
            nodes: Vec::new(),
            huge_page_bytes: None,
            faults: Ok(WatchedFaults {
                in_system_calls: true,
                of_all_programs: true,
            }),
            moving: Ok(()),
            counters: vec![
                counter("one", Err(SamplingError::NoHardware)),
                counter("two", Ok(counting)),
            ],
            budget: 0.01,
        };
        assert_eq!(survey.chosen().map(|counter| counter.name), Some("two"));
        assert_eq!(survey.rate(cost), 5_000);
        survey.faults = Err(WatchError::NoPerf);
        assert_eq!(survey.chosen(), None);
    }
}
