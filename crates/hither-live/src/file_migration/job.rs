//! Finds out where pages of files are, and moves them: maps the range, as long as that takes, and
//! goes about it as with pages of memory.
//!
//! Nothing is read from storage for it: what is not cached is left out, a block at a time. A page
//! that was cached a moment ago and is not any more is read in all the same, which is harmless, and
//! rare.

use hither_sys::file_map::FileMap;
use hither_sys::page_cache::{CachedFile, PageCacheError};
use hither_sys::process::thread_cpu_ns;

use super::controller::BLOCK_PAGES;
use crate::numa::mover::{self, JobResult, Task, Worker, push_refused};
use crate::numa::ranges::{LocatedRun, MoveResult, PageRange, RefusalReason};

/// Something to be done about a file's pages.
pub(super) struct Job {
    pub(super) job: u64,
    pub(super) file: Box<dyn CachedFile>,
    /// Whole blocks, each range beginning at an offset in the file, in order.
    pub(super) ranges: Vec<PageRange>,
    /// The node that they go to; none: say where they are.
    pub(super) to: Option<u32>,
    pub(super) page_bytes: u64,
}

/// Pages in a row that are in the page tables.
struct Entered {
    /// Their number among the job's pages, and the number of pages.
    first: u32,
    pages: u32,
    address: u64,
}

impl Job {
    /// Does what it can. An error comes with the job's number.
    pub(super) fn carry_out(
        &self,
        worker: &mut Worker,
    ) -> Result<JobResult, (u64, PageCacheError)> {
        let before_ns = thread_cpu_ns();
        let all: u32 = self.ranges.iter().map(|range| range.pages).sum();
        let (map, entered) = self.enter().map_err(|refused| (self.job, refused))?;
        let job = mover::Job {
            job: self.job,
            // This process.
            pid: 0,
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
                // To have them in the page tables is a part of what it costs.
                took_ns: thread_cpu_ns() - before_ns,
                ..told(&entered, all, moved)
            }),
        })
    }

    /// Has all that is cached entered into the page tables.
    fn enter(&self) -> Result<(FileMap, Vec<Entered>), PageCacheError> {
        let size = self.file.size().next_multiple_of(self.page_bytes);
        let (Some(first), Some(last)) = (self.ranges.first(), self.ranges.last()) else {
            return Err(PageCacheError::NotThis);
        };
        let bytes = |range: &PageRange| u64::from(range.pages) * self.page_bytes;
        let end = (last.start + bytes(last)).min(size);
        if end <= first.start {
            return Err(PageCacheError::NotThis);
        }
        let map = self.file.map(first.start, end - first.start)?;
        let mut entered: Vec<Entered> = Vec::new();
        let mut number = 0;
        for range in &self.ranges {
            let within = bytes(range).min(size.saturating_sub(range.start));
            self.enter_cached(&map, (range.start, within), number, &mut entered)?;
            number += range.pages;
        }
        Ok((map, entered))
    }

    /// Has the blocks of a range entered that are cached, by halves: of what is whole, or of what
    /// has nothing, nothing more is asked. The range's first page has that number among the job's.
    fn enter_cached(
        &self,
        map: &FileMap,
        (offset, length): (u64, u64),
        first: u32,
        entered: &mut Vec<Entered>,
    ) -> Result<(), PageCacheError> {
        let pages = |bytes: u64| (bytes / self.page_bytes) as u32;
        let cached = match length {
            0 => 0,
            _ => self.file.cached(offset, length)?.pages,
        };
        let block = u64::from(BLOCK_PAGES) * self.page_bytes;
        if cached > 0 && cached >= u64::from(pages(length)) {
            map.enter(offset, length)?;
            entered.push(Entered {
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

/// What came of it, by the job's own pages: those that were not in the page tables are absent.
fn told(entered: &[Entered], all: u32, moved: MoveResult) -> MoveResult {
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
            node: 0,
        };
        for part in translated(entered, &found) {
            push_refused(&mut refused, part.first, part.pages, run.why);
        }
    }
    refused.sort_by_key(|run| run.first);
    MoveResult { refused, ..moved }
}

/// A run of entered pages by the job's own numbers.
fn translated(entered: &[Entered], found: &LocatedRun) -> Vec<LocatedRun> {
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
