//! From simulated hit ratios to advice: what would help, how much, and what would not.
//!
//! Two points of hit ratio are taken as the least that is worth a change: below it the choice of trace, not of policy,
//! decides.

use serde::Serialize;

use crate::format::{bytes, count, percent};
use crate::plan::Plan;

/// The smallest gain in hit ratio worth acting on.
const WORTH: f64 = 0.02;

/// What is advised, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// Another replacement policy.
    Policy,
    /// A cache of the right size; the policy matters little.
    Size,
    /// Nothing: caching already does what it can, or can do nothing.
    Nothing,
}

/// The advice.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Advice {
    /// What to change.
    pub(crate) change: Kind,
    /// The policy to use, where another one helps.
    pub(crate) policy: Option<String>,
    /// The cache size in blocks at which the change gains most, or which is enough.
    pub(crate) cache_blocks: Option<u64>,
    /// The gain in hit ratio there, over LRU.
    pub(crate) gain: f64,
    /// The advice in words.
    pub(crate) sentences: Vec<String>,
}

impl Advice {
    /// What `hither run` could apply of it: a policy, in a cache that is not too small to be steered.
    pub(crate) fn plan(&self, block_bytes: u64) -> Option<Plan> {
        let bytes = self.cache_blocks? * block_bytes;
        let policy = self.policy.clone()?;
        (bytes >= hither_live::files::BUDGET_MIN_BYTES).then(|| Plan {
            files: Some(policy),
            cache: Some(match bytes {
                large if large >= 16 << 20 => format!("{}MiB", large.div_ceil(1 << 20)),
                small => format!("{}KiB", small.div_ceil(1 << 10)),
            }),
            ..Plan::default()
        })
    }
}

/// What the advice goes by.
pub(crate) struct Evidence<'a> {
    pub(crate) references: u64,
    pub(crate) blocks: u64,
    pub(crate) block_bytes: u64,
    /// The simulated sizes in blocks, ascending.
    pub(crate) sizes: &'a [u64],
    /// Policies with their hit ratio at each size. `lru` and `opt` are among them.
    pub(crate) ratios: &'a [(String, Vec<f64>)],
}

impl Evidence<'_> {
    fn ratios_of(&self, policy: &str) -> &[f64] {
        self.ratios
            .iter()
            .find(|(name, _)| name == policy)
            .map_or(&[], |(_, ratios)| ratios)
    }

    fn size(&self, blocks: u64) -> String {
        bytes(blocks * self.block_bytes)
    }

    /// The best that any cache of any size could do: everything but first uses.
    fn ceiling(&self) -> f64 {
        if self.references == 0 {
            0.0
        } else {
            1.0 - self.blocks as f64 / self.references as f64
        }
    }

    /// The policy that gains most over LRU on the average of the sizes, and the size at which it gains most. The average
    /// keeps a policy that wins by a hair at one size from being preferred to one that is good at all.
    fn best(&self) -> Option<(usize, &str, f64)> {
        let lru = self.ratios_of("lru");
        let gains = |ratios: &[f64]| -> Vec<f64> {
            ratios
                .iter()
                .zip(lru)
                .map(|(ratio, lru)| ratio - lru)
                .collect()
        };
        let (policy, gains) = self
            .ratios
            .iter()
            .filter(|(name, _)| name != "opt")
            .map(|(name, ratios)| (name.as_str(), gains(ratios)))
            .max_by(|(_, a), (_, b)| a.iter().sum::<f64>().total_cmp(&b.iter().sum()))?;
        let (at, gain) = gains
            .iter()
            .copied()
            .enumerate()
            .max_by(|a, b| a.1.total_cmp(&b.1))?;
        Some((at, policy, gain))
    }

    /// The advice that follows.
    pub(crate) fn advice(&self) -> Advice {
        let ceiling = self.ceiling();
        if self.references == 0 {
            return nothing(
                "The program referenced no block of any file: there is nothing to cache."
                    .to_owned(),
            );
        }
        if self.sizes.is_empty()
            || self.ratios_of("lru").is_empty()
            || self.ratios_of("opt").is_empty()
        {
            return nothing(
                "Too little was simulated for advice: it takes lru and opt at one size or more."
                    .to_owned(),
            );
        }
        if ceiling < WORTH {
            return nothing(format!(
                "{} of the references are first uses: no cache, of whatever policy or size, serves those.",
                percent(1.0 - ceiling)
            ));
        }
        match self.best() {
            Some((at, policy, gain)) if gain >= WORTH => self.another_policy(at, policy, gain),
            _ => self.same_policy(ceiling),
        }
    }

    fn another_policy(&self, at: usize, policy: &str, gain: f64) -> Advice {
        let (lru, opt) = (self.ratios_of("lru"), self.ratios_of("opt"));
        let ratio = lru[at] + gain;
        let saved = (gain * self.references as f64).round() as u64;
        let mut sentences = vec![
            format!(
                "Another replacement policy would help: in a cache of {}, {policy} serves {} of the references where \
                 LRU, much like the kernel, serves {}; the optimum is {}.",
                self.size(self.sizes[at]),
                percent(ratio),
                percent(lru[at]),
                percent(opt[at])
            ),
            format!(
                "That is {} fewer blocks ({}) from storage.",
                count(saved),
                bytes(saved * self.block_bytes)
            ),
        ];
        sentences.push(
            match (at + 1..self.sizes.len()).find(|&larger| lru[larger] >= ratio) {
                Some(larger) => {
                    format!(
                        "LRU does as well only in a cache of {} or so.",
                        self.size(self.sizes[larger])
                    )
                }
                None => format!(
                    "LRU does as well only where nearly all {} of the data fit.",
                    self.size(self.blocks)
                ),
            },
        );
        Advice {
            change: Kind::Policy,
            policy: Some(policy.to_owned()),
            cache_blocks: Some(self.sizes[at]),
            gain,
            sentences,
        }
    }

    fn same_policy(&self, ceiling: f64) -> Advice {
        let (lru, opt) = (self.ratios_of("lru"), self.ratios_of("opt"));
        let enough = (0..self.sizes.len()).find(|&at| lru[at] >= ceiling - WORTH);
        let left = lru
            .iter()
            .zip(opt)
            .map(|(lru, opt)| opt - lru)
            .fold(0.0, f64::max);
        let policies = format!(
            "No policy that was simulated beats LRU by {} points or more at any size",
            (WORTH * 100.0).round()
        );
        let policies = if left >= WORTH {
            format!(
                "{policies}, although the optimum would by up to {:.1}.",
                left * 100.0
            )
        } else {
            format!("{policies}, and not even the optimum would.")
        };
        match enough {
            Some(0) => nothing(format!(
                "Nothing to do: a cache of {} already serves {} of the references, all that are not first uses but for \
                 {} points.",
                self.size(self.sizes[0]),
                percent(lru[0]),
                ((ceiling - lru[0]) * 100.0).ceil()
            )),
            Some(at) => Advice {
                change: Kind::Size,
                policy: None,
                cache_blocks: Some(self.sizes[at]),
                gain: lru[at] - lru[0],
                sentences: vec![
                    policies,
                    format!(
                        "What helps is room: a cache of {} serves {} of the references, against {} in {}.",
                        self.size(self.sizes[at]),
                        percent(lru[at]),
                        percent(lru[0]),
                        self.size(self.sizes[0])
                    ),
                ],
            },
            None => Advice {
                change: Kind::Size,
                policy: None,
                cache_blocks: Some(self.blocks),
                gain: ceiling - lru[0],
                sentences: vec![
                    policies,
                    format!(
                        "What helps is room for all {} of the data: {} of the references are not first uses.",
                        self.size(self.blocks),
                        percent(ceiling)
                    ),
                ],
            },
        }
    }
}

