//! The leases of a run: the process that holds them, and the next one where it was killed.
//!
//! The kernel kills a lease process that is stopped (see [`hither_session::lease_process`]), and so
//! may anybody. All replicas are over then. Another process takes over after a pause, which
//! doubles: a machine that keeps lease processes waiting for longer than a second cannot have
//! replicas.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hither_kernel::lease::{LeaseError, LeasedFile};
use hither_session::lease_process::{InjectedFaults, LeaseProcess};
use hither_session::replica::agent::Shared;

/// The pause before the next lease process is started, after the first one.
const PAUSE_NS: u64 = 1_000_000_000;

/// The most pauses in a row. The last one is of 16 seconds.
const PAUSES_MAX: u32 = 5;

/// A lease process that lived for so long is no part of a row.
const LIFE_NS_MIN: u64 = 600 * 1_000_000_000;

/// What has happened since the last poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// No lease has ended.
    None,
    /// Some have; [`Leases::is_held`] says which.
    SomeEnded,
    /// All have, since the process that held them was killed.
    AllEnded,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Leases {
    replicas: Arc<Shared>,
    process: Option<LeaseProcess>,
    restarts: Restarts,
    /// [`Shared::ended`] at the last poll.
    ended: u64,
}

/// When to start a lease process.
#[derive(Debug, Default)]
struct Restarts {
    /// None while one runs, and where there will be none any more.
    start_ns: Option<u64>,
    started_ns: u64,
    pauses: u32,
}

/// The faults to inject that a test must notice; in debug builds only.
fn injected_faults() -> InjectedFaults {
    let injects = |name: &str| cfg!(debug_assertions) && std::env::var_os(name).is_some();
    InjectedFaults {
        ignores_breaks: injects("HITHER_TEST_IGNORE_LEASE_BREAKS"),
        outlives: injects("HITHER_TEST_OUTLIVE_AGENT"),
        never_expires: injects("HITHER_TEST_PROMISE_FOR_GOOD"),
        no_deadline: injects("HITHER_TEST_NO_DEADLINE"),
    }
}

impl Leases {
    /// Starts the process that holds them.
    pub(super) fn start(replicas: Arc<Shared>) -> io::Result<Leases> {
        let process = LeaseProcess::start(Arc::clone(&replicas), injected_faults())?;
        let mut leases = Leases::none(replicas);
        leases.process = Some(process);
        Ok(leases)
    }

    /// For a run that takes no leases.
    pub(super) fn none(replicas: Arc<Shared>) -> Leases {
        Leases {
            replicas,
            process: None,
            restarts: Restarts::default(),
            ended: 0,
        }
    }

    /// Has a lease taken on an open file, and the file's replicas published. See
    /// [`LeaseProcess::take`].
    pub(super) fn take(
        &mut self,
        place: u32,
        file: &std::fs::File,
        seen: &LeasedFile,
    ) -> Result<(), LeaseError> {
        let process = self.process.as_mut().ok_or(LeaseError::NoHolder)?;
        process.take(place, file, seen)
    }

    /// Ends a file's replicas and releases its lease.
    pub(super) fn release(&mut self, place: u32) {
        if let Some(process) = &mut self.process {
            process.release(place);
        }
    }

    /// Whether a file's replicas have not ended.
    pub(super) fn is_held(&self, place: u32) -> bool {
        self.replicas.is_published(place)
    }

    /// Whether another lease process will be started, if there is none.
    pub(super) fn go_on(&self) -> bool {
        self.process.is_some() || self.restarts.start_ns.is_some()
    }

    /// Processor time of the lease process.
    pub(super) fn cpu(&self) -> Duration {
        let process = self.process.as_ref();
        Duration::from_nanos(process.map_or(0, LeaseProcess::cpu_ns))
    }

    /// Says what has happened, and starts another lease process where it is time.
    pub(super) fn poll(&mut self, now_ns: u64) -> Change {
        let Some(process) = &mut self.process else {
            if self.restarts.is_due(now_ns) {
                self.restart(now_ns);
            }
            return Change::None;
        };
        if process.has_ended(&self.replicas) {
            self.process = None;
            // Before the next process brings the word back that programs rely on.
            self.replicas.end_all();
            self.restarts.on_end(now_ns);
            return Change::AllEnded;
        }
        let ended = self.replicas.ended();
        // A process that was killed may still do what it was asked for last.
        if ended == self.ended || process.is_killed() {
            return Change::None;
        }
        self.ended = ended;
        Change::SomeEnded
    }

    fn restart(&mut self, now_ns: u64) {
        match LeaseProcess::start(Arc::clone(&self.replicas), injected_faults()) {
            Ok(process) => {
                self.process = Some(process);
                self.restarts.on_start(now_ns);
            }
            Err(_) => self.restarts.on_end(now_ns),
        }
    }
}

impl Drop for Leases {
    fn drop(&mut self) {
        self.process = None;
        self.replicas.close();
    }
}

impl Restarts {
    fn is_due(&self, now_ns: u64) -> bool {
        self.start_ns.is_some_and(|start_ns| now_ns >= start_ns)
    }

    fn on_start(&mut self, now_ns: u64) {
        (self.start_ns, self.started_ns) = (None, now_ns);
    }

    /// One has ended, or could not be started.
    fn on_end(&mut self, now_ns: u64) {
        let ran = self.start_ns.is_none();
        if ran && now_ns - self.started_ns >= LIFE_NS_MIN {
            self.pauses = 0;
        }
        let pause_ns = PAUSE_NS << self.pauses;
        self.start_ns = (self.pauses < PAUSES_MAX).then_some(now_ns + pause_ns);
        self.pauses += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    #[test]
    fn pauses_double_until_there_are_no_more() {
        let mut restarts = Restarts::default();
        let mut now_ns = 3 * SECOND_NS;
        let mut pauses = Vec::new();
        restarts.on_end(now_ns);
        while let Some(start_ns) = restarts.start_ns {
            assert!(!restarts.is_due(start_ns - 1) && restarts.is_due(start_ns));
            pauses.push((start_ns - now_ns) / SECOND_NS);
            now_ns = start_ns;
            // Whether it could be started or not.
            if pauses.len().is_multiple_of(2) {
                restarts.on_start(now_ns);
            }
            restarts.on_end(now_ns);
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16]);
        assert!(!restarts.is_due(u64::MAX));
    }

    #[test]
    fn a_long_life_makes_up_for_it() {
        let mut restarts = Restarts::default();
        let mut now_ns = 0;
        for _ in 0..20 {
            restarts.on_end(now_ns);
            now_ns = restarts.start_ns.expect("it goes on");
            restarts.on_start(now_ns);
            now_ns += LIFE_NS_MIN;
        }
    }
}
