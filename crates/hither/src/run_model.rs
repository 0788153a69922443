//! What `hither run` would read, for the advice: the code that steers the page cache says it.

use hither_analysis::expected::ExpectedReads;
use hither_core::Spec;
use hither_live::page_cache;
use hither_trace::{Error, Trace};

/// What a run with this policy would read where so many bytes are left for files.
pub(crate) fn run_model(
    trace: &Trace,
    policy: &Spec,
    left_bytes: u64,
) -> Result<Option<ExpectedReads>, Error> {
    let expected = page_cache::expected_reads(trace, policy, left_bytes)?;
    Ok(expected.map(|expected| ExpectedReads {
        budget_bytes: expected.budget_bytes,
        read_bytes: expected.read_bytes,
        alone_bytes: expected.alone_bytes,
    }))
}
