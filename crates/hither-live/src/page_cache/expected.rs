//! What a run would read from storage, by a trace: its accesses go through the controller of a run.

use hither_core::registry::{Mechanism, Needs};
use hither_core::{Op, Spec};
use hither_trace::Trace;

use super::controller::{BLOCK_BYTES, PageCacheConfig, PageCacheController};
use super::event::{Input, TimedInput};
use super::run::steered_bytes;
use crate::controller::Controller;

const BATCH_REFERENCES: usize = 8192;

/// What is read from storage, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpectedReads {
    /// The budget of the run.
    pub budget_bytes: u64,
    /// What the program would read in the run.
    pub read_bytes: u64,
    /// What LRU reads that has all that is available, which stands for the kernel alone.
    pub alone_bytes: u64,
}

/// What a run with this policy would read where the kernel has `available_bytes` for files. `None`
/// where nothing can say: the policy needs the future, or the trace is a sample, or its blocks are
/// of another size.
///
/// The page cache is taken to have nothing of the files at the start, the agent to be in time, and
/// readahead to bring only what is read.
///
/// Fails like [`Trace::fill`].
pub fn expected_reads(
    trace: &Trace,
    policy: &Spec,
    available_bytes: u64,
) -> Result<Option<ExpectedReads>, hither_trace::Error> {
    let runs = policy.entry().runs(Mechanism::PageCache);
    let is_of_pages = u64::from(trace.options().block_bytes) == BLOCK_BYTES;
    if !runs || !is_of_pages || !trace.has_objects() || trace.sampled().is_some() {
        return Ok(None);
    }
    let budget_bytes = steered_bytes(available_bytes, 0);
    let controller = PageCacheController::new(&PageCacheConfig {
        policy: policy.to_string(),
        budget_bytes,
        alone_bytes: available_bytes,
        block_bytes: BLOCK_BYTES,
        dry_run: false,
        // Nobody counts what is read.
        given: true,
        spare_preexisting: false,
        sites: Vec::new(),
    });
    let Ok(mut controller) = controller else {
        return Ok(None);
    };
    let times = trace.reference_times();
    let mut times = times.iter().peekable();
    let mut time_ns = 0;
    let mut expected = ExpectedReads {
        budget_bytes,
        read_bytes: 0,
        alone_bytes: 0,
    };
    let needs = Needs {
        sites: true,
        objects: true,
        processes: true,
        ..Needs::NOTHING
    };
    let mut out = Vec::new();
    trace.for_each_batch(BATCH_REFERENCES, needs, |batch| {
        for access in batch {
            while let Some(passed) = times.next_if(|point| point.reference <= access.tick) {
                time_ns = passed.time_ns;
            }
            let before = controller.missed();
            let input = Input::Access {
                file: access.object.0.into(),
                offset: u64::from(access.index) * BLOCK_BYTES,
                length: BLOCK_BYTES,
                signature: trace.sites()[access.site.index()].signature,
                process: access.process.0,
                thread: access.thread.0,
                write: access.op == Op::Write,
            };
            controller.step(&TimedInput { time_ns, input }, &mut out);
            out.clear();
            // A write takes its block's place, and reads nothing.
            if access.op != Op::Write {
                let [missed, alone] = controller.missed();
                expected.read_bytes += missed - before[0];
                expected.alone_bytes += alone - before[1];
            }
        }
    })?;
    Ok(Some(expected))
}
