//! The pages of a region in runs that are wanted on the same nodes. One request binds one run.
//!
//! A policy answers page by page. Where two nodes are equally good it may alternate between them
//! (cache-aware does, by which has more free frames), and a request for each page would be absurd.
//! So where there are many runs, short ones are joined, and the kernel interleaves their pages over
//! the nodes.

/// The most runs that are left as they are.
const UNJOINED_RUNS_MAX: usize = 16;

/// Beyond that number, runs of fewer pages than this are joined with neighbours of fewer: 256 KiB
/// of 4 KiB pages.
const RUN_PAGES_MIN: u32 = 64;

/// Consecutive pages of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageRun {
    /// Index of the first page.
    pub(super) first: u32,
    pub(super) pages: u32,
    /// The nodes that the pages are wanted on, a bit each. 0: the pages stay where they are.
    pub(super) nodes: u64,
}

/// Gathers pages into runs.
#[derive(Debug, Default)]
pub(super) struct PageRuns(Vec<PageRun>);

impl PageRuns {
    /// Adds the next page, wanted on these nodes.
    pub(super) fn push(&mut self, nodes: u64) {
        match self.0.last_mut() {
            Some(run) if run.nodes == nodes => run.pages += 1,
            last => {
                let first = last.map_or(0, |run| run.first + run.pages);
                let pages = 1;
                self.0.push(PageRun {
                    first,
                    pages,
                    nodes,
                });
            }
        }
    }

    /// All runs, in order.
    pub(super) fn finish(self) -> Vec<PageRun> {
        if self.0.len() <= UNJOINED_RUNS_MAX {
            return self.0;
        }
        let short = |run: &PageRun| run.pages < RUN_PAGES_MIN && run.nodes != 0;
        let mut runs: Vec<PageRun> = Vec::new();
        let mut joins = false;
        for run in self.0 {
            match runs.last_mut() {
                Some(last) if joins && short(&run) => {
                    last.pages += run.pages;
                    last.nodes |= run.nodes;
                }
                _ => {
                    joins = short(&run);
                    runs.push(run);
                }
            }
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(pages: impl IntoIterator<Item = u64>) -> Vec<(u32, u32, u64)> {
        let mut runs = PageRuns::default();
        pages.into_iter().for_each(|nodes| runs.push(nodes));
        let runs = runs.finish().into_iter();
        runs.map(|run| (run.first, run.pages, run.nodes)).collect()
    }

    #[test]
    fn few_runs_stay_and_of_many_the_short_ones_are_joined() {
        let of = |nodes: u64, pages: usize| std::iter::repeat_n(nodes, pages);
        assert_eq!(runs([]), []);
        assert_eq!(runs(of(2, 1000)), [(0, 1000, 2)]);
        assert_eq!(runs(of(1, 4).chain(of(2, 6))), [(0, 4, 1), (4, 6, 2)]);
        let in_turn = || (0..200).map(|page| 2 << (page % 2));
        assert_eq!(runs(in_turn()), [(0, 200, 6)]);
        assert_eq!(
            runs(of(1, 100).chain(in_turn()).chain(of(1, 100))),
            [(0, 100, 1), (100, 200, 6), (300, 100, 1)]
        );
        // Pages that stay where they are lie between.
        assert_eq!(
            runs(in_turn().chain(of(0, 1)).chain(in_turn())),
            [(0, 200, 6), (200, 1, 0), (201, 200, 6)]
        );
    }
}
