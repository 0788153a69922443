//! Runs a program under one mechanism or several, or records it, or both.
//!
//! One thread, the agent, runs the loop ([`crate::event_loop`]) beside the program. If it dies,
//! nobody drains the rings, and the program runs on under the kernel alone.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use hither_ids::Pid;
use hither_kernel::process_tree::Roots;
use hither_kernel_events::{Obstacle, Scope};
use hither_session::session::{Session, SessionOptions};

use crate::decision_log::LogFile;
use crate::error::{Conflict, Error, Result};
use crate::event_loop::{EventLoop, Sink, StatusPublisher};
use crate::file_filter::FileFilter;
use crate::file_placement::{
    self, FilePlacementMechanism, FilePlacementOptions, FilePlacementReport,
};
use crate::kernel_source::{KernelSource, Observed};
use crate::launch::{self, Instrumentation};
use crate::mechanism::{Mechanism, RunState, SessionNeeds};
use crate::memory::{self, MemoryMechanism, MemoryOptions, MemoryReport};
use crate::observe::memory_left::MemorySampler;
use crate::observe::recording::{Recorded, Recording, TraceOptions};
use crate::observe::start::SeenBy;
use crate::page_cache::{self, PageCacheMechanism, PageCacheOptions, PageCacheReport};
use crate::replication::{self, ReplicationMechanism, ReplicationOptions, ReplicationReport};
use crate::status::Status;
use crate::system::System;

/// The options of a run.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// Path of the library that the program loads: the recorder's, or the one that also reports
    /// regions where memory is placed. None: the program loads none, and the kernel reports what it
    /// does. Then only its page cache can be steered.
    pub preload: Option<PathBuf>,
    /// Decisions are not carried out.
    pub dry_run: bool,
    /// Where to log inputs and decisions.
    pub log: Option<PathBuf>,
    /// The trace to record. Programs then report all accesses: none are left out because no
    /// mechanism needs them, and readahead is not disabled.
    pub record: Option<TraceOptions>,
    /// Whether the kernel also reports what the library in programs does not see, for a trace
    /// without any mechanism.
    pub beside: Beside,
    /// The number and size of rings, and the depth of call stacks. The mechanisms set the rest.
    pub session: SessionOptions,
}

/// Whether the kernel reports beside the library.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Beside {
    /// It does not.
    #[default]
    No,
    /// It does where its events can be had.
    IfPossible,
    /// It does: else there is no run.
    Yes,
}

