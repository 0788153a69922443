//! Records programs that run already, by what the kernel reports of them.

use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hither_kernel::cgroup::MemoryGroup;
use hither_kernel_events::stack::STACK_BYTES_MAX;
use hither_kernel_events::{Kind, Observer, Options, Scope};
use hither_session::session::{Session, SessionOptions};

use super::recording::{Recorded, Recording, TraceOptions};
use crate::error::{Error, Result};
use crate::event_loop::EventLoop;
use crate::kernel_source::KernelSource;
use crate::mechanism::RunState;

/// How often it is asked whether the recording is over.
const ASK_PERIOD: Duration = Duration::from_millis(50);

/// What to record of programs that run already.
#[derive(Clone, Debug)]
pub struct AttachOptions {
    /// Whose accesses.
    pub scope: Scope,
    /// The trace.
    pub trace: TraceOptions,
    /// How many frames of a call stack make its signature, at most 64. 0: a call site is a program
    /// and a file.
    pub frames_max: usize,
}

/// Records until it is over. The programs do not notice.
///
/// # Errors
/// The kernel's events cannot be had, or the trace cannot be written to.
pub fn attach(options: &AttachOptions, mut is_over: impl FnMut() -> bool) -> Result<Recorded> {
    let observer = Observer::new(&Options {
        scope: options.scope.clone(),
        kinds: vec![Kind::Read, Kind::Fault, Kind::Map, Kind::Dirty],
        stack_bytes: match options.frames_max {
            0 => 0,
            _ => STACK_BYTES_MAX,
        },
        ..Options::default()
    });
    let observer = observer.map_err(Error::Observer)?;
    let group = match &options.scope {
        Scope::Everything => None,
        Scope::Processes(processes) => processes
            .first()
            .and_then(|&process| MemoryGroup::of_process(process).ok()?),
        Scope::Cgroup(cgroup) => MemoryGroup::of_folder(cgroup.folder()).ok().flatten(),
    };
    let mut recording = Recording::of_running(&options.trace, group)?;
    // No program has the library.
    let session = Session::create(SessionOptions::default()).map_err(Error::Session)?;
    let mut state = RunState::new(session, 1);
    let processes = match &options.scope {
        Scope::Processes(processes) => &processes[..],
        Scope::Everything | Scope::Cgroup(_) => &[],
    };
    state.add_source(Box::new(KernelSource::new(
        observer,
        processes,
        options.frames_max,
    )));
    let began = Instant::now();
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let agent = scope.spawn(|| {
            let event_loop = EventLoop {
                state: &mut state,
                mechanisms: Vec::new(),
                sinks: vec![recording.attach()],
                status: None,
            };
            event_loop.run(&ended)
        });
        while !is_over() && !agent.is_finished() {
            thread::sleep(ASK_PERIOD);
        }
        ended.store(true, Ordering::Release);
        agent.thread().unpark();
        match agent.join() {
            Ok(ran) => ran.map_err(Error::Session),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })?;
    recording.finish(&state, ExitStatus::default(), began.elapsed(), None)
}
