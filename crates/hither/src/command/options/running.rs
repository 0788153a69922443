//! Programs that run already, of which the kernel tells, for `hither record`, `hither advise` and
//! `hither run`.

use std::fmt::{self, Display, Formatter};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use hither_ids::Pid;
use hither_kernel::notify::notify;
use hither_kernel_events::{Cgroup, Mounts, Scope, is_alive};
use hither_live::observe::Recorded;
use hither_live::{AttachOptions, Error, FileFilter, FileGlob, RunReport, SessionOptions, attach};

use super::recording::{self, RecordingArgs};
use crate::exit;
use crate::ui::{self, Ui};

/// Programs that run already.
#[derive(Args, Debug)]
pub(crate) struct RunningArgs {
    #[command(flatten)]
    whose: Whose,

    /// End after so long, such as 60s, 5m or 2h
    #[arg(
        long = "for",
        value_name = "TIME",
        value_parser = duration,
        requires = "running",
        hide_short_help = true
    )]
    time: Option<Duration>,

    /// Only of files whose paths are like this one, such as '/var/lib/postgresql/**'
    ///
    /// `*` and `?` stay within a folder, and `**` does not. It is the path that the program sees,
    /// in a container too. It can be given several times. The kernel's side leaves out other files,
    /// once one event about them was seen.
    #[arg(
        long = "files",
        value_name = "GLOB",
        requires = "running",
        hide_short_help = true
    )]
    globs: Vec<FileGlob>,

    /// Only of files of the file system that this path is in
    ///
    /// It can be given several times. Of an overlay these are the file systems of its layers.
    #[arg(
        long = "file-system",
        value_name = "PATH",
        requires = "running",
        hide_short_help = true
    )]
    file_systems: Vec<PathBuf>,
}

/// Whose accesses are meant.
#[derive(Args, Debug)]
#[group(id = "running", multiple = false, conflicts_with = "command")]
struct Whose {
    /// Of these processes, and what they start
    ///
    /// It ends when these have ended, or with Ctrl-C. What they had started before is meant, too.
    #[arg(long = "pid", short, value_name = "PID", num_args = 1..)]
    pids: Vec<Pid>,

    /// Of the processes of a cgroup (v2, or v1's of memory) and of those below it
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    cgroup: Option<PathBuf>,

    /// Of a systemd unit, by its name
    #[arg(long, value_name = "NAME")]
    unit: Option<String>,

    /// Of a container, by its ID or the first digits of it
    #[arg(long, value_name = "ID", hide_short_help = true)]
    container: Option<String>,

    /// Of all processes of the machine
    #[arg(long, short, hide_short_help = true)]
    all: bool,
}

impl Display for Whose {
    /// As it was given.
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        let pids = self.pids.iter().map(|pid| format!("--pid {pid}"));
        let cgroup = self.cgroup.iter();
        let cgroup = cgroup.map(|path| format!("--cgroup {}", path.display()));
        let unit = self.unit.iter().map(|name| format!("--unit {name}"));
        let container = self.container.iter().map(|id| format!("--container {id}"));
        let all = self.all.then(|| "--all".to_owned());
        let words = pids.chain(cgroup).chain(unit).chain(container).chain(all);
        to.write_str(&words.collect::<Vec<_>>().join(" "))
    }
}

impl RunningArgs {
    /// Whose accesses are meant. None if it is a command's.
    pub(crate) fn scope(&self) -> anyhow::Result<Option<Scope>> {
        let whose = &self.whose;
        let cgroup = if let Some(path) = &whose.cgroup {
            Cgroup::at(path).with_context(|| format!("--cgroup {}", path.display()))?
        } else if let Some(name) = &whose.unit {
            Cgroup::of_unit(name).with_context(|| format!("--unit {name}"))?
        } else if let Some(id) = &whose.container {
            Cgroup::of_container(id).with_context(|| format!("--container {id}"))?
        } else if whose.all {
            return Ok(Some(Scope::Everything));
        } else {
            let pids = &whose.pids;
            pids.iter().try_for_each(|pid| check(*pid))?;
            return Ok((!pids.is_empty()).then(|| Scope::Processes(pids.clone())));
        };
        Ok(Some(Scope::Cgroup(cgroup)))
    }

