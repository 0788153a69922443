//! A policy as a user writes it, `pcc{threshold=100,sample=20,other=arc}`: parsed, checked against the registry, and
//! written out again with every default, so that a result says exactly what produced it.

use crate::registry::{self, Entry, Kind, Param, Settings};
use crate::replacement::Policy;
use std::fmt;
use std::str::FromStr;

/// A policy with a value for each of its parameters.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    entry: &'static Entry,
    values: Values,
}

/// The most parameters that a policy has.
const PARAMS_MAX: usize = 8;

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
    Policy(&'static str),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Count(value) => value.fmt(f),
            Value::Real(value) => value.fmt(f),
            Value::Policy(value) => value.fmt(f),
        }
    }
}

impl Values {
    /// The parameter at `index` of the entry, a [`Kind::Count`].
    pub fn count(&self, index: usize) -> u64 {
        match self.0[index] {
            Value::Count(value) => value,
            other => panic!("parameter {index} is {other:?}, not a count"),
        }
    }

    /// The parameter at `index` of the entry, a [`Kind::Real`].
    pub fn real(&self, index: usize) -> f64 {
        match self.0[index] {
            Value::Real(value) => value,
            other => panic!("parameter {index} is {other:?}, not a real number"),
        }
    }

    /// The parameter at `index` of the entry, a [`Kind::Policy`]: that policy with its defaults.
    pub fn policy(&self, index: usize) -> Spec {
        match self.0[index] {
            Value::Policy(name) => {
                Spec::defaults(registry::find(name).expect("checked on parsing"))
            }
            other => panic!("parameter {index} is {other:?}, not a policy"),
        }
    }
}

/// Why a text is not a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// Not `name` or `name{parameter=value,...}`.
    #[error("`{text}` is not a policy: write NAME or NAME{{PARAMETER=VALUE,...}}")]
    Syntax {
        /// What was written.
        text: String,
    },
    /// No policy of that name.
    #[error("unknown policy `{name}`{hint}; the policies are {known}")]
    UnknownPolicy {
        /// What was written.
        name: String,
        /// ` (did you mean ...?)`, or nothing.
        hint: String,
        /// All names.
        known: String,
    },
    /// The policy has no parameter of that name.
    #[error("`{policy}` has no parameter `{name}`{hint}; {known}")]
    UnknownParameter {
        /// The policy.
        policy: &'static str,
        /// What was written.
        name: String,
        /// ` (did you mean ...?)`, or nothing.
        hint: String,
        /// The parameters it has.
        known: String,
    },
    /// A parameter was given twice.
    #[error("`{policy}`: `{name}` is given twice")]
    Repeated {
        /// The policy.
        policy: &'static str,
        /// The parameter.
        name: &'static str,
    },
    /// A value of the wrong type or out of range.
    #[error("`{policy}`: `{name}={value}` is not allowed: {name} is {allowed}")]
    Value {
        /// The policy.
        policy: &'static str,
        /// The parameter.
        name: &'static str,
        /// What was written.
        value: String,
        /// What may be written.
        allowed: String,
    },
}

impl Spec {
    /// `entry` with all defaults.
    pub fn defaults(entry: &'static Entry) -> Self {
        let mut values = [Value::Count(0); PARAMS_MAX];
        for (value, param) in values.iter_mut().zip(entry.params) {
            *value = match param.kind {
                Kind::Count { default, .. } => Value::Count(default),
                Kind::Real { default, .. } => Value::Real(default),
                Kind::Policy { default } => Value::Policy(default),
            };
        }
        Spec {
            entry,
            values: Values(values),
        }
    }

