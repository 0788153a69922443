//! Samples of accesses, and how many of them were local.

use serde::{Serialize, Serializer};

use crate::decision_log::hex;

/// What moving the pages of a region has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct MigrationGain {
    /// Its allocation site.
    #[serde(rename = "site", with = "hex")]
    pub signature: u64,
    /// Pages that were moved; a page counts each time.
    #[serde(rename = "pages_migrated")]
    pub migrated: u32,
    /// Samples before the first page moved.
    pub before: Locality,
    /// And after.
    pub after: Locality,
}

/// Samples of accesses, and how many of them were local.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Locality {
    /// All samples.
    pub samples: u64,
    /// Of these, samples of pages whose node was known.
    pub placed: u64,
    /// Of these, samples by a thread on that node.
    pub local: u64,
}

impl Locality {
    /// Adds a sample. `local` is `None` where the page's node is unknown.
    pub(crate) fn add(&mut self, local: Option<bool>) {
        self.samples += 1;
        self.placed += u64::from(local.is_some());
        self.local += u64::from(local == Some(true));
    }

    pub(crate) fn join(&mut self, other: Locality) {
        self.samples += other.samples;
        self.placed += other.placed;
        self.local += other.local;
    }

    /// The local share of the samples whose page's node was known, if there are any.
    pub fn share(&self) -> Option<f64> {
        (self.placed > 0).then(|| self.local as f64 / self.placed as f64)
    }
}

impl Serialize for Locality {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Shown {
            samples: u64,
            local_share: Option<f64>,
        }
        let shown = Shown {
            samples: self.samples,
            local_share: self.share(),
        };
        shown.serialize(serializer)
    }
}