    /// Records them to `output`, with call sites by so many frames at most, until they have ended,
    /// the time is over, or Ctrl-C. A second Ctrl-C ends this process, also when it does something
    /// else by then.
    pub(crate) fn record(
        &self,
        scope: Scope,
        output: &Path,
        recording: &RecordingArgs,
        frames_max: usize,
        ui: &Ui,
    ) -> anyhow::Result<Option<Recorded>> {
        recording::note_recoverable(output, ui);
        let options = AttachOptions {
            record: Some(recording.trace(output)),
            frames_max,
            ..self.options(scope)?
        };
        let recorded = self.attach(&options)?;
        let recorded = recorded.and_then(|ran| ran.recorded.transpose());
        recording::made(recorded)
    }

    /// What is done to them: nothing.
    pub(crate) fn options(&self, scope: Scope) -> anyhow::Result<AttachOptions> {
        Ok(AttachOptions {
            scope,
            files: self.files()?,
            name: self.whose.to_string(),
            record: None,
            frames_max: SessionOptions::default().frames_max,
            page_cache: None,
            dry_run: false,
            log: None,
        })
    }

    /// Which files are meant.
    fn files(&self) -> anyhow::Result<FileFilter> {
        let mut devices = Vec::new();
        for path in &self.file_systems {
            let found = Mounts::read().and_then(|mounts| mounts.devices(path));
            let found = found.with_context(|| format!("--file-system {}", path.display()))?;
            devices.extend(found);
        }
        Ok(FileFilter {
            globs: self.globs.clone(),
            devices,
        })
    }

    /// Records or steers them for as long. systemd is told when that has begun.
    pub(crate) fn attach(
        &self,
        options: &AttachOptions,
    ) -> anyhow::Result<Result<RunReport, Error>> {
        let interrupted = exit::cancelled_by_signals()?;
        let cgroup = match &options.scope {
            Scope::Cgroup(cgroup) => Some((cgroup.folder(), inode(cgroup.folder()))),
            _ => None,
        };
        let until = self.time.map(|time| Instant::now() + time);
        let mut is_ready = false;
        let ran = attach(options, || {
            if !std::mem::replace(&mut is_ready, true) {
                // Otherwise the unit waits for it in vain.
                if let Err(error) = notify("READY=1") {
                    ui::print_message(error);
                }
            }
            interrupted.load(Ordering::Relaxed)
                || until.is_some_and(|until| Instant::now() >= until)
                || self.have_ended()
                // A unit that is started anew gets a new one.
                || cgroup.is_some_and(|(folder, before)| inode(folder) != before)
        });
        // It sees the end in any case.
        let _ = notify("STOPPING=1");
        Ok(ran)
    }

    /// Whether there is nobody left to record.
    fn have_ended(&self) -> bool {
        let pids = &self.whose.pids;
        !pids.is_empty() && !pids.iter().any(|pid| is_alive(*pid))
    }
}

/// The number of a folder, if it is there.
fn inode(folder: &Path) -> Option<u64> {
    fs::metadata(folder).ok().map(|about| about.ino())
}

/// A process must run, and be no thread of one.
fn check(pid: Pid) -> anyhow::Result<()> {
    if !is_alive(pid) {
        bail!("--pid {pid}: there is no such process");
    }
    let status = fs::read(format!("/proc/{pid}/status")).unwrap_or_default();
    let status = String::from_utf8_lossy(&status);
    let process = status.lines().find_map(|line| line.strip_prefix("Tgid:\t"));
    match process.filter(|process| **process != pid.to_string()) {
        Some(process) => bail!("--pid {pid}: it is a thread of the process {process}"),
        None => Ok(()),
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(char::is_alphabetic);
    let seconds = match &text[digits.len()..] {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err("a time is a number of seconds, or ends in s, m or h".to_owned()),
    };
    let number = digits.parse::<u32>().map_err(|error| error.to_string())?;
    Ok(Duration::from_secs(u64::from(number) * seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        let seconds = |text| duration(text).map(|time| time.as_secs());
        assert_eq!(seconds("10"), Ok(10));
        assert_eq!(seconds("60s"), Ok(60));
        assert_eq!(seconds("5m"), Ok(300));
        assert_eq!(seconds("2h"), Ok(7200));
        for bad in ["", "s", "1d", "-1s", "1.5s", "ms"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
