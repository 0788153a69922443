//! What a live run would read from storage: the live crate computes it, the advice shows it.

use serde::Serialize;

/// A run that saves less than this share is not worth it; one that steers stops there, too.
const MIN_SAVED_SHARE: f64 = 0.02;

/// A forecast is exact if its range goes no farther from it than this share.
const EXACT_SHARE: f64 = 0.1;

/// What is read from storage, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Forecast {
    /// Most probably.
    pub bytes: u64,
    /// At least, under other conditions that the recording allows.
    pub low_bytes: u64,
    /// At most.
    pub high_bytes: u64,
}

impl Forecast {
    /// Of what was found most probable, and of what may be as well.
    pub fn of(bytes: u64, others: impl IntoIterator<Item = u64>) -> Forecast {
        let exact = Forecast {
            bytes,
            low_bytes: bytes,
            high_bytes: bytes,
        };
        others.into_iter().fold(exact, |range, other| Forecast {
            low_bytes: range.low_bytes.min(other),
            high_bytes: range.high_bytes.max(other),
            ..range
        })
    }

    /// Whether the range is narrow: a tenth to either side.
    pub fn is_exact(&self) -> bool {
        let far = self
            .bytes
            .abs_diff(self.low_bytes)
            .max(self.bytes.abs_diff(self.high_bytes));
        far as f64 <= EXACT_SHARE * self.bytes as f64
    }
}

/// What is read from storage, in a run and without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ExpectedReads {
    /// The budget of the run: what is left for files, less a reserve.
    pub budget_bytes: u64,
    /// What the program would read in the run.
    pub run: Forecast,
    /// What it would read with the kernel alone.
    pub alone: Forecast,
}

impl ExpectedReads {
    /// Whether a run is worth it.
    pub fn gains(&self) -> bool {
        let saved = self.saved_bytes();
        saved as f64 >= MIN_SAVED_SHARE * self.alone.bytes as f64
    }

    /// What the run saves.
    pub fn saved_bytes(&self) -> u64 {
        self.alone.bytes.saturating_sub(self.run.bytes)
    }
}
