//! Starts the program with hither's library, and waits for it as a parent that does not disturb it.

use std::ffi::{CStr, OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use hither_ids::Pid;
use hither_kernel::machine::{Machine, NodeMemory, ThisMachine};
use hither_kernel::process::{Reaction, wait_until_ended};
use hither_kernel::process_tree::Transferred;
use hither_session::preload;

use crate::error::{Error, Result};

/// Signals that a terminal sends to the program as well as to this process, which ignores them.
const FROM_TERMINAL: [i32; 2] = [libc::SIGINT, libc::SIGQUIT];

/// Signals that a manager sends to this process alone, which forwards them to the program.
const FROM_MANAGER: [i32; 4] = [libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2];

/// Checks that the dynamic linker can preload the library at `path`, in which a platform may be
/// left open ([`preload::TOKEN`]).
pub(crate) fn check_preload(path: &Path) -> Result<()> {
    let problem = |problem: &str| {
        Err(Error::Preload {
            path: path.to_owned(),
            problem: problem.to_owned(),
        })
    };
    if !path.is_absolute() {
        return problem("its path is not absolute");
    }
    let mut buffer = [0; libc::PATH_MAX as usize];
    let Some(library) = preload::on_this_platform(path.as_os_str().as_bytes(), &mut buffer) else {
        return problem("its path is too long");
    };
    let library = library.to_bytes();
    // LD_PRELOAD is split at spaces and colons, and $ORIGIN and the like are replaced. There is no
    // way to quote them.
    if library
        .iter()
        .any(|byte| matches!(byte, b':' | b'$') || byte.is_ascii_whitespace())
    {
        return problem("its path holds a space, a colon or a dollar sign");
    }
    match Path::new(OsStr::from_bytes(library)).metadata() {
        Ok(metadata) if metadata.is_file() => Ok(()),
        Ok(_) => problem("it is not a file"),
        Err(error) => problem(&error.to_string()),
    }
}

/// What a recorded program is started with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Instrumentation<'a> {
    /// The library to preload.
    pub(crate) preload: &'a Path,
    /// The name of the session.
    pub(crate) session: &'a str,
}

/// A program that has ended, and the result of its agent.
#[derive(Debug)]
pub(crate) struct Supervised<T> {
    pub(crate) exit: ExitStatus,
    pub(crate) ran: Duration,
    /// What it transferred, with the children that it had waited for. `None`: nobody says.
    pub(crate) transferred: Option<Transferred>,
    /// What its agent returned.
    pub(crate) made: T,
}

/// Runs a program to its end, without hither's library.
///
/// # Errors
/// It cannot be started, or waited for.
pub fn run_uninstrumented(command: &[OsString]) -> Result<ExitStatus> {
    Ok(Program::start(command, None)?.wait()?.0)
}

/// Whether this machine has one memory node, so that there is nowhere to move pages.
pub fn has_one_node() -> bool {
    ThisMachine.nodes().is_ok_and(|nodes| is_alone(&nodes))
}

pub(crate) fn is_alone(nodes: &[NodeMemory]) -> bool {
    nodes.len() < 2
}

/// Runs the program to its end while a thread called `name` runs `agent`. The agent gets the
/// program's process id, and a flag that is set when the program has ended.
///
/// The agent's thread is created first. Then the calling thread calls `prepare` and starts the
/// program: what `prepare` opens for children is inherited by the program, and not by the agent.
pub(crate) fn supervise<P: Send, T: Send>(
    name: &str,
    command: &[OsString],
    instrumentation: Option<Instrumentation<'_>>,
    prepare: impl FnOnce() -> P,
    agent: impl FnOnce(Pid, P, &AtomicBool) -> T + Send,
) -> Result<Supervised<T>> {
    let ended = &AtomicBool::new(false);
    thread::scope(|scope| {
        // If the program cannot be started, this sender is dropped, which ends the waiting thread.
        let (started, program) = mpsc::channel();
        let agent_thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn_scoped(scope, move || {
                let (pid, prepared) = program.recv().ok()?;
                Some(agent(pid, prepared, ended))
            })
            .map_err(Error::Session)?;
        let prepared = prepare();
        let start = Instant::now();
        let program = Program::start(command, instrumentation)?;
        // An error means that the thread has panicked. The panic is passed on below.
        let _ = started.send((Pid(program.id()), prepared));
        let exit = program.wait();
        let ran = start.elapsed();
        ended.store(true, Ordering::Release);
        agent_thread.thread().unpark();
        let made = match agent_thread.join() {
            Ok(made) => made.expect("the program was started"),
            Err(panic) => std::panic::resume_unwind(panic),
        };
        let (exit, transferred) = exit?;
        Ok(Supervised {
            exit,
            ran,
            transferred,
            made,
        })
    })
}

/// The program, running.
#[derive(Debug)]
struct Program {
    child: Child,
    signals: Vec<i32>,
    caught: Vec<Reaction>,
}

