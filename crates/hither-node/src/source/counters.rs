//! Counts of what a source was asked for, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts since the source was opened. They only grow.
#[derive(Debug, Default)]
pub struct SourceCounters {
    /// Requests sent, each attempt counted. A directory counts its calls.
    pub requests: Count,
    /// Bytes of files received, those of failed attempts included.
    pub bytes: Count,
    /// Attempts that were repeated after a failure.
    pub retries: Count,
    /// Requests that failed in the end.
    pub errors: Count,
    /// Attempts that the source turned away for its load (429, 503).
    pub throttled: Count,
    /// Names in listings that no path can have, or that another entry hides.
    pub left_out: Count,
}

/// A count that any thread may raise.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds `by`.
    pub fn add(&self, by: u64) {
        self.0.fetch_add(by, Ordering::Relaxed);
    }

    /// The count now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
