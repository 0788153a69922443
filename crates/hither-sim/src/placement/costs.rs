//! Costs as text, `hop_ns=50000,disks=0:24`, for either engine.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The largest cost, 10 s: the sum of a billion such costs does not overflow.
const COST_NS_MAX: u64 = 10_000_000_000;

/// Why a text is not a list of costs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no list of costs such as `{example}`: {why}")]
pub struct CostsError {
    text: String,
    example: &'static str,
    why: String,
}

impl CostsError {
    /// `text` does not have the form of `example`.
    pub(super) fn new(text: &str, example: &'static str, why: impl ToString) -> CostsError {
        CostsError {
            text: text.to_owned(),
            example,
            why: why.to_string(),
        }
    }
}

/// These costs, changed by `text`. A list of numbers is written with colons.
pub(super) fn changed<C: Serialize + DeserializeOwned>(
    costs: &C,
    text: &str,
    example: &'static str,
) -> Result<C, CostsError> {
    let error = |why: String| CostsError::new(text, example, why);
    let mut costs = serde_json::to_value(costs).expect("numbers alone");
    let mut given = Vec::new();
    let parts = text.split(',').map(str::trim);
    for part in parts.filter(|part| !part.is_empty()) {
        let (name, value) = part
            .split_once('=')
            .ok_or_else(|| error(format!("`{part}` is not NAME=VALUE")))?;
        let (name, value) = (name.trim(), value.trim());
        let value = match costs.get(name) {
            Some(Value::Array(_)) => format!("[{}]", value.replace(':', ",")),
            _ => value.to_owned(),
        };
        let value: Value = value
            .parse()
            .map_err(|_| error(format!("`{part}`: that is no value")))?;
        if name.contains("_ns") && value.as_u64().is_some_and(|ns| ns > COST_NS_MAX) {
            return Err(error(format!(
                "`{part}`: at most {COST_NS_MAX} (10 s) are possible"
            )));
        }
        if given.contains(&name) {
            return Err(error(format!("`{name}` is given twice")));
        }
        given.push(name);
        costs[name] = value;
    }
    serde_json::from_value(costs).map_err(|why| error(why.to_string()))
}
