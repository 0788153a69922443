//! What an access pattern is: sequential, looping or other, told from the accesses alone. The
//! classifiers differ in what they tell apart: call sites ([`pcc`]), files ([`ubm`]) or processes
//! ([`dear`]).

pub mod dear;
pub mod pcc;
pub mod ubm;

use crate::access::Access;
use crate::ids::Site;

/// The patterns of the PCC paper, section 4.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Distinct blocks that are not referenced again.
    Sequential,
    /// A sequence that is repeated at some interval.
    Looping,
    /// Neither.
    Other,
}

/// What a classifier says of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classification {
    /// The pattern that the access is part of.
    pub class: Class,
    /// What made it: the site, file or process, whatever the classifier tells apart.
    pub stream: Stream,
    /// Another stream whose period this access changed: the one that had referenced the block
    /// before.
    pub revised: Option<Stream>,
}

/// A stream of accesses that are classified together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    /// Its number: dense.
    pub id: u32,
    /// References from one round of its loop to the next; 0 where unknown.
    pub period: u64,
}

/// What is known of a call site: the counters of PCC (section 4.1 of its paper).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiteRecord {
    /// The call site.
    pub site: Site,
    /// Accesses to blocks that were not seen again since.
    pub sequential: u64,
    /// Accesses to blocks that were seen again.
    pub looping: u64,
    /// The average number of references between an access and the next one to the same block; 0
    /// where unknown.
    pub period: u64,
}

/// Tells what pattern each access is part of.
pub trait Classifier {
    /// Learns from the access and classifies it.
    fn classify(&mut self, access: &Access) -> Classification;

    /// What was learnt about call sites, for classifiers that look at them; ordered by site.
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
