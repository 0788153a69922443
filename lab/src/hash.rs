//! SHA-256 in lower-case digits: names of cache entries, and the origin of results.

use sha2::{Digest, Sha256};

/// Bytes as lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The SHA-256 of `bytes`.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// The first 64 bits of the SHA-256 of several parts. Another division of the same bytes gives
/// another value.
pub(crate) fn short<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hex(&hash.finalize()[..8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_those_of_the_standard() {
        // FIPS 180-2, appendix B.1.
        assert_eq!(
            sha256(b"abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }

    #[test]
    fn parts_count() {
        let ab = short([&b"a"[..], b"b"]);
        assert_eq!(ab.len(), 16);
        assert_ne!(ab, short([&b"ab"[..]]));
        assert_ne!(ab, short([&b"ab"[..], b""]));
    }
}
