//! The cumulative distribution of references over files or call sites, as in figures 7 and 8 of the
//! PCC paper.

use hither_trace::RankedRow;
use serde::Serialize;

/// The most points of a curve. With this many, straight lines between them look like the exact
/// curve.
const POINTS_MAX: usize = 256;

/// The sum of the references of the most referenced rows.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Distribution {
    /// Numbers of rows, most referenced first; ascending.
    pub(super) rows: Vec<u64>,
    /// For each of these numbers, the sum of the rows' references.
    pub(super) references: Vec<u64>,
}

impl Distribution {
    /// The distribution of rows that are sorted by references, most first. Rows without references
    /// do not count.
    pub(super) fn of(ranked: &[RankedRow]) -> Distribution {
        let mut sums: Vec<u64> = Vec::new();
        let mut sum = 0;
        for row in ranked.iter().take_while(|row| row.references > 0) {
            sum += row.references;
            sums.push(sum);
        }
        let points: Vec<usize> = match sums.len() {
            few if few <= POINTS_MAX => (1..=few).collect(),
            many => {
                // Logarithmic steps: the beginning of the curve matters most.
                let step =
                    |point: usize| (many as f64).powf(point as f64 / (POINTS_MAX - 1) as f64);
                let mut points: Vec<usize> = (0..POINTS_MAX)
                    .map(|point| step(point).round() as usize)
                    .collect();
                points.dedup();
                points
            }
        };
        Distribution {
            references: points.iter().map(|&rows| sums[rows - 1]).collect(),
            rows: points.into_iter().map(|rows| rows as u64).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hither_trace::RequestCounts;

    fn rows(references: impl IntoIterator<Item = u64>) -> Vec<RankedRow> {
        let row = |(number, references): (usize, u64)| RankedRow {
            number: number as u32,
            name: String::new(),
            references,
            share: 0.0,
            blocks: 1,
            tally: RequestCounts::default(),
        };
        references.into_iter().enumerate().map(row).collect()
    }

    #[test]
    fn few_rows_are_all_there_and_many_end_at_the_sum() {
        let few = Distribution::of(&rows([5, 3, 1, 0]));
        assert_eq!((few.rows, few.references), (vec![1, 2, 3], vec![5, 8, 9]));
        assert_eq!(Distribution::of(&[]), Distribution::default());

        let many = Distribution::of(&rows(std::iter::repeat_n(2, 10_000)));
        assert!(many.rows.len() <= POINTS_MAX);
        assert!(many.rows.is_sorted_by(|a, b| a < b));
        assert_eq!(many.rows.last(), Some(&10_000));
        assert!(
            many.rows
                .iter()
                .zip(&many.references)
                .all(|(rows, sum)| 2 * rows == *sum)
        );
    }
}
