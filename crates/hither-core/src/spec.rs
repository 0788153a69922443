//! A policy as a user writes it, `pcc{threshold=100,sample=20,other=arc}`: parsed, checked against
//! the registry, and written out again with every default, so that a result says exactly what
//! produced it.
//!
//! Generators of traces are written in the same way, from a registry of their own: what can be
//! named so is a [`RegistryEntry`], and a [`Spec`] is one of policies unless it says otherwise.

use crate::placement::{self, Target};
use crate::registry::{self, Param, ParamKind, ReplacementEntry, ReplacementSettings};
use crate::replacement::ReplacementPolicy;
use std::fmt;
use std::str::FromStr;

/// An entry of a registry that users name, with parameters.
pub trait RegistryEntry: Sized + 'static {
    /// What such an entry is, in an error: `policy`.
    const SINGULAR: &'static str;
    /// What several are.
    const PLURAL: &'static str;
    /// The registry, sorted by name.
    fn all() -> &'static [Self];
    /// What a user writes.
    fn name(&self) -> &'static str;
    /// Its parameters, in the order in which they are written out.
    fn params(&self) -> &'static [Param];
}

impl RegistryEntry for ReplacementEntry {
    const SINGULAR: &'static str = "policy";
    const PLURAL: &'static str = "policies";

    fn all() -> &'static [ReplacementEntry] {
        registry::replacement_policies()
    }

    fn name(&self) -> &'static str {
        self.name
    }

    fn params(&self) -> &'static [Param] {
        self.params
    }
}

/// A policy (or another [`RegistryEntry`]) with a value for each of its parameters.
#[derive(Debug)]
pub struct Spec<E: 'static = ReplacementEntry> {
    entry: &'static E,
    values: Values,
}

impl<E> Clone for Spec<E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E> Copy for Spec<E> {}

/// The most parameters that a policy has.
const PARAMS_MAX: usize = 16;

/// The values of a policy's parameters, in the order of its entry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Values([Value; PARAMS_MAX]);

/// The value of a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
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

    /// The parameter at `index` of the entry, a [`ParamKind::Replacement`]: that policy with its
    /// defaults.
    pub fn policy(&self, index: usize) -> Spec {
        match self.0[index] {
            Value::Replacement(name) => {
                Spec::defaults(registry::find(name).expect("checked on parsing"))
            }
            other => panic!("parameter {index} is {other:?}, not a policy"),
        }
    }

    /// The parameter at `index` of the entry, a [`ParamKind::Placement`]: that placement with its
    /// defaults.
    pub fn placement(&self, index: usize) -> Spec<placement::PlacementEntry> {
        match self.0[index] {
            Value::Placement(name) => {
                Spec::defaults(inner_placement(name).expect("checked on parsing"))
            }
            other => panic!("parameter {index} is {other:?}, not a placement"),
        }
    }

    /// The parameter at `index` of the entry, a [`ParamKind::Name`].
    pub fn name(&self, index: usize) -> &'static str {
        match self.0[index] {
            Value::Name(name) => name,
            other => panic!("parameter {index} is {other:?}, not a name"),
        }
    }
}

/// Why a text is not a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// Not `name` or `name{parameter=value,...}`.
    #[error("`{text}` is not a {what}: write NAME or NAME{{PARAMETER=VALUE,...}}")]
    Syntax {
        /// What was written.
        text: String,
        /// What should have been: [`RegistryEntry::SINGULAR`].
        what: &'static str,
    },
    /// No entry of that name.
    #[error("unknown {what} `{name}`{hint}; the {all} are {known}")]
    Unknown {
        /// What was asked for: [`RegistryEntry::SINGULAR`].
        what: &'static str,
        /// What there is: [`RegistryEntry::PLURAL`].
        all: &'static str,
        /// What was written.
        name: String,
        /// ` (did you mean ...?)`, or nothing.
        hint: String,
        /// All names.
        known: String,
    },
    /// The entry has no parameter of that name.
    #[error("`{of}` has no parameter `{name}`{hint}; {known}")]
    UnknownParameter {
        /// The entry.
        of: &'static str,
        /// What was written.
        name: String,
        /// ` (did you mean ...?)`, or nothing.
        hint: String,
        /// The parameters it has.
        known: String,
    },
    /// A parameter was given twice.
    #[error("`{of}`: `{name}` is given twice")]
    Repeated {
        /// The entry.
        of: &'static str,
        /// The parameter.
        name: &'static str,
    },
    /// A value of the wrong type or out of range.
    #[error("`{of}`: `{name}={value}` is not allowed: {name} is {allowed}")]
    Value {
        /// The entry.
        of: &'static str,
        /// The parameter.
        name: &'static str,
        /// What was written.
        value: String,
        /// What may be written.
        allowed: String,
    },
}

