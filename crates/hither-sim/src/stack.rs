//! Many cache sizes at once: stack algorithms.
//!
//! For LRU and for the optimum, a cache holds all blocks of a smaller one (Mattson et al., IBM
//! Systems Journal 9(2), 1970). So each reference has one number, its stack distance, which decides
//! for every size whether it hits, and one pass gives the hits of all sizes. [`run`](crate::run)
//! uses this by itself for enough sizes of `lru` or `opt`. The counts equal those of the caches;
//! tests compare them size by size.

mod opt;
mod opt_hits;

pub use opt::{OptDistances, SizeGroup};
use opt_hits::OptHits;

use hither_core::{Access, Spec};
use hither_trace::StackDistances;

/// Hits and misses of a policy at many cache sizes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Curve {
    /// Sizes and hits, ascending.
    hits: Vec<(u32, u64)>,
    references: u64,
}

impl Curve {
    /// Hits in a cache of `cache_blocks`, if that is one of the chosen sizes.
    pub fn hits(&self, cache_blocks: u32) -> Option<u64> {
        let at = self
            .hits
            .binary_search_by_key(&cache_blocks, |&(size, _)| size);
        at.ok().map(|at| self.hits[at].1)
    }

    /// All references.
    pub fn references(&self) -> u64 {
        self.references
    }
}

/// A pass over a trace that ends in a [`Curve`].
#[derive(Debug)]
pub struct Stack {
    distances: Distances,
    /// The chosen sizes, ascending.
    sizes: Vec<u32>,
    /// References by the group of their distance. The last group hits in none of the sizes.
    groups: Vec<u64>,
    references: u64,
}

#[derive(Debug)]
enum Distances {
    Lru(StackDistances),
    Opt(OptDistances),
    /// `opt` with one size.
    OptOne(OptHits),
}

/// From this number of sizes of `lru` on, one pass over a stack replaces the caches. Measured
/// 2026-11 on zipf over 65,000 and 530,000 blocks and on a loop: a cache took 8 to 16 ns per
/// reference, the stack 18 to 38.
pub(crate) const LRU_SIZES_MIN: usize = 4;

/// The same for `opt`, compared with one pass per size: [`OptHits`] takes 8 to 18 ns per reference
/// for one size, the stack 37 to 150 for ten.
pub(crate) const OPT_SIZES_MIN: usize = 10;

/// Whether a policy is a stack algorithm, so that one pass counts its hits at all sizes.
pub fn is_stack_algorithm(spec: &Spec) -> bool {
    matches!(spec.entry().name, "lru" | "opt")
}

impl Stack {
    /// How many of the wanted sizes of a policy one pass should cover. `None` if caches should be
    /// simulated.
    pub(crate) fn sizes_at_once(spec: &Spec, sizes: usize) -> Option<usize> {
        match spec.entry().name {
            "lru" => (sizes >= LRU_SIZES_MIN).then_some(sizes),
            "opt" if (OPT_SIZES_MIN..=opt::SIZES_MAX).contains(&sizes) => Some(sizes),
            "opt" => Some(1),
            _ => None,
        }
    }

    /// A stack for these sizes of a policy. `blocks` is the expected number of distinct blocks, as
    /// a hint.
    ///
    /// # Panics
    ///
    /// Panics if the policy is not a stack algorithm.
    pub(crate) fn new(spec: &Spec, sizes: &[u32], blocks: u32) -> Stack {
        match spec.entry().name {
            "lru" => Stack::lru(sizes, blocks),
            "opt" => Stack::opt(sizes, blocks),
            other => panic!("{other} has no stack"),
        }
    }

    /// A stack of `lru`. `blocks` is the expected number of distinct blocks, as a hint.
    pub fn lru(sizes: &[u32], blocks: u32) -> Stack {
        Stack::of(sizes, |_| {
            Distances::Lru(StackDistances::new(blocks as usize))
        })
    }

    /// A stack of `opt`, without knowledge of the future. `blocks` is the expected number of
    /// distinct blocks, as a hint.
    pub fn opt(sizes: &[u32], blocks: u32) -> Stack {
        Stack::of(sizes, |sizes| match sizes {
            &[size] => Distances::OptOne(OptHits::new(size, blocks)),
            sizes => Distances::Opt(OptDistances::new(sizes, blocks as usize)),
        })
    }

    fn of(sizes: &[u32], distances: impl FnOnce(&[u32]) -> Distances) -> Stack {
        let mut sizes = sizes.to_vec();
        sizes.sort_unstable();
        sizes.dedup();
        Stack {
            distances: distances(&sizes),
            groups: vec![0; sizes.len() + 1],
            sizes,
            references: 0,
        }
    }

    /// The next references.
    pub fn drive(&mut self, batch: &[Access]) {
        self.references += batch.len() as u64;
        let blocks = batch.iter().map(|access| access.block.0);
        match &mut self.distances {
            Distances::Lru(lru) => {
                for distance in blocks.filter_map(|block| lru.touch(block)) {
                    self.groups[self.sizes.partition_point(|&size| size <= distance)] += 1;
                }
            }
            Distances::Opt(opt) => {
                for group in blocks.filter_map(|block| opt.touch(block)) {
                    self.groups[usize::from(group)] += 1;
                }
            }
            Distances::OptOne(opt) => {
                self.groups[0] += blocks.filter(|&block| opt.touch(block)).count() as u64;
            }
        }
    }

    /// The result.
    pub fn curve(&self) -> Curve {
        let mut sum = 0;
        let sums = self.groups.iter().map(|hits| {
            sum += hits;
            sum
        });
        Curve {
            hits: self.sizes.iter().copied().zip(sums).collect(),
            references: self.references,
        }
    }
}
