//! The signature of a call site as text, in files and logs: 16 hexadecimal digits. Most readers of
//! JSON keep 53 bits of a number.
//!
//! The functions [`serialize`] and [`deserialize`] are for serde's `with`.

use serde::{Deserialize, Deserializer, Serializer, de};

/// The text of a signature.
pub fn text(signature: u64) -> String {
    format!("{signature:016x}")
}

/// The signature of a text, with or without `0x`. `None`, if it is none.
pub fn parse(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
}

/// Writes [`text`].
pub fn serialize<S: Serializer>(signature: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&text(*signature))
}

/// Reads what [`parse`] does.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse(&text).ok_or_else(|| de::Error::custom(format!("{text:?} is no signature")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_survives_as_text() {
        for signature in [0, 7, u64::MAX] {
            assert_eq!(parse(&text(signature)), Some(signature));
        }
        assert_eq!(parse("0x1f"), Some(31));
        assert_eq!(parse("call"), None);
    }
}
