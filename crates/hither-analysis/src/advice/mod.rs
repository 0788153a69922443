//! From simulated hit ratios to advice: the cheapest change that gets most of the gain, how much
//! that is, and how sure.
//!
//! A change of policy costs no memory, so it comes before a larger cache; only where twice the
//! cache would gain more than three times as much is that the advice (of a loop a cache of half of
//! it can keep a half, and twice that all). Of the policies that gain nearly as much as the best,
//! the one that has to know least is taken. How sure it is goes by what the experiments taught
//! (`docs/results/papers.md`): a gain may be that of one phase, may hang on the size being just
//! this one, and what a policy learns of call sites may hang on how it samples them.

mod confidence;

use hither_core::Spec;
use hither_core::registry::Needs;
use hither_sim::{CacheConfiguration, CacheOutcome};
use serde::Serialize;

use crate::format::{bytes, count, counted, percent, policy};
use crate::run_plan::RunPlan;
use confidence::Claim;
pub(crate) use confidence::STRETCHES;
pub use confidence::{Confidence, Level};

/// The smallest gain in hit ratio worth acting on: below it the choice of trace, not of policy,
/// decides.
const GAIN_MIN_HIT_RATIO: f64 = 0.02;

/// The part of a gain that stands for nearly all of it.
const NEAR_BEST_SHARE: f64 = 0.9;

/// How many times as much twice the cache has to gain to be preferred to another policy.
const DOUBLE_CACHE_GAIN_FACTOR: f64 = 3.0;

/// The fewest references a block, on average, from which something may be said of what is used
/// again.
const REFERENCES_PER_BLOCK_MIN: u64 = 3;

/// The smallest cache in bytes that `hither run` can steer.
pub const STEERABLE_MIN_BYTES: u64 = 8 << 20;

/// What is advised, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Recommendation {
    /// Another replacement policy.
    Policy,
    /// A cache of the right size; the policy matters little.
    Size,
    /// Nothing: caching already does what it can, or can do nothing.
    Nothing,
}

/// A step away from LRU in a cache of some size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Another policy; nothing where it stays LRU.
    pub policy: Option<String>,
    /// The cache that it starts from, in blocks.
    pub from_blocks: u64,
    /// The cache that it ends with.
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
    pub policy: Option<String>,
    /// The cache in blocks at which the change gains most, or which is enough.
    pub cache_blocks: Option<u64>,
    /// The gain in hit ratio there, over LRU.
    pub gain: f64,
    /// The most that could be gained from there: by the optimum in the same cache, or by a cache
    /// with room for everything.
    pub gain_max: f64,
    /// What else gains, and what it costs.
    pub alternatives: Vec<Change>,
    /// The change of policy if things were a little different.
    pub variants: Vec<Change>,
    /// How sure it is; nothing where nothing was simulated.
    pub confidence: Option<Confidence>,
    /// The advice in words.
    pub sentences: Vec<String>,
}

impl CacheAdvice {
    /// What `hither run` could apply of it: a policy, in a cache that is not too small to be
    /// steered.
    pub fn plan(&self, block_bytes: u64) -> Option<RunPlan> {
        let bytes = self.cache_blocks? * block_bytes;
        let policy = self.policy.clone()?;
        (bytes >= STEERABLE_MIN_BYTES).then(|| RunPlan {
            page_cache: Some(policy),
            cache: Some(match bytes {
                large if large >= 16 << 20 => format!("{}MiB", large.div_ceil(1 << 20)),
                small => format!("{}KiB", small.div_ceil(1 << 10)),
            }),
            ..RunPlan::default()
        })
    }
}

/// What the advice goes by.
pub(crate) struct AdviceInput<'a> {
    pub(crate) references: u64,
    pub(crate) blocks: u64,
    pub(crate) block_bytes: u64,
    /// The policies that were simulated. Without `lru` and `opt` there is no advice.
    pub(crate) policies: &'a [Spec],
    /// The simulated sizes in blocks, as they were named.
    pub(crate) sizes: &'a [u32],
    /// By policy, then by size, in [`STRETCHES`].
    pub(crate) outcomes: &'a [CacheOutcome],
    /// Whether `hither run` could steer the cache, if it is large enough.
    pub(crate) steerable: bool,
    /// Whether somebody asked about caches of these sizes: else they are no more than parts of the
    /// data.
    pub(crate) asked_sizes: bool,
    /// What the trace lacks.
    pub(crate) doubts: Vec<String>,
}

