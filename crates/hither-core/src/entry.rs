//! What the registries of policies have in common: what an entry says of a policy, its parameters
//! and their values. Policies import this module; the lists, [`registry`](crate::registry) and
//! [`placement`](crate::placement), import the policies.

use std::fmt;
use std::ops::RangeInclusive;

use serde::Serialize;

use crate::cache::ReplacementPolicy;
use crate::classify::SiteRecord;
use crate::text::parse_count;

/// An entry of a registry: users write its name, with parameters.
pub trait RegistryEntry: Sized + 'static {
    /// What an entry is called in errors: `policy`.
    const SINGULAR: &'static str;
    /// The plural of that.
    const PLURAL: &'static str;
    /// The registry, sorted by name.
    fn all() -> &'static [Self];
    /// What a user writes.
    fn name(&self) -> &'static str;
    /// Its parameters, in the order in which they are written out.
    fn params(&self) -> &'static [Param];
}

/// What builds a replacement policy. For a policy of the registry it is a function.
pub type BuildReplacement =
    dyn Fn(&ReplacementSettings<'_>, &Values) -> Box<dyn ReplacementPolicy> + Send + Sync;

/// The registry entry of a replacement policy.
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
    /// Whether it can rank objects of every size, in a cache of so many bytes.
    pub takes_sizes: bool,
    /// The mechanisms of `hither run` that it can govern; empty for simulation only.
    pub live: &'static [Mechanism],
    /// Whether it is compared where the user names no policies.
    pub compared: Compared,
    /// Builds it.
    pub build: &'static BuildReplacement,
}

impl fmt::Debug for ReplacementEntry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name)
    }
}

impl ReplacementEntry {
    /// Whether it can govern a mechanism of a running program.
    pub fn runs(&self, mechanism: Mechanism) -> bool {
        self.live.contains(&mechanism)
    }
}

/// What a policy is built from.
#[derive(Clone, Copy, Debug)]
pub struct ReplacementSettings<'a> {
    /// How many blocks the cache holds, at least one; 0 for a cache of objects.
    pub capacity: u32,
    /// How many bytes a cache of objects holds. Only for policies that
    /// [take sizes](ReplacementEntry::takes_sizes).
    pub bytes: Option<u64>,
    /// What is already known of the call sites, for policies that learn about them.
    pub sites: &'a [SiteRecord],
}

impl ReplacementSettings<'_> {
    /// A cache of `capacity` blocks and no prior knowledge.
    pub fn new(capacity: u32) -> Self {
        ReplacementSettings {
            capacity,
            bytes: None,
            sites: &[],
        }
    }

    /// A cache of objects of every size, and no prior knowledge.
    pub fn of_bytes(bytes: u64) -> Self {
        ReplacementSettings {
            bytes: Some(bytes),
            ..ReplacementSettings::new(0)
        }
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

/// Lists the names of policies. A function, because the parameter is itself a part of the registry.
pub type PolicyNames = fn() -> Vec<&'static str>;

/// The type of a parameter, with its default and inclusive range.
#[derive(Clone, Copy, Debug)]
pub enum ParamKind {
    /// A whole number.
    Count {
        /// The value if the user gives none.
        default: u64,
        /// The smallest allowed.
        min: u64,
        /// The largest allowed.
        max: u64,
    },
    /// A real number.
    Real {
        /// The value if the user gives none.
        default: f64,
        /// The smallest allowed.
        min: f64,
        /// The largest allowed.
        max: f64,
    },
    /// The name of another replacement policy, one that needs to know the block alone.
    Replacement {
        /// The value if the user gives none.
        default: &'static str,
        /// The names that may be written.
        names: PolicyNames,
    },
    /// The name of another [placement](crate::placement), one of memory that is not made of another
    /// one itself.
    Placement {
        /// The value if the user gives none.
        default: &'static str,
        /// Lists what may be written.
        names: PolicyNames,
    },
    /// One of some names.
    Name {
        /// The value if the user gives none.
        default: &'static str,
        /// What may be written.
        names: &'static [&'static str],
    },
    /// One of some names, each of which gives values to other parameters. Those that the user gives
    /// beside it keep theirs.
    Preset {
        /// The value if the user gives none: one that leaves all others at their defaults.
        default: &'static str,
        /// What may be written.
        presets: &'static [Preset],
    },
}

