//! Names of files that are not finished yet.

use hither_net::random::random;

/// How names begin and end.
const PARTIAL: (&[u8], &[u8]) = (b".hither-", b".partial");

/// Whether `name` is that of an unfinished file.
pub(super) fn is_partial(name: &[u8]) -> bool {
    name.starts_with(PARTIAL.0) && name.ends_with(PARTIAL.1)
}

/// A name that no other writer has.
pub(super) fn partial_name() -> Vec<u8> {
    let random = format!("{:016x}", random());
    [PARTIAL.0, random.as_bytes(), PARTIAL.1].concat()
}