/// What there is to know besides, once it is clear which change is in question.
#[derive(Default)]
pub(crate) struct Alternatives {
    /// LRU in caches up to one for all blocks, ascending, in [`STRETCHES`]; those of the input
    /// are among them.
    pub(crate) lru: Vec<CacheOutcome>,
    /// What [`Candidate::variants`] asked for.
    pub(crate) variants: Vec<(CacheConfiguration, CacheOutcome)>,
}

/// The change of policy that is in question.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate<'a> {
    /// The number of the size at which it gains most.
    at: usize,
    spec: &'a Spec,
    outcome: &'a CacheOutcome,
    lru: &'a CacheOutcome,
}

impl Candidate<'_> {
    fn gain(&self) -> f64 {
        self.outcome.hit_ratio - self.lru.hit_ratio
    }

    fn change(&self) -> Change {
        Change {
            policy: Some(policy(self.spec)),
            from_blocks: self.outcome.cache_blocks.into(),
            cache_blocks: self.outcome.cache_blocks.into(),
            gain: self.gain(),
        }
    }

    /// The same change with a little less and a little more cache, and for a policy that samples
    /// with other periods.
    pub(crate) fn variants(&self) -> Vec<CacheConfiguration> {
        let size = self.outcome.cache_blocks;
        let sizes = [
            size - size / 5,
            size.saturating_add(size / 4).min(u32::MAX - 1),
        ];
        let sizes = sizes.into_iter().filter(|&other| other != size);
        let of_sizes = sizes.map(|cache_blocks| (*self.spec, cache_blocks));
        let of_periods = periods(self.spec).into_iter().map(|spec| (spec, size));
        let all = of_sizes.chain(of_periods);
        all.map(|(spec, cache_blocks)| CacheConfiguration { spec, cache_blocks })
            .collect()
    }
}

/// A policy with a fifth and five times its sampling period, if it has one.
fn periods(spec: &Spec) -> Vec<Spec> {
    let sample = |factor: fn(u64) -> u64| -> Option<Spec> {
        let mut sampled = false;
        let params: Vec<String> = spec
            .params()
            .map(|(param, value)| match param.name {
                "sample" => {
                    sampled = true;
                    let period = value.to_string().parse().unwrap_or(1);
                    format!("sample={}", factor(period))
                }
                name => format!("{name}={value}"),
            })
            .collect();
        let text = format!("{}{{{}}}", spec.entry().name, params.join(","));
        sampled.then(|| text.parse().ok()).flatten()
    };
    let others = [
        sample(|period| (period / 5).max(1)),
        sample(|period| 5 * period),
    ];
    let others = others.into_iter().flatten();
    others.filter(|other| other != spec).collect()
}

/// How much a policy has to be told, from nothing but blocks to the call sites.
fn knowledge_needed(needs: Needs) -> u8 {
    match needs {
        Needs { sites: true, .. } => 2,
        needs => u8::from(needs.objects || needs.processes),
    }
}

