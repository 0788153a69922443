//! What `hither run` would have read from storage, had it run the recorded program.

use hither_core::Spec;
use hither_trace::Trace;
use serde::Serialize;

use crate::format::bytes;

/// A run that saves less than this share is not worth it; one that steers stops there, too.
const MIN_SAVED_SHARE: f64 = 0.02;

/// What is read from storage, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ExpectedReads {
    /// The budget of the run: what was left for files, less a reserve.
    pub budget_bytes: u64,
    /// What the program would have read in the run.
    pub read_bytes: u64,
    /// What LRU reads that has all that was left, which stands for the kernel alone.
    pub alone_bytes: u64,
}

/// Says what a run with this policy would have read where so many bytes were left for files. `None`
/// if nothing can say.
pub type RunModel = fn(&Trace, &Spec, u64) -> Result<Option<ExpectedReads>, hither_trace::Error>;

impl ExpectedReads {
    /// The same in words.
    pub(crate) fn sentence(&self) -> String {
        let (read, alone) = (bytes(self.read_bytes), bytes(self.alone_bytes));
        if self.gains() {
            format!(
                "`hither run` would have read {read} from storage, and the kernel alone {alone}. \
                 (A run keeps a reserve for pages on their way in, and steers only once it would \
                 have saved something.)"
            )
        } else {
            format!(
                "`hither run` would have gained nothing here: {read} from storage, and the kernel \
                 alone {alone}."
            )
        }
    }

    /// Whether a run is worth it.
    pub fn gains(&self) -> bool {
        let saved = self.alone_bytes.saturating_sub(self.read_bytes);
        saved as f64 >= MIN_SAVED_SHARE * self.alone_bytes as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_saves_nothing_is_not_praised() {
        let mut expected = ExpectedReads {
            budget_bytes: 100 << 20,
            read_bytes: 300 << 20,
            alone_bytes: 500 << 20,
        };
        let said = expected.sentence();
        let begins = "`hither run` would have read 300.00 MiB from storage, and the kernel alone \
                      500.00 MiB";
        assert!(said.starts_with(begins), "{said}");
        expected.read_bytes = 495 << 20;
        let said = expected.sentence();
        assert!(said.contains("gained nothing"), "{said}");
        expected.read_bytes = 600 << 20;
        assert!(expected.sentence().contains("gained nothing"));
    }
}
