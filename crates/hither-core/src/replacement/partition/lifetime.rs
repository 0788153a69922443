//! Belady's lifetime function, as UBM fits it (section 3.3 of its paper): a cache of n blocks under
//! LRU misses a share of c n^-k of the references. The hits of ghost buffers tell the shares at a
//! few sizes that are fixed beforehand, and these tell c and k.
//!
//! Readings, where the papers are open: the sizes are the present one, one an eighth smaller, one
//! somewhat larger and the whole cache; c and k are those of the straight line through the
//! logarithms with the least squares. Sizes that miss nothing have no logarithm and are left out.
//! With fewer than two sizes left there is no curve, and one more block gains nothing. With sizes
//! that do not follow the present one (an eighth to all of the cache), a part that is squeezed
//! below the smallest lies on a curve that tells nothing of it: on the recorded gcc beside cscope
//! (2026-11), in a cache of 5 % of the blocks, ubm then has a hit ratio of .27, and plain LRU .56.

/// A smaller share of the references is none: counts fade, and never quite to 0.
const RATIO_MIN: f64 = 1e-6;

/// A size and the share of the references that a cache of this size misses.
#[derive(Clone, Copy, Debug)]
pub(super) struct MissRatio {
    pub(super) blocks: usize,
    pub(super) ratio: f64,
}

/// The share of references that a cache of `size` blocks would hit with one block more; 0 if the
/// points tell no curve.
pub(super) fn gain(points: impl Iterator<Item = MissRatio>, size: usize) -> f64 {
    let mut previous = 0;
    let (mut count, mut sum_x, mut sum_y, mut sum_xx, mut sum_xy) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for MissRatio { blocks, ratio } in points {
        if blocks == previous || ratio < RATIO_MIN {
            continue;
        }
        previous = blocks;
        let (x, y) = ((blocks as f64).ln(), ratio.ln());
        count += 1.0;
        sum_x += x;
        sum_y += y;
        sum_xx += x * x;
        sum_xy += x * y;
    }
    if count < 2.0 {
        return 0.0;
    }
    let slope = (count * sum_xy - sum_x * sum_y) / (count * sum_xx - sum_x * sum_x);
    let constant = (sum_y - slope * sum_x) / count;
    // Steep lines have factors that no number holds; the sum of their logarithms is small.
    let misses = |blocks: usize| (constant + slope * (blocks as f64).ln()).exp();
    misses(size) - misses(size + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_of_that_form_is_found_again() {
        let misses = |blocks: usize| 0.9 * (blocks as f64).powf(-0.4);
        let points = [10, 20, 40, 80].map(|blocks| MissRatio {
            blocks,
            ratio: misses(blocks),
        });
        for size in [1, 7, 50, 500] {
            let expected = misses(size) - misses(size + 1);
            let found = gain(points.into_iter(), size);
            assert!(
                (found - expected).abs() < 1e-9,
                "{size}: {found}, {expected}"
            );
        }
    }

    #[test]
    fn a_cliff_gives_a_number() {
        let points = [
            (87_500, 0.1),
            (100_000, 0.1),
            (100_100, 1e-5),
            (200_000, 1e-5),
        ];
        let at = |(blocks, ratio)| MissRatio { blocks, ratio };
        for few in 2..=points.len() {
            for size in [1, 100_000, 1_000_000] {
                let found = gain(points[..few].iter().copied().map(at), size);
                assert!(found >= 0.0 && !found.is_nan(), "{few} {size}: {found}");
            }
        }
        let steep = [at((100_000, 0.9)), at((100_100, 2e-6))];
        assert!(gain(steep.into_iter(), 100_050).is_finite());
    }

    #[test]
    fn points_that_tell_no_curve_gain_nothing() {
        let at = |blocks, ratio| MissRatio { blocks, ratio };
        assert_eq!(gain([].into_iter(), 5), 0.0);
        assert_eq!(gain([at(8, 0.5), at(8, 0.5)].into_iter(), 5), 0.0);
        assert_eq!(gain([at(8, 0.5), at(16, 0.0)].into_iter(), 5), 0.0);
        assert_eq!(gain([at(8, 1.0), at(16, 1.0)].into_iter(), 5), 0.0);
    }
}
