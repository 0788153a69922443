//! What a run would read from storage, by a trace: the controller of a run is given the requests of
//! the trace as the library in programs would report them.
//!
//! The controller counts in blocks of [`BLOCK_BYTES`]. Here the pages are counted that programs
//! read of a block after it was missed: fewer where they read here and there.

use hither_core::references::{Reported, Request};
use hither_core::registry::Mechanism;
use hither_core::{ExpectedReads, Op, Spec};
use hither_ids::FileKey;
use hither_trace::Trace;
use hither_trace::schema::{AccessRow, RowOp, Seen, SiteRow};
use rustc_hash::FxHashMap;

use super::controller::{BLOCK_BYTES, BLOCK_SIZE, PageCacheConfig, PageCacheController};
use super::event::{Input, TimedInput};
use super::run::{BUDGET_MIN_BYTES, steered_bytes};
use crate::controller::Controller;
use crate::references::BlockPosition;

/// Mapped files of less than this share of what was read matter little: 1/16.
const MAPPED_DIVISOR: u64 = 16;

/// What a run with this policy would read where the kernel has `available_bytes` for files. `None`
/// where nothing can say: the policy needs the future, the trace is a sample, its blocks are not
/// pages of its machine, or a run would not steer by all that it has.
///
/// The page cache is taken to have nothing of the files at the start, the agent to be in time,
/// readahead to bring only what is read, and the kernel's own count never to stop the steering.
///
/// Fails like [`Trace::for_each_request`].
pub fn expected_reads(
    trace: &Trace,
    policy: &Spec,
    available_bytes: u64,
) -> Result<Option<ExpectedReads>, hither_trace::Error> {
    let Some(seen) = trace.meta().seen.filter(is_all_steered) else {
        return Ok(None);
    };
    let runs = policy.entry().runs(Mechanism::PageCache);
    let page_bytes = u64::from(trace.meta().machine.page_bytes);
    let is_of_pages = u64::from(trace.options().block_bytes) == page_bytes;
    let fits = page_bytes > 0 && BLOCK_BYTES.is_multiple_of(page_bytes);
    if !runs || !is_of_pages || !fits || !trace.has_objects() || trace.sampled().is_some() {
        return Ok(None);
    }
    let budget_bytes = steered_bytes(available_bytes, seen.readahead_bytes).max(BUDGET_MIN_BYTES);
    let controller = PageCacheController::new(&PageCacheConfig {
        policy: *policy,
        budget_bytes,
        alone_bytes: available_bytes,
        block_bytes: BLOCK_BYTES,
        dry_run: false,
        // Nobody counts what is read.
        given: true,
        limit: None,
        always: false,
        spare_preexisting: false,
        sites: Vec::new(),
    });
    let Ok(controller) = controller else {
        return Ok(None);
    };
    let mut run = ExpectedRun {
        controller,
        sites: trace.sites(),
        reported: Vec::new(),
        pages: PagesRead::new(page_bytes),
    };
    trace.for_each_request(|row| (0..row.count).for_each(|_| run.request(row)))?;
    let [in_run, alone] = run.pages.read;
    Ok(Some(ExpectedReads {
        budget_bytes,
        read_bytes: in_run * page_bytes,
        alone_bytes: alone * page_bytes,
    }))
}

/// Whether a run would steer by all that the trace has. Nobody knows what it would make of mapped
/// files; what bypasses the page cache it cannot know. Without a cgroup's limit, the user says what
/// its budget is.
fn is_all_steered(seen: &Seen) -> bool {
    seen.memory_limit_bytes.is_some()
        && seen.direct_bytes == 0
        && seen.mapped_bytes <= seen.recorded_bytes / MAPPED_DIVISOR
}

/// A run of recorded programs.
struct ExpectedRun<'a> {
    controller: PageCacheController,
    sites: &'a [SiteRow],
    /// By thread.
    reported: Vec<Reported<Op>>,
    pages: PagesRead,
}

