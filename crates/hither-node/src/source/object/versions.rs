//! What a source says of an object, and how its versions are named.

use std::time::{Duration, SystemTime};

use object_store::{GetOptions, ObjectMeta};

use super::super::{FileVersion, Version};

/// The user metadata that says which write has stored an object. A word that is a name in the
/// headers of all buckets.
pub(super) const MARK: &str = "hitherwrite";

/// Before the etag in the version of an object.
const BY_ETAG: &[u8] = b"etag:";

/// What a source says of an object.
pub(super) struct Head {
    pub meta: ObjectMeta,
    /// The write that has stored it, if it was one of hither's.
    pub mark: Option<String>,
    /// When it said so, by its own clock.
    pub answered: Option<SystemTime>,
}

/// The version that `meta` describes: its etag, else its time of modification and size, which is
/// weaker. `None` if it has neither.
pub(super) fn version(meta: &ObjectMeta) -> Option<Version> {
    let name = match &meta.e_tag {
        Some(etag) if etag.starts_with(['"', 'W']) => format!("etag:{etag}"),
        // Listings of Azure give it without quotes.
        Some(etag) => format!("etag:\"{etag}\""),
        None if meta.last_modified.timestamp() == 0 => return None,
        None => format!("modified:{}:{}", meta.last_modified.timestamp(), meta.size),
    };
    Some(Version::new(name.as_bytes()))
}

/// The etag in `version`, if it stands for equal bytes.
pub(super) fn strong_etag(version: &Version) -> Option<&str> {
    let etag = version.as_bytes().strip_prefix(BY_ETAG)?;
    let etag = std::str::from_utf8(etag).ok()?;
    etag.starts_with('"').then_some(etag)
}

/// The condition under which a source gives bytes of `file`, and no others. A weak etag is no
/// condition (RFC 9110, 13.1.1): there, only the answer tells.
pub(super) fn condition(file: &FileVersion) -> GetOptions {
    let mut options = GetOptions::default();
    if let Some(etag) = strong_etag(&file.version) {
        options.if_match = Some(etag.to_owned());
    } else if let Some(seconds) = modified_seconds(&file.version) {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        options.if_unmodified_since = Some(time.into());
    }
    options
}

fn modified_seconds(version: &Version) -> Option<u64> {
    let text = std::str::from_utf8(version.as_bytes()).ok()?;
    let (seconds, _) = text.strip_prefix("modified:")?.split_once(':')?;
    seconds.parse().ok()
}