/// A name for values of several parameters.
#[derive(Debug)]
pub struct Preset {
    /// What a user writes.
    pub name: &'static str,
    /// The parameters that it sets, each with its value. Others are at their defaults.
    pub values: &'static [(&'static str, Value)],
}

impl Param {
    /// A whole number within `range`.
    pub const fn count(
        name: &'static str,
        doc: &'static str,
        default: u64,
        range: RangeInclusive<u64>,
    ) -> Param {
        let (min, max) = (*range.start(), *range.end());
        let kind = ParamKind::Count { default, min, max };
        Param { name, doc, kind }
    }

    /// A real number within `range`.
    pub const fn real(
        name: &'static str,
        doc: &'static str,
        default: f64,
        range: RangeInclusive<f64>,
    ) -> Param {
        let (min, max) = (*range.start(), *range.end());
        let kind = ParamKind::Real { default, min, max };
        Param { name, doc, kind }
    }

    /// One of `names`.
    pub const fn name(
        name: &'static str,
        doc: &'static str,
        default: &'static str,
        names: &'static [&'static str],
    ) -> Param {
        let kind = ParamKind::Name { default, names };
        Param { name, doc, kind }
    }

    /// 1 (yes) or 0 (no).
    pub const fn switch(name: &'static str, doc: &'static str, default: bool) -> Param {
        Param::count(name, doc, default as u64, 0..=1)
    }
}

impl ParamKind {
    /// The value if the user gives none.
    pub fn default(self) -> Value {
        match self {
            ParamKind::Count { default, .. } => Value::Count(default),
            ParamKind::Real { default, .. } => Value::Real(default),
            ParamKind::Replacement { default, .. } => Value::Replacement(default),
            ParamKind::Placement { default, .. } => Value::Placement(default),
            ParamKind::Name { default, .. } | ParamKind::Preset { default, .. } => {
                Value::Name(default)
            }
        }
    }

    pub(crate) fn parse(self, text: &str) -> Option<Value> {
        match self {
            ParamKind::Count { .. } => {
                let value = Value::Count(parse_count(text)?);
                self.allows(value).then_some(value)
            }
            ParamKind::Real { .. } => {
                let value = Value::Real(text.parse().ok()?);
                self.allows(value).then_some(value)
            }
            ParamKind::Replacement { names, .. } => Some(Value::Replacement(one_of(text, names)?)),
            ParamKind::Placement { names, .. } => Some(Value::Placement(one_of(text, names)?)),
            ParamKind::Name { names, .. } => {
                let name = names.iter().find(|name| **name == text)?;
                Some(Value::Name(name))
            }
            ParamKind::Preset { presets, .. } => {
                let preset = presets.iter().find(|preset| preset.name == text)?;
                Some(Value::Name(preset.name))
            }
        }
    }

    /// Whether it may have this value.
    pub(crate) fn allows(self, value: Value) -> bool {
        match (self, value) {
            (ParamKind::Count { min, max, .. }, Value::Count(value)) => {
                (min..=max).contains(&value)
            }
            (ParamKind::Real { min, max, .. }, Value::Real(value)) => (min..=max).contains(&value),
            (ParamKind::Replacement { names, .. }, Value::Replacement(name))
            | (ParamKind::Placement { names, .. }, Value::Placement(name)) => {
                names().contains(&name)
            }
            (ParamKind::Name { names, .. }, Value::Name(name)) => names.contains(&name),
            (ParamKind::Preset { .. }, Value::Name(name)) => self.preset(name).is_some(),
            _ => false,
        }
    }

