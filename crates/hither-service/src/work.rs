//! Asking a node to work on files of its mounts, with progress.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use hither_analysis::format::{bytes, count};
use hither_analysis::progress::{Progress, Task};

use crate::client;
use crate::control::{BODY_BYTES_MAX, JOBS_MAX};
use crate::error::{Cause, Error, Place};
use crate::warming::{Line, Report};

/// `--jobs N`.
pub fn jobs(text: &str) -> Result<usize, String> {
    let jobs = text.parse().ok();
    jobs.filter(|jobs| (1..=JOBS_MAX).contains(jobs))
        .ok_or_else(|| format!("a number from 1 to {JOBS_MAX} is expected"))
}

/// Files and directories below mounts of one node.
pub struct Paths {
    socket: PathBuf,
    paths: Vec<PathBuf>,
}

impl Paths {
    /// Finds the node of `paths`.
    ///
    /// # Errors
    /// There is none, or they are of several.
    pub fn new(paths: &[PathBuf]) -> Result<Paths, Error> {
        let mut found: Option<(&Path, Paths)> = None;
        for path in paths {
            let real = path.canonicalize().at(path.display())?;
            let socket = client::socket_of(&real)?;
            match &mut found {
                None => {
                    let paths = vec![real];
                    found = Some((path, Paths { socket, paths }));
                }
                Some((_, paths)) if paths.socket == socket => paths.paths.push(real),
                Some((first, _)) => {
                    let (first, path) = (first.display(), path.display());
                    let text = format!("{first} and {path} are of two nodes");
                    return Err(Cause::from(text + ": name them one at a time").into());
                }
            }
        }
        let (_, paths) = found.ok_or_else(|| Cause::from("no PATH is given"))?;
        Ok(paths)
    }

    /// The paths, without links.
    pub fn iter(&self) -> impl Iterator<Item = &Path> {
        self.paths.iter().map(PathBuf::as_path)
    }

    /// Has the node do what `route` says, and shows how far it is.
    ///
    /// # Errors
    /// The node refuses, or ends.
    pub fn ask(
        &self,
        route: &str,
        what: &'static str,
        progress: &dyn Progress,
    ) -> Result<Report, Error> {
        let mut body = Vec::new();
        for path in &self.paths {
            body.extend_from_slice(path.as_os_str().as_bytes());
            body.push(0);
        }
        if body.len() > BODY_BYTES_MAX {
            return Err(Cause::from("too many paths: name directories instead").into());
        }
        let mut task: Box<dyn Task> = progress.begin("listing", None);
        let mut end = None;
        client::post(&self.socket, route, body, |line| {
            match serde_json::from_slice(line).at("an answer that is not understood")? {
                Line::Listed(files) => task.set_message(format!("{} files", count(files))),
                Line::Plan(plan) => {
                    if plan.left_out_files > 0 {
                        progress.note(format_args!(
                            "{} of {} files do not fit into the cache and are left out: {} of {}",
                            count(plan.left_out_files),
                            count(plan.files),
                            bytes(plan.left_out_bytes),
                            bytes(plan.bytes),
                        ));
                    }
                    task = progress.begin(what, Some(plan.bytes));
                }
                Line::Done(bytes) => task.set_position(bytes),
                Line::Refused(reason) => end = Some(Err(reason)),
                Line::End(report) => end = Some(Ok(report)),
            }
            Ok(())
        })?;
        match end {
            Some(end) => Ok(end.map_err(Cause::from)?),
            None => {
                Err(Cause::from("the node ended before the work did")).at(self.socket.display())
            }
        }
    }
}

/// Files, and how long they are.
pub fn files(count_of: u64, bytes_of: u64) -> String {
    let files = if count_of == 1 { "file" } else { "files" };
    format!("{} {files}, {}", count(count_of), bytes(bytes_of))
}

/// What came of bringing files into the cache, after their number.
pub fn loaded(report: &Report) -> String {
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
