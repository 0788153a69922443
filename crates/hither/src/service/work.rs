//! Asking a node to work on files of its mounts, with progress.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use hither_analysis::format::{bytes, count, printable};
use hither_analysis::progress::{Progress, Task};

use super::client;
use super::control::{BODY_BYTES_MAX, JOBS_MAX};
use super::warming::{Line, Report};
use crate::exit::Usage;
use crate::ui::{self, Ui};

/// `--jobs N`.
pub(crate) fn jobs(text: &str) -> Result<usize, String> {
    let jobs = text.parse().ok();
    jobs.filter(|jobs| (1..=JOBS_MAX).contains(jobs))
        .ok_or_else(|| format!("a number from 1 to {JOBS_MAX} is expected"))
}

/// Files and directories below mounts of one node.
pub(crate) struct Paths {
    socket: PathBuf,
    paths: Vec<PathBuf>,
}

impl Paths {
    /// Finds the node of `paths`.
    pub(crate) fn new(paths: &[PathBuf]) -> anyhow::Result<Paths> {
        let mut found: Option<(&Path, Paths)> = None;
        for path in paths {
            let real = path
                .canonicalize()
                .with_context(|| path.display().to_string())?;
            let socket = client::socket_of(&real)?;
            match &mut found {
                None => {
                    let paths = vec![real];
                    found = Some((path, Paths { socket, paths }));
                }
                Some((_, paths)) if paths.socket == socket => paths.paths.push(real),
                Some((first, _)) => {
                    let (first, path) = (first.display(), path.display());
                    bail!("{first} and {path} are of two nodes: name them one at a time");
                }
            }
        }
        let (_, paths) = found.ok_or_else(|| Usage("no PATH is given".to_owned()))?;
        Ok(paths)
    }

    /// The paths, without links.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Path> {
        self.paths.iter().map(PathBuf::as_path)
    }

    /// Has the node do what `route` says, and shows how far it is.
    pub(crate) fn ask(&self, route: &str, what: &'static str, ui: &Ui) -> anyhow::Result<Report> {
        let mut body = Vec::new();
        for path in &self.paths {
            body.extend_from_slice(path.as_os_str().as_bytes());
            body.push(0);
        }
        if body.len() > BODY_BYTES_MAX {
            bail!("too many paths: name directories instead");
        }
        let mut task: Box<dyn Task> = ui.begin("listing", None);
        let mut end = None;
        client::post(&self.socket, route, body, |line| {
            match serde_json::from_slice(line).context("an answer that is not understood")? {
                Line::Listed(files) => task.set_message(format!("{} files", count(files))),
                Line::Plan(plan) => {
                    if plan.left_out_files > 0 {
                        ui.note(format_args!(
                            "{} of {} files do not fit into the cache and are left out: {} of {}",
                            count(plan.left_out_files),
                            count(plan.files),
                            bytes(plan.left_out_bytes),
                            bytes(plan.bytes),
                        ));
                    }
                    task = ui.begin(what, Some(plan.bytes));
                }
                Line::Done(bytes) => task.set_position(bytes),
                Line::Refused(reason) => end = Some(Err(reason)),
                Line::End(report) => end = Some(Ok(report)),
            }
            Ok(())
        })?;
        match end {
            Some(end) => end.map_err(anyhow::Error::msg),
            None => bail!(
                "{}: the node ended before the work did",
                self.socket.display()
            ),
        }
    }
}

/// Prints what was done: one line, or a JSON document. Whether all of it was.
pub(crate) fn print(report: &Report, line: &str, json: bool) -> anyhow::Result<bool> {
    if json {
        ui::print_json(report)?
    } else {
        ui::print(&format!("{}\n", printable(line)))?
    }
    for error in &report.errors {
        ui::print_message(error);
    }
    Ok(report.failed_files == 0 && report.left_out_files == 0)
}

/// Files, and how long they are.
pub(crate) fn files(count_of: u64, bytes_of: u64) -> String {
    let files = if count_of == 1 { "file" } else { "files" };
    format!("{} {files}, {}", count(count_of), bytes(bytes_of))
}

/// What came of bringing files into the cache, after their number.
pub(crate) fn loaded(report: &Report) -> String {
    let mut text = format!(
        "{} were cached already, {} were loaded",
        bytes(report.cached_bytes),
        bytes(report.loaded_bytes),
    );
    let parts = [
        (report.left_out_files, "do not fit and were left out"),
        (report.unsettled_files, "changed too recently to be kept"),
        (report.failed_files, "failed"),
    ];
    for (count_of, what) in parts.into_iter().filter(|(count, _)| *count > 0) {
        text = format!("{text}; {} {what}", count(count_of));
    }
    text
}
