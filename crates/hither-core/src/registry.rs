//! The list of all replacement policies, and what each says of itself. Help, documentation tables,
//! completions, default comparisons and what can run live come from it; there is no second list. A
//! new policy is one file in `replacement/` and one entry here. The same words (parameters, needs)
//! describe [placements](crate::placement), which have a list of their own.

use crate::replacement::*;
use crate::spec::{RegistryEntry, Spec, Values};

/// One replacement policy.
#[derive(Debug)]
pub struct ReplacementEntry {
    /// What a user writes; also the name of its file, with `_` for `-` (and `two_q` for `2q`).
    pub name: &'static str,
    /// One line on what it keeps.
    pub summary: &'static str,
    /// Where it comes from.
    pub source: &'static str,
    /// Its parameters, in the order in which they are written out.
    pub params: &'static [Param],
    /// What it must know of an access. A trace that lacks it is refused.
    pub needs: Needs,
    /// The mechanisms of `hither run` that it can govern; empty for simulation only.
    pub live: &'static [Mechanism],
    /// Whether it is compared where the user names no policies.
    pub compared: Compared,
    /// Makes one.
    pub build: fn(&ReplacementSettings<'_>, &Values) -> Box<dyn ReplacementPolicy>,
}

impl ReplacementEntry {
    /// Whether it can govern a mechanism of a running program.
    pub fn runs(&self, mechanism: Mechanism) -> bool {
        self.live.contains(&mechanism)
    }
}

/// A parameter of a policy.
#[derive(Debug)]
pub struct Param {
    /// What a user writes.
    pub name: &'static str,
    /// One line on what it does.
    pub doc: &'static str,
    /// Its type, default and range.
    pub kind: ParamKind,
}

/// The type of a parameter, with its default and inclusive range.
#[derive(Clone, Copy, Debug)]
pub enum ParamKind {
    /// A whole number.
    Count {
        /// Where the user says nothing.
        default: u64,
        /// The smallest allowed.
        min: u64,
        /// The largest allowed.
        max: u64,
    },
    /// A real number.
    Real {
        /// Where the user says nothing.
        default: f64,
        /// The smallest allowed.
        min: f64,
        /// The largest allowed.
        max: f64,
    },
    /// The name of another policy, one that needs nothing special ([`Needs::nothing`]).
    Replacement {
        /// Where the user says nothing.
        default: &'static str,
    },
    /// The name of a [placement](crate::placement) of memory that itself is not made of another
    /// one.
    Placement {
        /// Where the user says nothing.
        default: &'static str,
    },
    /// One of some names.
    Name {
        /// Where the user says nothing.
        default: &'static str,
        /// What may be written.
        names: &'static [&'static str],
    },
}

/// What a policy must know of an access beyond its block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// When the block is referenced next.
    pub future: bool,
    /// The call site.
    pub sites: bool,
    /// The file or region, and the position in it.
    pub objects: bool,
    /// The process.
    pub processes: bool,
    /// All accesses of the run by block and node, before it starts: for placements.
    pub totals: bool,
}

impl Needs {
    /// The block alone.
    pub const NOTHING: Needs = Needs {
        future: false,
        sites: false,
        objects: false,
        processes: false,
        totals: false,
    };

    /// All that there is to know.
    pub const ALL: Needs = Needs {
        future: true,
        sites: true,
        objects: true,
        processes: true,
        totals: true,
    };

    /// What both need together.
    pub fn and(self, other: Needs) -> Needs {
        Needs {
            future: self.future || other.future,
            sites: self.sites || other.sites,
            objects: self.objects || other.objects,
            processes: self.processes || other.processes,
            totals: self.totals || other.totals,
        }
    }

    /// True where the block alone is enough.
    pub fn nothing(self) -> bool {
        self == Needs::NOTHING
    }

    /// What is needed, in words.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let named = [
            (self.future, "the future"),
            (self.sites, "call sites"),
            (self.objects, "files"),
            (self.processes, "processes"),
            (self.totals, "who will use what"),
        ];
        named
            .into_iter()
            .filter_map(|(needed, name)| needed.then_some(name))
    }
}

/// A mechanism of `hither run` that a policy can govern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mechanism {
    /// What the page cache keeps of a program's files.
    PageCache,
    /// Which nodes hold copies of a program's files.
    Replicas,
    /// On which node pages of files are placed.
    FilePlacement,
    /// On which node pages of memory are placed.
    Memory,
}

/// Whether a policy is compared where the user names none, and at which position: the baseline is
/// at 1, and each position is used once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compared {
    /// Only where it is named.
    ByName,
    /// In advice and reports, which take their time.
    InAdvice(u8),
    /// In simulations and sweeps as well.
    Everywhere(u8),
}

impl Compared {
    /// The position in a simulation or sweep.
    pub fn everywhere(self) -> Option<u8> {
        match self {
            Compared::Everywhere(position) => Some(position),
            Compared::InAdvice(_) | Compared::ByName => None,
        }
    }

    /// The position in advice and reports.
    pub fn position(self) -> Option<u8> {
        match self {
            Compared::Everywhere(position) | Compared::InAdvice(position) => Some(position),
            Compared::ByName => None,
        }
    }
}

/// Entries with a position, in that order, with their defaults.
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

/// What a policy is built for.
#[derive(Clone, Copy, Debug)]
pub struct ReplacementSettings<'a> {
    /// How many blocks the cache holds, at least one.
    pub capacity: u32,
    /// What is already known of the call sites, for policies that learn about them.
    pub sites: &'a [SiteRecord],
}

impl ReplacementSettings<'_> {
    /// A cache of `capacity` blocks and no prior knowledge.
    pub fn new(capacity: u32) -> Self {
        ReplacementSettings {
            capacity,
            sites: &[],
        }
    }
}

/// All policies, by name.
pub fn replacement_policies() -> &'static [ReplacementEntry] {
    REPLACEMENT_POLICIES
}

/// The policy that others are compared to, and that is used where none is named: plain LRU.
pub fn baseline() -> Spec {
    compared_everywhere()[0]
}

/// The policies that simulations and sweeps compare where the user names none.
pub fn compared_everywhere() -> Vec<Spec> {
    let entries = REPLACEMENT_POLICIES.iter();
    ordered(entries.map(|entry| (entry.compared.everywhere(), entry)))
}

/// The policies that advice and reports compare where the user names none.
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

/// The parameter `expire` of the partitioned policies.
pub(crate) const EXPIRE: Param = Param {
    name: "expire",
    doc: "a loop that has not come back for so many of its periods is over; \
          0: never (as in the papers)",
    kind: ParamKind::Real {
        default: 2.0,
        min: 0.0,
        max: 1e6,
    },
};

/// The parameter `other` of the partitioned policies.
pub(crate) const OTHER: Param = Param {
    name: "other",
    doc: "the policy for blocks that are neither sequential nor looping",
    kind: ParamKind::Replacement { default: "lru" },
};

/// One line a policy, sorted by name; the rest of it is in its file.
static REPLACEMENT_POLICIES: &[ReplacementEntry] = &[
    two_q::ENTRY,
    arc::ENTRY,
    car::ENTRY,
    clock::ENTRY,
    dear::ENTRY,
    eelru::ENTRY,
    fifo::ENTRY,
    lfu::ENTRY,
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
}
