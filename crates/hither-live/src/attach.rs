//! Records and steers programs that run already, by what the kernel reports of them. They do not
//! notice.

use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hither_kernel::cgroup::MemoryGroup;
use hither_kernel::process_tree::Roots;
use hither_kernel_events::Scope;
use hither_session::session::{Session, SessionOptions};

use crate::error::{Error, Result};
use crate::event_loop::{EventLoop, Sink, StatusPublisher};
use crate::file_filter::FileFilter;
use crate::mechanism::{RunState, SessionNeeds};
use crate::observe::recording::{Recording, TraceOptions};
use crate::page_cache::PageCacheOptions;
use crate::run::{self, Active, Mechanisms, RunReport};
use crate::system::System;

/// How often it is asked whether it is over.
const ASK_PERIOD: Duration = Duration::from_millis(50);

/// What is steered and recorded of programs that run already.
#[derive(Clone, Debug)]
pub struct AttachOptions {
    /// Whose accesses.
    pub scope: Scope,
    /// To which files.
    pub files: FileFilter,
    /// Who they are, for `hither top`.
    pub name: String,
    /// The trace to record, if there is to be one.
    pub record: Option<TraceOptions>,
    /// How many frames of a call stack make its signature, at most 64, where call sites are needed.
    /// 0: a call site is a program and a file.
    pub frames_max: usize,
    /// How the page cache is steered, if it is.
    pub page_cache: Option<PageCacheOptions>,
    /// Decisions are not carried out.
    pub dry_run: bool,
    /// Where to log inputs and decisions.
    pub log: Option<PathBuf>,
}

/// Records or steers until it is over.
///
/// # Errors
/// The kernel's events cannot be had, or the trace or the log cannot be written to.
pub fn attach(options: &AttachOptions, mut is_over: impl FnMut() -> bool) -> Result<RunReport> {
    let mechanisms = Mechanisms {
        page_cache: options.page_cache.clone(),
        ..Mechanisms::default()
    };
    let mechanisms = mechanisms.by_kernel();
    let mut active = Active::set_up(&mechanisms, &System::by_kernel(), options.dry_run)?;
    let needs = active.all().into_iter().map(|mechanism| mechanism.needs());
    let recorder = options.record.as_ref().map(|_| SessionNeeds {
        call_sites: true,
        ..SessionNeeds::default()
    });
    let needs = needs.chain(recorder).reduce(SessionNeeds::and);
    let frames_max = needs.unwrap_or_default().kernel_frames(options.frames_max);
    let source = mechanisms.kernel_source(&options.scope, &options.files, frames_max)?;
    run::begin_log(options.log.as_deref(), active.all())?;
    let (trace, group) = (options.record.as_ref(), memory_group(&options.scope));
    let recording = trace.map(|trace| Recording::of_running(trace, group));
    let mut recording = recording.transpose()?;
    if let Some(recording) = &mut recording {
        recording.seen_by_kernel(&source);
    }

    // No program has the library.
    let session = Session::create(SessionOptions::default()).map_err(Error::Session)?;
    let users = active.all().len() + usize::from(recording.is_some());
    let mut state = RunState::new(session, users);
    state.add_source(Box::new(source));
    state.roots = roots(&options.scope);
    recording
        .iter()
        .for_each(|recording| recording.begin(&mut state));
    for mechanism in active.all() {
        mechanism.attach(&mut state);
    }
    let began = Instant::now();
    let ended = AtomicBool::new(false);
    let status = (!active.all().is_empty())
        .then(|| run::status(vec![options.name.clone()], options.dry_run));
    thread::scope(|threads| {
        let agent = threads.spawn(|| {
            let sink = recording.as_mut().map(Recording::attach);
            let event_loop = EventLoop {
                state: &mut state,
                mechanisms: active.all(),
                sinks: sink.into_iter().map(|sink| sink as &mut dyn Sink).collect(),
                status: status.map(StatusPublisher::new),
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
    let (exit, ran) = (ExitStatus::default(), began.elapsed());
    let mut report = active.finish(exit, ran, &mut state);
    report.recorded = recording.map(|recording| recording.finish(&state, exit, ran, None));
    Ok(report)
}

/// The memory cgroup whose limit holds for programs that run already, if they have one.
pub fn memory_group(scope: &Scope) -> Option<MemoryGroup> {
    match scope {
        Scope::Everything | Scope::Started => None,
        Scope::Processes(processes) => processes
            .first()
            .and_then(|&process| MemoryGroup::of_process(process).ok()?),
        Scope::Cgroup(cgroup) => MemoryGroup::of_folder(cgroup.folder()).ok().flatten(),
    }
}

/// Where the programs' processes begin.
fn roots(scope: &Scope) -> Option<Roots> {
    match scope {
        // Of what is started, once it is.
        Scope::Everything | Scope::Started => None,
        Scope::Processes(processes) => Some(Roots::Processes(processes.clone())),
        Scope::Cgroup(cgroup) => Some(Roots::Cgroup(cgroup.folder().to_owned())),
    }
}