impl<'a> AdviceInput<'a> {
    fn of(&self, name: &str) -> &'a [CacheOutcome] {
        let place = self
            .policies
            .iter()
            .position(|spec| spec.entry().name == name);
        place.map_or(&[], |place| self.row(place))
    }

    fn row(&self, place: usize) -> &'a [CacheOutcome] {
        let sizes = self.sizes.len();
        &self.outcomes[place * sizes..(place + 1) * sizes]
    }

    fn size(&self, blocks: u64) -> String {
        bytes(blocks * self.block_bytes)
    }

    /// The best that any cache of any size could do: everything but first uses.
    fn ceiling(&self) -> f64 {
        match self.references {
            0 => 0.0,
            references => 1.0 - self.blocks as f64 / references as f64,
        }
    }

    fn can_be_steered(&self, cache_blocks: u32) -> bool {
        self.steerable && u64::from(cache_blocks) * self.block_bytes >= STEERABLE_MIN_BYTES
    }

    /// Whether a change in a cache of this size can be advised: what a program's files would gain
    /// in a cache that nobody can steer is of use to those alone who asked for it.
    fn can_be_advised(&self, cache_blocks: u32) -> bool {
        !self.steerable || self.asked_sizes || self.can_be_steered(cache_blocks)
    }

    /// The change to each policy that does not know the future, at each size.
    fn rows(&self) -> impl Iterator<Item = Vec<Candidate<'a>>> {
        let specs = self.policies.iter().enumerate();
        let specs = specs.filter(|(_, spec)| !spec.entry().needs.future);
        specs.map(|(place, spec)| {
            let row = self.row(place).iter().zip(self.of("lru")).enumerate();
            let row = row.map(|(at, (outcome, lru))| Candidate {
                at,
                spec,
                outcome,
                lru,
            });
            row.collect()
        })
    }

    /// The change of policy that gains most over LRU, on the average of the sizes, at the size at
    /// which it gains most. The average keeps a policy that wins by a hair at one size from being
    /// preferred to one that is good at all. Where something is gained at sizes that a run could
    /// steer, only these count. Of those that gain nearly as much there, it is the policy that has
    /// to be told least.
    pub(crate) fn candidate(&self) -> Option<Candidate<'a>> {
        if self.of("lru").is_empty() || self.of("opt").is_empty() {
            return None;
        }
        let steered = |one: &Candidate<'_>| self.can_be_steered(one.outcome.cache_blocks);
        let some = self
            .rows()
            .flatten()
            .any(|one| steered(&one) && one.gain() >= GAIN_MIN_HIT_RATIO);
        let rows = || {
            let counted = |row: Vec<Candidate<'a>>| -> Vec<Candidate<'a>> {
                row.into_iter()
                    .filter(|one| !some || steered(one))
                    .collect()
            };
            self.rows().map(counted)
        };
        let sum = |row: &[Candidate<'_>]| row.iter().map(Candidate::gain).sum::<f64>();
        let best_sum = rows().map(|row| sum(&row)).fold(f64::MIN, f64::max);
        // Of equals the first.
        let best = rows()
            .find(|row| sum(row) >= best_sum)?
            .into_iter()
            .max_by(|a, b| a.gain().total_cmp(&b.gain()))?;
        let nearly = self
            .rows()
            .map(|row| row[best.at])
            .filter(|one| one.gain() >= NEAR_BEST_SHARE * best.gain());
        nearly.min_by(|a, b| {
            let least =
                knowledge_needed(a.spec.entry().needs).cmp(&knowledge_needed(b.spec.entry().needs));
            least.then_with(|| b.gain().total_cmp(&a.gain()))
        })
    }

    /// The cache that room is added to: the smallest that was asked about, or else the smallest
    /// that there may be.
    fn smallest<'b>(&self, alternatives: &'b Alternatives) -> Option<&'b CacheOutcome>
    where
        'a: 'b,
    {
        let smallest = self.of("lru").iter().min_by_key(|lru| lru.cache_blocks)?;
        if self.can_be_advised(smallest.cache_blocks) {
            return Some(smallest);
        }
        let mut larger = alternatives.lru.iter();
        larger
            .find(|lru| self.can_be_steered(lru.cache_blocks))
            .or(alternatives.lru.last())
            .or(Some(smallest))
    }

    /// The advice that follows.
    pub(crate) fn advice(&self, alternatives: &Alternatives) -> CacheAdvice {
        let ceiling = self.ceiling();
        if self.references == 0 {
            return nothing(
                "The program referenced no block of any file: there is nothing to cache."
                    .to_owned(),
            );
        }
        let (Some(candidate), Some(smallest)) = (self.candidate(), self.smallest(alternatives))
        else {
            return nothing(
                "Too little was simulated for advice: it takes lru and opt at one size or more."
                    .to_owned(),
            );
        };
        let to_gain = ceiling - smallest.hit_ratio;
        if ceiling < GAIN_MIN_HIT_RATIO {
            let sentence = format!(
                "{} of the references are first uses: \
                 no cache, of whatever policy or size, serves those.",
                percent(1.0 - ceiling)
            );
            return self.surely(Claim::Nothing, &candidate, nothing(sentence));
        }
        if to_gain < GAIN_MIN_HIT_RATIO {
            let sentence = format!(
                "Nothing to do: a cache of {} already serves {} of the references, \
                 all that are not first uses but for {}.",
                self.size(smallest.cache_blocks.into()),
                percent(smallest.hit_ratio),
                counted((to_gain * 100.0).ceil().max(0.0) as u64, "point")
            );
            // Whatever is done, it cannot gain more than room for everything.
            let most = alternatives.lru.last().unwrap_or(candidate.outcome);
            let mut advice = nothing(sentence);
            self.mention_small(&candidate, &mut advice);
            return self.with_confidence(Claim::Nothing, smallest, most, advice);
        }
        let twice =
            alternatives.gain_at_most(candidate.lru, candidate.lru.cache_blocks.saturating_mul(2));
        let twice = twice.map_or(0.0, |(_, gain)| gain);
        if candidate.gain() >= GAIN_MIN_HIT_RATIO
            && self.can_be_advised(candidate.outcome.cache_blocks)
            && DOUBLE_CACHE_GAIN_FACTOR * candidate.gain() >= twice
        {
            self.another_policy(&candidate, alternatives)
        } else {
            self.more_cache(smallest, &candidate, alternatives)
        }
    }

    fn another_policy(
        &self,
        candidate: &Candidate<'_>,
        alternatives: &Alternatives,
    ) -> CacheAdvice {
        let (gain, at) = (candidate.gain(), candidate.at);
        let (outcome, lru) = (candidate.outcome, candidate.lru);
        let gain_max = self.of("opt")[at].hit_ratio - lru.hit_ratio;
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
            format!(
                "That is {} fewer blocks ({}) from storage.",
                count(saved),
                bytes(saved * self.block_bytes)
            ),
        ];
        let mut others = Vec::new();
        let here_too = self.rows().map(|row| row[at]);
        let best = here_too.max_by(|a, b| a.gain().total_cmp(&b.gain()));
        // What rounds to nothing is nothing.
        if let Some(best) = best.filter(|best| best.gain() - gain >= 0.0005) {
            let other = policy(best.spec);
            let more = points(best.gain() - gain);
            let knowing = match knowledge_needed(best.spec.entry().needs) {
                2 => " and has to know call sites",
                1 => " and has to know files",
                _ => "",
            };
            sentences.push(format!("{other} gains {more} points more{knowing}."));
            others.push(Change {
                policy: Some(other),
                from_blocks: here,
                cache_blocks: here,
                gain: best.gain(),
            });
        }
        let mut ladder = alternatives.lru.iter();
        if let Some(larger) = ladder.find(|larger| larger.hit_ratio >= outcome.hit_ratio) {
            let blocks = u64::from(larger.cache_blocks);
            sentences.push(match blocks as f64 >= 0.95 * self.blocks as f64 {
                true => format!(
                    "LRU does as well only where nearly all {} of the data fit.",
                    self.size(self.blocks)
                ),
                false => format!(
                    "LRU does as well only in a cache of {}, {:.1} times as large.",
                    self.size(blocks),
                    blocks as f64 / here as f64
                ),
            });
            others.push(lru_at(lru, larger));
        }
        if self.steerable && !self.can_be_steered(outcome.cache_blocks) {
            sentences.push(format!(
                "A cache this small is nothing that `hither run` can steer: it takes {} or more.",
                bytes(STEERABLE_MIN_BYTES)
            ));
        }
        let variants = alternatives
            .variants
            .iter()
            .filter_map(|(variant, outcome)| {
                let lru = alternatives.at(variant.cache_blocks)?;
                Some(Change {
                    policy: Some(policy(&variant.spec)),
                    from_blocks: variant.cache_blocks.into(),
                    cache_blocks: variant.cache_blocks.into(),
                    gain: outcome.hit_ratio - lru.hit_ratio,
                })
            });
        let advice = CacheAdvice {
            change: Recommendation::Policy,
            policy: Some(name),
            cache_blocks: Some(here),
            gain,
            gain_max,
            alternatives: others,
            variants: variants.collect(),
            confidence: None,
            sentences,
        };
        self.surely(Claim::Gain, candidate, advice)
    }

    fn more_cache(
        &self,
        smallest: &CacheOutcome,
        candidate: &Candidate<'_>,
        alternatives: &Alternatives,
    ) -> CacheAdvice {
        let gain_max = self.ceiling() - smallest.hit_ratio;
        let wanted = smallest.hit_ratio + NEAR_BEST_SHARE * gain_max;
        let enough = alternatives
            .lru
            .iter()
            .find(|larger| larger.hit_ratio >= wanted)
            .or(alternatives.lru.last())
            .unwrap_or(smallest);
        let (here, blocks) = (
            u64::from(smallest.cache_blocks),
            u64::from(enough.cache_blocks),
        );
        let gain = enough.hit_ratio - smallest.hit_ratio;
        let mut sentences = vec![format!(
            "What helps is room: a cache of {}, {:.1} times as large, serves {} of the references \
             where {} serves {}: {} of the {} points that room for all {} of the data gains.",
            self.size(blocks),
            blocks as f64 / here as f64,
            percent(enough.hit_ratio),
            self.size(here),
            percent(smallest.hit_ratio),
            points(gain),
            points(gain_max),
            self.size(self.blocks)
        )];
        let mut others = Vec::new();
        let twice = smallest.cache_blocks.saturating_mul(2);
        if u64::from(twice) < blocks
            && let Some((larger, gained)) = alternatives.gain_at_most(smallest, twice)
        {
            sentences.push(format!(
                "Twice the cache, {}, gains {} points.",
                self.size(larger.cache_blocks.into()),
                points(gained)
            ));
            others.push(lru_at(smallest, larger));
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
            let left = self.of("opt").iter().zip(self.of("lru"));
            let left = left.map(|(opt, lru)| opt.hit_ratio - lru.hit_ratio);
            let left = left.fold(0.0, f64::max);
            let optimum = match left >= GAIN_MIN_HIT_RATIO {
                true => format!("although the optimum would by up to {}", points(left)),
                false => "and not even the optimum would".to_owned(),
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
            gain,
            gain_max,
            alternatives: others,
            variants: Vec::new(),
            confidence: None,
            sentences,
        };
        self.mention_small(candidate, &mut advice);
        self.with_confidence(Claim::Gain, smallest, enough, advice)
    }

    /// A change that gains, but in too small a cache to be advised.
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

    fn surely(&self, claim: Claim, candidate: &Candidate<'_>, advice: CacheAdvice) -> CacheAdvice {
        self.with_confidence(claim, candidate.lru, candidate.outcome, advice)
    }

    /// The same advice, and how sure it is.
    fn with_confidence(
        &self,
        claim: Claim,
        from: &CacheOutcome,
        to: &CacheOutcome,
        mut advice: CacheAdvice,
    ) -> CacheAdvice {
        let mut doubts = self.doubts.clone();
        if let Some(estimate) = to.estimate
            && estimate.standard_error.is_none()
        {
            doubts.push("a sample this small has an error that nobody knows".to_owned());
        }
        if claim == Claim::Gain {
            if self.references < REFERENCES_PER_BLOCK_MIN * self.blocks {
                doubts.push(format!(
                    "a block is used {:.1} times on average, \
                     so that one round more or less changes it",
                    self.references as f64 / self.blocks.max(1) as f64
                ));
            }
            let by_gain = |a: &&Change, b: &&Change| a.gain.total_cmp(&b.gain);
            if let Some(least) = advice.variants.iter().min_by(by_gain)
                && least.gain < advice.gain / 2.0
            {
                doubts.push(format!(
                    "{} in a cache of {} gains {}",
                    least.policy.as_deref().unwrap_or("lru"),
                    self.size(least.cache_blocks),
                    points(least.gain)
                ));
            }
        }
        let confidence = Confidence::of(claim, from, to, doubts);
        advice.sentences.push(confidence.sentence(claim));
        advice.confidence = Some(confidence);
        advice
    }
}

