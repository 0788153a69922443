//! Looks up or moves pages of files: maps the range for as long as the job takes, and then treats
//! its pages as the mover treats pages of memory.
//!
//! A job leaves out blocks that are not cached, so that it reads nothing from storage. A page that
//! leaves the cache between the check and the mapping is read in all the same: this is harmless,
//! and rare.

use hither_ids::{Address, KernelNode, Pid};
use hither_kernel::file_map::FileMap;
use hither_kernel::page_cache::{CachedFile, PageCacheError};
use hither_kernel::process::thread_cpu_ns;

use super::controller::BLOCK_PAGES;
use super::event::FilePages;
use crate::numa::mover::{self, JobResult, Task, Worker, push_refused};
use crate::numa::ranges::{LocatedRun, MoveResult, PageRange, RefusalReason};

/// Pages of a file to look up or move.
pub(super) struct FileJob {
    pub(super) job: u64,
    pub(super) file: Box<dyn CachedFile>,
    /// Ranges of whole blocks, in order. Each begins at an offset in the file.
    pub(super) ranges: Vec<FilePages>,
    /// The node to move them to; `None`: look them up.
    pub(super) to: Option<KernelNode>,
    pub(super) page_bytes: u64,
}

/// Consecutive pages that were entered into the page tables of this process.
struct EnteredRun {
    /// Index of the first page in the job, and how many there are.
    first: u32,
    pages: u32,
    address: Address,
}

impl FileJob {
    /// Carries the job out as far as possible. An error comes with the job's number.
    pub(super) fn carry_out(
        &self,
        worker: &mut Worker,
    ) -> Result<JobResult, (u64, PageCacheError)> {
        let before_ns = thread_cpu_ns();
        let all: u32 = self.ranges.iter().map(|range| range.pages).sum();
        let (map, entered) = self.enter().map_err(|refused| (self.job, refused))?;
        let job = mover::PageJob {
            job: self.job,
            // This process.
            pid: Pid(0),
            pages: entered
                .iter()
                .map(|run| PageRange {
                    start: run.address,
                    pages: run.pages,
                })
                .collect(),
            task: self.to.map_or(Task::Locate, Task::Migrate),
        };
        let done = worker.carry_out(&job);
        drop(map);
        Ok(match done {
            JobResult::Located { job, found } => JobResult::Located {
                job,
                found: found
                    .iter()
                    .flat_map(|found| translated(&entered, found))
                    .collect(),
            },
            JobResult::Moved(moved) => JobResult::Moved(MoveResult {
                // Entering pages into the page tables is part of the cost.
                took_ns: thread_cpu_ns() - before_ns,
                ..by_job_index(&entered, all, moved)
            }),
        })
    }

    /// Maps the ranges, and enters all cached pages of them into the page tables.
    fn enter(&self) -> Result<(FileMap, Vec<EnteredRun>), PageCacheError> {
        let size = self.file.size().next_multiple_of(self.page_bytes);
        let (Some(first), Some(last)) = (self.ranges.first(), self.ranges.last()) else {
            return Err(PageCacheError::NotThis);
        };
        let bytes = |range: &FilePages| u64::from(range.pages) * self.page_bytes;
        let end = (last.start + bytes(last)).min(size);
        if end <= first.start {
            return Err(PageCacheError::NotThis);
        }
        let map = self.file.map(first.start, end - first.start)?;
        let mut entered: Vec<EnteredRun> = Vec::new();
        let mut number = 0;
        for range in &self.ranges {
            let within = bytes(range).min(size.saturating_sub(range.start));
            self.enter_cached(&map, (range.start, within), number, &mut entered)?;
            number += range.pages;
        }
        Ok((map, entered))
    }

    /// Enters the cached blocks of a range. Halves the range until a part is cached as a whole or
    /// not at all. `first` is the index in the job of the range's first page.
    fn enter_cached(
        &self,
        map: &FileMap,
        (offset, length): (u64, u64),
        first: u32,
        entered: &mut Vec<EnteredRun>,
    ) -> Result<(), PageCacheError> {
        let pages = |bytes: u64| (bytes / self.page_bytes) as u32;
        let cached = match length {
            0 => 0,
            _ => self.file.cached(offset, length)?.pages,
        };
        let block = u64::from(BLOCK_PAGES) * self.page_bytes;
        if cached > 0 && cached >= u64::from(pages(length)) {
            map.enter(offset, length)?;
            entered.push(EnteredRun {
                first,
                pages: pages(length),
                address: map.address(offset),
            });
        } else if cached > 0 && length > block {
            let half = (length / block).div_ceil(2) * block;
            let rest = (offset + half, length - half);
            self.enter_cached(map, (offset, half), first, entered)?;
            self.enter_cached(map, rest, first + pages(half), entered)?;
        }
        Ok(())
    }
}

/// The outcome by the job's own page indices: pages that were not entered are absent.
fn by_job_index(entered: &[EnteredRun], all: u32, moved: MoveResult) -> MoveResult {
    let mut refused = Vec::new();
    let mut next = 0;
    for run in entered {
        push_refused(&mut refused, next, run.first - next, RefusalReason::Absent);
        next = run.first + run.pages;
    }
    push_refused(&mut refused, next, all - next, RefusalReason::Absent);
    for run in &moved.refused {
        let found = LocatedRun {
            first: run.first,
            pages: run.pages,
            node: KernelNode(0),
        };
        for part in translated(entered, &found) {
            push_refused(&mut refused, part.first, part.pages, run.why);
        }
    }
    refused.sort_by_key(|run| run.first);
    MoveResult { refused, ..moved }
}

/// A run of entered pages as runs of the job's own page indices.
fn translated(entered: &[EnteredRun], found: &LocatedRun) -> Vec<LocatedRun> {
    let mut parts = Vec::new();
    let mut before = 0;
    for run in entered {
        let (from, to) = (
            found.first.max(before),
            (found.first + found.pages).min(before + run.pages),
        );
        if from < to {
            parts.push(LocatedRun {
                first: run.first + (from - before),
                pages: to - from,
                node: found.node,
            });
        }
        before += run.pages;
    }
    parts
}

#[cfg(test)]
mod tests;