impl Program {
    /// Starts the program in this process group, with these standard streams.
    ///
    /// Signals are caught from before the start and kept for the program, which may be ready for
    /// them earlier than this process. They cannot be ignored as early, because a program inherits
    /// what its parent ignores. For the same reason a signal that this process was told to ignore
    /// (nohup) is left alone.
    pub(crate) fn start(
        command: &[OsString],
        instrumentation: Option<Instrumentation<'_>>,
    ) -> Result<Self> {
        let (program, arguments) = command.split_first().ok_or(Error::NoCommand)?;
        let mut child = Command::new(program);
        child.args(arguments);
        if let Some(instrumentation) = instrumentation {
            instrument(&mut child, instrumentation);
        }
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let signals = not_ignored(&status, FROM_TERMINAL.into_iter().chain(FROM_MANAGER));
        let caught = react(&signals, |signal| Reaction::forward(signal, 0))?;
        let child = child.spawn().map_err(|source| Error::Start {
            program: program.into(),
            source,
        })?;
        Ok(Program {
            child,
            signals,
            caught,
        })
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the program to end, and forwards its signals. Says also what it had transferred.
    pub(crate) fn wait(mut self) -> Result<(ExitStatus, Option<Transferred>)> {
        let pid = self.child.id() as i32;
        let reactions = react(&self.signals, |signal| {
            if FROM_TERMINAL.contains(&signal) {
                Reaction::ignore(signal)
            } else {
                Reaction::forward(signal, pid)
            }
        });
        wait_until_ended(Pid(self.child.id()));
        // Its own account is not for its user to read once it has ended (Linux 6.18), nor ever that
        // of a setuid program. But the kernel adds it to that of the process that waits for it, and
        // all that this process reads meanwhile in other threads is some text of /proc.
        let of_this_process = || Transferred::by(Pid::own());
        let before = of_this_process();
        let exit = self.child.wait().map_err(Error::Wait);
        let after = of_this_process();
        let transferred = before.zip(after).map(|(before, after)| after.since(before));
        // Each reaction restores the one before it, so that the last is dropped first.
        drop(reactions?);
        drop(self.caught);
        Ok((exit?, transferred))
    }
}

/// Sets the environment by which the program loads the library and finds the session.
fn instrument(command: &mut Command, instrumentation: Instrumentation<'_>) {
    let library = instrumentation.preload.as_os_str().as_bytes();
    let given = |name: &CStr| {
        let value = std::env::var_os(name_of(name)).unwrap_or_default();
        value.into_vec()
    };
    let libraries = given(preload::LIBRARIES);
    let libraries: Vec<&[u8]> = preload::joined(&libraries, Some(library)).collect();
    command
        .env(
            name_of(preload::LIBRARIES),
            OsString::from_vec(libraries.concat()),
        )
        .env(name_of(preload::SESSION), instrumentation.session);
    let options = given(preload::SANITIZER);
    if let Some(options) = preload::sanitizer_options(&options) {
        let options: Vec<&[u8]> = options.collect();
        command.env(
            name_of(preload::SANITIZER),
            OsString::from_vec(options.concat()),
        );
    }
}

fn name_of(variable: &CStr) -> &OsStr {
    OsStr::from_bytes(variable.to_bytes())
}

fn react(signals: &[i32], reaction: impl Fn(i32) -> io::Result<Reaction>) -> Result<Vec<Reaction>> {
    signals
        .iter()
        .map(|&signal| reaction(signal))
        .collect::<io::Result<_>>()
        .map_err(Error::Wait)
}

/// The signals that this process does not ignore, by its status in /proc.
fn not_ignored(status: &str, signals: impl Iterator<Item = i32>) -> Vec<i32> {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0);
    signals
        .filter(|signal| mask >> (signal - 1) & 1 == 0)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_library_that_the_linker_will_find_is_accepted() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let good = folder.path().join("a.so");
        let spaced = folder.path().join("a b.so");
        std::fs::write(&good, "").expect("written");
        std::fs::write(&spaced, "").expect("written");
        let own = folder.path().join(preload::PLATFORMS[0]);
        std::fs::create_dir(&own).expect("made");
        std::fs::write(own.join("a.so"), "").expect("written");
        assert!(check_preload(&good).is_ok());
        assert!(check_preload(&folder.path().join("$PLATFORM/a.so")).is_ok());
        for bad in [
            &spaced,
            folder.path(),
            &folder.path().join("missing.so"),
            &folder.path().join("$PLATFORM/missing.so"),
            &folder.path().join("$LIB/a.so"),
            Path::new("a.so"),
        ] {
            assert!(
                matches!(check_preload(bad), Err(Error::Preload { .. })),
                "{}",
                bad.display()
            );
        }
    }

    #[test]
    fn signals_that_are_ignored_are_left_alone() {
        let status = "Name:\tsh\nSigIgn:\t0000000000000005\nSigCgt:\t0000000000000002\n";
        assert_eq!(not_ignored(status, 1..=4), [2, 4]);
        assert_eq!(not_ignored("", 1..=2), [1, 2]);
    }
}
