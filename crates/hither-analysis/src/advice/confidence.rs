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
//!
//! The level follows from a score between 0 and 1, the least of what each kind of evidence gives.
//! Each is a continuous function of the counts: a segment in which the cache becomes full counts in
//! part, Student's quantiles are interpolated, a doubt has a strength. So one access more or less
//! moves the score by little. It changes the level by one step, and only where the score is at a
//! border.

use serde::Serialize;

use hither_sim::{CacheOutcome, Segment};

use crate::format::{percent, points};

/// The smallest gain in hit ratio that is advised: a smaller one depends on the trace more than on
/// the policy.
pub(super) const GAIN_MIN_HIT_RATIO: f64 = 0.02;

/// The number of segments of a trace. The method works best with 10 to 30.
pub(crate) const SEGMENTS: u64 = 16;

/// The fewest segments of an interval.
const SEGMENTS_MIN: f64 = 2.0;

/// The scores from which on an advice is likely, and sure.
const LIKELY_SCORE: f64 = 1.0 / 3.0;
const SURE_SCORE: f64 = 2.0 / 3.0;

/// Doubts alone lower a score to this at most: what is not known does not make a gain a chance.
const DOUBTFUL_SCORE: f64 = 0.4;

/// The gain in hit ratio from which on a segment counts as gaining in full.
const SEGMENT_GAIN_HIT_RATIO: f64 = GAIN_MIN_HIT_RATIO / 4.0;

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

/// Something that weakens an advice.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Doubt {
    /// What it is, as part of a sentence.
    pub(crate) words: String,
    /// How much it weakens the advice: 0 for nothing, 1 where an advice that is sure otherwise
    /// becomes likely.
    pub(crate) strength: f64,
}

impl Doubt {
    /// The strength of a doubt whose extent is not known: the advice is at most likely.
    pub(crate) const UNBOUNDED: f64 = 2.0;

    /// A doubt whose extent is not known.
    pub(crate) fn unbounded(words: String) -> Doubt {
        let strength = Doubt::UNBOUNDED;
        Doubt { words, strength }
    }

    /// The highest score that it leaves.
    fn score_max(&self) -> f64 {
        (1.0 - (1.0 - SURE_SCORE) * self.strength).clamp(DOUBTFUL_SCORE, 1.0)
    }

    /// Whether it is strong enough to be mentioned.
    fn is_mentioned(&self) -> bool {
        self.strength >= 0.5
    }
}

