//! What a run would read from storage, by a trace: its accesses go through the controller of a run.
//!
//! The controller counts in blocks of [`BLOCK_BYTES`]. Here the pages are counted that programs
//! read of a block after it was missed: fewer where they read here and there.

use hither_core::registry::{Mechanism, Needs};
use hither_core::{Access, ExpectedReads, Op, Spec};
use hither_trace::Trace;
use hither_trace::schema::Seen;
use rustc_hash::FxHashMap;

use super::controller::{BLOCK_BYTES, PageCacheConfig, PageCacheController};
use super::event::{Input, TimedInput};
use super::run::{BUDGET_MIN_BYTES, steered_bytes};
use crate::controller::Controller;

const BATCH_REFERENCES: usize = 8192;

const PAGE_BYTES: u64 = 4096;

/// Mapped files of less than this share of what was read matter little: 1/16.
const MAPPED_DIVISOR: u64 = 16;

/// What a run with this policy would read where the kernel has `available_bytes` for files. `None`
/// where nothing can say: the policy needs the future, the trace is a sample, its blocks are larger
/// than a page, or a run would not steer by all that it has.
///
/// The page cache is taken to have nothing of the files at the start, the agent to be in time,
/// readahead to bring only what is read, and the kernel's own count never to stop the steering.
///
/// Fails like [`Trace::fill`].
pub fn expected_reads(
    trace: &Trace,
    policy: &Spec,
    available_bytes: u64,
) -> Result<Option<ExpectedReads>, hither_trace::Error> {
    let Some(seen) = trace.meta().seen.filter(is_all_steered) else {
        return Ok(None);
    };
    let runs = policy.entry().runs(Mechanism::PageCache);
    let is_of_pages = u64::from(trace.options().block_bytes) == PAGE_BYTES;
    if !runs || !is_of_pages || !trace.has_objects() || trace.sampled().is_some() {
        return Ok(None);
    }
    let budget_bytes = steered_bytes(available_bytes, seen.readahead_bytes).max(BUDGET_MIN_BYTES);
    let controller = PageCacheController::new(&PageCacheConfig {
        policy: policy.to_string(),
        budget_bytes,
        alone_bytes: available_bytes,
        block_bytes: BLOCK_BYTES,
        dry_run: false,
        // Nobody counts what is read.
        given: true,
        limit: None,
        spare_preexisting: false,
        sites: Vec::new(),
    });
    let Ok(mut controller) = controller else {
        return Ok(None);
    };
    let times = trace.reference_times();
    let mut times = times.iter().peekable();
    let mut time_ns = 0;
    let mut blocks = Blocks::default();
    let [mut in_run, mut alone] = [PagesRead::default(), PagesRead::default()];
    let needs = Needs {
        sites: true,
        objects: true,
        processes: true,
        ..Needs::NOTHING
    };
    let sites = trace.sites();
    let mut out = Vec::new();
    trace.for_each_batch(BATCH_REFERENCES, needs, |batch| {
        for access in batch {
            while let Some(passed) = times.next_if(|point| point.reference <= access.tick) {
                time_ns = passed.time_ns;
            }
            let before = controller.missed();
            let input = Input::Access {
                file: access.object.0.into(),
                offset: u64::from(access.index) * PAGE_BYTES,
                length: PAGE_BYTES,
                signature: sites
                    .get(access.site.index())
                    .map_or(0, |site| site.signature),
                process: access.process.0,
                thread: access.thread.0,
                write: access.op == Op::Write,
            };
            controller.step(&TimedInput { time_ns, input }, &mut out);
            out.clear();
            let after = controller.missed();
            let block = blocks.of(access);
            for (pages, [before, after]) in [&mut in_run, &mut alone]
                .into_iter()
                .zip([[before[0], after[0]], [before[1], after[1]]])
            {
                pages.access(access, block, after > before);
            }
        }
    })?;
    Ok(Some(ExpectedReads {
        budget_bytes,
        read_bytes: in_run.read * PAGE_BYTES,
        alone_bytes: alone.read * PAGE_BYTES,
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

/// The controller's blocks, numbered.
#[derive(Default)]
struct Blocks {
    by_position: FxHashMap<(u32, u32), u32>,
    /// By page: its block, or [`Blocks::NONE`].
    of_page: Vec<u32>,
}

impl Blocks {
    const NONE: u32 = u32::MAX;

    fn of(&mut self, access: &Access) -> usize {
        let page = access.block.index();
        if page >= self.of_page.len() {
            self.of_page.resize(page + 1, Blocks::NONE);
        }
        if self.of_page[page] == Blocks::NONE {
            let index = u64::from(access.index) * PAGE_BYTES / BLOCK_BYTES;
            let number = self.by_position.len() as u32;
            let position = (access.object.0, index as u32);
            self.of_page[page] = *self.by_position.entry(position).or_insert(number);
        }
        self.of_page[page] as usize
    }
}

/// The pages that are read from storage where certain references miss their blocks.
#[derive(Default)]
struct PagesRead {
    /// By block: how often it was missed.
    misses: Vec<u32>,
    /// By page: the same number when it was last accessed, and 1.
    accessed: Vec<u32>,
    read: u64,
}

impl PagesRead {
    /// A page of this block is accessed, and perhaps the block was missed.
    fn access(&mut self, access: &Access, block: usize, missed: bool) {
        let page = access.block.index();
        self.misses.resize(self.misses.len().max(block + 1), 0);
        self.accessed.resize(self.accessed.len().max(page + 1), 0);
        self.misses[block] += u32::from(missed);
        let now = self.misses[block] + 1;
        let before = std::mem::replace(&mut self.accessed[page], now);
        // A write takes its page's place, and reads nothing.
        self.read += u64::from(before != now && access.op != Op::Write);
    }
}

#[cfg(test)]
mod tests {
    use hither_core::{Block, Object};

    use super::*;

    #[test]
    fn of_a_block_that_was_missed_the_pages_are_read_that_are_accessed() {
        let access = |block, index, op| Access {
            object: Object(3),
            index,
            op,
            ..Access::bare(0, Block(block))
        };
        let mut blocks = Blocks::default();
        let numbers = [(0, 0), (1, 3), (2, 4), (0, 0)]
            .map(|(page, index)| blocks.of(&access(page, index, Op::Read)));
        assert_eq!(numbers, [0, 0, 1, 0]);
        let mut pages = PagesRead::default();
        let mut read = |page, op, missed| {
            pages.access(&access(page, page, op), 0, missed);
            pages.read
        };
        assert_eq!(read(0, Op::Read, true), 1);
        assert_eq!(read(0, Op::Read, false), 1);
        assert_eq!(read(1, Op::Read, false), 2);
        assert_eq!(read(2, Op::Write, false), 2);
        assert_eq!(read(2, Op::Read, false), 2);
        assert_eq!(read(1, Op::Read, true), 3);
        assert_eq!(read(0, Op::Read, false), 4);
    }
}
