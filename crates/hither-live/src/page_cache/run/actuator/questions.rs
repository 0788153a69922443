//! Asks the kernel what is cached, as the controller orders, and gives it the answers.

use std::ops::Range;

use hither_ids::FileKey;
use hither_kernel::cached_parts::{self, Effort};
use hither_kernel::page_bytes;
use hither_kernel::page_cache::CachedFile;

use super::super::super::controller::{ByteRanges, CHUNK_BYTES, EXTENT_BYTES, PageCacheController};
use super::super::super::event::{CachedExtent, Input, TimedInput};
use super::PageCacheActuator;
use crate::mechanism::Context;

/// A question takes 0.3 to 0.5 us.
const EFFORT: Effort = Effort {
    cached_bytes_max: u64::MAX,
    questions_max: 1 << 15,
};

impl PageCacheActuator {
    /// Says how much of a file is cached, and what programs have read of it by now: `events` are
    /// not given to the controller yet.
    pub(super) fn count_file(
        &mut self,
        context: &mut Context<'_, PageCacheController>,
        now_ns: u64,
        file: FileKey,
        events: &[TimedInput],
    ) {
        let (mut cached_bytes, mut counts_reads) = (None, false);
        if let Ok(opened) = self.program_files.open(file) {
            counts_reads = opened.counts_reads();
            match opened.cached(0, opened.size()) {
                Ok(cached) => cached_bytes = Some(cached.pages * page_bytes()),
                Err(refused) => {
                    self.report.unseen = Some(refused);
                    self.report.unknown_files += u64::from(self.limiter.is_some());
                }
            }
        }
        let counted = Input::FileCounted {
            file,
            cached_bytes,
            counts_reads,
            read: read_of(file, events),
        };
        context.input(now_ns, counted);
    }

    /// Says what is cached of ranges that programs have not come to: to the page, or by extent.
    pub(super) fn find_preexisting(
        &mut self,
        context: &mut Context<'_, PageCacheController>,
        now_ns: u64,
        file: FileKey,
        ranges: &[Range<u64>],
        by_extent: bool,
    ) {
        let Ok(opened) = self.program_files.open(file) else {
            return;
        };
        let size = opened.size();
        let mut found = |offset: u64, length: u64, cached_bytes: u64| {
            let preexisting = Input::Preexisting {
                file,
                offset,
                length,
                cached_bytes: cached_bytes.min(size.saturating_sub(offset)),
            };
            context.input(now_ns, preexisting);
        };
        for range in ranges {
            if by_extent {
                for start in range.clone().step_by(EXTENT_BYTES as usize) {
                    let cached = opened.cached(start, EXTENT_BYTES);
                    if let Some(cached) = cached.ok().filter(|cached| cached.pages > 0) {
                        found(start, EXTENT_BYTES, cached.pages * page_bytes());
                    }
                }
                continue;
            }
            // What cannot be asked counts as cached.
            let parts = cached_parts(&*opened, range.clone());
            for part in parts.unwrap_or_else(|| vec![range.clone()]) {
                let length = part.end - part.start;
                found(part.start, length, length);
            }
        }
    }

    /// Says what is cached of ranges that programs will read next.
    pub(super) fn find_ahead(
        &mut self,
        context: &mut Context<'_, PageCacheController>,
        now_ns: u64,
        file: FileKey,
        ranges: &[Range<u64>],
    ) {
        let Ok(opened) = self.program_files.open(file) else {
            return;
        };
        let size = opened.size();
        for range in ranges.iter().filter(|range| range.start < size) {
            let found = cached_parts(&*opened, range.start..range.end.min(size));
            for part in found.unwrap_or_default() {
                let ahead = Input::CachedAhead {
                    file,
                    offset: part.start,
                    length: part.end - part.start,
                };
                context.input(now_ns, ahead);
            }
        }
    }

