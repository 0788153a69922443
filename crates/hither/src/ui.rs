//! What a person sees besides results: notes and progress bars, on stderr, on a terminal only where
//! they move.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use anyhow::Context;
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

    /// A line for people, on stderr.
    pub(crate) fn note(&self, text: impl fmt::Display) {
        if !self.quiet {
            eprintln!("hither: {text}");
        }
    }

    /// An empty line between a program's output and ours, on stderr, for people only.
    pub(crate) fn gap(&self) {
        if !self.quiet && io::stderr().is_terminal() {
            eprintln!();
        }
    }

    /// A bar that fills up to `length` units of work; hidden where stderr is no terminal.
    pub(crate) fn bar(&self, what: &'static str, length: u64) -> ProgressBar {
        let bar = self.hidden_unless_seen(ProgressBar::new(length));
        bar.set_style(
            ProgressStyle::with_template("{msg} {wide_bar} {percent:>3}% {eta}")
                .expect("the template is well formed"),
        );
        bar.set_message(what);
        bar
    }

    /// A spinner for work of unknown length.
    pub(crate) fn spinner(&self, what: &'static str) -> ProgressBar {
        let spinner = self.hidden_unless_seen(ProgressBar::new_spinner());
        spinner.set_message(what);
        spinner.enable_steady_tick(Duration::from_millis(120));
        spinner
    }

    fn hidden_unless_seen(&self, bar: ProgressBar) -> ProgressBar {
        if self.quiet || !io::stderr().is_terminal() {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        bar
    }
}

/// Writes a result to stdout at once; a reader that went away comes back as an error that ends the
/// command quietly.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    print_bytes(text.as_bytes())
}

/// Writes bytes to stdout, as [`print()`] does a text.
pub(crate) fn print_bytes(bytes: &[u8]) -> anyhow::Result<()> {
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
    print(&text)
}
