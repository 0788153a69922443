//! Independent references whose popularity follows Zipf's law: the k-th most popular of n blocks is
//! referenced in proportion to k^-skew, as in web, key-value and database caches.
//!
//! Ranks are drawn by rejection-inversion (Hörmann, Derflinger, "Rejection-inversion to generate
//! variates from monotone discrete distributions", ACM TOMACS 6(3), 1996). It is exact for any skew
//! from 0 (uniform) up, including 1, in constant time and without memory. A table of the cumulative
//! distribution would take 8 bytes per block and one or two cache misses per reference. A seeded
//! permutation assigns block numbers to ranks, so that popularity does not depend on position.

use hither_core::random::Random;
use hither_core::registry::Param;
use libm::{exp, expm1, log, log1p};

use super::generator::{BURST, Generator, Pattern, Step, WEIGHT, WRITES, blocks};
use super::permutation::Permutation;

/// The line in the registry.
pub(super) const ENTRY: Generator = Generator {
    name: "zipf",
    summary: "independent references, the k-th most popular block in proportion to k^-skew",
    params: &[
        blocks("blocks", "how many blocks there are", 100_000),
        Param::real(
            "skew",
            "the exponent of Zipf's law; 0: all alike",
            1.0,
            0.0..=20.0,
        ),
        WEIGHT,
        BURST,
        WRITES,
    ],
    files: &[""],
    build: |values, random| {
        let blocks = values.count(0);
        Box::new(Zipf {
            ranks: ZipfRanks::new(blocks, values.real(1)),
            permutation: Permutation::new(blocks, random.bits()),
        })
    },
};

struct Zipf {
    ranks: ZipfRanks,
    permutation: Permutation,
}

impl Pattern for Zipf {
    fn step(&mut self, random: &mut Random) -> Step {
        let rank = self.ranks.draw(random);
        let index = self.permutation.apply(rank - 1) as u32;
        Step { file: 0, index }
    }
}

/// Draws ranks from 1 to n in proportion to rank^-skew. The names are those of the paper: h(x) =
/// x^-skew, and H is its integral.
#[derive(Debug)]
pub(crate) struct ZipfRanks {
    ranks: u64,
    skew: f64,
    /// H(3/2) - 1, the upper end of the inverted range.
    h_first: f64,
    /// H(n + 1/2), the lower end of the inverted range.
    h_last: f64,
    /// A rank above its preimage by at most this much is accepted without a further test.
    near: f64,
}

impl ZipfRanks {
    pub(crate) fn new(ranks: u64, skew: f64) -> ZipfRanks {
        let mut drawn = ZipfRanks {
            ranks,
            skew,
            h_first: 0.0,
            h_last: 0.0,
            near: 0.0,
        };
        drawn.h_first = drawn.integral(1.5) - 1.0;
        drawn.h_last = drawn.integral(ranks as f64 + 0.5);
        drawn.near = 2.0 - drawn.inverse(drawn.integral(2.5) - drawn.density(2.0));
        drawn
    }

    /// Draws a rank.
    #[inline]
    pub(crate) fn draw(&self, random: &mut Random) -> u64 {
        loop {
            let u = self.h_last + random.unit() * (self.h_first - self.h_last);
            let x = self.inverse(u);
            // Rounding can exceed the range by one at its ends.
            let rank = ((x + 0.5) as u64).clamp(1, self.ranks);
            let k = rank as f64;
            if k - x <= self.near || u >= self.integral(k + 0.5) - self.density(k) {
                return rank;
            }
        }
    }

    /// h.
    fn density(&self, x: f64) -> f64 {
        exp(-self.skew * log(x))
    }

    /// H, (x^(1-skew) - 1) / (1 - skew), which is the logarithm where the skew is 1.
    fn integral(&self, x: f64) -> f64 {
        let log = log(x);
        log * expm1_over((1.0 - self.skew) * log)
    }

    /// The inverse of H.
    fn inverse(&self, u: f64) -> f64 {
        // It is below -1 only by rounding.
        let t = (u * (1.0 - self.skew)).max(-1.0);
        exp(u * log1p_over(t))
    }
}

/// (e^x - 1) / x, continued to 0 by its Taylor series.
fn expm1_over(x: f64) -> f64 {
    if x.abs() > 1e-8 {
        expm1(x) / x
    } else {
        1.0 + x / 2.0
    }
}

/// log(1 + x) / x, continued to 0 by its Taylor series.
fn log1p_over(x: f64) -> f64 {
    if x.abs() > 1e-8 {
        log1p(x) / x
    } else {
        1.0 - x / 2.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pearson's statistic of the drawn ranks against the law, over the ranks that are expected at
    /// least ten times. All other ranks are one more class.
    fn pearson(ranks: u64, skew: f64, draws: u64) -> (f64, usize) {
        let law: Vec<f64> = (1..=ranks).map(|rank| (rank as f64).powf(-skew)).collect();
        let total: f64 = law.iter().sum();
        let mut counts = vec![0u64; ranks as usize];
        let (sampler, mut random) = (ZipfRanks::new(ranks, skew), Random::new(42));
        for _ in 0..draws {
            counts[sampler.draw(&mut random) as usize - 1] += 1;
        }
        let (mut sum, mut classes) = (0.0, 0);
        let (mut rest, mut rest_expected) = (0.0, 0.0);
        for (share, count) in law.iter().zip(counts) {
            let expected = share / total * draws as f64;
            if expected < 10.0 {
                rest += count as f64;
                rest_expected += expected;
            } else {
                sum += (count as f64 - expected).powi(2) / expected;
                classes += 1;
            }
        }
        if rest_expected >= 10.0 {
            sum += (rest - rest_expected).powi(2) / rest_expected;
            classes += 1;
        }
        (sum, classes)
    }

    #[test]
    fn ranks_are_as_frequent_as_the_law_says() {
        for (ranks, skew) in [
            (1, 1.0),
            (2, 1.0),
            (10, 0.0),
            (1000, 0.0),
            (1000, 0.5),
            (1000, 0.99),
            (1000, 1.0),
            (1000, 1.0 + 1e-9),
            (1000, 1.2),
            (1000, 3.0),
            (1000, 20.0),
            (1_000_000, 1.0),
        ] {
            let (sum, classes) = pearson(ranks, skew, 200_000);
            // Chi-square with k degrees of freedom has mean k and deviation sqrt(2 k).
            let freedom = classes as f64 - 1.0;
            let bound = freedom + 4.0 * (2.0 * freedom).sqrt() + 0.01;
            assert!(sum <= bound, "{ranks} {skew}: {sum} > {bound}");
        }
    }
}
