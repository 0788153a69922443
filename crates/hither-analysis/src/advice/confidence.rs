//! How sure an advice is: whether its gain is there all through the trace, or hangs on one phase of
//! it.
//!
//! The trace is cut into [`STRETCHES`] segments of as many references each, in the order in which
//! they were made, and the gain is taken in each: the method of batch means, as it is used on the
//! output of simulations (Law and Kelton, *Simulation Modeling and Analysis*, chapter 9). Stretches
//! at whose end a cache is not full yet are left out, for until then nothing is evicted and every
//! policy does the same. The interval is Student's at 95 % over those that are left. Neighbouring
//! segments are alike, so that there are fewer of them than it seems; their number goes down by
//! their correlation, `n (1 - r) / (1 + r)`, and so a gain that comes from one phase has a wide
//! interval, wherever the phase lies. A program that changes in the next run is beyond all this.

use serde::Serialize;

use hither_sim::{CacheOutcome, Segment};

use super::{GAIN_MIN_HIT_RATIO, points};

/// Into how many segments a trace is cut: 10 to 30 batches are what the method is good with.
pub(crate) const STRETCHES: u64 = 16;

/// The fewest segments that say anything.
const STRETCHES_MIN: usize = 4;

/// One word for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// Even the sign of the gain may be chance.
    Unsure,
    /// The change gains.
    Likely,
    /// The change gains enough to be worth it, in most of the trace, and nothing is known that
    /// speaks against it.
    Sure,
}

/// How sure an advice is, and by what.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Confidence {
    /// The level of confidence.
    pub level: Level,
    /// The gain in hit ratio in each stretch of the trace, the first one first.
    pub gains: Vec<f64>,
    /// How many of the first ones are left out, as the cache is not full at their end.
    pub warm_up: usize,
    /// In how many of the others the change gains, and in how many it loses.
    pub gaining: usize,
    /// In how many of the others it loses.
    pub losing: usize,
    /// Where the gain over the whole trace lies at 95 % confidence; nothing with too few segments.
    pub interval: Option<[f64; 2]>,
    /// What weakens it, in words.
    pub doubts: Vec<String>,
}

/// Which claim is to be sure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// That a change gains.
    Gain,
    /// That none does.
    Nothing,
}

impl Confidence {
    /// Of the step from one cache to another that is no smaller, both simulated in [`STRETCHES`].
    pub(super) fn of(
        claim: Claim,
        from: &CacheOutcome,
        to: &CacheOutcome,
        doubts: Vec<String>,
    ) -> Confidence {
        let pairs = || from.segments.iter().zip(&to.segments);
        let gains: Vec<f64> = pairs().map(|(from, to)| gain(from, to)).collect();
        let warm_up = match claim {
            Claim::Gain => warm_up(from),
            // What nobody gains before caches are full is nothing, too.
            Claim::Nothing => 0,
        };
        let counted = &gains[warm_up..];
        let all: u64 = from.segments.iter().map(|stretch| stretch.accesses).sum();
        let after: u64 = from.segments[warm_up..]
            .iter()
            .map(|stretch| stretch.accesses)
            .sum();
        let part = after as f64 / all.max(1) as f64;
        let errors = [from, to].map(|outcome| outcome.estimate.map(|e| e.standard_error));
        let sampling: f64 = errors
            .iter()
            .flatten()
            .flatten()
            .map(|error| error.powi(2))
            .sum();
        let interval = half_width(counted).map(|half| {
            // The step itself is what the table says; for a sample its own error comes on top.
            let middle = to.hit_ratio - from.hit_ratio;
            let half = (half * part).hypot(2.0 * sampling.sqrt());
            // No more can be lost than there is, or gained than there is not.
            let possible = |gain: f64| gain.clamp(-from.hit_ratio, 1.0 - from.hit_ratio);
            [possible(middle - half), possible(middle + half)]
        });
        let gaining = counted.iter().filter(|gain| **gain > 0.0).count();
        let losing = counted.iter().filter(|gain| **gain < 0.0).count();
        let level = match (claim, interval) {
            (_, None) => Level::Unsure,
            (Claim::Gain, Some([low, _])) => match low {
                low if low >= GAIN_MIN_HIT_RATIO && 4 * gaining >= 3 * counted.len() => Level::Sure,
                low if low > 0.0 && 2 * gaining > counted.len() => Level::Likely,
                _ => Level::Unsure,
            },
            (Claim::Nothing, Some([_, high])) => match high {
                high if high < GAIN_MIN_HIT_RATIO => Level::Sure,
                high if high < 2.0 * GAIN_MIN_HIT_RATIO => Level::Likely,
                _ => Level::Unsure,
            },
        };
        Confidence {
            level: match doubts.is_empty() {
                true => level,
                false => level.min(Level::Likely),
            },
            gains,
            warm_up,
            gaining,
            losing,
            interval,
            doubts,
        }
    }