impl Alternatives {
    /// LRU in a cache of just this size, if that was simulated.
    fn at(&self, cache_blocks: u32) -> Option<&CacheOutcome> {
        let at = self
            .lru
            .binary_search_by_key(&cache_blocks, |outcome| outcome.cache_blocks);
        at.ok().map(|at| &self.lru[at])
    }

    /// LRU in the largest cache that was simulated of those that are no larger than this, and what
    /// it gains.
    fn gain_at_most(&self, from: &CacheOutcome, cache_blocks: u32) -> Option<(&CacheOutcome, f64)> {
        let larger = self
            .lru
            .partition_point(|outcome| outcome.cache_blocks <= cache_blocks);
        let outcome = &self.lru[larger.checked_sub(1)?];
        Some((outcome, outcome.hit_ratio - from.hit_ratio))
    }
}

fn lru_at(from: &CacheOutcome, to: &CacheOutcome) -> Change {
    Change {
        policy: None,
        from_blocks: from.cache_blocks.into(),
        cache_blocks: to.cache_blocks.into(),
        gain: to.hit_ratio - from.hit_ratio,
    }
}

/// A part of the references in points of hit ratio: `46.0`; no sign for what rounds to zero.
fn points(ratio: f64) -> String {
    match format!("{:.1}", ratio * 100.0).as_str() {
        "-0.0" => "0.0".to_owned(),
        text => text.to_owned(),
    }
}

fn nothing(sentence: String) -> CacheAdvice {
    CacheAdvice {
        change: Recommendation::Nothing,
        policy: None,
        cache_blocks: None,
        gain: 0.0,
        gain_max: 0.0,
        alternatives: Vec::new(),
        variants: Vec::new(),
        confidence: None,
        sentences: vec![sentence],
    }
}

#[cfg(test)]
mod tests;