/// How sure an advice is, with the evidence.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Confidence {
    /// The level of confidence.
    pub level: ConfidenceLevel,
    /// The score behind the level, from 0 to 1: likely from a third on, sure from two thirds on.
    pub score: f64,
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
        doubts: Vec<Doubt>,
    ) -> Confidence {
        let pairs = || from.segments.iter().zip(&to.segments);
        let gains: Vec<f64> = pairs().map(|(from, to)| gain(from, to)).collect();
        let weights: Vec<f64> = match claim {
            Claim::Gain => weights(from),
            // Segments before the cache is full also show that nothing is gained.
            Claim::NoGain => vec![1.0; gains.len()],
        };
        let warm_up = weights.iter().take_while(|weight| **weight == 0.0).count();
        let counted: Vec<(f64, f64)> = gains[warm_up..]
            .iter()
            .zip(&weights[warm_up..])
            // The gain was made in the part of the segment that counts.
            .map(|(gain, &weight)| ((gain / weight).clamp(-1.0, 1.0), weight))
            .collect();
        let accesses = || from.segments.iter().map(|segment| segment.accesses as f64);
        let after: f64 = accesses()
            .zip(&weights)
            .map(|(all, weight)| all * weight)
            .sum();
        let share = after / accesses().sum::<f64>().max(1.0);
        let errors = [from, to].map(|outcome| outcome.estimate.map(|e| e.standard_error));
        let sampling: f64 = errors
            .iter()
            .flatten()
            .flatten()
            .map(|error| error.powi(2))
            .sum();
        let interval = half_width(&counted).map(|half| {
            // The middle is the gain that the table shows. The error of a sample is added.
            let middle = to.hit_ratio - from.hit_ratio;
            let half = (half * share).hypot(2.0 * sampling.sqrt());
            // Hit ratios are between 0 and 1.
            let possible = |gain: f64| gain.clamp(-from.hit_ratio, 1.0 - from.hit_ratio);
            [possible(middle - half), possible(middle + half)]
        });
        let score = doubts
            .iter()
            .map(Doubt::score_max)
            .fold(score(claim, interval, &counted), f64::min);
        let gains_counted = || gains[warm_up..].iter();
        Confidence {
            level: match score {
                score if score >= SURE_SCORE => ConfidenceLevel::Sure,
                score if score >= LIKELY_SCORE => ConfidenceLevel::Likely,
                _ => ConfidenceLevel::Unsure,
            },
            score,
            gaining: gains_counted().filter(|gain| **gain > 0.0).count(),
            losing: gains_counted().filter(|gain| **gain < 0.0).count(),
            warm_up,
            interval,
            doubts: doubts
                .into_iter()
                .filter(Doubt::is_mentioned)
                .map(|doubt| doubt.words)
                .collect(),
            gains,
        }
    }

    /// The level as the first word of a sentence.
    fn word(&self) -> &'static str {
        match self.level {
            ConfidenceLevel::Sure => "Sure",
            ConfidenceLevel::Likely => "Likely",
            ConfidenceLevel::Unsure => "Unsure",
        }
    }

    /// The confidence in an advice in a few words, with the first doubt.
    pub(super) fn in_brief(&self, claim: Claim) -> String {
        let word = self.word();
        let counted = self.gains.len() - self.warm_up;
        let mut text = match self.interval {
            None => format!("{word}: the trace is too short to tell"),
            Some([_, high]) if claim == Claim::NoGain => format!(
                "{word}: the best change serves at most {} more of the references",
                percent(high)
            ),
            Some(_) if self.gaining == counted => {
                format!("{word}: it gains in all {counted} parts of the trace")
            }
            Some(_) => format!(
                "{word}: it gains in {} of {counted} parts of the trace",
                self.gaining
            ),
        };
        if let Some(doubt) = self.doubts.first() {
            text += &format!("; {doubt}");
        }
        text
    }

    /// The confidence in words.
    pub(super) fn sentence(&self, claim: Claim) -> String {
        let word = self.word();
        let counted = self.gains.len() - self.warm_up;
        let segments = match self.warm_up {
            0 => format!("{counted} segments of the trace"),
            _ => format!("{counted} segments of the trace in which the cache is full"),
        };
        let mut text = match (claim, self.interval) {
            (_, None) => format!("{word}: the trace is too short to tell"),
            (Claim::Gain, Some([low, high])) => {
                let gaining = if self.gaining == counted {
                    format!("in all {segments}")
                } else {
                    format!("in {} of the {segments}", self.gaining)
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

/// How far each segment counts: the part of its misses after the cache has missed as many blocks
/// as it holds.
fn weights(cache: &CacheOutcome) -> Vec<f64> {
    // For a sample, a proportionally smaller cache was simulated.
    let simulated = cache.estimate.map(|estimate| estimate.cache_blocks);
    let capacity = f64::from(simulated.unwrap_or(cache.cache_blocks));
    let mut missed = 0.0;
    let weight = |segment: &Segment| {
        let misses = (segment.accesses - segment.hits) as f64;
        missed += misses;
        if misses > 0.0 {
            ((missed - capacity) / misses).clamp(0.0, 1.0)
        } else {
            f64::from(u8::from(missed >= capacity))
        }
    };
    cache.segments.iter().map(weight).collect()
}

/// The score of a claim, without doubts, from the interval of its gain and the gain and weight of
/// each segment.
fn score(claim: Claim, interval: Option<[f64; 2]>, segments: &[(f64, f64)]) -> f64 {
    let Some([low, high]) = interval else {
        return 0.0;
    };
    let number: f64 = segments.iter().map(|(_, weight)| weight).sum();
    // A step of the level for each GAIN_MIN_HIT_RATIO.
    let step = SURE_SCORE - LIKELY_SCORE;
    let enough_segments = (number - 1.0) / 4.5;
    let evidence = match claim {
        Claim::Gain => {
            let gaining = |&(gain, weight): &(f64, f64)| {
                weight * (gain / SEGMENT_GAIN_HIT_RATIO).clamp(0.0, 1.0)
            };
            let gaining = segments.iter().map(gaining).sum::<f64>() / number;
            // Likely if half of the segments gain, sure if three quarters do.
            let in_most = LIKELY_SCORE + (gaining - 0.5) * step / 0.25;
            (LIKELY_SCORE + low / GAIN_MIN_HIT_RATIO * step).min(in_most)
        }
        Claim::NoGain => 1.0 - high / GAIN_MIN_HIT_RATIO * step,
    };
    evidence.min(enough_segments).clamp(0.0, 1.0)
}

/// Half of the 95 % interval of the mean of consecutive values with their weights.
fn half_width(values: &[(f64, f64)]) -> Option<f64> {
    let number: f64 = values.iter().map(|(_, weight)| weight).sum();
    if number < SEGMENTS_MIN {
        return None;
    }
    let mean = values
        .iter()
        .map(|(value, weight)| value * weight)
        .sum::<f64>()
        / number;
    let product = |a: (f64, f64), b: (f64, f64)| (a.0 - mean) * (b.0 - mean) * (a.1 * b.1).sqrt();
    let squares: f64 = values.iter().map(|&value| product(value, value)).sum();
    let neighbours: f64 = values
        .windows(2)
        .map(|pair| product(pair[0], pair[1]))
        .sum();
    // Equal values have no correlation.
    let correlation = if squares > 1e-18 {
        (neighbours / squares).max(0.0)
    } else {
        0.0
    };
    let independent = number * (1.0 - correlation) / (1.0 + correlation);
    let variance = squares / (number - 1.0);
    Some(student(independent - 1.0) * (variance / independent).sqrt())
}

/// The 97.5 % quantile of Student's distribution, by degrees of freedom, at least one. Between
/// whole numbers it is interpolated by their inverse, in which it is nearly straight.
fn student(freedom: f64) -> f64 {
    const QUANTILES: [f64; SEGMENTS as usize - 1] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
        2.145, 2.131,
    ];
    let freedom = freedom.clamp(1.0, QUANTILES.len() as f64);
    let below = (freedom as usize).min(QUANTILES.len() - 1);
    let whole = below as f64;
    let part = (1.0 / whole - 1.0 / freedom) / (1.0 / whole - 1.0 / (whole + 1.0));
    QUANTILES[below - 1] + part * (QUANTILES[below] - QUANTILES[below - 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of whole segments.
    fn alike(values: &[f64]) -> Vec<(f64, f64)> {
        values.iter().map(|&value| (value, 1.0)).collect()
    }

    #[test]
    fn the_interval_is_students() {
        // Mean 3, standard deviation the root of 2.5, no correlation above 0: 2.776 * 1.5811 / root
        // of 5.
        let half = half_width(&alike(&[1.0, 5.0, 2.0, 4.0, 3.0])).expect("five values");
        assert!((half - 1.963).abs() < 0.001, "{half}");
        assert_eq!(half_width(&alike(&[0.5; 16])), Some(0.0));
        assert_eq!(half_width(&alike(&[0.5])), None);
        assert_eq!(
            [student(1.0), student(4.0), student(15.0), student(40.0)],
            [12.706, 2.776, 2.131, 2.131]
        );
        // 3.7 degrees of freedom: 2.868 by integration of the density.
        assert!((student(3.7) - 2.868).abs() < 0.01, "{}", student(3.7));
    }

    #[test]
    fn a_single_phase_says_little_wherever_it_lies() {
        for at in [0, 3, 6, 12] {
            let mut values = [0.0; 16];
            values[at..at + 4].fill(0.4);
            let half = half_width(&alike(&values)).expect("sixteen values");
            assert!(half > 0.1, "{at}: {half}");
        }
        // The same values spread over the trace count as independent ones.
        let spread: [f64; 16] = std::array::from_fn(|at| if at % 4 == 0 { 0.4 } else { 0.0 });
        assert!(half_width(&alike(&spread)).expect("sixteen values") < 0.1);
    }

    /// A cache whose segments have these hits of a hundred thousand accesses each.
    fn outcome(cache_blocks: u32, hits: &[u64; 16]) -> CacheOutcome {
        let segments = hits.map(|hits| Segment {
            accesses: 100_000,
            hits,
        });
        let all: u64 = hits.iter().sum();
        CacheOutcome {
            spec: hither_core::registry::baseline(),
            cache_blocks,
            accesses: 1_600_000,
            hits: all,
            misses: 1_600_000 - all,
            hit_ratio: all as f64 / 1_600_000.0,
            estimate: None,
            reads: None,
            classes: Default::default(),
            sites: None,
            segments: segments.to_vec(),
        }
    }

    /// One hit more or less, a block more of cache, a doubt that is a little stronger: the score
    /// hardly changes, and so the level by one step at most.
    #[test]
    fn a_tiny_change_is_no_cliff() {
        let mut random = hither_core::Random::new(5);
        let mut levels = [0; 3];
        for round in 0..20_000 {
            let base = random.below(60_000);
            let noise = 1 + random.below(12_000);
            let phase = random.below(17) as usize;
            let gain = random.below(15_000) * u64::from(round % 3 > 0);
            let from: [u64; 16] = std::array::from_fn(|_| base + random.below(noise));
            let mut to: [u64; 16] = std::array::from_fn(|at| {
                from[at] + random.below(noise) + gain * u64::from(at < phase)
            });
            let blocks = 1 + random.below(1_400_000) as u32;
            let strength = random.below(1000) as f64 / 400.0;
            let claim = match round % 2 {
                0 => Claim::Gain,
                _ => Claim::NoGain,
            };
            let of = |blocks: u32, to: &[u64; 16], strength: f64| {
                let words = String::new();
                let doubts = vec![Doubt { words, strength }];
                Confidence::of(claim, &outcome(blocks, &from), &outcome(blocks, to), doubts)
            };
            let before = of(blocks, &to, strength);
            let mut others = vec![
                of(blocks + 1, &to, strength),
                of(blocks, &to, strength + 1e-4),
            ];
            to[random.below(16) as usize] += 1;
            others.push(of(blocks, &to, strength));
            levels[before.level as usize] += 1;
            for after in others {
                let step = (before.score - after.score).abs();
                assert!(step < 0.01, "{before:?} {after:?}");
                assert!((before.level as i8 - after.level as i8).abs() <= 1);
            }
        }
        assert!(levels.iter().all(|&level| level > 1000), "{levels:?}");
    }

    #[test]
    fn a_doubt_makes_likely_of_sure_and_never_unsure() {
        let level = |strength: f64| {
            let doubt = Doubt {
                words: "some were lost".to_owned(),
                strength,
            };
            let caches = [outcome(500, &[10_000; 16]), outcome(500, &[40_000; 16])];
            Confidence::of(Claim::Gain, &caches[0], &caches[1], vec![doubt])
        };
        assert_eq!(level(0.2).level, ConfidenceLevel::Sure);
        assert_eq!(level(0.2).doubts, [""; 0]);
        assert_eq!(level(0.9).level, ConfidenceLevel::Sure);
        assert_eq!(level(0.9).doubts, ["some were lost"]);
        assert_eq!(level(1.1).level, ConfidenceLevel::Likely);
        assert_eq!(level(99.0).level, ConfidenceLevel::Likely);
    }

    #[test]
    fn no_minus_before_a_zero() {
        assert_eq!(range(-0.0001, 0.0321), "0.0 to 3.2");
        assert_eq!(range(-0.021, 0.5), "-2.1 to 50.0");
    }
}
