//! The thread that holds the leases. It does nothing else, so that a writer waits only for as long
//! as it takes to wake this thread.
//!
//! When a lease breaks the thread ends the file's replicas, then releases the lease, and informs
//! the agent afterwards. Signals may be lost, so every lease is also checked once a second, or more
//! often where the kernel gives lease holders less time. Each check allows programs to rely on
//! replicas for half of the time that the kernel gives.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hither_sys::lease::{self, Break, BreakListener, Lease};
use hither_sys::replica::agent::Shared;
use rustc_hash::FxHashMap;

/// The least time that the kernel must give lease holders (fs.lease-break-time). With less,
/// replicas would expire before an agent that the scheduler keeps waiting can renew them.
pub(super) const BREAK_TIME_MIN: Duration = Duration::from_secs(4);

/// The longest time between two checks of all leases.
const CHECK_INTERVAL_MAX: Duration = Duration::from_secs(1);

/// A lease that is held.
#[derive(Debug)]
struct HeldLease {
    lease: Arc<Lease>,
    /// The file's index in the table of files with replicas.
    place: u32,
    file: u64,
}

#[derive(Debug)]
struct SharedState {
    replicas: Arc<Shared>,
    /// By file descriptor.
    held: Mutex<FxHashMap<i32, HeldLease>>,
    /// Files whose replicas have ended, with their indices in the table.
    ended: Mutex<Vec<(u64, u32)>>,
    stop: AtomicBool,
    /// Injected fault: writers are let in and replicas go on. The strictness tests must notice.
    ignores_breaks: bool,
    /// Injected fault: replicas outlive the agent. The tests that kill the agent must notice.
    outlives_agent: bool,
    /// Injected fault: replicas never expire. The test that stops the agent must notice.
    never_expires: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct LeaseThread {
    state: Arc<SharedState>,
    listener: BreakListener,
    thread: Option<JoinHandle<()>>,
}

/// Whether to inject a fault that a test must notice; in debug builds only.
fn injects_fault(name: &str) -> bool {
    cfg!(debug_assertions) && std::env::var_os(name).is_some()
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LeaseThread {
    /// Starts the thread. Replicas can be relied on from then on.
    pub(super) fn start(replicas: Arc<Shared>) -> io::Result<LeaseThread> {
        let state = Arc::new(SharedState {
            replicas,
            held: Mutex::default(),
            ended: Mutex::default(),
            stop: AtomicBool::new(false),
            ignores_breaks: injects_fault("HITHER_TEST_IGNORE_LEASE_BREAKS"),
            outlives_agent: injects_fault("HITHER_TEST_OUTLIVE_AGENT"),
            never_expires: injects_fault("HITHER_TEST_PROMISE_FOR_GOOD"),
        });
        let (ready, started) = mpsc::channel();
        let keeps = Arc::clone(&state);
        let thread = thread::Builder::new()
            .name("leases".to_owned())
            .spawn(move || {
                let listener = BreakListener::here()
                    .and_then(|listener| keeps.replicas.hold().map(|()| listener));
                let listens = listener.as_ref().ok().copied();
                // The receiver is gone if the agent has given up.
                let _ = ready.send(listener);
                if let Some(listener) = listens {
                    keeps.run(&listener);
                }
            })?;
        let listener = started
            .recv()
            .map_err(|_| io::Error::other("the thread that holds leases has ended"))??;
        Ok(LeaseThread {
            state,
            listener,
            thread: Some(thread),
        })
    }

    /// Where the kernel's break notifications go.
    pub(super) fn listener(&self) -> &BreakListener {
        &self.listener
    }

    /// Holds a file's lease: its replicas end when the lease breaks. `enter` adds the file to the
    /// table of files with replicas and to those that the caller knows; no break is handled
    /// meanwhile.
    pub(super) fn hold(
        &self,
        file: u64,
        lease: Lease,
        enter: impl FnOnce(&Lease) -> Option<u32>,
    ) -> Option<Arc<Lease>> {
        let mut held = locked(&self.state.held);
        let place = enter(&lease)?;
        let lease = Arc::new(lease);
        let kept = HeldLease {
            lease: Arc::clone(&lease),
            place,
            file,
        };
        held.insert(lease.fd(), kept);
        self.state.replicas.publish(place);
        drop(held);
        // The break may have been signalled before the lease was in `held`.
        if lease.is_broken() {
            self.state.end(lease.fd(), true);
        }
        Some(lease)
    }

    /// Ends a file's replicas and releases its lease.
    pub(super) fn release(&self, fd: i32) {
        self.state.end(fd, false);
    }

    /// Files whose replicas have ended since the last call, with their indices in the table.
    pub(super) fn ended(&self) -> Vec<(u64, u32)> {
        std::mem::take(&mut *locked(&self.state.ended))
    }
}

impl SharedState {
    fn run(&self, listener: &BreakListener) {
        if self.outlives_agent {
            self.replicas.end_unmarked();
        }
        while !self.stop.load(Ordering::Acquire) {
            let from_ns = self.replicas.now_ns();
            let waits = lease::break_time().unwrap_or_default();
            if waits >= BREAK_TIME_MIN {
                self.check_all();
                let relied_on = match self.outlives_agent || self.never_expires {
                    true => u64::MAX,
                    false => from_ns + waits.as_nanos() as u64 / 2,
                };
                self.replicas.keep_until(relied_on);
            }
            let until_ns = from_ns + CHECK_INTERVAL_MAX.min(waits / 8).as_nanos() as u64;
            while let Some(left_ns) = until_ns.checked_sub(self.replicas.now_ns()) {
                if self.stop.load(Ordering::Acquire) {
                    break;
                }
                match listener.wait(Duration::from_nanos(left_ns.max(1))) {
                    Some(Break::Of(fd)) => self.end(fd, true),
                    Some(Break::Some) => self.check_all(),
                    None => {}
                }
            }
        }
        self.replicas.close();
        let held: Vec<i32> = locked(&self.held).keys().copied().collect();
        for fd in held {
            self.end(fd, false);
        }
    }

    fn check_all(&self) {
        let held = locked(&self.held);
        let broken = held.values().filter(|held| held.lease.is_broken());
        let broken: Vec<i32> = broken.map(|held| held.lease.fd()).collect();
        drop(held);
        for fd in broken {
            self.end(fd, true);
        }
    }

    fn end(&self, fd: i32, broken: bool) {
        let Some(held) = locked(&self.held).remove(&fd) else {
            return;
        };
        if !(self.ignores_breaks && broken) {
            self.replicas.end(held.place);
        }
        held.lease.release();
        if self.ignores_breaks && broken {
            return;
        }
        locked(&self.ended).push((held.file, held.place));
    }
}

impl Drop for LeaseThread {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::Release);
        self.listener.wake();
        if let Some(thread) = self.thread.take() {
            // If it panicked there is nothing to report: its end is the end of all replicas.
            let _ = thread.join();
        }
    }
}