    /// The policy.
    pub fn entry(&self) -> &'static Entry {
        self.entry
    }

    /// Every parameter with its value, in the order of the entry.
    pub fn params(&self) -> impl Iterator<Item = (&'static Param, Value)> + use<> {
        self.entry.params.iter().zip(self.values.0)
    }

    /// Makes the policy.
    pub fn build(&self, settings: &Settings<'_>) -> Box<dyn Policy> {
        (self.entry.build)(settings, &self.values)
    }

    /// Splits a list such as `lru,pcc{sample=1,other=arc},opt` at the commas outside braces and parses each.
    pub fn parse_list(text: &str) -> Result<Vec<Spec>, SpecError> {
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
}

impl PartialEq for Spec {
    fn eq(&self, other: &Self) -> bool {
        self.entry.name == other.entry.name && self.values == other.values
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.entry.name)?;
        for (index, (param, value)) in self.params().enumerate() {
            let before = if index == 0 { '{' } else { ',' };
            write!(f, "{before}{}={value}", param.name)?;
        }
        if self.entry.params.is_empty() {
            Ok(())
        } else {
            f.write_str("}")
        }
    }
}

impl FromStr for Spec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let text = text.trim();
        let syntax = || SpecError::Syntax {
            text: text.to_owned(),
        };
        let (name, list) = match text.split_once('{') {
            None => (text, ""),
            Some((name, rest)) => (name.trim_end(), rest.strip_suffix('}').ok_or_else(syntax)?),
        };
        if name.is_empty() || name.contains('}') || list.contains(['{', '}']) {
            return Err(syntax());
        }
        let entry = registry::find(name).ok_or_else(|| {
            let names = registry::policies().iter().map(|entry| entry.name);
            SpecError::UnknownPolicy {
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
                .params
                .iter()
                .position(|param| param.name == name)
                .ok_or_else(|| unknown_parameter(entry, name))?;
            let param = &entry.params[at];
            if std::mem::replace(&mut given[at], true) {
                return Err(SpecError::Repeated {
                    policy: entry.name,
                    name: param.name,
                });
            }
            spec.values.0[at] = param.kind.parse(value).ok_or_else(|| SpecError::Value {
                policy: entry.name,
                name: param.name,
                value: value.to_owned(),
                allowed: param.kind.allowed(),
            })?;
        }
        Ok(spec)
    }
}

impl Kind {
    fn parse(self, text: &str) -> Option<Value> {
        match self {
            Kind::Count { min, max, .. } => {
                let value = text.parse().ok()?;
                (min..=max).contains(&value).then_some(Value::Count(value))
            }
            Kind::Real { min, max, .. } => {
                let value = text.parse().ok()?;
                (min..=max).contains(&value).then_some(Value::Real(value))
            }
            Kind::Policy { .. } => {
                let entry = registry::find(text)?;
                entry.needs.nothing().then_some(Value::Policy(entry.name))
            }
        }
    }

    /// What may be written for a parameter of this kind, in words.
    pub fn allowed(self) -> String {
        match self {
            Kind::Count { min, max, .. } if max == u64::MAX => {
                format!("a whole number of at least {min}")
            }
            Kind::Count { min, max, .. } => format!("a whole number from {min} to {max}"),
            Kind::Real { min, max, .. } => format!("a number from {min} to {max}"),
            Kind::Policy { .. } => {
                let names: Vec<_> = registry::policies()
                    .iter()
                    .filter(|entry| entry.needs.nothing())
                    .map(|entry| entry.name)
                    .collect();
                format!("one of {}", names.join(", "))
            }
        }
    }
}

fn unknown_parameter(entry: &'static Entry, name: &str) -> SpecError {
    let names = entry.params.iter().map(|param| param.name);
    SpecError::UnknownParameter {
        policy: entry.name,
        name: name.to_owned(),
        hint: hint(name, names.clone()),
        known: if entry.params.is_empty() {
            "it has none".to_owned()
        } else {
            format!("it has {}", names.collect::<Vec<_>>().join(", "))
        },
    }
}

/// ` (did you mean ...?)` for the nearest of `names`, if it is at most two edits away and not all edited.
fn hint(written: &str, names: impl Iterator<Item = &'static str>) -> String {
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