impl ExpectedRun<'_> {
    /// A program makes a request, which the library reports if it matters.
    fn request(&mut self, row: &AccessRow) {
        let file = row.object.into();
        let request = Request {
            op: match row.op {
                RowOp::Write => Op::Write,
                _ => Op::Read,
            },
            offset: row.offset,
            length: row.length,
        };
        let thread = row.thread as usize;
        if self.reported.len() <= thread {
            let nothing = Reported::nothing(Op::Read);
            self.reported.resize(thread + 1, nothing);
        }
        let report = self.reported[thread].report(file, request, BLOCK_SIZE);
        if let Some((file, before)) = report.before {
            self.report(row, FileKey(file), before);
        }
        // By the rule, the parts of a request refer to what it refers to. So it is known which of
        // its blocks were missed.
        for index in BLOCK_SIZE.indices(request.offset, request.length) {
            let part = part_in(request, index);
            let missed = if report.is_reported {
                self.report(row, FileKey(file), part)
            } else {
                [false; 2]
            };
            self.pages.access(row.object, index, part, missed);
        }
    }

    /// The controller gets a request. Returns whether a block was missed, in the run and by LRU
    /// alone.
    fn report(&mut self, row: &AccessRow, file: FileKey, request: Request<Op>) -> [bool; 2] {
        let before = self.controller.missed();
        let site = self.sites.get(row.site as usize);
        let input = Input::Access {
            file,
            offset: request.offset,
            length: request.length,
            signature: site.map_or(0, |site| site.signature),
            process: row.process,
            thread: row.thread,
            write: request.op == Op::Write,
        };
        let time_ns = row.time_ns;
        // What it decides happens in its own model.
        let input = TimedInput { time_ns, input };
        self.controller.step(&input, &mut Vec::new());
        let after = self.controller.missed();
        [after[0] > before[0], after[1] > before[1]]
    }
}

/// The part of a request that lies in one of its blocks.
fn part_in(request: Request<Op>, index: u32) -> Request<Op> {
    let block = u64::from(index) * BLOCK_BYTES;
    let start = request.offset.max(block);
    let end = (request.offset + request.length).min(block + BLOCK_BYTES);
    Request {
        offset: start,
        length: end - start,
        ..request
    }
}

/// The pages that are read from storage, in the run and by LRU alone.
struct PagesRead {
    page_bytes: u64,
    /// By block: the pages that were accessed since it was last missed, a bit each.
    accessed: FxHashMap<BlockPosition, [u8; 2]>,
    read: [u64; 2],
}

impl PagesRead {
    fn new(page_bytes: u64) -> PagesRead {
        PagesRead {
            page_bytes,
            accessed: FxHashMap::default(),
            read: [0; 2],
        }
    }

    /// A request within a block, and whether the block was missed.
    fn access(&mut self, file: u32, index: u32, request: Request<Op>, missed: [bool; 2]) {
        let page = |byte: u64| byte % BLOCK_BYTES / self.page_bytes;
        let (first, last) = (
            page(request.offset),
            page(request.offset + request.length - 1),
        );
        let pages = (first..=last).fold(0, |pages, page| pages | 1 << page);
        let accessed = self
            .accessed
            .entry(BlockPosition { file, index })
            .or_default();
        for ((accessed, read), missed) in accessed.iter_mut().zip(&mut self.read).zip(missed) {
            if missed {
                *accessed = 0;
            }
            // A write takes its page's place, and reads nothing.
            if request.op != Op::Write {
                *read += u64::from((pages & !*accessed).count_ones());
            }
            *accessed |= pages;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE_BYTES: u64 = 4096;

    fn request(op: Op, page: u64, length: u64) -> Request<Op> {
        Request {
            op,
            offset: page * PAGE_BYTES,
            length,
        }
    }

    #[test]
    fn of_a_block_that_was_missed_the_pages_are_read_that_are_accessed() {
        let mut pages = PagesRead::new(PAGE_BYTES);
        let mut read = |page, op, missed| {
            pages.access(3, 0, request(op, page, 1), [missed, false]);
            pages.read[0]
        };
        assert_eq!(read(0, Op::Read, true), 1);
        assert_eq!(read(0, Op::Read, false), 1);
        assert_eq!(read(1, Op::Read, false), 2);
        assert_eq!(read(2, Op::Write, false), 2);
        assert_eq!(read(2, Op::Read, false), 2);
        assert_eq!(read(1, Op::Read, true), 3);
        assert_eq!(read(0, Op::Read, false), 4);
        assert_eq!(pages.read, [4, 2], "LRU missed nothing");
        pages.access(3, 1, request(Op::Read, 4, 4 * PAGE_BYTES), [true; 2]);
        assert_eq!(pages.read, [8, 6], "another block");
        let mut pages = PagesRead::new(BLOCK_BYTES);
        pages.access(3, 1, request(Op::Read, 4, 4 * PAGE_BYTES), [true; 2]);
        assert_eq!(pages.read, [1, 1], "on a machine with pages of this size");
    }

    #[test]
    fn a_request_has_a_part_in_each_of_its_blocks() {
        let request = request(Op::Read, 3, 2 * PAGE_BYTES + BLOCK_BYTES);
        let part = |index| {
            let part = part_in(request, index);
            (part.offset / PAGE_BYTES, part.length / PAGE_BYTES)
        };
        assert_eq!([part(0), part(1), part(2)], [(3, 1), (4, 4), (8, 1)]);
    }
}