    /// In words.
    pub(super) fn sentence(&self, claim: Claim) -> String {
        let word = match self.level {
            Level::Sure => "Sure",
            Level::Likely => "Likely",
            Level::Unsure => "Unsure",
        };
        let counted = self.gains.len() - self.warm_up;
        let segments = match self.warm_up {
            0 => format!("{counted} segments of the trace"),
            _ => format!("{counted} segments of the trace in which the cache is full"),
        };
        let mut text = match (claim, self.interval) {
            (_, None) => format!("{word}: the trace is too short to tell"),
            (Claim::Gain, Some([low, high])) => {
                let gaining = match self.gaining == counted {
                    true => format!("in all {segments}"),
                    false => format!("in {} of the {segments}", self.gaining),
                };
                format!(
                    "{word}: it gains {gaining}, and {} points over all, at 95 % confidence",
                    range(low, high)
                )
            }
            (Claim::Nothing, Some([low, high])) => format!(
                "{word}: what comes nearest gains {} points, at 95 % confidence over {segments}",
                range(low, high)
            ),
        };
        for doubt in &self.doubts {
            text += &format!("; {doubt}");
        }
        text + "."
    }
}

/// The gain in hit ratio in one stretch.
fn gain(from: &Segment, to: &Segment) -> f64 {
    let hits = to.hits as f64 - from.hits as f64;
    hits / from.accesses.max(1) as f64
}

/// `4.2 to 5.0`, in points.
fn range(low: f64, high: f64) -> String {
    format!("{} to {}", points(low), points(high))
}

/// How many of the first segments end before a cache has missed as many blocks as it holds.
fn warm_up(cache: &CacheOutcome) -> usize {
    // In a sample the cache that was simulated is smaller, as its references are fewer.
    let simulated = cache.estimate.map(|estimate| estimate.cache_blocks);
    let full = simulated.unwrap_or(cache.cache_blocks);
    let mut missed = 0;
    let filling = cache.segments.iter().take_while(|stretch| {
        missed += stretch.accesses - stretch.hits;
        missed < u64::from(full)
    });
    filling.count()
}

/// Half of the interval at 95 % for the mean of values one after the other.
fn half_width(values: &[f64]) -> Option<f64> {
    if values.len() < STRETCHES_MIN {
        return None;
    }
    let number = values.len() as f64;
    let mean = values.iter().sum::<f64>() / number;
    let product = |a: f64, b: f64| (a - mean) * (b - mean);
    let squares: f64 = values.iter().map(|&value| product(value, value)).sum();
    let neighbours: f64 = values
        .windows(2)
        .map(|pair| product(pair[0], pair[1]))
        .sum();
    // Values that are all the same have no correlation.
    let correlation = match squares > 1e-18 {
        true => (neighbours / squares).max(0.0),
        false => 0.0,
    };
    let independent = number * (1.0 - correlation) / (1.0 + correlation);
    let variance = squares / (number - 1.0);
    let freedom = (independent.floor() as usize).saturating_sub(1);
    Some(student(freedom) * (variance / independent).sqrt())
}

/// The 97.5 % quantile of Student's distribution, by degrees of freedom, at least one.
fn student(freedom: usize) -> f64 {
    const QUANTILES: [f64; STRETCHES as usize - 1] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
        2.145, 2.131,
    ];
    QUANTILES[freedom.clamp(1, QUANTILES.len()) - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_students() {
        // Mean 3, standard deviation the root of 2.5, no correlation above 0: 2.776 * 1.5811 / root
        // of 5.
        let half = half_width(&[1.0, 5.0, 2.0, 4.0, 3.0]).expect("five values");
        assert!((half - 1.963).abs() < 0.001, "{half}");
        assert_eq!(half_width(&[0.5; 16]), Some(0.0));
        assert_eq!(half_width(&[0.5; 3]), None);
    }

    #[test]
    fn a_single_phase_says_little_wherever_it_lies() {
        for at in [0, 3, 6, 12] {
            let mut values = [0.0; 16];
            values[at..at + 4].fill(0.4);
            let half = half_width(&values).expect("sixteen values");
            assert!(half > 0.1, "{at}: {half}");
        }
        // The same values apart from each other are as many independent ones.
        let spread: [f64; 16] = std::array::from_fn(|at| if at % 4 == 0 { 0.4 } else { 0.0 });
        assert!(half_width(&spread).expect("sixteen values") < 0.1);
    }

    #[test]
    fn no_minus_before_a_zero() {
        assert_eq!(range(-0.0001, 0.0321), "0.0 to 3.2");
        assert_eq!(range(-0.021, 0.5), "-2.1 to 50.0");
    }
}
