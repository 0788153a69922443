//! Confidence bounds of a share, valid however often they are computed.
//!
//! The policy's criterion is applied after each iteration, as often as the program has any. An
//! interval that is wrong in 1 % of its uses (Wilson's, Clopper and Pearson's) is sooner or later
//! wrong. So these bounds are a *confidence sequence*: the true share is within them at all times
//! at once, except with probability `alpha`. A share `q` is ruled out when the samples are more
//! than `1 / alpha` times likelier under a mixture of all shares than under `q` (Ville's
//! inequality; Robbins, "Statistical methods related to the law of the iterated logarithm", 1970,
//! section 3). The mixture is Beta(1/2, 1/2). At 1 %, ten equal samples rule out a share of a half;
//! an interval for a single use needs seven.

/// Steps of bisection: they give the share to 1 in 4 million, more than the counts need.
const BISECTION_STEPS: u32 = 22;

/// Lower and upper bound of the share, given `hits` of `samples`, which need not be whole numbers.
/// The true share is outside of them with a probability of at most `exp(-level)`.
pub(super) fn bounds(hits: f64, samples: f64, level: f64) -> (f64, f64) {
    if samples <= 0.0 {
        return (0.0, 1.0);
    }
    let ruled_out = ruled_out(hits, samples, level);
    let seen = hits / samples;
    // On each side of `seen` the shares that are ruled out are contiguous: bisection finds the
    // edge.
    let edge = |mut out: f64| {
        if !ruled_out(out) {
            return out;
        }
        let mut within = seen;
        for _ in 0..BISECTION_STEPS {
            let middle = (out + within) / 2.0;
            if ruled_out(middle) {
                out = middle;
            } else {
                within = middle;
            }
        }
        out
    };
    (edge(0.0), edge(1.0))
}

/// Whether a share is ruled out by `hits` of `samples`.
fn ruled_out(hits: f64, samples: f64, level: f64) -> impl Fn(f64) -> bool {
    let misses = samples - hits;
    let mixture = ln_gamma(hits + 0.5) + ln_gamma(misses + 0.5)
        - ln_gamma(samples + 1.0)
        - std::f64::consts::PI.ln();
    move |share: f64| {
        let likelihood = weighted_ln(hits, share) + weighted_ln(misses, 1.0 - share);
        mixture - likelihood > level
    }
}

/// Whether two shares, each given by hits and samples, may be equal. Tested at the share of all
/// samples together, which both are likeliest to have in common.
pub(super) fn may_be_equal(left: (f64, f64), right: (f64, f64), level: f64) -> bool {
    let share = (left.0 + right.0) / (left.1 + right.1);
    let may_be = |(hits, samples): (f64, f64)| !ruled_out(hits, samples, level)(share);
    may_be(left) && may_be(right)
}

/// `weight * ln(value)`; 0 for a weight of 0.
fn weighted_ln(weight: f64, value: f64) -> f64 {
    if weight == 0.0 {
        0.0
    } else {
        weight * value.ln()
    }
}

/// The logarithm of the gamma function for positive numbers: Stirling's series, after moving `x` up
/// to where the series is exact to 1e-10.
fn ln_gamma(mut x: f64) -> f64 {
    let mut below = 0.0;
    while x < 8.0 {
        below += x.ln();
        x += 1.0;
    }
    let inverse = 1.0 / x;
    let square = inverse * inverse;
    let series = inverse * (1.0 / 12.0 - square * (1.0 / 360.0 - square / 1260.0));
    (x - 0.5) * x.ln() - x + 0.5 * (2.0 * std::f64::consts::PI).ln() + series - below
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gamma_of_known_values() {
        for (x, value) in [(1.0, 1.0), (2.0, 1.0), (5.0, 24.0), (11.0, 3_628_800.0)] {
            assert!((ln_gamma(x) - f64::ln(value)).abs() < 1e-8, "{x}");
        }
        let half = std::f64::consts::PI.sqrt().ln();
        assert!((ln_gamma(0.5) - half).abs() < 1e-8);
    }

    #[test]
    fn bounds_hold_the_share_and_narrow() {
        let level = 100_f64.ln();
        assert_eq!(bounds(0.0, 0.0, level), (0.0, 1.0));
        let mut width = 1.1;
        for samples in [4.0, 16.0, 64.0, 256.0, 1024.0] {
            let (low, high) = bounds(samples / 4.0, samples, level);
            assert!(low < 0.25 && high > 0.25);
            assert!(high - low < width);
            width = high - low;
            let (other_low, other_high) = bounds(samples * 0.75, samples, level);
            assert!((other_low - (1.0 - high)).abs() < 1e-6);
            assert!((other_high - (1.0 - low)).abs() < 1e-6);
        }
    }

    /// All samples alike: 9 leave a half possible, 10 do not.
    #[test]
    fn ten_equal_samples_rule_a_half_out() {
        let level = 100_f64.ln();
        assert!(bounds(0.0, 9.0, level).1 > 0.5);
        let (low, high) = bounds(0.0, 10.0, level);
        assert_eq!(low, 0.0);
        assert!(high < 0.5);
        assert_eq!(bounds(10.0, 10.0, level).1, 1.0);
    }
}
