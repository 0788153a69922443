//! `hither cache evict`: drops files of a mount from all caches of this machine.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use hither_analysis::format::{bytes, count};
use rustix::fs::{Advice, fadvise};

use crate::ui::Ui;
use crate::work_report;
use hither_service::work::{self, Paths};

/// Drop files of a mount from memory, disk and page cache: the next read is a cold one
#[derive(Args, Debug)]
#[command(after_help = "\
Drops all files at and below PATH from the memory and the disk of this machine's
node, and from the kernel's page cache: the next read asks the source, or
another member of the cluster. Files that are pinned stay. So does, in the page
cache, what a program has mapped, or reads meanwhile.

Examples:
  hither cache evict /mnt/data/train
  hither cache evict /mnt/data && time cat /mnt/data/train/* > /dev/null")]
pub(super) struct Evict {
    /// Files and directories below a mount of hither
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

impl Evict {
    pub(super) fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        let paths = Paths::new(&self.paths)?;
        for path in paths.iter() {
            drop_pages(path).with_context(|| path.display().to_string())?;
        }
        let report = paths.ask("/evict", "evicting", ui)?;
        let mut line = format!(
            "{}: {} were in memory, {} on the disk",
            work::files(report.files, report.bytes),
            bytes(report.evicted_memory_bytes),
            bytes(report.evicted_disk_bytes),
        );
        if report.pinned_files > 0 {
            line += &format!("; {} are pinned and stay", count(report.pinned_files));
        }
        Ok(if work_report::print(&report, &line, self.json)? {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}

/// Drops the pages of all files at and below `path` from the page cache, but for those that are
/// mapped or not written yet. What goes away meanwhile has no pages.
fn drop_pages(path: &Path) -> io::Result<()> {
    let mut left = vec![path.to_owned()];
    while let Some(path) = left.pop() {
        let dropped = fs::symlink_metadata(&path).and_then(|metadata| {
            if metadata.is_dir() {
                for entry in fs::read_dir(&path)? {
                    left.push(entry?.path());
                }
            } else if metadata.is_file() {
                fadvise(File::open(&path)?, 0, None, Advice::DontNeed)?;
            }
            Ok(())
        });
        match dropped {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let place = path.display();
                return Err(io::Error::new(error.kind(), format!("{place}: {error}")));
            }
            _ => {}
        }
    }
    Ok(())
}
