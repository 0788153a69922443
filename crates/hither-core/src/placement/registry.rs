//! The list of all placement policies. Help, documentation tables, default comparisons and what can
//! run live come from it; there is no second list. A new policy is one file in `placement/` and one
//! entry here.

use super::entry::{PlacementEntry, Target};
use crate::entry::{Param, RegistryEntry};
use crate::spec::Spec;

impl RegistryEntry for PlacementEntry {
    const SINGULAR: &'static str = "placement";
    const PLURAL: &'static str = "placements";

    fn all() -> &'static [PlacementEntry] {
        PLACEMENT_POLICIES
    }

    fn name(&self) -> &'static str {
        self.name
    }

    fn params(&self) -> &'static [Param] {
        self.params
    }
}

/// All placement policies, by name.
pub fn placement_policies() -> &'static [PlacementEntry] {
    PLACEMENT_POLICIES
}

/// The default placements of `target` in comparisons, the baseline first.
pub fn compared(target: Target) -> Vec<Spec<PlacementEntry>> {
    let entries = PLACEMENT_POLICIES.iter();
    let entries = entries.filter(|entry| entry.target() == target);
    crate::registry::ordered(entries.map(|entry| (entry.compared.everywhere(), entry)))
}

/// One line a policy, sorted by name; the rest of it is in its file.
static PLACEMENT_POLICIES: &[PlacementEntry] = &[
    super::a_priori::ENTRY,
    super::always_migrate::ENTRY,
    super::autonuma::ENTRY,
    super::cache_aware::ENTRY,
    super::cost_benefit::ENTRY,
    super::dual_layer::ENTRY,
    super::first_and_forever::ENTRY,
    super::first_touch::ENTRY,
    super::local_only::ENTRY,
    super::majority::ENTRY,
    super::one_step::ENTRY,
    super::post_office::ENTRY,
    super::rendezvous::ENTRY,
    super::round_robin::ENTRY,
    super::single_node::ENTRY,
    super::threshold::ENTRY,
    super::upm::ENTRY,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Mechanism;

    #[test]
    fn sorted_unique_documented_and_parseable() {
        assert!(PLACEMENT_POLICIES.is_sorted_by(|a, b| a.name < b.name));
        for entry in PLACEMENT_POLICIES {
            for text in [entry.name, entry.summary, entry.source] {
                assert!(!text.trim().is_empty(), "{} lacks a text", entry.name);
            }
            assert!(entry.params.iter().all(|param| !param.doc.is_empty()));
            let spec: Spec<PlacementEntry> = entry.name.parse().unwrap();
            assert_eq!(
                spec.to_string().parse::<Spec<PlacementEntry>>().unwrap(),
                spec
            );
        }
    }

    /// A mechanism of memory takes no policy for files, nor the other way round.
    #[test]
    fn what_runs_live_places_what_the_mechanism_does() {
        for entry in PLACEMENT_POLICIES {
            for mechanism in entry.live {
                let target = match mechanism {
                    Mechanism::Memory | Mechanism::FilePlacement => Target::Memory,
                    Mechanism::Replicas => Target::Files,
                    Mechanism::PageCache => panic!("{} is no replacement", entry.name),
                };
                assert_eq!(entry.target(), target, "{}", entry.name);
            }
        }
    }

    #[test]
    fn each_target_has_a_baseline_and_no_position_is_taken_twice() {
        for target in [Target::Memory, Target::Files] {
            let entries = PLACEMENT_POLICIES.iter();
            let entries = entries.filter(|entry| entry.target() == target);
            let mut positions: Vec<u8> = entries
                .filter_map(|entry| entry.compared.position())
                .collect();
            positions.sort_unstable();
            assert_eq!(positions, (1..=positions.len() as u8).collect::<Vec<_>>());
            assert!(!positions.is_empty());
        }
        let names = |target| {
            let specs = compared(target).into_iter();
            specs.map(|spec| spec.entry().name).collect::<Vec<_>>()
        };
        assert_eq!(names(Target::Memory)[0], "first-touch");
        assert_eq!(names(Target::Files)[0], "first-and-forever");
    }
}
