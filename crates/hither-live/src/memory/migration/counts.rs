//! Samples of a region's accesses, and the ranges of it that are used alike.
//!
//! A region is cut into *cells* of 64 KiB, or more where it is large. A cell counts its samples by
//! the node that made them and by the node that the page was on; older samples count less. From
//! that follow *ranges*, halves of halves of the region: a range is judged when it has
//! [`RANGE_SAMPLES`] samples, unless one of its halves has as many, for then the halves are judged
//! by themselves. So a range is as small as the samples allow, regions split where samples differ,
//! and cells without samples of their own go with those around them. This is the idea of DAMON's
//! regions (Park, Lee and Yeom, "Profiling dynamic data access patterns with controlled overhead
//! and quality", Middleware Industry 2019), with the split by what was seen and not by chance.

use std::collections::BTreeMap;
use std::ops::Range;

use hither_core::Node;

/// The samples by which a range is judged.
pub(super) const RANGE_SAMPLES: f32 = 4.0;

/// The home's head start, in samples: half of those by which a range is judged. Without it, what a
/// few samples show would be believed: of memory that four nodes use alike, four samples show
/// another node with twice the home's in 64 of 100 cases, and nearly all of it moved to and fro.
/// With it, it is 1 of 100. Of a range whose home makes two thirds of the accesses, it is 1 of 100
/// in place of 11, and of one that two nodes use alike 6 in place of 31. What one node alone uses
/// moves as early as without.
const HEAD_START: f32 = RANGE_SAMPLES / 2.0;

/// A range is judged again when it has so many new samples: half of those that it needs.
const NEW_SAMPLES: f32 = RANGE_SAMPLES / 2.0;

/// The least pages of a cell: threads hardly ever share memory in smaller pieces.
const CELL_PAGES_MIN: u32 = 16;

/// The most cells of a region. With the default budget more could not get their samples within a
/// minute.
const CELLS_MAX: u32 = 1 << 16;

/// What is left of a cell's samples after they were halved so often is dropped.
const WEIGHT_MIN: f32 = 0.1;

/// The samples of a region.
#[derive(Debug)]
pub(super) struct RegionCounts {
    nodes: usize,
    cell_pages: u32,
    cells: u32,
    /// Cells with samples.
    rows: BTreeMap<u32, Row>,
}

/// The samples of a cell.
#[derive(Clone, Debug)]
struct Row {
    /// By the node that made them, and then by the node that the page was on.
    samples: Vec<f32>,
    /// Those that came since the cell was judged last.
    new: f32,
}

/// A range with samples enough.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct JudgedRange {
    /// Its cells, but for those whose own samples speak against the others'.
    pub(super) cells: Vec<(u32, Option<Node>)>,
    /// Its samples by node.
    pub(super) samples: Vec<f32>,
}

impl JudgedRange {
    /// So many accesses, shared out by node as the samples are, for a cell on this node.
    pub(super) fn row(&self, home: Option<Node>, accesses: f32) -> Vec<u32> {
        let mut samples = self.samples.clone();
        if let Some(home) = home {
            samples[home.index()] += HEAD_START;
        }
        let all: f32 = samples.iter().sum();
        let of_node = samples.iter().map(|count| count / all * accesses);
        of_node.map(|count| count as u32).collect()
    }

    /// Whether another node makes two thirds of what it and the home make: the policy may want the
    /// range there when it sees so again.
    pub(super) fn is_open(&self) -> bool {
        let Some(home) = self.cells.iter().find_map(|&(_, home)| home) else {
            return false;
        };
        let most = self.samples.iter().copied().fold(0.0, f32::max);
        most >= 2.0 * (self.samples[home.index()] + HEAD_START)
    }
}

impl RegionCounts {
    pub(super) fn new(pages: u32, nodes: usize) -> RegionCounts {
        let cell_pages = pages
            .div_ceil(CELLS_MAX)
            .next_power_of_two()
            .max(CELL_PAGES_MIN);
        RegionCounts {
            nodes,
            cell_pages,
            cells: pages.div_ceil(cell_pages),
            rows: BTreeMap::new(),
        }
    }

    /// Pages of a cell; the last one may have fewer.
    pub(super) fn cell_pages(&self) -> u32 {
        self.cell_pages
    }

    /// How many cells there are.
    pub(super) fn cells(&self) -> u32 {
        self.cells
    }

    /// A node used a page that was on another one, where that is known.
    pub(super) fn add(&mut self, page: u32, (user, home): (Node, Option<Node>), weight: f32) {
        let nodes = self.nodes;
        let row = self.rows.entry(page / self.cell_pages).or_insert(Row {
            samples: vec![0.0; 2 * nodes],
            new: 0.0,
        });
        row.samples[user.index()] += weight;
        if let Some(home) = home {
            row.samples[nodes + home.index()] += weight;
        }
        row.new += weight;
    }

