//! The warm-up of a run, which is not counted, as a user writes it.

use std::fmt;
use std::str::FromStr;

use hither_core::placement::EpochKind;
use hither_core::spec::parse_count;
use hither_sim::References;
use hither_sim::placement;
use hither_trace::Trace;

use crate::format::{self, counted};
use crate::{Error, Result};

/// The length of a warm-up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WarmUpSpec {
    /// A number of references.
    References(u64),
    /// A share of the references, in percent.
    Percent(f64),
    /// A number of iterations that the trace marks.
    Iterations(u64),
}

impl Default for WarmUpSpec {
    fn default() -> Self {
        WarmUpSpec::References(0)
    }
}

impl FromStr for WarmUpSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<WarmUpSpec, String> {
        let wrong = || {
            format!(
                "`{text}` is no warm-up: write references (100k), a part of them (10%) \
                 or iterations (2iterations)"
            )
        };
        let text = text.trim();
        if let Some(part) = text.strip_suffix('%') {
            let part: f64 = part.trim_end().parse().map_err(|_| wrong())?;
            let allowed = (0.0..100.0).contains(&part);
            return allowed
                .then_some(WarmUpSpec::Percent(part))
                .ok_or_else(wrong);
        }
        let iterations = text
            .strip_suffix("iterations")
            .or(text.strip_suffix("iteration"));
        let count = |text: &str| parse_count(text.trim_end()).ok_or_else(wrong);
        match iterations {
            Some(number) => Ok(WarmUpSpec::Iterations(count(number)?)),
            None => Ok(WarmUpSpec::References(count(text)?)),
        }
    }
}

impl fmt::Display for WarmUpSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WarmUpSpec::References(count) => count.fmt(f),
            WarmUpSpec::Percent(part) => write!(f, "{part}%"),
            WarmUpSpec::Iterations(count) => write!(f, "{count}iterations"),
        }
    }
}

impl WarmUpSpec {
    /// The warm-up for this trace. Fails where nothing would be left to count.
    pub(super) fn resolved(self, trace: &Trace) -> Result<placement::WarmUp> {
        let all = References::references(trace);
        match self {
            WarmUpSpec::References(_) | WarmUpSpec::Percent(_) => {
                let count = self.end(trace);
                if count > 0 && count >= all {
                    return Err(Error::Usage(format!(
                        "a warm-up of {self} ({}) leaves nothing of the {} of the trace",
                        counted(count, "reference"),
                        format::count(all)
                    )));
                }
                Ok(placement::WarmUp::References(count))
            }
            WarmUpSpec::Iterations(count) => {
                let marks = References::marks(trace).iter();
                let iterations = marks
                    .filter(|mark| mark.kind == EpochKind::Iteration)
                    .count() as u64;
                if count > 0 && iterations <= count {
                    return Err(Error::Usage(format!(
                        "a warm-up of {self} leaves nothing: \
                         the trace marks the end of {iterations}"
                    )));
                }
                Ok(placement::WarmUp::Iterations(count))
            }
        }
    }

    /// The number of references in the warm-up.
    pub fn end(self, trace: &Trace) -> u64 {
        match self {
            WarmUpSpec::References(count) => count,
            WarmUpSpec::Percent(part) => {
                (References::references(trace) as f64 * part / 100.0).round() as u64
            }
            WarmUpSpec::Iterations(0) => 0,
            WarmUpSpec::Iterations(count) => {
                let marks = References::marks(trace).iter();
                let mut ends = marks.filter(|mark| mark.kind == EpochKind::Iteration);
                ends.nth(count as usize - 1)
                    .map_or(0, |mark| mark.reference)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_users_write() {
        for (text, expected) in [
            ("100k", WarmUpSpec::References(100_000)),
            ("12.5%", WarmUpSpec::Percent(12.5)),
            ("2iterations", WarmUpSpec::Iterations(2)),
            ("1 iteration", WarmUpSpec::Iterations(1)),
        ] {
            let parsed: WarmUpSpec = text.parse().unwrap();
            assert_eq!(parsed, expected);
            assert_eq!(parsed.to_string().parse(), Ok(expected));
        }
        for junk in ["", "x", "100%", "-1%", "1.5", "iterations", "2 rounds"] {
            assert!(junk.parse::<WarmUpSpec>().is_err(), "{junk}");
        }
    }
}
