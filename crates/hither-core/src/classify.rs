//! Access patterns: whether accesses are sequential, looping or neither, detected from the accesses
//! alone. The classifiers differ in what they classify: call sites ([`pcc`]), files ([`ubm`]) or
//! processes ([`dear`]).

pub mod dear;
pub mod pcc;
pub mod ubm;

use serde::{Deserialize, Serialize};

use crate::access::Access;
use crate::ids::Site;

/// The access patterns of the PCC paper, section 4.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Distinct blocks that are not referenced again.
    Sequential,
    /// A sequence that is repeated at some interval.
    Looping,
    /// Neither.
    Other,
}

impl Class {
    /// Its name in tables and documents.
    pub fn name(self) -> &'static str {
        match self {
            Class::Sequential => "sequential",
            Class::Looping => "looping",
            Class::Other => "other",
        }
    }
}

/// The result of classifying an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classification {
    /// The pattern that the access is part of.
    pub class: Class,
    /// The stream that it belongs to: a site, a file or a process, depending on the classifier.
    pub stream: Stream,
    /// Another stream whose period this access changed: the one that referenced the block before.
    pub revised: Option<Stream>,
}

/// A stream of accesses that are classified together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    /// Its number; numbers are dense.
    pub id: u32,
    /// References from one round of its loop to the next; 0 where unknown.
    pub period: u64,
    /// The same, averaged over a round or two, if the stream is steady: if its blocks return after
    /// similar times. 0 if it is not, or if that is unknown.
    pub steady_period: u64,
}

/// The counters of a call site of the PCC paper, section 4.1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteCounters {
    /// Accesses to blocks that did not return so far.
    pub sequential: u64,
    /// Accesses to blocks that returned.
    pub looping: u64,
    /// The average number of references between an access and the next one to the same block; 0
    /// where unknown.
    pub period: u64,
}

/// What is known of a call site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiteRecord {
    /// The call site.
    pub site: Site,
    /// Its counters.
    pub counters: SiteCounters,
    /// See [`Stream::steady_period`].
    pub steady_period: u64,
}

/// Detects the pattern that each access is part of.
pub trait Classifier {
    /// Learns from the access and classifies it.
    fn classify(&mut self, access: &Access) -> Classification;

    /// What was learnt about call sites, for classifiers that use them; ordered by site.
    fn sites(&self) -> Option<Vec<SiteRecord>> {
        None
    }

    /// Walks every invariant and panics on a broken one.
    fn check(&self);
}

/// The element at `index` of a table that grows as identifiers appear.
#[inline]
pub(crate) fn at<T: Clone + Default>(table: &mut Vec<T>, index: u32) -> &mut T {
    let index = index as usize;
    if index >= table.len() {
        table.resize(index + 1, T::default());
    }
    &mut table[index]
}
