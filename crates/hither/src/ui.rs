//! Notes and progress bars on stderr, and results on stdout. Bars are shown only on a terminal.
//!
//! Names of files, functions and programs are whatever someone chose, escape sequences of terminals
//! included. So all text goes out through [`print()`] or [`print_message`], which escape what is
//! not printed. Names that may hold a line feed are escaped where they become part of a line: cells
//! by [`Table`](hither_analysis::table::Table), others by [`printable`].

use std::fmt;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use anyhow::Context;
#[cfg(doc)]
use hither_analysis::format::printable;
use hither_analysis::format::{printable_json, printable_lines, printable_message};
use hither_analysis::progress::{Progress, Task};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Where notes and progress go.
pub(crate) struct Ui {
    quiet: bool,
}

impl Ui {
    /// A quiet one prints neither notes nor progress.
    pub(crate) fn new(quiet: bool) -> Self {
        Ui { quiet }
    }

    /// Prints a line on stderr.
    pub(crate) fn note(&self, text: impl fmt::Display) {
        if !self.quiet {
            print_message(text);
        }
    }

    /// Begins a line on stderr after what a program wrote, whose last line may have no end: on a
    /// terminal, where nobody can tell, with an empty line. In a file the last byte tells. In a
    /// pipe, nothing does.
    pub(crate) fn begin_line(&self) {
        if !self.quiet && (io::stderr().is_terminal() || ends_within_line(2)) {
            write_to_stderr("\n");
        }
    }

    /// A bar for `length` units of work. It is hidden if stderr is no terminal.
    pub(crate) fn bar(&self, what: &'static str, length: u64) -> ProgressBar {
        let bar = self.hidden_off_terminal(ProgressBar::new(length));
        bar.set_style(
            ProgressStyle::with_template("{msg} {wide_bar} {percent:>3}% {eta}")
                .expect("the template is well formed"),
        );
        bar.set_message(what);
        bar
    }

    /// A spinner for work of unknown length.
    pub(crate) fn spinner(&self, what: &'static str) -> ProgressBar {
        let spinner = self.hidden_off_terminal(ProgressBar::new_spinner());
        spinner.set_message(what);
        spinner.enable_steady_tick(Duration::from_millis(120));
        spinner
    }

    fn hidden_off_terminal(&self, bar: ProgressBar) -> ProgressBar {
        if self.quiet || !io::stderr().is_terminal() {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        bar
    }
}

impl Progress for Ui {
    fn begin(&self, what: &'static str, length: Option<u64>) -> Box<dyn Task> {
        Box::new(Bar(match length {
            Some(length) => self.bar(what, length),
            None => self.spinner(what),
        }))
    }

    fn note(&self, text: fmt::Arguments<'_>) {
        Ui::note(self, text);
    }
}

/// A bar that disappears when it is dropped.
struct Bar(ProgressBar);

impl Task for Bar {
    fn set_position(&self, position: u64) {
        self.0.set_position(position);
    }

    fn advance(&self, units: u64) {
        self.0.inc(units);
    }

    fn set_message(&self, text: String) {
        self.0.set_message(printable_message(&text));
    }

    fn reset_rate(&self) {
        self.0.reset_eta();
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Whether a descriptor is of a file that can be read and whose last line has no end.
fn ends_within_line(descriptor: i32) -> bool {
    let last_byte = || -> io::Result<u8> {
        let file = File::open(format!("/proc/self/fd/{descriptor}"))?;
        let about = file.metadata()?;
        let mut byte = [b'\n'];
        if about.is_file() && about.len() > 0 {
            file.read_exact_at(&mut byte, about.len() - 1)?;
        }
        Ok(byte[0])
    };
    last_byte().is_ok_and(|last| last != b'\n')
}

/// Prints a message on stderr.
pub(crate) fn print_message(text: impl fmt::Display) {
    let message = printable_message(&text.to_string());
    write_to_stderr(&format!("hither: {message}\n"));
}

/// Writes to stderr. Where that fails, as on a full disk or into a pipe that nobody reads, nobody
/// can be told, and what the command does is done all the same.
pub(crate) fn write_to_stderr(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Writes a result for people to stdout and flushes it. A closed pipe is an error that ends the
/// command quietly.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    write_to_stdout(printable_lines(text).as_bytes())
}

/// Writes a result for programs to stdout, as it is where stdout is no terminal.
pub(crate) fn print_bytes(bytes: &[u8]) -> anyhow::Result<()> {
    match str::from_utf8(bytes) {
        Ok(text) if io::stdout().is_terminal() => print(text),
        _ => write_to_stdout(bytes),
    }
}

fn write_to_stdout(bytes: &[u8]) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(bytes);
    written
        .and_then(|()| stdout.flush())
        .context("standard output")
}

/// Prints one JSON document, indented, with a newline at its end.
pub(crate) fn print_json(document: &impl serde::Serialize) -> anyhow::Result<()> {
    let mut text = serde_json::to_string_pretty(document)?;
    text.push('\n');
    print_json_text(&text)
}

/// Prints a JSON document that is a text already.
pub(crate) fn print_json_text(text: &str) -> anyhow::Result<()> {
    write_to_stdout(printable_json(text).as_bytes())
}
