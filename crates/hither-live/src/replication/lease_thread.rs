//! The thread that holds the leases. It does nothing else, so that no writer waits for longer than
//! it takes to wake it.
//!
//! When a lease breaks it ends the file's replicas, then lets go of the lease, and tells the agent
//! afterwards. A signal may be lost or come to nothing, so every lease is also looked at once a
//! second, or more often where the kernel waits for less long; and only for half of the time that
//! the kernel waits, from such a look on, may programs rely on replicas.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hither_sys::lease::{self, Break, BreakListener, Lease};
use hither_sys::replica::agent::Shared;
use rustc_hash::FxHashMap;

/// Kernels that wait for less long are no use: replicas would last for less than the agent may be
/// kept from running.
pub(super) const BREAK_TIME_MIN: Duration = Duration::from_secs(4);

/// Leases are looked at so often.
const LOOK: Duration = Duration::from_secs(1);

/// A lease that is held.
#[derive(Debug)]
struct Held {
    lease: Arc<Lease>,
    /// Its place among the replicas.
    place: u32,
    file: u64,
}

#[derive(Debug)]
struct State {
    replicas: Arc<Shared>,
    /// By descriptor.
    held: Mutex<FxHashMap<i32, Held>>,
    /// Files whose replicas have ended, with their places.
    ended: Mutex<Vec<(u64, u32)>>,
    stop: AtomicBool,
    /// Writers are let in and replicas go on: what the strictness tests must notice.
    ignores_breaks: bool,
    /// Replicas outlive the agent: what the tests that kill it must notice.
    is_outlived: bool,
    /// What is promised does not end: what the test that stops the agent must notice.
    promises_for_good: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct LeaseThread {
    state: Arc<State>,
    listener: BreakListener,
    thread: Option<JoinHandle<()>>,
}

/// Whether a fault is to be made that a test must notice: in builds for tests alone.
fn is_tested(fault: &str) -> bool {
    cfg!(debug_assertions) && std::env::var_os(fault).is_some()
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LeaseThread {
    /// Starts it. Replicas can be relied on from then on.
    pub(super) fn start(replicas: Arc<Shared>) -> io::Result<LeaseThread> {
        let state = Arc::new(State {
            replicas,
            held: Mutex::default(),
            ended: Mutex::default(),
            stop: AtomicBool::new(false),
            ignores_breaks: is_tested("HITHER_TEST_IGNORE_LEASE_BREAKS"),
            is_outlived: is_tested("HITHER_TEST_OUTLIVE_AGENT"),
            promises_for_good: is_tested("HITHER_TEST_PROMISE_FOR_GOOD"),
        });
        let (ready, started) = mpsc::channel();
        let keeps = Arc::clone(&state);
        let thread = thread::Builder::new()
            .name("leases".to_owned())
            .spawn(move || {
                let listener = BreakListener::here()
                    .and_then(|listener| keeps.replicas.hold().map(|()| listener));
                let listens = listener.as_ref().ok().copied();
                // Nobody hears it where the agent has given up.
                let _ = ready.send(listener);
                if let Some(listener) = listens {
                    keeps.keep(&listener);
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

    /// Who breaks are told to.
    pub(super) fn listener(&self) -> &BreakListener {
        &self.listener
    }

    /// Has a file's replicas end when its lease breaks. `enter` gives them their place, and has
    /// them known; no break is dealt with meanwhile.
    pub(super) fn hold(
        &self,
        file: u64,
        lease: Lease,
        enter: impl FnOnce(&Lease) -> Option<u32>,
    ) -> Option<Arc<Lease>> {
        let mut held = locked(&self.state.held);
        let place = enter(&lease)?;
        let lease = Arc::new(lease);
        let kept = Held {
            lease: Arc::clone(&lease),
            place,
            file,
        };
        held.insert(lease.fd(), kept);
        self.state.replicas.publish(place);
        drop(held);
        // It may have been told of before it was known.
        if lease.is_broken() {
            self.state.end(lease.fd(), true);
        }
        Some(lease)
    }

    /// Ends a file's replicas, and lets go of its lease.
    pub(super) fn release(&self, fd: i32) {
        self.state.end(fd, false);
    }

    /// Files whose replicas have ended since this was last asked, with their places.
    pub(super) fn ended(&self) -> Vec<(u64, u32)> {
        std::mem::take(&mut *locked(&self.state.ended))
    }
}

impl State {
    fn keep(&self, listener: &BreakListener) {
        if self.is_outlived {
            self.replicas.end_unmarked();
        }
        while !self.stop.load(Ordering::Acquire) {
            let from_ns = self.replicas.now_ns();
            let waits = lease::break_time().unwrap_or_default();
            if waits >= BREAK_TIME_MIN {
                self.look_at_all();
                let relied_on = match self.is_outlived || self.promises_for_good {
                    true => u64::MAX,
                    false => from_ns + waits.as_nanos() as u64 / 2,
                };
                self.replicas.keep_until(relied_on);
            }
            let until_ns = from_ns + LOOK.min(waits / 8).as_nanos() as u64;
            while let Some(left_ns) = until_ns.checked_sub(self.replicas.now_ns()) {
                if self.stop.load(Ordering::Acquire) {
                    break;
                }
                match listener.wait(Duration::from_nanos(left_ns.max(1))) {
                    Some(Break::Of(fd)) => self.end(fd, true),
                    Some(Break::Some) => self.look_at_all(),
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

    fn look_at_all(&self) {
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
            // It has nothing to say if it panicked: its end is the end of all replicas.
            let _ = thread.join();
        }
    }
}
