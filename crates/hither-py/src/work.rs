//! Long work: on a thread of its own, so that Python goes on, Ctrl-C works, and progress is shown.

use std::cell::RefCell;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hither_analysis::progress::{Progress, Task};
use hither_analysis::{Error, Result};
use pyo3::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::errors::{exception, raised};

/// How often signals are looked at and progress is shown.
const TICK: Duration = Duration::from_millis(100);

/// What a piece of work has come to, seen from both threads.
#[derive(Clone, Default)]
pub(crate) struct Work(Arc<State>);

#[derive(Default)]
struct State {
    cancelled: AtomicBool,
    /// The name of the work that has begun last.
    what: Mutex<&'static str>,
    done: AtomicU64,
    /// 0: not known.
    length: AtomicU64,
    notes: Mutex<Vec<String>>,
    /// What a policy in Python has raised first.
    failure: Mutex<Option<PyErr>>,
}

thread_local! {
    /// The work of this thread, if it holds the interpreter.
    static HOLDING: RefCell<Option<Work>> = const { RefCell::new(None) };
}

impl Work {
    /// The work of this thread, which holds the interpreter.
    pub(crate) fn current() -> Work {
        let current = HOLDING.with_borrow(Option::clone);
        current.expect("policies in Python run where the interpreter is held")
    }

    /// Ends the work early: `error` is what it raises.
    pub(crate) fn fail(&self, error: PyErr) {
        lock(&self.0.failure).get_or_insert(error);
        self.0.cancelled.store(true, Ordering::Relaxed);
    }
}

impl Progress for Work {
    fn begin(&self, what: &'static str, length: Option<u64>) -> Box<dyn Task> {
        *lock(&self.0.what) = what;
        self.0.done.store(0, Ordering::Relaxed);
        self.0.length.store(length.unwrap_or(0), Ordering::Relaxed);
        Box::new(self.clone())
    }

    fn note(&self, text: fmt::Arguments<'_>) {
        lock(&self.0.notes).push(text.to_string());
    }

    fn cancelled(&self) -> Option<&AtomicBool> {
        Some(&self.0.cancelled)
    }
}

impl Task for Work {
    fn set_position(&self, position: u64) {
        self.0.done.store(position, Ordering::Relaxed);
    }

    fn advance(&self, units: u64) {
        self.0.done.fetch_add(units, Ordering::Relaxed);
    }

    fn set_message(&self, _: String) {}

    fn reset_rate(&self) {}
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The threads that simulate. A process that was forked has none of its parent's, so it makes its
/// own.
fn pool() -> Result<Arc<ThreadPool>> {
    static POOL: Mutex<Option<(u32, Arc<ThreadPool>)>> = Mutex::new(None);
    let process = std::process::id();
    let mut pool = lock(&POOL);
    if let Some((of, pool)) = &*pool
        && *of == process
    {
        return Ok(Arc::clone(pool));
    }
    let made = ThreadPoolBuilder::new().build();
    let made = Arc::new(made.map_err(no_threads)?);
    if let Some((_, before)) = pool.replace((process, Arc::clone(&made))) {
        // Its threads are not in this process: ending them would wait for ever.
        std::mem::forget(before);
    }
    Ok(made)
}

/// Runs `work` while Python's other threads go on. Ctrl-C raises `KeyboardInterrupt` at once; the
/// work is told, and its result is dropped. `show`, if it is not `None`, is called from time to
/// time with what is done: a name, how much, and of how much (0: not known).
pub(crate) fn run<T: Send + 'static>(
    py: Python<'_>,
    show: &Bound<'_, PyAny>,
    work: impl FnOnce(&Work) -> Result<T> + Send + 'static,
) -> PyResult<T> {
    let pool = pool().map_err(|error| raised(py, &error))?;
    on_thread(py, show, move |its| pool.install(|| work(its)))
}

/// Runs work that calls policies in Python: as [`run`], but on one thread, which holds the
/// interpreter. What a policy raises is the error.
pub(crate) fn run_holding<T: Send + 'static>(
    py: Python<'_>,
    show: &Bound<'_, PyAny>,
    work: impl FnOnce(&Work) -> Result<T> + Send + 'static,
) -> PyResult<T> {
    on_thread(py, show, move |its| {
        // What the simulator gives to other threads stays on this one.
        let pool = ThreadPoolBuilder::new().num_threads(1).build();
        pool.map_err(no_threads)?.install(|| {
            HOLDING.set(Some(its.clone()));
            Python::attach(|_| work(its))
        })
    })
}

fn no_threads(error: rayon::ThreadPoolBuildError) -> Error {
    Error::Usage(format!("no threads to simulate on: {error}"))
}

fn on_thread<T: Send + 'static>(
    py: Python<'_>,
    show: &Bound<'_, PyAny>,
    work: impl FnOnce(&Work) -> Result<T> + Send + 'static,
) -> PyResult<T> {
    let state = Work::default();
    let (sender, receiver) = mpsc::channel();
    let its = state.clone();
    let thread = std::thread::Builder::new().name("hither".to_owned());
    thread.spawn(move || {
        // Nobody waits any more after Ctrl-C.
        let _ = sender.send(work(&its));
    })?;
    let receiver = Mutex::new(receiver);
    loop {
        match py.detach(|| lock(&receiver).recv_timeout(TICK)) {
            Ok(result) => {
                for note in lock(&state.0.notes).drain(..) {
                    warn(py, &note)?;
                }
                if let Some(error) = lock(&state.0.failure).take() {
                    return Err(error);
                }
                return result.map_err(|error| raised(py, &error));
            }
            Err(RecvTimeoutError::Disconnected) => {
                let text = "the simulator failed (its message is on standard error)";
                return Err(exception(py, "Error", text));
            }
            Err(RecvTimeoutError::Timeout) => {
                let shown = show_progress(&state, show);
                if let Err(error) = py.check_signals().and(shown) {
                    state.0.cancelled.store(true, Ordering::Relaxed);
                    return Err(error);
                }
            }
        }
    }
}

fn show_progress(state: &Work, show: &Bound<'_, PyAny>) -> PyResult<()> {
    if show.is_none() {
        return Ok(());
    }
    let what = *lock(&state.0.what);
    let done = state.0.done.load(Ordering::Relaxed);
    show.call1((what, done, state.0.length.load(Ordering::Relaxed)))?;
    Ok(())
}

fn warn(py: Python<'_>, text: &str) -> PyResult<()> {
    py.import("warnings")?.call_method1("warn", (text,))?;
    Ok(())
}
