//! A region's pages in runs that are wanted on the same nodes: what one order binds.
//!
//! A policy answers page by page. Where two nodes are equally good it may take them in turn
//! (cache-aware does, by which has more free frames), and an order for each page would be absurd:
//! where there are many runs, short ones are joined, and the kernel is told to take their nodes in
//! turn as well.

/// So many runs are left as they are.
const RUNS: usize = 16;

/// Beyond, a run shorter than this is joined with its neighbours that are: 256 KiB of 4 KiB pages.
const RUN_MIN: u32 = 64;

/// Pages in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) first: u32,
    pub(super) pages: u32,
    /// Where they are wanted, a bit each node; 0 for where they are.
    pub(super) nodes: u64,
}

/// Gathers pages into runs.
#[derive(Debug, Default)]
pub(super) struct Runs(Vec<Run>);

impl Runs {
    /// The next page is wanted there.
    pub(super) fn push(&mut self, nodes: u64) {
        match self.0.last_mut() {
            Some(run) if run.nodes == nodes => run.pages += 1,
            last => {
                let first = last.map_or(0, |run| run.first + run.pages);
                let pages = 1;
                self.0.push(Run {
                    first,
                    pages,
                    nodes,
                });
            }
        }
    }

    /// All runs, in order.
    pub(super) fn finish(self) -> Vec<Run> {
        if self.0.len() <= RUNS {
            return self.0;
        }
        let short = |run: &Run| run.pages < RUN_MIN && run.nodes != 0;
        let mut runs: Vec<Run> = Vec::new();
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
        let mut runs = Runs::default();
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
