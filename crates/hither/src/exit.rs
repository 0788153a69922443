//! Error messages and exit codes.

use std::fmt;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, anyhow};
use hither_live::Error;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::{preload, ui};

/// The exit code of bad usage.
const USAGE_EXIT_CODE: u8 = 2;

/// The exit code of a shell for a program that SIGINT ended, so that a loop around it ends too.
pub(crate) const INTERRUPTED: u8 = 130;

/// A flag that SIGINT and SIGTERM set. A second signal ends the process at once.
pub(crate) fn cancelled_by_signals() -> anyhow::Result<Arc<AtomicBool>> {
    let cancel = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        flag::register_conditional_shutdown(signal, INTERRUPTED.into(), cancel.clone())
            .and_then(|_| flag::register(signal, cancel.clone()))
            .context("watching for signals")?;
    }
    Ok(cancel)
}

/// Bad usage that the parser cannot detect, such as an unknown policy: exit code 2.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// A program that could not be started, with the exit code of a shell: 127 if there is no such
/// program, 126 if it cannot be executed.
#[derive(Debug)]
struct NotStarted {
    code: u8,
    message: String,
}

impl fmt::Display for NotStarted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for NotStarted {}

/// An error of a recording or a run. If the program could not be started, it has the exit code of a
/// shell. Where there is no library, it says why the kernel was asked.
pub(crate) fn not_started(error: Error) -> anyhow::Error {
    if !preload::IS_THERE && matches!(error, Error::Observer(_) | Error::KernelSaysTooLittle) {
        return anyhow!("{}: {error}", preload::NOT_THERE);
    }
    match error.start_status() {
        Some(code) => NotStarted {
            code,
            message: error.to_string(),
        }
        .into(),
        None => error.into(),
    }
}

/// Prints `error` with its causes and returns the exit code. A closed pipe on stdout
/// (`hither sim ... | head`) is no error.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    let broken_pipe = error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe);
    if broken_pipe {
        return ExitCode::SUCCESS;
    }
    ui::print_message(message(error));
    let is_usage = error.downcast_ref::<Usage>().is_some()
        || error
            .downcast_ref::<hither_analysis::Error>()
            .is_some_and(hither_analysis::Error::is_usage);
    if is_usage {
        ExitCode::from(USAGE_EXIT_CODE)
    } else if let Some(not_started) = error.downcast_ref::<NotStarted>() {
        ExitCode::from(not_started.code)
    } else {
        ExitCode::FAILURE
    }
}

/// The causes in one line, without repetitions.
fn message(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// The exit code for a program that ended, as in a shell: its own, or 128 + the signal.
pub(crate) fn code_of(status: ExitStatus) -> ExitCode {
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal))
        .unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_that_is_already_said_is_not_said_again() {
        let error = anyhow::anyhow!("inner").context("outer: inner");
        assert_eq!(message(&error), "outer: inner");
        let error = anyhow::anyhow!("inner").context("outer");
        assert_eq!(message(&error), "outer: inner");
    }

    #[test]
    fn exit_codes_and_signals_pass_through() {
        assert_eq!(code_of(ExitStatus::from_raw(3 << 8)), ExitCode::from(3));
        assert_eq!(code_of(ExitStatus::from_raw(9)), ExitCode::from(137));
    }
}