    /// Halves the weight of all samples.
    pub(super) fn age(&mut self) {
        for row in self.rows.values_mut() {
            row.samples.iter_mut().for_each(|count| *count /= 2.0);
            row.new /= 2.0;
        }
        let nodes = self.nodes;
        self.rows.retain(|_, row| row.weight(nodes) >= WEIGHT_MIN);
    }

    /// Drops all samples.
    pub(super) fn clear(&mut self) {
        self.rows.clear();
    }

    /// Drops the samples of cells that have lost pages.
    pub(super) fn cut(&mut self, pages: Range<u32>) {
        let cells = pages.start / self.cell_pages..pages.end.div_ceil(self.cell_pages);
        self.rows.retain(|cell, _| !cells.contains(cell));
    }

    /// A cell is on this node now.
    pub(super) fn moved(&mut self, cell: u32, to: Node) {
        let nodes = self.nodes;
        if let Some(row) = self.rows.get_mut(&cell) {
            let all = row.weight(nodes);
            row.samples[nodes..].fill(0.0);
            row.samples[nodes + to.index()] = all;
        }
    }

    /// The nodes of the cells that have samples.
    pub(super) fn homes(&self) -> impl Iterator<Item = Node> {
        let homes = |row: &Row| most(&row.samples[self.nodes..]);
        self.rows.values().filter_map(homes)
    }

    /// The ranges that have samples enough, and new ones among them.
    pub(super) fn judge(&mut self) -> Vec<JudgedRange> {
        if self.rows.values().map(|row| row.new).sum::<f32>() < NEW_SAMPLES {
            return Vec::new();
        }
        let rows: Vec<(u32, &Row)> = self.rows.iter().map(|(&cell, row)| (cell, row)).collect();
        let mut ranges = Vec::new();
        let whole = self.cells.next_power_of_two();
        self.split(&rows, 0, whole, &mut ranges);
        let mut judged = Vec::new();
        for range in ranges {
            let rows = self.rows.range(range.clone());
            let new: f32 = rows.map(|(_, row)| row.new).sum();
            if new < NEW_SAMPLES {
                continue;
            }
            judged.push(self.judged(range.clone()));
            let rows = self.rows.range_mut(range);
            rows.for_each(|(_, row)| row.new = 0.0);
        }
        judged
    }

    /// Adds the ranges within `cells` cells from `first` on, whose samples are `rows`.
    fn split(&self, rows: &[(u32, &Row)], first: u32, cells: u32, ranges: &mut Vec<Range<u32>>) {
        let all = self.sum(rows);
        if weight(&all) < RANGE_SAMPLES {
            return;
        }
        if cells == 1 {
            ranges.push(first..first + 1);
            return;
        }
        let middle = first + cells / 2;
        let (left, right) = rows.split_at(rows.partition_point(|&(cell, _)| cell < middle));
        let (of_left, of_right) = (self.sum(left), self.sum(right));
        let alone = |of: &[f32]| weight(of) >= RANGE_SAMPLES;
        if alone(&of_left) || alone(&of_right) {
            self.split(left, first, cells / 2, ranges);
            self.split(right, middle, cells / 2, ranges);
        } else if !differ(&of_left, &of_right) {
            ranges.push(first..first + cells);
        }
    }

    /// Samples by node.
    fn sum(&self, rows: &[(u32, &Row)]) -> Vec<f32> {
        let mut sum = vec![0.0; self.nodes];
        for (_, row) in rows {
            let samples = sum.iter_mut().zip(&row.samples);
            samples.for_each(|(sum, count)| *sum += count);
        }
        sum
    }

    fn judged(&self, range: Range<u32>) -> JudgedRange {
        let rows = self.rows.range(range.clone());
        let rows: Vec<(u32, &Row)> = rows.map(|(&cell, row)| (cell, row)).collect();
        let mut homes = vec![0.0; self.nodes];
        for (_, row) in &rows {
            let of = homes.iter_mut().zip(&row.samples[self.nodes..]);
            of.for_each(|(sum, count)| *sum += count);
        }
        let (samples, home) = (self.sum(&rows), most(&homes));
        let main = most(&samples);
        let mut rows = rows.into_iter().peekable();
        let cells = (range.start..range.end.min(self.cells)).filter_map(|cell| {
            let Some((_, row)) = rows.next_if(|&(of, _)| of == cell) else {
                return Some((cell, home));
            };
            let (users, homes) = row.samples.split_at(self.nodes);
            let speaks_against = main.is_some_and(|main| users[main.index()] == 0.0);
            (!speaks_against).then(|| (cell, most(homes).or(home)))
        });
        JudgedRange {
            cells: cells.collect(),
            samples,
        }
    }
}

impl Row {
    fn weight(&self, nodes: usize) -> f32 {
        weight(&self.samples[..nodes])
    }
}

fn weight(samples: &[f32]) -> f32 {
    samples.iter().sum()
}

