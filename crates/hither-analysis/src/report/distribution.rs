//! How few files, or call sites, make most of the references: the cumulative distributions of PCC's
//! figures 7 and 8.

use hither_trace::RankedRow;
use serde::Serialize;

/// The most points of a curve; between them it is drawn as a line, which at this density nobody can
/// tell from steps.
const POINTS: usize = 256;

/// References of the most referenced rows together.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Distribution {
    /// How many of the rows, the most referenced first; ascending.
    pub(super) rows: Vec<u64>,
    /// Their references, all together.
    pub(super) references: Vec<u64>,
}

impl Distribution {
    /// Of rows that are sorted by references, most first; those without any do not count.
    pub(super) fn of(ranked: &[RankedRow]) -> Distribution {
        let mut sums: Vec<u64> = Vec::new();
        let mut sum = 0;
        for row in ranked.iter().take_while(|row| row.references > 0) {
            sum += row.references;
            sums.push(sum);
        }
        let points: Vec<usize> = match sums.len() {
            few if few <= POINTS => (1..=few).collect(),
            many => {
                // By equal factors: the head of the curve is what it is looked at for.
                let step = |point: usize| (many as f64).powf(point as f64 / (POINTS - 1) as f64);
                let mut points: Vec<usize> = (0..POINTS)
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
        assert!(many.rows.len() <= POINTS);
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