impl<E: RegistryEntry> Spec<E> {
    /// `entry` with all defaults.
    pub fn defaults(entry: &'static E) -> Self {
        let mut values = [Value::Count(0); PARAMS_MAX];
        for (value, param) in values.iter_mut().zip(entry.params()) {
            *value = param.kind.default();
        }
        Spec {
            entry,
            values: Values(values),
        }
    }

    /// The entry.
    pub fn entry(&self) -> &'static E {
        self.entry
    }

    /// The values of its parameters, in the order of the entry.
    pub fn values(&self) -> &Values {
        &self.values
    }

    /// Splits a list such as `lru,pcc{sample=1,other=arc},opt` at the commas outside braces and
    /// parses each.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, SpecError> {
        let mut depth = 0;
        text.split(|c| {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            c == ',' && depth == 0
        })
        .map(str::parse)
        .collect()
    }

    /// Every parameter with its value, in the order of the entry.
    pub fn params(&self) -> impl Iterator<Item = (&'static Param, Value)> + use<E> {
        self.entry.params().iter().zip(self.values.0)
    }
}

impl Spec {
    /// Makes the policy.
    pub fn build(&self, settings: &ReplacementSettings<'_>) -> Box<dyn ReplacementPolicy> {
        (self.entry.build)(settings, &self.values)
    }
}

impl<E: RegistryEntry> PartialEq for Spec<E> {
    fn eq(&self, other: &Self) -> bool {
        self.entry.name() == other.entry.name() && self.values == other.values
    }
}

impl<E: RegistryEntry> fmt::Display for Spec<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.entry.name())?;
        for (index, (param, value)) in self.params().enumerate() {
            let before = if index == 0 { '{' } else { ',' };
            write!(f, "{before}{}={value}", param.name)?;
        }
        if self.entry.params().is_empty() {
            Ok(())
        } else {
            f.write_str("}")
        }
    }
}

impl<E: RegistryEntry> FromStr for Spec<E> {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let text = text.trim();
        let syntax = || SpecError::Syntax {
            text: text.to_owned(),
            what: E::SINGULAR,
        };
        let (name, list) = match text.split_once('{') {
            None => (text, ""),
            Some((name, rest)) => (name.trim_end(), rest.strip_suffix('}').ok_or_else(syntax)?),
        };
        if name.is_empty() || name.contains('}') || list.contains(['{', '}']) {
            return Err(syntax());
        }
        let named = E::all().iter().find(|entry| entry.name() == name);
        let entry = named.ok_or_else(|| {
            let names = E::all().iter().map(E::name);
            SpecError::Unknown {
                what: E::SINGULAR,
                all: E::PLURAL,
                name: name.to_owned(),
                hint: hint(name, names.clone()),
                known: names.collect::<Vec<_>>().join(", "),
            }
        })?;
        let mut spec = Spec::defaults(entry);
        let mut given = [false; PARAMS_MAX];
        for part in list.split(',').map(str::trim) {
            if part.is_empty() && list.trim().is_empty() {
                break;
            }
            let (name, value) = part.split_once('=').ok_or_else(syntax)?;
            let (name, value) = (name.trim(), value.trim());
            let at = entry
                .params()
                .iter()
                .position(|param| param.name == name)
                .ok_or_else(|| unknown_parameter(entry, name))?;
            let param = &entry.params()[at];
            if std::mem::replace(&mut given[at], true) {
                return Err(SpecError::Repeated {
                    of: entry.name(),
                    name: param.name,
                });
            }
            spec.values.0[at] = param.kind.parse(value).ok_or_else(|| SpecError::Value {
                of: entry.name(),
                name: param.name,
                value: value.to_owned(),
                allowed: param.kind.allowed(),
            })?;
        }
        Ok(spec)
    }
}

impl ParamKind {
    /// The value where the user says nothing.
    pub fn default(self) -> Value {
        match self {
            ParamKind::Count { default, .. } => Value::Count(default),
            ParamKind::Real { default, .. } => Value::Real(default),
            ParamKind::Replacement { default } => Value::Replacement(default),
            ParamKind::Placement { default } => Value::Placement(default),
            ParamKind::Name { default, .. } => Value::Name(default),
        }
    }