/// Makes of the list of mechanisms all that has a part for each of them.
macro_rules! mechanisms {
    ($($(#[$options_doc:meta])* $name:ident: $options:ty, $set_up:path => $mechanism:ty;
       $(#[$report_doc:meta])* => $report:ty;)*) => {
        /// The mechanisms of a run.
        #[derive(Clone, Debug, Default)]
        pub struct Mechanisms {
            $($(#[$options_doc])* pub $name: Option<$options>,)*
        }

        impl Mechanisms {
            /// The names of all mechanisms, in order.
            pub const NAMES: &[&str] = &[$(stringify!($name)),*];

            /// The names of those that are on.
            fn names(&self) -> Vec<&'static str> {
                let all = [$((stringify!($name), self.$name.is_some())),*];
                let on = all.into_iter().filter(|(_, is_on)| *is_on);
                on.map(|(name, _)| name).collect()
            }
        }

        /// A run that has ended. A mechanism without a report was not asked for, or stepped aside.
        #[derive(Debug)]
        pub struct RunReport {
            /// How the program ended.
            pub exit: ExitStatus,
            /// How long it ran.
            pub ran: Duration,
            /// Processor time of the agent.
            pub agent: Duration,
            /// The recording, if one was asked for.
            pub recorded: Option<Result<Recorded>>,
            $($(#[$report_doc])* pub $name: Option<$report>,)*
        }

        /// The mechanisms that were set up.
        pub(crate) struct Active {
            $($name: Option<$mechanism>,)*
        }

        impl Active {
            /// Sets the given mechanisms up, except for those that have nothing to do on this
            /// machine.
            pub(crate) fn set_up(
                mechanisms: &Mechanisms,
                system: &System,
                dry_run: bool,
            ) -> Result<Active> {
                Ok(Active {
                    $($name: match &mechanisms.$name {
                        Some(options) => $set_up(options, system, dry_run)?,
                        None => None,
                    },)*
                })
            }

            /// All of them, for the loop.
            pub(crate) fn all(&mut self) -> Vec<&mut dyn Mechanism> {
                let all = [$(self.$name.as_mut().map(|active| active.as_mechanism()),)*];
                all.into_iter().flatten().collect()
            }

            /// The result of a run.
            pub(crate) fn finish(
                self,
                exit: ExitStatus,
                ran: Duration,
                state: &mut RunState,
            ) -> RunReport {
                RunReport {
                    exit,
                    ran,
                    agent: state.cpu(),
                    recorded: None,
                    $($name: self.$name.map(|active| active.finish(state, ran)),)*
                }
            }
        }

        /// The result of a run without any mechanism.
        fn without_mechanisms(exit: ExitStatus, ran: Duration) -> RunReport {
            RunReport {
                exit,
                ran,
                agent: Duration::ZERO,
                recorded: None,
                $($name: None,)*
            }
        }
    };
}

// The list. The log and the status of a run have them in this order.
mechanisms! {
    /// A replacement policy decides what the page cache keeps of the program's files.
    page_cache: PageCacheOptions, page_cache::set_up => PageCacheMechanism;
    /// The result of steering the page cache.
    => PageCacheReport;

    /// Blocks of files are copied to the nodes that read them.
    replication: ReplicationOptions, replication::set_up => ReplicationMechanism;
    /// The result of replication.
    => ReplicationReport;

    /// Pages of files are allocated on chosen nodes, or move to the nodes that read them.
    file_placement: FilePlacementOptions, file_placement::set_up => FilePlacementMechanism;
    /// The result of placing pages of files. `None` where pages would move, on a machine with one
    /// node.
    => FilePlacementReport;

    /// A placement policy decides where the program's memory is.
    memory: MemoryOptions, memory::set_up => MemoryMechanism;
    /// The result of placing memory. `None` on a machine with one node.
    => MemoryReport;
}

impl Mechanisms {
    /// These mechanisms where the kernel reports what programs do: all but that for the page cache
    /// need the library in the programs.
    pub(crate) fn by_kernel(&self) -> Mechanisms {
        let page_cache = self.page_cache.clone();
        Mechanisms {
            page_cache: page_cache.map(|page_cache| PageCacheOptions {
                by_kernel: true,
                ..page_cache
            }),
            ..Mechanisms::default()
        }
    }

    /// What the kernel is to report to them. Who drops pages has to know what others use of the
    /// files, who keeps a limit what comes in for the programs, and who asks a policy what goes.
    pub(crate) fn kernel_source(
        &self,
        scope: &Scope,
        files: &FileFilter,
        frames_max: Option<usize>,
    ) -> Result<KernelSource> {
        let page_cache = self.page_cache.as_ref();
        KernelSource::observe(&Observed {
            scope: scope.clone(),
            files: files.clone(),
            others: page_cache.is_some(),
            inserted: page_cache.is_some_and(|of| of.budget.is_limit()),
            evicted: page_cache.is_some_and(|of| !of.budget.is_limit()),
            frames_max,
            beside_library: false,
        })
    }

    /// The first two that cannot run together.
    pub fn conflict(&self) -> Option<Conflict> {
        Conflict::among(&self.names())
    }
}

/// Runs the program to its end on this machine. It has this process's standard streams and process
/// group. While it runs, this process ignores SIGINT and SIGQUIT, and forwards SIGTERM, SIGHUP,
/// SIGUSR1 and SIGUSR2 to it.
///
/// On a machine with one node nothing is moved: what moves memory or pages of files steps aside,
/// unless it is a dry run.
///
/// # Errors
/// Two mechanisms cannot run together, one cannot be set up, the trace cannot be written to, or the
/// program cannot be started.
pub fn run(options: &RunOptions, mechanisms: &Mechanisms) -> Result<RunReport> {
    run_on(&System::default(), options, mechanisms)
}

/// Runs the program on a given system, which tests can simulate.
///
/// # Errors
/// As [`run`].
pub fn run_on(system: &System, options: &RunOptions, mechanisms: &Mechanisms) -> Result<RunReport> {
    if let Some(preload) = &options.preload {
        launch::check_preload(preload)?;
    }
    if options.command.is_empty() {
        return Err(Error::NoCommand);
    }
    if let Some(conflict) = mechanisms.conflict() {
        return Err(Error::Conflict(conflict));
    }
    let by_kernel = options.preload.is_none();
    let (mechanisms, system) = if by_kernel {
        (mechanisms.by_kernel(), System::by_kernel())
    } else {
        (mechanisms.clone(), system.clone())
    };
    let mut active = Active::set_up(&mechanisms, &system, options.dry_run)?;
    let is_without = active.all().is_empty();
    if is_without && options.record.is_none() {
        let start = Instant::now();
        let exit = launch::run_uninstrumented(&options.command)?;
        return Ok(without_mechanisms(exit, start.elapsed()));
    }
    begin_log(options.log.as_deref(), active.all())?;
    let record = options.record.as_ref();
    let memory_left = record.map(|_| MemorySampler::of_this_process());
    let mut beside = match record {
        Some(_) if is_without && !by_kernel => beside(options)?,
        _ => None,
    };
    let seen_by = match beside {
        Some(_) => SeenBy::Both,
        None if by_kernel => SeenBy::Kernel,
        None => SeenBy::Library,
    };
    let recording = record.zip(memory_left);
    let recording =
        recording.map(|(trace, left)| Recording::create(trace, &options.command, seen_by, left));
    let mut recording = recording.transpose()?;

    let needs = active.all().into_iter().map(|mechanism| mechanism.needs());
    let needs: Vec<SessionNeeds> = needs
        .chain(recording.as_ref().map(Recording::needs))
        .collect();
    let file_users = needs.iter().filter(|of| of.block_bytes.is_some()).count();
    let needs = needs.into_iter().reduce(SessionNeeds::and);
    let needs = needs.unwrap_or_default();
    let mut session = needs.options(options.session);
    // Without call sites by frames, which the kernel's events may do without.
    session.frames_max = session.frames_max.max(1);
    let session = Session::create(session).map_err(Error::Session)?;
    let mut state = RunState::new(session, file_users);
    if by_kernel {
        let frames_max = needs.kernel_frames(options.session.frames_max);
        let files = FileFilter::default();
        beside = Some(mechanisms.kernel_source(&Scope::Started, &files, frames_max)?);
    }
    if let Some(source) = beside {
        if let Some(recording) = &mut recording {
            recording.seen_by_kernel(&source);
        }
        state.add_source(Box::new(source));
    }
    recording
        .iter()
        .for_each(|recording| recording.begin(&mut state));
    for mechanism in active.all() {
        mechanism.attach(&mut state);
    }
    let name = state.library.name().to_owned();
    let preload = options.preload.as_deref();
    let instrumentation = preload.map(|preload| Instrumentation {
        preload,
        session: &name,
    });
    let words = options.command.iter();
    let words = words.map(|word| word.to_string_lossy().into_owned());
    let status = || status(words.collect(), options.dry_run);
    let status = (!is_without).then(|| StatusPublisher::new(status()));
    let prepare = move || {
        active.all().into_iter().for_each(Mechanism::prepare);
        (active, recording.map(Recording::prepare))
    };
    let work = |program, (mut active, mut recording): (Active, Option<Recording>), ended: &_| {
        state.roots = Some(Roots::Processes(vec![program]));
        let sink = recording.as_mut().map(|recording| recording.start(program));
        let event_loop = EventLoop {
            state: &mut state,
            mechanisms: active.all(),
            sinks: sink.into_iter().map(|sink| sink as &mut dyn Sink).collect(),
            status,
        };
        event_loop.run(ended)?;
        Ok((active, recording, state))
    };
    let ended = launch::supervise("agent", &options.command, instrumentation, prepare, work)?;
    let (active, recording, mut state) = ended.made.map_err(Error::Session)?;
    let mut report = active.finish(ended.exit, ended.ran, &mut state);
    report.recorded = recording
        .map(|recording| recording.finish(&state, ended.exit, ended.ran, ended.transferred));
    Ok(report)
}

/// What the kernel reports beside the library, if that is wanted and possible.
fn beside(options: &RunOptions) -> Result<Option<KernelSource>> {
    let observe = || {
        KernelSource::observe(&Observed {
            scope: Scope::Started,
            others: false,
            inserted: false,
            evicted: false,
            frames_max: Some(options.session.frames_max),
            beside_library: true,
            files: FileFilter::default(),
        })
    };
    match options.beside {
        Beside::No => Ok(None),
        Beside::IfPossible if Obstacle::all().next().is_some() => Ok(None),
        Beside::IfPossible => Ok(observe().ok()),
        Beside::Yes => observe().map(Some),
    }
}

/// Begins the log of all that decide, if there is to be one.
pub(crate) fn begin_log(log: Option<&Path>, mechanisms: Vec<&mut dyn Mechanism>) -> Result<()> {
    let mut deciding = mechanisms;
    deciding.retain(|mechanism| mechanism.decides());
    let Some(path) = log.filter(|_| !deciding.is_empty()) else {
        return Ok(());
    };
    let log = LogFile::create(path, deciding.len() > 1)?;
    for mechanism in deciding {
        mechanism.begin_log(&log);
    }
    Ok(())
}

/// What is known of a run before it starts.
pub(crate) fn status(command: Vec<String>, dry_run: bool) -> Status {
    Status {
        agent: Pid::own(),
        command,
        dry_run,
        ..Status::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_go_with_memory_alone() {
        let replication = Some(ReplicationOptions {
            policy: "dual-layer".parse().expect("a policy"),
            scope: replication::Scope::Far,
            node_bytes: None,
        });
        let mut mechanisms = Mechanisms {
            replication,
            file_placement: Some(FilePlacementOptions {
                policy: "round-robin".parse().expect("a policy"),
                cache: None,
            }),
            ..Mechanisms::default()
        };
        let conflict = mechanisms.conflict();
        assert_eq!(conflict, Some(Conflict::ReplicationHidesFiles));
        let all = Conflict::among(Mechanisms::NAMES).expect("a conflict");
        assert_eq!(all, Conflict::ReplicationHidesPageCache);
        mechanisms.file_placement = None;
        assert_eq!(mechanisms.conflict(), None);
    }
}
