//! What `hither run` would have read from storage, had it run the recorded program.

use crate::format::bytes;
use hither_core::{ExpectedReads, Forecast, Spec};
use hither_trace::Trace;

/// Says what a run with this policy would have read where so many bytes were left for files. `None`
/// if nothing can say.
pub type RunModel = fn(&Trace, &Spec, u64) -> Result<Option<ExpectedReads>, hither_trace::Error>;

/// The same in words.
pub(crate) fn brief(expected: &ExpectedReads) -> String {
    let (read, alone) = (words(&expected.run), words(&expected.alone));
    if expected.gains() {
        format!("`hither run` would have read {read} from storage, and the kernel alone {alone}.")
    } else {
        format!(
            "`hither run` would have gained nothing here: {read} from storage, and the kernel \
             alone {alone}."
        )
    }
}

/// Its range, unless that is narrow.
fn words(forecast: &Forecast) -> String {
    if forecast.is_exact() {
        return bytes(forecast.bytes);
    }
    let (low, high) = (bytes(forecast.low_bytes), bytes(forecast.high_bytes));
    format!("{} ({low} to {high})", bytes(forecast.bytes))
}

/// What a wide range leaves in doubt.
pub(crate) fn doubt(expected: &ExpectedReads) -> Option<String> {
    let ExpectedReads { run, alone, .. } = expected;
    let (what, forecast) = if !run.is_exact() {
        ("a run", run)
    } else if !alone.is_exact() {
        ("the kernel alone", alone)
    } else {
        return None;
    };
    let (low, high) = (bytes(forecast.low_bytes), bytes(forecast.high_bytes));
    Some(format!("{what} may read from {low} to {high}"))
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

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_run_that_saves_nothing_is_not_praised() {
        let mut expected = ExpectedReads {
            budget_bytes: 100 << 20,
            run: Forecast::of(300 * MIB, []),
            alone: Forecast::of(500 * MIB, []),
        };
        let said = sentence(&expected);
        let begins = "`hither run` would have read 300.00 MiB from storage, and the kernel alone \
                      500.00 MiB";
        assert!(said.starts_with(begins), "{said}");
        assert!(doubt(&expected).is_none());
        expected.run = Forecast::of(495 * MIB, []);
        let said = sentence(&expected);
        assert!(said.contains("gained nothing"), "{said}");
        expected.run = Forecast::of(600 * MIB, []);
        assert!(sentence(&expected).contains("gained nothing"));
    }

    #[test]
    fn a_wide_range_is_said_and_is_a_doubt() {
        let expected = ExpectedReads {
            budget_bytes: 100 << 20,
            run: Forecast::of(300 * MIB, [290 * MIB, 350 * MIB]),
            alone: Forecast::of(500 * MIB, [520 * MIB]),
        };
        let said = brief(&expected);
        assert!(
            said.contains("300.00 MiB (290.00 MiB to 350.00 MiB)"),
            "{said}"
        );
        assert!(said.ends_with("alone 500.00 MiB."), "{said}");
        assert!(doubt(&expected).is_some());
    }
}
