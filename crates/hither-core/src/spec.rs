//! A policy as a user writes it, `pcc{threshold=100,sample=20,other=arc}`: parsed, checked against
//! the registry, and written out again with every default, so that a result says exactly what
//! produced it.
//!
//! Generators of traces are written in the same way, from a registry of their own: what can be
//! named so is a [`RegistryEntry`], and a [`Spec`] is one of policies unless it says otherwise.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::cache::ReplacementPolicy;
use crate::entry::{PARAMS_MAX, Param, ReplacementEntry, ReplacementSettings};
use crate::text::hint;

pub use crate::entry::{RegistryEntry, Value, Values};
pub use crate::text::parse_count;

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

impl Values {
    /// The policy that the parameter at `index` of the entry names, with its defaults.
    pub fn policy(&self, index: usize) -> Spec {
        Spec::named(self.policy_name(index)).expect("checked on parsing")
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

    /// The entry of this name, with all defaults.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let entry = E::all().iter().find(|entry| entry.name() == name)?;
        Some(Spec::defaults(entry))
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

    /// The values of its parameters, by name.
    pub fn values_by_name(&self) -> BTreeMap<&'static str, Value> {
        let params = self.params();
        params.map(|(param, value)| (param.name, value)).collect()
    }

    /// The value of the parameter of this name, if it has one.
    pub fn value(&self, name: &str) -> Option<Value> {
        let mut params = self.params();
        params.find_map(|(param, value)| (param.name == name).then_some(value))
    }

    /// The same with another value of a parameter. `None` where it has no such parameter, or one of
    /// another type or range. A preset changes the parameters that it stands for as well.
    pub fn with(mut self, name: &str, value: Value) -> Option<Self> {
        let mut params = self.entry.params().iter();
        let at = params.position(|param| param.name == name)?;
        let allowed = self.entry.params()[at].kind.allows(value);
        self.values.0[at] = value;
        self.apply_preset(at, &[false; PARAMS_MAX]);
        allowed.then_some(self)
    }

    /// If the parameter at `at` is a preset, sets what it stands for, but for what was `given`.
    fn apply_preset(&mut self, at: usize, given: &[bool; PARAMS_MAX]) {
        let params = self.entry.params();
        let Value::Name(chosen) = self.values.0[at] else {
            return;
        };
        for &(name, value) in params[at].kind.preset(chosen).unwrap_or_default() {
            let mut params = params.iter();
            let of = params.position(|param| param.name == name);
            let of = of.expect("a preset names parameters of its entry");
            if !given[of] {
                self.values.0[of] = value;
            }
        }
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

impl<E: RegistryEntry> Serialize for Spec<E> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de, E: RegistryEntry> Deserialize<'de> for Spec<E> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
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
        for at in 0..entry.params().len() {
            spec.apply_preset(at, &given);
        }
        Ok(spec)
    }
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
