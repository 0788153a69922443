//! Page faults as inputs: those of the run's programs one by one, those of others as a number.

use std::collections::BTreeSet;
use std::io;

use hither_ids::Pid;
use hither_kernel::machine::Machine;
use hither_kernel::page_faults::{PageFaults, WatchError};
use hither_kernel::process::monotonic_ns;

use super::super::event::{Input, TimedInput};

/// The page faults of this machine, once they are watched.
#[derive(Default)]
pub(super) struct Faults {
    source: Option<Box<dyn PageFaults>>,
    lost: u64,
}

impl Faults {
    /// Watches them from now on.
    pub(super) fn open(&mut self, machine: &dyn Machine) -> Result<(), WatchError> {
        self.source = Some(machine.faults()?);
        Ok(())
    }

    /// What is watched, for its figures.
    pub(super) fn source(&self) -> Option<&dyn PageFaults> {
        self.source.as_deref()
    }

    /// Switches the recording on or off.
    pub(super) fn watch(&mut self, on: bool) -> io::Result<()> {
        self.source
            .as_mut()
            .map_or(Ok(()), |source| source.watch(on))
    }

    /// Adds the faults since the last call, by the time since `start_ns`.
    pub(super) fn drain(&mut self, start_ns: u64, inputs: &mut Vec<TimedInput>) {
        let Some(source) = &mut self.source else {
            return;
        };
        source.drain(&mut |fault| {
            inputs.push(TimedInput {
                time_ns: fault.time_ns.saturating_sub(start_ns),
                input: Input::Fault {
                    pid: fault.pid,
                    tid: fault.tid,
                    cpu: fault.cpu,
                    address: fault.address,
                },
            });
        });
        if source.lost() > std::mem::replace(&mut self.lost, source.lost()) {
            inputs.push(TimedInput {
                time_ns: monotonic_ns().saturating_sub(start_ns),
                input: Input::FaultsLost,
            });
        }
    }

    /// Where the faults of all programs are watched: replaces those of processes that are neither
    /// `alive` nor have started since, by their number.
    pub(super) fn set_others_apart(
        &self,
        now_ns: u64,
        alive: &BTreeSet<Pid>,
        inputs: &mut Vec<TimedInput>,
    ) {
        if !self.source().is_some_and(PageFaults::is_of_all_programs) {
            return;
        }
        let started = inputs.iter().filter_map(|at| match at.input {
            Input::Started { pid } => Some(pid),
            _ => None,
        });
        let started: BTreeSet<Pid> = started.collect();
        let before = inputs.len();
        inputs.retain(|at| match at.input {
            Input::Fault { pid, .. } => alive.contains(&pid) || started.contains(&pid),
            _ => true,
        });
        let count = (before - inputs.len()) as u64;
        if count > 0 {
            inputs.push(TimedInput {
                time_ns: now_ns,
                input: Input::OthersFaults { count },
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use hither_ids::Address;

    use super::*;

    struct OfAll;

    impl PageFaults for OfAll {
        fn drain(&mut self, _: &mut dyn FnMut(hither_kernel::page_faults::Fault)) -> usize {
            0
        }
        fn lost(&self) -> u64 {
            0
        }
        fn watch(&mut self, _: bool) -> io::Result<()> {
            Ok(())
        }
        fn sees_kernel(&self) -> bool {
            true
        }
        fn unwatched_cpus(&self) -> usize {
            0
        }
        fn is_of_all_programs(&self) -> bool {
            true
        }
    }

    /// Of a process of the run, one that has just started, and two of others.
    #[test]
    fn others_faults_are_a_number() {
        let faults = Faults {
            source: Some(Box::new(OfAll)),
            lost: 0,
        };
        let at = |input| TimedInput { time_ns: 5, input };
        let fault = |pid| {
            at(Input::Fault {
                pid,
                tid: pid.first_thread(),
                cpu: 0,
                address: Address(4096),
            })
        };
        let started = at(Input::Started { pid: Pid(8) });
        let mut inputs = vec![
            fault(Pid(7)),
            fault(Pid(8)),
            fault(Pid(9)),
            started.clone(),
            fault(Pid(0)),
        ];
        faults.set_others_apart(5, &BTreeSet::from([Pid(7)]), &mut inputs);
        let number = at(Input::OthersFaults { count: 2 });
        assert_eq!(inputs, [fault(Pid(7)), fault(Pid(8)), started, number]);
    }
}