    fn parse(self, text: &str) -> Option<Value> {
        match self {
            ParamKind::Count { min, max, .. } => {
                let value = parse_count(text)?;
                (min..=max).contains(&value).then_some(Value::Count(value))
            }
            ParamKind::Real { min, max, .. } => {
                let value = text.parse().ok()?;
                (min..=max).contains(&value).then_some(Value::Real(value))
            }
            ParamKind::Replacement { .. } => {
                let entry = registry::find(text)?;
                entry
                    .needs
                    .nothing()
                    .then_some(Value::Replacement(entry.name))
            }
            ParamKind::Placement { .. } => Some(Value::Placement(inner_placement(text)?.name)),
            ParamKind::Name { names, .. } => {
                let name = names.iter().find(|name| **name == text)?;
                Some(Value::Name(name))
            }
        }
    }

    /// What may be written for a parameter of this kind, in words.
    pub fn allowed(self) -> String {
        match self {
            ParamKind::Count { min, max, .. } if max == u64::MAX => {
                format!("a whole number of at least {min}")
            }
            ParamKind::Count { min, max, .. } => format!("a whole number from {min} to {max}"),
            ParamKind::Real { min, max, .. } => format!("a number from {min} to {max}"),
            ParamKind::Replacement { .. } => {
                let names: Vec<_> = registry::replacement_policies()
                    .iter()
                    .filter(|entry| entry.needs.nothing())
                    .map(|entry| entry.name)
                    .collect();
                format!("one of {}", names.join(", "))
            }
            ParamKind::Name { names, .. } => format!("one of {}", names.join(", ")),
            ParamKind::Placement { .. } => {
                let names: Vec<_> = inner_placements().map(|entry| entry.name).collect();
                format!("one of {}", names.join(", "))
            }
        }
    }
}

/// The placements that another one may be made of.
fn inner_placements() -> impl Iterator<Item = &'static placement::PlacementEntry> {
    placement::placement_policies()
        .iter()
        .filter(move |entry| entry.target() == Target::Memory && !entry.is_made_of_another())
}

fn inner_placement(name: &str) -> Option<&'static placement::PlacementEntry> {
    inner_placements().find(|entry| entry.name == name)
}

/// A whole number as people write it: `4096`, `64k`, `10M`, `2G` (powers of 1000, as numbers of
/// blocks or references are; sizes in bytes are another matter).
pub fn parse_count(text: &str) -> Option<u64> {
    let units = [
        ('k', 1_000),
        ('K', 1_000),
        ('M', 1_000_000),
        ('G', 1_000_000_000),
    ];
    let unit = units
        .into_iter()
        .find(|(suffix, _)| text.ends_with(*suffix));
    let (digits, factor) = match unit {
        Some((suffix, factor)) => (text.strip_suffix(suffix)?, factor),
        None => (text, 1),
    };
    let whole = digits.bytes().all(|byte| byte.is_ascii_digit());
    let value: u64 = whole.then(|| digits.parse().ok()).flatten()?;
    value.checked_mul(factor)
}

fn unknown_parameter<E: RegistryEntry>(entry: &'static E, name: &str) -> SpecError {
    let names = entry.params().iter().map(|param| param.name);
    SpecError::UnknownParameter {
        of: entry.name(),
        name: name.to_owned(),
        hint: hint(name, names.clone()),
        known: if entry.params().is_empty() {
            "it has none".to_owned()
        } else {
            format!("it has {}", names.collect::<Vec<_>>().join(", "))
        },
    }
}

/// ` (did you mean ...?)` for the nearest of `names`, if it is at most two edits away and not all
/// edited.
pub(crate) fn hint(written: &str, names: impl Iterator<Item = &'static str>) -> String {
    names
        .map(|name| (distance(written, name), name))
        .min()
        .filter(|&(edits, name)| edits <= 2 && edits < name.len())
        .map_or_else(String::new, |(_, name)| {
            format!(" (did you mean `{name}`?)")
        })
}

/// The edit distance (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let above = row[j + 1];
            row[j + 1] = (diagonal + usize::from(from != *to))
                .min(above + 1)
                .min(row[j] + 1);
            diagonal = above;
        }
    }
    row[b.len()]
}