    /// Says how much of the extents of a file is cached that is not foreign.
    pub(super) fn count_extents(
        &mut self,
        context: &mut Context<'_, PageCacheController>,
        now_ns: u64,
        file: FileKey,
        offset: u64,
        foreign: &[Range<u64>],
        questions: u32,
    ) {
        let opened = self.program_files.open(file).ok();
        let counted = opened.map(|opened| count(&*opened, offset, foreign, questions));
        let counted = counted.unwrap_or(Counted::nothing(offset));
        let input = Input::ExtentsCounted {
            file,
            offset,
            end: counted.end,
            cached: counted.cached,
            questions: counted.questions,
            goes_on: counted.goes_on,
        };
        context.input(now_ns, input);
    }

    /// Says which of these extents of a file are not cached at all.
    pub(super) fn find_absent(
        &mut self,
        context: &mut Context<'_, PageCacheController>,
        file: FileKey,
        offsets: &[u64],
    ) {
        let Ok(opened) = self.program_files.open(file) else {
            return;
        };
        for &offset in offsets {
            match opened.cached(offset, EXTENT_BYTES) {
                Ok(cached) if cached.pages == 0 => {
                    context.run.skip_cached(false);
                    let absent = Input::Absent {
                        file,
                        offset,
                        length: EXTENT_BYTES,
                    };
                    context.input(context.run.now_ns(), absent);
                }
                Ok(_) => {}
                // Of other files it may say so.
                Err(refused) => {
                    self.report.unseen = Some(refused);
                    break;
                }
            }
        }
    }
}

/// What was counted of a file.
struct Counted {
    cached: Vec<CachedExtent>,
    /// Up to here.
    end: u64,
    questions: u32,
    /// There were no more questions.
    goes_on: bool,
}

impl Counted {
    fn nothing(offset: u64) -> Counted {
        Counted {
            cached: Vec::new(),
            end: offset,
            questions: 0,
            goes_on: false,
        }
    }
}

/// Counts by extent, from an offset on, what is cached of a file that is not foreign.
fn count(opened: &dyn CachedFile, offset: u64, foreign: &[Range<u64>], questions: u32) -> Counted {
    let mut others = ByteRanges::default();
    for range in foreign {
        others.add(range.clone());
    }
    let pages = |range: Range<u64>| {
        let cached = opened.cached(range.start, range.end - range.start);
        cached.ok().map(|cached| cached.pages)
    };
    let size = opened.size();
    let mut counted = Counted::nothing(offset);
    while counted.end < size {
        if counted.questions == questions {
            counted.goes_on = true;
            break;
        }
        counted.questions += 1;
        let start = counted.end;
        if start.is_multiple_of(CHUNK_BYTES) && pages(start..start + CHUNK_BYTES) == Some(0) {
            counted.end += CHUNK_BYTES;
            continue;
        }
        let own = others.gaps_in(start..start + EXTENT_BYTES).into_iter();
        let Some(pages) = own.map(pages).sum::<Option<u64>>() else {
            // What cannot be asked stays as it is.
            break;
        };
        if pages > 0 {
            counted.cached.push(CachedExtent {
                offset: start,
                bytes: pages * page_bytes(),
            });
        }
        counted.end += EXTENT_BYTES;
    }
    counted
}

/// The range of a file that programs read in these events, from the first byte to the last.
fn read_of(file: FileKey, events: &[TimedInput]) -> Option<Range<u64>> {
    let reads = events.iter().filter_map(|at| match at.input {
        Input::Access {
            file: of,
            offset,
            length,
            write: false,
            ..
        } if of == file => Some(offset..offset + length),
        _ => None,
    });
    reads.reduce(|all, read| all.start.min(read.start)..all.end.max(read.end))
}

/// The cached parts of a range, to the page. `None` where the kernel does not say.
fn cached_parts(opened: &dyn CachedFile, range: Range<u64>) -> Option<Vec<Range<u64>>> {
    let mut found = Vec::new();
    let end = range.end;
    let asked_to = cached_parts::find(
        range,
        EFFORT,
        &mut |part| Some(opened.cached(part.start, part.end - part.start).ok()?.pages),
        &mut |part| found.push(part),
    );
    (asked_to >= end).then_some(found)
}
