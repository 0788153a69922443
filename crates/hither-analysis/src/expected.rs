//! What `hither run` would have read from storage, had it run the recorded program.

use crate::format::bytes;
use hither_core::{ExpectedReads, Spec};
use hither_trace::Trace;

/// Says what a run with this policy would have read where so many bytes were left for files. `None`
/// if nothing can say.
pub type RunModel = fn(&Trace, &Spec, u64) -> Result<Option<ExpectedReads>, hither_trace::Error>;

/// The same in words.
pub(crate) fn brief(expected: &ExpectedReads) -> String {
    let (read, alone) = (bytes(expected.read_bytes), bytes(expected.alone_bytes));
    if expected.gains() {
        format!("`hither run` would have read {read} from storage, and the kernel alone {alone}.")
    } else {
        format!(
            "`hither run` would have gained nothing here: {read} from storage, and the kernel \
             alone {alone}."
        )
    }
}

/// The same, and why it differs from what the simulated hit ratios say.
pub(crate) fn sentence(expected: &ExpectedReads) -> String {
    let brief = brief(expected);
    if expected.gains() {
        format!(
            "{brief} (A run keeps a reserve for pages on their way in, and steers only once it \
             would have saved something.)"
        )
    } else {
        brief
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
        let said = sentence(&expected);
        let begins = "`hither run` would have read 300.00 MiB from storage, and the kernel alone \
                      500.00 MiB";
        assert!(said.starts_with(begins), "{said}");
        expected.read_bytes = 495 << 20;
        let said = sentence(&expected);
        assert!(said.contains("gained nothing"), "{said}");
        expected.read_bytes = 600 << 20;
        assert!(sentence(&expected).contains("gained nothing"));
    }
}
