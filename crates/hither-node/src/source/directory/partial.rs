//! Names of files that are not finished yet.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

/// How names begin and end.
const PARTIAL: (&[u8], &[u8]) = (b".hither-", b".partial");

/// Whether `name` is that of an unfinished file.
pub(super) fn is_partial(name: &[u8]) -> bool {
    name.starts_with(PARTIAL.0) && name.ends_with(PARTIAL.1)
}

/// A name that no other writer has: the standard library's hash keys are random.
pub(super) fn partial_name() -> Vec<u8> {
    let random = RandomState::new().build_hasher().finish();
    let random = format!("{random:016x}");
    [PARTIAL.0, random.as_bytes(), PARTIAL.1].concat()
}
