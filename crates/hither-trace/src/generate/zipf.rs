//! Independent references whose popularity follows Zipf's law: the k-th most popular of n blocks is
//! referenced in proportion to k^-skew. What web, key-value and database caches see.
//!
//! Ranks are drawn by rejection-inversion (Hörmann, Derflinger, "Rejection-inversion to generate
//! variates from monotone discrete distributions", ACM TOMACS 6(3), 1996): exact for any skew from
//! 0 (uniform) up, 1 included, in constant time and no memory. A table of the cumulative
//! distribution would take 8 bytes a block and a cache miss or two a reference. Ranks are scattered
//! over the block numbers by a seeded permutation, so that popularity is not position.

use hither_core::random::Random;
use libm::{exp, expm1, log, log1p};

use super::{BURST, Generator, Pattern, Scatter, Step, WEIGHT, WRITES, blocks, real};

/// The line in the registry.
pub(super) const ENTRY: Generator = Generator {
    name: "zipf",
    summary: "independent references, the k-th most popular block in proportion to k^-skew",
    params: &[
        blocks("blocks", "how many blocks there are", 100_000),
        real(
            "skew",
            "the exponent of Zipf's law; 0: all alike",
            1.0,
            20.0,
        ),
        WEIGHT,
        BURST,
        WRITES,
    ],
    places: &[""],
    build: |values, random| {
        let blocks = values.count(0);
        Box::new(Zipf {
            ranks: Ranks::new(blocks, values.real(1)),
            scatter: Scatter::new(blocks, random.bits()),
        })
    },
};

struct Zipf {
    ranks: Ranks,
    scatter: Scatter,
}

impl Pattern for Zipf {
    fn step(&mut self, random: &mut Random) -> Step {
        let rank = self.ranks.draw(random);
        let index = self.scatter.place(rank - 1) as u32;
        Step { place: 0, index }
    }
}

/// Draws ranks from 1 to n, each in proportion to rank^-skew. The names are the paper's: h(x) =
/// x^-skew, H its integral.
#[derive(Debug)]
pub(in crate::generate) struct Ranks {
    ranks: u64,
    skew: f64,
    /// H(3/2) - 1, the upper end of what is inverted.
    h_first: f64,
    /// H(n + 1/2), the lower end.
    h_last: f64,
    /// A rank nearer than this below its preimage is accepted without another look.
    near: f64,
}

impl Ranks {
    pub(in crate::generate) fn new(ranks: u64, skew: f64) -> Ranks {
        let mut drawn = Ranks {
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

    /// A rank.
    #[inline]
    pub(in crate::generate) fn draw(&self, random: &mut Random) -> u64 {
        loop {
            let u = self.h_last + random.unit() * (self.h_first - self.h_last);
            let x = self.inverse(u);
            // Rounding can leave the range by one at its ends.
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
        // Below -1 only by rounding.
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

    /// Draws of each rank against what the law says, by Pearson's statistic over the ranks that are
    /// expected at least ten times; the rest is one more class.
    fn pearson(ranks: u64, skew: f64, draws: u64) -> (f64, usize) {
        let law: Vec<f64> = (1..=ranks).map(|rank| (rank as f64).powf(-skew)).collect();
        let total: f64 = law.iter().sum();
        let mut counts = vec![0u64; ranks as usize];
        let (sampler, mut random) = (Ranks::new(ranks, skew), Random::new(42));
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
