//! The list of all replacement policies. Help, documentation tables, completions, default
//! comparisons and what can run live come from it; there is no second list. A new policy is one
//! file in `replacement/` and one entry here. [Placements](crate::placement) have a list of their
//! own; what entries have in common is in [`entry`](crate::entry).

pub use crate::entry::{
    BuildReplacement, Compared, Mechanism, Needs, Param, ParamKind, PolicyNames, Preset,
    ReplacementEntry, ReplacementSettings,
};
use crate::replacement::*;
use crate::spec::{RegistryEntry, Spec};

impl RegistryEntry for ReplacementEntry {
    const SINGULAR: &'static str = "policy";
    const PLURAL: &'static str = "policies";

    fn all() -> &'static [ReplacementEntry] {
        REPLACEMENT_POLICIES
    }

    fn name(&self) -> &'static str {
        self.name
    }

    fn params(&self) -> &'static [Param] {
        self.params
    }
}

/// Specs, with their defaults, of the entries with a position, ordered by it.
pub(crate) fn ordered<E: RegistryEntry>(
    entries: impl Iterator<Item = (Option<u8>, &'static E)>,
) -> Vec<Spec<E>> {
    let mut ordered: Vec<_> = entries
        .filter_map(|(position, entry)| Some((position?, entry)))
        .collect();
    ordered.sort_by_key(|&(position, _)| position);
    let entries = ordered.into_iter();
    entries.map(|(_, entry)| Spec::defaults(entry)).collect()
}

/// All policies, by name.
pub fn replacement_policies() -> &'static [ReplacementEntry] {
    REPLACEMENT_POLICIES
}

/// The policy that others are compared with, and the default where none is named: plain LRU.
pub fn baseline() -> Spec {
    compared_everywhere()[0]
}

/// The default policies of simulations and sweeps.
pub fn compared_everywhere() -> Vec<Spec> {
    let entries = REPLACEMENT_POLICIES.iter();
    ordered(entries.map(|entry| (entry.compared.everywhere(), entry)))
}

/// The default policies of advice and reports.
pub fn compared_in_advice() -> Vec<Spec> {
    let entries = REPLACEMENT_POLICIES.iter();
    ordered(entries.map(|entry| (entry.compared.position(), entry)))
}

/// The policy called `name`.
pub fn find(name: &str) -> Option<&'static ReplacementEntry> {
    REPLACEMENT_POLICIES
        .binary_search_by(|entry| entry.name.cmp(name))
        .ok()
        .map(|at| &REPLACEMENT_POLICIES[at])
}

/// One line a policy, sorted by name; the rest of it is in its file.
static REPLACEMENT_POLICIES: &[ReplacementEntry] = &[
    two_q::ENTRY,
    arc::ENTRY,
    camp::ENTRY,
    car::ENTRY,
    clock::ENTRY,
    clock_pro::ENTRY,
    dear::ENTRY,
    eelru::ENTRY,
    fifo::ENTRY,
    gdsf::ENTRY,
    hyperbolic::ENTRY,
    lecar::ENTRY,
    lfu::ENTRY,
    lfu_da::ENTRY,
    lhd::ENTRY,
    lirs::ENTRY,
    lrfu::ENTRY,
    lru::ENTRY,
    lru_k::ENTRY,
    mq::ENTRY,
    mru::ENTRY,
    opt::ENTRY,
    pcc::ENTRY,
    random::ENTRY,
    s3_fifo::ENTRY,
    seq::ENTRY,
    sieve::ENTRY,
    slru::ENTRY,
    ubm::ENTRY,
    w_tinylfu::ENTRY,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Spec;

    #[test]
    fn sorted_unique_documented_and_parseable() {
        assert!(
            REPLACEMENT_POLICIES
                .windows(2)
                .all(|pair| pair[0].name < pair[1].name)
        );
        for entry in REPLACEMENT_POLICIES {
            for text in [entry.name, entry.summary, entry.source] {
                assert!(!text.trim().is_empty(), "{} lacks a text", entry.name);
            }
            let mut names: Vec<_> = entry.params.iter().map(|param| param.name).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), entry.params.len(), "{}", entry.name);
            assert!(entry.params.iter().all(|param| !param.doc.is_empty()));

            let spec: Spec = entry.name.parse().expect("defaults are valid");
            let written = spec.to_string();
            assert_eq!(
                written.parse::<Spec>().expect("what it writes it reads"),
                spec
            );
            spec.build(&ReplacementSettings::new(1)).check(0);
        }
    }

    #[test]
    fn presets_set_parameters_that_there_are_and_one_changes_nothing() {
        for entry in REPLACEMENT_POLICIES {
            for param in entry.params {
                let ParamKind::Preset { default, presets } = param.kind else {
                    continue;
                };
                assert_eq!(param.kind.preset(default), Some(&[][..]), "{}", entry.name);
                let values = presets.iter().flat_map(|preset| preset.values);
                for &(name, value) in values {
                    let mut params = entry.params.iter();
                    let set = params.find(|param| param.name == name);
                    let set = set.unwrap_or_else(|| panic!("{} has no {name}", entry.name));
                    assert!(set.kind.allows(value), "{}: {name}={value}", entry.name);
                    assert_ne!(set.kind.default(), value, "{}: {name}", entry.name);
                }
            }
        }
    }
}