    /// The values that `name` stands for, where this is a preset that has it.
    pub(crate) fn preset(self, name: &str) -> Option<&'static [(&'static str, Value)]> {
        let ParamKind::Preset { presets, .. } = self else {
            return None;
        };
        let preset = presets.iter().find(|preset| preset.name == name)?;
        Some(preset.values)
    }

    /// What may be written for a parameter of this kind, in words.
    pub fn allowed(self) -> String {
        match self {
            ParamKind::Count { min, max, .. } if max == u64::MAX => {
                format!("a whole number of at least {min}")
            }
            ParamKind::Count { min, max, .. } => format!("a whole number from {min} to {max}"),
            ParamKind::Real { min, max, .. } => format!("a number from {min} to {max}"),
            ParamKind::Replacement { names, .. } | ParamKind::Placement { names, .. } => {
                format!("one of {}", names().join(", "))
            }
            ParamKind::Name { names, .. } => format!("one of {}", names.join(", ")),
            ParamKind::Preset { presets, .. } => {
                let names: Vec<&str> = presets.iter().map(|preset| preset.name).collect();
                format!("one of {}", names.join(", "))
            }
        }
    }
}

fn one_of(text: &str, names: PolicyNames) -> Option<&'static str> {
    names().into_iter().find(|&name| name == text)
}

/// The replacement policies that may be a parameter of another one: those that need to know the
/// block alone.
pub(crate) fn inner_replacements() -> Vec<&'static str> {
    let entries = ReplacementEntry::all().iter();
    let inner = entries.filter(|entry| entry.needs.nothing());
    inner.map(|entry| entry.name).collect()
}

/// The most parameters that a policy has.
pub(crate) const PARAMS_MAX: usize = 16;

/// The values of a policy's parameters, in the order of its entry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Values(pub(crate) [Value; PARAMS_MAX]);

/// The value of a parameter. In documents it is a number or a text.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// A whole number.
    Count(u64),
    /// A real number.
    Real(f64),
    /// The name of a policy.
    Replacement(&'static str),
    /// The name of a placement.
    Placement(&'static str),
    /// One of the names that the parameter allows.
    Name(&'static str),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Count(value) => value.fmt(f),
            Value::Real(value) => value.fmt(f),
            Value::Replacement(value) | Value::Placement(value) | Value::Name(value) => {
                value.fmt(f)
            }
        }
    }
}

impl Values {
    /// The parameter at `index` of the entry, a [`ParamKind::Count`].
    pub fn count(&self, index: usize) -> u64 {
        match self.0[index] {
            Value::Count(value) => value,
            other => panic!("parameter {index} is {other:?}, not a count"),
        }
    }

    /// The parameter at `index` of the entry, a [`ParamKind::Real`].
    pub fn real(&self, index: usize) -> f64 {
        match self.0[index] {
            Value::Real(value) => value,
            other => panic!("parameter {index} is {other:?}, not a real number"),
        }
    }

    /// The name in the parameter at `index` of the entry, a [`ParamKind::Replacement`] or a
    /// [`ParamKind::Placement`].
    pub(crate) fn policy_name(&self, index: usize) -> &'static str {
        match self.0[index] {
            Value::Replacement(name) | Value::Placement(name) => name,
            other => panic!("parameter {index} is {other:?}, not a policy"),
        }
    }

    /// Whether the [`Param::switch`] at `index` of the entry is on.
    pub fn switched(&self, index: usize) -> bool {
        self.count(index) == 1
    }

    /// The parameter at `index` of the entry, a [`ParamKind::Name`] or a [`ParamKind::Preset`].
    pub fn name(&self, index: usize) -> &'static str {
        match self.0[index] {
            Value::Name(name) => name,
            other => panic!("parameter {index} is {other:?}, not a name"),
        }
    }
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
    /// The size of the object, and what it costs. No policy needs them: without, all are alike.
    pub sizes: bool,
}

impl Needs {
    /// The block alone.
    pub const NOTHING: Needs = Needs {
        future: false,
        sites: false,
        objects: false,
        processes: false,
        totals: false,
        sizes: false,
    };

    /// Everything.
    pub const ALL: Needs = Needs {
        future: true,
        sites: true,
        objects: true,
        processes: true,
        totals: true,
        sizes: true,
    };

    /// What either of them needs.
    pub fn and(self, other: Needs) -> Needs {
        Needs {
            future: self.future || other.future,
            sites: self.sites || other.sites,
            objects: self.objects || other.objects,
            processes: self.processes || other.processes,
            totals: self.totals || other.totals,
            sizes: self.sizes || other.sizes,
        }
    }

    /// Whether the block alone is enough.
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
    /// Which pages of a program's files the page cache keeps.
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
