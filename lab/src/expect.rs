//! The expectations of a case. All have tolerances, since the guest's kernel adds ticks and faults
//! of its own to the counts.

use anyhow::{Result, ensure};
use serde::Deserialize;

/// The expectations of a case. A case without any is only reported.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Expect {
    /// Largest relative difference of the median misses from what the program expects.
    pub(crate) misses: Option<f64>,
    /// The same of user code alone. A guest whose clock is the host's runs more of its kernel the
    /// slower the host is; a program's own code misses as often on a busy host.
    pub(crate) misses_user: Option<f64>,
    /// Largest difference of the median local share from the computed one; 0.02 is two points.
    pub(crate) local_share: Option<f64>,
    /// The same of user code alone, for policies whose copying is the kernel's and goes from one
    /// node to another.
    pub(crate) local_share_user: Option<f64>,
    /// The smallest local share, for cases where none can be computed.
    pub(crate) local_share_min: Option<f64>,
    /// The largest share of the time that the kernel may take.
    pub(crate) kernel_share_max: Option<f64>,
    /// The smallest number of migrated pages.
    pub(crate) migrations_min: Option<u64>,
    /// How far apart the runs may be, in misses and in time: (largest - smallest) / median.
    pub(crate) spread: Option<f64>,
}

impl Expect {
    /// Whether the tolerances make sense.
    pub(crate) fn check(&self) -> Result<()> {
        let shares = [
            ("misses", self.misses),
            ("misses_user", self.misses_user),
            ("local_share", self.local_share),
            ("local_share_user", self.local_share_user),
            ("local_share_min", self.local_share_min),
            ("kernel_share_max", self.kernel_share_max),
            ("spread", self.spread),
        ];
        for (name, share) in shares {
            ensure!(
                share.is_none_or(|share| (0.0..=1.0).contains(&share)),
                "{name}: a share from 0 to 1"
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerances_are_shares() {
        let wrong = Expect {
            local_share: Some(2.0),
            ..Expect::default()
        };
        assert!(
            wrong
                .check()
                .expect_err("2 is no share")
                .to_string()
                .contains("local_share")
        );
    }
}
