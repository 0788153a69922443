//! From simulated hit ratios to advice: the cheapest change that gets most of the gain, how much it
//! gains, and how sure that is.
//!
//! A change of policy costs no memory, so it is preferred to a larger cache, unless twice the cache
//! gains more than three times as much. (In a cache of half a loop, a policy can keep that half;
//! twice the cache holds it all.) Of the policies that gain nearly as much as the best, the one
//! that needs the least knowledge is advised.
//!
//! The doubts come from experiments (`docs/results/papers.md`): a gain may come from a single
//! phase, may exist at one cache size only, or may depend on how a policy samples call sites.

mod confidence;
mod second_pass;

use hither_core::registry::Needs;
use hither_core::spec::Value;
use hither_core::{ExpectedReads, Spec};
use hither_sim::{CacheConfiguration, CacheOutcome, Grid};
use serde::{Serialize, Serializer};

use crate::expected;
use crate::format::{bytes, count, counted, percent, points, policy};
use crate::run_plan::RunPlan;
use confidence::{Claim, GAIN_MIN_HIT_RATIO};
pub use confidence::{Confidence, ConfidenceLevel};
pub(crate) use confidence::{Doubt, SEGMENTS};
pub(crate) use second_pass::SecondPass;

/// The share of the best gain from which on a policy, or a cache, counts as nearly as good.
const NEAR_BEST_SHARE: f64 = 0.9;

/// Twice the cache is advised only if it gains more than this many times as much as another policy.
const DOUBLE_CACHE_GAIN_FACTOR: f64 = 3.0;

/// The references a block, on average, from which on there is no doubt about a gain, and those at
/// which the doubt has strength 1. Neither is a whole number of passes, which is what programs
/// make.
const REFERENCES_PER_BLOCK: [f64; 2] = [3.8, 2.4];

/// The same for the share of the gain that is left at a slightly different setting.
const VARIANT_GAIN_SHARE: [f64; 2] = [0.75, 0.5];

/// The share of the data from which on a cache counts as holding nearly all of it.
const NEARLY_ALL_DATA_SHARE: f64 = 0.95;

/// A difference in hit ratio that is not mentioned, since it rounds to 0.0 points.
const ROUNDS_TO_ZERO_HIT_RATIO: f64 = 0.0005;

/// The smallest cache in bytes that `hither run` can steer.
pub const STEERABLE_MIN_BYTES: u64 = 8 << 20;

/// What is advised, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Recommendation {
    /// Another replacement policy.
    Policy,
    /// A larger cache.
    Size,
    /// No change: the cache already serves nearly all that any cache can serve.
    Nothing,
    /// None: half or more of what the program did may not have been seen.
    Unknown,
}

/// A change from LRU in a cache of some size to another policy or a larger cache.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The other policy. `None`: LRU in a larger cache.
    #[serde(serialize_with = "as_text")]
    pub policy: Option<Spec>,
    /// The size before the change, in blocks.
    pub from_blocks: u64,
    /// The size after the change, in blocks.
    pub cache_blocks: u64,
    /// The gain in hit ratio.
    pub gain: f64,
}

/// The advice.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CacheAdvice {
    /// What to change.
    pub change: Recommendation,
    /// The policy to use, where another one helps.
    #[serde(serialize_with = "as_text")]
    pub policy: Option<Spec>,
    /// The size in blocks at which another policy gains most, or the larger size that is enough.
    pub cache_blocks: Option<u64>,
    /// The size in blocks that this is compared with.
    pub from_blocks: Option<u64>,
    /// The gain in hit ratio over LRU.
    pub gain: f64,
    /// The largest possible gain: that of the optimum in the same cache, or of a cache that holds
    /// all data.
    pub gain_max: f64,
    /// Other changes that gain.
    pub alternatives: Vec<Change>,
    /// The gain of the same policy at slightly different sizes and sampling periods.
    pub variants: Vec<Change>,
    /// What a run with that policy would have read, if it is advised in the memory that the program
    /// had.
    pub expected: Option<ExpectedReads>,
    /// Why `hither run` is not to apply it, in a sentence, if that is so.
    pub obstacle: Option<String>,
    /// How sure it is. `None`: nothing was simulated.
    pub confidence: Option<Confidence>,
    /// The advice in words.
    pub sentences: Vec<String>,
}

