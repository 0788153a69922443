//! All cache sizes at once: stack algorithms.
//!
//! For LRU and for the optimum, a cache holds all that a smaller one holds (Mattson et al., IBM Systems Journal 9(2),
//! 1970). Hence each reference has one number, its stack distance, that tells for every size whether it hits, and one
//! pass gives the hits of all sizes. [`run`](crate::run) does so by itself where a trace is asked for enough sizes of
//! `lru` or `opt`; the counts are those of the caches, which tests compare size by size.

mod opt;
mod opt_hits;

pub use opt::OptDistances;
pub use opt_hits::OptHits;

use hither_core::{Access, Spec};
use hither_trace::StackDistances;

/// Hits and misses of a policy at every cache size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Curve {
    /// `hits[c]` is for a cache of `c` blocks; the last one is for all larger caches, too.
    hits: Vec<u64>,
    references: u64,
}

impl Curve {
    /// References that find their block in a cache of `cache_blocks`.
    pub fn hits(&self, cache_blocks: u32) -> u64 {
        let last = self.hits.len().saturating_sub(1);
        self.hits
            .get(last.min(cache_blocks as usize))
            .copied()
            .unwrap_or(0)
    }

    /// All references.
    pub fn references(&self) -> u64 {
        self.references
    }

    /// The smallest cache that has as many hits as the largest; larger ones do not help.
    pub fn enough_blocks(&self) -> u32 {
        self.hits.len().saturating_sub(1) as u32
    }
}

/// A pass over a trace that ends in a [`Curve`].
#[derive(Debug)]
pub struct Stack {
    distances: Distances,
    /// References by stack distance.
    at: Vec<u64>,
    references: u64,
}

#[derive(Debug)]
enum Distances {
    Lru(StackDistances),
    Opt(OptDistances),
}

/// From how many sizes of `lru` on one pass over its stack is used in place of the caches. On 2026-11 machines of two
/// cores, zipf over a million blocks: a cache takes 21 ns a reference and the stack 45; `benches/stack.rs` compares.
pub(crate) const LRU_SIZES_MIN: usize = 3;

/// Whether a policy has a stack.
pub fn exists(spec: &Spec) -> bool {
    Stack::worthwhile(spec, usize::MAX, 0).is_some()
}

/// The same for `opt`, whose stack takes 0.2 us a reference on the traces of the LIRS authors and 3.4 us on zipf over a
/// million blocks (2026-11), where [`OptHits`] takes 15 to 25 ns a size.
pub(crate) const OPT_SIZES_MIN: usize = 100;

impl Stack {
    /// One for a policy of which `sizes` cache sizes are wanted, if that policy has a stack and it is worth it.
    /// `blocks` is the number of distinct blocks.
    pub(crate) fn worthwhile(spec: &Spec, sizes: usize, blocks: u32) -> Option<Stack> {
        match spec.entry().name {
            "lru" if sizes >= LRU_SIZES_MIN => Some(Stack::lru(blocks)),
            "opt" if sizes >= OPT_SIZES_MIN => Some(Stack::opt(blocks)),
            _ => None,
        }
    }

    /// All sizes of `lru`. `blocks` is the expected number of distinct blocks: a hint.
    pub fn lru(blocks: u32) -> Stack {
        Stack::of(Distances::Lru(StackDistances::new(blocks as usize)))
    }

    /// All sizes of `opt`; the future need not be known. `blocks` is the expected number of distinct blocks: a hint.
    pub fn opt(blocks: u32) -> Stack {
        Stack::of(Distances::Opt(OptDistances::new(blocks as usize)))
    }

    fn of(distances: Distances) -> Stack {
        Stack {
            distances,
            at: Vec::new(),
            references: 0,
        }
    }

    /// The next references.
    pub fn drive(&mut self, batch: &[Access]) {
        self.references += batch.len() as u64;
        let at = &mut self.at;
        match &mut self.distances {
            Distances::Lru(lru) => batch
                .iter()
                .filter_map(|access| lru.touch(access.block.0))
                .for_each(|distance| count(at, distance)),
            Distances::Opt(opt) => batch
                .iter()
                .filter_map(|access| opt.touch(access.block.0))
                .for_each(|distance| count(at, distance)),
        }
    }

    /// What came of it.
    pub fn curve(&self) -> Curve {
        let mut sum = 0;
        let sums = self.at.iter().map(|hits| {
            sum += hits;
            sum
        });
        Curve {
            hits: std::iter::once(0).chain(sums).collect(),
            references: self.references,
        }
    }
}

#[inline]
fn count(at: &mut Vec<u64>, distance: u32) {
    let distance = distance as usize;
    if distance >= at.len() {
        at.resize(distance + 1, 0);
    }
    at[distance] += 1;
}