fn nothing(sentence: String) -> Advice {
    Advice {
        change: Kind::Nothing,
        policy: None,
        cache_blocks: None,
        gain: 0.0,
        sentences: vec![sentence],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advice(references: u64, blocks: u64, ratios: &[(&str, [f64; 3])]) -> Advice {
        let ratios: Vec<_> = ratios
            .iter()
            .map(|(name, ratios)| ((*name).to_owned(), ratios.to_vec()))
            .collect();
        Evidence {
            references,
            blocks,
            block_bytes: 4096,
            sizes: &[100, 250, 500],
            ratios: &ratios,
        }
        .advice()
    }

    #[test]
    fn a_loop_calls_for_another_policy() {
        let advice = advice(
            10_000,
            1000,
            &[
                ("lru", [0.0, 0.0, 0.0]),
                ("pcc", [0.08, 0.2, 0.44]),
                ("opt", [0.09, 0.225, 0.45]),
            ],
        );
        assert_eq!(advice.change, Kind::Policy);
        assert_eq!(
            (advice.policy.as_deref(), advice.cache_blocks),
            (Some("pcc"), Some(500))
        );
        assert!(
            advice.sentences[1].starts_with("That is 4,400 fewer blocks"),
            "{:?}",
            advice.sentences
        );
        assert!(
            advice.sentences[2].contains("nearly all"),
            "{:?}",
            advice.sentences
        );
    }

    #[test]
    fn first_uses_cannot_be_served() {
        let advice = advice(1000, 990, &[("lru", [0.01; 3]), ("opt", [0.01; 3])]);
        assert_eq!(advice.change, Kind::Nothing);
        assert!(advice.sentences[0].starts_with("99.0 % of the references are first uses"));
    }

    #[test]
    fn a_working_set_that_fits_needs_nothing() {
        let advice = advice(
            10_000,
            1000,
            &[("lru", [0.895; 3]), ("arc", [0.896; 3]), ("opt", [0.9; 3])],
        );
        assert_eq!(advice.change, Kind::Nothing);
    }

    #[test]
    fn where_policies_are_alike_room_helps() {
        let advice = advice(
            10_000,
            1000,
            &[("lru", [0.3, 0.6, 0.89]), ("opt", [0.31, 0.61, 0.9])],
        );
        assert_eq!(
            (advice.change, advice.cache_blocks),
            (Kind::Size, Some(500))
        );
        assert!(
            advice.sentences[0].ends_with("not even the optimum would."),
            "{:?}",
            advice.sentences
        );
    }

    #[test]
    fn nothing_referenced_is_said_so() {
        assert!(advice(0, 0, &[]).sentences[0].contains("no block"));
    }
}
