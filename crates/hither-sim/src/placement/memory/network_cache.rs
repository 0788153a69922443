//! Network caches: a cache of remote lines on each node, between its processors and the network, as
//! NUMAchine has them (cache-aware thesis, sections 2.3.1 and 5.1.1).
//!
//! An access of a trace says how many lines of a page were missed, and not which. So a cache holds
//! *some* lines of a page: a remote access of `count` misses hits in proportion to the lines of the
//! page that the cache held before it. What it misses takes the places of lines at random, as in a
//! cache that is mapped directly by physical addresses. The page that loses a line holds one less.
//!
//! Simpler than NUMAchine: a page that is written while another node has lines of it leaves all
//! caches as a whole, the writer's too; evictions do not invalidate the caches of processors; a
//! line is counted once however often a row repeats it. What a cache serves still counts as a
//! remote access, since its page is; it goes no hops, moves nothing and loads no memory.

use hither_core::random::Random;
use hither_core::{Block, Node};

use super::costs::MemoryCosts;

/// No page.
const NOTHING: u32 = u32::MAX;

/// The caches of all nodes.
pub(super) struct NetworkCaches {
    nodes: Vec<NetworkCache>,
    /// Lines of a page.
    page_lines: u64,
    /// By page: how often another node's write emptied it from a cache.
    written: Vec<u32>,
    /// By page: a bit for each node that has cached lines of it since another one's write.
    sharers: Vec<u64>,
    random: Random,
    hits: u64,
}

struct NetworkCache {
    /// By place: the line in it.
    places: Vec<Line>,
    /// By page.
    held: Vec<Held>,
}

#[derive(Clone, Copy)]
struct Line {
    page: u32,
    /// How often the page had been written when the line came.
    written: u32,
}

/// What a cache holds of a page.
#[derive(Clone, Copy, Default)]
struct Held {
    lines: u32,
    /// How often the page had been written then. If it was written since, nothing is held.
    written: u32,
}

impl NetworkCaches {
    /// The caches of this machine, if it has any.
    pub(super) fn new(
        nodes: usize,
        pages: u32,
        page_bytes: u32,
        costs: &MemoryCosts,
    ) -> Option<NetworkCaches> {
        let line_bytes = u64::from(costs.line_bytes.max(1));
        let lines = u64::from(costs.network_cache_kib) * 1024 / line_bytes;
        let cache = || NetworkCache {
            places: vec![
                Line {
                    page: NOTHING,
                    written: 0
                };
                lines as usize
            ],
            held: vec![Held::default(); pages as usize],
        };
        (lines > 0).then(|| NetworkCaches {
            nodes: (0..nodes).map(|_| cache()).collect(),
            page_lines: u64::from(page_bytes).div_ceil(line_bytes).max(1),
            written: vec![0; pages as usize],
            sharers: vec![0; pages as usize],
            random: Random::new(0),
            hits: 0,
        })
    }

    /// Remote accesses that the caches served.
    pub(super) fn hits(&self) -> u64 {
        self.hits
    }

    /// A node writes to a page: it leaves all caches, if another node has lines of it.
    pub(super) fn written(&mut self, block: Block, by: Node) {
        let sharers = &mut self.sharers[block.index()];
        // A bit of several nodes may be another one's.
        let own = if self.nodes.len() > 64 { 0 } else { sharer(by) };
        if *sharers & !own != 0 {
            *sharers = 0;
            self.written[block.index()] += 1;
        }
    }

    /// A node accesses lines of a remote page. Returns how many of them its cache serves.
    pub(super) fn serve(&mut self, block: Block, by: Node, count: u64) -> u64 {
        let written = self.written[block.index()];
        self.sharers[block.index()] |= sharer(by);
        let cache = &mut self.nodes[by.index()];
        let held = &mut cache.held[block.index()];
        if held.written != written {
            *held = Held { lines: 0, written };
        }
        let held = u64::from(held.lines);
        // Rounded up or down at random, so that the sum is right.
        let hits = (count * held + self.random.below(self.page_lines)) / self.page_lines;
        let hits = hits.min(count);
        self.hits += hits;
        for _ in 0..(count - hits).min(self.page_lines - held) {
            let place = self.random.below(cache.places.len() as u64) as usize;
            let line = Line {
                page: block.0,
                written,
            };
            let old = std::mem::replace(&mut cache.places[place], line);
            if old.page != NOTHING {
                let of = &mut cache.held[old.page as usize];
                of.lines -= u32::from(of.written == old.written);
            }
            cache.held[block.index()].lines += 1;
        }
        hits
    }
}

/// The bit of a node; nodes beyond 63 share bits, so that more pages than need be leave.
fn sharer(node: Node) -> u64 {
    1 << (node.0 % 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caches(kib: u32, pages: u32) -> NetworkCaches {
        let costs = MemoryCosts {
            network_cache_kib: kib,
            ..MemoryCosts::default()
        };
        NetworkCaches::new(2, pages, 4096, &costs).unwrap()
    }

    #[test]
    fn a_page_that_fits_is_served_from_the_second_time_on() {
        assert!(NetworkCaches::new(2, 4, 4096, &MemoryCosts::default()).is_none());
        // 65536 lines: two of the 64 seldom meet.
        let mut caches = caches(4096, 4);
        assert_eq!(caches.serve(Block(1), Node(0), 64), 0);
        assert!(caches.serve(Block(1), Node(0), 64) >= 62);
        assert_eq!(caches.serve(Block(1), Node(1), 64), 0, "another node");
        // The other node has lines of it.
        caches.written(Block(1), Node(1));
        assert_eq!(caches.serve(Block(1), Node(0), 64), 0);
    }

    /// A cache of 256 lines over 16 pages of 64 lines serves about a quarter of random accesses.
    #[test]
    fn random_accesses_hit_by_the_share_that_fits() {
        let mut caches = caches(16, 16);
        let mut random = Random::new(7);
        for _ in 0..20_000 {
            caches.serve(Block(random.below(16) as u32), Node(0), 1);
        }
        let share = caches.hits() as f64 / 20_000.0;
        assert!((0.22..0.28).contains(&share), "{share}");
        let cache = &caches.nodes[0];
        for (page, held) in (0..).zip(&cache.held) {
            let places = cache.places.iter().filter(|line| line.page == page);
            assert_eq!(places.count(), held.lines as usize);
        }
    }
}