impl CacheAdvice {
    /// No advice, for the reason given.
    pub(crate) fn unknown(reason: String) -> CacheAdvice {
        CacheAdvice {
            change: Recommendation::Unknown,
            ..no_change(reason)
        }
    }

    /// Adds why `hither run` is not to apply it, if it advises a change.
    pub(crate) fn with_obstacle(mut self, obstacle: Option<String>) -> CacheAdvice {
        if matches!(self.change, Recommendation::Policy | Recommendation::Size) {
            self.sentences.extend(obstacle.clone());
            self.obstacle = obstacle;
        }
        self
    }

    /// How sure it is, in a few words.
    pub(crate) fn confidence_in_brief(&self) -> Option<String> {
        let claim = if self.change == Recommendation::Nothing {
            Claim::NoGain
        } else {
            Claim::Gain
        };
        let confidence = self.confidence.as_ref()?;
        Some(confidence.in_brief(claim))
    }

    /// The settings for `hither run`, if the advice is a policy in a cache that is large enough to
    /// be steered, nothing stands in the way, and the run is expected to gain.
    pub fn plan(&self, block_bytes: u64) -> Option<RunPlan> {
        if self.obstacle.is_some() {
            return None;
        }
        let bytes = self.cache_blocks? * block_bytes;
        let spec = self.policy?;
        if self.expected.is_some_and(|expected| !expected.gains()) {
            return None;
        }
        (bytes >= STEERABLE_MIN_BYTES).then(|| RunPlan {
            page_cache: Some(policy(&spec)),
            // What a memory cgroup leaves a run finds out itself, then and there.
            cache: self.expected.is_none().then(|| match bytes {
                // Not more than there is.
                large if large >= 16 << 20 => format!("{}MiB", large >> 20),
                small => format!("{}KiB", small >> 10),
            }),
            ..RunPlan::default()
        })
    }
}

/// The simulated caches, and what is known of the trace.
pub(crate) struct AdviceInput<'a> {
    pub(crate) references: u64,
    /// The number of distinct blocks.
    pub(crate) blocks: u64,
    pub(crate) block_bytes: u64,
    /// The outcomes, in [`SEGMENTS`]. Without `lru` and `opt` there is no advice.
    pub(crate) caches: &'a Grid,
    /// Whether the blocks belong to files, so that `hither run` can steer a large enough cache.
    pub(crate) steerable: bool,
    /// Whether the user named the sizes. Otherwise they are shares of the data.
    pub(crate) asked_sizes: bool,
    /// The size that the recorded program had, in blocks, if it is one of the sizes: the advice is
    /// about it.
    pub(crate) here: Option<u64>,
    /// What a run with the [candidate](AdviceInput::candidate) would have read there.
    pub(crate) expected: Option<ExpectedReads>,
    /// What the trace lacks.
    pub(crate) doubts: Vec<Doubt>,
}

/// A change of policy at one size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate<'a> {
    /// The index of the size.
    at: usize,
    spec: &'a Spec,
    outcome: &'a CacheOutcome,
    lru: &'a CacheOutcome,
    /// The policy by whose gain the size was chosen.
    best: &'a Spec,
    /// The number of sizes among which it was chosen.
    eligible_sizes: usize,
}

impl Candidate<'_> {
    pub(crate) fn spec(&self) -> &Spec {
        self.spec
    }

    fn gain(&self) -> f64 {
        self.outcome.hit_ratio - self.lru.hit_ratio
    }

    fn change(&self) -> Change {
        Change {
            policy: Some(*self.spec),
            from_blocks: self.outcome.cache_blocks.into(),
            cache_blocks: self.outcome.cache_blocks.into(),
            gain: self.gain(),
        }
    }

    /// The same policy with a fifth less and a quarter more cache, and with other sampling periods
    /// if it samples.
    pub(crate) fn variants(&self) -> Vec<CacheConfiguration> {
        let size = self.outcome.cache_blocks;
        let sizes = [
            size - size / 5,
            size.saturating_add(size / 4).min(u32::MAX - 1),
        ];
        let sizes = sizes.into_iter().filter(|&other| other != size);
        let of_sizes = sizes.map(|cache_blocks| (*self.spec, cache_blocks));
        let of_periods = other_periods(self.spec).into_iter();
        let of_periods = of_periods.map(|spec| (spec, size));
        let all = of_sizes.chain(of_periods);
        all.map(|(spec, cache_blocks)| CacheConfiguration { spec, cache_blocks })
            .collect()
    }
}

