//! How sure an advice is: whether its gain holds throughout the trace or comes from one phase.
//!
//! The method is that of batch means, which is used on the output of simulations (Law and Kelton,
//! *Simulation Modeling and Analysis*, chapter 9). The trace is cut into [`SEGMENTS`] segments of
//! equally many references, in order, and the gain is computed for each. Segments at whose end the
//! cache is not full yet are left out: nothing is evicted before, so all policies do the same. The
//! 95 % interval of the mean is Student's, over the remaining segments.
//!
//! Adjacent segments are correlated, so the number of independent segments is lower:
//! `n (1 - r) / (1 + r)` for a correlation of `r`. Therefore a gain from a single phase has a wide
//! interval. None of this covers a program that behaves differently in its next run.

use serde::Serialize;

use hither_sim::{CacheOutcome, Segment};

use crate::format::points;

/// The smallest gain in hit ratio that is advised: a smaller one depends on the trace more than on
/// the policy.
pub(super) const GAIN_MIN_HIT_RATIO: f64 = 0.02;

/// The number of segments of a trace. The method works best with 10 to 30.
pub(crate) const SEGMENTS: u64 = 16;

/// The fewest segments of an interval.
const SEGMENTS_MIN: usize = 4;

/// How sure an advice is, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConfidenceLevel {
    /// Even the sign of the gain may be chance.
    Unsure,
    /// The change gains something.
    Likely,
    /// The change gains enough to be worth it, in most of the trace, and there are no doubts.
    Sure,
}

/// How sure an advice is, with the evidence.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Confidence {
    /// The level of confidence.
    pub level: ConfidenceLevel,
    /// The gain in hit ratio in each segment of the trace, in order.
    pub gains: Vec<f64>,
    /// The number of segments at the beginning that are left out, since the cache is not full at
    /// their end.
    pub warm_up: usize,
    /// The number of remaining segments in which the change gains.
    pub gaining: usize,
    /// The number of remaining segments in which it loses.
    pub losing: usize,
    /// The 95 % interval of the gain over the whole trace. `None`: there are too few segments.
    pub interval: Option<[f64; 2]>,
    /// What weakens the advice, in words.
    pub doubts: Vec<String>,
}

/// The claim whose confidence is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// A change gains.
    Gain,
    /// No change gains.
    NoGain,
}

impl Confidence {
    /// The confidence in the step from one cache to another that is no smaller. Both were simulated
    /// in [`SEGMENTS`].
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
            // Segments before the cache is full also show that nothing is gained.
            Claim::NoGain => 0,
        };
        let counted = &gains[warm_up..];
        let all: u64 = from.segments.iter().map(|segment| segment.accesses).sum();
        let after: u64 = from.segments[warm_up..]
            .iter()
            .map(|segment| segment.accesses)
            .sum();
        let share = after as f64 / all.max(1) as f64;
        let errors = [from, to].map(|outcome| outcome.estimate.map(|e| e.standard_error));
        let sampling: f64 = errors
            .iter()
            .flatten()
            .flatten()
            .map(|error| error.powi(2))
            .sum();
        let interval = half_width(counted).map(|half| {
            // The middle is the gain that the table shows. The error of a sample is added.
            let middle = to.hit_ratio - from.hit_ratio;
            let half = (half * share).hypot(2.0 * sampling.sqrt());
            // Hit ratios are between 0 and 1.
            let possible = |gain: f64| gain.clamp(-from.hit_ratio, 1.0 - from.hit_ratio);
            [possible(middle - half), possible(middle + half)]
        });
        let gaining = counted.iter().filter(|gain| **gain > 0.0).count();
        let losing = counted.iter().filter(|gain| **gain < 0.0).count();
        let level = match (claim, interval) {
            (_, None) => ConfidenceLevel::Unsure,
            (Claim::Gain, Some([low, _])) => match low {
                low if low >= GAIN_MIN_HIT_RATIO && 4 * gaining >= 3 * counted.len() => {
                    ConfidenceLevel::Sure
                }
                low if low > 0.0 && 2 * gaining > counted.len() => ConfidenceLevel::Likely,
                _ => ConfidenceLevel::Unsure,
            },
            (Claim::NoGain, Some([_, high])) => match high {
                high if high < GAIN_MIN_HIT_RATIO => ConfidenceLevel::Sure,
                high if high < 2.0 * GAIN_MIN_HIT_RATIO => ConfidenceLevel::Likely,
                _ => ConfidenceLevel::Unsure,
            },
        };
        Confidence {
            level: match doubts.is_empty() {
                true => level,
                false => level.min(ConfidenceLevel::Likely),
            },
            gains,
            warm_up,
            gaining,
            losing,
            interval,
            doubts,
        }
    }

    /// The confidence in words.
    pub(super) fn sentence(&self, claim: Claim) -> String {
        let word = match self.level {
            ConfidenceLevel::Sure => "Sure",
            ConfidenceLevel::Likely => "Likely",
            ConfidenceLevel::Unsure => "Unsure",
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
                    "{word}: it gains {gaining}, and {} points overall, at 95 % confidence",
                    range(low, high)
                )
            }
            (Claim::NoGain, Some([low, high])) => format!(
                "{word}: the best change gains {} points, at 95 % confidence over {segments}",
                range(low, high)
            ),
        };
        for doubt in &self.doubts {
            text += &format!("; {doubt}");
        }
        text + "."
    }
}

/// The gain in hit ratio in one segment.
fn gain(from: &Segment, to: &Segment) -> f64 {
    let hits = to.hits as f64 - from.hits as f64;
    hits / from.accesses.max(1) as f64
}

/// `4.2 to 5.0`, in points.
fn range(low: f64, high: f64) -> String {
    format!("{} to {}", points(low), points(high))
}

/// The number of segments that end before a cache has missed as many blocks as it holds.
fn warm_up(cache: &CacheOutcome) -> usize {
    // For a sample, a proportionally smaller cache was simulated.
    let simulated = cache.estimate.map(|estimate| estimate.cache_blocks);
    let capacity = simulated.unwrap_or(cache.cache_blocks);
    let mut missed = 0;
    let filling = cache.segments.iter().take_while(|segment| {
        missed += segment.accesses - segment.hits;
        missed < u64::from(capacity)
    });
    filling.count()
}

/// Half of the 95 % interval of the mean of consecutive values.
fn half_width(values: &[f64]) -> Option<f64> {
    if values.len() < SEGMENTS_MIN {
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
    // Equal values have no correlation.
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
    const QUANTILES: [f64; SEGMENTS as usize - 1] = [
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
        // The same values spread over the trace count as independent ones.
        let spread: [f64; 16] = std::array::from_fn(|at| if at % 4 == 0 { 0.4 } else { 0.0 });
        assert!(half_width(&spread).expect("sixteen values") < 0.1);
    }

    #[test]
    fn no_minus_before_a_zero() {
        assert_eq!(range(-0.0001, 0.0321), "0.0 to 3.2");
        assert_eq!(range(-0.021, 0.5), "-2.1 to 50.0");
    }
}
