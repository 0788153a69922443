//! What a live run would read from storage: the live crate computes it, the advice shows it.

use serde::Serialize;

/// A run that saves less than this share is not worth it; one that steers stops there, too.
const MIN_SAVED_SHARE: f64 = 0.02;

/// What is read from storage, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ExpectedReads {
    /// The budget of the run: what is left for files, less a reserve.
    pub budget_bytes: u64,
    /// What the program would read in the run.
    pub read_bytes: u64,
    /// What LRU reads that has all that is left, which stands for the kernel alone.
    pub alone_bytes: u64,
}

impl ExpectedReads {
    /// Whether a run is worth it.
    pub fn gains(&self) -> bool {
        let saved = self.alone_bytes.saturating_sub(self.read_bytes);
        saved as f64 >= MIN_SAVED_SHARE * self.alone_bytes as f64
    }
}