/// A policy with a fifth and five times its sampling period, if it has one.
fn other_periods(spec: &Spec) -> Vec<Spec> {
    let Some(Value::Count(period)) = spec.value("sample") else {
        return Vec::new();
    };
    let others = [(period / 5).max(1), 5 * period];
    let others = others.map(|period| spec.with("sample", Value::Count(period)));
    let others = others.into_iter().flatten();
    others.filter(|other| other != spec).collect()
}

/// How much a policy needs to know: 0 for blocks alone, 1 for files or processes, 2 for call sites.
fn knowledge_needed(needs: Needs) -> u8 {
    match needs {
        Needs { sites: true, .. } => 2,
        needs => u8::from(needs.objects || needs.processes),
    }
}

impl<'a> AdviceInput<'a> {
    /// The outcomes of the policy of that name at each size; empty if it was not simulated.
    fn outcomes_of(&self, name: &str) -> &'a [CacheOutcome] {
        self.caches.row_of(name).map_or(&[], |row| &row.cells)
    }

    /// A size in blocks, in words.
    fn size(&self, blocks: u64) -> String {
        bytes(blocks * self.block_bytes)
    }

    /// The hit ratio of a cache that holds all data: all references except first uses.
    fn hit_ratio_max(&self) -> f64 {
        match self.references {
            0 => 0.0,
            references => 1.0 - self.blocks as f64 / references as f64,
        }
    }

    /// Whether `hither run` can steer a cache of this size.
    fn can_be_steered(&self, cache_blocks: u32) -> bool {
        self.steerable && u64::from(cache_blocks) * self.block_bytes >= STEERABLE_MIN_BYTES
    }

    /// Whether a change in a cache of this size can be advised. For a program's files, a cache that
    /// is too small to be steered is advised only if the user named its size.
    fn can_be_advised(&self, cache_blocks: u32) -> bool {
        !self.steerable || self.asked_sizes || self.can_be_steered(cache_blocks)
    }

    /// Whether the advice may be about a cache of this size.
    fn is_here(&self, outcome: &CacheOutcome) -> bool {
        self.here
            .is_none_or(|blocks| u64::from(outcome.cache_blocks) == blocks)
    }

    /// For each policy that does not need the future, the candidates at all sizes.
    fn candidates_by_policy(&self) -> impl Iterator<Item = Vec<Candidate<'a>>> {
        let rows = self.caches.rows().iter();
        let rows = rows.filter(|row| !row.policy.entry().needs.future);
        rows.map(|row| {
            let pairs = row.cells.iter().zip(self.outcomes_of("lru")).enumerate();
            let candidates = pairs.map(|(at, (outcome, lru))| Candidate {
                at,
                spec: &row.policy,
                outcome,
                lru,
                best: &row.policy,
                eligible_sizes: row.cells.len(),
            });
            candidates.collect()
        })
    }

    /// The change of policy to advise.
    ///
    /// First the policy with the highest gain over LRU on average over the sizes, at the size where
    /// it gains most. The average prevents a policy that is slightly better at one size from being
    /// preferred to one that is better overall. If there is a gain at sizes that a run can steer,
    /// only those sizes count. Then, of the policies that gain nearly as much at that size, the one
    /// that needs to know least.
    pub(crate) fn candidate(&self) -> Option<Candidate<'a>> {
        if self.outcomes_of("lru").is_empty() || self.outcomes_of("opt").is_empty() {
            return None;
        }
        let steerable = |one: &Candidate<'_>| self.can_be_steered(one.outcome.cache_blocks);
        let only_steerable = self
            .candidates_by_policy()
            .flatten()
            .any(|one| steerable(&one) && one.gain() >= GAIN_MIN_HIT_RATIO);
        let eligible = || {
            let filtered = |candidates: Vec<Candidate<'a>>| -> Vec<Candidate<'a>> {
                candidates
                    .into_iter()
                    .filter(|one| !only_steerable || steerable(one))
                    .filter(|one| self.is_here(one.outcome))
                    .collect()
            };
            self.candidates_by_policy().map(filtered)
        };
        let sum = |of_policy: &[Candidate<'_>]| of_policy.iter().map(Candidate::gain).sum::<f64>();
        let best_sum = eligible()
            .map(|of_policy| sum(&of_policy))
            .fold(f64::MIN, f64::max);
        // Of equally good policies the first.
        let of_best = eligible().find(|of_policy| sum(of_policy) >= best_sum)?;
        let eligible_sizes = of_best.len();
        let best = of_best
            .into_iter()
            .max_by(|a, b| a.gain().total_cmp(&b.gain()))?;
        let near_best = self
            .candidates_by_policy()
            .map(|of_policy| Candidate {
                best: best.spec,
                eligible_sizes,
                ..of_policy[best.at]
            })
            .filter(|one| one.gain() >= NEAR_BEST_SHARE * best.gain());
        near_best.min_by(|a, b| {
            let least =
                knowledge_needed(a.spec.entry().needs).cmp(&knowledge_needed(b.spec.entry().needs));
            least.then_with(|| b.gain().total_cmp(&a.gain()))
        })
    }

    /// The cache that a larger one is compared with: the smallest simulated size, or the smallest
    /// that a run can steer if that is larger and the user named no size.
    fn smallest<'b>(&self, second: &'b SecondPass) -> Option<&'b CacheOutcome>
    where
        'a: 'b,
    {
        let lru = self.outcomes_of("lru").iter();
        let lru = lru.filter(|lru| self.is_here(lru));
        let smallest = lru.min_by_key(|lru| lru.cache_blocks)?;
        if self.can_be_advised(smallest.cache_blocks) {
            return Some(smallest);
        }
        let mut larger = second.lru.iter();
        larger
            .find(|lru| self.can_be_steered(lru.cache_blocks))
            .or(second.lru.last())
            .or(Some(smallest))
    }

    /// The advice that follows.
    pub(crate) fn advice(&self, second: &SecondPass) -> CacheAdvice {
        let hit_ratio_max = self.hit_ratio_max();
        if self.references == 0 {
            return no_change(
                "Nothing to do: the program referenced no block of any file.".to_owned(),
            );
        }
        let (Some(candidate), Some(smallest)) = (self.candidate(), self.smallest(second)) else {
            return no_change(
                "Too little was simulated for advice: it takes lru and opt at one size or more."
                    .to_owned(),
            );
        };
        let gain_max = hit_ratio_max - smallest.hit_ratio;
        if hit_ratio_max < GAIN_MIN_HIT_RATIO {
            let sentence = format!(
                "Nothing to do: {} of the references are first uses, which no cache can serve.",
                percent(1.0 - hit_ratio_max)
            );
            return self.with_confidence(
                Claim::NoGain,
                candidate.lru,
                candidate.outcome,
                no_change(sentence),
            );
        }
        if gain_max < GAIN_MIN_HIT_RATIO {
            let sentence = format!(
                "Nothing to do: a cache of {} already serves {} of the references, \
                 at most {} less than a cache of all data.",
                self.size(smallest.cache_blocks.into()),
                percent(smallest.hit_ratio),
                counted((gain_max * 100.0).ceil().max(0.0) as u64, "point")
            );
            // No change gains more than a cache that holds all data.
            let largest = second.lru.last().unwrap_or(candidate.outcome);
            let mut advice = no_change(sentence);
            self.mention_small(&candidate, &mut advice);
            return self.with_confidence(Claim::NoGain, smallest, largest, advice);
        }
        let twice_blocks = candidate.lru.cache_blocks.saturating_mul(2);
        let twice = second.largest_lru_up_to(candidate.lru, twice_blocks);
        let twice_gain = twice.map_or(0.0, |(_, gain)| gain);
        if candidate.gain() >= GAIN_MIN_HIT_RATIO
            && self.can_be_advised(candidate.outcome.cache_blocks)
            && DOUBLE_CACHE_GAIN_FACTOR * candidate.gain() >= twice_gain
        {
            self.another_policy(&candidate, second)
        } else {
            self.more_cache(smallest, &candidate, second)
        }
    }

    /// How the size of the cache was chosen, in words, where there was a choice.
    fn size_choice(&self, candidate: &Candidate<'_>) -> Option<String> {
        let size = self.size(candidate.outcome.cache_blocks.into());
        let simulated = self.caches.sizes().len();
        let of_steerable = if candidate.eligible_sizes == simulated {
            ""
        } else {
            " that `hither run` steers"
        };
        match candidate.eligible_sizes {
            _ if simulated == 1 => None,
            _ if self.here.is_some() => Some(format!(
                "{size} is the memory that the recorded program had; --size names others."
            )),
            1 => Some(format!(
                "{size} is the only simulated size{of_steerable}; --size names others."
            )),
            sizes => Some(format!(
                "Of the {sizes} simulated sizes{of_steerable}, {size} is the one at which {} \
                 gains most; --size names others.",
                policy(candidate.best)
            )),
        }
    }

    /// The advice to use another policy in the same cache.
    fn another_policy(&self, candidate: &Candidate<'_>, second: &SecondPass) -> CacheAdvice {
        let (gain, at) = (candidate.gain(), candidate.at);
        let (outcome, lru) = (candidate.outcome, candidate.lru);
        let gain_max = self.outcomes_of("opt")[at].hit_ratio - lru.hit_ratio;
        let saved = (gain * self.references as f64).round() as u64;
        let here = u64::from(outcome.cache_blocks);
        let name = policy(candidate.spec);
        let mut sentences = vec![
            format!(
                "Cheapest: another replacement policy. In the same cache of {}, {name} serves {} \
                 of the references where LRU, much like the kernel, serves {}: {} of the {} points \
                 that the optimum gains.",
                self.size(here),
                percent(outcome.hit_ratio),
                percent(lru.hit_ratio),
                points(gain),
                points(gain_max)
            ),
            match &self.expected {
                Some(expected) => expected::sentence(expected),
                None => format!(
                    "That is {} fewer blocks ({}) from storage.",
                    count(saved),
                    bytes(saved * self.block_bytes)
                ),
            },
        ];
        sentences.extend(self.size_choice(candidate));
        let mut others = Vec::new();
        let same_size = self.candidates_by_policy().map(|of_policy| of_policy[at]);
        let best = same_size.max_by(|a, b| a.gain().total_cmp(&b.gain()));
        let more = |best: &Candidate<'_>| best.gain() - gain;
        if let Some(best) = best.filter(|best| more(best) >= ROUNDS_TO_ZERO_HIT_RATIO) {
            let more = points(more(&best));
            let knowing = match knowledge_needed(best.spec.entry().needs) {
                2 => ", but needs to know call sites",
                1 => ", but needs to know files",
                _ => "",
            };
            sentences.push(format!(
                "{} gains {more} points more{knowing}.",
                policy(best.spec)
            ));
            others.push(Change {
                policy: Some(*best.spec),
                from_blocks: here,
                cache_blocks: here,
                gain: best.gain(),
            });
        }
        let mut lru_by_size = second.lru.iter();
        if let Some(larger) = lru_by_size.find(|larger| larger.hit_ratio >= outcome.hit_ratio) {
            let blocks = u64::from(larger.cache_blocks);
            let nearly_all = NEARLY_ALL_DATA_SHARE * self.blocks as f64;
            sentences.push(if blocks as f64 >= nearly_all {
                format!(
                    "LRU does as well only where nearly all {} of the data fit.",
                    self.size(self.blocks)
                )
            } else {
                format!(
                    "LRU does as well only in a cache of {}, {:.1} times as large.",
                    self.size(blocks),
                    blocks as f64 / here as f64
                )
            });
            others.push(larger_lru(lru, larger));
        }
        if self.steerable && !self.can_be_steered(outcome.cache_blocks) {
            sentences.push(format!(
                "`hither run` cannot steer a cache this small: it takes {} or more.",
                bytes(STEERABLE_MIN_BYTES)
            ));
        }
        let variants = second.variants.iter().filter_map(|variant| {
            let lru = second.lru_of(variant.cache_blocks)?;
            Some(Change {
                policy: Some(variant.spec),
                from_blocks: variant.cache_blocks.into(),
                cache_blocks: variant.cache_blocks.into(),
                gain: variant.hit_ratio - lru.hit_ratio,
            })
        });
        let advice = CacheAdvice {
            change: Recommendation::Policy,
            policy: Some(*candidate.spec),
            cache_blocks: Some(here),
            from_blocks: Some(here),
            gain,
            gain_max,
            alternatives: others,
            variants: variants.collect(),
            expected: self.expected,
            obstacle: None,
            confidence: None,
            sentences,
        };
        self.with_confidence(Claim::Gain, lru, outcome, advice)
    }

    /// The advice to use a larger cache.
    fn more_cache(
        &self,
        smallest: &CacheOutcome,
        candidate: &Candidate<'_>,
        second: &SecondPass,
    ) -> CacheAdvice {
        let gain_max = self.hit_ratio_max() - smallest.hit_ratio;
        let wanted = smallest.hit_ratio + NEAR_BEST_SHARE * gain_max;
        let mut lru_by_size = second.lru.iter();
        let enough = lru_by_size
            .find(|larger| larger.hit_ratio >= wanted)
            .or(second.lru.last())
            .unwrap_or(smallest);
        let (here, blocks) = (
            u64::from(smallest.cache_blocks),
            u64::from(enough.cache_blocks),
        );
        let gain = enough.hit_ratio - smallest.hit_ratio;
        let mut sentences = vec![format!(
            "A larger cache helps: {}, {:.1} times as large, serves {} of the references \
             where {} serves {}: {} of the {} points that a cache of all {} of the data gains.",
            self.size(blocks),
            blocks as f64 / here as f64,
            percent(enough.hit_ratio),
            self.size(here),
            percent(smallest.hit_ratio),
            points(gain),
            points(gain_max),
            self.size(self.blocks)
        )];
        let sizes = self.caches.sizes();
        if sizes.len() > 1 && self.here.is_none() {
            let least = sizes.iter().map(|size| size.blocks).min();
            let why = if self.can_be_advised(least.unwrap_or(0)) {
                "simulated size"
            } else {
                "size that `hither run` steers"
            };
            sentences.push(format!(
                "{} is the smallest {why}; --size names others.",
                self.size(here)
            ));
        }
        let mut others = Vec::new();
        let twice = smallest.cache_blocks.saturating_mul(2);
        if u64::from(twice) < blocks
            && let Some((larger, gained)) = second.largest_lru_up_to(smallest, twice)
        {
            sentences.push(format!(
                "Twice the cache, {}, gains {} points.",
                self.size(larger.cache_blocks.into()),
                points(gained)
            ));
            others.push(larger_lru(smallest, larger));
        }
        if candidate.gain() >= GAIN_MIN_HIT_RATIO
            && self.can_be_advised(candidate.outcome.cache_blocks)
        {
            let change = candidate.change();
            sentences.push(format!(
                "Without more memory, {} gains {} points over LRU in a cache of {}.",
                policy(candidate.spec),
                points(change.gain),
                self.size(change.cache_blocks)
            ));
            others.push(change);
        } else if candidate.gain() < GAIN_MIN_HIT_RATIO {
            let both = self.outcomes_of("opt").iter().zip(self.outcomes_of("lru"));
            let left = both.map(|(opt, lru)| opt.hit_ratio - lru.hit_ratio);
            let left = left.fold(0.0, f64::max);
            let optimum = if left >= GAIN_MIN_HIT_RATIO {
                format!("although the optimum would by up to {}", points(left))
            } else {
                "and not even the optimum would".to_owned()
            };
            sentences.push(format!(
                "No policy that was simulated beats LRU by {} points or more at any size, \
                 {optimum}.",
                (GAIN_MIN_HIT_RATIO * 100.0).round()
            ));
        }
        let mut advice = CacheAdvice {
            change: Recommendation::Size,
            policy: None,
            cache_blocks: Some(blocks),
            from_blocks: Some(here),
            gain,
            gain_max,
            alternatives: others,
            variants: Vec::new(),
            expected: None,
            obstacle: None,
            confidence: None,
            sentences,
        };
        self.mention_small(candidate, &mut advice);
        self.with_confidence(Claim::Gain, smallest, enough, advice)
    }

    /// Mentions a change that gains but whose cache is too small to be advised.
    fn mention_small(&self, candidate: &Candidate<'_>, advice: &mut CacheAdvice) {
        let change = candidate.change();
        if change.gain < GAIN_MIN_HIT_RATIO || self.can_be_advised(candidate.outcome.cache_blocks) {
            return;
        }
        advice.sentences.push(format!(
            "In a cache of {}, {} would gain {} points over LRU; \
             `hither run` steers caches of {} and more.",
            self.size(change.cache_blocks),
            policy(candidate.spec),
            points(change.gain),
            bytes(STEERABLE_MIN_BYTES)
        ));
        advice.alternatives.push(change);
    }

    /// Adds to the advice how sure it is.
    fn with_confidence(
        &self,
        claim: Claim,
        from: &CacheOutcome,
        to: &CacheOutcome,
        mut advice: CacheAdvice,
    ) -> CacheAdvice {
        let mut doubts = self.doubts.clone();
        let of_forecast = advice.expected.as_ref().and_then(expected::doubt);
        doubts.extend(of_forecast.map(Doubt::unbounded));
        if let Some(estimate) = to.estimate
            && estimate.standard_error.is_none()
        {
            doubts.push(Doubt::unbounded(
                "the error of a sample this small is unknown".to_owned(),
            ));
        }
        if claim == Claim::Gain {
            let uses = self.references as f64 / self.blocks.max(1) as f64;
            doubts.push(Doubt {
                words: format!("a block is used only {uses:.1} times on average"),
                strength: strength(uses, REFERENCES_PER_BLOCK),
            });
            let by_gain = |a: &&Change, b: &&Change| a.gain.total_cmp(&b.gain);
            if let Some(least) = advice.variants.iter().min_by(by_gain)
                && advice.gain > 0.0
            {
                doubts.push(Doubt {
                    words: format!(
                        "{} in a cache of {} gains {}",
                        least.policy.map_or("lru".to_owned(), |spec| policy(&spec)),
                        self.size(least.cache_blocks),
                        points(least.gain)
                    ),
                    strength: strength(least.gain / advice.gain, VARIANT_GAIN_SHARE),
                });
            }
        }
        let confidence = Confidence::of(claim, from, to, doubts);
        advice.sentences.push(confidence.sentence(claim));
        advice.confidence = Some(confidence);
        advice
    }
}