/// The node with most samples; the lowest among equals.
fn most(samples: &[f32]) -> Option<Node> {
    let numbered = samples.iter().enumerate().rev();
    let found = numbered.max_by(|a, b| a.1.total_cmp(b.1));
    found
        .filter(|&(_, &most)| most > 0.0)
        .map(|(node, _)| Node(node as u16))
}

/// Whether two halves have different main users, each with two thirds of its samples.
fn differ(left: &[f32], right: &[f32]) -> bool {
    let main = |samples: &[f32]| {
        let node = most(samples)?;
        (3.0 * samples[node.index()] >= 2.0 * weight(samples)).then_some(node)
    };
    matches!((main(left), main(right)), (Some(left), Some(right)) if left != right)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A region of 64 cells; `samples` of cells by node.
    fn counts(samples: &[(u32, u16, u32)]) -> RegionCounts {
        let mut counts = RegionCounts::new(64 * CELL_PAGES_MIN, 2);
        add(&mut counts, samples);
        counts
    }

    fn add(counts: &mut RegionCounts, samples: &[(u32, u16, u32)]) {
        for &(cell, node, times) in samples {
            for time in 0..times {
                let page = cell * CELL_PAGES_MIN + time % CELL_PAGES_MIN;
                counts.add(page, (Node(node), Some(Node(0))), 1.0);
            }
        }
    }

    /// The judged ranges: first and last cell, and samples.
    fn judge(counts: &mut RegionCounts) -> Vec<(u32, u32, Vec<f32>)> {
        let judged = counts.judge().into_iter();
        let short = |range: JudgedRange| {
            let cells = &range.cells;
            let (first, last) = (cells[0].0, cells[cells.len() - 1].0);
            (first, last, range.samples)
        };
        judged.map(short).collect()
    }

    #[test]
    fn a_range_is_as_small_as_its_samples_allow() {
        assert_eq!(judge(&mut counts(&[(3, 1, 3)])), []);
        let whole = vec![(0, 63, vec![0.0, 4.0])];
        assert_eq!(judge(&mut counts(&[(3, 1, 2), (50, 1, 2)])), whole);
        // The halves of the first half, and nothing of the second, which has too few.
        let mut split = counts(&[(3, 1, 5), (20, 0, 4), (50, 1, 2)]);
        assert_eq!(
            judge(&mut split),
            [(3, 3, vec![0.0, 5.0]), (20, 20, vec![4.0, 0.0])]
        );
        // Halves that different nodes use are no range until they have enough of their own.
        let mut apart = counts(&[(3, 1, 3), (50, 0, 1)]);
        assert_eq!(judge(&mut apart), []);
        add(&mut apart, &[(5, 1, 1), (51, 0, 3)]);
        assert_eq!(
            judge(&mut apart),
            [(0, 7, vec![0.0, 4.0]), (50, 51, vec![4.0, 0.0])]
        );
    }

    #[test]
    fn judged_again_with_new_samples_only() {
        let mut counts = counts(&[(3, 1, 4)]);
        assert_eq!(judge(&mut counts).len(), 1);
        add(&mut counts, &[(3, 1, 1)]);
        assert_eq!(judge(&mut counts), []);
        add(&mut counts, &[(3, 1, 1)]);
        assert_eq!(judge(&mut counts), [(3, 3, vec![0.0, 6.0])]);
    }

    #[test]
    fn cells_of_other_users_are_left_out_and_homes_are_the_cells_own() {
        let mut counts = counts(&[(0, 1, 3), (2, 1, 2), (3, 0, 1)]);
        counts.moved(2, Node(1));
        let judged = counts.judge();
        assert_eq!(judged.len(), 1);
        let homes: Vec<_> = judged[0].cells.iter().take(3).copied().collect();
        let on = |node| Some(Node(node));
        assert_eq!(homes, [(0, on(0)), (1, on(0)), (2, on(1))]);
        assert!(judged[0].cells.iter().all(|&(cell, _)| cell != 3));
    }

    #[test]
    fn samples_fade_and_end_with_their_pages() {
        let mut counts = counts(&[(0, 1, 1), (9, 1, 8)]);
        counts.age();
        assert_eq!(judge(&mut counts), [(9, 9, vec![0.0, 4.0])]);
        (0..3).for_each(|_| counts.age());
        assert_eq!(counts.rows.keys().copied().collect::<Vec<_>>(), [9]);
        counts.cut(9 * CELL_PAGES_MIN..9 * CELL_PAGES_MIN + 1);
        assert!(counts.rows.is_empty());
    }

    #[test]
    fn large_regions_have_large_cells() {
        assert_eq!(RegionCounts::new(1, 2).cells(), 1);
        assert_eq!(RegionCounts::new(1 << 20, 2).cell_pages(), 16);
        let large = RegionCounts::new((1 << 20) + 1, 2);
        assert_eq!((large.cell_pages(), large.cells()), (32, 32_769));
    }
}
