//! The policy that places pages, as a user names it.

use std::fmt;
use std::str::FromStr;

use hither_core::Spec;
use hither_core::placement::PlacementEntry;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A policy of pages, and the one that it is made of where that is named, too. As text:
/// `majority`, or `cache-aware,majority`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PagePolicy {
    /// The policy.
    pub policy: Spec<PlacementEntry>,
    /// The policy that it is made of, in place of the one that its parameter names.
    pub initial: Option<Spec<PlacementEntry>>,
}

impl From<Spec<PlacementEntry>> for PagePolicy {
    fn from(policy: Spec<PlacementEntry>) -> PagePolicy {
        PagePolicy {
            policy,
            initial: None,
        }
    }
}

impl fmt::Display for PagePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(initial) = self.initial {
            write!(f, "{initial},")?;
        }
        self.policy.fmt(f)
    }
}

impl FromStr for PagePolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<PagePolicy, String> {
        let specs = Spec::parse_list(text).map_err(|error| error.to_string())?;
        match *specs.as_slice() {
            [policy] => Ok(policy.into()),
            [initial, policy] => Ok(PagePolicy {
                policy,
                initial: Some(initial),
            }),
            _ => Err(format!("{text:?} names more than two policies")),
        }
    }
}

impl Serialize for PagePolicy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PagePolicy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<PagePolicy, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}