/// The strength of the doubt about a value that is the better the larger: 0 at the first limit,
/// 1 at the second.
fn strength(value: f64, [none, one]: [f64; 2]) -> f64 {
    ((none - value) / (none - one)).max(0.0)
}

/// A policy in a document: its name, and its parameters that differ from the defaults.
fn as_text<S: Serializer>(spec: &Option<Spec>, serializer: S) -> Result<S::Ok, S::Error> {
    spec.as_ref().map(policy).serialize(serializer)
}

/// The change to LRU in a larger cache.
fn larger_lru(from: &CacheOutcome, to: &CacheOutcome) -> Change {
    Change {
        policy: None,
        from_blocks: from.cache_blocks.into(),
        cache_blocks: to.cache_blocks.into(),
        gain: to.hit_ratio - from.hit_ratio,
    }
}

/// The advice to change nothing.
fn no_change(sentence: String) -> CacheAdvice {
    CacheAdvice {
        change: Recommendation::Nothing,
        policy: None,
        cache_blocks: None,
        from_blocks: None,
        gain: 0.0,
        gain_max: 0.0,
        alternatives: Vec::new(),
        variants: Vec::new(),
        expected: None,
        obstacle: None,
        confidence: None,
        sentences: vec![sentence],
    }
}

#[cfg(test)]
mod tests;
